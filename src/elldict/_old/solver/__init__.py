"""The solver: objectives are summed over samples, a direction moves A, one loop does both."""
