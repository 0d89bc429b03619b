"""The compiled kernels of the old package are there: without them it computes by NumPy, and nobody notices."""

import os
import shutil

import pytest

from elldict._old.backend import host_kernels

COMPILERS = ("c++", "g++", "clang++")


@pytest.mark.skipif(os.environ.get(host_kernels.SWITCH) == "0", reason="kernels are turned off")
@pytest.mark.skipif(shutil.which("cmake") is None, reason="built only where there is CMake")
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="built only where there is a compiler")
def test_compiled_kernels_are_loaded_where_they_can_be_built():
    assert host_kernels.COMPILED is not None
    assert host_kernels.COMPILED.__name__ == "elldict._old.backend._kernels"
