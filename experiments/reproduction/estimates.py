"""How long a cell will take: a rule for each method, corrected by what was measured."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.harness.store import DONE, Record
from experiments.reproduction.cells import Cell

PASSES = {
    "lp": 60,
    "default": 12,
    "annealed": 200,
    "fastica": 30,
    "picard": 100,
    "pca": 2,
    "gradient": 400,
    "power": 60,
    "top-k": 200,
}
"""Looks at all samples that a method takes, about, in units of two plain products."""

FLOPS = 5e10
LEAST = 0.03


def prior_seconds(cell: Cell) -> float:
    """Seconds on one core of an AMD EPYC, within a factor of two or so."""
    if cell.task == "population":
        return LEAST + _population_seconds(float(cell.value("n_features")), cell)
    n = float(cell.value("n_features") or {"digits": 64}.get(cell.value("source"), 784))
    r = float(cell.value("n_samples") or cell.value("n_train"))
    noise = float(cell.value("noise_std") + cell.value("corruption") / 3)
    if cell.method == "ksvd":
        k = max(1.0, n * float(cell.value("density")))
        return LEAST + float(cell.value("max_iter") or 100) * r * (3e-9 * n * n + 4e-8 * k * k + 1.5e-8 * n * k)
    if cell.method == "rtr":
        return LEAST + 0.015 * n + 4e-10 * r * n**3 * (1 + 15 * noise)
    return LEAST + PASSES[cell.method] * (1 + 4 * noise) * 4 * n * n * r / FLOPS


def _population_seconds(n: float, cell: Cell) -> float:
    n_steps = 3 * n + 50 if cell.method == "gradient" else 30
    return n_steps * (1e-4 + 1e-8 * n**2 if cell.value("constraint") == "sphere" else 1e-4 + 1.2e-9 * n**3)


class Estimator:
    """Seconds of cells, corrected method by method."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._expected: dict[str, float] = {}
        self._measured: dict[str, float] = {}
        for record in records:
            if record.status == DONE:
                self.learn(record)

    def learn(self, record: Record) -> None:
        """Take a measurement into account, if it is one of a core, and of a method that is still known."""
        if "card" in record.made or record.identity["method"] not in {*PASSES, "ksvd", "rtr"}:
            return
        cell = _cell_of(record)
        self._expected[cell.method] = self._expected.get(cell.method, 0.0) + prior_seconds(cell)
        self._measured[cell.method] = self._measured.get(cell.method, 0.0) + float(record.made["seconds"])

    def seconds(self, cell: Cell) -> float:
        """Seconds that the cell should take."""
        expected = self._expected.get(cell.method, 0.0)
        return prior_seconds(cell) * (self._measured[cell.method] / expected if expected else 1.0)


def _cell_of(record: Record) -> Cell:
    identity = record.identity
    return Cell(
        identity["task"],
        identity["method"],
        tuple(identity["options"].items()),
        tuple(identity["setting"].items()),
        identity["seed"],
        identity["software"],
    )
