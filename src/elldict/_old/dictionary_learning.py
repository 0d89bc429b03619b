"""The estimator of dictionaries: its parameters, their meaning, and how they become those of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from elldict._old import transform as coding
from elldict._old.backend.base import Array
from elldict._old.estimation import Options
from elldict._old.estimator import MIN_TOL, LpEstimator
from elldict._old.validation import check_exponents, check_refinement

__all__ = ["LpDictionaryLearning"]


class LpDictionaryLearning(LpEstimator):
    """Dictionary learning by l_p-norm maximisation.

    Finds the orthonormal atoms A that maximise the sum of ``|A y|**p`` over all samples y, for p > 2, or minimise it,
    for p < 2: the basis in which the samples are sparse. Atoms whose codes are less sparse than Gaussian ones (uniform,
    binary, sine waves) count with a negative sign, and are found too. With ``whiten=True`` the atoms need not be
    orthogonal, only linearly independent.

    Parameters
    ----------
    n_components : int, default=None
        Number of atoms; None learns as many as there are features (with `whiten`: as the rank of X). Fewer are sought
        among all directions in which X varies, or with ``whiten=True`` in the first principal ones.
    p : float or decreasing sequence of float, default=3
        Exponent of the norm, any number above 0 but 2. Above 2 smaller values are more accurate for codes that are zero
        or Gaussian, larger ones converge in fewer iterations; 3 is the best whole number. Below 2 the norm is
        minimised, with ``|code|`` smoothed to ``sqrt(code**2 + 1)``, one being the root mean square of all codes: large
        codes, which decide above 2, count less there, which suits heavy tails and outliers. A sequence such as
        (3, 2.5, 2.2) or (3, 1) is solved in turn, each from where the one before ended: the way to small exponents
        when samples are few.
    solver : {'auto', 'power'}, default='auto'
        'power': the paper's generalized power method, all samples in every iteration; it finds sparse codes only, and
        needs p > 2.
        'auto': the same answers in far fewer passes over the samples, by Newton steps on random minibatches, then on as
        many random samples as the error bar requires, and at last on all of them; a step that lowers the objective is
        replaced by a power step. Unless p > 6, it finds codes that are less sparse than Gaussian ones as well.
    refine : {'auto', 'bernoulli-gaussian', 'mixture', 'sparse-corruption'} or None, default='auto'
        What follows the l_p phases. 'bernoulli-gaussian': maximum likelihood for codes that are zero or Gaussian, with
        Gaussian noise; it reaches the Cramer-Rao bound, and exact recovery without noise. 'mixture': maximum likelihood
        for codes of any law, a mixture of Gaussians that is fitted to those of each atom: Laplace, uniform,
        binary and others. 'sparse-corruption': that of 'bernoulli-gaussian' for samples of which a few entries are
        corrupted by large values; they are cleaned during the fit. Not for whitened samples, whose entries are no
        longer those that were corrupted. 'auto': 'mixture' if an atom has codes that are less sparse than Gaussian
        ones, otherwise one of the other two; or none, if the data do not support it. None: nothing, the l_p answer. All
        need an atom in every direction: with `n_components` below the rank of X, 'bernoulli-gaussian' and 'mixture'
        need ``whiten=True``, and 'auto' goes without.
    normalize : {'auto', 'samples'} or None, default='auto'
        Whether loud samples are scaled down: a whitened sample y is divided by the root of ``|y|**2`` plus its median.
        In recordings, images and word vectors all codes of a sample are large together, and a few loud samples would
        decide what is learned. 'samples': always. 'auto': if codes follow no spike-and-slab law and are large together,
        which drawn samples tell; never with solver 'power', nor with a refinement that was asked for. Atoms, codes,
        `density_`, `noise_std_` and `score` are those of samples as they are.
    halves : {'auto'} or bool, default='auto'
        Whether to fit two halves of the samples as well, from scratch, and include their difference in `atom_error_`.
        The halves are alternate blocks of 40 blocks of consecutive samples, or whole `groups`. True: always. 'auto':
        unless the answer is exact, up to rounding; this about doubles the passes. With solver 'power' only if there are
        `groups`. False: never.
    center : bool, default=False
        Subtract the mean of the samples.
    whiten : bool or 'all', default=False
        Learn in coordinates in which the samples are white. Needed when the dictionary is not orthogonal. True: with
        `n_components` below the rank of X, samples are first reduced to as many principal directions, those of largest
        variance about the mean, as FastICA does; what lies in the others is taken for noise. 'all': `n_components`
        atoms are sought among all directions in which X varies.
    max_iter : int, default=1000
        Most iterations of a start.
    tol : float, default=1e-6
        A start has converged when its atoms move by at most this much, in the root mean square. With solver 'auto', and
        in a refinement, it also ends when they move by much less than their error bar, because further digits would be
        noise; `status_` says which of the two it was. Below 1e-6 the share of the error bar shrinks with the square of
        `tol`, and well below 1e-8 `tol` alone decides. A smaller `tol` never ends a fit earlier.
    n_init : int, default=1
        Number of random starts; the one with the largest objective is kept.
    half_life : float, default=None
        For `partial_fit`: number of samples after which a sample counts half. Samples of a dictionary that drifts are
        best forgotten; None forgets nothing.
    transform_algorithm : {'linear', 'threshold', 'hard_threshold', 'omp', 'posterior'}, default='linear'
        How `transform` makes codes: inner products; shrunk towards zero by `transform_alpha`; kept where they exceed
        `transform_alpha`; at most `transform_n_nonzero_coefs` for each sample, by orthogonal matching pursuit (which
        keeps the largest inner products when atoms are orthonormal); posterior means under the fitted law, without
        noise and corruption, of which `denoise` makes samples.
    transform_alpha : float or 'auto', default=None
        Threshold, in the units of the codes. Required by the two threshold algorithms. 'auto': for each atom the one
        with the smallest expected squared error under the fitted law; 0 if `noise_std_` is.
    transform_n_nonzero_coefs : int, default=None
        Codes that 'omp' keeps for each sample; None means a tenth of the features, at least one and at most all.
    device : str, default=None
        Where `fit` works on arrays of NumPy and on files: 'cuda', or 'cuda:1' for the second graphics card; needs
        torch. Samples are moved there if they fit, otherwise streamed through the card in every pass; fitted arrays
        are NumPy's. None or 'cpu': on the host. Arrays of torch and CuPy are worked on where they are.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random starts.
    verbose : bool, default=False
        Show a progress bar on standard error.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features_in_)
        Atoms, as rows: ``X - mean_`` is about ``codes @ components_``. Orthonormal unless whitened. Strongest first:
        sorted by decreasing share of `objective_`, the largest entry of each positive.
    unmixing_ : array of shape (n_components_, n_features_in_)
        Rows that make codes: ``codes = (X - mean_) @ unmixing_.T``. Not whitened, it is `components_`; whitened, the
        codes have unit variance.
    mixing_ : array of shape (n_features_in_, n_components_)
        ``components_.T``, the name that users of ICA know.
    mean_ : array of shape (n_features_in_,)
        Mean of the samples; zeros if not centred. It is what `transform` subtracts and `inverse_transform` adds, in
        all directions, whatever `n_components`.
    n_components_ : int
        Number of atoms.
    n_features_in_ : int
        Number of features of the samples.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had them.
    objective_ : float
        Mean of ``|code|**p`` over samples and the atoms learned, for samples scaled to unit mean square over the
        directions in which they vary; below 2 that of ``p/2 code**2 + 1 - (code**2 + 1)**(p/2)``, which is larger the
        smaller the norm is. An atom whose codes z are less sparse than Gaussian ones counts with ``2 E F(x) - E F(z)``,
        F that function and x Gaussian of unit variance: the more, the further they are from Gaussian.
    n_iter_ : int
        Iterations of the start that was kept, with those of the refinement.
    n_passes_ : float
        Passes over all samples: the first for their statistics, those of all starts, and the final evaluation.
    density_ : array of shape (n_components_,)
        Share of codes of each atom that are not zero, as fitted to the codes that `transform` makes by default; 1 where
        codes are less sparse than Gaussian ones.
    scale_ : array of shape (n_components_,)
        Standard deviation of the codes of each atom that are not zero, without noise; of all codes where `density_` is
        1.
    noise_std_ : float
        Standard deviation of the noise of a code, shared by all atoms; 0 if it is not above rounding.
    expected_error_ : float
        Error to be expected of `components_`, as :func:`elldict.metrics.recovery_error` would measure it if the true
        atoms were known; from the moments of the fitted codes and from two halves of the samples (`halves`),
        whichever is larger for an atom. With `whiten=True` it is twice the mean squared angle
        between atoms and truth, the error of the whitening included, and that of the principal directions if samples
        are reduced to some of them. Neighbours that are alike and samples that come again count as fewer samples.
    atom_error_ : array of shape (n_components_,)
        The same for each atom; their mean is `expected_error_`. NaN for atoms beyond the rank of the samples.
    corruption_rate_ : float
        Share of the entries of samples that are corrupted; 0 if none were found to be. NaN if samples may be corrupted
        and could not be cleaned, of which a warning tells.
    corruption_scale_ : float
        Root mean square of the corruption of an entry that has some, in the units of X; 0 if there is none, NaN as
        `corruption_rate_`.
    refined_ : str or None
        Name of the refinement that was applied, None if the answer is that of l_p.
    converged_ : bool
        Whether the answer that was kept converged.
    status_ : str
        How it ended, in words.
    history_ : tuple of Iteration
        Every iteration of every start; of a stream, those of the fit to its first samples.
    warnings_ : tuple of (str, str)
        Category and text of every warning of the fit, so that a report of a model from a file can show them.
    n_samples_seen_ : int
        Samples of the fit, or of all batches of a stream; of weighted ones their copies, or their effective number.

    See Also
    --------
    sklearn.decomposition.FastICA : Independent component analysis by fixed-point iteration.
    sklearn.decomposition.DictionaryLearning : Overcomplete dictionaries, by alternating minimisation.

    Notes
    -----
    The method and its theory are those of Shen, Xue, Zhang, Letaief and Lau, "Complete Dictionary Learning via
    l_p-norm Maximization", UAI 2020. Arrays of NumPy, torch and CuPy are multiplied where they are, and fitted arrays
    are of the same kind.

    Examples
    --------
    >>> from elldict import LpDictionaryLearning
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> from elldict.metrics import recovery_error
    >>> X, dictionary, _ = make_bernoulli_gaussian(10_000, 32, density=0.3, random_state=0)
    >>> model = LpDictionaryLearning(random_state=0).fit(X)
    >>> bool(recovery_error(model.components_, dictionary) < 0.002)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "p": [Interval(Real, 0, np.inf, closed="neither"), tuple, list],  # `check_exponents` looks closer
        "solver": [StrOptions({"auto", "power"})],
        "refine": [StrOptions({"auto", "bernoulli-gaussian", "mixture", "sparse-corruption"}), None],
        "normalize": [StrOptions({"auto", "samples"}), None],
        "halves": [StrOptions({"auto"}), "boolean"],
        "center": ["boolean"],
        "whiten": ["boolean", StrOptions({"all"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, np.inf, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "half_life": [Interval(Real, 0, np.inf, closed="neither"), None],
        "transform_algorithm": [StrOptions({"linear", "threshold", "hard_threshold", "omp", "posterior"})],
        "transform_alpha": [Interval(Real, 0, np.inf, closed="left"), StrOptions({"auto"}), None],
        "transform_n_nonzero_coefs": [Interval(Integral, 1, None, closed="left"), None],
        "device": [str, None],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        p: float | Sequence[float] = 3,
        solver: str = "auto",
        refine: str | None = "auto",
        normalize: str | None = "auto",
        halves: bool | str = "auto",
        center: bool = False,
        whiten: bool | str = False,
        max_iter: int = 1000,
        tol: float = 1e-6,
        n_init: int = 1,
        half_life: float | None = None,
        transform_algorithm: str = "linear",
        transform_alpha: float | str | None = None,
        transform_n_nonzero_coefs: int | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.p = p
        self.solver = solver
        self.refine = refine
        self.normalize = normalize
        self.halves = halves
        self.center = center
        self.whiten = whiten
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.half_life = half_life
        self.transform_algorithm = transform_algorithm
        self.transform_alpha = transform_alpha
        self.transform_n_nonzero_coefs = transform_n_nonzero_coefs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _options(self) -> Options:
        """Parameters of a fit, checked."""
        if self.whiten:
            check_refinement(self.refine, whiten=self.whiten)
        return Options(
            n_components=self.n_components,
            exponents=check_exponents(self.p, self.solver),
            solver=self.solver,
            refine=self.refine,
            center=self.center,
            whiten=self.whiten if isinstance(self.whiten, str) else bool(self.whiten),
            max_iter=self.max_iter,
            tol=max(self.tol, MIN_TOL),
            n_init=self.n_init,
            normalize=self.normalize,
            halves=self.halves if isinstance(self.halves, str) else bool(self.halves),
        )

    def _coder(self) -> tuple[Array, coding.Rule]:
        """Rows for the linear codes, and what is done with them."""
        default = min(self.n_components_, max(1, self.n_features_in_ // 10))
        n_nonzero = int(self.transform_n_nonzero_coefs or default)  # True passes for one
        return coding.coder(
            self.transform_algorithm,
            self.components_,
            self.unmixing_,
            law=self._code_law,
            alpha=self.transform_alpha,
            n_nonzero=n_nonzero,
        )

    def _name_rows(self, atoms: Array, unmixing: Array, mean: Array) -> None:
        self.components_, self.unmixing_, self.mean_ = atoms, unmixing, mean

    @property
    def mixing_(self) -> Array:
        """Transposed atoms."""
        return self.components_.T
