"""Warnings and errors by name, so that each can be filtered or caught on its own."""

from __future__ import annotations

__all__ = [
    "ClusterError",
    "ConvertedFileWarning",
    "DataChangedWarning",
    "NoCheckpointWarning",
    "NotIdentifiableWarning",
    "NotLinearWarning",
    "NotWhiteWarning",
    "RankWarning",
    "SamplesChangedError",
    "SamplesFileError",
    "SmallerTilesWarning",
]

MOST_CHARACTERS = (1200, 300)
"""At the beginning and the end of a message about a file: it begins with the name of the file and ends with what to do,
and whatever was found in the file may be long."""


def make_readable(message: str) -> str:
    """Escape what cannot be printed, such as commands to a terminal, and leave out what is too much to read."""
    first, last = MOST_CHARACTERS
    if len(message) > first + last:
        message = f"{message[:first]} [... {len(message) - first - last} characters ...] {message[-last:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


class ClusterError(RuntimeError):
    """A cluster cannot finish a pass over the samples: no workers, workers lost again and again, or no connection."""


class ConvertedFileWarning(UserWarning):
    """A file of samples cannot be read where it lies, and is too large for memory: it goes to a temporary file."""


class DataChangedWarning(UserWarning):
    """The samples are not all of the same dictionary: it drifts, or a stream goes on with another one."""


class NoCheckpointWarning(UserWarning):
    """There was no checkpoint to resume from: the fit started from the beginning."""


class NotIdentifiableWarning(UserWarning):
    """Some atoms cannot be told from their mixtures: codes are Gaussian or depend on each other, or samples are few."""


class NotLinearWarning(UserWarning):
    """The samples are no sums of atoms: large values have been clipped, or bent by a sensor."""


class NotWhiteWarning(UserWarning):
    """The samples are far from white and were not whitened."""


class RankWarning(UserWarning):
    """The samples do not vary in every direction."""


class FileContentError(ValueError):
    """What stands in a file is wrong. The message may quote the file: all of it can be printed, and is soon read."""

    def __init__(self, message: str) -> None:
        super().__init__(make_readable(message))


class SamplesFileError(FileContentError):
    """A file of samples is damaged, or does not hold an array of numbers, one sample a row."""


class SamplesChangedError(SamplesFileError):
    """A file of samples is no longer the one that was opened."""


class SmallerTilesWarning(UserWarning):
    """A graphics card ran out of memory, and fewer samples were taken at a time."""
