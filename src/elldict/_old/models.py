"""The estimators by name, and the way from a model file back to one of them."""

from __future__ import annotations

import os

from elldict._old.dictionary_learning import LpDictionaryLearning
from elldict._old.ica import LpICA
from elldict._old.persistence import ModelFileError, read, unpack_model

__all__ = ["load"]

MODELS: dict[str, type[LpDictionaryLearning] | type[LpICA]] = {
    "LpDictionaryLearning": LpDictionaryLearning,
    "LpICA": LpICA,
}
"""Classes that a model file may name: a file chooses among these, and imports nothing."""


def load(path: str | os.PathLike[str]) -> LpDictionaryLearning | LpICA:
    """Read a model written by `save` of an estimator.

    Nothing in the file is executed, and everything in it is checked before it is used.

    Parameters
    ----------
    path : str or path-like
        File to read.

    Returns
    -------
    LpDictionaryLearning or LpICA
        The fitted estimator, of the class that the file names, with NumPy arrays.

    Raises
    ------
    ModelFileError
        If the file is not a model file, or is damaged. It is a ValueError.

    Examples
    --------
    >>> import os, tempfile, elldict
    >>> X, _, _ = elldict.datasets.make_bernoulli_gaussian(2000, 8, density=0.3, random_state=0)
    >>> model = elldict.LpDictionaryLearning(random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.npz"))
    ...     again = elldict.load(os.path.join(folder, "model.npz"))
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    header, arrays = read(path)
    name = header.get("class", "LpDictionaryLearning")  # the only one there was when files named none
    if not isinstance(name, str) or name not in MODELS:
        raise ModelFileError(f"{path} holds a model of the class {name!r}, expected one of {', '.join(MODELS)}.")
    try:
        return unpack_model(MODELS[name], header, arrays)
    except MemoryError:
        raise
    except Exception as error:  # whatever a crafted file makes fail, it is the file that is wrong
        raise ModelFileError(f"{path} does not hold a fitted {name}: {error}") from error
