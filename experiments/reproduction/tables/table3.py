"""Table 3: sparse corruption."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.reproduction.experiment import Claim, Experiment, Section, Size
from experiments.reproduction.paper import TABLE_3, Row
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_claims import (
    Reader,
    agreement_claims,
    smallest_claim,
    strongest_finding,
)
from experiments.reproduction.tables.recovery_picture import View, make_picture
from experiments.reproduction.tables.recovery_table import KSVD, OTHERS, RTR, Layout, lp_column, make_table
from experiments.reproduction.tables.table2 import PAPERS, break_down_claims, time_claims

WEAK = 0.5
LAYOUT = Layout("table3", TABLE_3, TABLE_3, (lp_column(3), lp_column(4), RTR, KSVD, *OTHERS))


def section(results: Results, size: Size) -> Section:
    """The table and its claims."""
    caption = (
        "Error in per cent when a tenth of all entries is changed by ±σ, θ = 0.3. Theory takes it for Gaussian "
        "noise of the same variance, which is roughly right."
    )
    heads = {"n_features": "n", "n_samples": "r", "corruption": "σ"}
    reader = Reader(LAYOUT, results, size)
    return Section(
        "Under sparse corruption",
        strongest_finding(reader, "corruption", (*PAPERS, "default")),
        "The paper's third table: a few entries are badly wrong.",
        pictures=(
            make_picture(
                LAYOUT,
                results,
                size,
                View("n_features", "corruption"),
                "Error against the size of the corruption, θ = 0.3.",
            ),
        ),
        tables=(make_table(LAYOUT, results, size, caption, heads),),
        claims=(
            *_claims(reader),
            *break_down_claims(reader, "corruption", 1.5),
            *agreement_claims(reader, ("l3", "l4")),
        ),
    )


def _claims(reader: Reader) -> Iterator[Claim]:
    tied = [row for row in reader.rows if row.corruption == WEAK and not _printed_first(row)]
    text = f"While the corruption is small (σ = {WEAK:g}), RTR has the smallest error, of the paper's methods."
    more = f"the paper prints a tie at n = {tied[0].n_features}" if tied else ""
    yield smallest_claim(reader, text, "rtr", PAPERS, lambda row: row.corruption == WEAK and _printed_first(row), more)
    text = f"Under stronger corruption (σ > {WEAK:g}) ℓ₃ has the smallest error, of the paper's methods."
    yield smallest_claim(reader, text, "l3", PAPERS, lambda row: row.corruption > WEAK)
    yield from time_claims(reader)


def _printed_first(row: Row) -> bool:
    """Whether the paper prints a smaller error for RTR than for any other method."""
    return all(row.printed["rtr"].error < row.printed[name].error for name in PAPERS if name != "rtr")


EXPERIMENT = Experiment("table3", "Table 3", LAYOUT.cells, section)
