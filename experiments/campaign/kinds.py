"""Kinds of data sets with known atoms, and the parameters at which each is drawn.

The list was written before any error bar was compared with it: kinds and parameters are those that a user may meet, the
ones that break an assumption among them. How samples are drawn is in `draws`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from experiments.campaign import draws
from experiments.campaign.draws import Samples
from experiments.harness.store import key_of

SIZES = ((8, 2000), (16, 4000), (32, 10_000), (16, 20_000), (8, 400), (32, 40_000), (24, 1500))
"""Features and samples. The sets of a kind go through them in turn, so that a parameter meets several sizes."""


@dataclass(frozen=True)
class Kind:
    """Parameters at which data sets are drawn, and how often each."""

    name: str
    draw: Callable[..., Samples]
    settings: Sequence[Mapping[str, Any]]
    repeats: int


@dataclass(frozen=True)
class Case:
    """One data set: all that determines it."""

    kind: str
    index: int  # within the kind
    n: int  # features, and atoms unless samples are reduced
    r: int
    parameters: Mapping[str, Any]
    seed: int

    @property
    def identity(self) -> dict[str, Any]:
        """All but the index, which follows from the list of kinds."""
        return {"kind": self.kind, "n": self.n, "r": self.r, "parameters": dict(self.parameters), "seed": self.seed}

    @property
    def key(self) -> str:
        """Key in a store."""
        return key_of(self.identity)

    def draw(self) -> Samples:
        """Samples and atoms, the same on every call; equal seeds of different sets have nothing in common."""
        rng = np.random.default_rng([self.seed, zlib.crc32(self.key.encode())])
        return KINDS[self.kind].draw(rng, self.n, self.r, **self.parameters)


def list_cases(kind: Kind, seed: int = 0) -> list[Case]:
    """All data sets of a kind; another `seed` draws all of them anew."""
    cases: list[Case] = []
    for setting in kind.settings:
        for repeat in range(kind.repeats):
            index = len(cases)
            n, r = SIZES[index % len(SIZES)]
            parameters = dict(setting)
            if "r_over_n" in parameters:
                r = int(parameters.pop("r_over_n") * n)
            cases.append(Case(kind.name, index, n, r, parameters, seed * kind.repeats + repeat))
    return cases


def combine(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination of parameters."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


CONDITIONS = [(1.5, 0.0), (1.5, 0.1), (3.0, 0.0), (3.0, 0.3), (10.0, 0.0), (10.0, 0.1)]
"""Condition of the atoms and noise: every condition without noise, and with some."""

CORRUPTIONS = [(0.01, 0.5), (0.01, 5), (0.01, 50), (0.05, 1), (0.05, 2), (0.05, 10), (0.1, 0.5), (0.1, 2), (0.1, 5)]
"""Share of entries that are corrupted, and size, in standard deviations of an active code."""

LISTED = (
    Kind("clean", draws.draw_clean, combine(density=(0.1, 0.3, 0.5), noise=(0.0, 0.1, 0.3)), 2),
    Kind("density", draws.draw_clean, combine(density=(0.01, 0.02, 0.05, 0.1, 0.3, 0.6, 0.9)), 2),
    Kind(
        "tails",
        draws.draw_tails,
        combine(law=("laplace", "uniform", "t2.5", "lognormal", "binary"), noise=(0.0, 0.1)),
        2,
    ),
    Kind("dense", draws.draw_dense, combine(law=("laplace", "t3.5", "t5", "logistic", "gennorm0.7", "gennorm1.5")), 3),
    Kind(
        "sub-gaussian",
        draws.draw_sub_gaussian,
        combine(law=("uniform", "binary", "triangular"), others=(None, "laplace", "sparse")),
        2,
    ),
    Kind(
        "loudness",
        draws.draw_loud,
        combine(law=("laplace", "sparse"), loudness=("lognormal0.5", "lognormal1", "gamma1", "gamma4")),
        2,
    ),
    Kind(
        "shared supports",
        draws.draw_shared,
        [
            {"groups": groups, "share": share, "noise": noise}
            for groups in ("one pair", "pairs", "fours")
            for share, noise in ((0.5, 0.0), (0.5, 0.1), (1.0, 0.1))
        ],
        2,
    ),
    Kind(
        "serial",
        draws.draw_serial,
        [
            *combine(series=("autoregressive",), size=(0.5, 0.9, 0.99)),
            *combine(series=("bursts",), size=(10, 50)),
            *combine(series=("amplitudes",), size=(0.99,)),
        ],
        3,
    ),
    Kind(
        "repeated",
        draws.draw_repeated,
        combine(
            repeats=("2 in order", "5 in order", "2 shuffled", "5 shuffled", "bootstrap"), law=("sparse", "laplace")
        ),
        2,
    ),
    Kind(
        "drift",
        draws.draw_drift,
        [*combine(change=("steady",), angle=(0.1, 0.2, 0.5)), *combine(change=("once",), angle=(0.5, 1.5))],
        3,
    ),
    Kind(
        "outliers",
        draws.draw_outliers,
        [
            *combine(outliers=("scaled",), size=(10, 100), count=(1, 30)),
            *combine(outliers=("cauchy",), size=(0.01, 0.05)),
            *combine(outliers=("feature",), size=(2, 20)),
        ],
        2,
    ),
    Kind("rounded", draws.draw_rounded, combine(step=(0.05, 0.3, 1.0, "integers"), law=("sparse", "laplace")), 2),
    Kind(
        "sensors",
        draws.draw_sensors,
        [
            *combine(fault=("clipped",), size=(1.0, 1.5, 2.0, 3.0)),
            *combine(fault=("tanh", "cubic", "dead", "duplicated")),
        ],
        2,
    ),
    Kind(
        "few samples",
        draws.draw_clean,
        combine(r_over_n=(0.5, 1, 2, 5, 10), density=(draws.DENSITY,), noise=(0.0, 0.1)),
        2,
    ),
    Kind(
        "oblique",
        draws.draw_oblique,
        [{"condition": c, "noise": noise, "whiten": whiten} for c, noise in CONDITIONS for whiten in (False, True)],
        2,
    ),
    Kind("corrupted", draws.draw_corrupted, [{"rate": rate, "size": size} for rate, size in CORRUPTIONS], 2),
    Kind(
        "gaussian",
        draws.draw_gaussian,
        combine(gaussian=("all", "one", "two", "half"), law=("sparse", "laplace")),
        2,
    ),
    Kind(
        "reduced",
        draws.draw_reduced,
        combine(share=(0.5, 0.25), noise=(0.1, 0.3), law=("laplace", "sparse")),
        2,
    ),
    Kind("mean", draws.draw_about_mean, combine(size=(0.3, 1.0, 3.0), center=(False, True)), 3),
    Kind("skewed", draws.draw_skewed, combine(law=("exponential", "chi2", "gamma"), sparse=(False, True)), 3),
    Kind("scales", draws.draw_scales, combine(ratio=(3.0, 10.0, 100.0), noise=(0.0, 0.1)), 3),
    Kind("ica", draws.draw_mixture, combine(law=("laplace", "uniform", "both"), condition=(3.0, 10.0)), 3),
)
KINDS = {kind.name: kind for kind in LISTED}
"""By name, in the order of the table."""
