"""What estimators share: they check what a user passes, run a fit, and store its result."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags, estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from elldict._old import transform as coding
from elldict._old.atomic import write_atomically
from elldict._old.backend.base import NUMPY, Array, Backend, to_numpy
from elldict._old.backend.threads import one_blas_thread
from elldict._old.checkpoint import digest, open_checkpoint
from elldict._old.data.dataset import Dataset
from elldict._old.data.file import import_optional
from elldict._old.data.gpu_stream import place_on_device
from elldict._old.data.halves import check_groups
from elldict._old.data.weighted import WeightedDataset, check_weights, weigh
from elldict._old.denoising import CodeLaw, PosteriorMean, Rebuilt
from elldict._old.estimation import Options
from elldict._old.fit import fit_dictionary
from elldict._old.online import State, add_batch, count_seen
from elldict._old.persistence import pack_model, write
from elldict._old.progress import progress_bar
from elldict._old.result import Callback, FitResult
from elldict._old.solver.loop import FitLog
from elldict._old.summary import make_html, make_summary
from elldict._old.validation import (
    check_batch,
    check_callback,
    check_checkpoint,
    check_code_samples,
    check_codes,
    check_container,
    check_noise,
    check_rng,
    check_same_space,
    check_samples,
    is_left_on_disk,
    name_features,
    plain_seed,
)

__all__ = ["LpEstimator"]

MIN_TOL = 1e-15
"""Steps of this length are rounding: a smaller tolerance is taken for this one."""

PLAIN_RESULTS = ["noise_std", "expected_error", "corruption_rate", "corruption_scale", "objective", "converged"]
PLAIN_RESULTS += ["status", "refined", "n_iter", "n_passes", "history", "warnings"]
"""Results that are numbers and words, and become attributes as they are."""


class LpEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the estimators share: fits, streams, codes, likelihoods and files.

    It knows the rows that make codes (`unmixing_`) and the columns that make samples of them (`mixing_`); which of the
    two a class calls `components_` is its own affair.
    """

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
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
        """Learn the atoms of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or Dataset
            Samples, as rows. Any array that follows the array API standard; integers are converted tile by tile. Or
            samples that are left where they are: the name of a file (``.npy``, ``.npz``, ``.csv``, ``.mat``, HDF5,
            zarr, parquet and others, see :func:`elldict.open_samples`), an open `numpy.memmap` or zarr array, a dask
            array, or what `open_samples` returns. A dask array is read by the workers of the current dask.distributed
            client, or by dask's threads if there is none.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, numbers >= 0. A sample of weight 2 counts as two equal samples, one of weight 0 as
            none, whatever it holds; every pass over all samples is exact, and where a few are drawn they are drawn by
            weight. Whole weights of a mean up to 16 are numbers of copies, and the fit is that of repeated samples; of
            all others, and of equal ones, only ratios count, and tests take the samples for (sum w)^2 / sum w^2 of
            equal weight, Kish's effective number. So do error bars, whatever the weights: copies know nothing new.
        groups : array-like of shape (n_samples,), optional
            Label of a group of each sample. Samples of a group may depend on each other in ways that their order does
            not show, as patches of one image or recordings of one person; error bars then come from two halves of whole
            groups, unless `halves` is False. Atoms do not depend on it.
        callback : callable, optional
            Called with an :class:`~elldict.Iteration` after each iteration; the fit stops when it returns True.
        checkpoint : str or path-like, optional
            File to which the fit writes its state, after each pass over all samples. It must not be there before,
            unless the fit is resumed, and it stays when the fit has ended.
        resume : bool, default=False
            Go on where the fit that wrote the checkpoint was interrupted, and end exactly where it would have ended.
            Samples, weights and parameters have to be the same. If there is no such file, the fit warns and starts from
            the beginning.

        Returns
        -------
        Self
            The estimator itself.
        """
        if callback is not None:
            check_callback(callback)
        if checkpoint is not None or resume:
            check_checkpoint(checkpoint, resume=resume)
        before = dict(vars(self))
        try:
            with one_blas_thread():
                self._fit(X, sample_weight, groups, callback, None if checkpoint is None else Path(checkpoint))
        except BaseException:  # an interrupted or failed fit leaves the estimator as it was
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, sample_weight: Any, groups: Any, callback: Callback | None, checkpoint: Path | None) -> None:
        """Fit, and keep the result; fitted arrays live where X does, whatever device the fit works on."""
        given = check_samples(self, X, fitting=True)
        options, labels = self._options(), check_groups(groups, given.n_samples)
        weights = check_weights(sample_weight, given.n_samples, n_least=2)
        rng = check_rng(self.random_state, stream=1)
        samples = given if self.device is None and given.backend == NUMPY else place_on_device(given, self.device)
        samples, weight_unit = weigh(samples, weights)
        if labels is not None and isinstance(samples, WeightedDataset):
            labels = labels[samples.find_rows(np.arange(samples.n_samples))]
        show, here = callback, given.backend
        if show is not None:
            callback = lambda it: show(replace(it, components=here.asarray(it.components, "float64")))  # noqa: E731
        with ExitStack() as stack:
            if samples.backend.on_gpu:
                stack.enter_context(samples.backend.own_stream())
            log = FitLog(callback)
            if checkpoint is not None:
                about = {**asdict(options), "random_state": plain_seed(self.random_state)}
                about["groups"] = None if labels is None else digest(labels.astype(str))
                about["sample_weight"] = None if weights is None else digest(weights)
                recorded = stack.enter_context(open_checkpoint(checkpoint, samples, about, rng))
                samples, log.checkpoint, log.callback = recorded, recorded, recorded.wrap_callback(callback)
            if self.verbose:
                log.callback = stack.enter_context(progress_bar(f"l_{self.p}", self.tol, log.callback))
            fit = fit_dictionary(samples, options, rng, log, stacklevel=4, groups=labels)
        self._state: State = replace(fit, weight_unit=weight_unit)
        self.n_samples_seen_ = samples.n_samples
        self._keep(fit.result, given.backend, samples.dtype)

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Go on learning from a batch of samples, which is read once and not kept.

        The first batches are collected until there are 40 samples a feature, at least 1000, and fitted as `fit` does;
        `status_` says so. From then on a batch moves the atoms by one Newton step, and what is kept does not grow with
        the number of samples. This is an approximation: to first order its error is that of a fit to all samples, and
        `expected_error_` estimates it; but atoms that the first fit found mixed or not identifiable, of which it warns,
        are not sought again. Samples that change are noticed within a few batches: `DataChangedWarning` says so once,
        and the error bars count it. Atoms keep their order and signs from batch to batch. After `fit`, the stream goes
        on from there.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, as rows; a single one is enough.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, as for `fit`; None for weights of 1. They compare with those of other batches, and
            half_life is in units of weight.

        Returns
        -------
        Self
            The estimator itself.
        """
        before = dict(vars(self))
        try:
            with one_blas_thread():
                self._partial_fit(X, sample_weight)
        except BaseException:  # a batch that cannot be used leaves the estimator as it was
            self.__dict__ = before
            raise
        return self

    def _partial_fit(self, X: Any, sample_weight: Any) -> None:
        state: State | None = getattr(self, "_state", None)
        if state is None and hasattr(self, "unmixing_"):
            raise ValueError(
                "This model comes from a file, which keeps its atoms but not what a stream needs to go on. Pickle a "
                "model that is to go on with partial_fit, or begin a new one."
            )
        if state is not None:
            check_same_space(self, X, self.unmixing_, "partial_fit")
        samples = check_batch(self, X, first=state is None)
        weights = check_weights(sample_weight, samples.n_samples)
        rng = check_rng(self.random_state, stream=1)
        state, result = add_batch(state, samples, self._options(), self.half_life, rng, stacklevel=4, weights=weights)
        self._state, self.n_samples_seen_ = state, count_seen(state)
        self._keep(result, samples.backend, samples.dtype)

    def transform(self, X: Any, *, out: str | os.PathLike[str] | None = None) -> Array:
        """Codes of samples: linear ones, or what `transform_algorithm` makes of them where there is such a parameter.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or Dataset
            Samples, as rows; whatever `fit` takes.
        out : str or path-like, default=None
            File for the codes: ``.npy`` or ``.zarr``, or a table with the names of `get_feature_names_out`, ``.csv``,
            ``.tsv``, ``.parquet`` or ``.feather``. They are written block by block and need no memory; the file is
            complete or it is not there.

        Returns
        -------
        array of shape (n_samples, n_components_)
            Codes; those written to a file are left on disk, as a `numpy.memmap` or a zarr array; of a table, its name.
            Of a dask array, a lazy dask array.
        """
        check_is_fitted(self)
        self._validate_params()  # those of transform may have been set after the fit
        check_same_space(self, X, self.unmixing_, "transform")
        rows, rule = self._coder()
        samples = check_samples(self, X, fitting=False)
        if out is not None:
            check_container(self, out)
            return coding.encode_into(out, samples, rows, self._mean, rule, self.get_feature_names_out())
        codes = coding.encode(samples, rows, self._mean, rule)
        coding.warn_if_all_are_zero(codes, rule, lambda: coding.encode(samples, rows, self._mean, coding.keep))
        return codes

    def inverse_transform(self, X: Any, *, out: str | os.PathLike[str] | None = None) -> Array:
        """Rebuild samples from codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_), path or Dataset
            Codes.
        out : str or path-like, default=None
            File for the samples, written block by block, as `transform` writes codes.

        Returns
        -------
        array of shape (n_samples, n_features_in_)
            ``X @ mixing_.T + mean_``. Of linear codes of samples that were reduced: samples projected onto their first
            n_components_ principal directions, as PCA would rebuild them.
        """
        check_is_fitted(self)
        if out is not None or is_left_on_disk(X):
            codes = check_code_samples(self, X, self.unmixing_)
            return coding.decode_samples(codes, self.mixing_, self._mean, out, name_features(self))
        return coding.decode(check_codes(self, X, self.unmixing_), self.mixing_, self._mean)

    def denoise(self, X: Any, *, noise_std: float | None = None, out: str | os.PathLike[str] | None = None) -> Array:
        """Samples without noise and corruption: their posterior mean under the fitted law. X stays as it is.

        Parameters of `transform` are not used. For patches of photographs, which do not follow the law, a threshold is
        better: `transform` by 'hard_threshold' with 2.7 standard deviations of the noise, then `inverse_transform`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or Dataset
            Samples, as rows; whatever `fit` takes.
        noise_std : float, default=None
            Standard deviation of the noise of each feature, in the units of X, where it is known; the noise is taken
            for independent. That of a code is as many times larger as its row of `unmixing_` is long: once, unless
            whitened. It takes the place of the fitted one, and may be that of other samples than those of the fit.
            Where ``refined_`` is 'mixture', whose laws are those of noisy codes, less noise than was fitted says that
            a part of what was taken for noise are codes. None: the noise that was fitted, `noise_std_` of each code.
        out : str or path-like, default=None
            File for the cleaned samples, ``.npy`` or ``.zarr``, or a table with the names of the features, ``.csv``,
            ``.tsv``, ``.parquet`` or ``.feather``; written block by block, complete or not there.

        Returns
        -------
        array of shape (n_samples, n_features_in_)
            Samples, rebuilt from the posterior means of their codes. What lies in directions that belong to no atom is
            taken for noise, but for `mean_`. Those written to a file are left on disk, and of a table its name is
            returned; of a dask array, a lazy dask array.
        """
        check_is_fitted(self)
        check_same_space(self, X, self.unmixing_, "denoise")
        law = self._code_law()
        if noise_std is not None:
            law = law.with_known_noise(check_noise(noise_std), self.unmixing_)
        rule = Rebuilt(PosteriorMean(law, self.unmixing_), self.mixing_, self._mean)
        samples = check_samples(self, X, fitting=False)
        if out is not None:
            return coding.encode_into(out, samples, self.unmixing_, self._mean, rule, name_features(self))
        return coding.encode(samples, self.unmixing_, self._mean, rule)

    def _code_law(self) -> CodeLaw:
        """What is known of the codes."""
        if self.refined_ == "sparse-corruption" and self._cleaning is None and not math.isnan(self.corruption_rate_):
            raise ValueError(
                "This model comes from a file without the law of the corruption, which samples are cleaned by. Fit it "
                "again, or use transform_algorithm='linear'."
            )
        density, scale = (np.asarray(to_numpy(law), dtype=np.float64) for law in (self.density_, self.scale_))
        return CodeLaw(density, scale, self.noise_std_, self._mixture, self._cleaning)

    def score_samples(self, X: Any) -> Array:
        """Log-likelihood of each sample under the fitted distribution: atoms, densities, scales and noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or Dataset
            Samples, as rows; whatever `fit` takes.

        Returns
        -------
        array of shape (n_samples,)
            Log-likelihoods, in the units of X. Directions that belong to no atom count as Gaussian noise of one
            standard deviation; those in which the samples of the fit did not vary are left out.
        """
        return coding.log_likelihoods(*self._judged(X, "score_samples"))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Mean log-likelihood of samples, for choosing p and n_components on data that the fit has not seen.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or Dataset
            Samples, as rows; whatever `fit` takes.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, numbers >= 0.

        Returns
        -------
        float
            Mean of `score_samples`, weighted if there are weights.
        """
        samples, *how = self._judged(X, "score")
        weights = check_weights(sample_weight, samples.n_samples)
        return coding.mean_log_likelihood(weigh(samples, weights)[0], *how)

    def _judged(self, X: Any, method: str) -> tuple[Dataset, Array, Array, coding.Likelihood]:
        """Samples, and what makes log-likelihoods of them."""
        check_is_fitted(self)
        check_same_space(self, X, self.unmixing_, method)
        samples = check_samples(self, X, fitting=False)
        laws = (self.density_, self.scale_, self.noise_std_)
        rows, rule = coding.likelihood_coder(self.unmixing_, self._rest, laws, self._mixture, self._rest_std)
        return samples, rows, self._mean, rule

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that :func:`elldict.load` reads.

        The file is complete or it is not there: an older one is replaced when the new one is written. A
        `random_state` that is an object rather than a number is not kept.

        Parameters
        ----------
        path : str or path-like
            Where to write; by custom it ends in ``.npz``.
        """
        check_is_fitted(self)
        write(path, *pack_model(self))

    def summary(self) -> str:
        """Say what was fitted, how sure it is and what it doubts, with a table of the first atoms.

        Returns
        -------
        str
            Lines of text, to be printed.
        """
        check_is_fitted(self)
        return make_summary(self)

    def report(
        self,
        X: Any,
        path: str | os.PathLike[str] | None = None,
        *,
        names: Sequence[str] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> str:
        """Make a page about the fit: atoms, how sure they are, what was assumed, codes, and what to do next.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or Dataset
            Samples whose codes are shown, as rows; whatever `fit` takes. A few thousand of them are read.
        path : str or path-like, default=None
            File to write, by custom ``.html``; an older one is replaced.
        names : sequence of str, default=None
            Names of the features; None takes those of the samples of the fit, if they had any.
        shape : tuple of int, default=None
            Shape of an image, (h, w) or (h, w, 3), if samples are images.

        Returns
        -------
        str
            The page: HTML that loads nothing.
        """
        check_is_fitted(self)
        for package in ("matplotlib", "jinja2"):
            import_optional(package, "plot")
        page: str = importlib.import_module("elldict._old.report.own").make_report(self, X, names=names, shape=shape)
        if path is not None:
            write_atomically(Path(path), lambda stream: stream.write(page.encode()))
        return page

    def _keep(self, result: FitResult, backend: Backend, dtype: str) -> None:
        """Fitted arrays, of the kind and precision of the samples, and how the fit ended."""
        atoms = backend.asarray(result.components, dtype)
        unmixing = backend.asarray(result.unmixing, dtype) if self.whiten else atoms
        self._name_rows(atoms, unmixing, backend.asarray(result.mean, dtype))
        self.n_components_ = len(result.components)
        self.density_ = backend.asarray(result.density, dtype)
        self.scale_ = backend.asarray(result.scale, dtype)
        self.atom_error_ = backend.asarray(result.atom_error, dtype)
        self._rest = backend.asarray(result.rest, dtype)
        self._rest_std, self._code_std = result.rest_std, backend.asarray(result.code_std, "float64")
        self._mixture, self._cleaning = result.mixture, result.cleaning
        self._split_halves = result.split_halves
        for name in PLAIN_RESULTS:
            setattr(self, f"{name}_", getattr(result, name))

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    @property
    def _mean(self) -> Array:
        """What is subtracted from samples before they are coded."""
        return self.mean_

    def _options(self) -> Options:
        """Parameters of a fit, checked."""
        raise NotImplementedError

    def _coder(self) -> tuple[Array, coding.Rule]:
        """Rows for the linear codes, and what is done with them."""
        raise NotImplementedError

    def _name_rows(self, atoms: Array, unmixing: Array, mean: Array) -> None:
        """Keep atoms (m, n), the rows (m, n) that make their codes, and the mean (n,), under the names of the class."""
        raise NotImplementedError

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's display of the parameters, and the fit."""
        parameters = str(estimator_html_repr(self))
        return parameters + make_html(self) if hasattr(self, "warnings_") else parameters

    def _repr_html_inner(self) -> str:
        return self._html_repr()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return {kind: self._html_repr() if kind == "text/html" else text for kind, text in bundle.items()}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
