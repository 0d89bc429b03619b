"""Figure 4: the power method against Riemannian gradient steps of fixed length."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elldict._old.report.style import Palette
from experiments.reproduction.cells import METHODS, Cell
from experiments.reproduction.experiment import (
    Claim,
    Entry,
    Experiment,
    Picture,
    Section,
    Size,
    Table,
    Verdict,
    absent_entry,
)
from experiments.reproduction.figures.figure3 import CONSTRAINTS, Run, population_cell, runs
from experiments.reproduction.report import drawing
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import plural, power_of_ten, span
from experiments.reproduction.results import Results

DENSITY = 0.3
TARGET = 1e-6
MUCH = 2
"""Times as many iterations that count as much slower."""

METHOD_NAMES = {
    "power": "Power method",
    "gradient": "Gradient, step 1/4",
    "long": "Gradient with the factor p, step 1/4",
}
LOWEST = 1e-9
"""Error at which curves leave the picture."""

LINES = (  # name, look, label, dashes, width: the power method with p = 4, and gradient steps
    ("power", "l4", "Power method", "-", 2.4),
    ("gradient", "gradient", LOOKS["gradient"].label, (0, (4, 2)), 1.8),
)
STEPS = {"gradient": 0.25, "long": 1.0}
"""Length of the step in units of the paper's gradient, which leaves out the factor p = 4 of the objective's."""


def sizes(size: Size) -> tuple[int, ...]:
    """Numbers of features."""
    return (10, 30, 100, 300) if size.full else (10, 30, 100)


def trials(name: str, constraint: str, n: int, size: Size) -> list[Cell]:
    """Runs of one method from several random starts, the same for all methods."""
    seeds = size.n_trials(quick=1, full=5)
    if name == "power":
        return [population_cell("power", constraint, n, DENSITY, seed) for seed in seeds]
    return [population_cell("gradient", constraint, n, DENSITY, seed, step=STEPS[name]) for seed in seeds]


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return [
        cell
        for name in METHOD_NAMES
        for constraint in CONSTRAINTS
        for n in sizes(size)
        for cell in trials(name, constraint, n, size)
    ]


def section(results: Results, size: Size) -> Section:
    """The figure, the iterations needed, and the claims."""
    done = {
        (name, constraint, n): runs(results, trials(name, constraint, n, size))
        for name in METHOD_NAMES
        for constraint in CONSTRAINTS
        for n in sizes(size)
    }
    missing = METHODS["gradient"].missing
    return Section(
        "Against gradient steps",
        _finding(done, sizes(size)),
        f"Power method and Riemannian gradient, both on infinitely many samples, p = 4, θ = {DENSITY}, from "
        f"{plural(len(size.n_trials(quick=1, full=5)), 'random start')}. Without samples elldict is its power method.",
        pictures=(
            Picture(
                "figure4",
                "Error against iteration for growing n, the darker the larger, from the start of median length. "
                "Dashed: gradient steps of 1/4.",
                "Curves of the error of both methods for several n, on the sphere and on the orthogonal group",
                lambda palette, narrow: draw(done, sizes(size), palette, narrow),
            ),
        ),
        tables=(_table(done, results, size),),
        claims=tuple(_claims(done, sizes(size))),
        notes=(
            "The paper's gradient of ‖AY‖ₚᵖ leaves out the factor p. A step of 1/4 along it is drawn; a step "
            "of 1/4 along the true gradient is four times as long, and stands in the table as well.",
            *((f"{missing} is not installed, so gradient steps were not run.",) if missing else ()),
        ),
    )


Done = dict[tuple[str, str, int], list[Run]]


def needed(group: Sequence[Run]) -> float | None:
    """Median number of iterations to TARGET; None if a run did not get there."""
    counts = [next((t for t, error in enumerate(run.errors) if error <= TARGET), None) for run in group]
    if not counts or any(count is None for count in counts):
        return None
    return float(statistics.median(count for count in counts if count is not None))


def _table(done: Done, results: Results, size: Size) -> Table:
    rows = []
    for constraint, title in CONSTRAINTS.items():
        for n in sizes(size):
            entries = (
                _entry(done[name, constraint, n], results, trials(name, constraint, n, size)) for name in METHOD_NAMES
            )
            rows.append((Entry(title, order=constraint), Entry(str(n), order=n), *entries))
    caption = f"Iterations until the error is below {power_of_ten(-6)} (median over starts)."
    return Table("iterations", caption, ("Constraint", "n", *METHOD_NAMES.values()), tuple(rows), n_heads=2)


def _entry(group: Sequence[Run], results: Results, planned: Sequence[Cell]) -> Entry:
    count = needed(group)
    if count is not None:
        return Entry(f"{count:g}", order=count)
    return Entry("never", order=math.inf) if group else absent_entry(results.summary(planned, "errors"))


def _ratios(done: Done, name: str, all_n: Sequence[int]) -> list[float]:
    """Iterations of gradient steps over those of the power method, where both got there."""
    pairs = [(needed(done[name, c, n]), needed(done["power", c, n])) for c in CONSTRAINTS for n in all_n]
    return [slow / fast for slow, fast in pairs if slow and fast]


def _finding(done: Done, all_n: Sequence[int]) -> str:
    ratios = _ratios(done, "gradient", all_n)
    if not ratios:
        return "Not run yet."
    many = span(min(ratios), max(ratios), ".1f")
    return f"Gradient steps of 1/4 take {many} times as many iterations as the power method."


def _claims(done: Done, all_n: Sequence[int]) -> Iterator[Claim]:
    text = "The power method converges much faster than Riemannian gradient, especially when the problem is large."
    found, held = [], []
    for name, along in (("gradient", "the paper's gradient"), ("long", "the true gradient, four times as long,")):
        said = []
        for constraint, title in CONSTRAINTS.items():
            pairs = [(needed(done[name, constraint, n]), needed(done["power", constraint, n])) for n in all_n]
            ratios = [slow / fast for slow, fast in pairs if slow and fast]
            if len(ratios) == len(all_n):
                held += [min(ratios) > MUCH, ratios[-1] > ratios[0]]
                said.append(f"{ratios[0]:.1f} to {ratios[-1]:.1f} times as many iterations {title.lower()}")
        if said:
            found.append(f"Steps of 1/4 along {along} take {' and '.join(said)}.")
    if held:
        found.append(f"From n = {all_n[0]} to {all_n[-1]}; more than {MUCH} times counts as much.")
        yield Claim(text, " ".join(found), Verdict.of(sum(held), len(held)))
    else:
        yield Claim(text, "Not all runs were made.", Verdict.OPEN)


def draw(done: Done, all_n: Sequence[int], palette: Palette, narrow: bool) -> Figure:
    """A panel for each constraint."""
    figure, axes = drawing.panels(palette, narrow, 2, sharey=not narrow)
    for panel, (constraint, title) in zip(axes, CONSTRAINTS.items(), strict=True):
        _draw_panel(panel, done, constraint, all_n, palette)
        drawing.titled(panel, title)
    drawing.legend_above(figure, axes, palette, narrow)
    return figure


def _draw_panel(panel: Axes, done: Done, constraint: str, all_n: Sequence[int], palette: Palette) -> None:
    longest, last_n = 10, all_n[-1]
    for number, n in enumerate(all_n):
        for name, look, label, style, width in LINES:
            colour = drawing.shade(look, palette, number, len(all_n))
            group = sorted(done[name, constraint, n], key=lambda run: len(run.errors))
            if not group:
                continue
            errors = group[len(group) // 2].errors
            panel.plot(errors, color=colour, linestyle=style, linewidth=width, label=label if n == last_n else None)
            longest = max(longest, next((t for t, e in enumerate(errors) if e < 1e-9), len(errors)))
            if (name, n) in (("power", all_n[0]), ("gradient", last_n)):
                _name_curve(panel, errors, n, colour, leftmost=n != last_n)
    panel.set(xscale="log", xlim=(1, 2 * longest), xlabel="iteration", ylabel="error")
    drawing.powers_on_y(panel, (0, -3, -6, -9))
    panel.set_ylim(LOWEST, 3)
    panel.set_xticks([tick for tick in (1, 10, 100, 1000) if tick < longest])
    panel.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    panel.minorticks_off()


def _name_curve(panel: Axes, errors: Sequence[float], n: int, colour: Any, *, leftmost: bool) -> None:
    """The n of an outermost curve, beside its lower end."""
    t = next((t for t, error in enumerate(errors) if error < 10 * LOWEST), len(errors) - 1)
    side, align = (-4, "right") if leftmost else (4, "left")
    where: Any = {"xytext": (side, 0), "textcoords": "offset points", "ha": align, "va": "center"}
    panel.annotate(f"n = {n}", (t, 3 * LOWEST), color=colour, size=9, **where)


EXPERIMENT = Experiment("figure4", "Figure 4", cells, section)
