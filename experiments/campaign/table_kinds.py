"""Files of samples that other programs write: texts, .npz, MAT, HDF5, Arrow and safetensors; damaged, and fitted."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.campaign.damage import Rng, damage_json, damage_npy_header, damage_values
from experiments.campaign.original import Damaged, Original, damage_one
from experiments.campaign.sample_kinds import write_samples

NAMES = [f"f{number}" for number in range(6)]


def make_text() -> list[Original]:
    return [
        write_samples("x.csv", partial(write_text, ",", NAMES)),
        write_samples("x.tsv", partial(write_text, "\t", None)),
        write_samples("x.txt", partial(write_text, " ", None)),
    ]


def write_text(between: str, names: list[str] | None, X: NDArray[np.float64], path: Path) -> None:
    lines = [between.join(map(repr, row)) for row in X.tolist()]
    path.write_text("\n".join([*([between.join(names)] if names else []), *lines]) + "\n")


def make_npz() -> list[Original]:
    return [
        write_samples("x.npz", lambda X, path: np.savez(path, X=X, mean=X[0])),
        write_samples("x.npz", lambda X, path: np.savez_compressed(path, X=np.round(10 * X).astype("<i2"))),
    ]


def make_mat() -> list[Original]:
    return [write_samples("x.mat", partial(write_mat, compressed)) for compressed in (False, True)]


def write_mat(compressed: bool, X: NDArray[np.float64], path: Path) -> None:
    import_module("scipy.io").savemat(path, {"X": X, "number": 3.0}, do_compression=compressed)
    content = path.read_bytes()
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(116) + content[116:])  # without the date


def make_hdf5() -> list[Original]:
    checked = {"chunks": (300, 4), "compression": "gzip", "shuffle": True, "fletcher32": True}
    ways: list[dict[str, Any]] = [{}, {"chunks": (300, 6), "compression": "gzip"}, checked]
    return [write_samples("x.h5", partial(write_hdf5, way)) for way in ways]


def write_hdf5(way: dict[str, Any], X: NDArray[np.float64], path: Path) -> None:
    with import_module("h5py").File(path, "w") as file:
        file.create_dataset("X", data=X, **way)


def make_arrow() -> list[Original]:
    return [write_samples("x.arrow", partial(write_arrow, way)) for way in ("uncompressed", "lz4", "zstd")]


def write_arrow(way: str, X: NDArray[np.float64], path: Path) -> None:
    table = import_module("pyarrow").table(dict(zip(NAMES, X.T, strict=True)))
    import_module("pyarrow.feather").write_feather(table, path, compression=way, chunksize=500)


def make_safetensors() -> list[Original]:
    return [write_samples("x.safetensors", partial(write_safetensors, kind)) for kind in ("f8", "f2")]


def write_safetensors(kind: str, X: NDArray[np.float64], path: Path) -> None:
    import_module("safetensors.numpy").save_file({"X": X.astype(kind), "mean": X[0].copy()}, path)


def damage_table(original: Original, rng: Rng) -> Damaged:
    """Bytes; of headers that are JSON or NumPy's, also what they say. Few of these formats have checksums."""
    content, name = original.files[original.target], original.target
    if name.endswith(".safetensors") and rng.integers(2):
        end = 8 + int.from_bytes(content[:8], "little")
        note, header = damage_json(content[8:end], rng)
        length = len(header) if rng.integers(4) else end - 8
        return Damaged(note, {name: length.to_bytes(8, "little") + header + content[end:]}, may_differ=True)
    if name.endswith(".npz") and rng.integers(2):
        note, content = _damage_member(content, rng)
        return Damaged(note, {name: content}, may_differ=True)
    return damage_one(original, name, rng, may_differ=True)


def _damage_member(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """An archive whose checksums are right, and whose array is not."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        kind = archive.infolist()[0].compress_type
        members = {name: archive.read(name) for name in archive.namelist()}
    note, members["X.npy"] = (damage_npy_header, damage_values)[int(rng.integers(2))](members["X.npy"], rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, kind)  # without the date
    return note, stream.getvalue()


def read_by_library(path: Path, reader: Any) -> NDArray[Any]:
    """What the library of the format reads."""
    return np.asarray(LIBRARIES[path.suffix](path, reader))


def _read_text(between: str, path: Path, reader: Any) -> Any:
    header = None if reader.feature_names is None else 0
    how = {"header": header, "float_precision": "round_trip", "encoding_errors": "replace", "dtype": np.float64}
    return import_module("pandas").read_csv(path, sep=between, skipinitialspace=True, **how)


def _read_npz(path: Path, reader: Any) -> Any:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[reader.array]


def _read_mat(path: Path, reader: Any) -> Any:
    return import_module("scipy.io").loadmat(path, variable_names=[reader.array])[reader.array]  # others may be damaged


def _read_hdf5(path: Path, reader: Any) -> Any:
    with import_module("h5py").File(path, "r") as file:
        return file[reader.array][()]


def _read_arrow(path: Path, reader: Any) -> Any:
    table = import_module("pyarrow.feather").read_table(path, columns=list(reader.columns), memory_map=False)
    return np.column_stack([column.to_numpy() for column in table.columns])


LIBRARIES: dict[str, Callable[[Path, Any], Any]] = {
    ".csv": partial(_read_text, ","),
    ".tsv": partial(_read_text, "\t"),
    ".txt": partial(_read_text, r"\s+"),
    ".npz": _read_npz,
    ".mat": _read_mat,
    ".h5": _read_hdf5,
    ".arrow": _read_arrow,
    ".safetensors": lambda path, reader: import_module("safetensors.numpy").load_file(path)[reader.array],
}
