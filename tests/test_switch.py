"""The environment variable that selects the new estimators as the public ones."""

import os
import subprocess
import sys

import numpy as np
import pytest

from elldict import LpDictionaryLearning, dictionary_learning
from elldict.datasets import make_bernoulli_gaussian
from elldict.metrics import recovery_error

NEW = {"elldict.dictionary_learning", "elldict.ica", "elldict.history"}


@pytest.mark.parametrize("value", ["new", "old", None])
def test_environment_variable_selects_the_estimators(value):
    environment = {name: text for name, text in os.environ.items() if name != "ELLDICT_CORE"}
    environment |= {} if value is None else {"ELLDICT_CORE": value}
    code = "from elldict import *; print(*(x.__module__ for x in (LpDictionaryLearning, LpICA, Iteration)))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert modules == NEW if value == "new" else not modules & NEW


def test_power_method_of_both_packages_ends_at_the_same_atoms():
    X = make_bernoulli_gaussian(2000, 6, density=0.3, random_state=0)[0]
    ours = dictionary_learning.LpDictionaryLearning(solver="power", random_state=0).fit(X)
    theirs = LpDictionaryLearning(solver="power", refine=None, random_state=0).fit(X)
    assert recovery_error(ours.components_, theirs.components_) < 1e-9
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-5)
