"""Curves of ICA solvers from a single fit: they show their codes to their contrast, once an iteration."""

from __future__ import annotations

import numpy as np

from experiments.harness.watch import Matrix, Watch

COLUMNS_PER_FEATURE = 2
"""Codes of so many samples per feature tell the unmixing matrix; 2 leave the least squares well conditioned."""


class CodeViews:
    """Keeps the codes of the first samples, and finds the unmixing matrices behind them afterwards."""

    def __init__(self, X: Matrix, watch: Watch) -> None:
        self.watch = watch
        self.n_columns = COLUMNS_PER_FEATURE * X.shape[1]
        with watch.aside():
            self.samples = X[: self.n_columns] - X.mean(axis=0)

    def look(self, codes: Matrix) -> None:
        """Keep a view of codes (n, r)."""
        self.watch.look(codes[:, : self.n_columns].copy)

    def translate(self) -> None:
        """Codes are B (x - mean): least squares over the samples that were kept give B."""
        with self.watch.aside():
            inverse = np.linalg.pinv(self.samples.astype(np.float64))
        self.watch.translate(lambda codes: (inverse @ codes.T.astype(np.float64)).T)
