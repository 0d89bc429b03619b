"""Shared by all experiments: stored results, worker processes, the machine, the style of pictures."""
