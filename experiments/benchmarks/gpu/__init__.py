"""Fits on a graphics card."""
