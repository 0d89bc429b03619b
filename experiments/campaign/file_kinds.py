"""Kinds of files that are damaged: how originals are written, how they are damaged, and how they are used."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from experiments.campaign.original import Damaged, Kind, Original, PlacedFiles, WrongError
from experiments.campaign.sample_kinds import (
    damage_npy,
    damage_parquet,
    damage_zarr,
    make_npy,
    make_parquet,
    make_zarr,
    use_samples,
)
from experiments.campaign.saved_kinds import (
    damage_checkpoint,
    damage_model,
    make_checkpoints,
    make_models,
    make_stream_models,
    use_checkpoint,
    use_model,
    use_stream_model,
)
from experiments.campaign.table_kinds import (
    damage_table,
    make_arrow,
    make_hdf5,
    make_mat,
    make_npz,
    make_safetensors,
    make_text,
    read_by_library,
)

use_table = partial(use_samples, read=read_by_library)

KINDS: dict[str, Kind] = {
    "model": Kind(make_models, damage_model, use_model),
    "checkpoint": Kind(make_checkpoints, damage_checkpoint, use_checkpoint),
    "npy": Kind(make_npy, damage_npy, use_samples),
    "zarr": Kind(make_zarr, damage_zarr, use_samples),
    "parquet": Kind(make_parquet, damage_parquet, use_samples),
    "text": Kind(make_text, damage_table, use_table),
    "npz": Kind(make_npz, damage_table, use_table),
    "mat": Kind(make_mat, damage_table, use_table),
    "hdf5": Kind(make_hdf5, damage_table, use_table),
    "arrow": Kind(make_arrow, damage_table, use_table),
    "safetensors": Kind(make_safetensors, damage_table, use_table),
    "stream": Kind(make_stream_models, damage_model, use_stream_model),
}
"""By the name that the command takes. Nothing but pickle keeps the state of a stream, and a pickle may run anything:
what is damaged is the model file of a stream, which does not go on."""


@cache
def make_originals(kind: str) -> list[Original]:
    """Originals of a kind, each of which gives its own answer."""
    originals = KINDS[kind].originals()
    for original in originals:
        with PlacedFiles(original.files) as folder:
            if not KINDS[kind].use(original, folder / original.target):
                raise WrongError(f"an undamaged {kind} gives other numbers")
    return originals


def damage(kind: str, seed: int, number: int) -> tuple[Original, Damaged]:
    """Damaged file of a number: the same whenever it is made, but for random marks in the logs of SQLite."""
    originals = make_originals(kind)
    original = originals[number % len(originals)]
    rng = np.random.default_rng([seed, sorted(KINDS).index(kind), number])
    damaged = KINDS[kind].damage(original, rng)
    while damaged.files == original.files:  # zeros overwritten by zeros, or a block exchanged with its like
        damaged = KINDS[kind].damage(original, rng)
    return original, damaged
