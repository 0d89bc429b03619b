"""Checkpoints: the results of passes, recorded so that a fit can be resumed by replay."""

from __future__ import annotations

import hashlib
import platform
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from elldict.backend.base import Array, Backend, is_foreign, to_numpy
from elldict.data.dataset import Dataset, Kernel, RowWriter, S
from elldict.data.statistics import PartialStatistics
from elldict.record_file import Draft, Record, RecordFile, RecordFileError
from elldict.result import Callback, Iteration
from elldict.solver.loop import Phase, PhasePosition, Problem
from elldict.solver.objective import Statistics

KINDS: dict[str, Any] = {"Statistics": Statistics, "PartialStatistics": PartialStatistics}
"""What a pass may bring home; anything else is not recorded."""


def digest(value: Any) -> str:
    """Digest of a question: dataclasses, arrays and plain values, to the last bit."""
    state = hashlib.sha256()
    _feed(state.update, value)
    return state.hexdigest()[:32]


def _feed(update: Callable[[bytes | memoryview], object], value: Any) -> None:
    if is_dataclass(value):
        told = (getattr(value, field.name) for field in fields(value) if field.compare)  # others are known anyway
        _feed(update, (type(value).__name__, *told))
    elif isinstance(value, (tuple, list)):
        update(b"(%d" % len(value))
        for item in value:
            _feed(update, item)
    elif isinstance(value, Enum):
        _feed(update, (type(value).__name__, value.value))
    elif isinstance(value, float):
        update(b"f" + struct.pack("<d", value))
    elif value is None or isinstance(value, (bool, int, str)):
        update(repr(value).encode() + b";")
    else:
        array = to_numpy(value)
        update(f"{array.dtype.str}{array.shape}".encode())
        update(np.ascontiguousarray(array).data)


def encoded(result: Any) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """What a pass brought home as words and arrays; no words if it is of a kind that is not recorded."""
    kind = type(result).__name__
    if KINDS.get(kind) is not type(result):
        return {}, []
    arrays: list[NDArray[Any]] = []

    def put(value: Any) -> Any:
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, Mapping):
            return {"map": {name: put(item) for name, item in value.items()}}
        arrays.append(to_numpy(value))
        return {"array": len(arrays) - 1, "moved": is_foreign(value)}

    values = {field.name: put(getattr(result, field.name)) for field in fields(result)}
    return {"result": kind, "fields": values}, arrays


def decoded(words: Mapping[str, Any], arrays: list[NDArray[Any]], backend: Backend) -> Any:
    """What a pass brought home; arrays that lived in `backend` are there again."""

    def get(value: Any) -> Any:
        if isinstance(value, dict) and "map" in value:
            return {name: get(item) for name, item in value["map"].items()}
        if isinstance(value, dict):
            array = arrays[value["array"]]
            return backend.asarray(array, str(array.dtype)) if value["moved"] else array
        return value

    return KINDS[words["result"]](**{name: get(value) for name, value in words["fields"].items()})


MOST_BYTES = 2**26
"""Sums of one stage that are kept before they give way to the place it has come to."""

SMALL_PART = 32
"""Rows are recorded if they are less than one part in so many of the samples: then the samples are large."""

COLUMNS = tuple(field.name for field in fields(Iteration) if field.name != "components")
COUNTS = ("start", "stage", "iteration")


class CheckpointError(ValueError):
    """The checkpoint is damaged, or belongs to another fit."""


