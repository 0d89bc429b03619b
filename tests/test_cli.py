"""The command line: what it writes is what the library computes, and whatever goes wrong is one clear line."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import elldict
from elldict import LpDictionaryLearning, LpICA, cli, load
from elldict.cli.commands import app
from elldict.cli.messages import name_option, reword, run, translate
from elldict.datasets import make_bernoulli_gaussian
from elldict.history import Recorder

NAMES = ["age", "=1+1", "\x1b[31mred", "y", "z"]
RUN = f"import sys; from {cli.__name__} import main; main()"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(elldict.__file__).parents[1])}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def samples():
    return make_bernoulli_gaussian(600, len(NAMES), density=0.3, noise_std=0.1, random_state=3)[0]


@pytest.fixture(scope="module")
def fitted(samples):
    return LpDictionaryLearning(random_state=0, error_bars=False).fit(pd.DataFrame(samples, columns=NAMES))


@pytest.fixture
def ask(capsys, tmp_path, monkeypatch, samples, fitted):
    """Run the command line in a folder with samples and a model."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", samples)
    pd.DataFrame(samples, columns=NAMES).to_csv("x.csv", index=False)
    fitted.save("model.npz")

    def ask(*arguments):
        code = run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return ask


def is_refused(outcome, *words):
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("elldict: error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.strip().isprintable()
    for word in words:
        assert word in outcome.err
    return True


def start(*arguments, **options):
    return subprocess.Popen([sys.executable, "-c", RUN, *arguments], env=ENVIRONMENT, **options)


# What commands do


def test_fit_writes_the_model_of_the_library(ask, samples):
    expected = LpDictionaryLearning(3, whiten=True, standardize=True, error_bars=False, random_state=0).fit(samples)
    done = ask("fit", "x.npy", "--n-components", 3, "--whiten", "--standardize", "--no-error-bars")
    assert (done.code, done.err) == (0, "")
    assert "3 components of 5 features, from 600 samples" in done.out
    model = load("x.model.npz")
    np.testing.assert_array_equal(model.components_, expected.components_)
    assert model.get_params() == expected.get_params()
    assert ask("fit", "x.npy", "-o", "plain.npz", "--quiet") == Outcome(0, "", "")
    assert load("plain.npz").get_params() == LpDictionaryLearning(random_state=0).get_params()


def test_info_shows_options_seed_and_version(ask, samples):
    done = ask("fit", "x.npy", "-o", "ica.npz", "--ica", "--n-components", 4, "--p", 4, "--seed", 7, "--quiet")
    assert done == Outcome(0, "", "")
    expected = LpICA(4, p=4, random_state=7).fit(samples)
    np.testing.assert_array_equal(load("ica.npz").components_, expected.components_)
    info = ask("info", "ica.npz").out
    assert "--ica --n-components 4 --p 4.0 --seed 7" in info
    assert f"by elldict {elldict.__version__}" in info
    assert json.loads(ask("info", "ica.npz", "--json").out)["parameters"] == expected.get_params()


def test_json_is_one_object_in_which_unknown_numbers_are_null(ask, fitted):
    facts = json.loads(ask("info", "model.npz", "--json").out)
    assert facts["atom_error"] == [None] * len(NAMES)
    assert facts["feature_names"] == NAMES
    assert facts["density"] == fitted.density_.tolist()
    fit = json.loads(ask("fit", "x.npy", "--json").out)
    assert (fit["n_components"], fit["model"], fit["parameters"]["random_state"]) == (5, "x.model.npz", 0)


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ("", {}),
        ("--algorithm top_k --alpha 2", {"transform_algorithm": "top_k", "transform_alpha": 2}),
        ("--algorithm threshold --alpha auto", {"transform_algorithm": "threshold", "transform_alpha": "auto"}),
    ],
)
def test_transform_writes_the_codes_of_the_library(ask, samples, options, parameters):
    assert ask("transform", "model.npz", "x.csv", "-o", "codes.parquet", *options.split()).code == 0
    expected = load("model.npz").set_params(**parameters).transform(pd.DataFrame(samples, columns=NAMES))
    np.testing.assert_allclose(pd.read_parquet("codes.parquet"), expected, atol=1e-12)


