"""What made the numbers: machine, versions, threads."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import elldict

ALWAYS = ("elldict", "numpy", "scipy", "scikit-learn", "numexpr")


def made_by(threads: int, distributions: Iterable[str]) -> dict[str, Any]:
    """All on which the numbers depend. Results are taken up again only where this is the same."""
    versions = {name: _version(name) for name in sorted({*ALWAYS, *distributions})}
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "threads": threads,
        "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS"),
        "versions": {name: version for name, version in versions.items() if version},
        "source": hash_source(),
    }


def busy_share(seconds: float) -> float | None:
    """Wait, and tell what share of all cores others used meanwhile; None where the system does not say."""
    before, own = _jiffies(), time.process_time()
    time.sleep(seconds)
    after, own = _jiffies(), time.process_time() - own  # our own threads of BLAS may still be spinning
    if before is None or after is None or after[1] == before[1]:
        return None
    others = after[0] - before[0] - own * os.sysconf("SC_CLK_TCK")
    return round(max(others, 0.0) / (after[1] - before[1]), 3)


def _jiffies() -> tuple[int, int] | None:
    """Busy time of all cores since the system began, and all of it."""
    try:
        fields = [int(word) for word in Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(fields) - fields[3] - fields[4], sum(fields)  # without idle and waiting for disks


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """Its name in words, where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def hash_source() -> str:
    """Digest of elldict's own files: between releases the version alone does not tell what was measured."""
    folder = Path(elldict.__file__).parent
    digest = hashlib.sha256()
    native = Path(__file__).parents[2] / "native"
    for root, endings in ((folder, (".py",)), (native, (".cpp", ".h"))):
        for path in sorted(path for path in root.rglob("*") if path.suffix in endings):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
