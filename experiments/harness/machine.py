"""Describe the machine, the versions and the threads that made a result."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import elldict

ALWAYS = ("elldict", "numpy", "scipy", "scikit-learn", "numexpr")


def made_by(threads: int, distributions: Iterable[str]) -> dict[str, Any]:
    """List all that measured times depend on; they are compared only if it is the same."""
    versions = {name: find_version(name) for name in sorted({*ALWAYS, *distributions})}
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "threads": threads,
        "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS"),
        "versions": {name: version for name, version in versions.items() if version},
        "source": hash_source(),
    }


def find_version(name: str) -> str | None:
    """Return the version of a distribution, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """Return the name of the processor, if the system knows it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def hash_source() -> str:
    """Hash the source files of elldict, because the version does not change between releases."""
    folder = Path(elldict.__file__).parent
    digest = hashlib.sha256()
    native = Path(__file__).parents[2] / "native"
    for root, endings in ((folder, (".py",)), (native, (".cpp", ".h"))):
        for path in sorted(path for path in root.rglob("*") if path.suffix in endings):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
