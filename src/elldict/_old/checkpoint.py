"""Checkpoints: the results of passes, recorded so that a fit can be resumed by replay.

A resumed fit runs from its beginning. Its passes over all samples are replayed from the records as long as there are
any, and computed and recorded from there on. A record carries a digest of what was asked, so that a fit that asks
something else is noticed.
"""

from __future__ import annotations

import hashlib
import math
import platform
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from elldict._old.backend.base import Array, Backend, is_foreign, to_numpy
from elldict._old.data.dataset import Dataset, DescribedBySource, Kernel, S
from elldict._old.data.statistics import PartialStatistics
from elldict._old.persistence import list_iterations, tabulate_iterations, to_plain
from elldict._old.record_file import Record, RecordFile, RecordFileError
from elldict._old.result import Callback, Iteration
from elldict._old.solver.evaluate import EvaluationKernel, Statistics
from elldict._old.solver.loop import Phase, PhasePosition, Problem
from elldict.exceptions import FileContentError

RECORDED_TYPES: dict[str, Any] = {"Statistics": Statistics, "PartialStatistics": PartialStatistics}
"""Results of passes that are recorded; others are computed again."""

MAX_PHASE_BYTES = 2**26
"""Results of one phase that are kept before the position in the phase replaces them."""

MIN_SAMPLES_PER_ROW = 32
"""Drawn rows are recorded if there are so many samples for each: then the samples are large, and slow to read."""


ARRAY_SHAPES = {"mean": "n", "scatter": "nn", "G": "mn", "secondary": "mn", "inactive": "mkk"}
"""Shapes of the arrays of a result, by the numbers of atoms, features and directions; those of all others are (m,)."""

LARGEST = {
    "weight": 2**53,
    "n_rows": 2**53,
    "squared_weight": 2**106,
    "exponent": 1100,
    "peak": 1e150,
    "known_mean": 1e300,
}
"""Numbers of a result that are no arrays, and the most they can be: a peak is in units of 2**exponent."""

WEIGHT_ROUNDING = 1e-9
"""Relative rounding of a sum of weights that are no whole numbers."""

FAILURES = (ArithmeticError, LookupError, TypeError, AttributeError, NameError, AssertionError, np.linalg.LinAlgError)
"""Errors of a fit that are none of what a user gives: after a replay, records are to blame that no fit has written."""

T = TypeVar("T")


class CheckpointError(FileContentError):
    """The checkpoint is damaged, or belongs to another fit."""