def test_inverse_and_denoise_write_samples(ask, samples, fitted):
    frame = pd.DataFrame(samples, columns=NAMES)
    ask("transform", "model.npz", "x.csv", "-o", "codes.npy")
    assert ask("transform", "model.npz", "codes.npy", "-o", "back.npy", "--inverse").code == 0
    np.testing.assert_allclose(np.load("back.npy"), samples, atol=1e-12)
    told = ask("transform", "model.npz", "x.csv", "-o", "clean.npy", "--denoise", "--noise-std", 0.2, "--json")
    assert json.loads(told.out) == {"n_samples": 600, "kind": "denoised samples", "output": "clean.npy"}
    np.testing.assert_allclose(np.load("clean.npy"), fitted.denoise(frame, noise_std=0.2), atol=1e-12)


def test_score_and_report_are_those_of_the_library(ask, samples, fitted):
    expected = fitted.score(pd.DataFrame(samples, columns=NAMES))
    assert json.loads(ask("score", "model.npz", "x.csv", "--json").out)["log_likelihood"] == pytest.approx(expected)
    assert f"{expected:.6g} nats per sample" in ask("score", "model.npz", "x.csv").out
    assert ask("report", "model.npz", "x.csv", "-o", "page.html").code == 0
    assert "All 600 samples." in Path("page.html").read_text("utf-8")


def test_export_writes_names_that_are_not_formulas(ask, fitted):
    assert ask("export", "model.npz", "-o", "components.csv").code == 0
    table = pd.read_csv("components.csv")
    assert list(table.columns) == ["age", "'=1+1", *NAMES[2:]]
    np.testing.assert_array_equal(table, fitted.components_)


def test_groups_of_a_column_are_those_of_a_file_and_no_feature(ask, samples):
    groups = np.array(["one", "two", "three", "four"])[np.arange(600) // 150]
    pd.DataFrame(samples, columns=list("abcde")).assign(who=groups).to_csv("grouped.tsv", sep="\t", index=False)
    Path("groups.txt").write_text("\n".join(groups) + "\n", "utf-8")
    np.save("groups.npy", groups)
    for number, options in enumerate([("grouped.tsv", "who"), ("x.npy", "groups.txt"), ("x.npy", "groups.npy")]):
        assert ask("fit", options[0], "-o", f"{number}.npz", "--groups", options[1]).code == 0
    errors = [load(f"{number}.npz").atom_error_ for number in range(3)]
    np.testing.assert_array_equal(errors[0], LpDictionaryLearning().fit(samples, groups=groups).atom_error_)
    np.testing.assert_array_equal(errors[0], errors[1])
    np.testing.assert_array_equal(errors[0], errors[2])


def test_every_parameter_of_a_fit_has_an_option():
    options = {name for option in get_command(app).commands["fit"].params for name in option.opts}
    parameters = {*LpDictionaryLearning().get_params(), *LpICA().get_params()} - {"verbose"}
    assert {name_option(name) for name in parameters if not name.startswith("transform")} <= options


# What goes wrong


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fit missing.npy", "missing.npy: No such file"),
        ("fit x.npy -o model.npz", "--force"),
        ("fit x.npy -o x.npy --force", "also an input"),
        ("fit x.npy -o folder/m.npz --checkpoint folder/m.npz", "checkpoint folder/m.npz is also"),
        ("fit nan.npy", "nan.npy contains NaN (sample 7, feature 1"),
        ("fit x.csv --column height", "no column 'height'. Select columns of numbers with --column"),
        ("fit x.npy --p 2", "--p must be a float in the range (0, 60]"),
        ("fit x.npy --ica --center", "--ica always centres"),
        ("fit x.npy --checkpoint x.npy", "checkpoint x.npy is also"),
        ("fit arrays.npz:x -o arrays.npz --force", "also an input"),
        ("fit x.npy --groups groups.txt --no-error-bars", "--groups does nothing"),
        ("fit x.npy --groups who", "no such file, and no such column in x.npy"),
        ("fit x.npy --groups groups.txt", "--groups must hold one label per sample"),
        ("fit gaps.csv --groups b", "column 'b' has no group for 1 of the samples"),
        ("fit x.npy --checkpoint model.npz --resume", "model.npz is not a checkpoint"),
        ("fit", "See 'elldict fit --help'."),
        ("transform model.npz x.csv -o c.xls", "output 'c.xls' must end in one of .npy"),
        ("transform model.npz x.npy -o c.npy --inverse --denoise", "exclude each other"),
        ("transform model.npz x.npy -o c.npy --denoise --alpha 1", "exclude each other"),
        ("transform model.npz x.npy -o c.npy --noise-std 1", "--noise-std does nothing"),
        ("transform model.npz x.npy -o c.npy --alpha 1", "--alpha does nothing"),
        ("report model.npz -o page.html --shape 2,3", "--shape must be (h, w)"),
    ],
)
def test_mistake_is_one_line_and_leaves_no_file(ask, samples, command, words):
    Path("folder").mkdir()
    Path("groups.txt").write_text("1\n2\n", "utf-8")
    np.savez("arrays.npz", x=samples)
    Path("gaps.csv").write_text("a,b\n1,1\n2,\n", "utf-8")
    np.save("nan.npy", np.where(np.arange(600 * 5).reshape(600, 5) == 36, np.nan, samples))
    before = sorted(Path().rglob("*"))
    assert is_refused(ask(*command.split()), words)
    assert sorted(Path().rglob("*")) == before


