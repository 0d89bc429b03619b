"""All experiments, in the order of the report."""

from __future__ import annotations

from experiments.reproduction.figures import few_samples, figure1, figure2, figure3, figure4, figure5, figure6, limit
from experiments.reproduction.tables import table1, table2, table3

MODULES = table1, table2, table3, figure1, figure2, figure3, figure4, figure5, figure6, few_samples, limit
EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in MODULES}
