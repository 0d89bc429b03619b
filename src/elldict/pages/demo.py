"""All results of the demo, at its two sizes."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import sklearn

from elldict import __version__
from elldict.pages.digits import Digits, DigitsSetting, study_digits
from elldict.pages.recovery import Hidden, Recovery, recover

EXPONENTS = (3.0, 4.0, 5.0)

Report = Callable[[str, float], None]
"""Told what is being done, and which share of all is done."""


@dataclass(frozen=True)
class Size:
    """How large the demo is."""

    hidden: Hidden
    digits: DigitsSetting
    command: str


FULL = Size(
    Hidden(n_features=100, n_samples=40_000, density=0.3, seed=0, start_seed=1),
    DigitsSetting(n_train=1297, max_iter=2000, tol=1e-3, seed=0),
    command="elldict demo",
)
QUICK = Size(
    Hidden(n_features=30, n_samples=6_000, density=0.3, seed=0, start_seed=1),
    DigitsSetting(n_train=1297, max_iter=100, tol=1e-2, seed=0),
    command="elldict demo --quick",
)


@dataclass(frozen=True)
class Machine:
    """What made the numbers."""

    elldict: str
    python: str
    numpy: str
    sklearn: str
    system: str
    cores: int

    @staticmethod
    def here() -> Machine:
        """The machine that asks."""
        return Machine(
            elldict=__version__,
            python=platform.python_version(),
            numpy=np.__version__,
            sklearn=sklearn.__version__,
            system=f"{platform.system()} {platform.machine()}",
            cores=os.cpu_count() or 1,
        )


@dataclass(frozen=True, eq=False)
class Demo:
    """Everything the page shows."""

    size: Size
    recoveries: tuple[Recovery, ...]
    digits: Digits
    machine: Machine
    seconds: float

    @property
    def setting(self) -> Hidden:
        """What was hidden."""
        return self.size.hidden

    @property
    def best(self) -> Recovery:
        """The fit the headline speaks of: p = 3."""
        return self.recoveries[0]


def compute_demo(size: Size, report: Report) -> Demo:
    """Run every fit of the demo."""
    began = time.perf_counter()
    report("drawing samples", 0.0)
    samples, dictionary = size.hidden.samples()
    recoveries = []
    for number, p in enumerate(EXPONENTS):
        tell = _part(report, f"finding the hidden atoms, p = {p:g}", number / 4)
        recoveries.append(recover(size.hidden, samples, dictionary, p, tell))
    digits = study_digits(size.digits, _part(report, "learning from digits", 3 / 4))
    report("drawing", 1.0)
    return Demo(size, tuple(recoveries), digits, Machine.here(), time.perf_counter() - began)


def _part(report: Report, doing: str, since: float) -> Callable[[float], None]:
    """Report for one of four parts."""
    return lambda share: report(doing, since + share / 4)
