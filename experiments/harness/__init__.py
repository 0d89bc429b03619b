"""Shared by all experiments: stored results, worker processes, the machine, a clock, the style of pictures."""
