"""Model files: fitted estimators as archives of plain arrays, checked when they are read."""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
import zipfile
from dataclasses import astuple
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import elldict
from elldict.archive import Arrays, Form, Forms, Header, read_archive, read_header, write_archive
from elldict.atomic import refuse_special
from elldict.exceptions import FileContentError
from elldict.model_checks import (
    FITTED,
    HISTORY,
    INVERSE_ERROR,
    check_inverse,
    check_numbers,
    check_sizes,
    read_distribution,
    read_fitted,
    read_history,
    read_names,
    read_warnings,
    take,
)
from elldict.samples.arrays import to_numpy
from elldict.solver.density import Density, get_grid
from elldict.validation import check_parameters

if TYPE_CHECKING:
    from elldict.estimator import LpEstimator

__all__ = ["ModelFileError", "load"]

FORMAT, VERSION = "elldict model", 2

CLASSES = {"LpDictionaryLearning": "elldict.dictionary_learning", "LpICA": "elldict.ica"}
"""Classes that a file may name, with their modules, which are imported by name because they import this one."""

OPTIONAL = {"LpDictionaryLearning": "unmixing", "LpICA": "mean"}
"""Array that a model may lack: `unmixing_` if it is `components_`, `mean_` without centring."""

ROWS = ("mixing", "unmixing", "mean", "density", "scale", "atom_error")
"""Fitted attributes that are arrays, in the precision of the samples, less the underscore at the end."""

MOST_WIDTHS = 128
"""Largest number of widths of a density: the narrowest is below the rounding errors of any code."""


class ModelFileError(FileContentError):
    """A file is not an elldict model, or is damaged."""