def test_output_is_checked_before_the_work(ask, monkeypatch):
    monkeypatch.setattr(LpDictionaryLearning, "fit", lambda *_args, **_options: pytest.fail("the work has begun"))
    for output, words in {
        "model.npz": "--force",
        "nowhere/m.npz": "nowhere of the",
        "/proc/self/m.npz": "cannot",
    }.items():
        assert is_refused(ask("fit", "x.npy", "-o", output), words)


def test_bug_is_one_line_with_its_place(ask, monkeypatch):
    monkeypatch.setattr(f"{cli.__name__}.commands.describe_file", lambda _: 1 // 0)
    outcome = ask("info", "model.npz")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("elldict: bug: ZeroDivisionError: ")
    assert outcome.err.count("\n") == 1
    assert "test_cli.py" in outcome.err


def test_content_of_files_never_reaches_the_terminal_raw(ask):
    Path("\x1b[2J.npz").write_bytes(Path("model.npz").read_bytes())
    shown = [ask("info", "model.npz"), ask("info", "\x1b[2J.npz"), ask("fit", "x.csv", "--column", "\x1b[31m")]
    pd.DataFrame([[1, "\x1b[2J"]] * 9, columns=["a", "\x1b]0;b"]).to_csv("evil.csv", index=False)
    shown += [ask("fit", "evil.csv"), ask("fit", "x.npy", "--groups", "\x1b[31m")]
    for outcome in shown:
        assert "\x1b" not in outcome.out + outcome.err
        assert "\\x1b" in outcome.out + outcome.err


def test_warning_is_one_line_in_words_of_options(ask, capsys):
    done = ask("fit", "x.npy", "--max-iter", 1, "--no-error-bars", "--quiet")
    assert done.err.count("elldict: warning: The last climb did not converge within --max-iter 1 iterations") == 1
    assert done.err.endswith("Increase --max-iter.\n")
    with translate(Path("x.npy")):
        for _ in range(3):
            warnings.warn("X is not white: set whiten=True.", UserWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "elldict: warning: x.npy is not white: use --whiten.\n"


def test_messages_name_options():
    for message, expected in {
        "Use whiten=True, or n_components=None.": "Use --whiten, or no --n-components.",
        "The 'transform_alpha' parameter of LpICA must be 1 or None. Got 'x' instead.": "--alpha must be 1. Got 'x' "
        "instead.",
        "a smaller n_components with solver='power'": "a smaller --n-components with --solver power",
        "the likelihood (refine='auto') or refine=None": "the likelihood (--refine auto) or --refine none",
        "random_state was 0 and is 1; center=False": "--seed was 0 and is 1; --no-center",
        "groups holds a single label.": "--groups holds a single label.",
        "Input X contains NaN": "data.csv contains NaN",
        "year=2020/part.csv is empty.": "year=2020/part.csv is empty.",
    }.items():
        assert reword(message, Path("data.csv")) == expected


# Interruptions and streams


def test_interrupted_fit_is_resumed_with_the_same_bits(ask, monkeypatch):
    def interrupt(recorder, state, really=Recorder.__call__):
        if len(recorder.history) == 6:
            raise KeyboardInterrupt
        return really(recorder, state)

    fit = ("fit", "x.npy", "-o", "new.npz", "--checkpoint", "state.npz", "--quiet")
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "__call__", interrupt)
        stopped = ask(*fit)
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err.startswith("elldict: interrupted. ")
    assert "state.npz: continue with the same command and --resume" in stopped.err
    assert not Path("new.npz").exists()
    assert is_refused(ask(*fit), "state.npz", "Continue from it with --resume")
    assert is_refused(ask(*fit, "--resume", "--seed", "1"), "--seed was 0 and is 1")
    assert ask(*fit, "--resume") == Outcome(0, "", "")
    expected = LpDictionaryLearning().fit(np.load("x.npy"))
    np.testing.assert_array_equal(load("new.npz").components_, expected.components_)
    np.testing.assert_array_equal(load("new.npz").atom_error_, expected.atom_error_)


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_the_fit_with_its_code_and_keeps_the_checkpoint(ask, tmp_path, number, code):
    X = make_bernoulli_gaussian(50_000, 30, density=0.3, random_state=0)[0]
    np.save("large.npy", X)
    arguments = ("fit", "large.npy", "-o", "new.npz", "--checkpoint", "state.npz")
    process = start(*arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not Path("state.npz").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    message = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert message.count("\n") == 1
    assert not list(Path().glob(".*.tmp")) + list(Path().glob("new.npz"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_broken_streams_end_in_one_way(ask, tmp_path):
    reader, closed = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full:
        for code, arguments, streams in [
            (141, ["--help"], {"stdout": closed}),
            (2, ["--version"], {"stdout": full}),
            (141, ["fit", "x.npy", "-o", "a.npz", "--max-iter", "1"], {"stdout": closed, "stderr": full}),
            (0, ["fit", "x.npy", "-o", "b.npz", "--max-iter", "1"], {"preexec_fn": lambda: os.closerange(0, 3)}),
        ]:
            process = start(*arguments, cwd=tmp_path, text=True, **({"stderr": subprocess.PIPE} | streams))
            message = process.communicate(timeout=60)[1]
            assert process.returncode == code
            assert not message or message == "elldict: error: standard output: No space left on device.\n"
    os.close(closed)
    assert [load(name).n_components_ for name in ("a.npz", "b.npz")] == [5, 5]


def test_help_and_mistakes_do_not_wait_for_numerical_libraries(tmp_path):
    check = f"""
import sys
from {cli.__name__}.messages import run
codes = [run([]), run(["fit", "--help"]), run(["--version"]), run(["fit"]), run(["fit", "x", "-o", "nowhere/m"])]
found = {{"numpy", "scipy", "sklearn", "pyarrow", "elldict.estimator"}} & set(sys.modules)
print("codes", codes, "imported", found)
"""
    done = subprocess.run(
        [sys.executable, "-c", check], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "codes [0, 0, 0, 2, 2] imported set()" in done.stdout
