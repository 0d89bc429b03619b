"""The solver: contrasts are summed over samples, a step moves A, one loop does both."""
