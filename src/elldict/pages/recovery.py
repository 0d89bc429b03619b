"""First half of the demo: hide a dictionary in samples and find it again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elldict.backend.base import to_numpy
from elldict.datasets import make_bernoulli_gaussian
from elldict.estimator import LpDictionaryLearning
from elldict.metrics import match_atoms, recovery_error
from elldict.progress import way_done
from elldict.result import Iteration
from elldict.theory import expected_error

PAPER_SETTING = (100, 40_000, 0.3)
PAPER_ERRORS = {3.0: 0.094e-2, 4.0: 0.34e-2, 5.0: 0.84e-2}
"""Errors that the paper reports for n, r and theta of its setting."""

EXACT = 1e-7
"""Errors below this are the rounding of float32: an angle of a hundredth of a degree would leave as much."""


@dataclass(frozen=True)
class Hidden:
    """What is hidden: n_features atoms, in n_samples samples that use each with probability density."""

    n_features: int
    n_samples: int
    density: float
    seed: int
    start_seed: int

    def samples(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Samples (r, n) and the atoms (n, n) in them."""
        X, dictionary, _ = make_bernoulli_gaussian(
            self.n_samples, self.n_features, density=self.density, dtype=np.float32, random_state=self.seed
        )
        return X, dictionary

    def paper_error(self, p: float) -> float | None:
        """Error in the paper, where it has this setting."""
        setting = (self.n_features, self.n_samples, self.density)
        return PAPER_ERRORS.get(p) if setting == PAPER_SETTING else None


@dataclass(frozen=True, eq=False)
class Recovery:
    """One fit and how it came to the truth."""

    p: float
    refined: str | None  # the law that the answer was refined by, None for the l_p answer
    error: float
    error_bar: float  # what the fit says of its own error, without the truth
    expected_error: float  # of l_p, from theory alone
    paper_error: float | None
    n_iter: int
    seconds: float
    status: str
    errors: NDArray[np.float64]  # (n_iter + 1,)  from the random start to the end
    overlaps: NDArray[np.float32]  # (n_iter, n, n)  |A D^T| before each step, true atoms in the order of their matches
    angles: NDArray[np.float64]  # (n,)  degrees between each atom and the true one


def recover(
    hidden: Hidden,
    samples: NDArray[np.float32],
    dictionary: NDArray[np.float32],
    p: float,
    tell: Callable[[float], None],
    *,
    refine: str | None = None,
) -> Recovery:
    """Learn the atoms of the samples and look at every iteration beside the truth."""
    seen: list[NDArray[np.float64]] = []
    model = LpDictionaryLearning(p=p, solver="power", refine=refine, random_state=hidden.start_seed)
    share = way_done(model.tol)

    def look(iteration: Iteration) -> None:
        seen.append(np.array(to_numpy(iteration.components), dtype=np.float64))
        tell(share(iteration))

    began = time.perf_counter()
    model.fit(samples, callback=look)
    seconds = time.perf_counter() - began
    error = positive_error(model.components_, dictionary)
    return Recovery(
        p=p,
        refined=model.refined_,
        error=error,
        error_bar=model.expected_error_,
        expected_error=expected_error(
            p, n_features=hidden.n_features, n_samples=hidden.n_samples, density=hidden.density
        ),
        paper_error=hidden.paper_error(p),
        n_iter=model.n_iter_,
        seconds=seconds,
        status=model.status_,
        errors=np.array([positive_error(A, dictionary) for A in seen] + [error]),
        overlaps=_overlaps(seen, dictionary),
        angles=np.degrees(np.arccos(match_atoms(model.components_, dictionary).cosines)),
    )


def positive_error(components: NDArray[Any], dictionary: NDArray[np.float32]) -> float:
    """The error, not below zero: where atoms are exact, rounding of float32 is all that is left, of either sign."""
    return max(recovery_error(components, dictionary), 0.0)


def _overlaps(path: list[NDArray[np.float64]], dictionary: NDArray[np.float32]) -> NDArray[np.float32]:
    """|A D^T| along the path; the order of the true atoms is that of the end, so that the end is a diagonal."""
    matched = dictionary[match_atoms(path[-1], dictionary).indices]
    return np.stack([np.abs(A @ matched.T) for A in path]).astype(np.float32)
