"""What to do next: steps that follow from a fit and its doubts, each with the lines of code for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elldict.report.assumptions import END, LINEAR, RANK, SAMPLES, STEADY, WHITE, Check, find_said
from elldict.summary import EXACT, read_errors

GOOD_ERROR, POOR_ERROR = 0.01, 0.3
"""Errors of atoms whose numbers can be used, and of atoms that other samples would not give again."""


@dataclass(frozen=True)
class Step:
    """Something to do, why, and how."""

    name: str
    why: str
    code: str


def advise(model: Any, checks: Sequence[Check]) -> Iterator[Step]:
    """Steps, the most urgent first; the last ones are worth while after any fit."""
    errors = read_errors(model)
    sure = int(np.sum(errors <= POOR_ERROR))
    if find_said(model, WHITE) and not model.whiten:
        why = "The fit doubts that atoms are orthogonal and samples centred; whitened ones need neither."
        yield Step("Centre and whiten", why, "model.set_params(center=True, whiten=True).fit(X)")
    elif find_said(model, WHITE) and not getattr(model, "center", True):
        why = "The mean is large beside what varies, and no code has one."
        yield Step("Centre", why, "model.set_params(center=True).fit(X)")
    if find_said(model, LINEAR):
        why = "Values at the limits of a sensor show as equal numbers at both ends."
        yield Step("Look at the largest values", why, "np.percentile(X, [0, 0.1, 1, 99, 99.9, 100], axis=0)")
    if find_said(model, STEADY):
        why = "Atoms change along the samples; parts of them may have atoms of their own."
        yield Step(
            "Fit parts", why, "half = len(X) // 2\nfirst, last = clone(model).fit(X[:half]), clone(model).fit(X[half:])"
        )
    if find_said(model, RANK):
        yield Step("Drop features that do not vary", "They add nothing.", "X = X[:, X.std(axis=0) > 0]")
    if find_said(model, SAMPLES) and 0 < sure < len(errors):
        why = f"{len(errors) - sure} atoms would not come back from other samples; fewer may be easier to tell apart."
        yield Step("Ask for fewer atoms", why, f"model.set_params(n_components={sure}).fit(X)")
    if find_said(model, END) and not find_said(model, SAMPLES):
        why = "The last step was not small."
        yield Step("Let it run longer", why, f"model.set_params(max_iter={10 * model.max_iter}).fit(X)")
    why = "It fits random halves of the samples and says which atoms come back, and how many are worth asking for."
    yield Step("Find out which atoms come back", why, "found = elldict.stability(model, X)\nprint(found)\nfound.plot()")
    if model.expected_error_ > GOOD_ERROR and not any(check.doubted for check in checks):
        needed = float(f"{model.n_samples_seen_ * model.expected_error_ / GOOD_ERROR:.2g}")
        why = f"Errors shrink with the number of samples: about {needed:g} would make it 1 %, or 4 degrees."
        yield Step("Give more samples", why, "model.fit(np.concatenate([X, more]))")
    if model.expected_error_ < EXACT or sure == len(errors):
        yield Step("Use them", "Codes are the samples in terms of the atoms.", "codes = model.transform(X)")