@dataclass(eq=False)
class RecordedDataset(DescribedBySource):
    """Samples whose passes are replayed from a file as far as it goes, and recorded in it from there on."""

    source: Dataset
    file: RecordFile
    n_replayed: int = 0  # records that the fit has used or written
    phase_start: int = 0  # the first record of the phase
    last_pass: Record | None = None
    has_replayed: bool = False
    callback_failed: bool = False

    @property
    def unrecorded(self) -> Dataset:
        """The samples themselves, for passes that cost less than to record them."""
        return self.source

    @property
    def backend(self) -> Backend:
        """Where tiles are multiplied."""
        return self.source.backend

    def sum(self, kernel: Kernel[S]) -> S:
        """Add up what the kernel makes of every tile."""
        key = digest(kernel)
        self.last_pass = self._replay("pass", key)
        if self.last_pass is not None and "result" in self.last_pass.words:
            return cast(S, self._decode(self.last_pass, partial(self._decode_result, kernel=kernel)))
        result = self.source.sum(kernel)
        if self.last_pass is None and getattr(result, "non_finite", None) is None:  # such a value ends the fit
            words, arrays = _encode_result(result)
            if sum(array.nbytes for array in arrays) > self.n_samples * self.n_features * np.dtype(self.dtype).itemsize:
                words, arrays = {}, []  # the pass is recorded, its result is computed again
            self.last_pass = self._record({"kind": "pass", "key": key, **words}, arrays)
        return result

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some samples, by sorted index."""
        if MIN_SAMPLES_PER_ROW * len(index) > self.n_samples:
            return self.source.take(index)
        key = digest(index)
        record = self._replay("rows", key)
        if record is not None:
            return self._decode(record, lambda _, arrays: self._check_rows(arrays[0], len(index)))
        rows = self.source.take(index)
        self._record({"kind": "rows", "key": key}, [rows.astype(self.dtype)])
        return rows

    def wrap_callback(self, callback: Callback | None) -> Callback:
        """The callback, called once for each iteration; what it returned before the fit was resumed still holds."""

        def call_once(iteration: Iteration) -> bool:
            record = self._replay("callback", "")
            if record is not None:
                return bool(record.words.get("stop"))
            self.callback_failed = True  # unless it returns
            stop = callback is not None and bool(callback(iteration))
            self.callback_failed = False
            self._record({"kind": "callback", "key": "", "stop": stop})
            return stop

        return call_once

    def recall(self, problem: Problem, number: int, phase: Phase, A: Array) -> PhasePosition | None:
        """Position that was recorded in the phase that begins at A; None if there are only its passes."""
        if not self._keeps_position(problem, phase):
            return None
        self.phase_start = self.n_replayed
        record = self._replay("position", _digest_phase(problem, number, phase, A), optional=True)
        return None if record is None else self._decode(record, partial(self._decode_position, phase=phase, start=A))

    def save(self, problem: Problem, number: int, phase: Phase, A: Array, iteration: int, here: Array) -> None:
        """Replace the passes of a phase by the position it has reached, once they take much space."""
        records, start = self.file.records, self.phase_start
        if not self._keeps_position(problem, phase) or self.n_replayed < len(records):
            return
        if sum(record.n_bytes for record in records[start:]) < MAX_PHASE_BYTES:
            return
        key = _digest_phase(problem, number, phase, A)
        words = {"kind": "position", "key": key, "iteration": iteration, "passes": problem.log.passes}
        assert self.last_pass is not None, "a position is reached by a pass"
        position = (words, [to_numpy(here), tabulate_iterations(problem.iterations)])
        last_pass = (self.last_pass.words, self.file.arrays(self.last_pass))  # the pass at the position: asked for next
        self.file.replace(start, [position, last_pass])
        self.n_replayed = len(self.file.records)
        self.last_pass = self.file.records[-1]

    def _keeps_position(self, problem: Problem, phase: Phase) -> bool:
        """Whether A alone says where a phase is: it runs on all samples, and what came before does not matter."""
        return phase.objective.fixed and phase.make_stepper is None and problem.samples is self

    def _record(self, words: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> Record:
        record = self.file.append(words, arrays)
        self.n_replayed += 1
        return record

    def _replay(self, kind: str, key: str, *, optional: bool = False) -> Record | None:
        """Next record, which has to answer this question; None if there is no more, or an optional one is missing."""
        if self.n_replayed == len(self.file.records):
            return None
        record = self.file.records[self.n_replayed]
        if record.words.get("kind") != kind and optional:
            return None
        if record.words.get("kind") != kind or record.words.get("key") != key:
            raise self._explain_divergence()
        self.n_replayed, self.has_replayed = self.n_replayed + 1, True
        return record

    def _decode(self, record: Record, decode: Callable[..., T]) -> T:
        try:
            return decode(record.words, self.file.arrays(record))
        except (*FAILURES, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.file.path} holds a record that no fit has written: {error}") from error

    def _decode_position(
        self, words: Mapping[str, Any], arrays: list[NDArray[Any]], phase: Phase, start: Array
    ) -> PhasePosition:
        A, table = arrays
        iteration, passes = int(words["iteration"]), float(words["passes"])
        if not (2 <= iteration <= phase.max_iter and 0 <= passes < math.inf):  # the first is no step away from `start`
            raise ValueError(f"it stands at iteration {iteration} of {phase.max_iter}, after {passes:g} passes")
        _check_numbers("A", A, tuple(start.shape))
        return PhasePosition(iteration, self.backend.asarray(A, "float64"), passes, list_iterations(table))

    def _decode_result(self, words: Mapping[str, Any], arrays: list[NDArray[Any]], kernel: Any) -> Any:
        """Result of a pass with a kernel; arrays that were in the backend are there again."""
        n = self.n_features
        sizes = {"m": 0, "n": n, "k": n}
        if isinstance(kernel, EvaluationKernel):
            k = n if kernel.to_white is None else int(kernel.to_white.shape[0])
            sizes = {"m": int(kernel.B.shape[0]), "n": n, "k": k}

        def decode(name: str, value: Any) -> Any:
            if name == "extra":
                return {key: decode(key, item) for key, item in value["map"].items()}
            if isinstance(value, dict):
                array = arrays[value["array"]]
                _check_numbers(name, array, tuple(sizes[axis] for axis in ARRAY_SHAPES.get(name, "m")))
                return self.backend.asarray(array, str(array.dtype)) if value["moved"] else array
            if value is not None and not (name in LARGEST and abs(value) <= LARGEST[name]):
                raise ValueError(f"{name} is {value!r:.100}")
            return value

        decoded = {name: decode(name, value) for name, value in words["fields"].items()}
        found = RECORDED_TYPES[words["result"]](**decoded)
        if not math.isclose(found.weight, self.n_samples, rel_tol=WEIGHT_ROUNDING):
            raise ValueError(f"a pass has seen {found.weight} samples of {self.n_samples}")
        return found

    def _check_rows(self, rows: NDArray[Any], n_rows: int) -> NDArray[np.float64]:
        _check_numbers("rows", rows, (n_rows, self.n_features))
        return rows.astype(np.float64)

    def _explain_divergence(self) -> CheckpointError:
        made, now = self.file.header["made_with"], _list_libraries()
        changed = ", ".join(f"{name} {made.get(name)}, now {now[name]}" for name in now if made.get(name) != now[name])
        return CheckpointError(
            f"Record {self.n_replayed + 1} of {len(self.file.records)} in {self.file.path} answers another question "
            "than this fit asks, although samples and parameters are the same: rounding differs. It was made with "
            f"{changed or 'the same libraries, perhaps on another kind of processor'}. Resume where it was made, or "
            "delete it and begin again."
        )


@contextmanager
def open_checkpoint(
    path: Path, samples: Dataset, parameters: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[RecordedDataset]:
    """Samples with the checkpoint at `path`, or with a new one if there is none.

    `rng` is set to the state with which the recorded fit began. However the block ends, all records are then on disk.
    """
    from elldict import __version__  # noqa: PLC0415  the package imports this module

    size = {"n_samples": samples.n_samples, "n_features": samples.n_features, "dtype": samples.dtype}
    about = to_plain({"version": __version__, **size, "samples": samples.fingerprint(), **parameters})
    file = open_records(path, about, rng)
    recorded = RecordedDataset(samples, file)
    try:
        yield recorded
    except FAILURES as error:
        if not recorded.has_replayed or recorded.callback_failed:
            raise
        raise CheckpointError(
            f"The fit failed when resumed from {path} ({type(error).__name__}: {error}), as if no fit had written its "
            "records. Delete it and begin again."
        ) from error
    finally:
        file.close()
        if not file.records:  # an empty checkpoint would only be in the way of the next fit
            file.path.unlink(missing_ok=True)


def open_records(path: Path, about: Mapping[str, Any], rng: np.random.Generator) -> RecordFile:
    """Records of the work that this is about, or a new file for them; `rng` is set to the state it began with."""
    if path.exists():
        return _resume(path, about, rng)
    state = to_plain(rng.bit_generator.state)
    return RecordFile.create(path, {"about": about, "random_numbers": state, "made_with": _list_libraries()})


def _resume(path: Path, about: Mapping[str, Any], rng: np.random.Generator) -> RecordFile:
    """Open the checkpoint of the same fit."""
    try:
        file = RecordFile.open(path)
    except RecordFileError as error:
        raise CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}.") from error
    try:
        _check_header(path, file.header, about, rng)
    except BaseException:
        file.close()
        raise
    return file


def _check_header(path: Path, header: Mapping[str, Any], about: Mapping[str, Any], rng: np.random.Generator) -> None:
    """Raise if the checkpoint is of another fit; set `rng` to where that one began."""
    try:
        theirs, state = dict(header["about"]), header["random_numbers"]
        differences = [
            f"{name} {theirs[name]!r}, not {value!r}" for name, value in about.items() if theirs[name] != value
        ]
        dict(header["made_with"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a checkpoint, or is damaged: its header has no {error}.") from error
    if not differences:
        try:
            rng.bit_generator.state = state
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            differences = [f"random numbers that this random_state cannot take up ({error})"]
    if differences:
        raise CheckpointError(
            f"{path} is the checkpoint of another fit: it has {'; '.join(differences)}. Give what that was begun "
            "with, or choose another file."
        )


def _check_numbers(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise if an array is not of this shape, or holds what no sum over finite samples is."""
    if array.shape != shape or array.dtype.kind != "f" or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, expected {shape} of finite numbers")


