"""Methods of fitted estimators: codes, samples, likelihoods, model files and pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from elldict.denoising import Distribution, Rule
from elldict.history import Iteration
from elldict.model_file import save_model
from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array
from elldict.samples.dask import is_dask, read_numbers
from elldict.summary import make_summary
from elldict.transform import (
    chain,
    find_precision,
    keep_linear,
    make_decoder,
    make_encoder,
    map_samples,
    widen,
    write_samples,
)
from elldict.validation import (
    Rules,
    check_codes,
    check_noise,
    check_parameters,
    check_same_space,
    check_samples,
    check_weights,
)

if TYPE_CHECKING:
    from elldict.corruption.prior import Prior

FloatArray = NDArray[np.floating[Any]]
"""Array of single or double precision; of torch or another library if the samples were."""

PathLike = str | os.PathLike[str]


class FittedModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Components and densities of codes; a subclass fits them, and has rules for its parameters."""

    _rules: ClassVar[Rules]

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
        rule = self._make_denoiser(noise)
        if out is not None:
            return write_samples(X, rule, out, self._feature_names)
        return map_samples(X, rule, self.n_features_in_, find_precision(X))

    def _make_denoiser(self, noise_std: float | None) -> Rule:
        """Make the rule for samples without noise, and without corruption if the fit has found any."""
        mixing = to_numpy(self.mixing_)
        if self._corruption is None:
            return chain(self._encoder, self._make_posterior_mean(noise_std), make_decoder(mixing, self._offset))
        from elldict.corruption.denoise import make_cleaner  # noqa: PLC0415  optional

        return chain(widen, make_cleaner(self._corruption, mixing, self._offset, noise_std))

    def _make_posterior_mean(self, noise_std: float | None = None) -> Rule:
        """Make the rule for posterior means of codes, for known noise of features or the fitted noise of codes."""
        noise = np.full(self.n_components_, self.noise_std_)
        if noise_std is not None:
            noise = noise_std * np.linalg.norm(to_numpy(self.unmixing_), axis=1)
        return chain(widen, self._distribution.make_posterior_mean(noise, is_known=noise_std is not None))

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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "unmixing_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
