"""Damaged files of samples.

python -m experiments.campaign.damaged_files                   # 1000 files of each of 11 kinds, 10 minutes
python -m experiments.campaign.damaged_files --only parquet
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elldict import open_samples
from elldict.checkpoint import digest_samples
from experiments.benchmarks.study import main
from experiments.campaign.damage import damage_npy
from experiments.campaign.trials import Kind, make_samples, make_study
from experiments.peers.base import required


def read(path: Path) -> Any:
    """Open samples and read all of them."""
    samples = open_samples(path)
    return {"shape": samples.shape, "names": samples.feature_names, "digest": digest_samples(samples)}


def make_table() -> Any:
    """Make a table of pyarrow."""
    return required("pyarrow", "pyarrow").table({f"c{i}": column for i, column in enumerate(make_samples().T)})


def write_csv(path: Path) -> None:
    """Write numbers with a header."""
    np.savetxt(path, make_samples(), delimiter=",", header=",".join(f"c{i}" for i in range(6)), comments="")


def write_parquet(path: Path) -> None:
    """Write several row groups."""
    required("pyarrow.parquet", "pyarrow").write_table(make_table(), path, row_group_size=500, write_page_checksum=True)


def write_hdf5(path: Path) -> None:
    """Write chunks with checksums."""
    with required("h5py", "h5py").File(path, "w", track_order=False) as file:
        file.create_dataset("X", data=make_samples(), chunks=(300, 6), fletcher32=True)


def write_zarr(path: Path) -> None:
    """Write chunks in a folder."""
    array = required("zarr", "zarr").create_array(str(path), shape=(1200, 6), chunks=(500, 6), dtype="f8")
    array[:] = make_samples()


KINDS = {
    "npy": Kind("x.npy", lambda path: np.save(path, make_samples()), read, damage_npy),
    "npz": Kind("x.npz", lambda path: np.savez(path, X=make_samples()), read),
    "compressed npz": Kind("x.npz", lambda path: np.savez_compressed(path, X=make_samples()), read),
    "csv": Kind("x.csv", write_csv, read),
    "txt": Kind("x.txt", lambda path: np.savetxt(path, make_samples()), read),
    "parquet": Kind("x.parquet", write_parquet, read),
    "feather": Kind(
        "x.feather", lambda path: required("pyarrow.feather", "pyarrow").write_feather(make_table(), path), read
    ),
    "hdf5": Kind("x.h5", write_hdf5, read),
    "zarr": Kind("x.zarr", write_zarr, read),
    "mat": Kind("x.mat", lambda path: required("scipy.io", "scipy").savemat(path, {"X": make_samples()}), read),
    "safetensors": Kind(
        "x.safetensors",
        lambda path: required("safetensors.numpy", "safetensors").save_file({"X": make_samples().copy()}, path),
        read,
    ),
}
STUDY = make_study("damaged_files", KINDS, 10)

if __name__ == "__main__":
    main(STUDY, __doc__)
