"""Damaged models and checkpoints.

python -m experiments.campaign.damaged_models                   # 1000 files of each of 5 kinds, 5 minutes

Models are also edited in well-formed ways, with the right checksum; a checkpoint is trusted if its checksums are right.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning, LpICA, load
from elldict.archive import read_archive, write_archive
from elldict.model_file import pack
from experiments.benchmarks.study import main
from experiments.campaign.damage import Rng, choose, damage_array, damage_json
from experiments.campaign.trials import Kind, make_samples, make_study


def save_model(path: Path, model: Any) -> None:
    """Fit a model and save it."""
    model.fit(make_samples()).save(path)


def read_model(path: Path) -> Any:
    """Load a model; return all it holds, and codes and samples that it computes."""
    model: Any = load(path)
    codes = model.transform(make_samples()[:200])
    again = model.inverse_transform(codes)
    if not np.all(np.isfinite(codes)) or not np.all(np.isfinite(again)):
        raise AssertionError("codes or samples are not finite")
    header, arrays = pack(model)
    arrays["history"] = arrays["history"][:, :-1]  # without seconds
    return {"header": json.dumps(header, sort_keys=True), **arrays, "codes": codes, "again": again}


def edit_model(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Edit the header or an array, with the right checksum."""
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(content)
        with path.open("rb") as stream:
            header, arrays = read_archive(stream, lambda _: None)
        note = choose(sorted(arrays), rng)
        if rng.integers(2):
            note, text = damage_json(json.dumps(header).encode(), rng)
            header = json.loads(text)
        else:
            arrays[note] = damage_array(arrays[note], rng)
        write_archive(path, header, arrays)
        return note, path.read_bytes()


def write_checkpoint(path: Path, options: dict[str, Any]) -> None:
    """Interrupt a fit halfway."""
    half, calls = LpDictionaryLearning(**options).fit(make_samples()).n_iter_ // 2, []

    def stop(_: Any) -> None:
        calls.append(1)
        if len(calls) > half:
            raise KeyboardInterrupt

    try:
        LpDictionaryLearning(**options).fit(make_samples(), checkpoint=path, callback=stop)
    except KeyboardInterrupt:
        return


def resume(path: Path, options: dict[str, Any]) -> Any:
    """Resume a fit to its end."""
    model = LpDictionaryLearning(**options).fit(make_samples(), checkpoint=path, resume=True)
    return {"components": model.components_, "errors": model.atom_error_, "n_iter": model.n_iter_}


MODELS: dict[str, Any] = {
    "dictionary": LpDictionaryLearning(),
    "whitened dictionary": LpDictionaryLearning(4, whiten=True, center=True, transform_algorithm="top_k"),
    "LpICA": LpICA(normalize="samples"),
}
FITS: dict[str, dict[str, Any]] = {
    "checkpoint of a default fit": {},
    "checkpoint of the power method": {"solver": "power", "max_iter": 12, "tol": 0.01, "random_state": 0},
}
KINDS = {
    **{
        name: Kind("model.npz", partial(save_model, model=model), read_model, edit_model, True)
        for name, model in MODELS.items()
    },
    **{
        name: Kind(
            "checkpoint.npz", partial(write_checkpoint, options=options), partial(resume, options=options), None, True
        )
        for name, options in FITS.items()
    },
}
STUDY = make_study("damaged_models", KINDS, 5)

if __name__ == "__main__":
    main(STUDY, __doc__)
