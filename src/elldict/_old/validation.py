"""Checks of parameters and arrays: the one place where what a user gives becomes samples."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_array, validate_data

from elldict._old.backend.base import NUMPY, Array, Backend, detach, is_foreign, real_dtype
from elldict._old.data.dataset import ArrayDataset, Dataset, find_non_finite
from elldict._old.data.open import is_dataset, is_source, open_samples
from elldict._old.data.statistics import SampleStatistics
from elldict.exceptions import NoCheckpointWarning

MAX_FEATURES = 10_000
"""Features beyond which fewer samples than that are refused: such X is mostly a transposed one, and fills memory."""


def check_samples(estimator: BaseEstimator, X: Any, *, fitting: bool) -> Dataset:
    """Return X as samples; set or check the number and the names of the features.

    The kind of X is looked at first: scikit-learn's own check would load a file whole, and turns arrays that it does
    not know into NumPy. Whether all values are finite is left to the first pass over the tiles.
    """
    in_memory = type(X) is np.ndarray
    samples: Dataset
    if not in_memory and is_source(X) and not _left_to_scikit_learn(X):
        samples = open_samples(X)
        shape, names = (samples.n_samples, samples.n_features), getattr(samples, "feature_names", None)
        _check_size(shape, *((2, 2) if fitting else (1, 1)))
        _check_columns(estimator, shape, names, fitting=fitting)
    else:
        samples = _checked_array(estimator, X, fitting=fitting, n_least=2)
    if fitting:
        _refuse_transposed(samples.n_samples, samples.n_features)
    return samples


def _refuse_transposed(n_samples: int, n_features: int) -> None:
    if n_features > MAX_FEATURES and n_samples < n_features:
        raise ValueError(
            f"X has {n_samples} samples of {n_features} features, whose covariance would take "
            f"{8e-9 * n_features**2:.1f} GB: expected samples as rows, more than features. Give X.T if samples are its "
            "columns; otherwise reduce X to fewer features first."
        )


def check_batch(estimator: BaseEstimator, X: Any, *, first: bool) -> ArrayDataset:
    """Return X, a batch of a stream, as samples in memory; a single one is enough."""
    if isinstance(X, np.memmap):
        X = np.asarray(X)  # a part of a file, left where it is
    if is_source(X):
        raise TypeError(
            f"partial_fit takes batches in memory, found a {type(X).__name__}. Give it parts of the samples one after "
            "the other, or all of them to fit, which needs no more memory."
        )
    return _checked_array(estimator, X, fitting=first, n_least=1)


def _checked_array(estimator: BaseEstimator, X: Any, *, fitting: bool, n_least: int) -> ArrayDataset:
    if type(X) is not np.ndarray and is_foreign(X):
        _check_foreign(X, n_least if fitting else 1, 2 if fitting else 1)
        validate_data(estimator, X, reset=fitting, skip_check_array=True)
        return ArrayDataset(detach(X))
    if np.ma.isMaskedArray(X):
        _refuse_masked(X)
    given = X
    try:
        X = validate_data(
            estimator,
            X,
            reset=fitting,
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=n_least if fitting else 1,
            ensure_min_features=2 if fitting else 1,
        )
    except ValueError:
        _refuse_words(given)
        raise
    X = np.asarray(X)
    if X.dtype.kind not in "fiub":
        _refuse_words(given)
        raise ValueError(f"X has dtype {X.dtype}, expected real numbers.")
    return ArrayDataset(X, feature_names=getattr(estimator, "feature_names_in_", None))


def _check_columns(
    estimator: BaseEstimator, shape: tuple[int, int], names: Sequence[str] | None, *, fitting: bool
) -> None:
    """Set or check number and names of the features of a file; scikit-learn looks at nothing else of an array."""
    columns = np.broadcast_to(0.0, shape)
    if names is not None and importlib.util.find_spec("pyarrow") is not None:
        columns = importlib.import_module("pyarrow").table({name: np.empty(0) for name in names})
    elif names is not None and not fitting:
        expected = getattr(estimator, "feature_names_in_", None)
        if expected is not None and list(expected) != list(names):
            raise ValueError(f"The feature names should match those that were passed during fit: {list(expected)}.")
        expected = estimator.n_features_in_
        if len(names) != expected:
            raise ValueError(f"X has {len(names)} features, but {type(estimator).__name__} expects {expected}.")
        return
    validate_data(estimator, columns, reset=fitting, skip_check_array=True)
    if names is not None and fitting:
        estimator.feature_names_in_ = np.array(names, dtype=object)


def _refuse_words(X: Any) -> None:
    """Raise if a column of a data frame holds something that is no number, with its name and row."""
    for name in getattr(X, "columns", ()):
        for row, value in enumerate(np.asarray(X[name], dtype=object)):
            try:
                float(value)
            except (TypeError, ValueError):
                raise ValueError(
                    f"X holds {value!r} in column {name!r}, row {row}, expected numbers. Drop the column, or encode it."
                ) from None


def _left_to_scikit_learn(X: Any) -> bool:
    """Mapped arrays that are no samples are refused in scikit-learn's words, as other arrays are."""
    return isinstance(X, np.memmap) and (X.ndim != 2 or X.dtype.kind not in "fiub" or min(X.shape) < 2)


