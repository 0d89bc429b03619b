"""Table 3: sparse corruption."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.reproduction.experiment import Claim, Experiment, Section, Size
from experiments.reproduction.paper import TABLE_3, Row
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_claims import (
    PAPERS,
    Reader,
    judge_agreement,
    judge_breakdown,
    judge_smallest,
    judge_times,
    summarise_hardest,
)
from experiments.reproduction.tables.recovery_picture import make_picture
from experiments.reproduction.tables.recovery_table import KSVD, OTHERS, RTR, Layout, make_lp, make_table

WEAK = 0.5
HEADS = {"n_features": "n", "n_samples": "r", "corruption": "σ"}
LAYOUT = Layout(TABLE_3, TABLE_3, (make_lp(3), make_lp(4), RTR, KSVD, *OTHERS), HEADS)


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    reader = Reader(LAYOUT, results, size)
    caption = (
        "Error in per cent when a tenth of all entries is changed by ±σ, θ = 0.3. Theory is that of Gaussian noise of "
        "the same variance, which is roughly right."
    )
    title = "Error against the size of the corruption, θ = 0.3."
    return Section(
        "Under sparse corruption",
        summarise_hardest(reader, "corruption"),
        "A tenth of all entries is corrupted by large errors.",
        claims=list(_judge(reader)),
        picture=make_picture(LAYOUT, results, size, "n_features", "corruption", title),
        table=make_table(LAYOUT, results, size, caption),
    )


def _judge(reader: Reader) -> Iterator[Claim]:
    tied = [row for row in reader.rows if row.corruption == WEAK and not _is_first(row)]
    more = f"the paper prints a tie at n = {tied[0].n_features}" if tied else ""
    text = f"While the corruption is small (σ = {WEAK:g}), RTR has the smallest error of the paper's methods."
    yield judge_smallest(reader, text, "rtr", PAPERS, lambda row: row.corruption == WEAK and _is_first(row), more)
    text = f"Under stronger corruption (σ > {WEAK:g}) ℓ₃ has the smallest error of the paper's methods."
    yield judge_smallest(reader, text, "l3", PAPERS, lambda row: row.corruption > WEAK)
    yield from judge_times(reader)
    yield from judge_breakdown(reader, "corruption", 1.5)
    yield from judge_agreement(reader, ("l3", "l4"))


def _is_first(row: Row) -> bool:
    """Return whether the paper prints a smaller error for RTR than for any other method."""
    return all(row.printed["rtr"].error < row.printed[name].error for name in PAPERS if name != "rtr")


EXPERIMENT = Experiment("table3", "Table 3", LAYOUT.cells, make_section)
