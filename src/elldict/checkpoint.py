"""Checkpoints: a fit that was interrupted or killed is resumed, and ends with the same bits.

A fit is deterministic, and made of loops in loops. A checkpoint stores the latest value of every loop by its place in
the fit; the end of a loop replaces all that is stored of the loops inside. A resumed fit runs from its beginning, and
each loop continues from its stored value. Nothing in a file is executed.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import elldict
from elldict.archive import Arrays, Header, read_archive, write_archive
from elldict.atomic import refuse_special
from elldict.atoms import Options
from elldict.exceptions import FileContentError
from elldict.history import Iteration, Recorder
from elldict.samples.base import Array, Samples
from elldict.samples.normalization import Normalization
from elldict.solver.climb import Journal, Reason, State, T
from elldict.solver.density import Density, Grid, get_grid
from elldict.solver.objectives import Lp, SignedLp, SmoothNorm
from elldict.solver.select import Candidate, Pilot
from elldict.solver.steps import QuasiNewton, Trial

CLASSES = {
    kind.__name__: kind
    for kind in (State, QuasiNewton, Trial, Density, Lp, SignedLp, SmoothNorm, Normalization, Candidate, Pilot)
}
"""Classes whose objects are stored, and the only ones that are made of the content of a file."""

MOST_BYTES, MOST_PER_PAIR = 290_000_000, 17
"""Size of the stored arrays: in bytes, or if that is more, in bytes per pair of features. What exceeds it is not stored
and computed again; of 4096 features, two matrices are stored, but not the memory of steps."""

SHARE_OF_TIME = 0.05
"""Fraction of the time that may be spent on writing."""

R = TypeVar("R")


class CheckpointError(FileContentError):
    """The checkpoint is damaged, or is that of another fit."""


@dataclass(frozen=True)
class Entry:
    """The latest value of a loop."""

    n_steps: int  # of the loop
    n_iterations: int  # of the fit, in the history
    value: Any


@dataclass
class Place:
    """A running loop: its steps so far, and the number of loops begun within the present step."""

    path: tuple[int, ...] = ()  # for each loop around it and itself: step and number within this step
    n_steps: int = 0
    n_inner: int = 0


Entries = dict[tuple[int, ...], Entry]
"""The latest values of loops by their place."""


@dataclass(eq=False, kw_only=True)
class Checkpoint(Journal):
    """Stores the values of loops in a file, and resumes loops from it."""

    path: Path
    about: dict[str, Any]
    recorder: Recorder
    entries: Entries = field(default_factory=dict)
    past: list[Iteration] = field(default_factory=list)  # history of the fit that is resumed
    place: Place = field(default_factory=Place)
    is_stopped: bool = False
    written: Entries | None = None  # the last entries that were written
    finished_at: float = 0.0  # writing them
    duration: float = 0.0  # of writing them

    def repeat(self, step: Callable[[T], T], value: T, has_ended: Callable[[T], bool]) -> T:
        """Apply a step until the loop has ended, beginning with its stored value."""
        outer = self.place
        self.place = place = Place((*outer.path, outer.n_steps, outer.n_inner))
        outer.n_inner += 1
        try:
            if (entry := self.entries.get(place.path)) is not None:
                place.n_steps, value = entry.n_steps, entry.value
                history = self.recorder.history
                history.extend(self.past[len(history) : entry.n_iterations])
            while not has_ended(value):
                value = step(value)
                place.n_steps, place.n_inner = place.n_steps + 1, 0
                self._keep(place, value)
        finally:
            self.place = outer
        return value

    def _keep(self, place: Place, value: Any) -> None:
        """Replace what is stored of a loop and of those inside it, unless it takes too much space.

        That a callback has stopped the fit is not stored: when resumed, the iteration is repeated, and the callback
        asked again.
        """
        self.is_stopped |= isinstance(value, State) and value.reason is Reason.STOPPED
        if self.is_stopped:
            return
        depth = len(place.path)
        entries = {path: entry for path, entry in self.entries.items() if path[:depth] != place.path}
        entries[place.path] = Entry(place.n_steps, len(self.recorder.history), value)
        size = sum(array.nbytes for array in pack(entries)[1].values())
        if size > max(MOST_BYTES, MOST_PER_PAIR * self.about["n_features"] ** 2):
            return
        self.entries = entries
        if perf_counter() - self.finished_at > self.duration / SHARE_OF_TIME:
            self.write()

    def write(self) -> None:
        """Write the file, unless it is up to date."""
        if self.written is self.entries:
            return
        began, entries, done = perf_counter(), self.entries, self.recorder.history
        trees, arrays = pack(entries)
        history = [(it.stage, it.objective, it.step, it.seconds) for it in [*done, *self.past[len(done) :]]]
        arrays["history"] = np.array(history, dtype=np.float64).reshape(-1, 4)
        write_archive(self.path, {"about": self.about, "entries": trees}, arrays)
        self.written, self.finished_at = entries, perf_counter()
        self.duration = self.finished_at - began


@contextmanager
def open_checkpoint(
    path: str | os.PathLike[str], about: dict[str, Any], recorder: Recorder, show_part: Callable[[int, int], None]
) -> Iterator[Checkpoint]:
    """Resume from a file if there is one, otherwise make it; however the block ends, the file is then up to date."""
    checkpoint = Checkpoint(path=Path(path), about=about, recorder=recorder, show_part=show_part)
    is_new = not checkpoint.path.exists()
    if is_new:
        checkpoint.write()  # an error now, not after hours, if that is impossible
    else:
        checkpoint.entries, checkpoint.past = read(checkpoint.path, about, unpack)
        checkpoint.written = checkpoint.entries
        recorder.began -= checkpoint.past[-1].seconds if checkpoint.past else 0.0
    try:
        yield checkpoint
    except BaseException as error:
        try:
            checkpoint.write()
        except OSError as failure:
            error.add_note(f"The checkpoint could not be written: {failure}")
        if is_new and not checkpoint.entries:  # it would only be in the way
            checkpoint.path.unlink(missing_ok=True)
        raise
    checkpoint.write()


def check_arguments(checkpoint: Any, resume: Any) -> bool:
    """Check the arguments of a fit; return whether there is nothing to resume from, although that is asked for."""
    if not isinstance(resume, (bool, np.bool_)):
        raise TypeError(f"resume must be True or False. Got {resume!r} instead.")
    if checkpoint is None:
        if resume:
            raise ValueError("resume=True needs checkpoint=PATH, the file that the interrupted fit has written.")
        return False
    if not isinstance(checkpoint, (str, os.PathLike)):
        raise TypeError(f"checkpoint must be the name of a file. Got a {type(checkpoint).__name__} instead.")
    path = Path(checkpoint)
    refuse_special(path)
    if path.exists() and not resume:
        message = "A checkpoint exists. Continue from it with resume=True, or delete it to start again"
        raise FileExistsError(errno.EEXIST, message, str(path))
    return bool(resume) and not path.exists()


# What a fit is about


def describe_fit(samples: Samples, groups: NDArray[Any] | None, options: Options, random_state: Any) -> dict[str, Any]:
    """Describe the samples and the parameters of a fit; those without an influence on it are left out."""
    seed = int(random_state) if isinstance(random_state, Integral) else None
    return describe_samples(samples, groups) | asdict(options) | {"random_state": seed}


def describe_samples(samples: Samples, groups: NDArray[Any] | None) -> dict[str, Any]:
    """Describe the samples of a fit."""
    return {
        "version": elldict.__version__,
        "n_samples": samples.shape[0],
        "n_features": samples.shape[1],
        "dtype": str(samples.dtype),
        "X": digest_samples(samples),
        "sample_weight": None if samples.weights is None else digest(samples.weights),
        "groups": None if groups is None else digest(np.unique(groups, return_inverse=True)[1].astype(np.int64)),
    }


def digest_samples(samples: Samples) -> str:
    """Compute a checksum of all samples and of their order, in one pass."""

    def visit(rows: Array, start: int) -> int:
        return int(digest(rows, start), 16)

    return f"{samples.sum(visit) % 2**128:032x}"


def digest(array: NDArray[Any], start: int = 0) -> str:
    """Compute a checksum of an array that begins at a position."""
    data = np.ascontiguousarray(array).data
    return hashlib.blake2b(data, digest_size=16, salt=start.to_bytes(16, "little")).hexdigest()


def check_about(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise an error that says how the fit of a checkpoint differs from this one."""
    differences = [
        f"{name} differs" if name in ("X", "sample_weight", "groups") else f"{name} was {was!r:.60} and is {value!r}"
        for name, value in ours.items()
        if (was := theirs.get(name)) != value
    ]
    if differences:
        raise CheckpointError(
            f"{path} is the checkpoint of another fit: {'; '.join(differences)}. Use the data and parameters of that "
            "fit, or choose another file."
        )


