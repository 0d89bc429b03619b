"""
Sources beyond whitening
========================

FastICA and similar methods whiten the samples, and then search for a rotation. The sample covariance has errors of its
own, which no rotation can undo. `LpICA` continues from the best rotation to the most likely invertible matrix: sparse
sources without noise are then recovered exactly, and noisy ones with the smallest possible error.
"""

# %%
# Zeros
# -----
# Ten sources are zero in eight of ten samples, and are mixed without noise. Each point is a sample in which the first
# source is zero; a perfect estimate would be zero, too.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import FastICA

from elldict import LpICA
from elldict.metrics import match_atoms
from elldict.theory import cramer_rao_bound

INK, TEAL, ORANGE, GREY = "#4338ca", "#0f766e", "#c2410c", "#9a9ca6"


def draw(n_samples, noise, seed=0):
    """Draw samples of ten sparse sources, the mixing matrix, and the sources."""
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(n_samples, 10)) * (rng.random((n_samples, 10)) < 0.2) + noise * rng.normal(
        size=(n_samples, 10)
    )
    M = rng.normal(size=(10, 10))
    return S @ M.T, M, S


X, M, S = draw(1000, noise=0)
methods = {
    "FastICA": (lambda: FastICA(random_state=0, max_iter=1000, tol=1e-6), GREY),
    "LpICA(orthogonal=True)": (lambda: LpICA(orthogonal=True, error_bars=False), ORANGE),
    "LpICA()": (lambda: LpICA(error_bars=False), INK),
}
figure, panels = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for ax, (name, (make, color)) in zip(panels, methods.items(), strict=True):
    Z = make().fit_transform(X)
    first = Z[:, np.argmax(np.abs(np.corrcoef(Z.T, S[:, 0])[-1, :-1]))]
    is_zero = S[:, 0] == 0
    shown = first[is_zero] - np.median(first[is_zero])
    ax.plot(np.flatnonzero(is_zero), shown, ".", color=color, ms=4)
    ax.set(title=name, xlabel="sample", ylim=(-0.6, 0.6))
    ax.text(0.03, 0.04, f"standard deviation {np.std(shown):.0e}", transform=ax.transAxes, color=color)
    ax.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("estimate where the source is zero")
plt.show()

# %%
# Errors
# ------
# The error is 1 - cos⁴ of the angle between the estimated and the true columns, in coordinates in which the true ones
# are orthogonal. No unbiased estimate has a smaller one than the Cramér-Rao bound; that of a rotation of whitened
# samples is several times as large.

sizes, noise = np.array([500, 1000, 2000, 4000, 8000, 16_000]), 0.1
figure, ax = plt.subplots(figsize=(7.4, 4.6), layout="constrained")
for name, (make, color) in methods.items():
    errors = []
    for n_samples in sizes:
        found = []
        for seed in range(5):
            X, M, _ = draw(n_samples, noise, seed)
            found.append(match_atoms(np.linalg.solve(M, make().fit(X).mixing_).T, np.eye(10)).cosines ** 4)
        errors.append(1 - np.mean(found))
    ax.loglog(sizes, errors, "o-", color=color, label=name)
limit = [cramer_rao_bound(n_features=10, n_samples=r, density=0.2, noise_std=noise, orthogonal=False) for r in sizes]
ax.loglog(sizes, limit, "--", color=TEAL, label="Cramér-Rao bound")
ax.set(xlabel="number of samples", ylabel="error", title=f"Sparse sources with noise {noise:g}")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
