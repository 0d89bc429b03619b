"""Table 1: no noise, growing size."""

from __future__ import annotations

from collections.abc import Iterator

from elldict.reproduction.experiment import Claim, Experiment, Section, Size, Verdict
from elldict.reproduction.paper import TABLE_1, Row
from elldict.reproduction.recovery_table import (
    KSVD,
    OTHERS,
    Layout,
    Reader,
    agreement_claims,
    count_claim,
    lp_column,
    make_table,
)
from elldict.reproduction.results import Results
from elldict.reproduction.words import percent

LP = ("l3", "l4", "l5")
LAYOUT = Layout(
    "table1",
    rows=TABLE_1,
    quick_rows=(
        Row(32, 12_800, 0.1),  # not in the paper: small enough for every method, and as many samples an atom
        Row(32, 12_800, 0.3),
        *(row for row in TABLE_1 if row.n_features == 100),
    ),
    columns=(lp_column(3), lp_column(4, " (MSP)"), lp_column(5), KSVD, *OTHERS),
)


def section(results: Results, size: Size) -> Section:
    """The table and its claims."""
    caption = "Error in per cent, without noise. The number of samples is 400 times the number of atoms in every row."
    heads = {"n_features": "n", "density": "θ", "n_samples": "r"}
    return Section(
        "Without noise, as problems grow",
        "The paper's first table: how the error and the time of each method grow with the size of the dictionary.",
        tables=(make_table(LAYOUT, results, size, caption, heads),),
        claims=tuple(_claims(Reader(LAYOUT, results, size))),
    )


def _claims(reader: Reader) -> Iterator[Claim]:
    errors = [reader.errors(row, LP) for row in reader.rows_with(*LP)]
    text = "A smaller p leads to a smaller error: ℓ₃ is below ℓ₄, and ℓ₄ below ℓ₅."
    yield count_claim(text, [row == sorted(row) for row in errors], "rows show this order")
    yield _stable(reader)
    yield _against_ksvd(reader)
    times = [[reader.seconds(row, name) or 0 for name in LP] for row in reader.timed_rows(*LP)]
    text = "ℓ₃ takes the least time among ℓ₃, ℓ₄ and ℓ₅."
    yield count_claim(text, [row[0] == min(row) for row in times], "rows show it, by seconds on one core")
    yield from agreement_claims(reader, LP)


def _stable(reader: Reader) -> Claim:
    """Errors of l_p do not depend on n; those of K-SVD grow."""
    text = "As problems grow, the errors of ℓₚ stay as they are, while K-SVD's increases."
    ratios, rising = [], []
    for density in (0.1, 0.3):
        for name in LP:
            rows = reader.rows_with(name, where=lambda row, d=density: row.density == d)  # type: ignore[misc]
            errors = [reader.error(row, name) or 0 for row in rows]
            if len(errors) > 1:
                ratios.append(max(errors) / min(errors))
        rows = reader.rows_with("ksvd", where=lambda row, d=density: row.density == d)  # type: ignore[misc]
        ksvd = [reader.error(row, "ksvd") or 0 for row in rows]
        if len(ksvd) > 1:
            rising.append(ksvd == sorted(ksvd))
    if not ratios:
        return Claim(text, "Fewer than two sizes were run.", Verdict.OPEN)
    found = f"Largest over smallest error of ℓₚ between sizes: at most {max(ratios):.2f}."
    stable = max(ratios) < 1.25
    if not rising:
        return Claim(text, f"{found} K-SVD was not run at two sizes.", Verdict.PARTLY if stable else Verdict.FAILS)
    found += f" K-SVD's error rises at {sum(rising)} of {len(rising)} densities."
    return Claim(text, found, Verdict.of(stable + sum(rising), 1 + len(rising)))


def _against_ksvd(reader: Reader) -> Claim:
    rows = reader.timed_rows(*LP, "ksvd")
    better = [max(reader.errors(row, LP)) < (reader.error(row, "ksvd") or 0) for row in rows]
    speed = [(reader.seconds(row, "ksvd") or 0) / max(reader.seconds(row, name) or 1e-9 for name in LP) for row in rows]
    more = ""
    if rows:
        l3, ksvd = reader.error(rows[-1], "l3") or 0, reader.error(rows[-1], "ksvd") or 0
        more = f"ℓₚ is at least {min(speed):.0f} times as fast; last row: ℓ₃ {percent(l3)}, K-SVD {percent(ksvd)}"
    text = "All ℓₚ methods are more accurate and faster than K-SVD."
    return count_claim(text, [b and s > 1 for b, s in zip(better, speed, strict=True)], "rows show it", more)


EXPERIMENT = Experiment("table1", "Table 1", LAYOUT.cells, section)
