"""The command line: what it does, and one clear line for whatever a user gets wrong."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import elldict
from elldict import LpDictionaryLearning, LpICA
from elldict._old import cli
from elldict._old.backend.host_kernels import describe_kernels
from elldict._old.cli.wording import name_options
from elldict._old.data.writers import NpyWriter
from elldict.datasets import make_bernoulli_gaussian

N_FEATURES = 6


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def ask(capsys, tmp_path, monkeypatch):
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        code = cli.run(arguments)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def samples():
    return make_bernoulli_gaussian(1500, N_FEATURES, density=0.3, random_state=3)[0]


@pytest.fixture
def files(tmp_path, samples):
    """A good data file and a good model, in the folder where commands run."""
    np.save(tmp_path / "data.npy", samples)
    LpDictionaryLearning(p=4, random_state=5).fit(samples).save(tmp_path / "model.npz")
    return tmp_path


def interrupted(arguments, at, monkeypatch):
    """Run the command line until Ctrl-C is pressed in a pass over the samples."""
    dataset = type(elldict.open_samples("data.npy"))
    passes, really_sum = iter(range(1000)), dataset.sum

    def impatient(samples, kernel):
        if next(passes) == at:
            raise KeyboardInterrupt
        return really_sum(samples, kernel)

    with monkeypatch.context() as patch:
        patch.setattr(dataset, "sum", impatient)
        return cli.run(arguments)


def test_fit_goes_on_from_a_checkpoint(ask, files, monkeypatch, capsys):
    fit = ("fit", "data.npy", "-o", "new.npz", "--seed", "1", "--checkpoint", "c.bin")
    assert interrupted(fit, 5, monkeypatch) == 130
    capsys.readouterr()
    in_the_way = ask(*fit)
    assert in_the_way.code == 2
    assert is_one_clear_line(in_the_way)
    assert "--resume" in in_the_way.err
    other = ask(*fit, "--resume", "--p", "4")
    assert other.code == 2
    assert is_one_clear_line(other)
    assert "exponents [3.0], not [4.0]" in other.err
    resumed = ask(*fit, "--resume")
    assert (resumed.code, resumed.err) == (0, "")
    expected = LpDictionaryLearning(random_state=1).fit(np.load("data.npy"))
    np.testing.assert_array_equal(elldict.load("new.npz").components_, expected.components_)


def test_independent_components(ask, files, samples):
    fitted = ask("fit", "data.npy", "-o", "ica.npz", "--ica", "--n-components", "6", "--seed", "1", "--p", "4")
    assert (fitted.code, fitted.err) == (0, "")
    expected, found = LpICA(6, p=4, random_state=1).fit(samples), elldict.load("ica.npz")
    assert type(found) is LpICA
    assert found.get_params() == expected.get_params()
    np.testing.assert_array_equal(found.components_, expected.components_)
    info = ask("info", "ica.npz")
    assert info.out.startswith("LpICA")
    assert "n_components=6, p=4" in info.out
    coded = ask("transform", "ica.npz", "data.npy", "-o", "codes.npy")
    assert (coded.code, coded.err) == (0, "")
    assert "linear" in coded.out
    np.testing.assert_array_equal(np.load("codes.npy"), expected.transform(samples))
    scored = ask("score", "ica.npz", "data.npy")
    assert f"{expected.score(samples):.6g}" in scored.out
    for arguments, words in (
        (("--algorithm", "threshold", "--alpha", "1"), "LpICA makes linear codes"),
        (("--algorithm", "omp"), "LpICA makes linear codes"),
        (("--alpha", "1"), "--alpha does nothing"),
    ):
        outcome = ask("transform", "ica.npz", "data.npy", "-o", "other.npy", *arguments)
        assert is_one_clear_line(outcome)
        assert words in outcome.err


@pytest.mark.parametrize("option", ["--center", "--no-center", "--whiten", "--no-whiten", "--whiten-all"])
def test_what_ica_implies_or_excludes_is_not_given_too(ask, files, option):
    outcome = ask("fit", "data.npy", "-o", "ica.npz", "--ica", option)
    assert is_one_clear_line(outcome)
    assert f"Leave out {option}." in outcome.err


def test_ica_knows_no_corruption(ask, files):
    outcome = ask("fit", "data.npy", "-o", "ica.npz", "--ica", "--refine", "sparse-corruption")
    assert is_one_clear_line(outcome)
    assert "'refine' parameter of LpICA" in outcome.err


def test_checkpoints_that_cannot_be(ask, files):
    for arguments, words in (
        (("--resume",), "needs checkpoint"),
        (("--checkpoint", "new.npz"), "also the input or the output"),
        (("--checkpoint", "data.npy", "--resume"), "also the input or the output"),
        (("--checkpoint", "model.npz", "--resume"), "is not a checkpoint"),
        (("--checkpoint", "nowhere/c.bin"), "no such folder"),
    ):
        outcome = ask("fit", "data.npy", "-o", "new.npz", *arguments)
        assert outcome.code == 2
        assert is_one_clear_line(outcome)
        assert words in outcome.err
    assert "new.npz" not in names_here()


def names_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def is_one_clear_line(outcome: Outcome) -> bool:
    return (
        outcome.code == 2
        and outcome.err.startswith("elldict: error: ")
        and outcome.err.count("\n") == 1
        and outcome.err.endswith("\n")
        and "Traceback" not in outcome.err
        and outcome.out == ""
    )


# --- what it does -----------------------------------------------------------------------------------------------------


def test_fit_info_transform_agree_with_the_python_api(ask, files, samples):
    fitted = ask(
        "fit", "data.npy", "-o", "new.npz", "--p", "3.5", "--n-components", "4", "--seed", "7", "--n-init", "2"
    )
    assert (fitted.code, fitted.err) == (0, "")
    here = LpDictionaryLearning(4, p=3.5, n_init=2, random_state=7).fit(samples)
    there = elldict.load("new.npz")
    assert there.get_params() == here.get_params()
    np.testing.assert_array_equal(there.components_, here.components_)
    for fact in ("1500", str(here.n_iter_), here.status_, "new.npz"):
        assert fact in fitted.out

    shown = ask("info", "new.npz")
    assert (shown.code, shown.err) == (0, "")
    for fact in ("4 of 6 features", "3.5", f"{here.objective_:.6g}", here.status_, "n_init=2", "random_state=7"):
        assert fact in shown.out
    assert "max_iter" not in shown.out, "parameters left at their default are not listed"

    coded = ask("transform", "new.npz", "data.npy", "-o", "codes.npy")
    assert (coded.code, coded.err) == (0, "")
    np.testing.assert_array_equal(np.load("codes.npy"), here.transform(samples))


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--algorithm", "omp", "--n-nonzero", "2"], {"transform_algorithm": "omp", "transform_n_nonzero_coefs": 2}),
        (["--algorithm", "threshold", "--alpha", ".3"], {"transform_algorithm": "threshold", "transform_alpha": 0.3}),
        (
            ["--algorithm", "hard_threshold", "--alpha", "1"],
            {"transform_algorithm": "hard_threshold", "transform_alpha": 1},
        ),
        (
            ["--algorithm", "hard_threshold", "--alpha", "auto"],
            {"transform_algorithm": "hard_threshold", "transform_alpha": "auto"},
        ),
    ],
)
def test_options_of_transform_are_parameters_of_the_model(ask, files, samples, options, parameters):
    assert ask("transform", "model.npz", "data.npy", "-o", "codes.npy", *options).code == 0
    expected = elldict.load("model.npz").set_params(**parameters).transform(samples)
    np.testing.assert_array_equal(np.load("codes.npy"), expected)
    assert np.mean(expected == 0) > 0.1, "the option would make no difference"


def test_denoise_writes_what_the_model_makes(ask, files, samples):
    cleaned = ask("denoise", "model.npz", "data.npy", "-o", "clean.npy")
    assert (cleaned.code, cleaned.err) == (0, "")
    model = elldict.load("model.npz")
    np.testing.assert_array_equal(np.load("clean.npy"), model.denoise(samples))
    assert ask("transform", "model.npz", "data.npy", "-o", "codes.npy", "--algorithm", "posterior").code == 0
    expected = model.set_params(transform_algorithm="posterior").transform(samples)
    np.testing.assert_array_equal(np.load("codes.npy"), expected)
    assert "exists" in ask("denoise", "model.npz", "data.npy", "-o", "clean.npy").err


def test_options_of_fit_are_parameters_of_the_model(ask, files):
    options = ["--center", "--whiten", "--max-iter", "77", "--tol", "1e-3", "--quiet"]
    outcome = ask("fit", "data.npy", "-o", "new.npz", *options)
    assert outcome == Outcome(0, "", "")
    wanted = {"center": True, "whiten": True, "max_iter": 77, "tol": 1e-3, "random_state": None}
    assert wanted.items() <= elldict.load("new.npz").get_params().items()


@pytest.mark.parametrize(
    ("options", "whiten"), [(["--whiten-all"], "all"), (["--whiten", "--whiten-all"], "all"), ([], False)]
)
def test_all_directions_may_be_whitened(ask, files, options, whiten):
    assert ask("fit", "data.npy", "-o", "new.npz", "--max-iter", "77", "--tol", "1e-3", "--quiet", *options).code == 0
    assert elldict.load("new.npz").whiten == whiten


def test_refinement_and_falling_exponents_are_options_of_fit(ask, files):
    outcome = ask("fit", "data.npy", "-o", "r.npz", "--p", "3,2.5", "--refine", "auto", "--seed", "0")
    assert outcome.code == 0
    model = elldict.load("r.npz")
    assert list(model.p) == [3.0, 2.5]
    assert model.refined_ == "bernoulli-gaussian"
    shown = ask("info", "r.npz").out
    assert "3, 2.5" in shown
    assert "expected error" in shown


def iterate_algorithm_2(samples, A, p, n_iter):
    """The paper's Algorithm 2, as printed: the gradient of the l_p objective, and its polar factor."""
    for _ in range(n_iter):
        Z = samples @ A.T
        U, _, Vt = np.linalg.svd((np.sign(Z) * np.abs(Z) ** (p - 1)).T @ samples, full_matrices=False)
        A = U @ Vt
    return A


