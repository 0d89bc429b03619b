"""Originals of damaged files: what is written, and what reading it gives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.datasets import make_bernoulli_gaussian
from experiments.campaign.damage import Rng, damage_bytes

N_SAMPLES, N_FEATURES = 1200, 6
"""Of all samples: a fit takes some milliseconds."""

Files = dict[str, bytes]
"""What lies in a folder, by relative name."""


class WrongError(AssertionError):
    """A damaged file was read, and gave what it must not give."""


@dataclass(frozen=True)
class Original:
    """A file or folder that is whole, and what it gives."""

    target: str  # name to open
    files: Files
    answer: Any
    options: Mapping[str, Any] | None = None  # of the fit of a checkpoint


@dataclass(frozen=True)
class Damaged:
    """A damaged copy: what was done to it, and whether it is well formed, so that it may give other numbers."""

    note: str
    files: Files
    may_differ: bool


@dataclass(frozen=True)
class Kind:
    """A kind of files.

    `use` returns whether a file gave the numbers of the original; other numbers are those of the file itself, or it
    raises WrongError.
    """

    originals: Callable[[], list[Original]]
    damage: Callable[[Original, Rng], Damaged]
    use: Callable[[Original, Path], bool]


@cache
def make_samples() -> NDArray[np.float64]:
    X, _, _ = make_bernoulli_gaussian(N_SAMPLES, N_FEATURES, density=0.3, noise_std=0.1, random_state=0)
    X.setflags(write=False)
    return X


def list_files(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_files(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def damage_one(original: Original, name: str, rng: Rng, *, may_differ: bool) -> Damaged:
    note, content = damage_bytes(original.files[name], rng)
    return Damaged(f"{note} {name}", {**original.files, name: content}, may_differ)


def are_same(one: Any, other: Any) -> bool:
    """Equal in all, to the last bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(are_same, one, other))
    return bool(type(one) is type(other) and (one == other or one != one))  # noqa: PLR0124  NaN


class PlacedFiles(tempfile.TemporaryDirectory[str]):
    """A folder with some files, for as long as it is needed."""

    def __init__(self, files: Files) -> None:
        super().__init__(prefix="damaged")
        write_files(files, Path(self.name))

    def __enter__(self) -> Path:  # type: ignore[override]
        return Path(self.name)
