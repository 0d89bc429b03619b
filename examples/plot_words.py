"""
Interpretable axes of word vectors
==================================

The entries of word vectors have no meaning one by one. In the basis of independent components, each word has few large
codes, and the words with the largest codes of a component tell its topic.
"""

# %%
# Word vectors
# ------------
# The text is the documentation of NumPy, SciPy and scikit-learn. Vectors are those of latent semantic analysis:
# positive pointwise mutual information of words at a distance of at most five, reduced to 40 principal directions.

import importlib
import pkgutil
import re
import warnings
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
import scipy
import scipy.sparse
import sklearn
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils.extmath import randomized_svd

import elldict


def read_docstrings(package):
    """List the docstrings of the public functions and classes of a package, once each."""
    texts = {}
    modules = [package.__name__, *(f"{package.__name__}.{m.name}" for m in pkgutil.iter_modules(package.__path__))]
    for name in modules:
        if any(part.startswith("_") or part in ("tests", "conftest") for part in name.split(".")):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        things = [getattr(module, word, None) for word in dir(module) if not word.startswith("_")]
        methods = [getattr(t, m) for t in things if isinstance(t, type) for m in dir(t) if not m.startswith("_")]
        for thing in [*things, *methods]:
            text = getattr(thing, "__doc__", None)
            if callable(thing) and isinstance(text, str):
                texts[text] = None
    return list(texts)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some modules are deprecated
    texts = [text for package in (np, scipy, sklearn) for text in read_docstrings(package)]
plain = [re.sub(r"\s*>>>.*|\s*\.\. .*", " ", text).lower() for text in texts]
words = [[w for w in re.findall(r"[a-z]{3,}", text) if w not in ENGLISH_STOP_WORDS] for text in plain]
vocabulary = [word for word, count in Counter(w for text in words for w in text).most_common(3000) if count >= 15]
place = {word: number for number, word in enumerate(vocabulary)}
print(f"{len(texts)} docstrings, {sum(map(len, words))} words, {len(vocabulary)} different ones")

WINDOW, N_AXES = 5, 40
pairs = Counter()
for text in words:
    known = [place[w] for w in text if w in place]
    for distance in range(1, WINDOW + 1):
        pairs.update(zip(known, known[distance:], strict=False))
(rows, columns), counts = np.array(list(pairs)).T, np.array(list(pairs.values()), float)
together = scipy.sparse.coo_array((counts, (rows, columns)), shape=(len(vocabulary),) * 2)
together = (together + together.T).tocoo()
total, often = together.sum(), together.sum(axis=0)
information = np.log(together.data * total / (often[together.row] * often[together.col]))
matrix = scipy.sparse.coo_array((np.maximum(information, 0), (together.row, together.col)), together.shape).tocsr()
U, strengths, _ = randomized_svd(matrix, N_AXES, random_state=0)
vectors = U * np.sqrt(strengths)

# %%
# Axes
# ----
# :func:`elldict.describe_axes` lists the words with the largest codes of each axis. Codes are skewed: most words have
# nothing to do with a topic. The side of the long tail comes first. The strength of Gaussian codes is 1; it is larger
# if few words have large codes.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", elldict.exceptions.NotIdentifiableWarning)  # errors are in the table below
    ica = elldict.LpICA(N_AXES).fit(vectors)
found = elldict.describe_axes(ica, vectors, vocabulary)
print(found.summary(np.argsort(ica.atom_error_)[:12]))  # those with the smallest errors

codes = ica.transform(vectors) * found.tail

# %%
# The words with the largest codes of principal components have less in common.

principal = U[:, :12] * np.sign((U[:, :12] ** 3).mean(axis=0))
for axis in range(6):
    print(", ".join(vocabulary[i] for i in np.argsort(-principal[:, axis])[:7]))

# %%
# Six words in both bases
# -----------------------
# In the basis of elldict, each of these words has one large code. The axis is named by its first word.

shown = [word for word in ("eigenvalues", "poisson", "centroid", "fourier", "lasso", "spline") if word in place]
figure, axes = plt.subplots(len(shown), 2, figsize=(12, 1.25 * len(shown)), sharex="col", layout="constrained")
white = U / U.std(axis=0)
for row, word in enumerate(shown):
    for ax, basis, colour in zip(axes[row], (white, codes), ("#9a9ca6", "#4338ca"), strict=True):
        ax.bar(range(N_AXES), basis[place[word]], color=colour)
        ax.axhline(0, color="#dfddd6", lw=0.8)
        ax.set_yticks([])
        ax.spines[["top", "right", "left"]].set_visible(False)
    axes[row, 0].set_ylabel(word, rotation=0, ha="right", va="center", weight="bold")
    top = np.argmax(codes[place[word]])
    named = found.strongest[top][0]
    axes[row, 1].text(top + 1, 0.8 * codes[place[word], top], f"axis of '{named}'", fontsize=9, va="center")
axes[0, 0].set_title("principal components", weight="bold")
axes[0, 1].set_title("axes found by elldict", weight="bold")
plt.show()