def check_codes(estimator: BaseEstimator, codes: Any, unmixing: Array) -> Array:
    """Return codes as an array of the kind of the fitted ones, with as many columns as atoms."""
    if array_api_compat.is_torch_array(codes):
        _refuse_tensor(codes)
    check_same_space(estimator, codes, unmixing, "inverse_transform")
    if array_api_compat.is_dask_array(codes):
        if codes.ndim != 2:
            raise ValueError(f"Expected a 2D array of codes, got {codes.ndim}D with shape {codes.shape}.")
    elif is_foreign(codes):
        _check_foreign(codes, 1, 1)
        codes = Backend.of(codes).asarray(detach(codes), real_dtype(codes))
        if find_non_finite(codes, Backend.of(codes).xp) is not None:
            raise ValueError("Codes hold NaN or infinity.")
    else:
        _refuse_masked(codes)
        codes = check_array(codes, dtype=[np.float64, np.float32])
    if codes.shape[1] != unmixing.shape[0]:
        raise ValueError(
            f"Codes of shape {tuple(codes.shape)} given, expected (n_samples, n_components_={unmixing.shape[0]})."
        )
    return codes


def check_container(estimator: BaseEstimator, out: Any) -> None:
    """Raise if codes that stay in a file are to be returned as a data frame too; those of a .npy file can be both."""
    wanted = _get_output_config("transform", estimator)["dense"]
    if wanted != "default" and Path(out).suffix not in (".npy", ""):
        raise ValueError(
            f"out={str(out)!r} leaves the codes in a file, and set_output(transform={wanted!r}) asks for them in "
            "memory. Leave out one of them, or write .npy."
        )


def is_left_on_disk(X: Any) -> bool:
    """Whether codes are named, or were opened, rather than given; a map or a dask array is an array."""
    return is_source(X) and not isinstance(X, np.memmap) and not array_api_compat.is_dask_array(X)


def check_code_samples(estimator: BaseEstimator, codes: Any, unmixing: Array) -> Dataset:
    """Return codes that are left where they are, or come from an array, with as many columns as atoms."""
    found = open_samples(codes if is_left_on_disk(codes) else check_codes(estimator, codes, unmixing))
    if found.n_features != unmixing.shape[0]:
        raise ValueError(
            f"Codes of shape {(found.n_samples, found.n_features)} given, expected (n_samples, n_components_="
            f"{unmixing.shape[0]})."
        )
    return found


def name_features(estimator: BaseEstimator) -> list[str]:
    """Names of the features of a fit, or x0, x1, ... as scikit-learn has them."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{k}" for k in range(estimator.n_features_in_)] if names is None else [str(name) for name in names]


def check_noise(noise_std: Any) -> float:
    """Standard deviation of noise that is known."""
    is_number = isinstance(noise_std, Real) and not isinstance(noise_std, bool)
    if not is_number or not 0 <= float(noise_std) < np.inf:
        raise ValueError(f"noise_std is {noise_std!r}, expected a number >= 0 in the units of X, or None.")
    return float(noise_std)


def check_callback(callback: Any) -> None:
    """Raise if the callback cannot be called."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is a {type(callback).__name__}, expected a function of an Iteration.")


def check_checkpoint(checkpoint: Any, *, resume: bool) -> None:
    """Raise now what would be found out after the first pass: a checkpoint in the way, or none to resume from."""
    if checkpoint is None:
        if resume:
            raise ValueError("resume=True needs checkpoint=PATH, the file that the interrupted fit wrote.")
        return
    path = Path(checkpoint)
    if path.exists() and not resume:
        message = "a checkpoint is there already. Go on from it with resume=True (--resume), or delete it to begin anew"
        raise FileExistsError(errno.EEXIST, message, str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder for a checkpoint", str(path.parent))
    if resume and not path.exists():
        warnings.warn(
            f"There is no checkpoint {path} to resume from: the fit starts from the beginning and writes one.",
            NoCheckpointWarning,
            stacklevel=4,
        )


def check_same_space(estimator: BaseEstimator, array: Array, fitted: Array, method: str) -> None:
    """Raise if samples come from another array library or device than those of the fit."""
    if is_dataset(array):
        given = array.backend
    else:
        given = Backend.of(array) if is_foreign(array) and not is_source(array) else NUMPY
    if given != Backend.of(fitted):
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace and device as those "
            f"passed to fit(): found {given}, expected {Backend.of(fitted)}. Convert them first."
        )


def check_refinement(refine: str | None, *, whiten: bool | str) -> None:
    """Refuse a refinement that whitening makes meaningless."""
    if refine == "sparse-corruption" and whiten:
        raise ValueError(
            "refine='sparse-corruption' needs whiten=False: whitening spreads a hit over all entries of a sample. Use "
            "refine='auto', or whiten=False if the dictionary is orthogonal."
        )


