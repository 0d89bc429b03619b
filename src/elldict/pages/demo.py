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
from elldict.pages.error_bars import NoisySetting, Trial, try_noise
from elldict.pages.recovery import Hidden, Recovery, recover

EXPONENTS = (3.0, 4.0, 5.0)

Report = Callable[[str, float], None]
"""Told what is being done, and which share of all is done."""


@dataclass(frozen=True)
class Size:
    """How large the demo is."""

    hidden: Hidden
    noisy: NoisySetting
    digits: DigitsSetting
    command: str


FULL = Size(
    Hidden(n_features=100, n_samples=40_000, density=0.3, seed=0, start_seed=1),
    NoisySetting(n_features=32, n_samples=10_000, density=0.3, noise_stds=(0.0, 0.2, 0.4, 0.6), n_draws=2, seed=0),
    DigitsSetting(n_train=1297, max_iter=2000, tol=1e-3, seed=0),
    command="elldict demo",
)
QUICK = Size(
    Hidden(n_features=30, n_samples=6_000, density=0.3, seed=0, start_seed=1),
    NoisySetting(n_features=30, n_samples=6_000, density=0.3, noise_stds=(0.0, 0.2, 0.4), n_draws=1, seed=0),
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
    recoveries: tuple[Recovery, ...]  # by l_p alone, one for each exponent
    refined: Recovery  # p = 3, and then maximum likelihood
    trials: tuple[Trial, ...]  # both answers, one trial for each level of noise
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
        tell = _part(report, f"finding the hidden atoms, p = {p:g}", number)
        recoveries.append(recover(size.hidden, samples, dictionary, p, tell))
    tell = _part(report, "refining, p = 3", 3)
    refined = recover(size.hidden, samples, dictionary, EXPONENTS[0], tell, refine="auto")
    trials = _try_all(size.noisy, _part(report, "finding them under noise", 4))
    digits = study_digits(size.digits, _part(report, "learning from digits", 5))
    report("drawing", 1.0)
    return Demo(size, tuple(recoveries), refined, trials, digits, Machine.here(), time.perf_counter() - began)


def _try_all(setting: NoisySetting, tell: Callable[[float], None]) -> tuple[Trial, ...]:
    trials = []
    for number in range(len(setting.noise_stds)):
        tell(number / len(setting.noise_stds))
        trials.append(try_noise(setting, number))
    return tuple(trials)


def _part(report: Report, doing: str, number: int) -> Callable[[float], None]:
    """Report for one of six parts."""
    return lambda share: report(doing, (number + share) / 6)
