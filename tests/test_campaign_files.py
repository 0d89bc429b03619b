"""The campaign of damaged files and faults in small: what `experiments/campaign` does in minutes, in seconds."""

import random
import sys

import numpy as np
import pytest

pytest.importorskip("zarr")
pytest.importorskip("pyarrow")
pytest.importorskip("dask")
if not sys.platform.startswith("linux"):
    pytest.skip("limits of memory, and what the system knows of it, are those of Linux", allow_module_level=True)

from experiments.campaign import faults, files
from experiments.campaign.fault_fits import CHANGES, FAULTS, SIGNALS
from experiments.campaign.file_kinds import KINDS, damage, make_originals
from experiments.campaign.original import Original

N_FILES = 60
"""Of each kind."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_a_number_is_the_same_whenever_it_is_made(kind):
    def make(number):
        original, damaged = damage(kind, 0, number)
        assert damaged.files != original.files
        return (
            damaged.note,
            {} if "checkpoint-wal" in original.files else damaged.files,
        )  # SQLite's logs have random marks

    once = [make(number) for number in range(12)]
    make_originals.cache_clear()
    assert [make(number) for number in range(12)] == once


def test_damaged_files_are_refused_or_give_the_numbers_they_hold():
    jobs = [files.Job(kind, 0, number) for kind in KINDS for number in range(N_FILES)]
    found = dict(files.run(jobs))
    wrong = {job.name: (outcome.note, outcome.message) for job, outcome in found.items() if outcome.verdict == "wrong"}
    assert not wrong
    assert len(found) == N_FILES * len(KINDS)
    for kind in KINDS:
        refused = [job for job, outcome in found.items() if job.kind == kind and outcome.verdict == "refused"]
        assert len(refused) > N_FILES // 4


def raise_now(error):
    raise error


MISREADINGS = {  # what reading a file must not lead to, and what is said of it
    "an error of another library": (lambda o, path: np.load(path), "an error of"),
    "no error of reading": (lambda o, path: {}[path], "not an error of reading"),
    "memory": (lambda o, path: raise_now(MemoryError()), "takes memory"),
    "a message of content": (lambda o, path: raise_now(ValueError(f"{path}: " + "A" * 9999)), "cannot be read"),
    "other numbers": (lambda o, path: False, "other numbers"),
}


@pytest.mark.parametrize("way", MISREADINGS)
def test_the_campaign_tells_what_is_wrong(way, tmp_path, monkeypatch):
    use, words = MISREADINGS[way]
    original = Original("x.npy", {"x.npy": b"no array"}, None)
    (tmp_path / "x.npy").write_bytes(b"no array")
    monkeypatch.setitem(files.KINDS, "npy", files.KINDS["npy"].__class__(list, None, use))
    verdict, message = files.use_file("npy", original, tmp_path, may_differ=False)
    assert verdict == "wrong"
    assert words in message


class TestFaults:
    """Without clusters, which tests/_old/test_cluster.py kills workers of."""

    def test_after_faults_fits_end_as_undisturbed_ones(self, tmp_path):
        found = dict(faults.run(tmp_path, 0, list(range(len(FAULTS))), tuple(FAULTS), ("default",)))
        assert [outcome for outcome in found.values() if outcome.problems] == []
        assert {outcome.fault for outcome in found.values()} == {*FAULTS, *CHANGES, *SIGNALS}
        assert sum(outcome.told != "done" for outcome in found.values()) > len(FAULTS) // 2

    def test_the_campaign_tells_what_is_wrong(self, tmp_path, monkeypatch):
        """As if an undisturbed fit had another answer."""
        monkeypatch.setattr(faults, "read_answer", lambda path: random.random())
        ((_, outcome),) = faults.run(tmp_path, 0, [0], ("kill",))
        assert "wrong answer" in outcome.problems
