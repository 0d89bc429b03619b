"""Files of samples: .npy, zarr and parquet; damaged, and fitted."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import elldict
from elldict import LpDictionaryLearning
from experiments.campaign.damage import (
    Rng,
    damage_bytes,
    damage_json,
    damage_npy_header,
    damage_sizes,
    damage_values,
    dump_npy,
)
from experiments.campaign.original import (
    Damaged,
    Files,
    Original,
    WrongError,
    are_same,
    damage_one,
    list_files,
    make_samples,
    write_files,
)


def make_npy() -> list[Original]:
    X = make_samples()
    arrays = [X, np.asfortranarray(X), X.astype(">f4"), np.round(10 * X).astype("<i2")]
    return [_keep_samples("x.npy", {"x.npy": dump_npy(array)}) for array in arrays]


def make_zarr() -> list[Original]:
    numcodecs, codecs = import_module("numcodecs"), import_module("zarr.codecs")  # other kinds of files need neither
    checked = [codecs.ZstdCodec(), codecs.Crc32cCodec()]
    ways: list[dict[str, Any]] = [
        {"chunks": (300, 6), "compressors": checked},
        {"chunks": (300, 4), "compressors": None},
        {"chunks": (100, 6), "shards": (400, 6)},
        {"chunks": (300, 6), "zarr_format": 2, "compressors": numcodecs.Blosc()},
        {"chunks": (300, 6), "zarr_format": 2, "compressors": numcodecs.Zlib()},
    ]
    return [write_samples("x.zarr", partial(write_zarr, way)) for way in ways]


def write_zarr(way: dict[str, Any], X: NDArray[np.float64], path: Path) -> None:
    import zarr  # noqa: PLC0415

    zarr.create_array(path, shape=X.shape, dtype=X.dtype, **way)[:] = X


def make_parquet() -> list[Original]:
    ways: list[dict[str, Any]] = [
        {"compression": "snappy", "write_page_checksum": True},
        {"compression": "none", "use_dictionary": False},
        {"compression": "zstd", "listed": True},
    ]
    return [write_samples("x.parquet", partial(write_parquet, way)) for way in ways]


def write_parquet(way: dict[str, Any], X: NDArray[np.float64], path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    options = dict(way)
    columns = {f"f{feature}": X[:, feature] for feature in range(X.shape[1])}
    if options.pop("listed", False):
        columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])}
    parquet.write_table(pa.table(columns), path, row_group_size=500, **options)


def write_samples(target: str, write: Callable[[NDArray[np.float64], Path], None]) -> Original:
    with tempfile.TemporaryDirectory() as folder:
        write(make_samples(), Path(folder, target))
        files = list_files(Path(folder))
    return _keep_samples(target, files)


def _keep_samples(target: str, files: Files) -> Original:
    with tempfile.TemporaryDirectory() as folder:
        write_files(files, Path(folder))
        return Original(target, files, _read_samples(Path(folder, target)))


def _read_samples(path: Path) -> dict[str, NDArray[Any]]:
    """Rows of a file, and the atoms of a fit of two iterations to them."""
    samples: Any = elldict.open_samples(path)
    rows = samples.reader.read(0, samples.n_samples)
    model = LpDictionaryLearning(random_state=0, solver="power", refine=None, max_iter=2)
    return {"rows": rows, "atoms": model.fit(samples).components_}


def damage_npy(original: Original, rng: Rng) -> Damaged:
    """Bytes, header or values: the format has no checksum."""
    if rng.integers(2):
        return damage_one(original, original.target, rng, may_differ=True)
    note, content = (damage_npy_header, damage_values)[int(rng.integers(2))](original.files[original.target], rng)
    return Damaged(note, {original.target: content}, may_differ=True)


def damage_zarr(original: Original, rng: Rng) -> Damaged:
    """Metadata, bytes of chunks, or which chunks there are."""
    metadata = [name for name in original.files if name.endswith((".json", ".zarray"))]
    chunks = [name for name in sorted(original.files) if "/." not in name and not name.endswith(".json")]
    name, other = (chunks[int(rng.integers(len(chunks)))] for _ in range(2))
    files, what = dict(original.files), int(rng.integers(12))
    if what < 6:
        key = metadata[int(rng.integers(len(metadata)))]
        change = damage_json if what < 4 else (damage_sizes, damage_bytes)[what - 4]
        note, files[key] = change(files[key], rng)
        return Damaged(f"{note} in {key}", files, may_differ=True)
    if what == 6:
        del files[name]
        return Damaged(f"no {name}", files, may_differ=False)
    if what == 7:
        files[name], files[other] = files[other], files[name]
        return Damaged(f"{name} and {other} exchanged", files, may_differ=True)
    if what == 8:
        files[name + ("0", ".copy", "/0")[int(rng.integers(3))]] = files.pop(name)
        return Damaged(f"another name for {name}", files, may_differ=False)
    has_checksums = b"crc32c" in original.files[metadata[0]] and b"sharding" not in original.files[metadata[0]]
    return damage_one(original, name, rng, may_differ=not has_checksums)


def damage_parquet(original: Original, rng: Rng) -> Damaged:
    """Bytes: of the footer as often as of the rest, since all that is declared stands there."""
    content = original.files[original.target]
    if rng.integers(2):
        return damage_one(original, original.target, rng, may_differ=True)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    note, footer = damage_bytes(content[start:-8], rng)
    length = len(footer) if rng.integers(2) else len(content) - 8 - start
    changed = content[:start] + footer + length.to_bytes(4, "little") + content[-4:]
    return Damaged(f"{note} in the footer", {original.target: changed}, may_differ=True)


def use_samples(original: Original, path: Path, read: Callable[[Path, Any], NDArray[Any]] | None = None) -> bool:
    """Whether a file gives what the original gave; otherwise it has to give what `read`, of its library, gives."""
    samples: Any = elldict.open_samples(path)
    rows = samples.reader.read(0, samples.n_samples)
    if not are_same(rows, original.answer["rows"]):
        _compare_with_library(rows, path, samples.reader, read or _read_by_library)
    found = _read_samples(path)
    if not np.all(np.isfinite(rows)) or not np.all(np.isfinite(found["atoms"])):
        raise WrongError("values that are not finite were fitted")
    return are_same(found, original.answer)


def _compare_with_library(
    rows: NDArray[Any], path: Path, reader: Any, read: Callable[[Path, Any], NDArray[Any]]
) -> None:
    """Raise if other rows than the original's are not exactly what the library of the format reads."""
    try:
        stored = read(path, reader)
    except Exception as error:
        raise WrongError(f"rows of a file that its own library refuses: {type(error).__name__}: {error}") from error
    if not np.array_equal(rows, stored.astype(rows.dtype), equal_nan=True):
        raise WrongError("rows are not those that the file holds")


def _read_by_library(path: Path, reader: Any) -> NDArray[Any]:
    """What the library of the format reads of a file that was not refused."""
    if path.suffix == ".npy":
        stored: NDArray[Any] = np.load(path, allow_pickle=False)
        return stored
    if path.suffix == ".zarr":
        import zarr  # noqa: PLC0415

        return np.asarray(zarr.open_array(path, mode="r")[:])
    from pyarrow import parquet  # noqa: PLC0415

    table = parquet.read_table(path, columns=list(reader.columns), page_checksum_verification=True)
    if reader.listed:
        return np.array(table.column(0).to_pylist())
    return np.column_stack([column.to_numpy() for column in table.columns])