@dataclass
class Checkpoint:
    """The record of a fit: read to its end, then written on."""

    file: RecordFile
    samples: Dataset
    n_read: int = 0  # records that the fit has been through
    stage_began: int = 0  # at this record
    answered: Record | None = None  # the last look

    def stats(self, kernel: Kernel[S]) -> S:
        """What the kernel adds up to over all samples, from the record if it is there."""
        key = digest(kernel)
        self.answered = self._next("sums", key)
        if self.answered is not None and "result" in self.answered.words:
            return cast(S, self._decoded(self.answered))
        result = self.samples.sum(kernel)
        if (
            self.answered is None and getattr(result, "non_finite", None) is None
        ):  # a value that is not finite ends the fit
            words, arrays = encoded(result)
            if sum(array.nbytes for array in arrays) > _n_bytes(self.samples):
                words, arrays = {}, []  # that it was asked is recorded in any case
            self.answered = self._append({"kind": "sums", "key": key, **words}, arrays)
        return result

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, from the record if it is there."""
        if SMALL_PART * len(index) > self.samples.n_samples:
            return self.samples.take(index)
        key = digest(index)
        record = self._next("rows", key)
        if record is not None:
            return self.file.arrays(record)[0].astype(np.float64)
        rows = self.samples.take(index)
        self._append({"kind": "rows", "key": key}, [rows.astype(self.samples.dtype)])
        return rows

    def telling(self, callback: Callback | None) -> Callback:
        """The callback, told of what it has not been told before; what it said then holds."""

        def tell(iteration: Iteration) -> bool:
            record = self._next("told", "")
            if record is not None:
                return bool(record.words["stop"])
            stop = callback is not None and bool(callback(iteration))
            self._append({"kind": "told", "key": "", "stop": stop})
            return stop

        return tell

    def recalled(self, problem: Problem, number: int, phase: Phase, A: Array) -> PhasePosition | None:
        """Where the record leaves the stage that begins at A; None if it knows no more than the looks of it."""
        if not self._follows(problem, phase):
            return None
        self.stage_began = self.n_read
        record = self._next("place", _stage_key(problem, number, phase, A), optional=True)
        if record is None:
            return None
        here, rows = self.file.arrays(record)
        iterations = tuple(_iteration(row) for row in rows.tolist())
        A = problem.samples.backend.asarray(here, "float64")
        return PhasePosition(int(record.words["iteration"]), A, float(record.words["passes"]), iterations)

    def reached(self, problem: Problem, number: int, phase: Phase, A: Array, iteration: int, here: Array) -> None:
        """Put the place a stage has come to where its looks were, once these have become many."""
        records, began = self.file.records, self.stage_began
        if not self._follows(problem, phase) or self.n_read < len(records):
            return
        if sum(record.size for record in records[began:]) < MOST_BYTES:
            return
        words = {"iteration": iteration, "passes": problem.log.passes, "key": _stage_key(problem, number, phase, A)}
        table = np.array([astuple(iteration)[: len(COLUMNS)] for iteration in problem.iterations], dtype=np.float64)
        assert self.answered is not None, "a place is reached by looking"
        # in one go: a place beside the looks that it stands for would be a place too many
        self.file.rewrite([*records[:began], Draft({"kind": "place", **words}, [to_numpy(here), table]), self.answered])
        self.n_read = len(self.file.records)
        self.answered = self.file.records[-1]

    def _follows(self, problem: Problem, phase: Phase) -> bool:
        """Whether a place in the stage can be kept: all samples, and a contrast that stays what it is."""
        return (
            phase.refit is None and isinstance(problem.samples, RecordedDataset) and problem.samples.checkpoint is self
        )

    def _append(self, words: Mapping[str, Any], arrays: list[NDArray[Any]] | None = None) -> Record:
        record = self.file.append(words, arrays or [])
        self.n_read += 1
        return record

    def _next(self, kind: str, key: str, *, optional: bool = False) -> Record | None:
        """The next record, which has to be the answer to this question; None if the record is used up."""
        if self.n_read == len(self.file.records):
            return None
        record = self.file.records[self.n_read]
        if record.words.get("kind") != kind and optional:
            return None
        if record.words.get("kind") != kind or record.words.get("key") != key:
            raise self._diverged()
        self.n_read += 1
        return record

    def _decoded(self, record: Record) -> Any:
        try:
            return decoded(record.words, self.file.arrays(record), self.samples.backend)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(f"{self.file.path} holds a record that is no answer to a pass: {error}") from error

    def _diverged(self) -> CheckpointError:
        made, now = self.file.header["made_with"], made_with()
        changed = ", ".join(f"{name} {made.get(name)}, now {now[name]}" for name in now if made.get(name) != now[name])
        return CheckpointError(
            f"Record {self.n_read + 1} of {len(self.file.records)} in {self.file.path} answers another question than "
            "this fit asks, although samples and parameters are the same: rounding differs. It was made with "
            f"{changed or 'the same libraries, perhaps on another kind of processor'}. Resume where it was made, or "
            "delete it and begin again."
        )


@dataclass(frozen=True)
class RecordedDataset:
    """Samples whose passes are answered from a checkpoint as far as it goes, and written to it from there on."""

    samples: Dataset
    checkpoint: Checkpoint

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.samples.n_samples

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.samples.n_features

    @property
    def dtype(self) -> str:
        """Precision of the tiles."""
        return self.samples.dtype

    @property
    def backend(self) -> Backend:
        """Where tiles are multiplied."""
        return self.samples.backend

    def fingerprint(self) -> str:
        """What tells these samples from others."""
        return self.samples.fingerprint()

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile."""
        return self.checkpoint.stats(kernel)

    def map_rows(self, kernel: Kernel[Array], n_columns: int) -> Any:
        """Put together what the kernel makes of every tile: never recorded, a row a sample is too much."""
        return self.samples.map_rows(kernel, n_columns)

    def write_rows(self, kernel: Kernel[Array], writer: RowWriter) -> None:
        """Give the sink what the kernel makes of every tile."""
        self.samples.write_rows(kernel, writer)

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index."""
        return self.checkpoint.take(index)

    def locate(self, sample: int) -> str:
        """Where a sample is found."""
        return self.samples.locate(sample)


@contextmanager
def checkpointed(
    path: Path, samples: Dataset, parameters: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[tuple[RecordedDataset, Checkpoint]]:
    """Samples that remember, and their checkpoint: the one at `path`, or a new one if there is none.

    `rng` is set to where the fit began that wrote it. However the fit ends, what it has learned is then on disk.
    """
    from elldict import __version__  # noqa: PLC0415  the package imports this module

    size = {"n_samples": samples.n_samples, "n_features": samples.n_features, "dtype": samples.dtype}
    about = _plain({"version": __version__, **size, "samples": samples.fingerprint(), **parameters})
    file = _taken_up(path, about, rng) if path.exists() else _begun(path, about, rng)
    checkpoint = Checkpoint(file, samples)
    try:
        yield RecordedDataset(samples, checkpoint), checkpoint
    finally:
        file.close()
        if not file.records:  # nothing was learned: the file would only be in the way of the next fit
            file.path.unlink(missing_ok=True)


def _begun(path: Path, about: Mapping[str, Any], rng: np.random.Generator) -> RecordFile:
    """A new checkpoint, with the random numbers that the fit starts from."""
    state = _plain(rng.bit_generator.state)
    return RecordFile.create(path, {"about": about, "random_numbers": state, "made_with": made_with()})


def _taken_up(path: Path, about: Mapping[str, Any], rng: np.random.Generator) -> RecordFile:
    """A checkpoint that is there, if it is of the same fit."""
    try:
        file = RecordFile.open(path)
        differences = list(_differences(file.header["about"], about))
        state, _ = file.header["random_numbers"], file.header["made_with"]
    except (RecordFileError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}") from error
    if not differences:
        try:
            rng.bit_generator.state = state
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            differences = [f"random numbers that this random_state cannot take up ({error})"]
    if differences:
        file.close()
        raise CheckpointError(
            f"{path} is the checkpoint of another fit: it has {'; '.join(differences)}. Give what that was begun "
            "with, or choose another file."
        )
    return file


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """What a checkpoint has, and what it was expected to have."""
    for name, value in ours.items():
        if theirs[name] != value:
            yield f"{name} {theirs[name]!r}, not {value!r}"


def made_with() -> dict[str, str]:
    """What decides how numbers are rounded."""
    return {"numpy": np.__version__, "scipy": scipy.__version__, "machine": platform.machine()}


def _stage_key(problem: Problem, number: int, phase: Phase, A: Array) -> str:
    return digest((problem.start, problem.first_phase + number, phase.objective, A))


def _iteration(row: list[float]) -> Iteration:
    named = zip(COLUMNS, row, strict=True)
    return Iteration(**cast(dict[str, Any], {name: int(value) if name in COUNTS else value for name, value in named}))


def _n_bytes(samples: Dataset) -> int:
    return samples.n_samples * samples.n_features * (4 if samples.dtype == "float32" else 8)


def _plain(value: Any) -> Any:
    """The value as JSON knows it."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
