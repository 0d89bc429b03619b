"""A small script of a user, read by type checkers: fitted attributes have types."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import elldict

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

CACHE = Path(__file__).parents[1] / ".mypy_cache"  # without it, mypy reads the types of NumPy for ten seconds

SCRIPT = """
import numpy as np
from numpy.typing import NDArray

from elldict import LpDictionaryLearning
from elldict import Iteration
from elldict import LpICA


def stop(iteration: Iteration) -> bool:
    return iteration.step < 1e-3


X = np.random.default_rng(0).laplace(size=(1000, 4))
model = LpDictionaryLearning(p=4, whiten=True).fit(X, callback=stop)
ica = LpICA(3, whiten="arbitrary-variance", error_bars=False, random_state=0).fit(X, sample_weight=np.ones(1000))
error: float = model.expected_error_ + ica.noise_std_ + ica.score(X) + ica.objective_ + ica.n_passes_
count: int = model.n_components_ + ica.n_features_in_ + model.n_iter_ + model.n_samples_seen_
words: str = model.status_ + (ica.refined_ or "") + model.warnings_[0][1]
steps: list[float] = [iteration.seconds for iteration in model.history_]
finished: bool = model.converged_
"""
ARRAYS = ["components_", "unmixing_", "mixing_", "mean_", "density_", "scale_", "atom_error_", "whitening_"]
REVEALED = [f"ica.{name}" for name in ARRAYS]
REVEALED += [
    f"ica.{name}(X)" for name in ("transform", "fit_transform", "inverse_transform", "denoise", "score_samples")
]
WRONG = "wrong: str = LpICA().fit(X).n_iter_\n"


def check(tool, folder):
    """Run a type checker on the script; return its lines about it."""
    (folder / "script.py").write_text(SCRIPT + "".join(f"reveal_type({what})\n" for what in REVEALED) + WRONG)
    options = {
        "mypy": ["--strict", f"--cache-dir={CACHE}", "--follow-imports=silent", "--allow-subclassing-any"],
        "basedpyright": ["--pythonpath", sys.executable],
    }[tool]
    environment = {**os.environ, "MYPYPATH": str(Path(elldict.__file__).parents[1])}
    command = [shutil.which(tool, path=PATH), *options, "script.py"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if "script.py:" in line]


@pytest.mark.parametrize("tool", ["mypy", "basedpyright"])
def test_type_checker_knows_the_fitted_attributes(tool, tmp_path):
    if shutil.which(tool, path=PATH) is None:
        pytest.skip(f"{tool} is not installed")
    lines = check(tool, tmp_path)
    revealed = [line for line in lines if "Revealed type" in line or "Type of" in line]
    assert len(revealed) == len(REVEALED)
    assert not [line for line in revealed if line.rstrip().endswith('"Any"') or "Unknown" in line]
    (error,) = (line for line in lines if " error" in line)  # the last line, which is wrong
    assert f":{len(SCRIPT.splitlines()) + len(REVEALED) + 1}:" in error
