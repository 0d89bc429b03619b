"""Samples whose entries are coarsely rounded: no law of codes is that of their steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_DISTINCT = 24
"""Distinct values of a feature below which it is coarsely rounded: to steps of about half a standard deviation."""

ROUNDING_WEIGHT, MAX_ROUNDING_ERROR = 0.75, 0.01
"""Share of an error bar, for each squared step in units of the variance, that coarse rounding adds to it, and the most
that it adds: formulas take rounding for noise of its own, which it is not. Steps of 1 and 1.8 standard deviations make
true errors up to twice and four times as large, as long as chance leaves them small."""


def is_coarse(values: NDArray[np.float64]) -> bool:
    """Whether the values (b,) of a feature are few, as those of coarsely rounded ones are."""
    return len(np.unique(values)) < MIN_DISTINCT


def add_rounding_errors(errors: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Error bars (m,) for samples of which these are the values (b,) of a feature: larger ones if they are coarse."""
    distinct = np.unique(values)
    if not 1 < len(distinct) < MIN_DISTINCT:
        return errors
    share = ROUNDING_WEIGHT * float(np.min(np.diff(distinct))) ** 2 / float(np.var(values))
    return np.minimum(errors + np.minimum(share * errors, MAX_ROUNDING_ERROR), 1.0)
