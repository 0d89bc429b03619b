"""Closed forms: moments in, numbers out. At the bottom of the house, so that everyone may ask it."""

from elldict.theory.accuracy import expected_error, gaussian_moment

__all__ = ["expected_error", "gaussian_moment"]
