"""Atoms for other programs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elldict._old.atomic import write_atomically
from elldict._old.backend.base import to_numpy
from elldict._old.data.tables import DELIMITERS, open_table
from elldict._old.validation import name_features

if TYPE_CHECKING:
    from elldict._old.estimator import LpEstimator

SUFFIXES = (*DELIMITERS, ".npy", ".npz", ".mat")


def write_atoms(model: LpEstimator, path: Path) -> None:
    """Write atoms (m, n) in the format that the name says."""
    atoms = np.ascontiguousarray(to_numpy(model.mixing_).T)
    if path.suffix in DELIMITERS:
        with open_table(path, name_features(model), str(atoms.dtype)) as table:
            table.write(0, atoms)
        return
    stream = io.BytesIO()
    if path.suffix == ".npy":
        np.save(stream, atoms)
    elif path.suffix == ".npz":
        np.savez(stream, **list_arrays(model))
    elif path.suffix == ".mat":
        import scipy.io  # noqa: PLC0415

        scipy.io.savemat(stream, list_arrays(model))
    else:
        raise ValueError(f"output {path} should end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
    write_atomically(path, lambda file: file.write(stream.getbuffer()))


def list_arrays(model: LpEstimator) -> dict[str, Any]:
    """Atoms, what makes codes, and what the fit says of each atom."""
    arrays = {"atoms": to_numpy(model.mixing_).T, "unmixing": to_numpy(model.unmixing_), "mean": to_numpy(model._mean)}
    arrays |= {name: to_numpy(getattr(model, f"{name}_")) for name in ("density", "scale", "atom_error")}
    return {**arrays, "feature_names": np.array(name_features(model), dtype=str)}
