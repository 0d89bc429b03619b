"""
Larger than memory, and interrupted
===================================

A fit adds up sums over samples, and it does not matter where those are. A file is read block by block, in a few passes,
and gives the same atoms as the array in memory, to the last bit. A fit that is interrupted can be resumed.
"""

# %%
# A file
# ------
# A million samples of 64 features, 256 MB, written in parts as an instrument would. The size is that of an example:
# memory does not grow with the file.

import tempfile
import tracemalloc
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from elldict import LpDictionaryLearning, datasets, metrics, theory

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "samples.npy"
R, N, PARTS = 1_000_000, 64, 10
setting = {"n_features": N, "density": 0.2, "noise_std": 0.2}
file = np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=(R, N))
_, dictionary, _ = datasets.make_bernoulli_gaussian(10, **setting, random_state=0)
rng = np.random.default_rng(0)
for part in range(PARTS):
    rows = slice(part * R // PARTS, (part + 1) * R // PARTS)
    codes, noise = rng.standard_normal((2, R // PARTS, N), dtype="float32")
    codes *= rng.random(codes.shape, dtype="float32") < setting["density"]
    file[rows] = (codes + setting["noise_std"] * noise) @ dictionary
file.flush()
del file, codes, noise

# %%
# The name of the file is enough. ``tracemalloc`` counts the memory that the fit allocates.

tracemalloc.start()
model = LpDictionaryLearning(random_state=0).fit(path)
peak = tracemalloc.get_traced_memory()[1]
tracemalloc.stop()
print(f"{path.stat().st_size / 1e6:.0f} MB of samples, {peak / 1e6:.0f} MB of memory, {model.n_passes_:.1f} passes")
print(
    f"error {metrics.recovery_error(model.components_, dictionary):.4%}, stated {model.expected_error_:.4%}, "
    f"no method has less than {theory.cramer_rao_bound(n_samples=R, **setting):.4%}"
)

# %%
# Interrupted, and resumed
# ------------------------
# With ``checkpoint=`` every pass is recorded. Here Ctrl-C comes after the eighth iteration; the resumed fit ends where
# it would have ended.

checkpoint = Path(folder.name) / "fit.checkpoint"


def interrupt(iteration):
    """Press Ctrl-C."""
    if iteration.iteration == 8:
        raise KeyboardInterrupt


try:
    LpDictionaryLearning(random_state=0).fit(path, checkpoint=checkpoint, callback=interrupt)
except KeyboardInterrupt:
    print("interrupted")
resumed = LpDictionaryLearning(random_state=0).fit(path, checkpoint=checkpoint, resume=True)
print("the same bits:", np.array_equal(resumed.components_, model.components_))

# %%
# How few passes are enough
# -------------------------
# Most iterations are on small random parts of the file. The paper's power method looks at all samples in each; it is
# stopped after 20 here.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    power = LpDictionaryLearning(solver="power", refine=None, random_state=0, max_iter=20).fit(path)
figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
for name, fitted, colour in (("default", model, "#4338ca"), ("the paper's power method", power, "#9a9ca6")):
    passes = np.array([each.passes for each in fitted.history_])
    steps = np.array([each.step for each in fitted.history_])
    ax.semilogy(
        passes, np.maximum(steps, 1e-9), "o-", ms=4, color=colour, label=f"{name}: {fitted.n_passes_:.1f} passes"
    )
ax.set(xlabel="passes over the file", ylabel="step of the atoms, in radians")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

folder.cleanup()
