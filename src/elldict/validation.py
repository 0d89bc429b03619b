"""Checks of what users pass: parameters, samples, weights, groups, codes. Errors say what was expected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from elldict.samples.arrays import to_numpy
from elldict.samples.base import Array, Index, cut_blocks, refuse_not_finite
from elldict.samples.dask import is_dask, prepare
from elldict.samples.files import FileSamples
from elldict.samples.open import is_stored, open_samples

MAX_FEATURES = 10_000
"""Number of features above which fewer samples than features are refused: X is probably transposed."""


class InvalidParameterError(ValueError):
    """A parameter of an estimator has a wrong type or value."""


@dataclass(frozen=True)
class Rule:
    """Values that a parameter may have, in words and as a function."""

    expected: str
    accepts: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        """Allow the values of either rule."""
        return Rule(f"{self.expected} or {other.expected}", lambda value: self.accepts(value) or other.accepts(value))


def allow(*values: str | bool | None) -> Rule:
    """Allow these strings, booleans or None."""
    listed = ", ".join(map(repr, values[:-1])) + " or " * (len(values) > 1) + repr(values[-1])
    return Rule(listed, lambda value: any(is_same(value, allowed) for allowed in values))


def is_same(value: Any, allowed: str | bool | None) -> bool:
    """Compare a value with an allowed one without taking 1 for True."""
    if isinstance(allowed, bool):
        return isinstance(value, (bool, np.bool_)) and bool(value) is allowed
    return value is None if allowed is None else isinstance(value, str) and value == allowed


def is_number(value: Any, kind: type = Real) -> bool:
    """Return whether a value is a number of a kind, and not a boolean."""
    return isinstance(value, kind) and not isinstance(value, (bool, np.bool_))


def allow_integer(least: int) -> Rule:
    """Allow integers from a lower bound."""

    def accepts(value: Any) -> bool:
        return is_number(value, Integral) and int(value) >= least

    return Rule(f"an int in the range [{least}, inf)", accepts)


def allow_number(is_in_range: Callable[[float], bool], name: str) -> Rule:
    """Allow finite real numbers in a range."""

    def accepts(value: Any) -> bool:
        return is_number(value) and math.isfinite(value) and is_in_range(float(value))

    return Rule(f"a float in the range {name}", accepts)


BOOLEAN = allow(True, False)
MAX_EXPONENT = 60
"""Exponent of the l_p norm up to which powers of codes stay finite."""

EXPONENT = allow_number(
    lambda p: 0 < p <= MAX_EXPONENT and p != 2,
    f"(0, {MAX_EXPONENT}] other than 2, for which all rotations have the same objective",
)
RANDOM_STATE = (
    Rule("a RandomState, a Generator", lambda value: isinstance(value, (np.random.RandomState, np.random.Generator)))
    | allow_integer(0)
    | allow(None)
)
Rules = Mapping[str, Rule]

SHARED_RULES: Rules = {
    "n_components": allow_integer(1) | allow(None),
    "p": EXPONENT,
    "solver": allow("auto", "power"),
    "refine": allow("auto", None),
    "normalize": allow("auto", "samples", None),
    "error_bars": allow("auto", True, False),
    "standardize": BOOLEAN,
    "orthogonal": BOOLEAN,
    "max_iter": allow_integer(1),
    "tol": allow_number(lambda tol: tol >= 0, "[0, inf)"),
    "random_state": RANDOM_STATE,
    "verbose": BOOLEAN | allow_integer(0),
}
"""Parameters that all estimators have."""


def check_parameters(estimator: BaseEstimator, rules: Rules) -> None:
    """Raise an error if a parameter, or a combination of parameters, is not allowed."""
    kind = type(estimator).__name__
    for name, rule in rules.items():
        value = getattr(estimator, name)
        if not rule.accepts(value):
            reason = ""
            if name == "p" and isinstance(value, (tuple, list, np.ndarray)):
                reason = " A sequence of exponents is not needed: the likelihood (refine='auto') follows the l_p norm."
            raise InvalidParameterError(
                f"The {name!r} parameter of {kind} must be {rule.expected}. Got {value!r} instead.{reason}"
            )
    if estimator.refine == "sparse-corruption":
        check_corruption(estimator, kind)
    if estimator.solver == "power" and estimator.p < 2:
        raise InvalidParameterError(
            f"The 'p' parameter of {kind} must be above 2 with solver='power', which maximises the l_p norm; below 2 "
            f"it is minimised. Got {estimator.p!r} instead. Use solver='auto'."
        )
    if estimator.solver == "power" and estimator.normalize == "samples":
        raise InvalidParameterError(
            f"The 'normalize' parameter of {kind} must be 'auto' or None with solver='power', which is applied to "
            "samples as they are. Got 'samples' instead. Use solver='auto'."
        )


def check_corruption(estimator: BaseEstimator, kind: str) -> None:
    """Raise an error if other parameters do not go with sparse corruption of the entries."""
    reasons = (
        ("whiten", estimator.whiten, False, "whitening spreads the corruption of an entry over all others"),
        ("solver", estimator.solver == "power" and "power", "auto", "the paper's method knows no corruption"),
        ("normalize", estimator.normalize == "samples" and "samples", None, "the norm of a sample is corrupted, too"),
    )
    for name, found, expected, reason in reasons:
        if found:
            raise InvalidParameterError(
                f"The {name!r} parameter of {kind} must be {expected!r} with refine='sparse-corruption': {reason}. Got "
                f"{found!r} instead."
            )


def check_samples(estimator: BaseEstimator, X: Any, *, fitting: bool, is_batch: bool = False) -> Any:
    """Return X as a real 2D array, or open it; set or check the number and names of features.

    A first batch may be a single sample. NaN and infinity are found by the first pass over the samples, except where
    columns have names.
    """
    n_least = (1 if is_batch else 2, 2) if fitting else (1, 1)
    refuse_lazy(X)
    if isinstance(X, np.ndarray):
        X = convert_to_numpy(estimator, X, fitting, n_least)
    elif is_stored(X):
        X = open_samples(X)
        check_size(X, *n_least)
        validate_data(estimator, X.columns, reset=fitting, skip_check_array=True)
    elif is_dask(X):
        refuse_duplicate_names(X)
        columns = X._meta if hasattr(X, "columns") else None
        X = prepare(X)
        check_other_array(X, *n_least)
        validate_data(estimator, X if columns is None else columns, reset=fitting, skip_check_array=True)
    elif is_other_array(X):
        check_other_array(X, *n_least)
        validate_data(estimator, X, reset=fitting, skip_check_array=True)
    else:
        X = convert_to_numpy(estimator, X, fitting, n_least)
    if fitting and not is_batch:
        refuse_transposed(*X.shape)
    return X


def refuse_lazy(X: Any) -> None:
    """Raise an error for a query that has not been evaluated."""
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X must be an array or a data frame, not a LazyFrame. Evaluate it first: X.collect().")


def is_other_array(X: Any) -> bool:
    """Return whether X is an array of a library other than NumPy, or dask, whose results are NumPy arrays."""
    return not isinstance(X, (np.ndarray, np.generic)) and not is_dask(X) and array_api_compat.is_array_api_obj(X)


def check_other_array(X: Any, n_samples: int, n_features: int) -> None:
    """Raise an error if an array of another library is not a dense real matrix of the least size."""
    if array_api_compat.is_torch_array(X) and (str(X.layout) != "torch.strided" or X.is_quantized):
        raise TypeError("X must be a dense tensor. Convert it with X.to_dense() or X.dequantize().")
    if array_api_compat.is_torch_array(X) and X.is_meta:
        raise ValueError("X is a tensor on the device 'meta', which holds no numbers.")
    xp = array_api_compat.array_namespace(X)
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: shape={tuple(X.shape)}.")
    if not xp.isdtype(X.dtype, ("real floating", "integral", "bool")):
        raise ValueError(f"Complex data not supported: X has dtype {X.dtype}.")
    check_size(X, n_samples, n_features)


def check_size(X: Any, n_samples: int, n_features: int) -> None:
    """Raise an error if a matrix is smaller than the least size."""
    for size, least, name in zip(X.shape, (n_samples, n_features), ("sample(s)", "feature(s)"), strict=True):
        if size < least:
            raise ValueError(f"Found array with {size} {name} while a minimum of {least} is required.")


def convert_to_numpy(estimator: BaseEstimator, X: Any, fitting: bool, n_least: tuple[int, int]) -> NDArray[Any]:
    """Return X as a real NumPy array, without a copy where it is one already."""
    if np.ma.isMaskedArray(X) and np.ma.is_masked(X):
        raise ValueError("X is a masked array with masked entries, which cannot be left out. Impute or drop them.")
    if fitting:
        refuse_duplicate_names(X)
    found, given = None, X
    try:
        found = validate_data(
            estimator,
            X,
            reset=fitting,
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=n_least[0],
            ensure_min_features=n_least[1],
        )
    except ValueError:
        refuse_words(given)
        raise
    found = np.asarray(found)
    if found.dtype.kind not in "fiub":
        refuse_words(given)
        raise ValueError(f"X must hold real numbers, not entries of dtype {found.dtype}.")
    if (names := get_names(given)) is not None:
        for start, stop in cut_blocks(*found.shape):
            refuse_not_finite(found[start:stop], start, names)
    return found


def get_names(X: Any) -> list[Any] | None:
    """Return the names of the columns of a data frame."""
    columns = getattr(X, "columns", None)
    return None if columns is None else list(columns)


def refuse_duplicate_names(X: Any) -> None:
    """Raise an error if two columns of a data frame have the same name."""
    counts = Counter(get_names(X) or ())
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ValueError(f"X has {counts[twice[0]]} columns named {twice[0]!r}. Give each column a name of its own.")


def refuse_words(X: Any) -> None:
    """Raise an error if a column of a data frame holds something other than numbers."""
    for number, name in enumerate(get_names(X) or ()):
        column = X.iloc[:, number] if hasattr(X, "iloc") else X[name]
        for row, value in enumerate(np.asarray(column, dtype=object)):
            try:
                float(value)
            except (TypeError, ValueError):
                raise ValueError(
                    f"X holds {value!r} in column {name!r}, row {row}, where a number is expected. Drop or encode the "
                    "column."
                ) from None


def refuse_transposed(n_samples: int, n_features: int) -> None:
    """Raise an error if X has so many features that its moments would fill the memory, and fewer samples."""
    if n_features > MAX_FEATURES and n_samples < n_features:
        raise ValueError(
            f"X has {n_samples} samples of {n_features} features, whose covariance takes {8e-9 * n_features**2:.1f} "
            "GB. Samples are rows: use X.T if they are the columns of X; otherwise reduce the number of features first."
        )


def check_weights(weights: Any, n_samples: int, *, least: int = 1) -> Array | None:
    """Return weights (r,) of samples, at least some of them positive, or None."""
    if weights is None:
        return None
    values = read_numbers(weights, "sample_weight")
    if values.shape != (n_samples,):
        raise ValueError(f"sample_weight.shape == {values.shape}, expected {(n_samples,)}!")
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        row = int(np.flatnonzero(~(np.isfinite(values) & (values >= 0)))[0])
        raise ValueError(f"sample_weight must hold finite numbers >= 0. Got {values[row]} for sample {row} instead.")
    n_positive = int(np.sum(values > 0))
    if n_positive < least:
        raise ValueError(
            f"sample_weight is zero for all but {n_positive} samples; at least {least} must have a positive weight."
        )
    return values


def check_groups(groups: Any, n_samples: int) -> Index | None:
    """Return the labels (r,) of groups as integers, in the order of the labels, or None."""
    if groups is None:
        return None
    labels = to_numpy(groups) if is_other_array(groups) else np.asarray(groups)
    if labels.shape != (n_samples,):
        raise ValueError(f"groups must hold one label per sample: its shape is {labels.shape}, not {(n_samples,)}.")
    try:
        found, number = np.unique(labels, return_inverse=True)
    except TypeError:
        raise TypeError("groups must hold labels of one type, numbers or strings.") from None
    if len(found) < 2:
        raise ValueError("groups holds a single label. Error bars compare fits to whole groups, and need at least two.")
    return np.asarray(number, dtype=np.intp)


def check_callback(callback: Any) -> None:
    """Raise an error if the callback is not callable."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of an Iteration. Got a {type(callback).__name__} instead.")


