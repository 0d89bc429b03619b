"""
Atoms of a photograph
=====================

Small patches of a photograph are sums of a few edges and stripes. Principal components of the patches are waves,
whatever the picture; elldict finds the parts that this picture is made of.
"""

# %%
# Patches
# -------
# 20 000 patches of 8x8 pixels, drawn at random from a photograph that comes with scikit-learn, without their mean.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.decomposition import PCA
from sklearn.feature_extraction.image import extract_patches_2d

from elldict import LpICA

SIZE = 8
photograph = load_sample_image("china.jpg").mean(axis=2)
patches = extract_patches_2d(photograph, (SIZE, SIZE), max_patches=20_000, random_state=0).reshape(-1, SIZE**2)
patches -= patches.mean(axis=1, keepdims=True)

# %%
# Atoms
# -----
# Without its mean a patch varies in 63 directions. That is how many atoms there can be.

ica = LpICA(63, random_state=0).fit(patches)
pca = PCA(63).fit(patches)
print(ica.status_)

# %%
# Atoms are columns of ``mixing_``: the patch that a code of one stands for.


def make_sheet(atoms, columns=9):
    """Atoms side by side, each scaled to its largest pixel."""
    rows = -(-len(atoms) // columns)
    sheet = np.full((rows * (SIZE + 1) - 1, columns * (SIZE + 1) - 1), np.nan)
    for number, atom in enumerate(atoms):
        i, j = np.array(divmod(number, columns)) * (SIZE + 1)
        sheet[i : i + SIZE, j : j + SIZE] = (atom / atom[np.argmax(np.abs(atom))]).reshape(SIZE, SIZE)
    return sheet


figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), width_ratios=(1.5, 1, 1), layout="constrained")
axes[0].imshow(photograph, cmap="gray")
axes[1].imshow(make_sheet(pca.components_), cmap="gray", vmin=-1, vmax=1)
axes[2].imshow(make_sheet(ica.mixing_.T), cmap="gray", vmin=-1, vmax=1)
for ax, title in zip(axes, ["the photograph", "principal components", "atoms found by elldict"], strict=True):
    ax.set_title(title, weight="bold")
    ax.axis("off")
plt.show()

# %%
# How sparse?
# -----------
# A code is sparse if a few patches have nearly all of its energy. The curves show which share of a code's energy the
# strongest patches hold; the dashed line is that of Gaussian noise.

codes = {"principal components": pca.transform(patches), "elldict": ica.transform(patches)}
share = np.linspace(0, 1, len(patches))
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, Z), colour in zip(codes.items(), ["#9a9ca6", "#4338ca"], strict=True):
    energy = np.cumsum(np.sort(Z**2, axis=0)[::-1], axis=0)
    ax.plot(share, np.median(energy / energy[-1], axis=1), color=colour, lw=3, label=name)
noise = np.sort(np.random.default_rng(0).normal(size=len(patches)) ** 2)[::-1].cumsum()
ax.plot(share, noise / noise[-1], "k--", lw=1, label="Gaussian noise")
ax.set(xlabel="share of the patches, strongest first", ylabel="share of the energy (median atom)", xlim=(0, 0.5))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="lower right")
plt.show()
