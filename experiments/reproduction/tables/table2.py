"""Table 2: Gaussian noise."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.reproduction.experiment import Claim, Experiment, Section, Size
from experiments.reproduction.paper import TABLE_2
from experiments.reproduction.report.words import span, whole_percent
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_claims import (
    PAPERS,
    Reader,
    count_rows,
    judge_agreement,
    judge_breakdown,
    judge_smallest,
    judge_times,
    summarise_hardest,
)
from experiments.reproduction.tables.recovery_picture import make_picture
from experiments.reproduction.tables.recovery_table import (
    KSVD,
    OTHERS,
    RTR,
    Layout,
    compute_theory,
    make_lp,
    make_table,
)

NEAR = 0.15  # relative excess over the Cramer-Rao bound that counts as close
HEADS = {"n_features": "n", "n_samples": "r", "noise_std": "σ"}
LAYOUT = Layout(TABLE_2, TABLE_2, (make_lp(3), make_lp(4), RTR, KSVD, *OTHERS), HEADS)


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    reader = Reader(LAYOUT, results, size)
    caption = "Error against noise, θ = 0.3. Shaded: below the Cramér-Rao bound of unbiased methods."
    return Section(
        "Under Gaussian noise",
        summarise_hardest(reader, "noise_std"),
        "How much noise each method tolerates.",
        claims=list(_judge(reader)),
        picture=make_picture(LAYOUT, results, size, "n_features", "noise_std", caption),
        table=make_table(LAYOUT, results, size, "Error in per cent under Gaussian noise, θ = 0.3."),
        notes=("RTR is run without the rounding by linear programming that its authors propose without noise.",),
    )


def _judge(reader: Reader) -> Iterator[Claim]:
    text = "RTR has the smallest error of the paper's methods without noise."
    yield judge_smallest(reader, text, "rtr", PAPERS, lambda row: row.noise_std == 0)
    text = "Under noise ℓ₃ has the smallest error of the paper's methods."
    yield judge_smallest(reader, text, "l3", PAPERS, lambda row: row.noise_std > 0)
    yield from judge_times(reader)
    yield from judge_breakdown(reader, "noise_std", 0.6)
    found, _ = reader.select(["default"], lambda row: row.noise_std > 0)
    ratios = [row.errors["default"] / (compute_theory(row.row, LAYOUT.column("default")) or 1) for row in found]
    text = f"The error of elldict is within {whole_percent(NEAR)} of the Cramér-Rao bound."
    yield count_rows(text, [ratio < 1 + NEAR for ratio in ratios], f"error over bound {span(ratios)}", ours=True)
    yield from judge_agreement(reader, ("l3", "l4"))


EXPERIMENT = Experiment("table2", "Table 2", LAYOUT.cells, make_section)
