"""What the estimators share: checks of parameters, one fit of the core, and the attributes made of its result."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from elldict.atoms import Options
from elldict.blas import one_blas_thread
from elldict.checkpoint import check_arguments, describe_fit, open_checkpoint
from elldict.denoising import Distribution, SpikeSlab, fit_spike_slab
from elldict.exceptions import NoCheckpointWarning, find_stack_level
from elldict.fit import fit
from elldict.fitted import FittedModel, FloatArray
from elldict.history import Callback, Recorder
from elldict.progress import show_progress
from elldict.result import Result
from elldict.samples.base import Samples
from elldict.samples.open import open_source
from elldict.solver.climb import Journal
from elldict.transform import convert_like, find_precision, read_codes
from elldict.validation import check_callback, check_groups, check_parameters, check_samples, check_weights, draw_seed
from elldict.warnings import Finding

if TYPE_CHECKING:
    from elldict.corruption.prior import Prior

ROUNDING = {"float32": 1e-6, "float64": 1e-9}
"""Size of codes, relative to the largest one, that may be rounding errors of samples of a precision."""


class LpEstimator(FittedModel):
    """Base class of estimators: a subclass has parameters, makes the options of a fit, and names the components."""

    _sorts_by_variance = False  # components; set by `elldict.mne`, whose users expect the order of MNE-Python

    p: float
    solver: str
    refine: str | None
    normalize: str | None
    error_bars: bool | str
    standardize: bool
    orthogonal: bool
    max_iter: int
    tol: float
    random_state: int | np.random.RandomState | np.random.Generator | None
    verbose: bool

    if TYPE_CHECKING:  # scikit-learn's method, for type checkers

        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> FloatArray:
            """Fit X and return its codes."""

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        sample_weight: Any = None,
        groups: Any = None,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> Self:
        """Find the components of X.

        A fit that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), str or path-like
            Samples as rows: a NumPy array (also a memory map), a data frame, a dask array or data frame, an array of
            another library that implements the array API standard, the name of a file, or what
            :func:`elldict.open_samples` returns, here and in all other methods. X is never changed. Samples of dask are
            visited where they are, by its scheduler in use, and those of a file are read in every pass; fitted arrays
            are then those of NumPy. Tensors of torch on a GPU are fitted there, as are samples that
            :func:`elldict.open_samples` has opened for a `device`.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0 of the samples. A sample of weight 2 counts as two equal samples.
        groups : array-like of shape (n_samples,), default=None
            Group label of each sample, if samples of a group depend on each other, as recordings of one person do. The
            parts that are compared for `atom_error_` then consist of whole groups. Components do not depend on it.
        callback : callable, default=None
            Called with an :class:`~elldict.Iteration` after each iteration; the fit stops when it returns True.
        checkpoint : str or path-like, default=None
            File (.npz) to which the state of the fit is written from time to time, and when it ends or is interrupted.
            A file that exists is an error unless the fit is resumed.
        resume : bool, default=False
            Whether to continue from the checkpoint. The result has the same bits as that of a fit that was never
            interrupted, on the same machine with the same libraries. A checkpoint of other data or parameters is
            refused. If there is none, the fit starts from the beginning, with a warning.

        Returns
        -------
        Self
            The estimator itself.
        """
        before = dict(vars(self))
        try:
            if check_arguments(checkpoint, resume):
                message = f"There is no checkpoint {checkpoint} to resume from: the fit starts from the beginning."
                issue([Finding(NoCheckpointWarning, message)])
            findings = self._fit(X, sample_weight, groups, callback, checkpoint)
            self.warnings_ = tuple((finding.category.__name__, finding.message) for finding in findings)
            issue(findings)
        except BaseException:  # also Ctrl-C, and warnings that are turned into errors
            self.__dict__ = before
            raise
        return self

    def partial_fit(self, X: Any, y: Any = None, *, half_life: float | None = None) -> Self:  # noqa: ARG002
        """Improve the components with a batch of samples, which is read once.

        The first batches are collected until there are 40 samples per feature, at least 1000, and fitted as `fit` does;
        until then there are no components, and `status_` says how many samples there are.
        Each further batch is one Newton step, of a length proportional to its share in all samples: to first order the
        error is that of a fit to all of them. Memory does not grow. A fitted estimator is continued. If the samples
        change, there is a :class:`~elldict.exceptions.DataChangedWarning`, and a new start.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples as rows, as many or few as there are.
        y : None
            Ignored.
        half_life : float, default=None
            Number of samples after which the weight of a sample is halved, to follow components that drift. None:
            nothing is forgotten.

        Returns
        -------
        Self
            The estimator itself. If the batch is refused, it is as it was before.
        """
        from elldict.stream.batches import add_batch  # noqa: PLC0415  optional

        before = dict(vars(self))
        try:
            issue(add_batch(self, X, half_life))
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def _fit(
        self,
        X: Any,
        sample_weight: Any,
        groups: Any,
        callback: Callback | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> list[Finding]:
        """Check everything, fit, and set the fitted attributes; return what is to be warned of."""
        check_parameters(self, self._rules)
        check_callback(callback)
        X = check_samples(self, X, fitting=True)
        weights = check_weights(sample_weight, X.shape[0], least=2)
        labels = check_groups(groups, X.shape[0])
        n_components, findings = self._choose_n_components(X.shape)
        options = self._make_options(n_components, has_groups=labels is not None)
        with ExitStack() as stack:
            n_threads = stack.enter_context(one_blas_thread())
            callbacks, journal = [] if callback is None else [callback], Journal()
            if self.verbose:
                line = stack.enter_context(show_progress(type(self).__name__))
                callbacks, journal = [line, *callbacks], Journal(line.show_part)
            recorder = Recorder(callbacks)
            samples = open_source(X, n_threads, weights)
            if checkpoint is not None:
                about = describe_fit(samples, labels, options, self.random_state)
                journal = stack.enter_context(open_checkpoint(checkpoint, about, recorder, journal.show_part))
            result = fit(samples, options, observers=[recorder], groups=labels, journal=journal)
            self._keep(result, X, samples, int(X.shape[0]))
            self.__dict__.pop("_stream", None)
        self.history_ = tuple(recorder.history)
        found = [*findings, *result.findings]
        names = getattr(self, "feature_names_in_", None)
        return found if names is None else [finding.add_names(names) for finding in found]

    def _make_options(self, n_components: int | None, *, has_groups: bool) -> Options:
        """Make the options of a fit from the parameters."""
        is_power, wanted = self.solver == "power", self.error_bars
        center, whiten = self._choose_coordinates()
        return Options(
            n_components=n_components,
            p=float(self.p),
            solver=self.solver,
            refine=None if is_power else self.refine,
            normalize=None if is_power else self.normalize,
            center=center,
            whiten=whiten,
            standardize=bool(self.standardize),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            error_bars=(not is_power or has_groups) if isinstance(wanted, str) else bool(wanted),
            random_state=draw_seed(self.random_state),
            orthogonal=bool(self.orthogonal),
            sorts_by_variance=self._sorts_by_variance,
        )

    def _choose_n_components(self, shape: tuple[int, int]) -> tuple[int | None, list[Finding]]:
        """Choose the number of components for samples of a shape, and what to warn of."""
        raise NotImplementedError

    def _choose_coordinates(self) -> tuple[bool, bool]:
        """Choose whether to centre and whether to whiten the samples."""
        raise NotImplementedError

    def _keep(self, result: Result, X: Any, samples: Samples | None, n_samples: int) -> None:
        """Set the fitted attributes, in the precision and array library of X.

        Without samples, those fitted to single codes stay as they are.
        """
        precision = find_precision(X)
        self.n_samples_seen_ = n_samples
        given = None if samples is None else samples.weights
        self._total_weight = float(n_samples if given is None else np.sum(given))
        unit = self._choose_unit()
        unmixing, mixing = result.unmixing / unit, result.mixing * unit
        self._distribution = Distribution(result.density, result.normalization).rescale(1 / unit)
        self._name_components(*(convert_like(array, X, precision) for array in (unmixing, mixing, result.mean)))
        self.n_components_ = len(unmixing)
        if samples is not None:
            Z, weights = read_codes(samples, unmixing, result.mean)
            rounding, Z = ROUNDING[precision], Z - self._distribution.density.location
            spike_slab = describe_codes(result.corruption, rounding) or fit_spike_slab(Z, weights, rounding)
            self.density_ = convert_like(spike_slab.density, X, precision)
            self.scale_ = convert_like(spike_slab.scale, X, precision)
            self.noise_std_ = spike_slab.noise_std
        self.atom_error_ = convert_like(result.component_errors, X, precision)
        self.expected_error_ = float(np.mean(result.component_errors))
        self.objective_ = result.objective
        self.n_iter_ = result.n_iter
        self.n_passes_ = result.n_passes
        self.converged_ = result.converged
        self.status_ = result.status
        self.refined_ = None if result.pilot == "" or result.is_pilot else "likelihood"
        self._keep_corruption(result.corruption)

    def _keep_corruption(self, corruption: Prior | None) -> None:
        """Set the attributes of a fit that has looked for corrupted entries; delete those of an earlier fit."""
        for name in ("_corruption", "corruption_rate_", "corruption_scale_"):
            self.__dict__.pop(name, None)
        if self.refine == "sparse-corruption":
            self._corruption = corruption
            self.corruption_rate_ = 0.0 if corruption is None else corruption.rate
            self.corruption_scale_ = 0.0 if corruption is None else corruption.scale
        if corruption is not None:
            self.refined_ = "sparse-corruption"

    def _choose_unit(self) -> float:
        """Choose the factor by which codes are divided."""
        return 1.0

    def _name_components(self, unmixing: Any, mixing: Any, mean: Any) -> None:
        """Set `components_`, `unmixing_` (m, n), `mixing_` (n, m) and `mean_` (n,)."""
        raise NotImplementedError

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        if self._sorts_by_variance:
            copy._sorts_by_variance = True
        return copy


def describe_codes(corruption: Prior | None, rounding: float) -> SpikeSlab | None:
    """Return the distribution of codes without the corruption of entries; None if there is none."""
    if corruption is None:
        return None
    scale, noise = np.sqrt(corruption.variance), math.sqrt(corruption.noise)
    return SpikeSlab(corruption.density, scale, 0.0 if noise < rounding * np.max(scale) else noise)


def issue(findings: Sequence[Finding]) -> None:
    """Issue warnings that point to the line of the user's code that called the library."""
    for finding in findings:
        warnings.warn(finding.message, finding.category, stacklevel=find_stack_level())
