"""
Factor rotation with standard errors
====================================

Factors are determined up to a rotation. Varimax chooses the rotation with few large loadings per factor, so that they
can be interpreted. :func:`elldict.rotate` computes it from several starts, and a bootstrap of the observations gives
standard errors of the loadings.
"""

# %%
# Thirty measurements of tumours
# ------------------------------
# scikit-learn's table of breast cancer: ten measurements of the nuclei of cells in each of 569 tumours, as mean, as
# worst value, and as "error", which is how much the nuclei of one tumour differ. Four factors explain most of their
# correlations.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import FactorAnalysis
from sklearn.preprocessing import StandardScaler

import elldict

table = load_breast_cancer()
measured = np.log(table.data + 0.01)


def find_loadings(rows):
    """Loadings of four factors before rotation."""
    X = StandardScaler().fit_transform(rows)
    return FactorAnalysis(4, random_state=0).fit(X).components_.T


loadings = find_loadings(measured)

# %%
# Bootstrap
# ---------
# Tumours are drawn with replacement, and their factors are estimated again. Factors of a draw may have another order,
# sign or rotation; :func:`elldict.rotate` takes care of that.

rng = np.random.default_rng(0)
n = len(measured)
draws = [find_loadings(measured[rng.integers(n, size=n)]) for _ in range(50)]
found = elldict.rotate(loadings, "varimax", bootstrap_loadings=draws, random_state=0)
print(found.summary(table.feature_names))

# %%
# Before and after
# ----------------
# Rows are sorted by the rotated factor with their largest loading.

for name, values in (("unrotated", loadings), ("varimax", found.loadings)):
    print(f"{name}: {np.sum(np.sum(np.abs(values) > 0.3, axis=1) > 1)} of 30 variables load on more than one factor")
size = np.abs(found.loadings)
order = np.lexsort((-size.max(axis=1), size.argmax(axis=1)))
figure, axes = plt.subplots(1, 2, figsize=(9, 7.2), sharey=True, layout="constrained")
for ax, values, title in zip(axes, (loadings, found.loadings), ("unrotated", "varimax"), strict=True):
    picture = ax.imshow(values[order], cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    ax.set_title(title, weight="bold")
    ax.set_xticks(range(4), [f"{title} {k + 1}" for k in range(4)], fontsize=8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
axes[0].set_yticks(range(30), table.feature_names[order])
figure.colorbar(picture, ax=axes, shrink=0.5, label="loading")
plt.show()

# %%
# Standard errors
# ---------------
# Bars are twice the standard errors over observations: they describe how loadings vary with the tumours.

elldict.plot.loadings(found, names=list(table.feature_names))
plt.show()

# %%
# The factors are size (radius, perimeter, area), shape (compactness, concavity), differences between the nuclei of a
# tumour ("error"), and texture. Loadings of texture have long bars, because in many draws the fourth factor is another
# one, and texture has no factor:

texture = list(table.feature_names).index("worst texture")
explained = np.array([np.sum(draw[texture] ** 2) for draw in draws])
print(f"factors explain less than half of worst texture in {np.sum(explained < 0.5)} of {len(draws)} draws")

# %%
# scikit-learn's own varimax starts once and does not scale rows, as ``normalize=False`` here:

peer = FactorAnalysis(4, rotation="varimax", random_state=0).fit(StandardScaler().fit_transform(measured)).components_.T
partners = np.abs(np.corrcoef(found.loadings.T, peer.T)[:4, 4:]).max(axis=1)
print("correlation of each factor with scikit-learn's:", partners.round(3))
