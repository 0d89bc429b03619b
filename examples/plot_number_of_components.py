"""
How many components? Handwritten digits
=======================================

A fit returns as many components as requested. :func:`elldict.stability` fits random halves of the samples for each
number of components, and measures which of them are reproduced.
"""

# %%
# 1797 digits of 8x8 pixels come with scikit-learn. A path of five numbers with three pairs of halves is 35 small fits.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import elldict

digits = load_digits().data
model = elldict.LpICA()
path = elldict.stability(model, digits, n_components=[10, 20, 25, 30, 40], n_splits=3, random_state=0)
print(path)

# %%
figure, ax = plt.subplots(figsize=(9, 5), layout="constrained")
elldict.plot.stability(path, ax=ax)
plt.show()

# %%
# The components for the number with the most stable ones, sorted by their stability, which is written above. The first
# are strokes of a pen; the last ones should not be interpreted.

chosen = path.n_components.index(path.best)
values, atoms = path.values[chosen], path.mixing[chosen].T
order = np.argsort(-values)
figure, axes = plt.subplots(3, 10, figsize=(12, 4.6), layout="constrained")
for ax in axes.flat:
    ax.axis("off")
for ax, number in zip(axes.flat, order, strict=False):
    atom = atoms[number] / np.max(np.abs(atoms[number]))
    ax.imshow(atom.reshape(8, 8), cmap="PuOr_r", vmin=-1, vmax=1)
    known = values[number] >= 0.9
    ax.set_title(f"{values[number]:.2f}", color="#4338ca" if known else "#5c606c", weight="bold" if known else "normal")
plt.show()

# %%
# Few components are stable, since a half has only 900 digits. More components than that are not reproducible, whatever
# their number.

# sphinx_gallery_thumbnail_number = 2
