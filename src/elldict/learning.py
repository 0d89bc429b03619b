"""The estimator: the road from samples to atoms, and what is kept of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from elldict import coding, judging, model_file
from elldict.dictionary import Dictionary, canonical_dictionary
from elldict.kernels.threads import one_blas_thread
from elldict.packing import packed, unpacked
from elldict.progress import progress_bar
from elldict.samples.frame import Frame, code_bound
from elldict.samples.survey import Survey, survey
from elldict.solver.contrasts import Lp
from elldict.solver.loop import Journal, solve
from elldict.solver.polar import random_orthonormal
from elldict.solver.result import Callback
from elldict.solver.stage import Stage, precision_for
from elldict.solver.steps import power_step
from elldict.space import Array, Space, to_numpy
from elldict.validation import (
    check_callback,
    check_codes,
    check_n_components,
    check_rng,
    check_same_space,
    check_samples,
)

__all__ = ["LpDictionaryLearning", "load"]


class LpDictionaryLearning(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Dictionary learning by l_p-norm maximisation.

    Finds the orthonormal atoms A that maximise the sum of ``|A y|**p`` over all samples y, for p > 2: the basis in
    which the samples are sparse. With ``whiten=True`` the atoms need not be orthogonal, only linearly independent.

    Parameters
    ----------
    n_components : int, default=None
        Number of atoms; None learns as many as there are features (with ``whiten=True``: as the rank of X).
    p : float, default=3
        Exponent of the norm, any number above 2. Smaller values are more accurate, larger ones converge in fewer
        iterations; 3 is the best whole number.
    solver : {'power'}, default='power'
        The generalized power method, on all samples.
    refine : None, default=None
        What follows the l_p stage: nothing.
    center : bool, default=False
        Subtract the mean of the samples.
    whiten : bool, default=False
        Learn in coordinates in which the samples are white. Needed when the dictionary is not orthogonal.
    max_iter : int, default=1000
        Most iterations of a start.
    tol : float, default=1e-6
        A start has converged when its atoms move by at most this much, in the root mean square.
    n_init : int, default=1
        Number of random starts; the one with the largest objective is kept.
    transform_algorithm : {'linear', 'threshold', 'hard_threshold', 'omp'}, default='linear'
        How `transform` makes codes: inner products; shrunk towards zero by `transform_alpha`; kept where they exceed
        `transform_alpha`; at most `transform_n_nonzero_coefs` for each sample, by orthogonal matching pursuit (which
        keeps the largest inner products when atoms are orthonormal).
    transform_alpha : float, default=None
        Threshold, in the units of the codes. Required by the two threshold algorithms.
    transform_n_nonzero_coefs : int, default=None
        Codes that 'omp' keeps for each sample; None means a tenth of the features, at least one and at most all.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the random starts.
    verbose : bool, default=False
        Show a progress bar on standard error.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features_in_)
        Atoms, as rows: ``X - mean_`` is about ``codes @ components_``. Orthonormal unless whitened. Sorted by
        decreasing share of the objective, the largest entry of each positive.
    unmixing_ : array of shape (n_components_, n_features_in_)
        Rows that make codes: ``codes = (X - mean_) @ unmixing_.T``. Not whitened, it is `components_`; whitened, the
        codes have unit variance.
    mixing_ : array of shape (n_features_in_, n_components_)
        ``components_.T``, the name that users of ICA know.
    mean_ : array of shape (n_features_in_,)
        Mean of the samples; zeros if not centred.
    n_components_ : int
        Number of atoms.
    n_features_in_ : int
        Number of features of the samples.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had them.
    objective_ : float
        Mean of ``|code|**p`` over samples and the atoms learned, for samples scaled to unit mean square over the
        directions in which they vary.
    n_iter_ : int
        Iterations of the start that was kept.
    n_passes_ : float
        Looks at the whole data, with the survey, all starts and the final judgement.
    converged_ : bool
        Whether the start that was kept converged.
    status_ : str
        How it ended, in words.
    history_ : tuple of Iteration
        Every iteration of every start.

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
        "p": [Interval(Real, 2, np.inf, closed="neither")],
        "solver": [StrOptions({"power"})],
        "refine": [None],
        "center": ["boolean"],
        "whiten": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, np.inf, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "transform_algorithm": [StrOptions({"linear", "threshold", "hard_threshold", "omp"})],
        "transform_alpha": [Interval(Real, 0, np.inf, closed="left"), None],
        "transform_n_nonzero_coefs": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        p: float = 3,
        solver: str = "power",
        refine: None = None,
        center: bool = False,
        whiten: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-6,
        n_init: int = 1,
        transform_algorithm: str = "linear",
        transform_alpha: float | None = None,
        transform_n_nonzero_coefs: int | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.p = p
        self.solver = solver
        self.refine = refine
        self.center = center
        self.whiten = whiten
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.transform_algorithm = transform_algorithm
        self.transform_alpha = transform_alpha
        self.transform_n_nonzero_coefs = transform_n_nonzero_coefs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, *, callback: Callback | None = None) -> LpDictionaryLearning:  # noqa: ARG002
        """Learn the dictionary of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, as rows. Any array that follows the array API standard; integers are converted tile by tile.
        y : None
            Ignored.
        callback : callable, optional
            Called with an :class:`~elldict.Iteration` after each iteration; the fit stops when it returns True.

        Returns
        -------
        LpDictionaryLearning
            The estimator itself.
        """
        check_callback(callback)
        before = dict(vars(self))
        try:
            with one_blas_thread():
                self._fit(X, callback)
        except BaseException:  # an interrupted or failed fit leaves the estimator as it was
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, callback: Callback | None) -> None:
        """The road from samples to atoms."""
        samples = check_samples(self, X, fitting=True)
        with self._shown(callback) as shown:
            journal = Journal(shown)
            found = survey(samples, center=self.center, precise=self.whiten)
            journal.passes += 1
            m = check_n_components(self.n_components, found, whiten=self.whiten)
            judging.warn_of_samples(found, whiten=self.whiten, stacklevel=5)
            frame = Frame.of(found, center=self.center, whiten=self.whiten)
            stages = [self._stage(found, frame, samples.dtype)]
            solution, history = solve(samples, frame, stages, self._starts(found, frame, m), journal)
        dictionary = canonical_dictionary(solution, frame, found, m)
        judging.warn_of_solution(solution, dictionary.order, found, stacklevel=5)
        self._keep(dictionary, frame, samples.space, samples.dtype)
        self.objective_ = solution.objective
        self.n_iter_ = len(solution.iterations)
        self.n_passes_ = journal.passes
        self.converged_ = solution.converged
        self.status_ = solution.status
        self.history_ = history

    def transform(self, X: Any) -> Array:
        """Codes of samples, by `transform_algorithm`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, as rows.

        Returns
        -------
        array of shape (n_samples, n_components_)
            Codes.
        """
        check_is_fitted(self)
        self._validate_params()  # those of transform may have been set after the fit
        check_same_space(self, X, self.components_, "transform")
        rows, rule = self._coder()
        samples = check_samples(self, X, fitting=False)
        return coding.encode(samples, rows, self.mean_, rule)

    def inverse_transform(self, X: Any) -> Array:
        """Rebuild samples from codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Codes.

        Returns
        -------
        array of shape (n_samples, n_features_in_)
            ``X @ components_ + mean_``.
        """
        check_is_fitted(self)
        return coding.decode(check_codes(self, X, self.components_), self.components_, self.mean_)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that :func:`elldict.load` reads.

        The file is complete or it is not there: an older one is replaced in the last moment. A `random_state` that is
        an object rather than a number is not kept.

        Parameters
        ----------
        path : str or path-like
            Where to write; by custom it ends in ``.npz``.
        """
        check_is_fitted(self)
        model_file.write(path, *packed(self))

    def _shown(self, callback: Callback | None) -> AbstractContextManager[Callback | None]:
        if not self.verbose:
            return nullcontext(callback)
        return progress_bar(f"l_{self.p:g}", self.tol, callback)

    def _stage(self, found: Survey, frame: Frame, dtype: str) -> Stage:
        precision = precision_for(self.p, dtype=dtype, code_bound=code_bound(found, frame))
        return Stage(Lp(float(self.p)), power_step, precision, self.tol, self.max_iter)

    def _starts(self, found: Survey, frame: Frame, m: int) -> Iterator[NDArray[np.float64]]:
        rng = check_rng(self.random_state, stream=1)
        for _ in range(self.n_init):
            yield frame.start(random_orthonormal(min(m, found.rank), found.n_features, rng))

    def _keep(self, dictionary: Dictionary, frame: Frame, space: Space, dtype: str) -> None:
        """Fitted arrays, of the kind and precision of the samples."""
        self.components_ = space.asarray(dictionary.components, dtype)
        self.unmixing_ = space.asarray(dictionary.unmixing, dtype) if frame.whitened else self.components_
        mean = np.zeros(self.n_features_in_) if frame.mean is None else frame.mean
        self.mean_ = space.asarray(mean, dtype)
        self.n_components_ = len(dictionary.components)

    def _coder(self) -> tuple[Array, coding.Rule]:
        """Rows for the linear codes, and what is done with them."""
        algorithm, alpha = self.transform_algorithm, self.transform_alpha
        if algorithm == "linear":
            return self.unmixing_, coding.keep
        if algorithm == "omp":
            default = min(self.n_components_, max(1, self.n_features_in_ // 10))
            k = self.transform_n_nonzero_coefs or default
            if k > self.n_components_:
                raise ValueError(f"transform_n_nonzero_coefs={k} exceeds the {self.n_components_} atoms learned.")
            if np.array_equal(to_numpy(self.components_), to_numpy(self.unmixing_)):
                return self.unmixing_, coding.Largest(k)
            return coding.matching_pursuit(self.components_, k)
        if alpha is None:
            raise ValueError(
                f"transform_algorithm={algorithm!r} needs transform_alpha: a threshold >= 0 in the units of the codes."
            )
        return self.unmixing_, coding.SoftThreshold(alpha) if algorithm == "threshold" else coding.HardThreshold(alpha)

    @property
    def mixing_(self) -> Array:
        """Transposed atoms."""
        return self.components_.T

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def load(path: str | os.PathLike[str]) -> LpDictionaryLearning:
    """Read a model written by :meth:`LpDictionaryLearning.save`.

    Nothing in the file is executed, and nothing in it is believed before it is checked.

    Parameters
    ----------
    path : str or path-like
        File to read.

    Returns
    -------
    LpDictionaryLearning
        The fitted estimator, with NumPy arrays.

    Raises
    ------
    ModelFileError
        If the file is not a model file, or is damaged. It is a ValueError.

    Examples
    --------
    >>> import os, tempfile, elldict
    >>> X, _, _ = elldict.datasets.make_bernoulli_gaussian(2000, 8, density=0.3, random_state=0)
    >>> model = elldict.LpDictionaryLearning(random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.npz"))
    ...     again = elldict.load(os.path.join(folder, "model.npz"))
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    header, arrays = model_file.read(path)
    try:
        return unpacked(LpDictionaryLearning, header, arrays)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise model_file.ModelFileError(f"{path} does not hold a fitted LpDictionaryLearning: {error}") from error
