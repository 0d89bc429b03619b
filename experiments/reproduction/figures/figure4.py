"""Figure 4: the power method against Riemannian gradient steps of fixed length."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.axes import INK
from experiments.reproduction.cells import METHODS, Cell
from experiments.reproduction.experiment import (
    Claim,
    Entry,
    Experiment,
    Picture,
    Section,
    Size,
    Table,
    absent_entry,
    judge,
)
from experiments.reproduction.figures.figure3 import CONSTRAINTS, Run, make_population_cell, read_runs
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import power_of_ten, span
from experiments.reproduction.results import Results

DENSITY = 0.3
TARGET, LOWEST = 1e-6, 1e-9  # error for which iterations are counted, and the smallest that is drawn
MUCH = 2  # ratio of iterations that counts as much slower
STEPS = {"gradient": 0.25, "long": 1.0}
"""Step length in units of the gradient of the paper, which leaves out the factor p = 4."""

NAMES = {"power": "Power method", "gradient": "Gradient, step 1/4", "long": "Gradient with the factor p, step 1/4"}

Runs = dict[tuple[str, str, int], list[Run]]  # by name, constraint and n


def list_n(size: Size) -> tuple[int, ...]:
    """List numbers of features."""
    return (10, 30, 100, 300) if size.full else (10, 30, 100)


def list_trials(name: str, constraint: str, n: int, size: Size) -> list[Cell]:
    """List the runs of a method; all methods have the same random starts."""
    seeds = size.n_trials(quick=1, full=5)
    method, options = ("power", {}) if name == "power" else ("gradient", {"step": STEPS[name]})
    return [make_population_cell(method, constraint, n, DENSITY, seed, **options) for seed in seeds]


def list_keys(size: Size) -> list[tuple[str, str, int]]:
    """List methods, constraints and numbers of features."""
    return [(name, constraint, n) for name in NAMES for constraint in CONSTRAINTS for n in list_n(size)]


def list_cells(size: Size) -> list[Cell]:
    """List all cells."""
    return [cell for key in list_keys(size) for cell in list_trials(*key, size)]


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    runs = {key: read_runs(results, list_trials(*key, size)) for key in list_keys(size)}
    ratios = [ratio for constraint in CONSTRAINTS for ratio in compare(runs, "gradient", constraint, list_n(size))]
    finding = f"Gradient steps need {span(ratios, '.1f')} times as many iterations as the power method."
    missing = METHODS["gradient"].missing
    return Section(
        "Against gradient steps",
        finding if ratios else "Not run yet.",
        f"Power method and Riemannian gradient with infinitely many samples, p = 4, θ = {DENSITY}; random starts: "
        f"{len(size.n_trials(quick=1, full=5))}.",
        claims=list(_judge(runs, list_n(size))),
        picture=Picture(
            "Error against iteration, for n from pale to dark, from the start with the median number of iterations. "
            "Dashed: gradient steps of 1/4.",
            "Errors of both methods for several n, on the sphere and on the orthogonal group",
            lambda: draw(runs, list_n(size)),
        ),
        table=_make_table(runs, results, size),
        notes=(
            "The paper's gradient of ‖AY‖ₚᵖ leaves out the factor p. The picture has steps of 1/4 along it; steps of "
            "1/4 along the true gradient are four times as long, and are in the table as well.",
            *((f"{missing} is not installed, so gradient steps were not run.",) if missing else ()),
        ),
    )


def count_needed(group: Sequence[Run]) -> float | None:
    """Compute the median number of iterations to TARGET; None if a run did not reach it."""
    counts = [next((t for t, error in enumerate(run.errors) if error <= TARGET), None) for run in group]
    reached = [count for count in counts if count is not None]
    return float(statistics.median(reached)) if reached and len(reached) == len(counts) else None


def compare(runs: Runs, name: str, constraint: str, all_n: Sequence[int]) -> list[float]:
    """Compute ratios of the iterations of gradient steps and of the power method, where both reached TARGET."""
    pairs = [(count_needed(runs[name, constraint, n]), count_needed(runs["power", constraint, n])) for n in all_n]
    return [slow / fast for slow, fast in pairs if slow and fast]


def _make_table(runs: Runs, results: Results, size: Size) -> Table:
    rows = []
    for constraint, title in CONSTRAINTS.items():
        for n in list_n(size):
            entries = [Entry(title), Entry(str(n))]
            for name in NAMES:
                count = count_needed(runs[name, constraint, n])
                if count is not None:
                    entries.append(Entry(f"{count:g}"))
                elif runs[name, constraint, n]:
                    entries.append(Entry("never"))
                else:
                    entries.append(absent_entry(results.summary(list_trials(name, constraint, n, size), "errors")))
            rows.append(tuple(entries))
    caption = f"Iterations until the error is below {power_of_ten(-6)} (median over starts)."
    return Table(caption, ("Constraint", "n", *NAMES.values()), tuple(rows), n_heads=2)


def _judge(runs: Runs, all_n: Sequence[int]) -> Iterator[Claim]:
    text = "The power method converges much faster than Riemannian gradient, especially when the problem is large."
    found, held = [], []
    for name, label in (("gradient", "the paper's gradient"), ("long", "the true gradient")):
        for constraint, title in CONSTRAINTS.items():
            ratios = compare(runs, name, constraint, all_n)
            if len(ratios) == len(all_n):
                held += [min(ratios) > MUCH, ratios[-1] > ratios[0]]
                found.append(f"{ratios[0]:.1f} to {ratios[-1]:.1f} times as many with {label} {title.lower()}")
    more = f"Iterations from n = {all_n[0]} to {all_n[-1]}: {'; '.join(found)}. More than {MUCH} times is much."
    yield judge(text, held, more)


def draw(runs: Runs, all_n: Sequence[int]) -> Figure:
    """Draw a panel for each constraint."""
    figure, axes = drawing.make_panels(2, sharey=True)
    for panel, (constraint, title) in zip(axes, CONSTRAINTS.items(), strict=True):
        _draw_panel(panel, runs, constraint, all_n)
        drawing.set_title(panel, title)
    return figure


def _draw_panel(panel: Axes, runs: Runs, constraint: str, all_n: Sequence[int]) -> None:
    longest = 10
    for number, n in enumerate(all_n):
        for name, method, style in (("power", "l4", "-"), ("gradient", "gradient", "--")):
            group = sorted(runs[name, constraint, n], key=lambda run: len(run.errors))
            if group:
                errors = group[len(group) // 2].errors
                colour = drawing.shade(method, number, len(all_n))
                panel.plot(errors, color=colour, linestyle=style, linewidth=2, label=f"{NAMES[name]}, n = {n}")
                longest = max(longest, next((t for t, e in enumerate(errors) if e < LOWEST), len(errors)))
    panel.set(xscale="log", xlim=(1, longest), xlabel="iteration", ylabel="error")
    drawing.scale_powers(panel, (0, -3, -6, -9))
    panel.set_ylim(LOWEST, 3)
    panel.set_xticks([tick for tick in (1, 10, 100, 1000) if tick < longest])
    panel.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    panel.minorticks_off()
    if panel.lines:
        panel.legend(frameon=False, labelcolor=INK, loc="lower left", fontsize=8)


EXPERIMENT = Experiment("figure4", "Figure 4", list_cells, make_section)
