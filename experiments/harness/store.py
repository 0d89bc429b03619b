"""Results on disk, of every study: a line of JSON each, written the moment it is known.

A line holds the cell, which is all that determines the result; what came of it; and under "made" what the cell does not
determine. A study of errors has seconds and machine there. One of times has the machine in the cell, as `made_by`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from elldict._old.atomic import write_atomically

DONE, FAILED = "done", "failed"


class StoreError(Exception):
    """The file cannot be used; the message says why."""


class Keyed(Protocol):
    """What a result is asked for by."""

    @property
    def key(self) -> str:
        """Text that is equal for equal cells, and only for them."""


def key_of(identity: Mapping[str, Any]) -> str:
    """Text of plain data, whatever the order of its names."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)


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

    @property
    def row(self) -> dict[str, Any]:
        """All of it in one mapping, for tables."""
        status = DONE if self.status == DONE else f"{self.status}: {self.reason}"
        return {**self.identity, **self.values, **self.made, "status": status}

    @staticmethod
    def parse(line: bytes) -> Record:
        """Read `line` back."""
        data = json.loads(line)
        return Record(data["cell"], data["status"], data["values"], data["reason"], data["made"])


class Store:
    """Records by key, in a file that only ever grows while a run lasts.

    Lines are sorted by key when a run ends, so that the file does not tell in which order, or in how many runs, they
    were made. With `history` they stay in the order of time, and a cell that is measured again keeps all of them.
    """

    def __init__(self, path: Path, *, history: bool = False) -> None:
        self.path, self.history = path, history
        self.records: dict[str, Record] = {}
        if path.exists():
            self._take_in()

    def _take_in(self) -> None:
        """Read what is in the file; a later line is a later try."""
        for record in _read(self.path):
            self._keep(record)

    def _keep(self, record: Record) -> None:
        key = record.key
        self.records.pop(key, None)  # to the end, which is the order of time
        self.records[key] = record

    def get(self, cell: Keyed) -> Record | None:
        """What came of the cell, None if it has not been run."""
        return self.records.get(cell.key)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the file for writing: drop what a killed run left of its last line; order the lines at the end.

        Another run may have ended since the file was read, so what it wrote is taken in first.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path) as descriptor:
            _cut_torn_line(self.path)
            self._take_in()
            self._descriptor = descriptor
            try:
                yield
            finally:
                del self._descriptor
                if not self.history:
                    self._sort()

    def add(self, record: Record) -> None:
        """Write a record down; when this returns, it is on disk."""
        self._keep(record)  # first: what Ctrl-C cuts off here, the sorting at the end writes
        line = record.line
        while line:  # mostly one call: a kill leaves a whole line, or the head of one
            line = line[os.write(self._descriptor, line) :]
        os.fsync(self._descriptor)

    def _sort(self) -> None:
        """One line a key, in the order of keys."""
        lines = [self.records[key].line for key in sorted(self.records)]
        write_atomically(self.path, lambda stream: stream.writelines(lines))


def latest(records: Iterable[Record], group: str) -> list[dict[str, Any]]:
    """Rows of records by machine and versions: within a group, those that were made as its last one was.

    Numbers of a group are compared with each other: they have to come from the same machine and versions.
    """
    rows = [record.row for record in records]
    made = {row[group]: row["made_by"] for row in rows}
    return [row for row in rows if row["made_by"] == made[row[group]]]


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
        raise StoreError(f"another run is writing to {path}. Wait for it, or write elsewhere.") from error
