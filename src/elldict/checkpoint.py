"""Checkpoints: a fit that was interrupted or killed is resumed, and ends with the same bits.

A fit is deterministic, and made of loops in loops. A checkpoint stores the latest value of every loop by its place in
the fit; the end of a loop replaces all that is stored of the loops inside. A resumed fit runs from its beginning, and
each loop continues from its stored value. The file is an .npz of plain arrays: opening it executes nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import elldict
from elldict.atomic import open_atomic, refuse_special
from elldict.exceptions import FileContentError
from elldict.fit import Options
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

BYTES_PER_SECOND = 2e8
"""Speed of a slow disk, to predict the time for a file that is larger than the last one."""


MOST_NAMED = 4
"""Maximum number of differences listed in an error."""


class CheckpointError(FileContentError):
    """The checkpoint is damaged, or is that of another fit."""


@dataclass(frozen=True)
class Entry:
    """The latest value of a loop: a tree in JSON, whose arrays are stored by name."""

    n_steps: int  # of the loop
    n_iterations: int  # of the fit, in the history
    tree: Any
    arrays: dict[str, Array]


@dataclass
class Place:
    """A running loop: its steps so far, and the number of loops begun within the present step."""

    path: tuple[int, ...] = ()  # for each loop around it and itself: step and number within this step
    n_steps: int = 0
    n_inner: int = 0


Content = tuple[dict[tuple[int, ...], Entry], list[Iteration]]
"""Entries by place, and the history up to the last one."""


@dataclass(eq=False, kw_only=True)
class Checkpoint(Journal):
    """Stores the values of loops in a file, and resumes loops from it."""

    path: Path
    about: dict[str, Any]
    recorder: Recorder
    entries: dict[tuple[int, ...], Entry] = field(default_factory=dict)
    past: list[Iteration] = field(default_factory=list)  # history of the fit that is resumed
    place: Place = field(default_factory=Place)
    is_stopped: bool = False
    written: Any = None  # the last entries that were written, or that could not be
    finished_at: float = 0.0  # writing them
    duration: float = 0.0  # of writing them

    def repeat(self, step: Callable[[T], T], value: T, has_ended: Callable[[T], bool]) -> T:
        """Apply a step until the loop has ended, beginning with its stored value."""
        outer = self.place
        self.place = place = Place((*outer.path, outer.n_steps, outer.n_inner))
        outer.n_inner += 1
        try:
            if (entry := self.entries.get(place.path)) is not None:
                place.n_steps, value = entry.n_steps, decode(entry.tree, entry.arrays)
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
        arrays: dict[str, Array] = {}
        tree = encode(value, name_place(place.path), arrays)
        depth = len(place.path)
        entries = {path: entry for path, entry in self.entries.items() if path[:depth] != place.path}
        entries[place.path] = Entry(place.n_steps, len(self.recorder.history), tree, arrays)
        size = sum(array.nbytes for entry in entries.values() for array in entry.arrays.values())
        if size > max(MOST_BYTES, MOST_PER_PAIR * self.about["n_features"] ** 2):
            return
        self.entries = entries
        expected = max(self.duration, size / BYTES_PER_SECOND)
        if perf_counter() - self.finished_at > expected / SHARE_OF_TIME:
            self.write()

    def write(self) -> None:
        """Write the file, unless it is up to date."""
        if self.written is self.entries:
            return
        began, entries, done = perf_counter(), self.entries, self.recorder.history
        trees = [(path, entry.n_steps, entry.n_iterations, entry.tree) for path, entry in entries.items()]
        header = json.dumps({"about": self.about, "entries": trees}).encode()
        arrays = {name: array for entry in entries.values() for name, array in entry.arrays.items()}
        history = [(it.stage, it.objective, it.step, it.seconds) for it in [*done, *self.past[len(done) :]]]
        arrays["history"] = np.array(history, dtype=np.float64).reshape(-1, 4)
        try:
            with open_atomic(self.path) as stream:
                np.savez(stream, header=np.frombuffer(header, np.uint8), **arrays)  # type: ignore[arg-type]
        except OSError:
            self.written = entries
            raise
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
        checkpoint.entries, checkpoint.past = read(checkpoint.path, about)
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
    n_samples, n_features = samples.shape
    parameters = asdict(options)
    parameters["random_state"] = int(random_state) if isinstance(random_state, Integral) else None
    return {
        "version": elldict.__version__,
        "n_samples": n_samples,
        "n_features": n_features,
        "dtype": str(samples.dtype),
        **parameters,
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
        f"{name} differs" if name in ("X", "sample_weight", "groups") else f"{name} was {was!r} and is {value!r}"
        for name, value in ours.items()
        if (was := theirs.get(name)) != value
    ]
    if differences:
        found = "; ".join(differences[:MOST_NAMED])
        raise CheckpointError(
            f"{path} is the checkpoint of another fit: {found}. Use the data and parameters of that fit, or choose "
            "another file."
        )


# Files


def read(path: Path, about: Mapping[str, Any]) -> Content:
    """Read the checkpoint of the fit that this is about, after checking all of it."""
    with path.open("rb") as stream:
        try:
            header, arrays = load(stream)
            check_about(path, header["about"], about)
            entries = {}
            for place, n_steps, n_iterations, tree in header["entries"]:
                decode(tree, arrays)  # fails now if it can fail
                own = {name: array for name, array in arrays.items() if name.partition(".")[0] == name_place(place)}
                entries[tuple(place)] = Entry(n_steps, n_iterations, tree, own)
            return entries, list_iterations(arrays["history"])
        except CheckpointError:
            raise
        except Exception as error:  # a damaged file may lead to almost any
            raise CheckpointError(
                f"{path} is not a checkpoint, or is damaged ({error}). Delete it and start again, or choose another "
                "file."
            ) from error


def load(stream: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Load the header and the arrays of a file; checksums of zip find what has changed in it."""
    with zipfile.ZipFile(stream) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise ValueError("it is compressed")  # a small file might then take all memory
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def list_iterations(table: Array) -> list[Iteration]:
    """List the iterations of a history."""
    return [Iteration(int(row[0]), number, *row[1:].tolist()) for number, row in enumerate(table, start=1)]


def name_place(path: Sequence[int]) -> str:
    """Return the name of a place, with which the names of its arrays begin."""
    return "-".join(map(str, path))


def encode(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Describe a value by a tree in JSON; append its arrays by the name of where they are in it."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[name] = value if value.flags.forc else value.copy("K")  # the sums of a resumed fit depend on the layout
        return {"array": name}
    if isinstance(value, (Grid, Reason)):
        return {"grid": value.n_widths} if isinstance(value, Grid) else {"reason": value.name}
    if isinstance(value, (tuple, list)):
        return [encode(item, f"{name}.{number}", arrays) for number, item in enumerate(value)]
    if isinstance(value, dict):
        return {"dict": {key: encode(item, f"{name}.{key}", arrays) for key, item in value.items()}}
    if CLASSES.get(kind := type(value).__name__) is type(value):
        items = {field.name: getattr(value, field.name) for field in fields(value)}
        return {kind: {key: encode(item, f"{name}.{key}", arrays) for key, item in items.items()}}
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} is a {kind}, which a checkpoint cannot store.")


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
