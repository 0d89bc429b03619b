"""Model files: arrays and a JSON header in an uncompressed zip archive, readable by ``numpy.load``.

Reading runs no code: names, types and sizes are checked against the file itself before memory is taken.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from elldict._old.atomic import refuse_special, write_atomically
from elldict._old.backend.base import to_numpy
from elldict._old.record_file import read_array
from elldict._old.result import Iteration
from elldict._old.solver.amp import CorruptionLaw
from elldict._old.solver.mixture import MixtureLaw, make_components
from elldict._old.validation import check_exponents
from elldict.exceptions import FileContentError

FORMAT_VERSION = 1
HEADER = "header.json"

MAX_HEADER_BYTES = 2**20
"""A header has some kilobytes; 40,000 names of features fit too."""

MEMBER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.npy")


class ModelFileError(FileContentError):
    """The file is not a model file, or is damaged."""


def write(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a model file; until it is complete and on disk, an older file at `path` stays as it is."""
    text = json.dumps({**header, "version": FORMAT_VERSION}, allow_nan=False, indent=1)
    write_atomically(Path(path), lambda stream: _write_members(stream, text, arrays))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a model file; ModelFileError if it is anything else."""
    path = Path(path)
    refuse_special(path)  # a pipe would wait for somebody to write, and a device may have no end
    with path.open("rb") as stream:  # a file that is not there or not readable is no damaged file
        try:
            with zipfile.ZipFile(stream) as archive:
                members = _check_members(path, archive)
                header = _read_header(path, archive, members.pop(HEADER))
                arrays = {name.removesuffix(".npy"): _read_member(archive, info) for name, info in members.items()}
        except (ModelFileError, MemoryError):
            raise
        except Exception as error:  # the parsers below raise what they like on damaged files
            raise ModelFileError(f"{path} is not a model file, or is damaged: {error}") from error
    return header, arrays


def _write_members(stream: IO[bytes], text: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(HEADER, text)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


def _check_members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Members by name, none of them larger than the file that holds it."""
    size = path.stat().st_size
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename
        if name != HEADER and not MEMBER_NAME.fullmatch(name):
            raise ModelFileError(f"{path} holds a member named {name!r}, which no model has.")
        if name in members:
            raise ModelFileError(f"{path} holds two members named {name!r}.")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ModelFileError(f"{path}: member {name!r} is compressed, which no model is.")
        members[name] = info
    claimed = sum(info.file_size for info in members.values())
    if claimed > size:
        raise ModelFileError(f"{path} claims {claimed} bytes of content and has {size}.")
    if HEADER not in members:
        raise ModelFileError(f"{path} has no {HEADER}: it was not written by save().")
    return members


