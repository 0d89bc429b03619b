"""Real samples: what is refined by default predicts unseen samples at least as well as what is not."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from elldict import LpDictionaryLearning

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def held_out_scores(X, **options):
    train, test = X[::2], X[1::2]
    models = (LpDictionaryLearning(refine=refine, random_state=0, **options) for refine in (None, "auto"))
    return [model.fit(train).score(test) for model in models]


def patches(image, size=8, step=4):
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size))[::step, ::step]
    return windows.reshape(-1, size * size).astype(np.float64)


@pytest.mark.filterwarnings("ignore")  # natural images are neither white nor all identifiable, which is said elsewhere
@pytest.mark.parametrize("number", [0, 1])
def test_image_patches(number):
    image = load_sample_images().images[number].mean(axis=2)
    plain, refined = held_out_scores(patches(image), whiten=True, center=True)
    assert refined >= plain


@pytest.mark.filterwarnings("ignore")
def test_eeg():
    recording = SHARED / "biosignals" / "eeg_eeglab_32ch.npz"
    if not recording.exists():
        pytest.skip("no recording at hand")
    with np.load(recording) as arrays:
        channels = next(array for array in arrays.values() if array.ndim == 2)
    plain, refined = held_out_scores(channels.T, whiten=True, center=True)
    assert refined >= plain
