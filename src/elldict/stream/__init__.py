"""Samples that arrive in batches and are read once."""
