"""
Files larger than memory, and checkpoints
=========================================

A fit needs sums over the samples only. A file is read block by block, and the result has the same bits as that of the
array in memory. A fit that was interrupted can be resumed.
"""

# %%
# A file
# ------
# A million samples of 64 features, 256 MB, written in parts.

import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from elldict import LpDictionaryLearning, datasets, metrics, plot, theory

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
# ``fit`` takes the name of the file. ``tracemalloc`` measures the memory that the fit allocates.

tracemalloc.start()
model = LpDictionaryLearning().fit(path)
peak = tracemalloc.get_traced_memory()[1]
tracemalloc.stop()
print(f"{path.stat().st_size / 1e6:.0f} MB of samples, {peak / 1e6:.0f} MB of memory, {model.n_passes_:.1f} passes")
print(
    f"error {metrics.recovery_error(model.components_, dictionary):.4%}, estimated {model.expected_error_:.4%}, "
    f"Cramér-Rao bound {theory.cramer_rao_bound(n_samples=R, **setting):.4%}"
)

# %%
# Interrupted, and resumed
# ------------------------
# With ``checkpoint=``, the state of the fit is written to a file from time to time, and when it is interrupted. Here
# Ctrl-C comes after the eighth iteration. The resumed fit ends with the same bits.

checkpoint = Path(folder.name) / "checkpoint.npz"


def interrupt(iteration):
    """Press Ctrl-C."""
    if iteration.iteration == 8:
        raise KeyboardInterrupt


try:
    LpDictionaryLearning().fit(path, checkpoint=checkpoint, callback=interrupt)
except KeyboardInterrupt:
    print("interrupted")
resumed = LpDictionaryLearning().fit(path, checkpoint=checkpoint, resume=True)
print("the same bits:", np.array_equal(resumed.components_, model.components_))

# %%
# Iterations and passes
# ---------------------
# Most iterations are on small subsamples; only the last climb sees all samples. Each band is a climb. Fits to parts of
# the samples, for the error bars, are not shown.

print(f"{model.n_iter_} iterations in {model.n_passes_:.1f} passes over all samples")
figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
plot.convergence(model, ax=ax)
plt.show()

folder.cleanup()