def test_the_algorithm_of_the_paper_is_at_hand(ask, files, samples):
    outcome = ask("fit", "data.npy", "-o", "new.npz", "--solver", "power", "--refine", "none", "--seed", "7")
    assert (outcome.code, outcome.err) == (0, "")
    there = elldict.load("new.npz")
    assert (there.solver, there.refine, there.refined_) == ("power", None, None)
    starts = []
    here = LpDictionaryLearning(solver="power", refine=None, random_state=7)
    here.fit(samples, callback=lambda iteration: starts.append(iteration.components))
    np.testing.assert_array_equal(there.components_, here.components_)
    expected = iterate_algorithm_2(samples, np.asarray(starts[0]), 3, there.n_iter_)
    cosines = np.abs(there.components_ @ expected.T)  # order and signs are free
    np.testing.assert_allclose(np.sort(cosines, axis=1)[:, -1], 1, atol=1e-9)
    assert "solver='power'" in ask("info", "new.npz").out
    assert elldict.load("model.npz").solver == "auto"


def write_other_formats(folder: Path, samples) -> None:
    zarr.create_array(folder / "data.zarr", data=samples, chunks=(400, 4))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(samples.ravel()), N_FEATURES)
    table = pa.table({"y": lists, "number": pa.array(np.arange(len(samples)))})
    pq.write_table(table, folder / "data.parquet", row_group_size=300)
    (folder / "parts").mkdir()
    names = [f"f{k}" for k in range(N_FEATURES)]
    for number, part in enumerate(np.array_split(samples, 3)):
        columns = [*part.T, np.full(len(part), "words")]
        pq.write_table(pa.table(columns, [*names, "text"]), folder / "parts" / f"{number}.parquet")


