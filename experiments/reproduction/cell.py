"""One result to be had: everything that determines it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Scalar = float | int | str | bool
Settings = tuple[tuple[str, Scalar], ...]
"""Names and values in the order of the names: a mapping that can be a key."""

DATA_REVISION = 1
"""Raise it when the same seed gives other samples: results of old samples are then no longer results of these."""


@dataclass(frozen=True)
class Cell:
    """A task, the method that does it, what it is done on, and the seed.

    Attributes
    ----------
    task : str
        Name of a function of `tasks`.
    method : str
        Name of a method of `methods`.
    options : tuple of (str, scalar)
        Parameters of the method.
    setting : tuple of (str, scalar)
        What the samples are drawn from.
    seed : int
        Number of the trial; samples and starts follow from it.
    software : str
        Whatever the answer depends on beyond that: packages and revisions.
    """

    task: str
    method: str
    options: Settings
    setting: Settings
    seed: int
    software: str

    @property
    def identity(self) -> dict[str, Any]:
        """The cell as plain data."""
        return {
            "task": self.task,
            "method": self.method,
            "options": dict(self.options),
            "setting": dict(self.setting),
            "seed": self.seed,
            "software": self.software,
        }

    @property
    def key(self) -> str:
        """The cell as text: equal for equal cells, and only for them."""
        return key_of(self.identity)

    def value(self, name: str) -> Any:
        """A value of the setting or the options; 0 where there is none."""
        return dict(self.setting + self.options).get(name, 0)


def key_of(identity: Mapping[str, Any]) -> str:
    """Text of plain data, whatever the order of its names."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)


def frozen(values: Mapping[str, Scalar]) -> Settings:
    """A mapping as a key."""
    return tuple(sorted(values.items()))
