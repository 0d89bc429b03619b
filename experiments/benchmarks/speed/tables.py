"""The tables of the side-by-side benchmark, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from experiments.benchmarks.speed.problems import EXACT, Problem
from experiments.benchmarks.speed.solvers import DEFAULT, POWER, SOLVERS
from experiments.benchmarks.speed.times import Line, Round, Row

KSVD = "K-SVD"
ASKED_OF_KSVD = 100
QUIET = 0.1
"""Largest share of the cores that others may use."""


def report(rows: Sequence[Row], everything: dict[str, list[Round]], extra: Sequence[str]) -> str:
    """The whole page; `extra` are sections of other scripts."""
    parts = [
        "# Elldict beside its peers",
        INTRODUCTION,
        _machines(everything),
        disturbance(everything),
        earlier_adapters(everything),
    ]
    if rows:
        parts += [ratio_table(rows), peers_win(rows), ksvd_table(everything), solver_tables(rows, everything)]
    parts += extra
    return "\n\n".join(part for part in parts if part) + "\n"


INTRODUCTION = """\
Written by `python -m experiments.benchmarks.speed.report` from what is stored; `make bench` measures anew. All solvers
had the same float32 samples and threads, in turns; peers built on BLAS had a second try on one thread where problems
are small, and the better counts. Times are medians over seeds and repeats; an error counts as reached when it is
reached, to within 1 %, and kept. *Error* is `elldict.metrics.recovery_error` of the nearest orthonormal matrix.

The *limit* is an error below 1e-6 without noise. With noise it is 1.05 times the Cramer-Rao bound, for the mean over
seeds, since the error of a single data set scatters about the bound; each fit then has to come as near to its own end
as keeps that mean. *Error / bound* is that mean at the end. Where there is no noise it is the number of exact answers.

