"""Table 3: sparse corruption."""

from __future__ import annotations

from collections.abc import Iterator

from elldict.reproduction.experiment import Claim, Experiment, Section, Size
from elldict.reproduction.paper import TABLE_3
from elldict.reproduction.recovery_table import (
    KSVD,
    OTHERS,
    RTR,
    Layout,
    Reader,
    agreement_claims,
    count_claim,
    lp_column,
    make_table,
)
from elldict.reproduction.results import Results
from elldict.reproduction.table2 import PAPERS, break_down_claims

LAYOUT = Layout("table3", TABLE_3, TABLE_3, (lp_column(3), lp_column(4, " (MSP)"), RTR, KSVD, *OTHERS))


def section(results: Results, size: Size) -> Section:
    """The table and its claims."""
    caption = (
        "Error in per cent when a tenth of all entries is changed by ±σ, θ = .3. Theory takes it for Gaussian "
        "noise of the same variance, which is roughly right."
    )
    heads = {"n_features": "n", "n_samples": "r", "corruption": "σ"}
    reader = Reader(LAYOUT, results, size)
    return Section(
        "Under sparse corruption",
        "The paper's third table: a few entries are badly wrong.",
        tables=(make_table(LAYOUT, results, size, caption, heads),),
        claims=(
            *_claims(reader),
            *break_down_claims(reader, "corruption", 1.5),
            *agreement_claims(reader, ("l3", "l4")),
        ),
    )


def _claims(reader: Reader) -> Iterator[Claim]:
    weak = reader.rows_with("l3", "rtr", where=lambda row: row.corruption == 0.5)
    smallest = [reader.error(row, "rtr") == min(reader.errors(row, PAPERS)) for row in weak]
    yield count_claim("RTR performs best while the corruption is small.", smallest, "rows show it")
    strong = reader.rows_with("l3", "l4", "rtr", where=lambda row: row.corruption > 0.5)
    smallest = [reader.error(row, "l3") == min(reader.errors(row, PAPERS)) for row in strong]
    yield count_claim("Beyond that ℓ₃ has the smallest error, of the paper's methods.", smallest, "rows show it")


EXPERIMENT = Experiment("table3", "Table 3", LAYOUT.cells, section)
