"""Warnings by name, so that each can be filtered on its own."""

from __future__ import annotations

__all__ = ["NotIdentifiableWarning", "NotWhiteWarning", "RankWarning"]


class NotIdentifiableWarning(UserWarning):
    """Some atoms cannot be told from chance: their codes are Gaussian or sub-Gaussian, or samples are too few."""


class NotWhiteWarning(UserWarning):
    """The samples are far from white and were not whitened."""


class RankWarning(UserWarning):
    """The samples do not vary in every direction."""
