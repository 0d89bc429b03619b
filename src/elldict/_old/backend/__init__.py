"""Array libraries and devices: all that differs between them, and nothing else."""
