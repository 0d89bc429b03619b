"""Model files: fitted estimators as archives of plain arrays, checked when they are read."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import asdict, astuple, fields
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import elldict
from elldict.archive import Arrays, Header, open_archive, read_archive, read_header, write_archive
from elldict.atomic import refuse_special
from elldict.denoising import Distribution
from elldict.exceptions import FileContentError
from elldict.history import Iteration
from elldict.samples.arrays import to_numpy
from elldict.samples.normalization import Normalization
from elldict.solver.density import Density, get_grid
from elldict.validation import check_parameters

if TYPE_CHECKING:
    from elldict.corruption.prior import Prior
    from elldict.estimator import LpEstimator

__all__ = ["ModelFileError", "load"]

VERSION = 3
"""Version of the format; one that is read by other code has another number."""

CLASSES = ("LpDictionaryLearning", "LpICA")
"""Classes that a file may name."""

SCALARS = {
    **dict.fromkeys(("n_components_", "n_features_in_", "n_samples_seen_", "n_iter_"), int),
    **dict.fromkeys(("n_passes_", "objective_", "noise_std_", "_total_weight"), float),
    **{"converged_": bool, "status_": str, "refined_": str | None, "expected_error_": float | None},
}
"""Fitted attributes in the header, with their types; null is None, or a number that is not known."""

ARRAYS = {
    **{"unmixing": "mn", "mixing": "nm", "mean": "n", "whitening": "mn"},
    **{"density": "m", "scale": "m", "atom_error": "m"},
}
"""Fitted attributes that are arrays in the precision of the samples, without their last underscore, and their axes."""

OPTIONAL = {"unmixing", "mean", "whitening", "metric"}
"""Arrays that may be missing: `unmixing_` if it is `components_`, `mean_` and `whitening_` of an LpICA that does not
whiten, and the metric of normalised samples whose codes are correlated."""

DENSITY = ("std", "n_widths", "has_offsets", "tables", "negentropy", "pooled", "location")
"""Arrays of the densities of codes; ``code_`` comes before their names in the file."""

HISTORY = tuple(field.name for field in fields(Iteration) if field.name != "components")
"""Columns of the history."""

MOST_WIDTHS = 128
"""Largest number of widths of a density, which bounds its memory: the narrowest is below the rounding of codes."""


class ModelFileError(FileContentError):
    """A file is not an elldict model, or is damaged."""


def save_model(model: LpEstimator, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a fitted estimator to a file, as `LpEstimator.save` documents it."""
    check_is_fitted(model)
    check_parameters(model, model._rules)
    if (kind := type(model).__name__) not in CLASSES or type(model) is not getattr(elldict, kind):
        raise TypeError(f"save() writes {' and '.join(CLASSES)}, but not subclasses such as {kind}.")
    if not overwrite and not may_replace(Path(path)):
        raise FileExistsError(
            errno.EEXIST, "Not an elldict model; pass overwrite=True to replace the file", os.fspath(path)
        )
    header, arrays = pack(model)
    try:
        unpack(json.loads(json.dumps(header)), arrays)
    except ValueError as error:
        raise ValueError(f"This {kind} is not saved, since it could not be loaded again: {error}.") from error
    write_archive(path, header, arrays)


def may_replace(path: Path) -> bool:
    """Return whether a file is absent, empty, or a model of any version."""
    if not path.is_file() or path.stat().st_size == 0:
        return True
    try:
        with path.open("rb") as stream:
            return "params" in read_header(open_archive(stream))
    except Exception:  # whatever is found, it is not a model
        return False