OPTIONS = {
    "data.npy": ["--block-size", "100"],
    "data.zarr": [],
    "data.parquet": ["--column", "y"],
    "parts": [word for k in range(N_FEATURES) for word in ("--column", f"f{k}")],
}


@pytest.mark.parametrize("data", OPTIONS)
@pytest.mark.parametrize("codes", ["codes.npy", "codes.zarr"])
def test_every_kind_of_file_gives_the_answer_of_the_array(ask, files, samples, data, codes):
    write_other_formats(files, samples)
    assert ask("fit", data, "-o", "new.npz", "--seed", "7", *OPTIONS[data]).code == 0
    here, there = LpDictionaryLearning(random_state=7).fit(samples), elldict.load("new.npz")
    np.testing.assert_array_equal(there.components_, here.components_)
    outcome = ask("transform", "new.npz", data, "-o", codes, *OPTIONS[data])
    assert (outcome.code, outcome.err) == (0, "")
    assert f"{100 * np.mean(here.transform(samples) != 0):.3g} % of the codes" in outcome.out
    written = np.load(codes) if codes.endswith("npy") else zarr.open_array(codes, mode="r")[:]
    np.testing.assert_array_equal(written, here.transform(samples))
    assert is_one_clear_line(ask("transform", "new.npz", data, "-o", codes, *OPTIONS[data]))
    assert ask("transform", "new.npz", data, "-o", codes, "--force", *OPTIONS[data]).code == 0
    scored = ask("score", "new.npz", data, *OPTIONS[data])
    assert (scored.code, scored.err) == (0, "")
    assert f"{here.score(samples):.6g} a sample" in scored.out