def save_model(model: LpEstimator, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a fitted estimator to a file, as `LpEstimator.save` documents it."""
    check_is_fitted(model)
    check_parameters(model, model._rules)
    kind = type(model).__name__
    if kind not in CLASSES or type(model) is not find_class(kind):
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
    write_archive(path, header, arrays, list_forms(header))


def may_replace(path: Path) -> bool:
    """Return whether a file is absent, empty, or a model of any version."""
    if not path.is_file() or path.stat().st_size == 0:
        return True
    with path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                return "params" in read_header(archive)
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
    >>> from elldict.dictionary_learning import LpDictionaryLearning
    >>> from elldict.model_file import load
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
            return unpack(*read_archive(stream, list_forms))
        except MemoryError:
            raise
        except Exception as error:
            damage = f"it is damaged, or no model ({type(error).__name__}: {error})"
            reason = str(error).rstrip(".") if isinstance(error, ValueError) else damage
            raise ModelFileError(f"{os.fspath(path)} cannot be read as an elldict model: {reason}.") from error


def find_class(kind: str) -> type[LpEstimator]:
    """Import a class that files may name."""
    if kind not in CLASSES:
        raise ValueError(f"it is of the class {kind!r:.60}, expected {' or '.join(CLASSES)}")
    return getattr(importlib.import_module(CLASSES[kind]), kind)  # type: ignore[no-any-return]


def pack(model: LpEstimator) -> tuple[Header, Arrays]:
    """Collect the header and the arrays of a fitted estimator."""
    kind, distribution = type(model).__name__, model._distribution
    density, normalization = distribution.density, distribution.normalization
    assert isinstance(density, Density)
    rows = {name: getattr(model, f"{name}_", None) for name in ROWS}
    if OPTIONAL[kind] == "unmixing" and model.unmixing_ is model.components_:
        rows["unmixing"] = None
    history = [astuple(iteration)[: len(HISTORY)] for iteration in model.history_]
    arrays = {
        **{name: to_numpy(array) for name, array in rows.items() if array is not None},
        "history": np.array(history, dtype=np.float64).reshape(-1, len(HISTORY)),
        "code_std": density.std,
        "negentropy": density.negentropy,
        "n_widths": density.n_widths.astype(np.int64),
        "has_offsets": density.has_offsets,
        "pooled": density.pooled,
        "tables": density.tables,
    }
    header = {
        "format": FORMAT,
        "version": VERSION,
        "elldict": elldict.__version__,
        "class": kind,
        "params": {name: to_plain(value) for name, value in model.get_params().items()},
        "fitted": {name: to_plain(getattr(model, name)) for name in FITTED},
        "warnings_": list(map(list, model.warnings_)),
        "feature_names_in_": list(map(str, getattr(model, "feature_names_in_", ()))),
        "precision": arrays["mixing"].dtype.name,
        "history": list(HISTORY),
        "density": {"n_widths": density.grid.n_widths, "value": density.value},
        "median": None if normalization is None else normalization.median,
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


def list_forms(header: Header) -> Forms:
    """List the arrays of a model with this header."""
    check_version(header)
    fitted, precision = take(header, "fitted", dict), take(header, "precision", str)
    m, n = (take(fitted, name, int) for name in ("n_components_", "n_features_in_"))
    n_widths = take(take(header, "density", dict), "n_widths", int)
    if not (1 <= m <= n and 1 <= n_widths <= MOST_WIDTHS and precision in INVERSE_ERROR):
        raise ValueError(f"it has {m} components of {n} features in {precision!r:.60}, and {n_widths} widths")
    shapes = {"mixing": (n, m), "unmixing": (m, n), "mean": (n,), "density": (m,), "scale": (m,), "atom_error": (m,)}
    return {
        **{name: Form(precision, shape) for name, shape in shapes.items()},
        "history": Form("float64", (None, len(HISTORY))),
        "code_std": Form("float64", (m,)),
        "negentropy": Form("float64", (m,)),
        "n_widths": Form("int64", (m,)),
        "has_offsets": Form("bool", (m,)),
        "pooled": Form("float64", (1, n_widths)),
        "tables": Form("float64", (3, m, len(get_grid(n_widths).centres)), compressed=True),
    }


def check_version(header: Header) -> None:
    """Raise an error for a file of another format or version."""
    version, writer = header.get("version"), header.get("elldict")
    if header.get("format") != FORMAT and version == 1 and "params" in header:
        raise ValueError(
            "it has format version 1, with other densities of codes than those of this elldict. Fit the samples again; "
            "components and other arrays can be read with numpy.load"
        )
    if header.get("format") != FORMAT or not isinstance(version, int):
        raise ValueError(f"its header does not say that it is an {FORMAT}")
    if version != VERSION:
        raise ValueError(
            f"it has format version {version}, written by elldict {writer!r:.60}; this elldict, {elldict.__version__}, "
            f"reads version {VERSION}. Install a newer elldict"
        )


def unpack(header: Header, arrays: Arrays) -> LpEstimator:
    """Make an estimator from a header and arrays, if they belong together."""
    forms, kind = list_forms(header), take(header, "class", str)
    model = find_class(kind)(**take(header, "params", dict))
    check_parameters(model, model._rules)
    for name, form in forms.items():
        if name in arrays:
            form.check(name, arrays[name].dtype, arrays[name].shape)
        elif name != OPTIONAL[kind]:
            raise ValueError(f"it has no array {name!r}")
    rows = {f"{name}_": arrays[name] for name in ROWS if name in arrays}
    components = arrays["mixing"].T if OPTIONAL[kind] == "unmixing" else arrays["unmixing"]
    fitted = {name: read_fitted(take(header, "fitted", dict), name) for name in FITTED}
    model.__dict__.update({"components_": components, "unmixing_": components, **rows, **fitted})
    model.warnings_ = read_warnings(take(header, "warnings_", list))
    model.history_ = read_history(take(header, "history", list), arrays["history"])
    if names := take(header, "feature_names_in_", list):
        model.feature_names_in_ = read_names(names, model.n_features_in_)
    model._distribution = read_distribution(take(header, "density", dict), header.get("median"), arrays)
    check_numbers(arrays)
    check_sizes(model)
    check_inverse(model)
    return model
