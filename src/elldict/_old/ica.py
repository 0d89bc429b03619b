"""The estimator for users of ICA: centred, whitened, reduced, and with the names and conventions of FastICA."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Options as OneOf
from sklearn.utils._param_validation import StrOptions

from elldict._old.backend.base import Array, Backend, real_dtype, to_numpy
from elldict._old.dictionary_learning import LpDictionaryLearning
from elldict._old.estimation import Options
from elldict._old.estimator import MIN_TOL, LpEstimator
from elldict._old.result import FitResult
from elldict._old.transform import Rule, keep
from elldict._old.validation import check_exponents

__all__ = ["LpICA"]


class LpICA(LpEstimator):
    """Independent component analysis by l_p-norm maximisation, with the conventions of scikit-learn's FastICA.

    Samples are centred, reduced to their first `n_components` principal directions, and whitened; the sources are the
    directions there that are furthest from Gaussian by their l_p norm, sparser or less sparse. Any source is found that
    is not Gaussian, and one that is. The fit is that of :class:`LpDictionaryLearning` with ``center=True,
    whiten=True``. Parameters, attributes, units and warnings are those of FastICA where they mean the same.

    Parameters
    ----------
    n_components : int, default=None
        Number of sources; None is as many as there are directions in which X varies, and a larger number is lowered to
        that, with a warning. Samples are reduced to as many principal directions.
    whiten : {'unit-variance', 'arbitrary-variance'} or False, default='unit-variance'
        'unit-variance': sources have variance one. 'arbitrary-variance': the sum of their squares over the samples of
        the fit is one, as FastICA has it. False: samples are taken for centred and white already, and `n_components` is
        ignored, with a warning.
    p : float or decreasing sequence of float, default=3
        Exponent of the norm, any number above 0 but 2, where below 2 it is minimised; see
        :class:`LpDictionaryLearning`. It takes the place of FastICA's `fun`: 4 is close to 'cube', 1 to 'logcosh'.
    solver : {'auto', 'power'}, default='auto'
        'power': the generalized power method, all samples in every iteration; it finds sparse sources only, and needs
        p > 2. 'auto': the same answers in far fewer passes over the samples, and, unless p > 6, less sparse sources as
        well.
    refine : {'auto', 'bernoulli-gaussian', 'mixture'} or None, default='auto'
        What follows the l_p phases. 'bernoulli-gaussian': maximum likelihood for sources that are zero or Gaussian,
        with Gaussian noise. 'mixture': for sources of any law, a mixture of Gaussians that is fitted to each.
        'auto': 'mixture' if a source is less sparse than a Gaussian one, otherwise 'bernoulli-gaussian'; or none, if
        the data do not support it. None: nothing.
    normalize : {'auto', 'samples'} or None, default='auto'
        Whether loud samples are scaled down: a whitened sample y is divided by the root of ``|y|**2`` plus its median.
        In recordings, images and word vectors all codes of a sample are large together, and a few loud samples would
        decide what is learned. 'samples': always. 'auto': if codes follow no spike-and-slab law and are large together,
        which drawn samples tell; never with solver 'power', nor with a refinement that was asked for. Atoms, codes,
        `density_`, `noise_std_` and `score` are those of samples as they are.
    halves : {'auto'} or bool, default='auto'
        Whether to fit two halves of the samples as well, from scratch, and include their difference in `atom_error_`.
        The halves are alternate blocks of 40 blocks of consecutive samples, or whole `groups`. True: always. 'auto':
        unless the answer is exact, up to rounding; this about doubles the passes. False: never.
    max_iter : int, default=1000
        Most iterations of a start.
    tol : float, default=1e-6
        A start has converged when the rows of its rotation move by at most this much, in the root mean square, or by
        much less than their error bar.
    n_init : int, default=1
        Number of random starts; the one with the largest objective is kept.
    half_life : float, default=None
        For `partial_fit`: number of samples after which a sample counts half; None forgets nothing.
    device : str, default=None
        Where `fit` works on arrays of NumPy and on files: 'cuda', or 'cuda:1' for the second graphics card. None or
        'cpu': on the host.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random starts.
    verbose : bool, default=False
        Show a progress bar on standard error.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features_in_)
        Rows that make sources of samples: ``sources = (X - mean_) @ components_.T``.
    mixing_ : array of shape (n_features_in_, n_components_)
        Pseudo-inverse of `components_`; its columns are the atoms: ``X - mean_`` is about ``sources @ mixing_.T``.
        Strongest first: sorted by decreasing share of `objective_`, the largest entry of each positive.
    mean_ : array of shape (n_features_in_,)
        Mean of the samples. Not there with ``whiten=False``.
    whitening_ : array of shape (n_components_, n_features_in_)
        Rows that project samples onto their principal directions, in units in which the sum of squares over the samples
        is one, as FastICA has it; computed when asked for. Not there with ``whiten=False``.
    n_iter_ : int
        Iterations of the start that was kept, with those of the refinement.
    n_features_in_ : int
        Number of features of the samples.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had them.
    unmixing_ : array of shape (n_components_, n_features_in_)
        `components_`, by the name that all estimators here share.
    n_components_ : int
        Number of sources.
    expected_error_ : float
        Error to be expected of the columns of `mixing_`: twice the mean squared angle between them and the truth.
    atom_error_ : array of shape (n_components_,)
        The same for each column; their mean is `expected_error_`.
    density_ : array of shape (n_components_,)
        Share of the values of each source that are not zero, by a law of zeros, Gaussian values and Gaussian noise; 1
        for sources that are less sparse than a Gaussian one.
    scale_ : array of shape (n_components_,)
        Standard deviation of those that are not zero, without noise, in the units of the sources; of all values where
        `density_` is 1.
    noise_std_ : float
        Standard deviation of the noise of a source, shared by all; 0 if it is not above rounding.
    corruption_rate_ : float
        Always 0: whitening spreads the corruption of an entry over all sources.
    corruption_scale_ : float
        Always 0, as `corruption_rate_`.
    refined_ : str or None
        Name of the refinement that was applied, None if the answer is that of l_p.
    objective_ : float
        Mean of ``|source|**p`` over samples and sources, of unit variance. A source z that is less sparse than a
        Gaussian one counts with ``2 E|x|**p - E|z|**p``, x Gaussian of unit variance.
    n_passes_ : float
        Passes over all samples.
    converged_ : bool
        Whether the answer that was kept converged.
    status_ : str
        How it ended, in words.
    history_ : tuple of Iteration
        Every iteration of every start.
    warnings_ : tuple of (str, str)
        Category and text of every warning of the fit, so that a report of a model from a file can show them.
    n_samples_seen_ : int
        Samples of the fit, or of all batches of a stream; of weighted ones their copies, or their effective number.

    See Also
    --------
    LpDictionaryLearning : The same fit for dictionaries: `components_` are atoms, whitening is a choice.
    sklearn.decomposition.FastICA : Independent component analysis by fixed-point iteration.

    Notes
    -----
    `algorithm`, `fun`, `fun_args`, `w_init` and `whiten_solver` of FastICA have no counterpart. Neither has `copy` of
    its methods: X is never changed.

    Examples
    --------
    >>> import numpy as np
    >>> from elldict import LpICA
    >>> rng = np.random.default_rng(0)
    >>> sources = rng.laplace(size=(5000, 3))
    >>> X = sources @ np.array([[1, 1, 1], [0.5, 2, 1], [1.5, 1, 2]]).T + 7
    >>> ica = LpICA(n_components=3, random_state=0)
    >>> found = ica.fit_transform(X)
    >>> correlations = np.abs(np.corrcoef(found.T, sources.T)[:3, 3:])
    >>> bool(np.all(correlations.max(axis=0) > 0.99))
    True
    >>> np.allclose(ica.inverse_transform(found), X)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: LpDictionaryLearning._parameter_constraints[name]
            for name in (
                "n_components",
                "p",
                "solver",
                "max_iter",
                "tol",
                "n_init",
                "half_life",
                "device",
                "normalize",
                "halves",
            )
        },
        "whiten": [StrOptions({"unit-variance", "arbitrary-variance"}), OneOf(bool, {False})],
        "refine": [StrOptions({"auto", "bernoulli-gaussian", "mixture"}), None],
        "random_state": LpDictionaryLearning._parameter_constraints["random_state"],
        "verbose": LpDictionaryLearning._parameter_constraints["verbose"],
    }

    _order = "objective"  # of the sources; "variance" for `elldict.mne`, whose users expect that of MNE

    def __init__(
        self,
        n_components: int | None = None,
        *,
        whiten: str | bool = "unit-variance",
        p: float | Sequence[float] = 3,
        solver: str = "auto",
        refine: str | None = "auto",
        normalize: str | None = "auto",
        halves: bool | str = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        n_init: int = 1,
        half_life: float | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.p = p
        self.solver = solver
        self.refine = refine
        self.normalize = normalize
        self.halves = halves
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.half_life = half_life
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _options(self) -> Options:
        n_components = self.n_components
        if not self.whiten and n_components is not None:
            warnings.warn("Ignoring n_components with whiten=False.", UserWarning, stacklevel=5)
            n_components = None
        return Options(
            n_components=n_components,
            exponents=check_exponents(self.p, self.solver),
            solver=self.solver,
            refine=self.refine,
            center=bool(self.whiten),
            whiten=bool(self.whiten),
            max_iter=self.max_iter,
            tol=max(self.tol, MIN_TOL),
            n_init=self.n_init,
            normalize=self.normalize,
            halves=self.halves if isinstance(self.halves, str) else bool(self.halves),
            clip=True,
            order=self._order,
        )

    def __sklearn_clone__(self) -> LpICA:
        """Return the same, not fitted; it keeps the order of its sources."""
        copy: LpICA = super().__sklearn_clone__()
        copy._order = self._order
        return copy

    def _keep(self, result: FitResult, backend: Backend, dtype: str) -> None:
        if self.whiten == "arbitrary-variance":
            unit = math.sqrt(self.n_samples_seen_)
            mixture = result.mixture
            result = replace(
                result,
                components=result.components * unit,
                unmixing=result.unmixing / unit,
                scale=result.scale / unit,
                noise_std=result.noise_std / unit,
                code_std=result.code_std / unit,
                mixture=None if mixture is None else replace(mixture, std=mixture.std / unit),
            )
        super()._keep(result, backend, dtype)

    def _name_rows(self, atoms: Array, unmixing: Array, mean: Array) -> None:
        self.components_ = self.unmixing_ = unmixing
        self.mixing_ = atoms.T
        if self.whiten:
            self.mean_ = mean
        else:
            self.__dict__.pop("mean_", None)  # of an earlier fit

    @property
    def _mean(self) -> Array:
        return self.mean_ if "mean_" in vars(self) else 0 * self.unmixing_[0, :]

    @property
    def whitening_(self) -> Array:
        """Rows that project samples onto their principal directions."""
        if "mean_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has whitening_ after a fit that whitens, and not before.")
        unmixing, mixing = (np.asarray(to_numpy(array), dtype=np.float64) for array in (self.unmixing_, self.mixing_))
        # sources are whitened samples in other axes: mixing = U S V^T, U the directions, S the standard deviations
        axes = np.linalg.eigh(mixing.T @ mixing)[1][:, ::-1]
        rows = axes.T @ unmixing
        rows *= np.where(rows[:, :1] < 0, -1, 1)  # FastICA's choice of signs
        if self.whiten == "unit-variance":
            rows /= math.sqrt(self.n_samples_seen_)
        return Backend.of(self.unmixing_).asarray(rows, real_dtype(self.unmixing_))

    def _coder(self) -> tuple[Array, Rule]:
        return self.unmixing_, keep
