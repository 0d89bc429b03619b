"""Memory that a fit lets go of is there for its next array."""

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, sys
import numpy as np
from elldict._old.backend.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def count():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(2**17), np.ones(2**18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
count()
print(count())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others have no such limit")
def test_arrays_of_a_megabyte_cost_no_page_faults():
    """Fifty pairs of arrays of 256 and 512 pages: without it, each of them costs as many faults as it has pages."""
    found = {}
    for how in ("kept", "as it is"):
        run = subprocess.run(
            [sys.executable, "-c", COUNT_FAULTS, how], check=True, text=True, stdout=subprocess.PIPE, timeout=60
        )
        found[how] = int(run.stdout)
    if found["as it is"] < 1000:
        pytest.skip("this system does not count page faults, or keeps memory anyway")
    assert found["kept"] < 50
