"""The paper's numbers and its misprints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Printed:
    """A number as printed: an error in per cent, and the seconds printed next to it."""

    text: str
    seconds: float

    @property
    def error(self) -> float:
        """The error as a fraction."""
        return float(self.text) / 100

    @property
    def rounding(self) -> float:
        """Half a unit of the last digit."""
        return 0.5 * 10.0 ** -(len(self.text.partition(".")[2]) + 2)


@dataclass(frozen=True)
class Row:
    """A row of a table: the setting of its samples, and what is printed for each method."""

    n_features: int
    n_samples: int
    density: float
    noise_std: float = 0.0
    corruption: float = 0.0
    printed: Mapping[str, Printed] = field(default_factory=dict)


def _table(names: str, rows: dict[tuple[float, ...], str], kind: str = "") -> tuple[Row, ...]:
    """Parse rows from text: error in per cent and seconds for each method, in the order of the names."""
    result = []
    for (n, r, density, level), text in rows.items():
        numbers = text.split()
        pairs = (Printed(text, float(time)) for text, time in zip(numbers[::2], numbers[1::2], strict=True))
        printed = dict(zip(names.split(), pairs, strict=True))
        result.append(Row(int(n), int(r), density, printed=printed, **({kind: level} if kind else {})))
    return tuple(result)


TABLE_1 = _table(
    "l3 l4 l5 ksvd",
    {
        (100, 40_000, 0.1, 0): ".056 .8  .21 1.8  .50 1.7   1.45 61",
        (200, 80_000, 0.1, 0): ".056 4.1 .21 9.3  .51 8.0   3.03 131",
        (400, 160_000, 0.1, 0): ".056 35  .21 50   .50 41    6.45 315",
        (100, 40_000, 0.3, 0): ".094 1.2 .34 3.4  .84 3.1   2.60 98",
        (200, 80_000, 0.3, 0): ".094 10  .35 18   .85 15    6.41 215",
        (400, 160_000, 0.3, 0): ".096 91  .35 122  1.00 146  8.25 589",
    },
)

TABLE_2 = _table(
    "l3 l4 rtr ksvd",
    {
        (32, 10_000, 0.3, 0): ".10 .05   .4 .24    .05 100   .2 25",
        (32, 10_000, 0.3, 0.2): ".27 .05   .6 .24    .5 250    .37 25",
        (32, 10_000, 0.3, 0.4): ".79 .1    1.2 .36   4.27 577  2.0 25",
        (32, 10_000, 0.3, 0.6): "2.3 .2    3.4 .7    57.4 823  57.4 25",
        (100, 40_000, 0.3, 0): ".1 1.2    .35 3.4   .05 863   2.60 98",
        (100, 40_000, 0.3, 0.2): ".2 2.2    .5 4.2    .3 1643   3.46 104",
        (100, 40_000, 0.3, 0.4): ".6 3.5    1.1 6.1   5.26 3796 3.56 105",
        (100, 40_000, 0.3, 0.6): "1.95 8.4  2.63 13.5 50.5 5412 51.26 104",
    },
    "noise_std",
)

TABLE_3 = _table(
    "l3 l4 rtr ksvd",
    {
        (32, 10_000, 0.3, 0.5): ".20 .06  .57 .25  .10 362   .37 25",
        (32, 10_000, 0.3, 1.0): ".50 .09  .93 .35  1.4 421   2.0 25",
        (32, 10_000, 0.3, 1.5): "1.65 .14 2.26 .47 13.4 420  57.4 25",
        (100, 40_000, 0.3, 0.5): ".20 1.9  .40 4.0  .2 1649   3.04 104",
        (100, 40_000, 0.3, 1.0): ".40 2.6  .80 5.5  1.3 2737  3.55 105",
        (100, 40_000, 0.3, 1.5): "1.02 4.6 1.49 7.7 36.8 5395 5.83 104",
    },
    "corruption",
)

MISPRINTS = (
    (
        "Theorem 3.1",
        "states the limit of the error ratio as 1/θ, which would be divergence. The text, the figures and the "
        "update itself give θ: 1/10 at θ = 0.1. It is the signal-to-orthogonal ratio that grows by 1/θ.",
    ),
    (
        "Table 3, fourth row",
        "prints 10⁴ samples for n = 100. The error fits 4 · 10⁴ only, which is what is run here.",
    ),
    (
        "Tables 1 to 3",
        "call the number of samples p, the letter of the norm, in units of 10⁴; the text calls it r.",
    ),
    (
        "Figure 5f",
        'repeats the caption of 5e, "varying p and r", with p and r fixed. The remaining pair is θ and σ.',
    ),
    (
        "Section 3.1",
        'speaks of "concave objective functions". The power method maximises convex ones, as the display below says.',
    ),
)