def load(path: str | os.PathLike[str]) -> LpEstimator:
    """Read an estimator from a file that its method `save` has written.

    Nothing in the file is executed, and everything is checked before it is used.

    Parameters
    ----------
    path : str or path-like
        File to read.

    Returns
    -------
    LpDictionaryLearning or LpICA
        The fitted estimator, with NumPy arrays. It computes the same codes, samples and likelihoods as the one that was
        saved, bit for bit.

    Raises
    ------
    ModelFileError
        If the file is not a model, or is damaged. It is a ValueError.

    Examples
    --------
    >>> import os, tempfile
    >>> from elldict.datasets import make_bernoulli_gaussian
    >>> from elldict import LpDictionaryLearning, load
    >>> X, _, _ = make_bernoulli_gaussian(2000, 8, density=0.3, random_state=0)
    >>> model = LpDictionaryLearning().fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.npz"))
    ...     again = load(os.path.join(folder, "model.npz"))
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    refuse_special(Path(path))
    with Path(path).open("rb") as stream:
        try:
            return unpack(*read_archive(stream, check_version))
        except MemoryError:
            raise
        except Exception as error:
            damage = f"it is damaged, or not a model ({type(error).__name__}: {error})"
            reason = str(error).rstrip(".") if isinstance(error, ValueError) else damage
            raise ModelFileError(f"{os.fspath(path)} cannot be read as an elldict model: {reason}.") from error


def pack(model: LpEstimator) -> tuple[Header, Arrays]:
    """Collect the header and the arrays of a fitted estimator."""
    density, normalization = model._distribution.density, model._distribution.normalization
    found = {name: getattr(model, f"{name}_") for name in ARRAYS if hasattr(model, f"{name}_")}
    if isinstance(model, elldict.LpDictionaryLearning) and model.unmixing_ is model.components_:
        del found["unmixing"]
    history = [astuple(iteration)[: len(HISTORY)] for iteration in model.history_]
    arrays = {
        **{name: to_numpy(array) for name, array in found.items()},
        **{f"code_{name}": getattr(density, name) for name in DENSITY},
        **({} if normalization is None or normalization.metric is None else {"metric": normalization.metric}),
        "history": np.array(history, dtype=np.float64).reshape(-1, len(HISTORY)),
    }
    corruption: Header | None = None  # of a fit that has not looked for it; empty if it has found none
    if hasattr(model, "corruption_rate_"):
        numbers = {} if model._corruption is None else asdict(model._corruption)
        corruption = {name: np.asarray(value).tolist() for name, value in numbers.items()}
    header = {
        "format": "elldict model",
        "version": VERSION,
        "elldict": elldict.__version__,
        "class": type(model).__name__,
        "params": {name: to_plain(value) for name, value in model.get_params().items()},
        "fitted": {name: to_plain(getattr(model, name)) for name in SCALARS},
        "likelihood": density.value,
        "median": None if normalization is None else normalization.median,
        "corruption": corruption,
        "warnings_": model.warnings_,
        "feature_names_in_": list(map(str, getattr(model, "feature_names_in_", ()))),
    }
    return header, arrays


def to_plain(value: Any) -> Any:
    """Convert a value to one of JSON: numbers and strings to those of Python; NaN, and any object, to None."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return None if math.isnan(value) else float(value)
    return str(value) if isinstance(value, str) else None


def check_version(header: Header) -> None:
    """Raise an error for a file of another format or version."""
    version, writer = header.get("version"), header.get("elldict")
    if not isinstance(version, int) or "params" not in header:
        raise ValueError("its header does not say that it is an elldict model")
    if version != VERSION:
        raise ValueError(
            f"it has format version {version}, written by elldict {writer!r:.60}; this elldict, {elldict.__version__}, "
            f"reads version {VERSION}. "
            + ("Install a newer elldict" if version > VERSION else "Fit the samples again; numpy.load reads its arrays")
        )


def unpack(header: Header, arrays: Arrays) -> LpEstimator:
    """Make an estimator from a header and arrays, if they belong together."""
    if (made := take(header, "class", str)) not in CLASSES:
        raise ValueError(f"it is of the class {made!r:.60}, expected {' or '.join(CLASSES)}")
    model: LpEstimator = getattr(elldict, made)(**take(header, "params", dict))
    check_parameters(model, model._rules)
    for name, kind in SCALARS.items():
        value = take(take(header, "fitted", dict), name, kind)
        setattr(model, name, math.nan if value is None and name == "expected_error_" else value)
    check_arrays(arrays, model.n_components_, model.n_features_in_)
    for name in ARRAYS:
        if name in arrays:
            setattr(model, f"{name}_", arrays[name])
    model.components_ = model.mixing_.T if isinstance(model, elldict.LpDictionaryLearning) else model.unmixing_
    model.unmixing_ = arrays.get("unmixing", model.components_)
    model._distribution = read_distribution(header, arrays)
    if (corruption := take(header, "corruption", dict | None)) is not None:
        model._keep_corruption(read_corruption(corruption, model.n_components_) if corruption else None)
    rows = arrays["history"].tolist()
    model.history_ = tuple(Iteration(int(stage), int(iteration), *others) for stage, iteration, *others in rows)
    model.warnings_ = tuple((str(category), str(text)) for category, text in take(header, "warnings_", list))
    if names := take(header, "feature_names_in_", list):
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


