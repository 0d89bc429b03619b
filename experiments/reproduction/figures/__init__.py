"""The figures of the paper, and two more."""
