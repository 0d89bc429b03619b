"""Independent component analysis, with the names and conventions of scikit-learn's FastICA."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from elldict.estimator import LpEstimator
from elldict.fitted import FloatArray
from elldict.result import Result
from elldict.samples.base import Samples
from elldict.transform import convert_like, find_precision
from elldict.validation import SHARED_RULES, Rules, allow
from elldict.warnings import Finding

__all__ = ["LpICA"]


class LpICA(LpEstimator):
    """Independent component analysis by maximum likelihood, with the conventions of scikit-learn's FastICA.

    Samples are centred, reduced to their first `n_components` principal directions and whitened. Then the likelihood of
    independent sources, whose densities are fitted as well, is maximised over rotations, and from there over all
    invertible matrices. Super-Gaussian and sub-Gaussian sources are recovered, and at most one Gaussian source. The fit
    is that of :class:`~elldict.LpDictionaryLearning` with ``center=True, whiten=True``.

    Parameters
    ----------
    n_components : int, default=None
        Number of sources. None: the number of directions in which X varies. More than that are lowered to it, with a
        warning.
    whiten : {'unit-variance', 'arbitrary-variance'} or False, default='unit-variance'
        'unit-variance': sources have unit variance. 'arbitrary-variance': the squares of a source sum to one over the
        samples of the fit, as in FastICA. False: samples are assumed to be centred and white, and `n_components` is
        ignored, with a warning.
    p : float, default=3
        Exponent of the l_p norm that is a start of the likelihood, or with ``refine=None`` the contrast function, in
        the range (0, 60] except 2. Below 2 the norm is minimised, which needs ``solver='auto'``.
    solver : {'auto', 'power'}, default='auto'
        'auto': Newton steps for pairs of sources, first on subsamples, from starts that do not depend on a seed.
        'power': the generalized power method, from a random start, for sparse sources only; it uses the l_p norm alone.
    refine : {'auto'} or None, default='auto'
        Stage after the l_p norm. 'auto': maximum likelihood, unless it does not improve on the l_p norm for held-out
        samples. With ``solver='power'`` there is none. None: none.
    normalize : {'auto', 'samples'} or None, default='auto'
        Whether samples of large norm are scaled down: a white sample y is divided by the root of ``|y|**2`` plus its
        median. 'samples': always. 'auto': if this increases the likelihood of held-out samples. None: never.
    error_bars : {'auto'} or bool, default='auto'
        Whether `atom_error_` is estimated, by fits to parts of the samples, which take about as long as the fit.
        'auto': True, except for ``solver='power'`` without `groups`.
    standardize : bool, default=False
        Whether to divide features by their standard deviation before whitening. Useful if features have different
        units and `n_components` is below their number.
    orthogonal : bool, default=False
        Whether sources have to be uncorrelated, as those of FastICA: a rotation of white samples. False: the mixing
        matrix is any invertible one, unless the best rotation is more likely. Errors of the covariance then do not
        limit the accuracy, and sources that are often zero are recovered exactly if there is no noise.
    max_iter : int, default=1000
        Maximum number of iterations of a climb.
    tol : float, default=1e-6
        With ``solver='power'``: root mean square, over sources, of the step below which the fit ends. With 'auto', the
        fit ends when the expected increase is small compared with sampling errors.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random start with ``solver='power'``.
    verbose : bool, default=False
        Whether to show progress on standard error.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Rows that map samples to sources: ``sources = (X - mean_) @ components_.T``.
    unmixing_ : ndarray of shape (n_components_, n_features_in_)
        `components_`, by the name that all estimators share.
    mixing_ : ndarray of shape (n_features_in_, n_components_)
        Pseudo-inverse of `components_`: ``X - mean_`` is about ``sources @ mixing_.T``. Columns are sorted by
        decreasing mean ``|source|**p``, and the largest entry of each is positive.
    mean_ : ndarray of shape (n_features_in_,)
        Mean of the samples. Not set with ``whiten=False``.
    whitening_ : ndarray of shape (n_components_, n_features_in_)
        Rows that map centred samples to principal components whose squares sum to one over the samples of the fit, as
        in FastICA. Not set with ``whiten=False``.
    n_components_ : int
        Number of sources.
    objective_ : float
        Mean of ``|source|**p`` over samples and sources of unit variance.
    density_ : ndarray of shape (n_components_,)
        Fraction of values of each source that are not zero, for sources that are zero or Gaussian, plus Gaussian noise;
        1 for sub-Gaussian sources.
    scale_ : ndarray of shape (n_components_,)
        Standard deviation of the values that are not zero, without noise.
    noise_std_ : float
        Standard deviation of the noise of a source, common to all; 0 if it is within rounding errors.
    expected_error_ : float
        Mean of `atom_error_`: estimate of :func:`elldict.metrics.recovery_error` for the columns of `mixing_`.
    atom_error_ : ndarray of shape (n_components_,)
        Estimated error ``1 - cos(angle)**4`` of each column of `mixing_`, whose rows are divided by the standard
        deviations of the features if these are standardised; NaN if not estimated.
    refined_ : str or None
        'likelihood' if sources maximise the likelihood, None if they are those of the l_p norm or another pilot.
    n_features_in_, feature_names_in_, n_samples_seen_, n_iter_, n_passes_, converged_, status_, history_, warnings_
        As those of :class:`~elldict.LpDictionaryLearning`.

    See Also
    --------
    LpDictionaryLearning : The same fit, with atoms as `components_` and optional whitening.
    sklearn.decomposition.FastICA : Independent component analysis by fixed-point iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from elldict import LpICA
    >>> rng = np.random.default_rng(0)
    >>> sources = rng.laplace(size=(5000, 3))
    >>> X = sources @ np.array([[1, 1, 1], [0.5, 2, 1], [1.5, 1, 2]]).T + 7
    >>> ica = LpICA(n_components=3)
    >>> found = ica.fit_transform(X)
    >>> correlations = np.abs(np.corrcoef(found.T, sources.T)[:3, 3:])
    >>> bool(np.all(correlations.max(axis=0) > 0.99))
    True
    >>> np.allclose(ica.inverse_transform(found), X)
    True
    """

    whitening_: FloatArray

    _rules: ClassVar[Rules] = {**SHARED_RULES, "whiten": allow("unit-variance", "arbitrary-variance", False)}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        whiten: str | bool = "unit-variance",
        p: float = 3,
        solver: str = "auto",
        refine: str | None = "auto",
        normalize: str | None = "auto",
        error_bars: bool | str = "auto",
        standardize: bool = False,
        orthogonal: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.p = p
        self.solver = solver
        self.refine = refine
        self.normalize = normalize
        self.error_bars = error_bars
        self.standardize = standardize
        self.orthogonal = orthogonal
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _choose_n_components(self, shape: tuple[int, int]) -> tuple[int | None, list[Finding]]:
        """Lower the number of components to that of samples or features, as FastICA does."""
        if self.n_components is None:
            return None, []
        if not self.whiten:
            return None, [Finding(UserWarning, "Ignoring n_components with whiten=False.")]
        if self.n_components <= min(shape):
            return self.n_components, []
        return min(shape), [Finding(UserWarning, f"n_components is too large: it will be set to {min(shape)}")]

    def _choose_coordinates(self) -> tuple[bool, bool]:
        return bool(self.whiten), bool(self.whiten)

    def _choose_unit(self) -> float:
        return math.sqrt(self._total_weight) if self.whiten == "arbitrary-variance" else 1.0

    def _keep(self, result: Result, X: Any, samples: Samples | None, n_samples: int) -> None:
        super()._keep(result, X, samples, n_samples)
        self.__dict__.pop("whitening_", None)  # of an earlier fit
        if self.whiten:
            singular_vectors = np.linalg.svd(np.linalg.pinv(result.whitening))[2]  # they lead to principal components
            rows = singular_vectors @ result.whitening / math.sqrt(self._total_weight)
            rows *= np.where(rows[:, :1] < 0, -1, 1)  # FastICA's choice of signs
            self.whitening_ = convert_like(rows, X, find_precision(X))

    def _name_components(self, unmixing: Any, mixing: Any, mean: Any) -> None:
        self.components_ = self.unmixing_ = unmixing
        self.mixing_ = mixing
        if self.whiten:
            self.mean_ = mean
        else:
            self.__dict__.pop("mean_", None)  # of an earlier fit
