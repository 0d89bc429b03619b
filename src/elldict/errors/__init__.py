"""Errors of atoms."""
