"""Store results of all experiments, one line of JSON each, as soon as they are known.

A line holds the cell, which determines the result; the result; and under "made" what the cell does not determine. In
studies of errors that is seconds and machine. Studies of times have the machine in the cell, as `made_by`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from elldict.atomic import open_atomic

DONE, FAILED = "done", "failed"


class StoreError(Exception):
    """The file cannot be used; the message says why."""


class Keyed(Protocol):
    """A cell by which a result is found."""

    @property
    def key(self) -> str:
        """Text that is equal for equal cells, and only for them."""


def key_of(identity: Mapping[str, Any]) -> str:
    """Format plain data as text that does not depend on the order of names."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Record:
    """The result of a cell."""

    identity: Mapping[str, Any]
    status: str  # DONE or FAILED
    values: Mapping[str, Any]  # empty if it failed
    reason: str  # of a failure
    made: Mapping[str, Any]  # seconds and machine

    @property
    def key(self) -> str:
        """Key of the cell."""
        return key_of(self.identity)

    @property
    def line(self) -> bytes:
        """The record as stored; "made" comes last, so that lines can be compared without it."""
        parts = {"cell": self.identity, "status": self.status, "values": self.values, "reason": self.reason}
        text = json.dumps(parts | {"made": self.made}, separators=(",", ":"), allow_nan=False)
        return text.encode() + b"\n"

    @property
    def row(self) -> dict[str, Any]:
        """The record as one mapping, for tables."""
        status = DONE if self.status == DONE else f"{self.status}: {self.reason}"
        return {**self.identity, **self.values, **self.made, "status": status}

    @staticmethod
    def parse(line: bytes) -> Record:
        """Read a `line`."""
        data = json.loads(line)
        return Record(data["cell"], data["status"], data["values"], data["reason"], data["made"])


class Store:
    """Records by key, in a file to which a run only appends.

    Lines are sorted by key when a run ends, so that the file does not depend on the order of the work.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        """Read the file; a later line of a cell replaces an earlier one."""
        self.records.update((record.key, record) for record in _read_records(self.path))

    def get(self, cell: Keyed) -> Record | None:
        """Return the result of a cell, None if it has not been run."""
        return self.records.get(cell.key)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the file for writing, cut an incomplete last line of a killed run, and sort the lines at the end.

        The file is read again first, because another run may have written to it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path) as descriptor:
            _cut_incomplete_line(self.path)
            self._read()
            self._descriptor = descriptor
            try:
                yield
            finally:
                del self._descriptor
                self._sort()

    def add(self, record: Record) -> None:
        """Write a record; it is on disk when this returns."""
        self.records[record.key] = record  # first: if Ctrl-C interrupts the lines below, sorting at the end writes it
        line = record.line
        while line:  # usually one call
            line = line[os.write(self._descriptor, line) :]
        os.fsync(self._descriptor)

    def _sort(self) -> None:
        """Write one line per key, sorted."""
        with open_atomic(self.path) as stream:
            stream.writelines(self.records[key].line for key in sorted(self.records))


def _read_records(path: Path) -> Iterator[Record]:
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            yield Record.parse(line)
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) and not line.endswith(b"\n"):
                return  # a run was killed while it wrote this line
            raise StoreError(f"{path}, line {number} is not a stored result: {error!r}. Remove the line.") from error


def _cut_incomplete_line(path: Path) -> None:
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        os.truncate(path, complete)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file for appending, locked for this process."""
    while True:
        with path.open("ab") as stream:
            _lock(stream.fileno(), path)
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                yield stream.fileno()
                return
        # otherwise a run that ended in between has replaced the file


def _lock(descriptor: int, path: Path) -> None:
    """Lock a file, on systems that have flock."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreError(f"another run is writing to {path}. Wait for it, or write elsewhere.") from error
