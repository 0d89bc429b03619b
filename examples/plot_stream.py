"""
Streams whose atoms change
==========================

``partial_fit`` reads samples in batches, each of them once. Here the dictionary is replaced by another one halfway
through the stream. The model detects the change, issues a warning, and starts again with later samples.
"""

# %%
# 60 000 samples in batches of 500, with other atoms after sample 30 000.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from elldict import LpDictionaryLearning
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import DataChangedWarning
from elldict.metrics import recovery_error

N, BATCH, R = 16, 500, 30_000
setting = {"n_features": N, "density": 0.2, "noise_std": 0.2}
first, old, _ = make_bernoulli_gaussian(R, **setting, random_state=0)
second, new, _ = make_bernoulli_gaussian(R, **setting, random_state=1)
stream = np.concatenate([first, second])

# %%
# Two models see the same batches. One gives all samples the same weight; in the other one, the weight of a sample is
# halved after 3000 later ones.

half_lives = {"all samples": None, "half_life=3000": 3000}
models = {name: LpDictionaryLearning() for name in half_lives}
true, stated = ({name: [] for name in models} for _ in range(2))
noticed = {}
for start in range(0, len(stream), BATCH):
    atoms = old if start < R else new
    for name, model in models.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataChangedWarning)
            model.partial_fit(stream[start : start + BATCH], half_life=half_lives[name])
        if caught and name not in noticed:
            noticed[name] = start + BATCH
            print(f"{name}, after sample {start + BATCH}: {caught[0].message}\n")
        seen = hasattr(model, "components_")  # the first batches are collected
        true[name].append(recovery_error(model.components_, atoms) if seen else np.nan)
        stated[name].append(model.expected_error_ if seen else np.nan)

# %%
# True and estimated errors of the atoms after each batch. Until there are enough samples after the change, the estimate
# is 1.

figure, axes = plt.subplots(1, 2, figsize=(13, 4.6), sharey=True, layout="constrained")
samples = np.arange(BATCH, len(stream) + 1, BATCH)
for ax, name in zip(axes, models, strict=True):
    ax.semilogy(samples, true[name], color="#191b22", lw=2.5, label="true error")
    ax.semilogy(samples, stated[name], color="#4338ca", lw=2.5, ls="--", label="estimated error")
    ax.axvline(R, color="#c2410c", lw=1)
    ax.text(R - 700, 0.05, "other atoms from here on", color="#c2410c", ha="right")
    if name in noticed:
        ax.axvline(noticed[name], color="#c2410c", lw=1, ls=":")
        ax.text(noticed[name] + 700, 2e-4, "warns", color="#c2410c")
    ax.set_title(name, weight="bold", loc="left")
    ax.set_xlabel("samples seen")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("error of the atoms")
axes[0].legend(frameon=False, loc="upper left")
plt.show()
