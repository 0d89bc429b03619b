"""
A photograph without its noise
==============================

Atoms learned from the noisy photograph itself hold what patches have in common; noise has nothing in common with
itself. Codes that noise alone explains are set to zero, and the patches are put together again.
"""

# %%
# Noise
# -----
# A photograph of scikit-image at half its size, with white noise of a tenth of its range.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from skimage import data, metrics, restoration, transform
from sklearn.feature_extraction.image import extract_patches_2d, reconstruct_from_patches_2d

from elldict import LpDictionaryLearning

SIZE, SIGMA = 8, 0.1
photograph = transform.rescale(data.camera() / 255.0, 0.5, anti_aliasing=True)
noisy = photograph + SIGMA * np.random.default_rng(0).normal(size=photograph.shape)

# %%
# Eight lines
# -----------
# All patches, without their means; atoms from a part of them; codes above 2.7 standard deviations of the noise.

patches = extract_patches_2d(noisy, (SIZE, SIZE)).reshape(-1, SIZE**2)
means = patches.mean(axis=1, keepdims=True)
options = {"transform_algorithm": "hard_threshold", "transform_alpha": 2.7 * SIGMA}
model = LpDictionaryLearning(halves=False, random_state=0, **options)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # patches have no mean, and their codes depend on each other
    model.fit(np.random.default_rng(0).permutation(patches - means)[:15_000])
clean = model.inverse_transform(model.transform(patches - means)) + means
ours = reconstruct_from_patches_2d(clean.reshape(-1, SIZE, SIZE), noisy.shape)

# %%
# ``denoise`` needs no threshold: it takes the posterior mean of each code under the law that was fitted to them, which
# patches follow in part only. The noise may be given to it as well.

posterior = model.denoise(patches - means, noise_std=SIGMA) + means
posterior = reconstruct_from_patches_2d(posterior.reshape(-1, SIZE, SIZE), noisy.shape)

# %%
# Beside others
# -------------

pictures = {
    "noisy": noisy,
    "total variation": restoration.denoise_tv_chambolle(noisy, weight=SIGMA),
    "non-local means": restoration.denoise_nl_means(noisy, h=0.8 * SIGMA, sigma=SIGMA, patch_size=5, patch_distance=6),
    "elldict, denoise": posterior,
    "elldict, threshold": ours,
}
figure, axes = plt.subplots(2, 5, figsize=(15, 6.4), layout="constrained")
detail = (slice(35, 105), slice(75, 145))
for column, (name, picture) in enumerate(pictures.items()):
    decibels = metrics.peak_signal_noise_ratio(photograph, np.clip(picture, 0, 1), data_range=1)
    weight, colour = ("bold", "#4338ca") if name.startswith("elldict") else ("normal", "#191b22")
    axes[0, column].set_title(f"{name}\n{decibels:.1f} dB", weight=weight, color=colour)
    axes[0, column].imshow(picture, cmap="gray", vmin=0, vmax=1)
    axes[1, column].imshow(picture[detail], cmap="gray", vmin=0, vmax=1)
    print(f"{name:20s} {decibels:.2f} dB")
for ax in axes.flat:
    ax.axis("off")
plt.show()

# %%
# A complete dictionary is no match for methods made for images, such as BM3D, which gain about a decibel more. What it
# shows is that atoms found in noise are good atoms.

# %%
# The atoms
# ---------

strongest = np.argsort(-np.mean(model.transform(patches - means) ** 2, axis=0))[:24]
figure, axes = plt.subplots(2, 12, figsize=(12, 2.2), layout="constrained")
for ax, number in zip(axes.flat, strongest, strict=True):
    ax.imshow(model.components_[number].reshape(SIZE, SIZE), cmap="gray")
    ax.axis("off")
plt.show()
