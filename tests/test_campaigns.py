"""Campaigns in small: damaged files, and faults injected into fits."""

import sys
from collections import Counter
from importlib.util import find_spec

import pytest

pytest.importorskip("pyarrow")
if not sys.platform.startswith("linux"):
    pytest.skip("limits of memory are those of Linux", allow_module_level=True)

from experiments.campaign import damaged_files, damaged_models, faults, trials
from experiments.campaign.trials import Kind

N_FILES = 25
OPTIONAL = {"hdf5": "h5py", "zarr": "zarr", "safetensors": "safetensors"}


def test_damaged_files_are_refused_or_give_the_numbers_they_hold():
    kinds = [("damaged_models", kind) for kind in damaged_models.KINDS]
    kinds += [("damaged_files", kind) for kind in damaged_files.KINDS if find_spec(OPTIONAL.get(kind, "numpy"))]
    jobs = [trials.Job(*kind, number) for kind in kinds for number in range(N_FILES)]
    found = list(trials.run(jobs))
    assert len(found) == len(jobs)
    assert [(job.kind, job.number, reason) for job, verdict, reason in found if verdict == "wrong"] == []
    refused = Counter((job.module, job.kind) for job, verdict, _ in found if verdict == "refused")
    assert all(refused[kind] > N_FILES // 5 for kind in kinds)


def test_trial_notices_code_that_was_run(monkeypatch):
    events = []
    kind = Kind("x.npy", lambda path: None, lambda path: events.append("pickle.find_class") or {})
    monkeypatch.setattr(trials, "prepare", lambda *_: (kind, {"x.npy": b"no array"}, {}, events))
    assert trials.try_file(trials.Job("any", "npy", 0))[0] == "wrong"


@pytest.mark.parametrize("fault", faults.FAULTS)
def test_fit_survives_fault_or_ends_with_an_error_and_is_resumed(fault):
    row = faults.measure({"fault": fault, "n": 1})
    assert row["notes"] == []
    assert row["ended"] == 1 or fault.startswith("samples")


@pytest.mark.slow
def test_fit_on_a_cluster_survives_a_lost_worker():
    pytest.importorskip("distributed")
    assert faults.measure({"fault": faults.LOST_WORKER, "n": 2})["notes"] == []
