"""The command line with files of other programs: what it reads and writes, and what it says to programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.io

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old import cli
from elldict.datasets import make_bernoulli_gaussian

NAMES = ["age", "height, in cm", "x", "y", "z", "π"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def samples():
    return make_bernoulli_gaussian(1500, len(NAMES), density=0.3, random_state=3)[0]


@pytest.fixture(scope="module")
def fitted(samples):
    return LpDictionaryLearning(p=4, random_state=5).fit(pd.DataFrame(samples, columns=NAMES))


@pytest.fixture
def ask(capsys, tmp_path, monkeypatch, samples, fitted):
    """Run the command line in a folder with samples and a model."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(samples, columns=NAMES).to_csv("data.csv", index=False)
    fitted.save("model.npz")

    def run(*arguments: str) -> Outcome:
        code = cli.run(arguments)
        return Outcome(code, *capsys.readouterr())

    return run


def tell(outcome):
    """The JSON object that a command has printed, and nothing else."""
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.count("\n") == 1
    return json.loads(outcome.out)


def is_mistake(outcome, words):
    return (
        (outcome.code, outcome.out) == (2, "")
        and outcome.err.startswith("elldict: error: ")
        and outcome.err.count("\n") == 1
        and words in outcome.err
    )


def write_all(samples):
    np.savez("data.npz", X=samples, other=samples[:, :3])
    scipy.io.savemat("data.mat", {"X": samples})
    with h5py.File("data.h5", "w") as file:
        file["group/X"] = samples
    pyarrow.feather.write_feather(pd.DataFrame(samples, columns=NAMES), "data.feather")


@pytest.mark.parametrize("data", ["data.csv", "data.npz:X", "data.mat", "data.h5:/group/X", "data.feather"])
def test_fit_transform_and_score_read_every_file(ask, samples, data):
    write_all(samples)
    here = LpDictionaryLearning(random_state=7).fit(samples)
    assert ask("fit", data, "-o", "new.npz", "--seed", "7").code == 0
    there = elldict.load("new.npz")
    np.testing.assert_array_equal(there.components_, here.components_)
    assert list(getattr(there, "feature_names_in_", NAMES)) == NAMES
    assert ask("transform", "new.npz", data, "-o", "codes.npy").code == 0
    np.testing.assert_array_equal(np.load("codes.npy"), here.transform(samples))
    assert tell(ask("score", "new.npz", data, "--json")) == {"samples": 1500, "log_likelihood": here.score(samples)}


READERS = {
    ".csv": pd.read_csv,
    ".tsv": lambda path: pd.read_csv(path, sep="\t"),
    ".parquet": lambda path: pyarrow.parquet.read_table(path).to_pandas(),
    ".feather": pd.read_feather,
}


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_codes_in_a_table_are_those_in_memory_and_have_names(ask, samples, fitted, monkeypatch, suffix, dtype):
    monkeypatch.setattr("elldict._old.data.file.rows_per_tile", lambda *_: 100)  # many tiles, by several threads
    np.save("data.npy", samples.astype(dtype))
    LpDictionaryLearning(p=4, random_state=5).fit(samples).save("model.npz")  # without names of features
    told = tell(ask("transform", "model.npz", "data.npy", "-o", f"codes{suffix}", "--algorithm", "omp", "--json"))
    expected = elldict.load("model.npz").set_params(transform_algorithm="omp").transform(samples.astype(dtype))
    share = np.count_nonzero(expected) / expected.size
    facts = {"samples": 1500, "atoms": 6, "algorithm": "omp", "nonzero_share": share, "codes": f"codes{suffix}"}
    assert told == facts
    table = READERS[suffix](f"codes{suffix}")
    assert list(table.columns) == list(fitted.get_feature_names_out())
    np.testing.assert_array_equal(table.to_numpy().astype(dtype), expected)
    rows = elldict.open_samples(f"codes{suffix}")
    np.testing.assert_array_equal(rows.take(np.arange(1500)).astype(dtype), expected)


