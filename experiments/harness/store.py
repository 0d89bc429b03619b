"""Results on disk: a line of JSON each, written the moment it is known.

A line holds the cell, what came of it, and under "made" what the cell does not determine: seconds and machine. All
else is the same whenever and wherever it is computed again with the same software.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elldict.atomic import write_atomically
from experiments.reproduction.cell import Cell, key_of

DONE, FAILED = "done", "failed"


class StoreError(Exception):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True)
class Record:
    """What came of a cell."""

    identity: Mapping[str, Any]
    status: str  # DONE or FAILED
    values: Mapping[str, Any]  # empty if it failed
    reason: str  # empty if it did not
    made: Mapping[str, Any]  # seconds of the fit and of all, machine

    @property
    def key(self) -> str:
        """Key of the cell."""
        return key_of(self.identity)

    @property
    def line(self) -> bytes:
        """The record as stored; "made" comes last, so that the rest of two lines can be compared by eye."""
        parts = {"cell": self.identity, "status": self.status, "values": self.values, "reason": self.reason}
        text = json.dumps(parts | {"made": self.made}, separators=(",", ":"), allow_nan=False)
        return text.encode() + b"\n"

    @staticmethod
    def parse(line: bytes) -> Record:
        """Read `line` back."""
        data = json.loads(line)
        return Record(data["cell"], data["status"], data["values"], data["reason"], data["made"])


class Store:
    """Records by key, in a file that only ever grows while a run lasts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        if path.exists():
            self._take_in()

    def _take_in(self) -> None:
        """Read what is in the file; a later line is a later try."""
        for record in _read(self.path):
            self.records[record.key] = record

    def get(self, cell: Cell) -> Record | None:
        """What came of the cell, None if it has not been run."""
        return self.records.get(cell.key)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the file for writing: drop what a killed run left of its last line; order the lines at the end.

        Another run may have ended since the file was read, so what it wrote is taken in first.
        """
        with _locked(self.path) as descriptor:
            _cut_torn_line(self.path)
            self._take_in()
            self._descriptor = descriptor
            try:
                yield
            finally:
                del self._descriptor
                self._sort()

    def add(self, record: Record) -> None:
        """Write a record down; when this returns, it is on disk."""
        self.records[record.key] = record  # first: what Ctrl-C cuts off here, the sorting at the end writes
        line = record.line
        while line:  # mostly one call: a kill leaves a whole line, or the head of one
            line = line[os.write(self._descriptor, line) :]
        os.fsync(self._descriptor)

    def _sort(self) -> None:
        """Lines by key: the file then does not tell in which order, or in how many runs, they were made."""
        lines = [self.records[key].line for key in sorted(self.records)]
        write_atomically(self.path, lambda stream: stream.writelines(lines))


def _read(path: Path) -> Iterator[Record]:
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            yield Record.parse(line)
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) and not line.endswith(b"\n"):
                return  # a run was killed while it wrote this
            raise StoreError(f"{path}, line {number} is not a stored result: {error!r}. Remove the line.") from error


def _cut_torn_line(path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, open for appending and held by this run alone."""
    while True:
        with path.open("ab") as stream:
            _lock(stream.fileno(), path)
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                yield stream.fileno()
                return
        # a run that ended between the two lines above has put another file in its place


def _lock(descriptor: int, path: Path) -> None:
    """One run a folder; systems without flock have to see to it themselves."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreError(f"another run is writing to {path}. Wait for it, or choose another --out.") from error