def take(header: Header, name: str, kind: Any) -> Any:
    """Return an entry of the header, which has to be of a type."""
    if not isinstance(value := header.get(name), kind):
        raise ValueError(f"{name!r} in its header is {value!r:.60}, expected {getattr(kind, '__name__', kind)}")
    return value


def check_arrays(arrays: Arrays, m: int, n: int) -> None:
    """Raise an error if arrays have other names, dtypes or shapes than those of m components of n features."""
    if (n_widths := arrays["code_pooled"].shape[-1]) > MOST_WIDTHS:
        raise ValueError(f"it has densities of {n_widths} widths, expected at most {MOST_WIDTHS}")
    precision = "float32" if arrays["mixing"].dtype == np.float32 else "float64"
    forms: dict[str, tuple[str, tuple[int, ...]]] = {
        **{name: (precision, tuple({"m": m, "n": n}[axis] for axis in axes)) for name, axes in ARRAYS.items()},
        "code_std": ("float64", (m,)),
        "code_n_widths": ("int64", (m,)),
        "code_has_offsets": ("bool", (m,)),
        "code_tables": ("float64", (3, m, len(get_grid(n_widths).centres))),
        "code_negentropy": ("float64", (m,)),
        "code_pooled": ("float64", (1, n_widths)),
        "code_location": ("float64", (m,)),
        "metric": ("float64", (m, m)),
        "history": ("float64", (len(arrays["history"]), len(HISTORY))),
    }
    if differing := forms.keys() ^ (arrays.keys() | OPTIONAL):
        raise ValueError(f"it has no array {min(differing)!r:.60}, or one that is not expected")
    for name, array in arrays.items():
        dtype, shape = forms[name]
        if array.dtype != dtype or array.shape != shape:
            found = f"shape {array.shape} and dtype {array.dtype}"
            raise ValueError(f"array {name!r} has {found}, expected {shape} and {dtype}")
        if name not in ("atom_error", "history") and not np.all(np.isfinite(array)):
            raise ValueError(f"array {name!r} holds NaN or infinity")


def read_corruption(numbers: Header, m: int) -> Prior:
    """Return the distributions of codes and of errors of entries."""
    from elldict.corruption.prior import Prior  # noqa: PLC0415  optional

    values = {name: np.array(value, dtype=np.float64) for name, value in numbers.items()}
    shapes = {field.name: (m,) if field.name in ("density", "variance") else () for field in fields(Prior)}
    if {name: value.shape for name, value in values.items()} != shapes:
        raise ValueError("the numbers of its corruption have other names or shapes than expected")
    for name, value in values.items():
        least, most = (-1.0 if name == "center" else 0.0), (1.0 if name in ("density", "rate") else math.inf)
        if not np.all((value > least) & (value < most)):
            raise ValueError(f"{name!r} of its corruption is out of range")
    plain: dict[str, Any] = {name: value if value.ndim else value.item() for name, value in values.items()}
    return Prior(**plain)


def read_distribution(header: Header, arrays: Arrays) -> Distribution:
    """Return the distribution of codes."""
    median, grid = take(header, "median", float | None), get_grid(arrays["code_pooled"].shape[-1])
    codes: dict[str, Any] = {name: arrays[f"code_{name}"] for name in DENSITY}
    density = Density(grid=grid, value=take(header, "likelihood", float), **codes)
    return Distribution(density, None if median is None else Normalization(median, arrays.get("metric")))
