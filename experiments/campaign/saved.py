"""Damaged models and checkpoints.

python -m experiments.campaign.saved                   # 1000 files of each of 5 kinds, 5 minutes
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from elldict import LpDictionaryLearning, LpICA, load
from elldict.archive import read_archive, write_archive
from elldict.model_file import pack
from experiments.benchmarks.study import main
from experiments.campaign.damage import Rng, choose, damage_array, damage_json
from experiments.campaign.trials import Kind, make_samples, make_study


def save_model(model: Any, path: Path) -> None:
    """Fit a model and save it."""
    model.fit(make_samples()).save(path)


def read_model(path: Path) -> Any:
    """Load a model; return all it holds, and codes and samples that it computes."""
    model: Any = load(path)
    X = make_samples()[:200]
    codes = model.transform(X)
    again = model.inverse_transform(codes)
    if not np.all(np.isfinite(codes)) or not np.all(np.isfinite(again)):
        raise AssertionError("codes or samples are not finite")
    header, arrays = pack(model)
    arrays["history"] = arrays["history"][:, :-1]  # without seconds
    return {"header": json.dumps(header, sort_keys=True), **arrays, "codes": codes, "again": again}


def edit_model(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Edit the header or an array, with the right checksum."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        with Path(file.name).open("rb") as stream:
            header, arrays = read_archive(stream, lambda _: None)
        if rng.integers(2):
            note, text = damage_json(json.dumps(header).encode(), rng)
            if note.startswith("nest"):  # no writer makes such a header
                return "header", content.replace(json.dumps(header, indent=1).encode(), text)
            header = json.loads(text)
        else:
            name = choose(sorted(arrays), rng)
            note, arrays[name] = damage_array(arrays[name], rng)
            note = f"{note} {name}"
        write_archive(file.name, header, arrays)
        return note, Path(file.name).read_bytes()


OPTIONS: dict[str, dict[str, Any]] = {
    "checkpoint of a default fit": {},
    "checkpoint of the power method": {"solver": "power", "max_iter": 12, "tol": 0.01, "random_state": 0},
}


def write_checkpoint(path: Path, options: dict[str, Any]) -> None:
    """Interrupt a fit halfway."""
    half = LpDictionaryLearning(**options).fit(make_samples()).n_iter_ // 2

    def stop(_: Any) -> None:
        calls.append(1)
        if len(calls) > half:
            raise KeyboardInterrupt

    calls: list[int] = []
    try:
        LpDictionaryLearning(**options).fit(make_samples(), checkpoint=path, callback=stop)
    except KeyboardInterrupt:
        return


def read_checkpoint(path: Path, options: dict[str, Any]) -> Any:
    """Resume a fit to its end."""
    model = LpDictionaryLearning(**options).fit(make_samples(), checkpoint=path, resume=True)
    if not np.all(np.isfinite(model.components_)):
        raise AssertionError("atoms are not finite")
    return {"components": model.components_, "errors": model.atom_error_, "n_iter": model.n_iter_}


def make_checkpoint_kind(name: str) -> Kind:
    """Make the kind of checkpoints of a fit."""
    options = OPTIONS[name]
    return Kind(
        "checkpoint.npz",
        lambda path: write_checkpoint(path, options),
        lambda path: read_checkpoint(path, options),
        is_checked=True,
    )


MODELS: dict[str, Any] = {
    "dictionary": LpDictionaryLearning(),
    "whitened dictionary": LpDictionaryLearning(4, whiten=True, center=True, transform_algorithm="top_k"),
    "LpICA": LpICA(normalize="samples"),
}
KINDS = {
    **{
        name: Kind(
            "model.npz", lambda path, model=model: save_model(model, path), read_model, edit_model, is_checked=True
        )
        for name, model in MODELS.items()
    },
    **{name: make_checkpoint_kind(name) for name in OPTIONS},
}
STUDY = make_study("saved", KINDS, 5)

if __name__ == "__main__":
    main(STUDY, __doc__)
