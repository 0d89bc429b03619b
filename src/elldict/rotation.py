"""Rotation of factor loadings, with standard errors."""

from elldict._old.rotation import Rotation, Rotator, rotate

__all__ = ["Rotation", "Rotator", "rotate"]
