"""
Denoising a photograph
======================

Atoms are learned from the patches of a noisy photograph itself. Codes that are small compared with the noise are set to
zero, and the patches are averaged where they overlap.
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
# Atoms and threshold
# -------------------
# All patches, without their means; atoms from 15 000 of them; codes above 2.7 standard deviations of the noise.

patches = extract_patches_2d(noisy, (SIZE, SIZE)).reshape(-1, SIZE**2)
means = patches.mean(axis=1, keepdims=True)
options = {"transform_algorithm": "hard_threshold", "transform_alpha": 2.7 * SIGMA}
model = LpDictionaryLearning(error_bars=False, **options)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # patches without their mean vary in 63 directions, and are not white
    model.fit(np.random.default_rng(0).permutation(patches - means)[:15_000])
clean = model.inverse_transform(model.transform(patches - means)) + means
ours = reconstruct_from_patches_2d(clean.reshape(-1, SIZE, SIZE), noisy.shape)

# %%
# Comparison with other methods
# -----------------------------
# Peak signal-to-noise ratios, for one photograph and one noise level.

pictures = {
    "noisy": noisy,
    "total variation": restoration.denoise_tv_chambolle(noisy, weight=SIGMA),
    "non-local means": restoration.denoise_nl_means(noisy, h=0.8 * SIGMA, sigma=SIGMA, patch_size=5, patch_distance=6),
    "elldict": ours,
}
figure, axes = plt.subplots(2, 4, figsize=(12, 6.4), layout="constrained")
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
# The atoms
# ---------
# The 24 atoms whose codes are largest after the threshold.

strongest = np.argsort(-np.mean(model.transform(patches - means) ** 2, axis=0))[:24]
figure, axes = plt.subplots(2, 12, figsize=(12, 2.2), layout="constrained")
for ax, number in zip(axes.flat, strongest, strict=True):
    ax.imshow(model.components_[number].reshape(SIZE, SIZE), cmap="gray")
    ax.axis("off")
plt.show()