def digest(value: Any) -> str:
    """Digest of a question: dataclasses, arrays and plain values, to the last bit."""
    state = hashlib.sha256()
    _update_digest(state.update, value)
    return state.hexdigest()[:32]


def _update_digest(update: Callable[[bytes | memoryview], object], value: Any) -> None:
    if is_dataclass(value):
        compared = (getattr(value, field.name) for field in fields(value) if field.compare)
        _update_digest(update, (type(value).__name__, *compared))
    elif isinstance(value, (tuple, list)):
        update(b"(%d" % len(value))
        for item in value:
            _update_digest(update, item)
    elif isinstance(value, Enum):
        _update_digest(update, (type(value).__name__, value.value))
    elif isinstance(value, float):
        update(b"f" + struct.pack("<d", value))
    elif value is None or isinstance(value, (bool, int, str)):
        update(repr(value).encode() + b";")
    else:
        array = to_numpy(value)
        update(f"{array.dtype.str}{array.shape}".encode())
        update(np.ascontiguousarray(array).data)


def _encode_result(result: Any) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Result of a pass as words and arrays; no words if it is of a type that is not recorded."""
    kind = type(result).__name__
    if RECORDED_TYPES.get(kind) is not type(result):
        return {}, []
    arrays: list[NDArray[Any]] = []

    def encode(value: Any) -> Any:
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, Mapping):
            return {"map": {name: encode(item) for name, item in value.items()}}
        arrays.append(to_numpy(value))
        return {"array": len(arrays) - 1, "moved": is_foreign(value)}

    return {
        "result": kind,
        "fields": {field.name: encode(getattr(result, field.name)) for field in fields(result)},
    }, arrays


def _digest_phase(problem: Problem, number: int, phase: Phase, A: Array) -> str:
    return digest((problem.start, problem.first_phase + number, phase.objective, A))


def _list_libraries() -> dict[str, str]:
    """What decides how numbers are rounded."""
    return {"numpy": np.__version__, "scipy": scipy.__version__, "machine": platform.machine()}
