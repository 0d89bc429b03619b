"""
Atoms of a photograph
=====================

Small patches of a photograph are sums of a few edges and stripes. The principal components of the patches are waves,
whatever the photograph; :class:`elldict.LpICA` finds edges and stripes of this one.
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
# Without its mean, a patch varies in 63 directions: there are at most 63 atoms.

ica = LpICA(63).fit(patches)
pca = PCA(63).fit(patches)
print(ica.status_)

# %%
# Atoms are the columns of ``mixing_``: each is the patch whose code is one for this atom, and zero for all others.


def make_sheet(atoms, columns=9):
    """Arrange atoms in rows, each divided by its largest pixel."""
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
# Where do they act?
# ------------------
# The absolute code of each patch, drawn at the place of the patch. An atom is active in few places, such as the roofs
# or the railings.

everywhere = extract_patches_2d(photograph, (SIZE, SIZE)).reshape(-1, SIZE**2)
everywhere = everywhere - everywhere.mean(axis=1, keepdims=True)
codes = np.abs(ica.transform(everywhere))
height, width = np.array(photograph.shape) - SIZE + 1
chosen = [3, 6, 8]

figure, axes = plt.subplots(1, 3, figsize=(13, 3.2), layout="constrained")
for ax, number in zip(axes, chosen, strict=True):
    ax.imshow(codes[:, number].reshape(height, width), cmap="magma", vmax=np.quantile(codes[:, number], 0.998))
    ax.axis("off")
    corner = ax.inset_axes((0.8, 0.66, 0.2, 0.34))
    corner.imshow(ica.mixing_[:, number].reshape(SIZE, SIZE), cmap="gray")
    corner.set(xticks=[], yticks=[])
    ax.set_title(f"atom {number}", weight="bold")
plt.show()

# sphinx_gallery_thumbnail_number = 2
