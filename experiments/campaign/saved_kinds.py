"""What the library itself saves: models, models of streams, and checkpoints; damaged, and used again."""

from __future__ import annotations

import io
import sqlite3
import tempfile
import time
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old.persistence import pack_model
from elldict._old.record_file import RecordFile, _add_to_checksum
from experiments.campaign.damage import Rng, damage_bytes, damage_json, damage_npy_header, damage_values
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

# --- models -----------------------------------------------------------------------------------------------------------


def make_models() -> list[Original]:
    X = make_samples()
    models = [
        LpDictionaryLearning(random_state=0),
        LpDictionaryLearning(random_state=0, whiten=True, center=True, n_components=4, transform_algorithm="omp"),
        LpICA(random_state=0),
        LpDictionaryLearning(random_state=0, refine="mixture", transform_algorithm="threshold", transform_alpha=0.1),
    ]
    return [_save_model(model.fit(X)) for model in models]


def make_stream_models() -> list[Original]:
    """Of streams: one that still collects samples, one that goes on from batch to batch, and one of an LpICA."""
    X = np.vstack([make_samples()] * 4)
    few = LpDictionaryLearning(random_state=0).partial_fit(X[:300])
    streams = [LpDictionaryLearning(random_state=0, half_life=5000), LpICA(random_state=0)]
    for model in streams:
        for start in range(0, len(X), 2400):
            model.partial_fit(X[start : start + 2400])
    return [_save_model(model) for model in (few, *streams)]


def _save_model(model: Any) -> Original:
    """A file that is the same whenever it is made: without the time."""
    model.history_ = tuple(replace(row, seconds=0.0) for row in model.history_)
    new_year = time.struct_time((1980, 1, 1, 0, 0, 0, 1, 1, 0))
    with tempfile.TemporaryDirectory() as folder, mock.patch("zipfile.time.localtime", return_value=new_year):
        model.save(Path(folder, "model.npz"))
        return Original("model.npz", list_files(Path(folder)), _use_model(model))


def damage_model(original: Original, rng: Rng) -> Damaged:
    """Bytes of the archive, or of a member that gets a right checksum."""
    if rng.integers(3) == 0:
        return damage_one(original, original.target, rng, may_differ=False)
    with zipfile.ZipFile(io.BytesIO(original.files[original.target])) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    at = 0 if rng.integers(2) else int(rng.integers(len(members)))
    name, content = members[at]
    what, method = int(rng.integers(10)), zipfile.ZIP_STORED
    if what == 0:
        note, members = f"no member {name}", members[:at] + members[at + 1 :]
    elif what == 1:
        note, members = f"two members {name}", [*members, members[int(rng.integers(len(members)))]]
    elif what == 2:
        note, method = "compressed", zipfile.ZIP_DEFLATED
    elif what == 3:
        note, members[at] = f"another name for {name}", (("../evil.npy", "/evil.npy", "evil.npy")[at % 3], content)
    else:
        damages = (damage_json,) if name.endswith(".json") else (damage_npy_header, damage_values)
        note, changed = (*damages, damage_bytes)[int(rng.integers(len(damages) + (what == 4)))](content, rng)
        note, members[at] = f"{note} in {name}", (name, changed)
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")  # two of the same name
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return Damaged(note, {original.target: stream.getvalue()}, may_differ=True)


def use_model(original: Original, path: Path) -> bool:
    model = elldict.load(path)
    found = _use_model(model)
    if are_same(found, original.answer):
        return True
    stored = np.load(path, allow_pickle=False)
    for name, array in pack_model(model)[1].items():
        if name in stored.files and not np.array_equal(stored[name], array, equal_nan=True):
            raise WrongError(f"{name} is not what the file holds")
    return False


def _use_model(model: Any) -> dict[str, Any]:
    """All that a model holds, and what it makes of samples; a model from a file has no stream to go on with."""
    X = make_samples()[:200]
    codes = model.transform(X)
    likelihood = model.score_samples(X) if hasattr(model, "score_samples") else np.zeros(1)
    again = model.inverse_transform(codes)
    for name, array in (("codes", codes), ("samples", again), ("likelihoods", likelihood)):
        # of a sample so far away that its likelihood is zero, the logarithm is minus infinity
        if not np.all(np.isfinite(array) | ((name == "likelihoods") & (array == -np.inf))):
            raise WrongError(f"{name} are not finite")
    header, arrays = pack_model(model)
    return {**header, **arrays, "codes": codes, "again": again, "likelihood": likelihood}


def use_stream_model(original: Original, path: Path) -> bool:
    same = use_model(original, path)
    model = elldict.load(path)
    try:
        model.partial_fit(make_samples())
    except ValueError as error:
        if "comes from a file" not in str(error):
            raise
        return same
    raise WrongError("a model from a file went on as a stream")


# --- checkpoints ------------------------------------------------------------------------------------------------------