# Files


def read(path: Path, about: Mapping[str, Any], parse: Callable[[Header, Arrays], R]) -> R:
    """Read a file that is about a fit, after checking all of it."""
    refuse_special(path)
    with path.open("rb") as stream:
        try:
            return parse(*read_archive(stream, lambda header: check_about(path, header["about"], about)))
        except CheckpointError:
            raise
        except Exception as error:  # a damaged file may lead to almost any
            raise CheckpointError(
                f"{path} is not a checkpoint, or is damaged ({error}). Delete it and start again, or choose another "
                "file."
            ) from error


def unpack(header: Header, arrays: Arrays) -> tuple[Entries, list[Iteration]]:
    """Return the values of loops, and the history up to the last one."""
    found = header["entries"]
    entries = {tuple(path): Entry(n_steps, n, decode(tree, arrays)) for path, n_steps, n, tree in found}
    rows = enumerate(arrays["history"].tolist(), start=1)
    return entries, [Iteration(int(stage), number, *others) for number, (stage, *others) in rows]


def pack(entries: Entries) -> tuple[list[Any], Arrays]:
    """Describe the values of loops by trees in JSON and arrays."""
    arrays: Arrays = {}
    trees = [(path, each.n_steps, each.n_iterations, encode(each.value, arrays)) for path, each in entries.items()]
    return trees, arrays


def encode(value: Any, arrays: Arrays) -> Any:
    """Describe a value by a tree in JSON; append its arrays, by number."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        name = str(len(arrays))
        arrays[name] = value if value.flags.forc else value.copy("K")  # the sums of a resumed fit depend on the layout
        return {"array": name}
    if isinstance(value, (Grid, Reason)):
        return {"grid": value.n_widths} if isinstance(value, Grid) else {"reason": value.name}
    if isinstance(value, (tuple, list)):
        return [encode(item, arrays) for item in value]
    if isinstance(value, dict):
        return {"dict": {key: encode(item, arrays) for key, item in value.items()}}
    if CLASSES.get(kind := type(value).__name__) is type(value):
        return {kind: {field.name: encode(getattr(value, field.name), arrays) for field in fields(value)}}
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"A {kind} cannot be stored in a checkpoint.")


def decode(tree: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the value that a tree describes; lists are tuples."""
    if isinstance(tree, list):
        return tuple(decode(item, arrays) for item in tree)
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "grid":
        return get_grid(content)
    if kind == "reason":
        return Reason[content]
    items = {key: decode(item, arrays) for key, item in content.items()}
    return items if kind == "dict" else CLASSES[kind](**items)
