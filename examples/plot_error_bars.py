"""
Estimated and true errors
=========================

Every fit estimates the errors of its atoms. With simulated samples these can be compared with the true errors: for
several numbers of samples, noise levels and distributions of codes, and for each atom.
"""

# %%
# Forty-eight fits
# ----------------

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import ortho_group

import elldict
from elldict.metrics import match_atoms, recovery_error

N = 16
rng = np.random.default_rng(0)
distributions = {
    "zero or Gaussian": lambda shape: rng.normal(size=shape) * (rng.random(shape) < 0.2),
    "Laplace": lambda shape: rng.laplace(size=shape) / np.sqrt(2),
    "uniform": lambda shape: rng.uniform(-1, 1, shape) * np.sqrt(3),
    "gamma, skewed": lambda shape: rng.gamma(1, size=shape) - 1,
}
points = {name: [] for name in distributions}
for name, draw in distributions.items():
    for r in (1000, 3000, 10_000, 30_000):
        for noise in (0.05, 0.2, 0.4):
            atoms = ortho_group.rvs(N, random_state=rng)
            codes = draw((r, N))
            X = (codes / codes.std() + noise * rng.normal(size=codes.shape)) @ atoms
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few samples and much noise
                model = elldict.LpDictionaryLearning().fit(X)
            points[name].append((recovery_error(model.components_, atoms), model.expected_error_))

# %%
# On the diagonal, the estimated error is the true one; between the dashed lines they agree within a factor of two.
# Otherwise the estimate is too large: with few samples, fits to parts of them are worse than the fit to all.

figure, ax = plt.subplots(figsize=(7.4, 6), layout="constrained")
line = np.array([1e-5, 1])
ax.loglog(line, line, color="#191b22", lw=1)
for factor in (0.5, 2):
    ax.loglog(line, factor * line, color="#9a9ca6", lw=1, ls="--")
for (name, found), colour in zip(points.items(), ["#4338ca", "#0f766e", "#c2410c", "#9a9ca6"], strict=True):
    x, y = np.maximum(np.array(found).T, 1e-5)
    ax.loglog(x, y, "o", ms=8, color=colour, mec="white", label=name)
ax.set(xlabel="true error", ylabel="estimated error: expected_error_", aspect="equal", xlim=(5e-5, 1), ylim=(5e-5, 1))
ax.legend(frameon=False, title="codes")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Atom by atom
# ------------
# The more often an atom is active, the closer its codes are to Gaussian ones, and the larger is its error. Here are the
# errors of sixteen atoms with different densities of codes, in twenty data sets.

densities = np.geomspace(0.02, 0.8, N)
true, stated = np.zeros((2, 20, N))
for trial in range(20):
    codes = rng.normal(size=(4000, N)) * (rng.random((4000, N)) < densities) / np.sqrt(densities)
    atoms = ortho_group.rvs(N, random_state=rng)
    X = (codes + 0.3 * rng.normal(size=codes.shape)) @ atoms
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = elldict.LpDictionaryLearning().fit(X)
    match = match_atoms(model.components_, atoms)
    true[trial, match.indices] = 2 * (1 - match.cosines**2)
    stated[trial, match.indices] = model.atom_error_

figure, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
ax.loglog(densities, true.T, color="#c9cad0", lw=1)
ax.loglog(densities, true.mean(axis=0), "o-", color="#191b22", lw=2, label="true, mean of 20 data sets (each in grey)")
ax.loglog(densities, stated.mean(axis=0), "o--", color="#4338ca", lw=2, label="estimated: atom_error_, mean")
ax.set(xlabel="density of an atom's codes", ylabel="error of the atom")
ax.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5], ["2 %", "5 %", "10 %", "20 %", "50 %"])
ax.minorticks_off()
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
