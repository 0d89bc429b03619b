"""Table 1: no noise, growing size."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.reproduction.experiment import Claim, Experiment, Section, Size, judge
from experiments.reproduction.paper import TABLE_1, TABLE_2, Row
from experiments.reproduction.report.words import percent
from experiments.reproduction.results import Results
from experiments.reproduction.tables.recovery_claims import Reader, count_rows, judge_agreement, judge_fastest, rises
from experiments.reproduction.tables.recovery_picture import EXACT, make_picture
from experiments.reproduction.tables.recovery_table import KSVD, KSVD_NOTE, OTHERS, Layout, make_lp, make_table

LP = ("l3", "l4", "l5")
DENSE = 0.3
EQUAL = 1.25  # ratio of errors up to which they count as equal

LAYOUT = Layout(
    rows=TABLE_1,
    quick_rows=(
        Row(32, 12_800, 0.1),  # not in the paper: small enough for all methods, with as many samples per atom
        Row(32, 12_800, 0.3),
        *(row for row in TABLE_1 if row.n_features == 100),
    ),
    columns=(make_lp(3), make_lp(4), make_lp(5), KSVD, *OTHERS),
    heads={"n_features": "n", "density": "θ", "n_samples": "r"},
)


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    reader = Reader(LAYOUT, results, size)
    caption = "Error in per cent, without noise. In every row there are 400 samples per atom."
    return Section(
        "Without noise, as problems grow",
        _summarise(reader),
        "The error and the time of each method as the dictionary grows.",
        claims=list(_judge(reader)),
        picture=make_picture(LAYOUT, results, size, "density", "n_features", "Error against the number of atoms n."),
        table=make_table(LAYOUT, results, size, caption),
        notes=(KSVD_NOTE,),
    )


def _summarise(reader: Reader) -> str:
    found, _ = reader.select(("l3", "default"), lambda row: row.density == DENSE)
    if not found:
        return "Not run yet."
    ours = max(row.errors["default"] for row in found)
    ends = found if len(found) == 1 else (found[0], found[-1])
    of_l3 = " and ".join(f"{percent(row.errors['l3'])} at n = {row.row.n_features}" for row in ends)
    of_ours = "finds every atom exactly" if ours < EXACT else f"has at most {percent(ours)}"
    return f"At θ = {DENSE:g} the error of ℓ₃ is {of_l3}; elldict {of_ours}."


def _judge(reader: Reader) -> Iterator[Claim]:
    found, n_open = reader.select(LP)
    text = "A smaller p leads to a smaller error: ℓ₃ is below ℓ₄, and ℓ₄ below ℓ₅."
    held = [rises([row.errors[name] for name in LP]) for row in found]
    yield count_rows(text, held, n_open=n_open, what="rows show this order")
    yield _judge_stable(reader)
    yield _judge_rising(reader)
    found, n_open = reader.select((*LP, "ksvd"), needs=["ksvd"])
    text = "All ℓₚ methods are more accurate and faster than K-SVD."
    more = [f"n = {row.row.n_features}, θ = {row.row.density:g}: {_compare_ksvd(row.errors)}" for row in found]
    speed = [row.seconds["ksvd"] / max(row.seconds[name] for name in LP) for row in found]
    if speed:
        more.append(f"ℓₚ is at least {min(speed):.0f} times as fast as {KSVD.options['max_iter']} iterations of K-SVD")
    better = [max(row.errors[name] for name in LP) < row.errors["ksvd"] for row in found]
    held = [b and s > 1 for b, s in zip(better, speed, strict=True)]
    yield count_rows(text, held, *more, n_open=n_open)
    yield judge_fastest(reader, "ℓ₃ takes the least time among ℓ₃, ℓ₄ and ℓ₅.", LP)
    yield from judge_agreement(reader, LP)


def _compare_ksvd(errors: dict[str, float]) -> str:
    return f"ℓ₃ {percent(errors['l3'])}, K-SVD {percent(errors['ksvd'])}"


def _judge_stable(reader: Reader) -> Claim:
    ratios = []
    for name in LP:
        found, _ = reader.select([name])
        for density in {row.row.density for row in found}:
            errors = [row.errors[name] for row in found if row.row.density == density]
            ratios += [max(errors) / min(errors)] if len(errors) > 1 else []
    more = f"Largest over smallest error between sizes: at most {max(ratios, default=0):.2f}; up to {EQUAL} is equal."
    return judge("As problems grow, the errors of ℓₚ do not change.", [ratio < EQUAL for ratio in ratios], more)


def _judge_rising(reader: Reader) -> Claim:
    """Judge on samples without noise of this table and of Table 2, whose n = 32 has fewer samples per atom."""
    errors: dict[float, dict[int, float]] = {row.density: {} for row in reader.rows}
    for row in (*(row for row in TABLE_2 if not row.noise_std), *reader.rows):
        error = reader.results.mean(LAYOUT.cells_at(row, KSVD, reader.size))
        if error is not None:
            errors[row.density][row.n_features] = error
    known = {density: dict(sorted(by_n.items())) for density, by_n in errors.items() if len(by_n) > 1}
    more = [
        f"θ = {density:g}: " + ", ".join(f"{percent(error)} at n = {n}" for n, error in by_n.items())
        for density, by_n in known.items()
    ]
    text, held = (
        "As problems grow, the error of K-SVD increases.",
        [rises(list(by_n.values())) for by_n in known.values()],
    )
    return count_rows(text, held, *more, n_open=len(errors) - len(known), what="densities show it")


EXPERIMENT = Experiment("table1", "Table 1", LAYOUT.cells, make_section)
