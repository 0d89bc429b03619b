"""Real samples: what is refined predicts unseen samples better than what is not, and the default never worse."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from elldict import LpDictionaryLearning

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def gains(X, **options):
    """Of log-likelihood of a held-out sample, in standard errors: by the refinement as asked, and by default."""
    train, test = X[::2], X[1::2]
    plain, asked, default = (
        LpDictionaryLearning(refine=refine, random_state=0, **options).fit(train)
        for refine in (None, "bernoulli-gaussian", "auto")
    )
    assert asked.refined_ == "bernoulli-gaussian"
    assert not np.array_equal(asked.components_, plain.components_)
    before = plain.score_samples(test).astype(np.float64)
    return [standard_errors(model.score_samples(test) - before) for model in (asked, default)]


def standard_errors(gain):
    spread = np.std(gain) / np.sqrt(len(gain))
    return np.mean(gain) / spread if spread else 0.0


def patches(image, size=8, step=8):
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size))[::step, ::step]
    return windows.reshape(-1, size * size).astype(np.float64)


@pytest.mark.filterwarnings("ignore")  # natural images are neither white nor all identifiable, which is said elsewhere
@pytest.mark.parametrize("number", [0, 1])
def test_image_patches(number):
    image = load_sample_images().images[number].mean(axis=2)
    asked, default = gains(patches(image), whiten=True, center=True)
    assert asked > 5  # seen: 12 and 18; neighbouring patches are alike, so a standard error is up to 1.4 of these
    assert default > -3


@pytest.mark.filterwarnings("ignore")
def test_eeg():
    recording = SHARED / "biosignals" / "eeg_eeglab_32ch.npz"
    if not recording.exists():
        pytest.skip("no recording at hand")
    with np.load(recording) as arrays:
        channels = next(array for array in arrays.values() if array.ndim == 2)
    asked, default = gains(channels.T, whiten=True, center=True)
    assert min(asked, default) > -3  # seen: 2, of samples so alike from one to the next that it is less than 1