def test_a_table_that_fails_half_way_is_not_there(ask, samples, fitted):
    bad = samples.copy()
    bad[1400, 2] = np.nan
    np.save("bad.npy", bad)
    LpDictionaryLearning(p=4, random_state=5).fit(samples).save("model.npz")
    for suffix in READERS:
        assert is_mistake(ask("transform", "model.npz", "bad.npy", "-o", f"codes{suffix}"), "NaN in sample 1400")
        assert not Path(f"codes{suffix}").exists()
    assert sorted(path.name for path in Path().iterdir()) == ["bad.npy", "data.csv", "model.npz"]


def test_the_way_back(ask, samples, fitted):
    fitted.transform(pd.DataFrame(samples, columns=NAMES), out="codes.npy")
    expected = fitted.inverse_transform(np.load("codes.npy"))
    outcome = ask("inverse", "model.npz", "codes.npy", "-o", "back.npy", "--block-size", "100")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Rebuilt 1500 samples of 6 features" in outcome.out
    # products of tiles and of the whole add up in other orders: a few roundings of numbers of size 10
    np.testing.assert_allclose(np.load("back.npy"), expected, atol=1e-13)
    np.testing.assert_allclose(np.load("back.npy"), samples, atol=1e-12)
    assert tell(ask("inverse", "model.npz", "codes.npy", "-o", "back.csv", "--json"))["features"] == 6
    assert list(pd.read_csv("back.csv").columns) == NAMES
    assert is_mistake(ask("inverse", "model.npz", "codes.npy", "-o", "codes.npy", "--force"), "also an input")
    np.save("narrow.npy", samples[:, :4])
    words = "Codes of shape (1500, 4) given, expected (n_samples, n_components_=6)"
    assert is_mistake(ask("inverse", "model.npz", "narrow.npy", "-o", "new.npy"), words)


@pytest.mark.parametrize("suffix", [".npy", ".zarr", *READERS])
def test_cleaned_samples_are_written_in_every_format(ask, samples, fitted, suffix):
    expected = fitted.denoise(pd.DataFrame(samples, columns=NAMES))
    for name, options in (("said", ()), ("told", ("--json",))):
        outcome = ask("denoise", "model.npz", "data.csv", "-o", f"{name}{suffix}", *options)
        assert (outcome.code, outcome.err) == (0, "")
        rows = elldict.open_samples(f"{name}{suffix}")
        # a text holds all digits, and products of tiles and of the whole add up in other orders
        np.testing.assert_allclose(rows.take(np.arange(1500)), expected, atol=1e-12)
        if suffix in READERS:
            assert list(READERS[suffix](f"{name}{suffix}").columns) == NAMES
        if name == "said":
            assert "Cleaned 1500 samples of 6 features" in outcome.out
        else:
            told = json.loads(outcome.out)
            assert (told["samples"], told["features"], told["file"]) == (1500, 6, f"told{suffix}")


def test_a_mistake_names_the_file_and_the_help_of_the_command(ask, samples):
    LpDictionaryLearning(p=4, random_state=5).fit(samples).save("model.npz")  # without names of features
    np.save("narrow.npy", samples[:, :4])
    for command in ("transform", "denoise", "report"):
        outcome = ask(command, "model.npz", "narrow.npy", "-o", "new.npy")
        assert is_mistake(outcome, "narrow.npy: X has 4 features")
    assert is_mistake(ask("score", "model.npz", "narrow.npy"), "narrow.npy: X has 4 features")
    assert is_mistake(ask("report", "model.npz"), "See 'elldict report --help'.")
    assert is_mistake(ask("--wrong"), "See 'elldict --help'.")


