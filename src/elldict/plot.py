"""Plots of fitted models: atoms, their errors, how the fit converged, codes, stability; and of rotated loadings."""

from elldict._old.plot import atoms, codes, convergence, errors, loadings, stability

__all__ = ["atoms", "codes", "convergence", "errors", "loadings", "stability"]