def test_force_overwrites_and_leaves_nothing_else_behind(ask, files):
    assert ask("fit", "data.npy", "-o", "model.npz", "--p", "5", "--seed", "1", "--force").code == 0
    assert elldict.load("model.npz").p == 5
    Path("codes.npy").write_bytes(b"old")
    assert ask("transform", "model.npz", "data.npy", "-o", "codes.npy", "--force").code == 0
    assert np.load("codes.npy").shape == (1500, N_FEATURES)
    assert names_here() == ["codes.npy", "data.npy", "model.npz"]


def test_codes_are_written_under_exactly_the_name_given(ask, files):
    assert ask("transform", "model.npz", "data.npy", "-o", "codes").code == 0
    assert Path("codes").is_file()


def test_version_and_help(ask):
    assert ask("--version") == Outcome(0, f"elldict {elldict.__version__}, kernels: {describe_kernels()}\n", "")
    for arguments in ([], ["--help"]):
        outcome = ask(*arguments)
        assert (outcome.code, outcome.err) == (0, "")
        assert all(command in outcome.out for command in ("demo", "fit", "transform", "info"))


def test_a_terminal_sees_a_bar_and_the_model_does_not_remember_it(ask, files, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert "iteration" in ask("fit", "data.npy", "-o", "new.npz", "--seed", "0").err
    assert elldict.load("new.npz").verbose is False
    assert ask("fit", "data.npy", "-o", "new.npz", "--seed", "0", "--force", "--quiet") == Outcome(0, "", "")


def test_long_names_are_not_cut_when_piped(ask, files):
    name = "m" * 120 + ".npz"
    assert name in ask("fit", "data.npy", "-o", name, "--seed", "0").out
    assert name in ask("info", name).out


def test_a_warning_is_one_clean_line(ask, files):
    outcome = ask("fit", "data.npy", "-o", "new.npz", "--max-iter", "1", "--seed", "0")
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert any(line.startswith("elldict: warning: The fit did not converge") for line in lines)
    assert all(line.startswith("elldict: warning: ") for line in lines)


# --- what a user gets wrong -------------------------------------------------------------------------------------------


def broken_files(folder: Path, samples) -> None:
    np.save(folder / "nan.npy", np.where(samples > 2.5, np.nan, samples))
    np.save(folder / "flat.npy", samples[:, 0])
    np.save(folder / "text.npy", np.array([["a", "b"], ["c", "d"]]))
    np.save(folder / "complex.npy", samples.astype(complex))
    np.save(folder / "pickled.npy", np.array([[{}, 1], [2, 3]], dtype=object), allow_pickle=True)
    np.save(folder / "empty.npy", np.empty((0, N_FEATURES)))
    np.save(folder / "narrow.npy", samples[:, :4])
    np.savez(folder / "archive.npz", X=samples, Y=samples)
    (folder / "words.txt").write_text("1 two 3\n4 5 6\n")
    (folder / "nothing.npy").touch()
    (folder / "cut.npy").write_bytes((folder / "data.npy").read_bytes()[:-100])
    (folder / "header.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")
    (folder / "cut.npz").write_bytes((folder / "model.npz").read_bytes()[:-100])
    damaged = bytearray((folder / "model.npz").read_bytes())
    damaged[damaged.index(b"NUMPY") + 200] ^= 0xFF  # among the numbers of the first array, whose checksum is kept
    (folder / "damaged.npz").write_bytes(damaged)
    (folder / "folder").mkdir()
    (folder / "taken").touch()
    write_other_formats(folder, samples)
    (folder / "data.zarr" / "c" / "1" / "0").unlink()
    (folder / "photos.zarr").mkdir()


FIT = "fit data.npy -o new.npz"
CODE = "transform model.npz data.npy -o codes.npy"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        # output
        ("fit data.npy -o taken", "--force"),
        ("transform model.npz data.npy -o taken", "--force"),
        ("demo -o taken", "--force"),
        ("demo -o new.html --picture taken", "--force"),
        ("fit data.npy -o folder", "directory"),
        ("fit data.npy -o folder --force", "directory"),
        ("transform model.npz data.npy -o folder", "directory"),
        ("demo -o folder", "directory"),
        ("fit data.npy -o nowhere/new.npz", "nowhere"),
        ("transform model.npz data.npy -o nowhere/codes.npy", "nowhere"),
        ("demo -o nowhere/page.html", "nowhere"),
        ("fit data.npy -o taken/new.npz", "taken"),
        ("fit data.npy -o data.npy --force", "also an input"),
        ("transform model.npz data.npy -o ./model.npz --force", "also an input"),
        # data
        ("fit missing.npy -o new.npz", "missing.npy"),
        ("transform model.npz missing.npy -o codes.npy", "missing.npy"),
        ("fit folder -o new.npz", "folder"),
        ("fit words.txt -o new.npz", "holds numbers and, in column 2, 'two'"),
        ("fit archive.npz -o new.npz", "Name the one with the samples, as in archive.npz:NAME"),
        ("fit nothing.npy -o new.npz", "is empty"),
        ("fit cut.npy -o new.npz", "cut.npy"),
        ("fit header.npy -o new.npz", "header.npy"),
        ("fit pickled.npy -o new.npz", "pickled.npy"),
        ("fit text.npy -o new.npz", "real numbers"),
        ("fit complex.npy -o new.npz", "real numbers"),
        ("fit flat.npy -o new.npz", "(1500,)"),
        ("fit empty.npy -o new.npz", "0 sample"),
        ("fit nan.npy -o new.npz", "NaN"),
        ("transform model.npz nan.npy -o codes.npy", "NaN"),
        ("transform model.npz narrow.npy -o codes.npy", "4 features"),
        ("fit data.zarr -o new.npz", "chunk c/1/0"),
        ("fit data.parquet -o new.npz", "column="),
        ("fit data.parquet -o new.npz --column number", "'number' holds numbers, expected lists"),
        ("fit parts -o new.npz", "'text'"),
        ("fit data.npy -o new.npz --column y", "no columns"),
        ("fit data.npy -o new.npz --block-size 0", "--block-size"),
        ("score model.npz nan.npy", "NaN"),
        ("score model.npz narrow.npy", "4 features"),
        ("score model.npz missing.npy", "missing.npy"),
        ("transform model.npz data.npy -o codes.xls", ".npy, .zarr, .csv"),
        ("transform model.npz data.npy -o photos.zarr --force", "photos.zarr"),
        ("fit data.npy -o photos.zarr --force", "directory"),
        ("transform model.npz data.zarr -o data.zarr --force", "also an input"),
        # parameters
        (f"{FIT} --p 2", "'p'"),
        (f"{FIT} --p nan", "'p'"),
        (f"{FIT} --p 0", "'p'"),
        (f"{FIT} --p 1 --solver power", "--solver auto"),
        (f"{FIT} --p three", "--p 'three'"),
        (f"{FIT} --solver newton", "newton"),
        (f"{FIT} --n-components 7", "exceeds n_features=6"),
        (f"{FIT} --n-components 0", "--n-components"),
        (f"{FIT} --max-iter 0", "--max-iter"),
        (f"{FIT} --tol -1", "tol"),
        (f"{FIT} --n-init 0", "--n-init"),
        (f"{FIT} --seed -1", "random_state"),
        (f"{CODE} --algorithm lasso", "lasso"),
        (f"{CODE} --algorithm threshold", "alpha"),
        (f"{CODE} --algorithm threshold --alpha -1", "--alpha"),
        (f"{CODE} --algorithm threshold --alpha nan", "--alpha"),
        (f"{CODE} --algorithm threshold --alpha much", "a number >= 0, or auto"),
        (f"{CODE} --algorithm posterior --alpha 1", "--alpha does nothing"),
        (f"{CODE} --alpha 1", "--alpha"),
        (f"{CODE} --n-nonzero 2", "--n-nonzero"),
        (f"{CODE} --algorithm omp --n-nonzero 0", "--n-nonzero"),
        (f"{CODE} --algorithm omp --n-nonzero 7", "6 atoms"),
        # models
        ("info missing.npz", "missing.npz"),
        ("info folder", "folder"),
        ("info cut.npz", "cut.npz"),
        ("info damaged.npz", "damaged.npz"),
        ("info archive.npz", "archive.npz"),
        ("info words.txt", "words.txt"),
        ("info nothing.npy", "nothing.npy"),
        ("transform damaged.npz data.npy -o codes.npy", "damaged.npz"),
        ("transform data.npy data.npy -o codes.npy", "data.npy"),
        # usage
        ("fit data.npy", "-o"),
        ("fit -o new.npz", "DATA"),
        ("transform model.npz -o codes.npy", "DATA"),
        ("info", "MODEL.npz"),
        (f"{FIT} --speed 9", "--speed"),
        (f"{FIT} more", "more"),
        (f"{FIT} --p", "--p"),
        ("learn", "learn"),
        ("--colour", "--colour"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(ask, files, samples, command, says):
    broken_files(files, samples)
    before = names_here()
    outcome = ask(*command.split())
    assert is_one_clear_line(outcome), outcome
    assert says in outcome.err
    assert names_here() == before, "a mistake leaves no files behind"


@pytest.mark.parametrize("command", ["fit {} -o new.npz", "transform model.npz {} -o codes.npy", "info {}"])
def test_a_file_that_may_not_be_read(ask, files, monkeypatch, command):
    secret = files / "secret"
    secret.write_bytes((files / "data.npy").read_bytes())
    secret.chmod(0)
    if os.geteuid() == 0:  # who may read everything
        _forbid(monkeypatch, secret)
    outcome = ask(*command.format("secret").split())
    assert is_one_clear_line(outcome), outcome
    assert "secret: Permission denied" in outcome.err


def _forbid(monkeypatch, path):
    import io  # noqa: PLC0415

    really_open = io.open

    def guarded(file, *args, **kwargs):
        if not isinstance(file, int) and Path(os.fsdecode(file)).name == path.name:
            raise PermissionError(13, "Permission denied", str(file))
        return really_open(file, *args, **kwargs)

    monkeypatch.setattr("io.open", guarded)
    monkeypatch.setattr("builtins.open", guarded)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder where even root cannot write")
@pytest.mark.parametrize("command", ["fit data.npy -o", "transform model.npz data.npy -o", "demo -o"])
def test_a_folder_that_cannot_be_written_is_found_before_the_work(ask, files, monkeypatch, command):
    monkeypatch.setattr(LpDictionaryLearning, "fit", _never)
    monkeypatch.setattr(LpDictionaryLearning, "transform", _never)
    outcome = ask(*command.split(), "/proc/self/out")
    assert is_one_clear_line(outcome), outcome
    assert "/proc/self/out cannot be written" in outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(ask, files):
    closed = files / "closed"
    closed.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    outcome = ask("fit", "data.npy", "-o", "closed/new.npz")
    assert is_one_clear_line(outcome), outcome
    assert "Permission denied" in outcome.err


def _never(*_args, **_kwargs):
    raise AssertionError("the work was started")


@pytest.mark.parametrize("command", ["fit data.npy -o taken", "transform model.npz data.npy -o taken", "demo -o taken"])
def test_the_output_is_checked_before_the_work(ask, files, monkeypatch, command):
    (files / "taken").touch()
    monkeypatch.setattr(LpDictionaryLearning, "fit", _never)
    monkeypatch.setattr(LpDictionaryLearning, "transform", _never)
    assert is_one_clear_line(ask(*command.split()))


def test_demo_says_how_to_get_what_it_needs(ask, monkeypatch):
    really_find = importlib.util.find_spec
    missing = ("matplotlib", "jinja2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in missing else really_find(name))
    outcome = ask("demo")
    assert is_one_clear_line(outcome), outcome
    assert "matplotlib and jinja2: pip install '.[demo]' in a clone of elldict" in outcome.err


def test_ctrl_c(ask, files, monkeypatch):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(LpDictionaryLearning, "fit", interrupt)
    outcome = ask(*FIT.split())
    assert outcome == Outcome(130, "", "elldict: interrupted.\n")
    assert not Path("new.npz").exists()


def test_an_interrupted_write_leaves_the_old_codes(ask, files, monkeypatch):
    def interrupt(sink, *_args, **_kwargs):
        sink.stream.write(b"half")
        raise KeyboardInterrupt

    Path("codes.npy").write_bytes(b"old")
    monkeypatch.setattr(NpyWriter, "write", interrupt)
    assert ask(*CODE.split(), "--force").code == 130
    assert Path("codes.npy").read_bytes() == b"old"
    assert names_here() == ["codes.npy", "data.npy", "model.npz"]


def test_a_fault_of_ours_is_not_called_a_mistake(ask, files, monkeypatch):
    def fault(*_args, **_kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr(LpDictionaryLearning, "fit", fault)
    with pytest.raises(RuntimeError, match="a bug"):
        ask(*FIT.split())


@pytest.mark.parametrize("start", [["-c", "from elldict.cli import main; main()"], ["-m", "elldict"]])
def test_the_installed_command(files, start):
    """The same from outside: exit code, and nothing but one line on standard error."""

    def run(*arguments):
        command = [sys.executable, "-W", "error", *start, *arguments]
        path = {**os.environ, "PYTHONPATH": str(Path(elldict.__file__).parents[1])}  # of this elldict, from any folder
        done = subprocess.run(command, cwd=files, env=path, capture_output=True, text=True, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr)

    mistake = run("fit", "data.npy", "-o", "model.npz")
    assert is_one_clear_line(mistake), mistake
    assert run("--version") == Outcome(0, f"elldict {elldict.__version__}, kernels: {describe_kernels()}\n", "")


def test_the_library_does_not_import_the_command_line():
    unwanted = {
        "typer",
        "matplotlib",
        "jinja2",
        "elldict._old.cli",
        "elldict._old.report",
    }  # scikit-learn itself imports rich
    check = f"import elldict, sys; print(sorted({unwanted} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_messages_name_options_instead_of_parameters():
    said = {
        "Set whiten=True (LpICA: whiten='unit-variance'), unless": "Set --whiten or --ica, unless",
        "Raise max_iter or tol.": "Raise --max-iter or --tol.",
        "lower n_components, or": "lower --n-components, or",
        "Leave n_components=None to get them all.": "Leave out --n-components to get them all.",
        "or set refine='sparse-corruption' or normalize='samples'.": "or set --refine sparse-corruption or --normalize "
        "samples.",
        "set solver='auto' with": "set --solver auto with",
        "n_components=9 exceeds n_features=8: a": "--n-components 9 exceeds n_features=8: a",
        "refine=None gives": "--refine none gives",
    }
    for message, expected in said.items():
        assert name_options(message) == expected


def test_warnings_name_options(ask, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.laplace(size=(500, 4)) + 20)
    done = ask("fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "m.npz"), "--seed", "0")
    assert "Set --center or --ica" in done.err
    assert "=True" not in done.err
