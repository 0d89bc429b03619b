"""What the estimators share: checks, one fit of the core, and the methods that use its result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from elldict.blas import one_blas_thread
from elldict.checkpoint import check_arguments, describe_fit, open_checkpoint
from elldict.denoising import Distribution, Rule, fit_spike_slab
from elldict.exceptions import NoCheckpointWarning, find_stack_level
from elldict.fit import Options, fit
from elldict.history import Callback, Iteration, Recorder
from elldict.model_file import save_model
from elldict.progress import show_progress
from elldict.result import Result
from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array, Samples
from elldict.samples.dask import is_dask, read_numbers
from elldict.samples.open import open_source
from elldict.solver.climb import Journal
from elldict.summary import make_summary
from elldict.transform import (
    chain,
    convert_like,
    find_precision,
    keep_linear,
    make_decoder,
    make_encoder,
    map_samples,
    read_codes,
    widen,
    write_samples,
)
from elldict.validation import (
    Rules,
    check_callback,
    check_codes,
    check_groups,
    check_noise,
    check_parameters,
    check_same_space,
    check_samples,
    check_weights,
    draw_seed,
)
from elldict.warnings import Finding

if TYPE_CHECKING:
    from elldict.corruption.prior import Prior

FloatArray = NDArray[np.floating[Any]]
"""Array of single or double precision; of torch or another library if the samples were."""

PathLike = str | os.PathLike[str]

ROUNDING = {"float32": 1e-6, "float64": 1e-9}
"""Size of codes, relative to the largest one, that may be rounding errors of samples of a precision."""


class LpEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of estimators: a subclass has parameters, makes the options of a fit, and names the components."""

    _rules: ClassVar[Rules]
    _sorts_by_variance = False  # components; set by `elldict.mne`, whose users expect the order of MNE-Python

    p: float
    solver: str
    refine: str | None
    normalize: str | None
    error_bars: bool | str
    standardize: bool
    max_iter: int
    tol: float
    random_state: int | np.random.RandomState | np.random.Generator | None
    verbose: bool

    components_: FloatArray
    unmixing_: FloatArray
    mixing_: FloatArray
    mean_: FloatArray
    n_components_: int
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    objective_: float
    n_iter_: int
    n_passes_: float
    density_: FloatArray
    scale_: FloatArray
    noise_std_: float
    expected_error_: float
    atom_error_: FloatArray
    converged_: bool
    status_: str
    refined_: str | None
    history_: tuple[Iteration, ...]
    warnings_: tuple[tuple[str, str], ...]
    n_samples_seen_: int
    corruption_rate_: float
    corruption_scale_: float
    _distribution: Distribution
    _total_weight: float
    _corruption: Prior | None = None

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
            are then those of NumPy.
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

        The first batches are collected until there are 40 samples per feature, at least 1000, and fitted as `fit` does.
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
        return [*findings, *result.findings]

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
        weights = None if samples is None else samples.weights
        self._total_weight = float(n_samples if weights is None else np.sum(weights))
        unit = self._choose_unit()
        unmixing, mixing = result.unmixing / unit, result.mixing * unit
        self._distribution = Distribution(result.density, result.normalization).rescale(1 / unit)
        self._name_components(*(convert_like(array, X, precision) for array in (unmixing, mixing, result.mean)))
        self.n_components_ = len(unmixing)
        if samples is not None:
            spike_slab = fit_spike_slab(*read_codes(samples, unmixing, result.mean), ROUNDING[precision])
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

    @overload
    def transform(self, X: Any, *, out: None = None) -> FloatArray: ...

    @overload
    def transform(self, X: Any, *, out: PathLike) -> Any: ...

    def transform(self, X: Any, *, out: PathLike | None = None) -> Any:
        """Compute the codes of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples as rows.
        out : str or path-like, default=None
            File to which the codes are written block by block: .npy, .csv, .tsv, .parquet or .feather. It replaces an
            older file when it is complete, but not that of X.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            Codes, in single precision if X is. Those of a dask array, like the results of all other methods but
            `score`, are a dask array that has not been computed yet. With `out`, a memory map of the file if it is
            .npy, otherwise its path.
        """
        X = self._check_samples(X, "transform")
        rule = chain(self._encoder, self._make_rule())
        if out is not None:
            return write_samples(X, rule, out, self.get_feature_names_out())
        codes = map_samples(X, rule, self.n_components_, find_precision(X))
        if not is_dask(codes):
            self._check_transformed(codes)
        return codes

    def _make_rule(self) -> Rule:
        """Make the rule from linear codes to those of `transform`."""
        return keep_linear

    def _check_transformed(self, codes: Any) -> None:
        """Warn if codes are of no use."""

    @overload
    def inverse_transform(self, X: Any, *, out: None = None) -> FloatArray: ...

    @overload
    def inverse_transform(self, X: Any, *, out: PathLike) -> Any: ...

    def inverse_transform(self, X: Any, *, out: PathLike | None = None) -> Any:
        """Compute samples from codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Codes.
        out : str or path-like, default=None
            File to which the samples are written, as by `transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            ``X @ mixing_.T + mean_``. With fewer components than features, linear codes give the projection of the
            samples onto the components.
        """
        check_is_fitted(self)
        check_same_space(self, X, self.unmixing_, "inverse_transform")
        codes = check_codes(X, self.n_components_)
        decoder = make_decoder(to_numpy(self.mixing_), self._offset)
        if out is not None:
            return write_samples(codes, decoder, out, self._feature_names)
        return map_samples(codes, decoder, self.n_features_in_, find_precision(codes))

    @overload
    def denoise(self, X: Any, *, noise_std: float | None = None, out: None = None) -> FloatArray: ...

    @overload
    def denoise(self, X: Any, *, noise_std: float | None = None, out: PathLike) -> Any: ...

    def denoise(self, X: Any, *, noise_std: float | None = None, out: PathLike | None = None) -> Any:
        """Compute samples without noise, from the posterior means of their codes.

        Parameters of `transform` are not used. After a fit with ``refine='sparse-corruption'``, corrupted entries are
        recognised in each sample, and their errors removed, too.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Noisy samples as rows, with noise like that of the samples of the fit.
        noise_std : float, default=None
            Standard deviation of the noise of each feature, if it is known; noise of different features is assumed to
            be independent. None: `noise_std_`, which is reliable for codes that are mostly zero. More noise than the
            densities of the codes allow is lowered to what they allow.
        out : str or path-like, default=None
            File to which the denoised samples are written, as by `transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            Denoised samples. Directions without a component are replaced by their mean.
        """
        noise = None if noise_std is None else check_noise(noise_std)
        X = self._check_samples(X, "denoise")
        if self._corruption is not None:
            from elldict.corruption.denoise import make_cleaner  # noqa: PLC0415  optional

            cleaner = chain(widen, make_cleaner(self._corruption, to_numpy(self.mixing_), self._offset, noise))
            return map_samples(X, cleaner, self.n_features_in_, find_precision(X))  # type: ignore[no-any-return]
        decoder = make_decoder(to_numpy(self.mixing_), self._offset)
        rule = chain(self._encoder, self._make_posterior_mean(noise), decoder)
        if out is not None:
            return write_samples(X, rule, out, self._feature_names)
        return map_samples(X, rule, self.n_features_in_, find_precision(X))

    def _make_posterior_mean(self, noise_std: float | None = None) -> Rule:
        """Make the rule for posterior means of codes, for known noise of features or the fitted noise of codes."""
        noise = np.full(self.n_components_, self.noise_std_)
        if noise_std is not None:
            noise = noise_std * np.linalg.norm(to_numpy(self.unmixing_), axis=1)
        return chain(widen, self._distribution.make_posterior_mean(noise))

    def score_samples(self, X: Any) -> FloatArray:
        """Compute the log-likelihood of each sample under the fitted model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples as rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-likelihoods. With fewer components than features, they are log densities of the projection of a sample
            onto the subspace of the components, so that they compare estimators with the same subspace only.
        """
        X = self._check_samples(X, "score_samples")
        likelihood = chain(widen, self._distribution.make_log_likelihood(to_numpy(self.unmixing_)))
        return map_samples(X, chain(self._encoder, likelihood), 1, "float64")[:, 0]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Compute the mean log-likelihood of samples, for model selection on held-out samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples as rows.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0 of the samples.

        Returns
        -------
        float
            Mean of `score_samples`, weighted if there are weights.
        """
        found = self.score_samples(X)
        logs = read_numbers(found) if is_dask(found) else to_numpy(found)
        return float(np.average(logs, weights=check_weights(sample_weight, len(logs))))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted estimator to a file, which :func:`elldict.load` reads.

        The file is complete or absent: an older model is kept until the new one is written. A `random_state` that is
        not an integer is not kept, and arrays of other libraries are stored as NumPy arrays.

        Parameters
        ----------
        path : str or path-like
            File to write, usually ``.npz``. An older model is replaced.
        overwrite : bool, default=False
            Whether to replace a file that is not an elldict model, too.
        """
        save_model(self, path, overwrite=overwrite)

    def summary(self) -> str:
        """Describe the fit: how it ended, errors, warnings, and the first components.

        Returns
        -------
        str
            Lines of text, to be printed.
        """
        return make_summary(self)

    def report(
        self,
        X: Any = None,
        path: str | os.PathLike[str] | None = None,
        *,
        names: Sequence[str] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> str:
        """Make a page about the fit: components, errors, warnings, convergence and codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), default=None
            Samples whose codes are shown; a few thousand are read. None: no codes are shown.
        path : str or path-like, default=None
            File to write, usually ``.html``. An older page is replaced, but no other file.
        names : sequence of str, default=None
            Names of the features. None: those of the data frame of the fit, if there was one.
        shape : tuple of int, default=None
            Shape of the samples if they are images: (h, w) or (h, w, 3).

        Returns
        -------
        str
            The page: one HTML document that loads nothing. Needs the extra ``plot``.
        """
        from elldict.report.own import make_report  # noqa: PLC0415  its drawings are slow to import
        from elldict.report.page import write_page  # noqa: PLC0415

        make = partial(make_report, self, X, names=names, shape=shape)
        return make() if path is None else write_page(make, path)

    def _check_samples(self, X: Any, method: str) -> Any:
        """Check that the estimator is fitted, its parameters, and samples to be transformed."""
        check_is_fitted(self)
        check_parameters(self, self._rules)  # those of transform may have been set after the fit
        check_same_space(self, X, self.unmixing_, method)
        return check_samples(self, X, fitting=False)

    @property
    def _encoder(self) -> Rule:
        """Rule for linear codes."""
        return make_encoder(to_numpy(self.unmixing_), self._offset)

    @property
    def _offset(self) -> Array:
        """What is subtracted from samples: their mean, or zeros."""
        mean = vars(self).get("mean_")
        return np.zeros(self.n_features_in_, find_precision(self.unmixing_)) if mean is None else to_numpy(mean)

    @property
    def _feature_names(self) -> list[str]:
        """Names of the features: those of the fit, or x0, x1, ..."""
        return list(vars(self).get("feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)]))

    @property
    def _n_features_out(self) -> int:
        """Number of columns of codes, for get_feature_names_out."""
        return self.n_components_

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        if self._sorts_by_variance:
            copy._sorts_by_variance = True
        return copy

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "unmixing_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def issue(findings: Sequence[Finding]) -> None:
    """Issue warnings that point to the line of the user's code that called the library."""
    for finding in findings:
        warnings.warn(finding.message, finding.category, stacklevel=find_stack_level())
