"""Dictionary learning: the orthonormal or linearly independent atoms in which samples are sparse."""

from __future__ import annotations

import warnings
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from elldict.denoising import Rule, SpikeSlab, find_thresholds
from elldict.estimator import LpEstimator
from elldict.exceptions import find_stack_level
from elldict.samples.arrays import to_numpy
from elldict.transform import are_zero, keep_above, keep_largest, keep_linear, shrink
from elldict.validation import BOOLEAN, SHARED_RULES, InvalidParameterError, Rules, allow, allow_number
from elldict.warnings import Finding

__all__ = ["LpDictionaryLearning"]


class LpDictionaryLearning(LpEstimator):
    """Dictionary learning by l_p-norm maximisation and maximum likelihood.

    Finds orthonormal atoms in which the samples are sparse: the maximum of the l_p norm of the codes, and then of the
    likelihood of a density that is fitted to the codes of each atom. Codes may also be sub-Gaussian (uniform, binary,
    sinusoidal). With ``whiten=True``, atoms are linearly independent but need not be orthogonal.

    Parameters
    ----------
    n_components : int, default=None
        Number of atoms. None: the number of directions in which X varies. Fewer are sought in all directions of X by
        the l_p norm alone, or with ``whiten=True`` in its first principal directions.
    p : float, default=3
        Exponent of the l_p norm, in the range (0, 60] except 2. Below 2 the norm is minimised, which needs
        ``solver='auto'``, and ``whiten=True`` for fewer atoms than features.
    solver : {'auto', 'power'}, default='auto'
        'auto': Newton steps for pairs of atoms, first on subsamples, from starts that do not depend on a seed. 'power':
        the generalized power method of the paper for the l_p norm alone, from a random start, for sparse codes only.
    refine : {'auto', 'sparse-corruption'} or None, default='auto'
        Stage after the l_p norm. 'auto': maximum likelihood, unless it does not improve on the l_p norm for held-out
        samples. With ``solver='power'``, or fewer atoms than directions, there is none. 'sparse-corruption': the
        likelihood of samples some of whose entries are corrupted by large errors, unless it does not explain the
        samples better. Needs all atoms, ``whiten=False``, and codes that are mostly zero. None: none.
    normalize : {'auto', 'samples'} or None, default='auto'
        Whether samples of large norm are scaled down: a sample y is divided by the root of ``|y|**2`` plus its median.
        In images, recordings and word vectors, the codes of a sample are often large together. 'samples': always.
        'auto': if this increases the likelihood of held-out samples. None: never.
    error_bars : {'auto'} or bool, default='auto'
        Whether `atom_error_` is estimated, by fits to parts of the samples, which take about as long as the fit.
        'auto': True, except for ``solver='power'`` without `groups`. Fewer atoms than features without whitening
        have none: parts of the samples may contain other atoms of the same dictionary.
    center : bool, default=False
        Whether to subtract the mean of the samples.
    whiten : bool, default=False
        Whether to whiten the samples. Needed if the atoms are not orthogonal.
    standardize : bool, default=False
        Whether to divide features by their standard deviation. Useful if features have different units; `components_`
        and codes are those of samples in the units of X.
    orthogonal : bool, default=False
        With ``whiten=True``: whether codes have to be uncorrelated, so that atoms are orthogonal in whitened
        coordinates. False: atoms are any invertible matrix, unless orthogonal ones are more likely. Errors of the
        covariance then do not limit the accuracy, and codes with zeros are recovered exactly if there is no noise.
    max_iter : int, default=1000
        Maximum number of iterations of a climb.
    tol : float, default=1e-6
        With ``solver='power'``: root mean square, over atoms, of the step below which the fit ends. With 'auto', the
        fit ends when the expected increase is small compared with sampling errors.
    transform_algorithm : {'linear', 'threshold', 'hard_threshold', 'top_k', 'posterior'}, default='linear'
        Codes that `transform` makes. 'linear': inner products. 'threshold': inner products moved towards zero by
        `transform_alpha`. 'hard_threshold': those above `transform_alpha`, others are zero. 'top_k': the
        `transform_alpha` largest of each sample. 'posterior': posterior means for the fitted density and noise.
    transform_alpha : float, int or 'auto', default=None
        Threshold in the units of the codes; 'auto' is the one with the smallest expected squared error for each atom.
        For 'top_k' the number of codes to keep; None is a tenth of the features, at least one.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random start with ``solver='power'``.
    verbose : bool, default=False
        Whether to show progress on standard error.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Atoms as rows: ``X - mean_`` is about ``codes @ components_``. They are orthonormal unless whitened, sorted by
        decreasing mean ``|code|**p``, and the largest entry of each is positive.
    unmixing_ : ndarray of shape (n_components_, n_features_in_)
        Rows that map samples to codes: ``codes = (X - mean_) @ unmixing_.T``. Equal to `components_` unless whitened;
        with whitening, codes have unit variance.
    mixing_ : ndarray of shape (n_features_in_, n_components_)
        ``components_.T``, as in :class:`~elldict.LpICA`.
    mean_ : ndarray of shape (n_features_in_,)
        Mean of the samples; zeros if not centred.
    n_components_ : int
        Number of atoms.
    n_features_in_ : int
        Number of features of the samples.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X is a data frame with string names.
    objective_ : float
        Mean of ``|code|**p`` over samples and atoms, for samples whitened or scaled to unit mean square.
    n_iter_ : int
        Number of iterations, summed over all climbs.
    n_passes_ : float
        Number of passes over all samples.
    density_ : ndarray of shape (n_components_,)
        Fraction of codes of each atom that are not zero, for codes that are zero or Gaussian, plus Gaussian noise; 1
        for sub-Gaussian codes.
    scale_ : ndarray of shape (n_components_,)
        Standard deviation of the codes that are not zero, without noise.
    noise_std_ : float
        Standard deviation of the noise of a code, common to all atoms; 0 if it is within rounding errors.
    expected_error_ : float
        Mean of `atom_error_`: estimate of :func:`elldict.metrics.recovery_error`.
    atom_error_ : ndarray of shape (n_components_,)
        Estimated error ``1 - cos(angle)**4`` of each atom, in the coordinates of standardised features if there are
        such; NaN if not estimated.
    converged_ : bool
        Whether the fit converged.
    status_ : str
        Why the fit ended, and what it maximised.
    refined_ : str or None
        'likelihood' or 'sparse-corruption' if atoms maximise such a likelihood, None if they are those of the l_p norm
        or another pilot.
    corruption_rate_ : float
        With ``refine='sparse-corruption'``: fraction of the entries that are corrupted, 0 if there seem to be none.
    corruption_scale_ : float
        With ``refine='sparse-corruption'``: root mean square of the corruption of such an entry, in the units of X, or
        in standard deviations of a feature if these are standardised. 0 if there seems to be none.
    history_ : tuple of Iteration
        All iterations.
    warnings_ : tuple of (str, str)
        Category and message of each warning of the fit.
    n_samples_seen_ : int
        Number of samples of the fit.

    See Also
    --------
    LpICA : The same fit with the conventions of independent component analysis.
    sklearn.decomposition.DictionaryLearning : Overcomplete dictionaries, by alternating minimisation.

    References
    ----------
    Shen, Xue, Zhang, Letaief and Lau, "Complete Dictionary Learning via l_p-norm Maximization", UAI 2020.

    Examples
    --------
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> from elldict import LpDictionaryLearning
    >>> from elldict.metrics import recovery_error
    >>> X, dictionary, _ = make_bernoulli_gaussian(5000, 16, density=0.3, random_state=0)
    >>> model = LpDictionaryLearning().fit(X)
    >>> bool(recovery_error(model.components_, dictionary) < 0.001)
    True
    """

    _rules: ClassVar[Rules] = {
        **SHARED_RULES,
        "refine": allow("auto", "sparse-corruption", None),
        "center": BOOLEAN,
        "whiten": BOOLEAN,
        "transform_algorithm": allow("linear", "threshold", "hard_threshold", "top_k", "posterior"),
        "transform_alpha": allow_number(lambda alpha: alpha >= 0, "[0, inf)") | allow("auto", None),
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        p: float = 3,
        solver: str = "auto",
        refine: str | None = "auto",
        normalize: str | None = "auto",
        error_bars: bool | str = "auto",
        center: bool = False,
        whiten: bool = False,
        standardize: bool = False,
        orthogonal: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-6,
        transform_algorithm: str = "linear",
        transform_alpha: float | str | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.p = p
        self.solver = solver
        self.refine = refine
        self.normalize = normalize
        self.error_bars = error_bars
        self.center = center
        self.whiten = whiten
        self.standardize = standardize
        self.orthogonal = orthogonal
        self.max_iter = max_iter
        self.tol = tol
        self.transform_algorithm = transform_algorithm
        self.transform_alpha = transform_alpha
        self.random_state = random_state
        self.verbose = verbose

    def _choose_n_components(self, shape: tuple[int, int]) -> tuple[int | None, list[Finding]]:
        if self.n_components is not None and self.n_components > shape[1]:
            raise ValueError(
                f"n_components={self.n_components} is larger than the number of features, {shape[1]}: atoms are "
                "linearly independent."
            )
        has_fewer = self.n_components is not None and self.n_components < shape[1]
        if has_fewer and self.p < 2 and not self.whiten:
            raise InvalidParameterError(
                f"The 'p' parameter of {type(self).__name__} must be above 2 for fewer components than features "
                "without whitening: directions of small variance have the smallest norm. Got "
                f"{self.p!r} instead. Use whiten=True, or n_components=None."
            )
        if has_fewer and self.refine == "sparse-corruption":
            raise InvalidParameterError(
                f"The 'n_components' parameter of {type(self).__name__} must be None with refine='sparse-corruption': "
                f"errors of entries are recognised by what no atom explains. Got {self.n_components} instead."
            )
        return self.n_components, []

    def _choose_coordinates(self) -> tuple[bool, bool]:
        return bool(self.center), bool(self.whiten)

    def _name_components(self, unmixing: Any, mixing: Any, mean: Any) -> None:
        self.components_ = mixing.T
        self.unmixing_ = unmixing if self.whiten or self.standardize else self.components_
        self.mixing_, self.mean_ = mixing, mean

    def _make_rule(self) -> Rule:
        algorithm, alpha = self.transform_algorithm, self.transform_alpha
        if algorithm == "linear":
            return keep_linear
        if algorithm == "posterior":
            return self._make_posterior_mean()
        if algorithm == "top_k":
            return partial(keep_largest, k=self._count_kept())
        if alpha is None:
            raise InvalidParameterError(
                f"The 'transform_alpha' parameter of {type(self).__name__} must be a threshold >= 0 or 'auto' with "
                f"transform_algorithm={algorithm!r}. Got None instead."
            )
        soft = algorithm == "threshold"
        threshold = self._find_thresholds(soft=soft) if isinstance(alpha, str) else float(alpha)
        return partial(shrink if soft else keep_above, threshold=threshold)

    def _count_kept(self) -> int:
        """Return the number of codes that 'top_k' keeps."""
        alpha = self.transform_alpha
        if alpha is None:
            return min(self.n_components_, max(1, self.n_features_in_ // 10))
        if not isinstance(alpha, Integral) or not 1 <= alpha <= self.n_components_:
            raise InvalidParameterError(
                f"The 'transform_alpha' parameter of {type(self).__name__} must be an int in the range [1, "
                f"{self.n_components_}] or None with transform_algorithm='top_k'. Got {alpha!r} instead."
            )
        return int(alpha)

    def _find_thresholds(self, *, soft: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Find the best threshold of each code; for normalised samples, under its density and scale alone."""
        noise, law = np.full(self.n_components_, self.noise_std_), self._distribution
        if law.normalization is None:
            return find_thresholds(law.density, noise, soft=soft)
        spike_slab = SpikeSlab(to_numpy(self.density_), to_numpy(self.scale_), self.noise_std_)
        return find_thresholds(spike_slab, noise, soft=soft)

    def _check_transformed(self, codes: Any) -> None:
        if self.transform_algorithm in ("linear", "top_k") or not are_zero(codes):
            return
        warnings.warn(
            f"All {codes.shape[0]} x {codes.shape[1]} codes of transform_algorithm={self.transform_algorithm!r} are "
            "zero. Lower transform_alpha or set it to 'auto', unless X is only noise.",
            UserWarning,
            stacklevel=find_stack_level(),
        )