CHECKPOINTED: tuple[dict[str, Any], ...] = (
    {"solver": "power", "refine": None, "max_iter": 12, "tol": 0.01},
    {"solver": "power", "whiten": True, "center": True, "refine": None, "n_init": 2, "max_iter": 5, "tol": 0.05},
    {},
)


def make_checkpoints() -> list[Original]:
    """Of fits that were interrupted half way, by an error and by a kill, which leaves a log beside the file."""
    originals = []
    for options in CHECKPOINTED:
        answer = _fit_with(options, None)
        for killed in (False, True):
            with tempfile.TemporaryDirectory() as name:
                _interrupt(options, Path(name, "checkpoint"), len(answer["history"]) // 2, killed=killed)
                files = list_files(Path(name))
            files.pop("checkpoint-shm", None)
            originals.append(Original("checkpoint", files, answer, options))
    return originals


def _interrupt(options: Mapping[str, Any], path: Path, at: int, *, killed: bool) -> None:
    """Leave the checkpoint of a fit that was interrupted at an iteration; of a killed one, copies of that moment."""
    copies: Files = {}

    def stop(_: Any) -> None:
        if len(calls) == at:
            copies.update(list_files(path.parent))
            raise KeyboardInterrupt
        calls.append(1)

    calls: list[int] = []
    try:
        _make_model(options).fit(make_samples(), checkpoint=path, callback=stop)
    except KeyboardInterrupt:
        if killed:
            write_files(copies, path.parent)


def _make_model(options: Mapping[str, Any]) -> LpDictionaryLearning:
    return LpDictionaryLearning(random_state=0, **options)


def _fit_with(options: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    model = _make_model(options).fit(make_samples(), checkpoint=path, resume=path is not None)
    model.history_ = tuple(replace(row, seconds=0.0) for row in model.history_)
    header, arrays = pack_model(model)
    return {**header, **arrays}


def damage_checkpoint(original: Original, rng: Rng) -> Damaged:
    """Bytes of the file or of its log, or rows that get a right checksum."""
    names = sorted(original.files)
    if len(names) == 1 and rng.integers(2):
        return _craft_checkpoint(original, rng)
    name = names[int(rng.integers(len(names)))]
    if len(names) > 1 and rng.integers(12) == 0:
        return Damaged(f"no {name}", {key: data for key, data in original.files.items() if key != name}, False)
    return damage_one(original, name, rng, may_differ=False)


def _craft_checkpoint(original: Original, rng: Rng) -> Damaged:
    content = bytearray(original.files[original.target])
    content[18:20] = b"\1\1"  # a database in memory knows no log
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(bytes(content))
        rows = database.execute("SELECT number, words, arrays FROM part ORDER BY number").fetchall()
        note, rows = _damage_rows(rows, rng)
        database.execute("DELETE FROM part")
        checksum = 0
        for number, words, data in rows:
            database.execute("INSERT INTO part VALUES (?, ?, ?)", (number, words, data))
            checksum = _add_to_checksum(checksum, number, words, data)
        database.execute(f"PRAGMA user_version = {checksum - 2**31}")
        content = bytearray(database.serialize())
    content[18:20] = b"\2\2"
    return Damaged(note, {original.target: bytes(content)}, may_differ=True)


def _damage_rows(rows: list[Any], rng: Rng) -> tuple[str, list[Any]]:
    """Edit, delete, double or exchange rows; the first is the header."""
    at = int(rng.integers(len(rows))) if rng.integers(4) else 0
    number, words, data = rows[at]
    what = int(rng.integers(8))
    if what == 0:
        return f"no row {at}", rows[:at] + rows[at + 1 :]
    if what == 1:
        return f"row {at} twice", [*rows, (rows[-1][0] + 1, words, data)]
    if what == 2:
        other = int(rng.integers(len(rows)))
        rows[at], rows[other] = (number, *rows[other][1:]), (rows[other][0], words, data)
        return f"rows {at} and {other} exchanged", rows
    if what == 3:
        return f"rows up to {at}", rows[: at + 1]
    if not data or what in (4, 5):
        note, text = damage_json(words.encode(), rng)
        rows[at] = (number, text.decode(), data)
    else:
        note, data = (damage_npy_header, damage_values, damage_bytes)[int(rng.integers(3))](data, rng)
        rows[at] = (number, words, data)
    return f"{note} in row {at}", rows


def use_checkpoint(original: Original, path: Path) -> bool:
    assert original.options is not None
    found = _fit_with(original.options, path)
    if are_same(found, original.answer):
        return True
    if not all(np.all(np.isfinite(found[name])) for name in ("atoms", "unmixing")):
        raise WrongError("atoms are not finite")
    if not np.allclose(found["unmixing"] @ found["atoms"].T, np.eye(len(found["atoms"])), atol=1e-6):
        raise WrongError("atoms do not belong to the samples")
    with closing(RecordFile.open(path)) as file:
        if not file.records:
            raise WrongError("the checkpoint has lost its records")
    return False
