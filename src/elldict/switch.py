"""Estimators that use the new core: selected with ELLDICT_CORE=new until they replace the public ones.

Parameters and attributes are those of the present estimators; options that the new core lacks raise an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import numpy as np

from elldict._old import dictionary_learning, ica
from elldict._old.backend.threads import one_blas_thread
from elldict._old.data.dataset import ArrayDataset
from elldict._old.result import FitResult, Iteration
from elldict._old.validation import check_rng, check_samples
from elldict.fit import Options, fit
from elldict.result import Result
from elldict.samples.arrays import ArraySamples
from elldict.solver.climb import Observer, State

__all__ = ["LpDictionaryLearning", "LpICA"]

REFINEMENTS = ("auto", "mixture", None)


class OnNewCore:
    """Mixin that replaces the fit of an estimator."""

    def _fit(
        self, X: Any, sample_weight: Any, groups: Any, callback: Callable[..., Any] | None, checkpoint: Path | None
    ) -> None:
        """Fit with the new core and set the fitted attributes."""
        self.__dict__.pop("_state", None)  # or partial_fit would resume from the samples of another fit
        for name, value in {"sample_weight": sample_weight, "groups": groups, "checkpoint": checkpoint}.items():
            if value is not None:
                refuse(name)
        given = check_samples(self, X, fitting=True)
        old = self._options()  # type: ignore[attr-defined]
        if not old.clip and (old.n_components or 0) > given.n_features:
            raise ValueError(f"n_components={old.n_components} is above the number of features, {given.n_features}.")
        options = make_options(self, old)
        history: list[Iteration] = []
        with one_blas_thread() as n_threads:
            X = given.X if isinstance(given, ArrayDataset) else given.take(np.arange(given.n_samples))
            result = fit(ArraySamples(X, n_threads), options, observers=[make_observer(history, callback)])
        for finding in result.findings:
            warnings.warn(finding.message, finding.category, stacklevel=4)
        self.n_samples_seen_ = given.n_samples
        self._keep(make_fit_result(result, tuple(history)), given.backend, given.dtype)  # type: ignore[attr-defined]

    def _partial_fit(self, X: Any, sample_weight: Any) -> NoReturn:  # noqa: ARG002
        refuse("partial_fit")

    def _judged(self, X: Any, method: str) -> NoReturn:  # noqa: ARG002
        refuse(method)

    def _code_law(self) -> NoReturn:
        refuse("denoise")


class LpDictionaryLearning(OnNewCore, dictionary_learning.LpDictionaryLearning):
    """The present estimator with the fit of the new core."""


class LpICA(OnNewCore, ica.LpICA):
    """The present estimator with the fit of the new core."""


def refuse(name: str) -> NoReturn:
    """Raise an error for a feature that the new core lacks."""
    raise NotImplementedError(f"The new core does not support {name} yet; unset ELLDICT_CORE to use the present one.")


def make_options(model: Any, old: Any) -> Options:
    """Convert the validated parameters of the present estimators."""
    if len(old.exponents) > 1 or old.exponents[0] < 2:
        refuse("p below 2 or a sequence of p")
    if old.refine not in REFINEMENTS:
        refuse(f"refine={old.refine!r}")
    if old.solver == "power" and old.refine is not None:
        refuse("refinement after solver='power' (set refine=None)")
    if old.n_init != 1 or model.device not in (None, "cpu"):
        refuse("n_init above 1 or a device other than 'cpu'")
    if old.whiten == "all":
        refuse("whiten='all'")
    return Options(
        n_components=old.n_components,
        p=old.exponents[0],
        solver=old.solver,
        refine=old.refine,
        normalize=old.normalize,
        center=old.center,
        whiten=bool(old.whiten),
        max_iter=old.max_iter,
        tol=old.tol,
        error_bars=old.halves is True or (old.halves == "auto" and old.solver != "power"),
        random_state=check_rng(model.random_state, stream=1),
    )


def make_observer(history: list[Iteration], callback: Callable[..., Any] | None) -> Observer:
    """Report every state as an iteration of the present estimators, and append it to the history."""
    began = perf_counter()

    def observe(state: State) -> bool:
        number, seconds = len(history) + 1, perf_counter() - began
        history.append(Iteration(0, 0, number, state.value, state.length, float(number), seconds))
        return callback is not None and bool(callback(history[-1]))

    return observe


def make_fit_result(result: Result, history: tuple[Iteration, ...]) -> FitResult:
    """Convert a result, without the densities that scoring and denoising need."""
    m, n = result.unmixing.shape
    return FitResult(
        components=result.mixing.T,
        unmixing=result.unmixing,
        mean=result.mean,
        density=np.full(m, np.nan),
        scale=np.full(m, np.nan),
        noise_std=float("nan"),
        atom_error=result.component_errors,
        expected_error=float(np.mean(result.component_errors)),
        rest=np.zeros((0, n)),
        rest_std=0.0,
        code_std=result.code_std,
        objective=result.objective,
        converged=result.converged,
        status=result.status,
        refined=None if result.pilot == "" or result.is_pilot else "density",
        n_iter=result.n_iter,
        n_passes=result.n_passes,
        history=history,
        warnings=tuple((finding.category.__name__, finding.message) for finding in result.findings),
        split_halves=result.has_replicates,
    )
