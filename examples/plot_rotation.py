"""
Factors that can be named: rotation with standard errors
========================================================

Factors of a table are determined up to a rotation. Varimax chooses the one in which each factor has few large loadings,
so that it can be named. :func:`elldict.rotate` does it from many starts, and says how sure each loading is.
"""

# %%
# Thirty measurements of tumours
# ------------------------------
# scikit-learn's table of breast cancer: ten measurements of the nuclei of cells, each as mean, standard error and worst
# value. Four factors explain most of their correlations.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import FactorAnalysis
from sklearn.preprocessing import StandardScaler

import elldict

table = load_breast_cancer()
X = StandardScaler().fit_transform(np.log(table.data + 0.01))
factors = FactorAnalysis(4, random_state=0).fit(X)
loadings = factors.components_.T

# %%
# Rotated
# -------

found = elldict.rotate(loadings, "varimax", random_state=0)
peer = FactorAnalysis(4, rotation="varimax", random_state=0).fit(X).components_.T
print(f"ten starts end at criteria from {found.criteria.min():.3f} to {found.criteria.max():.3f}")
print(f"largest standard error of a loading: {found.standard_errors.max():.3f}")

figure, axes = plt.subplots(1, 2, figsize=(9, 7.2), sharey=True, layout="constrained")
order = np.argsort(np.argmax(np.abs(found.loadings), axis=1) * 10 - np.max(np.abs(found.loadings), axis=1))
for ax, values, title in zip(axes, (loadings, found.loadings), ("before", "after varimax"), strict=True):
    picture = ax.imshow(values[order], cmap="PuOr_r", vmin=-1, vmax=1, aspect="auto")
    ax.set_title(title, weight="bold")
    ax.set_xticks(range(4), [f"factor {k + 1}" for k in range(4)], fontsize=9)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
axes[0].set_yticks(range(30), table.feature_names[order])
figure.colorbar(picture, ax=axes[1], shrink=0.5, label="loading")
plt.show()

# %%
# With their errors: what of the simple structure is there, and what may be chance.

figure, ax = plt.subplots(figsize=(9, 7.2), layout="constrained")
for factor, colour in enumerate(["#4338ca", "#0f766e", "#c2410c", "#9a9ca6"]):
    ax.errorbar(
        found.loadings[order, factor],
        np.arange(30) + 0.15 * (factor - 1.5),
        xerr=2 * found.standard_errors[order, factor],
        fmt="o",
        ms=4,
        lw=1,
        color=colour,
        label=f"factor {factor + 1}",
    )
ax.axvline(0, color="#dfddd6", lw=1, zorder=0)
ax.set_title("loadings and twice their standard errors", weight="bold")
ax.set(xlim=(-1.1, 1.1), ylim=(29.8, -0.8))
ax.set_yticks(range(30), table.feature_names[order])
ax.legend(frameon=False, loc="lower left")
ax.spines[["top", "right", "left"]].set_visible(False)
ax.tick_params(length=0)
plt.show()

# %%
# Size (radius, perimeter, area), shape (compactness, concavity), how much nuclei differ from each other (the standard
# errors), and texture: names that the loadings before rotation would not have suggested. scikit-learn's own varimax
# scales no rows and starts once:

partners = np.abs(np.corrcoef(found.loadings.T, peer.T)[:4, 4:]).max(axis=1)
print("correlation of each factor with scikit-learn's:", partners.round(3))
