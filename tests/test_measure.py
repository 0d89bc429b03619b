"""All measurements by one command: steps run once with one version, and failures are told."""

import json
import sys

import pytest

from experiments import measure
from experiments.measure import STEPS, Record, Step, run_steps


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "FOLDER", tmp_path)
    monkeypatch.setattr(measure, "STATE", tmp_path / "done.json")
    return tmp_path


def test_a_step_is_done_until_the_library_changes(folder):
    step = Step("list", "measure --list", 5.0)
    record = Record.read()
    assert not record.is_done(step)
    assert record.estimate_minutes(step) == 5.0
    assert run_steps([step], record) == []
    again = Record.read()
    assert again.is_done(step)
    assert again.estimate_minutes(step) < 5.0  # as long as it took
    assert "benchmarks.real" in (folder / "list.txt").read_text()
    assert not Record("another", again.done, again.seconds).is_done(step)


def test_a_step_that_fails_is_told_and_not_done(folder):
    step = Step("wrong", "measure --only nothing", 1.0)
    record = Record.read()
    assert run_steps([step], record) == ["wrong"]
    assert not record.is_done(step)
    assert "invalid choice" in (folder / "wrong.txt").read_text()


def test_an_interrupted_run_keeps_what_is_done(folder, monkeypatch):
    def run(step, log):
        if step.name == "second":
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(measure, "run_step", run)
    with pytest.raises(KeyboardInterrupt):
        run_steps([Step("first", "", 1), Step("second", "", 1)], Record.read())
    assert list(json.loads((folder / "done.json").read_text())["done"]) == ["first"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_is_a_module_of_the_experiments(step):
    module = f"experiments.{step.command.split()[0]}"
    assert __import__("importlib.util").util.find_spec(module) is not None, sys.path
