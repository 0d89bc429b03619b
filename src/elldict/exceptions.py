"""Warnings and errors by name, so that each can be filtered or caught on its own."""

from __future__ import annotations

__all__ = [
    "ClusterError",
    "DataChangedWarning",
    "NoCheckpointWarning",
    "NotIdentifiableWarning",
    "NotWhiteWarning",
    "RankWarning",
    "SamplesChangedError",
    "SamplesFileError",
    "SmallerTilesWarning",
]


class ClusterError(RuntimeError):
    """A cluster cannot finish a pass over the samples: no workers, workers lost again and again, or no connection."""


class DataChangedWarning(UserWarning):
    """The samples of a stream are no longer those that its atoms were learned from."""


class NoCheckpointWarning(UserWarning):
    """There was no checkpoint to resume from: the fit started from the beginning."""


class NotIdentifiableWarning(UserWarning):
    """Some atoms cannot be told from their mixtures: codes are Gaussian or depend on each other, or samples are few."""


class NotWhiteWarning(UserWarning):
    """The samples are far from white and were not whitened."""


class RankWarning(UserWarning):
    """The samples do not vary in every direction."""


class SamplesFileError(ValueError):
    """A file of samples is damaged, or does not hold an array of numbers, one sample a row."""


class SamplesChangedError(SamplesFileError):
    """A file of samples is no longer the one that was opened."""


class SmallerTilesWarning(UserWarning):
    """A graphics card ran out of memory, and fewer samples were taken at a time."""
