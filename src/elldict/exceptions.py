"""Warnings and errors by name, so that each can be filtered or caught on its own."""

from __future__ import annotations

import inspect

__all__ = [
    "ClusterError",
    "ConvertedFileWarning",
    "CorruptedEntriesWarning",
    "DataChangedWarning",
    "DependentComponentsWarning",
    "NoCheckpointWarning",
    "NotIdentifiableWarning",
    "NotLinearWarning",
    "NotWhiteWarning",
    "RankWarning",
    "SamplesChangedError",
    "SamplesFileError",
    "SmallerTilesWarning",
    "SuspiciousFeaturesWarning",
]


def make_readable(message: str) -> str:
    """Escape characters that cannot be printed, such as commands to a terminal, and shorten long messages."""
    first, last = 1200, 300  # a message about a file begins with its name, and ends with the remedy
    if len(message) > first + last:
        message = f"{message[:first]} [... {len(message) - first - last} characters ...] {message[-last:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


class ClusterError(RuntimeError):
    """A cluster cannot finish a pass over the samples: no workers, workers lost repeatedly, or no connection."""


class ConvertedFileWarning(UserWarning):
    """A file of samples is converted to a temporary file: it cannot be read in place, and is too large for memory."""


class CorruptedEntriesWarning(UserWarning):
    """Some entries of the samples seem to be corrupted, or were said to be and do not seem so."""


class DataChangedWarning(UserWarning):
    """The dictionary is not the same for all samples: it drifts, or changes within a stream."""


class DependentComponentsWarning(UserWarning):
    """Some components depend strongly on each other, although a fit assumes independent ones."""


class NoCheckpointWarning(UserWarning):
    """There is no checkpoint to resume from: the fit starts from the beginning."""


class NotIdentifiableWarning(UserWarning):
    """Some components are not identifiable: their codes are Gaussian or depend on each other, or samples too few."""


class NotLinearWarning(UserWarning):
    """The samples are not sums of atoms: large values are clipped, or the response of a sensor is not linear."""


class NotWhiteWarning(UserWarning):
    """The samples are far from white and were not whitened."""


class RankWarning(UserWarning):
    """The samples do not vary in every direction."""


class FileContentError(ValueError):
    """The content of a file is wrong. Messages may quote it, so they are made printable and short."""

    def __init__(self, message: str) -> None:
        super().__init__(make_readable(message))


class SamplesFileError(FileContentError):
    """A file of samples is damaged, or does not hold an array of numbers with one sample per row."""


class SamplesChangedError(SamplesFileError):
    """A file of samples has changed since it was opened."""


class SmallerTilesWarning(UserWarning):
    """A GPU ran out of memory, and smaller blocks of samples are used."""


class SuspiciousFeaturesWarning(UserWarning):
    """Features are rounded, constant in a part of the samples, or on very different scales."""


def find_stack_level() -> int:
    """Find the level of the first caller outside of this package and scikit-learn, as seen by the caller of this."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("elldict", "sklearn"):
        frame, level = frame.f_back, level + 1
    return level