def check_n_components(
    n_components: int | None, statistics: SampleStatistics, *, whiten: bool | str, refine: str | None, clip: bool
) -> int:
    """Return the number of atoms to learn; a refinement that was asked for needs one in every direction.

    A number above the rank is refused, or lowered to it if `clip`.
    """
    n, k = statistics.n_features, statistics.rank
    if n_components is None:
        return k if whiten else n
    if clip:
        n_components = min(n_components, k if whiten else n)
    check_n_components_at_most(n_components, n)
    if whiten and n_components > k:
        raise ValueError(
            f"n_components={n_components} exceeds the rank {k} of X ({n} features): whiten={whiten!r} finds at most "
            f"{k} components. Leave n_components=None to get them all."
        )
    if n_components < k and whiten is not True and refine not in (None, "auto"):
        reduce = "" if refine == "sparse-corruption" else f"whiten=True, which reduces X to {n_components} of them, "
        raise ValueError(
            f"refine={refine!r} needs as many atoms as there are directions to seek them in: n_components="
            f"{n_components} with whiten={whiten!r}, where X varies in {k} directions. Use {reduce}n_components=None, "
            "or refine='auto', which goes without."
        )
    return int(n_components)


def check_n_components_at_most(n_components: int | None, n_features: int) -> None:
    """Raise if more atoms are asked for than there are features."""
    if n_components is not None and n_components > n_features:
        raise ValueError(
            f"n_components={n_components} exceeds n_features={n_features}: a complete dictionary has at most "
            f"{n_features}."
        )


def check_exponents(p: Any, solver: str = "auto") -> tuple[float, ...]:
    """Exponents to solve in turn: one number, or a decreasing sequence of them."""
    given = tuple(p) if isinstance(p, (tuple, list)) else (p,)
    exponents: list[float] = []
    for q in given:
        in_range = not isinstance(q, bool) and isinstance(q, Real) and float(q) != 2
        if not in_range or not 0 < float(q) < (exponents[-1] if exponents else np.inf):
            exponents = []
            break
        exponents.append(float(q))
    if not exponents:
        raise InvalidParameterError(
            f"The 'p' parameter is {p!r}, expected a number in the range (0, inf), but not 2, where all orthonormal "
            "atoms are as good; or a decreasing sequence of such numbers, as (3, 2.5, 2.2) or (3, 1)."
        )
    if solver == "power" and exponents[-1] < 2:
        raise InvalidParameterError(
            f"p={p!r} with solver='power': the power method maximises a norm, and below 2 the norm is minimised. Use "
            "solver='auto', or p > 2."
        )
    return tuple(exponents)


def check_rng(random_state: Any, *, stream: int) -> np.random.Generator:
    """Generator from what scikit-learn's users pass as random_state, or from a generator itself.

    Each use of a seed has a stream of its own: data and fit with the same seed would otherwise draw the same numbers,
    and a fit would start at the dictionary it is to find.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return np.random.default_rng(np.random.SeedSequence(random_state, spawn_key=(stream,)))
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))


def plain_seed(random_state: Any) -> int | str | None:
    """What can be said of a random_state without drawing from it: the seed, or the kind of generator."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    return type(random_state).__name__


def _refuse_masked(X: Any) -> None:
    if np.ma.isMaskedArray(X) and np.ma.is_masked(X):
        raise ValueError(
            "X is a masked array with masked entries, which cannot be left out. Impute or drop them first."
        )


def _refuse_tensor(X: Any) -> None:
    """Raise if a tensor of torch has no plain numbers in memory, or too few digits for a dictionary."""
    dtype = str(X.dtype)
    if X.is_nested or X.is_quantized or str(X.layout) != "torch.strided":
        kind = "nested" if X.is_nested else "quantized" if X.is_quantized else str(X.layout).removeprefix("torch.")
        raise TypeError(f"X is a {kind} tensor, expected a dense one. Convert it with X.to_dense() or X.dequantize().")
    if X.is_meta:
        raise ValueError("X is a tensor on the device 'meta', which has a shape and no numbers. Give one with numbers.")
    if "float8" in dtype:
        raise TypeError(
            f"X has dtype {dtype}, whose numbers have one digit: rounding would be taken for noise and error bars "
            "would be wrong. Give what it was rounded from, or X.float() if that is lost."
        )


def _check_foreign(X: Array, n_samples: int, n_features: int) -> None:
    if array_api_compat.is_torch_array(X):
        _refuse_tensor(X)
    xp = array_api_compat.array_namespace(X)
    if X.ndim != 2:
        raise ValueError(f"Expected a 2D array (n_samples, n_features), got {X.ndim}D with shape {tuple(X.shape)}.")
    if xp.isdtype(X.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported: X has dtype {X.dtype}.")
    _check_size(X.shape, n_samples, n_features)


def _check_size(shape: tuple[int, int], n_samples: int, n_features: int) -> None:
    r, n = shape
    if r < n_samples or n < n_features:
        raise ValueError(
            f"Found array with {r} sample(s) and {n} feature(s) while a minimum of {n_samples} sample(s) and "
            f"{n_features} feature(s) is required."
        )
