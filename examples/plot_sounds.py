"""
Separating sounds
=================

Six microphones record mixtures of five sounds. Only the independence of the sounds is used. :class:`elldict.LpICA`
separates them, and estimates an error for each.
"""

# %%
# Sounds
# ------
# Four seconds of a bell, a bird, a drum, a plucked string and the hum of a machine. They are synthesised here, so that
# the result can be checked.

import base64
import io
import wave

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import FastICA

from elldict import LpICA

RATE = 8000
rng = np.random.default_rng(0)
t = np.arange(4 * RATE) / RATE


def strike(times, tone, decay):
    """Add decaying tones that begin at given times."""
    sound = np.zeros_like(t)
    for start in times:
        later = np.clip(t - start, 0, None)
        sound += np.where(t >= start, np.exp(-later / decay) * tone(later), 0)
    return sound


def pluck(frequency, seconds):
    """Synthesise a plucked string: noise in a delay line with a low-pass filter (Karplus and Strong)."""
    line = rng.uniform(-1, 1, int(RATE / frequency))
    sound = np.empty(int(seconds * RATE))
    for k in range(len(sound)):
        sound[k] = line[k % len(line)]
        line[k % len(line)] = 0.498 * (line[k % len(line)] + line[(k + 1) % len(line)])
    return sound


bell = strike([0.2, 1.9, 3.1], lambda s: sum(np.sin(2 * np.pi * f * s) for f in (523, 1319, 1760)), 0.5)
bird = strike(np.arange(0.1, 4, 0.37), lambda s: np.sin(2 * np.pi * (2200 + 900 * np.sin(60 * s)) * s), 0.06)
drum = strike(np.arange(0, 4, 0.5), lambda s: rng.normal(size=s.shape) + 3 * np.sin(2 * np.pi * 70 * s), 0.05)
string = np.concatenate([pluck(f, 0.5) for f in (196, 247, 294, 247, 196, 294, 370, 392)])
hum = np.sign(np.sin(2 * np.pi * 50 * t)) + 0.3 * np.sin(2 * np.pi * 150 * t)

names = ["bell", "bird", "drum", "string", "hum"]
sounds = np.column_stack([bell, bird, drum, string, hum])
sounds /= sounds.std(axis=0)

# %%
# Each microphone records a mixture, with noise of its own.

mixing = rng.uniform(0.2, 1, size=(6, 5))
heard = sounds @ mixing.T + 0.02 * rng.normal(size=(len(t), 6))

# %%
# Separation
# ----------
# ``LpICA`` reduces the six channels to five directions, and unmixes them. The hum is sub-Gaussian, and the other sounds
# are super-Gaussian; both kinds are recovered.

ica = LpICA(5)
found = ica.fit_transform(heard)

partner = np.argmax(np.abs(np.corrcoef(sounds.T, found.T)[:5, 5:]), axis=1)
peer = FastICA(5, random_state=0).fit_transform(heard)
for name, i in zip(names, partner, strict=True):
    true = sounds[:, names.index(name)]
    best = max(abs(np.corrcoef(true, peer[:, j])[0, 1]) for j in range(5))
    print(
        f"{name:7s} correlation {abs(np.corrcoef(true, found[:, i])[0, 1]):.4f} (FastICA {best:.4f}), "
        f"estimated error {ica.atom_error_[i]:.2g}"
    )

# %%
# The correlations are those of the sounds with what was found, which contains noise of the microphones; the estimated
# errors are those of the columns of ``mixing_``. Noise before whitening shifts these columns by an angle that does not
# depend on the number of samples, and is not part of the estimate.
#
# Left: the microphones. Right: the true sounds (grey), and the estimated ones (blue, in front).

figure, axes = plt.subplots(5, 2, figsize=(12, 6.5), sharex=True, layout="constrained")
for row, (name, i) in enumerate(zip(names, partner, strict=True)):
    axes[row, 0].plot(t, heard[:, row], lw=0.4, color="#5c606c")
    axes[row, 0].set_ylabel(f"mic {row + 1}", rotation=0, ha="right", va="center")
    sign = np.sign(np.corrcoef(sounds[:, row], found[:, i])[0, 1])
    axes[row, 1].plot(t, sounds[:, row], lw=1.6, color="#c9cad0")
    axes[row, 1].plot(t, sign * found[:, i], lw=0.4, color="#4338ca")
    axes[row, 1].set_ylabel(name, rotation=0, ha="right", va="center", weight="bold")
for ax in axes.flat:
    ax.set_yticks([])
    ax.spines[["top", "right", "left"]].set_visible(False)
axes[0, 0].set_title("microphones", weight="bold")
axes[0, 1].set_title("sounds found by elldict", weight="bold")
for ax in axes[-1]:
    ax.set_xlabel("seconds")
plt.show()


# %%
# Listen
# ------


class Players:
    """Audio players, one per sound, for notebooks and this page."""

    def __init__(self, sounds):
        self.sounds = sounds

    def _repr_html_(self):
        player = "<p>{}<audio controls src='{}'></audio></p>"
        return "".join(player.format(name, self.encode(y)) for name, y in self.sounds.items())

    @staticmethod
    def encode(y):
        """Encode a sound as a data URI."""
        stream = io.BytesIO()
        with wave.open(stream, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(1)
            file.setframerate(RATE)
            file.writeframes((127 + 120 * y / np.max(np.abs(y))).astype(np.uint8).tobytes())
        return "data:audio/wav;base64," + base64.b64encode(stream.getvalue()).decode()


Players({"microphone 1": heard[:, 0]} | {name: found[:, i] for name, i in zip(names, partner, strict=True)})
