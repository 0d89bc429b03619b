"""Tests of the package as it was before it was written again."""