def test_codes_on_disk_are_decoded_in_python_too(tmp_path, samples, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = LpICA(3, random_state=0).fit(samples)
    codes = model.transform(samples)
    np.save("codes.npy", codes)
    expected = model.inverse_transform(codes)
    np.testing.assert_allclose(model.inverse_transform("codes.npy"), expected, atol=1e-13)
    written = model.inverse_transform(codes, out="back.npy")
    np.testing.assert_allclose(written, expected, atol=1e-13)
    with pytest.raises(ValueError, match="is also the input"):
        model.inverse_transform("codes.npy", out="codes.npy")


def test_codes_with_names_in_memory_or_in_a_file(tmp_path, samples):
    frame = pd.DataFrame(samples, columns=NAMES)
    model = LpDictionaryLearning(random_state=0).set_output(transform="pandas").fit(frame)
    expected = model.transform(frame)
    assert list(expected.columns) == list(model.get_feature_names_out())
    pd.testing.assert_frame_equal(model.transform(frame, out=tmp_path / "codes.npy"), expected)
    with pytest.raises(ValueError, match=r"codes\.csv' leaves the codes in a file, and set_output"):
        model.transform(frame, out=tmp_path / "codes.csv")
    assert not (tmp_path / "codes.csv").exists()
    assert model.set_output(transform="default").transform(frame, out=tmp_path / "codes.csv") == tmp_path / "codes.csv"
    pd.testing.assert_frame_equal(READERS[".csv"](tmp_path / "codes.csv"), expected)


def test_atoms_are_exported(ask, fitted):
    atoms = fitted.components_
    for suffix in (".csv", ".tsv", ".npy", ".npz", ".mat"):
        outcome = ask("export", "model.npz", "-o", f"atoms{suffix}")
        assert (outcome.code, outcome.err) == (0, "")
    for suffix in (".csv", ".tsv"):
        table = READERS[suffix](f"atoms{suffix}")
        assert list(table.columns) == NAMES
        np.testing.assert_array_equal(table, atoms)
    np.testing.assert_array_equal(np.load("atoms.npy"), atoms)
    with np.load("atoms.npz") as arrays:
        np.testing.assert_array_equal(arrays["atoms"], atoms)
        np.testing.assert_array_equal(arrays["atom_error"], fitted.atom_error_)
        assert list(arrays["feature_names"]) == NAMES
    found = scipy.io.loadmat("atoms.mat")
    np.testing.assert_array_equal(found["atoms"], atoms)
    np.testing.assert_array_equal(found["unmixing"], fitted.unmixing_)
    assert is_mistake(ask("export", "model.npz", "-o", "atoms.xls"), "should end in .csv, .tsv, .npy, .npz or .mat")
    assert is_mistake(ask("export", "model.npz", "-o", "atoms.csv"), "--force")
    assert is_mistake(ask("export", "model.npz", "-o", "model.npz", "--force"), "also an input")


def test_atoms_of_independent_components_are_what_mixes(ask, samples):
    model = LpICA(3, random_state=0).fit(samples)
    model.save("ica.npz")
    assert ask("export", "ica.npz", "-o", "atoms.csv").code == 0
    table = READERS[".csv"]("atoms.csv")
    assert list(table.columns) == [f"x{k}" for k in range(6)]
    np.testing.assert_array_equal(table, model.mixing_.T)


def test_programs_are_told_all_digits(ask, fitted):
    told = tell(ask("fit", "data.csv", "-o", "new.npz", "--seed", "5", "--p", "4", "--json"))
    assert (told["samples"], told["features"]) == (1500, 6)
    assert told["model"] == "new.npz"
    assert told["seconds"] > 0
    for name in ("objective", "expected_error", "noise_std", "n_iter", "n_passes", "status", "converged", "refined"):
        assert told[name] == getattr(fitted, f"{name}_")
    for name in ("density", "scale", "atom_error"):
        assert told[name] == getattr(fitted, f"{name}_").tolist()
    shown = tell(ask("info", "new.npz", "--json"))
    assert shown["class"] == "LpDictionaryLearning"
    assert shown["feature_names"] == NAMES
    assert shown["parameters"]["p"] == 4
    assert shown["objective"] == fitted.objective_
    quiet = ask("fit", "data.csv", "-o", "new.npz", "--seed", "5", "--p", "4", "--json", "--quiet", "--force")
    assert {**tell(quiet), "seconds": 0} == {**told, "seconds": 0}


def test_errors_of_atoms_that_nobody_knows_are_null(ask, samples):
    """JSON knows no infinity: atoms beyond the rank of the samples have no error."""
    np.save("flat.npy", np.column_stack([samples, samples[:, 0]]))
    outcome = ask("fit", "flat.npy", "-o", "new.npz", "--seed", "0", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["atom_error"][-1] is None


def test_halves_and_groups_are_options_of_fit(ask, samples, monkeypatch):
    given = {}
    really_fit = LpDictionaryLearning.fit

    def keep(model, X, *, groups=None, **more):
        given.update(groups=groups, halves=model.halves)
        return really_fit(model, X, groups=groups, **more)

    monkeypatch.setattr(LpDictionaryLearning, "fit", keep)
    labels = np.arange(1500) // 100
    np.save("groups.npy", labels)
    Path("groups.txt").write_text("\n".join(f"person {label}" for label in labels) + "\n")
    for file in ("groups.npy", "groups.txt"):
        assert ask("fit", "data.csv", "-o", "new.npz", "--groups", file, "--halves", "--force", "--seed", "0").code == 0
        assert given["halves"] is True
        expected = labels if file == "groups.npy" else [f"person {label}" for label in labels]
        np.testing.assert_array_equal(given["groups"], expected)
    assert ask("fit", "data.csv", "-o", "new.npz", "--no-halves", "--force", "--seed", "0").code == 0
    assert given == {"groups": None, "halves": False}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fit data.csv -o new.npz --groups groups.npy --no-halves", "--groups does nothing with --no-halves"),
        ("fit data.csv -o new.npz --groups short.txt", "groups"),
        ("fit data.csv -o new.npz --groups none.txt", "none.txt: No such file"),
        ("fit data.npz:X -o data.npz --force", "also an input"),
        ("fit data.npz:X -o new.npz --checkpoint data.npz", "also the input or the output"),
        ("fit data.npz:Y -o new.npz", "has no array 'Y'; its arrays are 'X' (1500, 6), 'other' (1500, 3)"),
        ("fit data.csv -o new.npz --column weight", "has no column 'weight'; its columns are 'age', 'height, in cm'"),
        ("fit ragged.csv -o new.npz", "ragged.csv, line 3 has 1 columns, expected 2"),
        ("transform model.npz data.csv -o data.csv --force", "also an input"),
        ("transform model.npz data.csv -o codes.xls", "codes.xls should end in .npy, .zarr, .csv"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(ask, samples, command, words):
    write_all(samples)
    np.save("groups.npy", np.arange(1500) // 100)
    Path("short.txt").write_text("a\nb\n")
    Path("ragged.csv").write_text("a,b\n1,2\n3\n")
    before = Path("data.npz").read_bytes(), Path("data.csv").read_bytes()
    outcome = ask(*command.split())
    assert is_mistake(outcome, words), outcome
    assert (Path("data.npz").read_bytes(), Path("data.csv").read_bytes()) == before
    assert not Path("new.npz").exists()


def test_shells_complete_commands(tmp_path):
    path = {**os.environ, "PYTHONPATH": str(Path(elldict.__file__).parents[1])}
    words = {"_ELLDICT_COMPLETE": "complete_bash", "COMP_WORDS": "elldict inf", "COMP_CWORD": "1"}
    run = [sys.executable, "-m", "elldict"]
    done = subprocess.run(run, env={**path, **words}, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "info" in done.stdout.split()
    shown = subprocess.run(
        [*run, "--show-completion", "bash"], env=path, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "_ELLDICT_COMPLETE" in shown.stdout