def check_half_life(half_life: Any) -> float | None:
    """Return the number of samples after which the weight of a sample is halved, or None."""
    if half_life is None:
        return None
    if not is_number(half_life) or not 0 < float(half_life) < np.inf:
        raise ValueError(f"half_life must be a number of samples > 0, or None. Got {half_life!r} instead.")
    return float(half_life)


def check_noise(noise_std: Any) -> float:
    """Return the standard deviation of the noise of a feature."""
    if not is_number(noise_std) or not 0 <= float(noise_std) < np.inf:
        raise ValueError(f"noise_std must be a number >= 0, in the units of X, or None. Got {noise_std!r} instead.")
    return float(noise_std)


def check_codes(codes: Any, n_components: int) -> Any:
    """Return codes as a real 2D array with one column per component, or open them."""
    codes = prepare(codes) if is_dask(codes) else open_samples(codes) if is_stored(codes) else codes
    if isinstance(codes, FileSamples):
        check_size(codes, 1, 1)
    elif is_dask(codes) or is_other_array(codes):
        check_other_array(codes, 1, 1)
    else:
        codes = check_array(codes, dtype=[np.float64, np.float32], input_name="codes")
    if codes.shape[1] != n_components:
        raise ValueError(f"codes has {codes.shape[1]} columns, but the estimator has {n_components} components.")
    return codes


def check_same_space(estimator: BaseEstimator, X: Any, fitted: Any, method: str) -> None:
    """Raise an error if X is from another array library, or on another device, than the fitted arrays."""
    refuse_lazy(X)
    given, expected = find_space(X), find_space(fitted)
    if given != expected:
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace and the same device "
            f"as those passed to fit(). Got {given}, expected {expected}. Convert them first."
        )


def find_space(array: Any) -> str:
    """Return the array library and the device of an array."""
    if not is_other_array(array):
        return "numpy"
    name = array_api_compat.array_namespace(array).__name__.removeprefix("array_api_compat.")
    return f"{name} ({array_api_compat.device(array)})"


def draw_seed(random_state: Any) -> int:
    """Draw the seed of a fit from a random_state of scikit-learn, or from a generator.

    An integer is not used as it is: functions that make data with the same seed would draw the dictionary at which the
    fit starts.
    """
    if random_state is None or isinstance(random_state, Integral):
        seed = None if random_state is None else int(random_state)
        random_state = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    return int(check_random_state(random_state).randint(2**31))


def read_numbers(values: Any, name: str) -> Array:
    """Convert numbers of any array library, or a list, to a NumPy array."""
    if is_other_array(values):
        return to_numpy(values)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers.") from None
