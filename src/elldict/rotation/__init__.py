"""Orthogonal rotation of factor loadings, with standard errors."""