def _read_header(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> dict[str, Any]:
    if info.file_size > MAX_HEADER_BYTES:
        raise ModelFileError(f"{path}: the header has {info.file_size} bytes, expected at most {MAX_HEADER_BYTES}.")
    header = json.loads(archive.read(info))
    if not isinstance(header, dict):
        raise ModelFileError(f"{path}: the header is a {type(header).__name__}, expected an object.")
    version = header.pop("version", None)
    if version != FORMAT_VERSION:
        raise ModelFileError(f"{path} has format version {version!r}; this elldict reads version {FORMAT_VERSION}.")
    return header


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        array = read_array(member, info.file_size)
        if member.read(1):  # reads to the end, too, where the checksum is verified
            raise ValueError(f"member {info.filename!r} is longer than its array of shape {array.shape}.")
    return array


Model = TypeVar("Model", bound=BaseEstimator)

SCALARS: dict[str, type] = {
    "n_components_": int,
    "n_features_in_": int,
    "objective_": float,
    "n_iter_": int,
    "n_passes_": float,
    "n_samples_seen_": int,
    "converged_": bool,
    "status_": str,
    "noise_std_": float,
    "expected_error_": float,
    "corruption_rate_": float,
    "corruption_scale_": float,
    "_rest_std": float,
}
MAY_BE_UNKNOWN = ("corruption_rate_", "corruption_scale_")
"""Numbers that are NaN where samples could not be cleaned."""

ROWS = ("atoms", "unmixing", "mean")
"""What makes samples of codes and codes of samples, as rows, and the mean: the same in every class."""

VECTORS = ("density", "scale", "atom_error")
REFINEMENTS = (None, "bernoulli-gaussian", "mixture", "sparse-corruption")

CLEANING_NUMBERS = ("rate", "size", "noise", "least_noise", "centre")
"""Numbers of the law by which samples are cleaned, in the order of the file."""

MAX_INVERSE_ERROR = 0.01
"""Largest entry of unmixing @ atoms.T minus the identity that rounding explains, in float32 and whitened too."""

MAX_RATIO = 1e100
"""Ratio of standard deviations, one to the other, up to which both have a square in the same unit."""

HISTORY_COLUMNS = tuple(field.name for field in fields(Iteration) if field.name != "components")
INTEGER_COLUMNS = ("start", "stage", "iteration")


def pack_model(model: BaseEstimator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a fitted estimator."""
    header: dict[str, Any] = {
        "class": type(model).__name__,
        "params": to_plain(model.get_params()),
        "fitted": {name: _to_header(getattr(model, name)) for name in SCALARS},
        "refined_": model.refined_,
        "history_columns": HISTORY_COLUMNS,
        "warnings_": model.warnings_,
        "split_halves": model._split_halves,
    }
    if hasattr(model, "feature_names_in_"):
        header["feature_names_in_"] = [str(name) for name in model.feature_names_in_]
    rows = (model.mixing_.T, model.unmixing_, model._mean)
    arrays = {name: to_numpy(array) for name, array in zip(ROWS, rows, strict=True)}
    arrays |= {name: to_numpy(getattr(model, f"{name}_")) for name in VECTORS}
    arrays["rest"] = to_numpy(model._rest)
    if model._code_std is not None:
        arrays["code_std"] = to_numpy(model._code_std)
    if model._mixture is not None:
        arrays |= {"mixture_weights": model._mixture.weights, "mixture_std": model._mixture.std}
    if model._cleaning is not None:
        arrays |= pack_cleaning(model._cleaning)
    arrays["history"] = tabulate_iterations(model.history_)
    return header, arrays


def unpack_model(kind: type[Model], header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Model:
    """Estimator of this kind from a header and arrays; KeyError, TypeError or ValueError if they do not fit."""
    model: Any = kind(**header["params"])
    model._validate_params()
    check_exponents(model.p, model.solver)
    for name, expected in SCALARS.items():
        setattr(model, name, _check_scalar(name, header["fitted"][name], expected))
    m, n = model.n_components_, model.n_features_in_
    arrays = {"atoms": arrays["components"], **arrays} if "components" in arrays else arrays  # their name before
    if header["refined_"] not in REFINEMENTS:
        raise ValueError(f"refined_ is {header['refined_']!r}")
    model.refined_ = header["refined_"]
    shapes = {"atoms": (m, n), "unmixing": (m, n), "mean": (n,)}
    for name in (*ROWS, *VECTORS):
        array, shape = arrays[name], shapes.get(name, (m,))
        finite = name == "atom_error" or np.all(np.isfinite(array))  # atoms beyond the rank have no error
        if array.shape != shape or array.dtype.kind != "f" or not finite:
            raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, expected {shape} of finite numbers")
    _check_values(arrays)
    _check_sizes(model, arrays)
    model._name_rows(*(arrays[name] for name in ROWS))
    for name in VECTORS:
        setattr(model, f"{name}_", arrays[name])
    rest = arrays["rest"]
    if rest.ndim != 2 or rest.shape[1] != n or rest.dtype.kind != "f" or not np.all(np.isfinite(rest)):
        raise ValueError(f"rest has shape {rest.shape} of {rest.dtype}, expected (any, {n}) of finite numbers")
    model._rest = rest
    model._code_std = _unpack_code_std(arrays, m) if "code_std" in arrays else None  # not in the first files
    model._split_halves = header.get("split_halves", False) is True  # not in the first files
    model._mixture = _unpack_mixture(arrays) if "mixture_weights" in arrays else None
    model._cleaning = _unpack_cleaning(arrays, m, n) if "cleaning_numbers" in arrays else None
    model.history_ = list_iterations(arrays["history"], header["history_columns"])
    model.warnings_ = _check_warnings(header.get("warnings_", []))  # not in the first files
    if "feature_names_in_" in header:
        names = header["feature_names_in_"]
        if not (isinstance(names, list) and len(names) == n and all(isinstance(name, str) for name in names)):
            raise ValueError(f"feature_names_in_ is not a list of {n} names")
        model.feature_names_in_ = np.array(names, dtype=object)
    return cast(Model, model)


def _unpack_code_std(arrays: dict[str, NDArray[Any]], m: int) -> NDArray[Any]:
    """Root mean square of the codes of the fit."""
    std = arrays["code_std"]
    if std.shape != (m,) or std.dtype != np.float64 or not (np.all(np.isfinite(std)) and np.all(std >= 0)):
        raise ValueError(f"code_std has shape {std.shape} of {std.dtype}, expected {(m,)} of float64 that are >= 0")
    return std


def _unpack_mixture(arrays: dict[str, NDArray[Any]]) -> MixtureLaw:
    """Laws of codes, of all atoms that have some."""
    weights, std = arrays["mixture_weights"], arrays["mixture_std"]
    shape = (int(np.sum(arrays["density"] > 0)), len(make_components().q))
    if weights.shape != shape or std.shape != shape[:1] or weights.dtype != np.float64 or std.dtype != np.float64:
        raise ValueError(f"mixture_weights has shape {weights.shape} of {weights.dtype}, expected {shape} of float64")
    if not (np.all(weights >= 0) and np.allclose(np.sum(weights, axis=1), 1)):
        raise ValueError("mixture_weights are no shares of one")
    if not (np.all(std > 0) and np.all(np.isfinite(std))):
        raise ValueError("mixture_std is not positive")
    return MixtureLaw(weights, std)


def pack_cleaning(law: CorruptionLaw) -> dict[str, NDArray[Any]]:
    """Arrays of the law by which samples are cleaned."""
    numbers = np.array([getattr(law, name) for name in CLEANING_NUMBERS], dtype=np.float64)
    return {"cleaning_density": law.density, "cleaning_power": law.power, "cleaning_numbers": numbers}


def _unpack_cleaning(arrays: dict[str, NDArray[Any]], m: int, n: int) -> CorruptionLaw:
    """The same law, if all of it is possible: message passing divides by its variances."""
    names = ("cleaning_density", "cleaning_power", "cleaning_numbers")
    parts = [arrays[name] for name in names]
    for name, array, length in zip(names, parts, (m, m, len(CLEANING_NUMBERS)), strict=True):
        if array.shape != (length,) or array.dtype != np.float64 or not np.all(np.isfinite(array)):
            raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, expected {(length,)} of finite float64")
    density, power, numbers = parts
    law = CorruptionLaw(density, power, **dict(zip(CLEANING_NUMBERS, numbers.tolist(), strict=True)))
    shares, sizes = np.append(density, law.rate), np.append(power, (law.size, law.noise, law.least_noise))
    if m != n or not (np.all(shares > 0) and np.all(shares < 1)):
        raise ValueError("samples are cleaned with other atoms than features, or a share is not between 0 and 1")
    if not np.all(sizes > 0) or np.max(sizes) / MAX_RATIO > np.min(sizes) or not 0 <= law.centre**2 <= law.size:
        raise ValueError("a variance by which samples are cleaned is not positive, or not of the size of the others")
    atoms = arrays["atoms"].astype(np.float64)
    if not float(np.max(np.abs(atoms @ atoms.T - np.eye(m)))) < MAX_INVERSE_ERROR:
        raise ValueError("samples are cleaned with atoms that are not orthonormal")
    return law


def _check_values(arrays: dict[str, NDArray[Any]]) -> None:
    """Raise on numbers that no fit gives: codes computed with them would be wrong without a word."""
    density, scale = arrays["density"], arrays["scale"]
    if np.any((density < 0) | (density > 1)) or np.any(scale < 0):
        raise ValueError("density is no share, or scale is negative")
    product = arrays["unmixing"].astype(np.float64) @ arrays["atoms"].astype(np.float64).T
    error = float(np.max(np.abs(product - np.eye(len(product)))))
    if not error < MAX_INVERSE_ERROR:
        raise ValueError(f"unmixing does not undo atoms (off by {error:.2g})")


def _check_sizes(model: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise on numbers so far apart that sums or squares of codes overflow: no fit to finite samples gives them."""
    numbers = (model.noise_std_, model._rest_std, np.nan_to_num(model.corruption_scale_))
    if min(numbers) < 0 or not 0 <= np.nan_to_num(model.corruption_rate_) <= 1:
        raise ValueError("a standard deviation is negative, or corruption_rate_ is no share")
    sizes = np.array([*numbers, *arrays["scale"], *arrays.get("mixture_std", ())])
    if len(arrays["rest"]) == 0:
        sizes = np.delete(sizes, 1)  # there are no directions along which it would be used
    sizes = sizes[sizes > 0]
    if len(sizes) and np.max(sizes) / MAX_RATIO > np.min(sizes):
        raise ValueError(f"standard deviations go from {np.min(sizes):.2g} to {np.max(sizes):.2g}")
    unmixing, mean = (np.abs(arrays[name].astype(np.float64)) for name in ("unmixing", "mean"))
    with np.errstate(over="ignore"):
        of_mean = 4 * (unmixing @ mean)  # with room for samples as large
    if not np.all(np.isfinite(of_mean)):
        raise ValueError("the codes of mean are beyond the largest number")


def _to_header(value: Any) -> Any:
    """None for a number that is not known, which JSON has no word for."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _check_scalar(name: str, value: Any, expected: type) -> Any:
    if value is None and name in MAY_BE_UNKNOWN:
        return math.nan
    if type(value) is not expected or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}, expected a {expected.__name__}")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"{name} holds characters that cannot be printed")
    return value


def _check_warnings(found: Any) -> tuple[tuple[str, str], ...]:
    """Category and text of each warning of the fit."""
    pairs = found if isinstance(found, list) else [found]
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise ValueError("warnings_ is not a list of categories and texts")
        if not all(text.isprintable() for text in pair):
            raise ValueError("warnings_ holds characters that cannot be printed")
    return tuple((category, text) for category, text in pairs)


def tabulate_iterations(iterations: Sequence[Iteration]) -> NDArray[np.float64]:
    """Rows of numbers, in the columns of HISTORY_COLUMNS."""
    return np.array([astuple(iteration)[: len(HISTORY_COLUMNS)] for iteration in iterations], dtype=np.float64)


def list_iterations(table: NDArray[Any], columns: Sequence[str] = HISTORY_COLUMNS) -> tuple[Iteration, ...]:
    """Iterations from such rows."""
    rows = (dict(zip(columns, row, strict=True)) for row in table.tolist())
    return tuple(
        Iteration(**{name: _to_count(name, value) if name in INTEGER_COLUMNS else value for name, value in row.items()})
        for row in rows
    )


def _to_count(name: str, value: float) -> int:
    """Whole number of a column of counts."""
    if not float(value).is_integer():
        raise ValueError(f"{name} of an iteration is {value!r}, expected a whole number")
    return int(value)


def to_plain(value: Any) -> Any:
    """Value as JSON knows it; None for an object that it does not know, such as a random generator."""
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value if isinstance(value, (bool, int, float, str, type(None))) else None
