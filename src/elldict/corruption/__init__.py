"""Sparse corruption: samples that are sparse in the atoms, but for a few corrupted entries, and Gaussian noise."""
