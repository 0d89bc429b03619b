"""The tables of the paper."""
