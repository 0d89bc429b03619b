"""Table 2: Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from experiments.reproduction.experiment import Claim, Experiment, Section, Size, Verdict
from experiments.reproduction.paper import TABLE_2, Row
from experiments.reproduction.report.words import percent, span, whole_percent
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_claims import (
    Reader,
    agreement_claims,
    count_claim,
    fastest_claim,
    smallest_claim,
    strongest_finding,
)
from experiments.reproduction.tables.recovery_picture import View, make_picture
from experiments.reproduction.tables.recovery_table import (
    KSVD,
    OTHERS,
    RTR,
    Layout,
    lp_column,
    make_table,
    theory_of,
)

PAPERS = ("l3", "l4", "rtr", "ksvd")
LAYOUT = Layout("table2", TABLE_2, TABLE_2, (lp_column(3), lp_column(4), RTR, KSVD, *OTHERS))
NEAR = 0.15
"""Excess over the bound that counts as close to it."""

BROKEN, WHOLE = 0.1, 0.05
"""Errors above which a method has broken down, and below which it has not."""


def section(results: Results, size: Size) -> Section:
    """The table and its claims."""
    caption = "Error in per cent under Gaussian noise, θ = 0.3."
    heads = {"n_features": "n", "n_samples": "r", "noise_std": "σ"}
    reader = Reader(LAYOUT, results, size)
    return Section(
        "Under Gaussian noise",
        strongest_finding(reader, "noise_std", (*PAPERS, "default")),
        "The paper's second table: how much noise each method bears.",
        pictures=(
            make_picture(
                LAYOUT,
                results,
                size,
                View("n_features", "noise_std"),
                "Error against noise, θ = 0.3. Shaded: below the Cramér-Rao bound, out of reach of unbiased methods.",
            ),
        ),
        tables=(make_table(LAYOUT, results, size, caption, heads),),
        claims=(
            *_claims(reader),
            *break_down_claims(reader, "noise_std", 0.6),
            *agreement_claims(reader, ("l3", "l4")),
        ),
        notes=("RTR is run without the rounding by linear programming that its authors propose for clean samples.",),
    )


def _claims(reader: Reader) -> Iterator[Claim]:
    text = "RTR has the smallest error on clean samples, of the paper's methods."
    yield smallest_claim(reader, text, "rtr", PAPERS, lambda row: row.noise_std == 0)
    text = "Under noise ℓ₃ has the smallest error, of the paper's methods."
    yield smallest_claim(reader, text, "l3", PAPERS, lambda row: row.noise_std > 0)
    yield from time_claims(reader)
    yield _limit_claim(reader)


def time_claims(reader: Reader) -> Iterator[Claim]:
    """What the paper says about time, which its machine and ours need not agree on."""
    yield fastest_claim(reader, "ℓ₃ takes the least time of the paper's methods.", PAPERS)
    rows = reader.timed_rows(*PAPERS)
    slowest = [reader.seconds(row, "rtr") == max(reader.times(row, PAPERS)) for row in rows]
    ratios = [(reader.seconds(row, "rtr") or 0) / (reader.seconds(row, "l3") or 1) for row in rows]
    more = f"{min(ratios):.0f} to {max(ratios):.0f} times the time of ℓ₃" if rows else ""
    yield count_claim("RTR is the slowest of the paper's methods.", slowest, "rows show it", more)


def break_down_claims(reader: Reader, name: str, level: float) -> Iterator[Claim]:
    """RTR and K-SVD at the strongest disturbance."""
    for method, label in (("rtr", "RTR"), ("ksvd", "K-SVD")):
        text = f"{label} breaks down at the strongest disturbance (σ = {level:g}), where ℓ₃ does not."
        yield _break_down(reader, text, method, lambda row: getattr(row, name) == level)


def _break_down(reader: Reader, text: str, method: str, where: Callable[[Row], bool]) -> Claim:
    rows, n_not_run = reader.complete_rows("l3", method, where=lambda r: where(r) and bool(reader.planned(r, [method])))
    pairs = [(reader.error(row, method) or 0, reader.error(row, "l3") or 1) for row in rows]
    more = ", ".join(f"{percent(error)} where ℓ₃ has {percent(l3)}" for error, l3 in pairs)
    what = f"rows have an error above {whole_percent(BROKEN)} where ℓ₃ is below {whole_percent(WHOLE)}"
    held = [error > BROKEN and l3 < WHOLE for error, l3 in pairs]
    return count_claim(text, held, what, more, n_not_run=n_not_run)


def _limit_claim(reader: Reader) -> Claim:
    near = whole_percent(NEAR)
    text = f"elldict as it comes is within {near} of the Cramér-Rao bound, which no unbiased method can pass."
    column = reader.layout.column("default")
    rows = reader.rows_with("default", where=lambda row: row.noise_std > 0)
    ratios = [(reader.error(row, "default") or 0) / (theory_of(row, column) or 1) for row in rows]
    if not ratios:
        return Claim(text, "Not run.", Verdict.OPEN, ours=True)
    more = f"error over bound {span(min(ratios), max(ratios))}"
    return count_claim(text, [ratio < 1 + NEAR for ratio in ratios], "rows show it", more, ours=True)


EXPERIMENT = Experiment("table2", "Table 2", LAYOUT.cells, section)
