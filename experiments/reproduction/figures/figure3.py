"""Figure 3: the two stages of the power method with infinitely many samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.harness.axes import INK, LINE
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, judge
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import SIGN, power_of_ten, span
from experiments.reproduction.results import Results

P, DENSITY = 4, 0.1
CONSTRAINTS = {"sphere": "On the sphere", "orthogonal": "On the orthogonal group"}
FEW = 30  # iterations; the figures of the paper show about as many
NEAR = 0.02  # relative difference of fitted factors and theta that counts as agreement
SECOND_STAGE, ROUNDING = 1e-2, 1e-13  # errors at the start and the end of the second stage


@dataclass(frozen=True)
class Run:
    """Errors of all iterates of a run."""

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
        """Number of iterations before the second stage."""
        return next((t for t, error in enumerate(self.errors) if error < SECOND_STAGE), len(self.errors))


def make_population_cell(method: str, constraint: str, n: int, density: float, seed: int, **options: Scalar) -> Cell:
    """Make the cell of a run with infinitely many samples."""
    setting: dict[str, Scalar] = {"n_features": n, "p": P, "density": density, "constraint": constraint}
    return make_cell("population", method, setting | {"floor": ROUNDING, "max_iter": 20_000}, seed, options)


def list_cells(size: Size) -> list[Cell]:
    """List all cells."""
    all_n, seeds = (10, 100, 300) if size.full else (10, 50), size.n_trials(quick=3)
    return [
        make_population_cell("power", constraint, n, DENSITY, seed)
        for constraint in CONSTRAINTS
        for n in all_n
        for seed in seeds
    ]


def read_runs(results: Results, cells: Sequence[Cell]) -> list[Run]:
    """Read the runs of those cells that were run."""
    found = ((cell, results.values(cell)) for cell in cells)
    return [
        Run(str(cell.value("constraint")), int(cell.value("n_features")), tuple(values["errors"]))
        for cell, values in found
        if values is not None
    ]


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    runs = read_runs(results, list_cells(size))
    factors = [run.factor for run in runs if run.factor is not None]
    finding = "Not run yet."
    if factors:
        first = max(run.n_first for run in runs)
        finding = (
            f"After at most {first} iterations, each iteration multiplies the error by {span(factors, '.4f')}; "
            f"θ is {DENSITY}."
        )
    return Section(
        "A slow start, then a factor of θ per iteration",
        finding,
        f"The power method with the expected gradient, p = {P}, θ = {DENSITY}; random starts: {len(size.n_trials(3))}. "
        " The other stages of elldict need samples, so it has no curve here.",
        claims=list(_judge(runs, factors)),
        picture=Picture(
            "Error of the power method against iteration. Grey lines fall by θ = 1/10 per iteration.",
            "Curves that stay level for a few iterations and then fall along a straight line on a log axis",
            lambda: draw(runs),
        ),
        table=_make_table(runs),
    )


def _make_table(runs: Sequence[Run]) -> Table:
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.constraint, run.n), []).append(run)
    rows = []
    for (constraint, n), group in groups.items():
        factors = np.array([run.factor for run in group if run.factor is not None] or [math.nan])
        largest = float(np.max(np.abs(factors / DENSITY - 1)))
        first = [run.n_first for run in group]
        fitted = Entry(f"{factors.mean():.4f}", tone="agrees" if largest < NEAR else "larger")
        difference = Entry(f"{100 * largest:.2g}{SIGN}")
        stage_one = Entry(span([float(t) for t in first], ".0f"))
        rows.append((Entry(CONSTRAINTS[constraint]), Entry(str(n)), fitted, difference, stage_one))
    columns = ("Constraint", "n", "Fitted factor", f"Largest difference from {DENSITY:g}", "Iterations of stage one")
    caption = f"Factor of the error per iteration, fitted between errors of {SECOND_STAGE:g} and {power_of_ten(-13)}."
    return Table(caption, columns, tuple(rows), n_heads=2)


def _judge(runs: Sequence[Run], factors: Sequence[float]) -> Iterator[Claim]:
    text = "The second stage is linear, with factor θ = 1/10, on the sphere and on the orthogonal group."
    found = f"Fitted factors {span(list(factors), '.4f')} in {len(factors)} runs."
    yield judge(text, [abs(factor / DENSITY - 1) < NEAR for factor in factors], found)
    first = [run.n_first for run in runs]
    found = f"{min(first)} to {max(first)}, up to n = {max(run.n for run in runs)}; up to {FEW} is few." if runs else ""
    yield judge("The first stage takes only a few iterations.", [t <= FEW for t in first], found)


def draw(runs: Sequence[Run]) -> Figure:
    """Draw a panel for each constraint."""
    figure, axes = drawing.make_panels(2, sharey=True)
    for panel, (constraint, title) in zip(axes, CONSTRAINTS.items(), strict=True):
        _draw_panel(panel, [run for run in runs if run.constraint == constraint])
        drawing.set_title(panel, title)
    return figure


def _draw_panel(panel: Axes, runs: Sequence[Run]) -> None:
    all_n = sorted({run.n for run in runs})
    last = max((len(run.errors) for run in runs), default=20)
    for start in range(-16, last + 2, 2):
        t = np.array([start, start + 16])
        panel.plot(t, DENSITY ** (t - start), color=LINE, linewidth=0.8, zorder=0)
    for number, n in enumerate(all_n):
        colour = drawing.shade("l4", number, len(all_n))
        for k, run in enumerate(run for run in runs if run.n == n):
            panel.plot(run.errors, color=colour, linewidth=1.8, alpha=0.85, label=f"n = {n}" if k == 0 else None)
    drawing.scale_powers(panel, (0, -4, -8, -12))
    panel.set(ylim=(ROUNDING / 2, 3), xlim=(0, last), xlabel="iteration", ylabel="error")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if runs:
        panel.legend(frameon=False, labelcolor=INK, loc="upper right")


EXPERIMENT = Experiment("figure3", "Figure 3", list_cells, make_section)
