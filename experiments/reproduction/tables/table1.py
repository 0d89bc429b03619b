"""Table 1: no noise, growing size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.reproduction.experiment import Claim, Experiment, Section, Size, Verdict
from experiments.reproduction.paper import TABLE_1, TABLE_2, Row
from experiments.reproduction.report.words import percent
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_claims import Reader, agreement_claims, count_claim, fastest_claim, rises
from experiments.reproduction.tables.recovery_picture import View, make_picture
from experiments.reproduction.tables.recovery_table import (
    KSVD,
    KSVD_ITERATIONS,
    KSVD_NOTE,
    OTHERS,
    Layout,
    lp_column,
    make_table,
)

LP = ("l3", "l4", "l5")
DENSE = 0.3
EXACT = 1e-8
"""Error below which all that is left is rounding."""

CLEAN_OF_TABLE_2 = tuple(row for row in TABLE_2 if row.noise_std == 0)
STABLE = 1.25
"""Ratio of errors up to which they count as the same."""

LAYOUT = Layout(
    "table1",
    rows=TABLE_1,
    quick_rows=(
        Row(32, 12_800, 0.1),  # not in the paper: small enough for every method, and as many samples an atom
        Row(32, 12_800, 0.3),
        *(row for row in TABLE_1 if row.n_features == 100),
    ),
    columns=(lp_column(3), lp_column(4), lp_column(5), KSVD, *OTHERS),
)


def section(results: Results, size: Size) -> Section:
    """The table and its claims."""
    caption = "Error in per cent, without noise. The number of samples is 400 times the number of atoms in every row."
    heads = {"n_features": "n", "density": "θ", "n_samples": "r"}
    reader = Reader(LAYOUT, results, size)
    return Section(
        "Without noise, as problems grow",
        _finding(reader),
        "The paper's first table: how the error and the time of each method grow with the size of the dictionary.",
        pictures=(
            make_picture(
                LAYOUT,
                results,
                size,
                View("density", "n_features"),
                "Error against the number of atoms n, clean samples.",
            ),
        ),
        tables=(make_table(LAYOUT, results, size, caption, heads),),
        claims=tuple(_claims(reader, results)),
        notes=(KSVD_NOTE,),
    )


def _finding(reader: Reader) -> str:
    rows = reader.rows_with("l3", "default", where=lambda row: row.density == DENSE)
    if not rows:
        return "Not run yet."
    ours = max(reader.error(row, "default") or 0 for row in rows)
    of_l3 = " and ".join(f"{percent(reader.error(row, 'l3') or 0)} at n = {row.n_features}" for row in _ends(rows))
    of_ours = "finds every atom exactly" if ours < EXACT else f"has {percent(ours)} at most"
    return f"At θ = {DENSE:g} the error of ℓ₃ is {of_l3}; elldict as it comes {of_ours}."


def _ends(rows: Sequence[Row]) -> Sequence[Row]:
    return rows if len(rows) == 1 else (rows[0], rows[-1])


def _claims(reader: Reader, results: Results) -> Iterator[Claim]:
    rows, n_not_run = reader.complete_rows(*LP)
    errors = [reader.errors(row, LP) for row in rows]
    text = "A smaller p leads to a smaller error: ℓ₃ is below ℓ₄, and ℓ₄ below ℓ₅."
    yield count_claim(text, [rises(row) for row in errors], "rows show this order", n_not_run=n_not_run)
    yield _stable(reader)
    yield _rising(reader, results)
    yield _against_ksvd(reader)
    yield fastest_claim(reader, "ℓ₃ takes the least time among ℓ₃, ℓ₄ and ℓ₅.", LP)
    yield from agreement_claims(reader, LP)


def _by_density(reader: Reader, name: str) -> Iterator[list[float]]:
    """Errors of a method as problems grow, one list for each density at which two sizes or more were run."""
    for density in (0.1, 0.3):
        rows = [row for row in reader.rows_with(name) if row.density == density]
        if len(rows) > 1:
            yield [reader.error(row, name) or 0 for row in rows]


def _stable(reader: Reader) -> Claim:
    text = "As problems grow, the errors of ℓₚ stay as they are."
    ratios = [max(errors) / min(errors) for name in LP for errors in _by_density(reader, name)]
    if not ratios:
        return Claim(text, "Fewer than two sizes were run.", Verdict.OPEN)
    found = f"Largest over smallest error between sizes: at most {max(ratios):.2f}; up to {STABLE} counts as the same."
    return Claim(text, found, Verdict.of(sum(ratio < STABLE for ratio in ratios), len(ratios)))


def _rising(reader: Reader, results: Results) -> Claim:
    """Judged on clean samples of this table and of Table 2, whose n = 32 has fewer samples an atom, not more."""
    text = "As problems grow, the error of K-SVD increases."
    column = reader.layout.column("ksvd")
    errors: dict[float, dict[int, float]] = {row.density: {} for row in reader.rows}
    for row in (*CLEAN_OF_TABLE_2, *reader.rows):
        error = results.mean(reader.layout.cells_at(row, column, reader.size))
        if error is not None:
            errors[row.density][row.n_features] = error
    known = {density: dict(sorted(by_n.items())) for density, by_n in errors.items() if len(by_n) > 1}
    held = [rises(list(by_n.values())) for by_n in known.values()]
    more = "; ".join(f"θ = {density:g}: {_listed(by_n)}" for density, by_n in known.items())
    if not held:
        return Claim(text, "K-SVD was not run at two sizes of one density.", Verdict.OPEN)
    return count_claim(text, held, "densities run at two sizes show it", more, n_not_run=len(errors) - len(known))


def _listed(by_n: dict[int, float]) -> str:
    return ", ".join(f"{percent(error)} at n = {n}" for n, error in by_n.items())


def _against_ksvd(reader: Reader) -> Claim:
    rows = reader.timed_rows(*LP, "ksvd")
    rows = [row for row in rows if reader.error(row, "ksvd") is not None]
    better = [max(reader.errors(row, LP)) < (reader.error(row, "ksvd") or 0) for row in rows]
    speed = [(reader.seconds(row, "ksvd") or 0) / max(reader.times(row, LP)) for row in rows]
    more = "; ".join(_beside_ksvd(reader, row) for row in rows)
    if rows:
        more += f"; ℓₚ is at least {min(speed):.0f} times as fast as {KSVD_ITERATIONS} iterations of K-SVD"
    text = "All ℓₚ methods are more accurate and faster than K-SVD."
    _, n_not_run = reader.complete_rows(*LP, "ksvd")
    held = [b and s > 1 for b, s in zip(better, speed, strict=True)]
    return count_claim(text, held, "rows show it", more, n_not_run=n_not_run)


def _beside_ksvd(reader: Reader, row: Row) -> str:
    l3, ksvd = reader.error(row, "l3") or 0, reader.error(row, "ksvd") or 0
    return f"n = {row.n_features}, θ = {row.density:g}: ℓ₃ {percent(l3)}, K-SVD {percent(ksvd)}"


EXPERIMENT = Experiment("table1", "Table 1", LAYOUT.cells, section)
