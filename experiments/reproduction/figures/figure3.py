"""Figure 3: the power method on infinitely many samples, in two stages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from elldict._old.report.style import Palette
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, Verdict
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import SIGN, power_of_ten, span, two_digits
from experiments.reproduction.results import Results

P, DENSITY = 4, 0.1
CONSTRAINTS = {"sphere": "On the sphere", "orthogonal": "On the orthogonal group"}
FEW = 30
"""Iterations that count as a few: the paper's figures show up to about as many."""

SECOND_STAGE, ROUNDING = 1e-2, 1e-13
"""Errors between which the second stage is fitted."""


@dataclass(frozen=True)
class Run:
    """Errors along one run."""

    constraint: str
    n: int
    errors: tuple[float, ...]

    @property
    def factor(self) -> float | None:
        """Factor per iteration in the second stage, by least squares on the logarithms."""
        points = [(t, math.log(e)) for t, e in enumerate(self.errors) if ROUNDING < e < SECOND_STAGE]
        if len(points) < 3:
            return None
        times, logs = zip(*points, strict=True)
        return float(math.exp(np.polyfit(times, logs, 1)[0]))

    @property
    def n_first(self) -> int:
        """Iterations until the second stage."""
        return next((t for t, error in enumerate(self.errors) if error < SECOND_STAGE), len(self.errors))


def population_cell(method: str, constraint: str, n: int, density: float, seed: int, **options: Scalar) -> Cell:
    """A run on infinitely many samples."""
    setting: dict[str, Scalar] = {
        "n_features": n,
        "p": P,
        "density": density,
        "constraint": constraint,
        "floor": ROUNDING,
        "max_iter": 20_000,
    }
    return make_cell("population", method, setting, seed, options)


def sizes(size: Size) -> tuple[int, ...]:
    """Numbers of features."""
    return (10, 100, 300) if size.full else (10, 50)


def trials(constraint: str, n: int, size: Size) -> list[Cell]:
    """Runs from several random starts."""
    return [population_cell("power", constraint, n, DENSITY, seed) for seed in size.n_trials(quick=3)]


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return [cell for constraint in CONSTRAINTS for n in sizes(size) for cell in trials(constraint, n, size)]


def runs(results: Results, planned: Sequence[Cell]) -> list[Run]:
    """Those of the cells that were run."""
    found = ((cell, results.values(cell)) for cell in planned)
    return [
        Run(str(cell.value("constraint")), int(cell.value("n_features")), tuple(values["errors"]))
        for cell, values in found
        if values is not None
    ]


def section(results: Results, size: Size) -> Section:
    """The figure, the fitted factors, and the claims."""
    done = runs(results, cells(size))
    return Section(
        "A slow start, then a factor of θ an iteration",
        _finding(done),
        f"The power method with the expected gradient, p = {P}, θ = {DENSITY}: what happens with infinitely many "
        f"samples, from {len(size.n_trials(quick=3))} random starts each. Expectations are computed, not sampled; "
        "what elldict does beyond the power method needs samples, so it has no curve here.",
        pictures=(
            Picture(
                "figure3",
                "Error of the power method against iteration, from random starts. Grey: lines that fall by θ = 1/10 an "
                "iteration.",
                "Curves that stay level for a few iterations and then fall in a straight line on a log axis",
                lambda palette, narrow: draw(done, palette, narrow),
            ),
        ),
        tables=(_table(done),),
        claims=tuple(_claims(done)),
    )


def _groups(done: Sequence[Run]) -> dict[tuple[str, int], list[Run]]:
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in done:
        groups.setdefault((run.constraint, run.n), []).append(run)
    return groups


def _table(done: Sequence[Run]) -> Table:
    rows = []
    for (constraint, n), group in _groups(done).items():
        factors = [run.factor for run in group if run.factor is not None]
        mean = float(np.mean(factors)) if factors else math.nan
        off = max((abs(factor / DENSITY - 1) for factor in factors), default=math.nan)
        first = [run.n_first for run in group]
        rows.append(
            (
                Entry(CONSTRAINTS[constraint], order=constraint),
                Entry(str(n), order=n),
                Entry(f"{mean:.4f}", order=mean, tone="agrees" if off < 0.02 else "larger"),
                Entry(f"{DENSITY:g}", order=DENSITY),
                Entry(f"{two_digits(off)}{SIGN}", order=off),
                Entry(f"{min(first)} to {max(first)}", order=float(np.mean(first))),
            )
        )
    columns = ("Constraint", "n", "Fitted factor", "θ", "Largest departure", "Iterations of stage one")
    caption = f"Factor of the error per iteration, fitted between errors of {SECOND_STAGE:g} and {power_of_ten(-13)}."
    return Table("factors", caption, columns, tuple(rows), n_heads=2)


def _finding(done: Sequence[Run]) -> str:
    factors = [run.factor for run in done if run.factor is not None]
    if not factors:
        return "Not run yet."
    first = max(run.n_first for run in done)
    fitted = span(min(factors), max(factors), ".4f")
    said = f"After at most {first} iterations the error is multiplied by {fitted} in each one that follows"
    return f"{said}; θ is {DENSITY}."


def _claims(done: Sequence[Run]) -> Iterator[Claim]:
    factors = [run.factor for run in done if run.factor is not None]
    text = "The second stage is linear, with factor θ = 1/10, on the sphere and on the orthogonal group."
    held = [abs(factor / DENSITY - 1) < 0.02 for factor in factors]
    if factors:
        found = f"Fitted factors from {min(factors):.4f} to {max(factors):.4f} in {len(factors)} runs."
        yield Claim(text, found, Verdict.of(sum(held), len(held)))
    else:
        yield Claim(text, "Not run.", Verdict.OPEN)
    text = "The first stage takes a few iterations only."
    first = [run.n_first for run in done]
    if first:
        found = f"Between {min(first)} and {max(first)}, up to n = {max(run.n for run in done)}; up to {FEW} counts."
        yield Claim(text, found, Verdict.of(sum(t <= FEW for t in first), len(first)))
    else:
        yield Claim(text, "Not run.", Verdict.OPEN)


def draw(done: Sequence[Run], palette: Palette, narrow: bool) -> Figure:
    """A panel for each constraint."""
    figure, axes = drawing.panels(palette, narrow, 2, sharey=not narrow)
    for panel, (constraint, title) in zip(axes, CONSTRAINTS.items(), strict=True):
        mine = [run for run in done if run.constraint == constraint]
        _draw_panel(panel, mine, palette)
        drawing.titled(panel, title)
    return figure


def _draw_panel(panel: Axes, mine: Sequence[Run], palette: Palette) -> None:
    all_n = sorted({run.n for run in mine})
    colours = {n: drawing.shade("l4", palette, number, len(all_n)) for number, n in enumerate(all_n)}
    last = max((len(run.errors) for run in mine), default=20)
    for start in range(-16, last + 2, 2):
        t = np.array([start, start + 16])
        panel.plot(t, DENSITY ** (t - start), color=palette.line, linewidth=0.8, zorder=0)
    for n, colour in colours.items():
        group = [run for run in mine if run.n == n]
        for number, run in enumerate(group):
            label = f"n = {n}" if number == 0 else None
            panel.plot(run.errors, color=colour, linewidth=1.8, alpha=0.85, label=label)
    drawing.powers_on_y(panel, (0, -4, -8, -12))
    panel.set(ylim=(ROUNDING / 2, 3), xlim=(0, last), xlabel="iteration", ylabel="error")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawing.legend(panel, palette, loc="upper right")


EXPERIMENT = Experiment("figure3", "Figure 3", cells, section)