*Fastest peer's own answer* is the soonest end of any peer whose atoms each have a cosine of at least .9 with a true
one: its whole fit at the settings of its users. *Passes* are the median of `n_passes_`."""


def ratio_table(rows: Sequence[Row]) -> str:
    """What is asked, and whether it was held."""
    head = (
        "problem",
        "best peer's error",
        "elldict to it",
        "fastest peer to it",
        "ratio",
        "asked",
        "elldict to the limit",
        "error / bound",
        "fastest peer's own answer",
        "within",
        "passes",
        "asked",
    )
    return "## Ratios\n\n" + _table(head, [_ratio_cells(row) for row in rows])


def _ratio_cells(row: Row) -> list[str]:
    problem = row.problem
    passes_asked = "-" if problem.asked_passes is None else _verdict(f"<= {problem.asked_passes:g}", row.passes_held)
    return [
        problem.name,
        _per_cent(row.best_error),
        _seconds(row.ours_to_best),
        f"{_seconds(row.peers_to_best)} ({row.fastest_peer})",
        _ratio(row.ratio),
        _verdict(f">= {problem.asked_ratio:g}", row.ratio_held),
        _seconds(row.ours_to_limit),
        _nearness(row),
        _seconds(row.peers_to_own),
        "yes" if row.limit_held else "**no**",
        f"{row.passes:.3g}",
        passes_asked,
    ]


def _nearness(row: Row) -> str:
    errors = [fits[DEFAULT]["error"] for fits in row.rounds]
    if row.problem.noise_std:
        return f"{mean(errors) / row.problem.limit:.3f}"
    return f"{sum(error < EXACT for error in errors)}/{len(errors)}"


def peers_win(rows: Sequence[Row]) -> str:
    """Said plainly, so that nobody has to search the table."""
    found = [sentence for row in rows for sentence in _losses(row)]
    listed = "\n".join(f"- {sentence}" for sentence in found) if found else "Nowhere in this run."
    return f"## Where a peer wins\n\n{listed}"


def _losses(row: Row) -> list[str]:
    name, losses = row.problem.name, []
    if math.isinf(row.ours_to_best):
        losses.append(f"{name}: elldict did not reach the error of the best peer ({_per_cent(row.best_error)}).")
    elif row.ratio < 1:
        losses.append(
            f"{name}: {row.fastest_peer} has the best peer's error after {_seconds(row.peers_to_best)}, "
            f"elldict after {_seconds(row.ours_to_best)}."
        )
    wrong = sum(fits[DEFAULT]["wrong_atoms"] > 0 for fits in row.rounds)
    if wrong:
        losses.append(f"{name}: elldict mixed atoms in {wrong} of {len(row.rounds)} fits.")
    return losses


def ksvd_table(everything: dict[str, list[Round]]) -> str:
    """K-SVD beside the whole fit of elldict."""
    cells = [
        _ksvd_cells(name, fits)
        for name, rounds in everything.items()
        for fits in rounds
        if KSVD in fits and fits.get(DEFAULT, {}).get("status") == "done"
    ]
    head = ("problem", "K-SVD", "its error", "elldict", "its error", "ratio", "asked")
    return f"## Beside K-SVD\n\n{_table(head, cells)}" if cells else ""


def _ksvd_cells(name: str, fits: Round) -> list[str]:
    ours, ksvd = fits[DEFAULT], fits[KSVD]
    if ksvd["status"] != "done":
        return [name, ksvd["status"], "-", _seconds(ours["seconds"]), _per_cent(ours["error"]), "-", "-"]
    ratio = ksvd["seconds"] / ours["seconds"]
    held = ratio >= ASKED_OF_KSVD and ours["error"] < ksvd["error"]
    return [
        name,
        _seconds(ksvd["seconds"]),
        _per_cent(ksvd["error"]),
        _seconds(ours["seconds"]),
        _per_cent(ours["error"]),
        _ratio(ratio),
        _verdict(f">= {ASKED_OF_KSVD}, lower error", held),
    ]


def solver_tables(rows: Sequence[Row], everything: dict[str, list[Round]]) -> str:
    """Every solver on every problem: what its users get, and when."""
    tables = [_solver_table(row.problem, everything[row.problem.name]) for row in rows]
    return "\n\n".join(["## Every solver", *tables])


def _solver_table(problem: Problem, rounds: list[Round]) -> str:
    names = sorted({name for fits in rounds for name in fits}, key=lambda name: (name not in (DEFAULT, POWER), name))
    cells = [_solver_cells(name, [fits[name] for fits in rounds if name in fits]) for name in names]
    limit = f", limit {_per_cent(problem.limit)}" if problem.noise_std else ""
    head = ("solver", "error", "seconds", "passes", "fits with mixed atoms")
    return f"### {problem.name}{limit}\n\n{_table(head, cells)}"


def _solver_cells(name: str, fits: list[Line]) -> list[str]:
    done = [line for line in fits if line["status"] == "done"]
    if not done:
        return [name, fits[0]["status"].replace("|", " "), "-", "-", "-"]
    passes = [line["passes"] for line in done if line["passes"] is not None]
    return [
        name,
        _per_cent(median(line["error"] for line in done)),
        _seconds(median(line["seconds"] for line in done)),
        f"{median(passes):.3g}" if passes else "-",
        f"{sum(line['wrong_atoms'] > 0 for line in done)}/{len(done)}",
    ]


def disturbance(everything: dict[str, list[Round]]) -> str:
    """Says which problems were measured while others used the machine; nothing if none was."""
    shares = {
        name: mean(line["others"] for line in found)  # bursts count
        for name, rounds in everything.items()
        if (found := [line for fits in rounds for line in fits.values() if line.get("others") is not None])
    }
    busy = [f"{name} ({share:.0%})" for name, share in shares.items() if share > QUIET]
    if not busy:
        return ""
    return (
        "**The machine was not quiet.** Others used this share of its cores between fits: "
        + "; ".join(busy)
        + ". This slows peers with threads of BLAS more than it slows elldict: do not quote these ratios."
    )


def earlier_adapters(everything: dict[str, list[Round]]) -> str:
    """Says which solvers were measured by an adapter that is no longer there; nothing if none was."""
    today = {solver.name: solver.kind.revision for solver in SOLVERS}
    measured = {
        (name.removesuffix(", 1 thread"), line["adapter"])
        for rounds in everything.values()
        for fits in rounds
        for name, line in fits.items()
    }
    old = [
        f"{name} (adapter {revision}, today {today[name]})"
        for name, revision in sorted(measured)
        if revision != today.get(name, revision)
    ]
    return f"**Measured by earlier adapters**, which worked in float32: {', '.join(old)}." if old else ""


def _machines(everything: dict[str, list[Round]]) -> str:
    """Machine and versions, once for each that took part."""
    made: list[dict[str, Any]] = []
    for rounds in everything.values():
        for fits in rounds:
            for line in fits.values():
                if line["made_by"] not in made:
                    made.append(line["made_by"])
    return "\n".join(f"Made on {_machine(one)}." for one in made)


def _machine(made_by: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in made_by["versions"].items())
    return (
        f"{made_by['cores']} cores of {made_by['processor']} ({made_by['system']}), {made_by['threads']} threads "
        f"(OPENBLAS_NUM_THREADS {made_by['OPENBLAS_NUM_THREADS'] or 'not set'}); {versions}; sources "
        f"{made_by['source']}"
    )


# --- words ------------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _per_cent(error: float) -> str:
    return "exact" if error < EXACT else f"{100 * error:.3g} %"


def _seconds(seconds: float) -> str:
    if math.isinf(seconds):
        return "never"
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _ratio(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.2g}"


def _verdict(asked: str, held: bool) -> str:
    return asked if held else f"**{asked}, missed**"
