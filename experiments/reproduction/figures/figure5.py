"""Figure 5: six maps of where recovery ends."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from elldict.report.style import Palette
from elldict.theory import expected_error
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, Verdict
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import whole_percent
from experiments.reproduction.results import Results

EDGE = 0.05
"""Error at which the line between recovery and failure is drawn."""

LOST, RECOVERED = 0.5, 0.01
"""Errors above which nothing of the dictionary is left, and below which all of it was found."""

MOST, MANY = 0.95, 0.85
"""Shares of fits, or of squares, that bear a claim out, and that bear it out in part."""

FIXED = {"p": 3.0, "theta": 0.3, "sigma": 0.2}
NAMES = {"p": "p", "theta": "θ", "sigma": "σ", "r": "samples r"}
MAPS = (("r", "theta"), ("r", "sigma"), ("p", "theta"), ("p", "sigma"), ("p", "r"), ("theta", "sigma"))
"""What varies along and up each map. The paper's (f) repeats the caption of (e); the pair that is left is this one."""

ENOUGH = {"tol": 1e-5, "max_iter": 400}
"""Beyond the edge the power method wanders until it is stopped; nothing is learned from watching it longer."""

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Map:
    """One map: letter and axes."""

    letter: str
    x: str
    y: str
    size: Size

    @property
    def n(self) -> int:
        """Number of features; a quick run scales the problem down, samples with it."""
        return 50 if self.size.full else 20

    def ticks(self, name: str) -> tuple[float, ...]:
        """Values along an axis."""
        k = 10 if self.size.full else 6
        if name == "r":
            return tuple(float(round(r, -1)) for r in np.geomspace(500, 50_000, k) * self.n / 50)
        ranges = {"p": (2.5, 7), "theta": (0.1, 0.9), "sigma": (0.0, 1.2)}
        return tuple(round(float(value), 4) for value in np.linspace(*ranges[name], k))

    def point(self, x: float, y: float) -> dict[str, float]:
        """p, theta, sigma and r at a point of the map."""
        return FIXED | {"r": 10_000 * self.n / 50} | {self.x: x, self.y: y}

    def trials(self, x: float, y: float) -> list[Cell]:
        """Fits at a point."""
        at = self.point(x, y)
        setting: dict[str, Scalar] = {
            "n_features": self.n,
            "n_samples": int(at["r"]),
            "density": at["theta"],
            "dtype": "float32",
        }
        if at["sigma"]:
            setting["noise_std"] = at["sigma"]
        seeds = self.size.n_trials(quick=1, full=3)
        return [make_cell("recovery", "lp", setting, seed, {"p": at["p"], **ENOUGH}) for seed in seeds]

    def measured(self, results: Results) -> Grid:
        """Mean errors (y, x); NaN where nothing was run."""
        means = [[results.mean(self.trials(x, y)) for x in self.ticks(self.x)] for y in self.ticks(self.y)]
        return np.array([[np.nan if mean is None else max(mean, 1e-9) for mean in row] for row in means])

    def fixed_words(self) -> str:
        """What does not vary."""
        at = FIXED | {"r": 10_000 * self.n / 50}
        names = {"p": "p", "theta": "θ", "sigma": "σ", "r": "r"}
        return ", ".join(f"{names[name]} = {value:g}" for name, value in at.items() if name not in (self.x, self.y))


@functools.cache
def theory_at(n: int, p: float, theta: float, sigma: float, r: float) -> float:
    """Error that theory expects."""
    return expected_error(p, n_features=n, n_samples=int(r), density=theta, noise_std=sigma)


def theory_grid(map_: Map, xs: Sequence[float], ys: Sequence[float]) -> Grid:
    """What theory expects at points of a map (y, x)."""
    return np.array([[theory_at(map_.n, **map_.point(x, y)) for x in xs] for y in ys])


def maps(size: Size) -> list[Map]:
    """All six."""
    return [Map(letter, x, y, size) for letter, (x, y) in zip("abcdef", MAPS, strict=True)]


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return [
        cell
        for map_ in maps(size)
        for x in map_.ticks(map_.x)
        for y in map_.ticks(map_.y)
        for cell in map_.trials(x, y)
    ]


def section(results: Results, size: Size) -> Section:
    """The figure, the agreement of each map with theory, and the claims."""
    found = [(map_, map_.measured(results)) for map_ in maps(size)]
    n = found[0][0].n
    return Section(
        "Where recovery ends",
        f"Two of p, θ, σ and r vary, the others are fixed; n = {n}, {len(size.n_trials(quick=1, full=3))} "
        "trials. Colour is the mean error, on the scale below the maps.",
        pictures=(
            Picture(
                "figure5",
                f"Phase transitions. The line is where theory expects an error of {whole_percent(EDGE)}.",
                "Six heat maps of the error with a line between recovery and failure",
                lambda palette, narrow: draw(found, palette, narrow),
            ),
        ),
        tables=(_table(found),),
        claims=(*_claims(found), _candour(results, size)),
        notes=()
        if size.full
        else ("A quick run takes n = 20 and two fifths of the samples; the paper has n = 50 and r = 10000.",),
    )


Found = Sequence[tuple[Map, Grid]]


def same_side(map_: Map, measured: Grid) -> tuple[int, int]:
    """Squares on which measurement and theory are on the same side of the edge, and squares that were run."""
    theory = theory_grid(map_, map_.ticks(map_.x), map_.ticks(map_.y))
    run = ~np.isnan(measured)
    agree = (measured < EDGE) == (theory < EDGE)
    return int(np.sum(agree & run)), int(np.sum(run))


def optimistic(map_: Map, measured: Grid) -> int:
    """Squares on which theory expects recovery and there is none."""
    theory = theory_grid(map_, map_.ticks(map_.x), map_.ticks(map_.y))
    return int(np.sum((theory < EDGE) & (measured >= EDGE)))


def ratio(map_: Map, measured: Grid) -> float | None:
    """Median of measured / theory where recovery is expected."""
    theory = theory_grid(map_, map_.ticks(map_.x), map_.ticks(map_.y))
    inside = (theory < EDGE / 2) & ~np.isnan(measured)
    return statistics.median((measured / theory)[inside].tolist()) if inside.any() else None


def _table(found: Found) -> Table:
    rows = []
    for map_, measured in found:
        agree, run = same_side(map_, measured)
        middle = ratio(map_, measured)
        rows.append(
            (
                Entry(f"({map_.letter})", order=map_.letter),
                Entry(f"{NAMES[map_.x]}, {NAMES[map_.y]}", order=map_.x),
                Entry(map_.fixed_words()),
                Entry(f"{agree} of {run}", order=agree / max(run, 1), tone="agrees" if agree >= MOST * run else ""),
                Entry("–" if middle is None else f"{middle:.2f}", order=middle or 0.0),
            )
        )
    columns = ("Map", "Vary", "Fixed", "Squares on the side theory says", "Measured / theory where recovered (median)")
    caption = f"How the maps agree with theory. The line is drawn at an error of {whole_percent(EDGE)}."
    return Table("maps", caption, columns, tuple(rows), n_heads=2)


def _claims(found: Found) -> Iterator[Claim]:
    text = "Each map shows a transition from recovery to failure."
    shown = []
    for _, measured in found:
        if not np.all(np.isnan(measured)):
            shown.append(bool(np.nanmin(measured) < EDGE / 2 and np.nanmax(measured) > 0.3))
    counted = (
        f"{sum(shown)} of {len(shown)} maps hold errors below {100 * EDGE / 2:g} % and above 30 %."
        if shown
        else "Not run."
    )
    yield Claim(text, counted, Verdict.of(sum(shown), len(shown)))
    pairs = [same_side(map_, measured) for map_, measured in found]
    agree, run = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    text = "The transition lies where the closed formula says."
    if run == 0:
        yield Claim(text, "Not run.", Verdict.OPEN, ours=True)
        return
    hopeful = sum(optimistic(map_, measured) for map_, measured in found)
    counted = (
        f"{agree} of {run} squares are on the side of the line that theory says; {hopeful} of the other {run - agree} "
        "failed where it expects recovery. The formula is about small errors: it does not know of other maxima."
    )
    verdict = Verdict.HOLDS if agree >= MOST * run else Verdict.PARTLY if agree >= MANY * run else Verdict.FAILS
    yield Claim(text, counted, verdict, ours=True)


def _candour(results: Results, size: Size) -> Claim:
    """Whether users would learn from the fit itself on which side of the line they are."""
    text = "A fit that is lost says so, and one that found all atoms stays silent."
    fits = [values for cell in cells(size) if (values := results.values(cell)) is not None]
    lost = [bool(values["warnings"]) for values in fits if values["error"] > LOST]
    well = [not values["warnings"] for values in fits if values["error"] < RECOVERED]
    between = [bool(values["warnings"]) for values in fits if RECOVERED <= values["error"] <= LOST]
    if not lost or not well:
        return Claim(text, "Not run.", Verdict.OPEN, ours=True)
    found = (
        f"{sum(lost)} of {len(lost)} fits with an error above {whole_percent(LOST)} warned; "
        f"{sum(well)} of {len(well)} with one below {whole_percent(RECOVERED)} did not. Of the {len(between)} in "
        f"between, {sum(between)} warned."
    )
    return Claim(text, found, Verdict.of(sum(sum(kind) >= MOST * len(kind) for kind in (lost, well)), 2), ours=True)


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(found: Found, palette: Palette, narrow: bool) -> Figure:
    """Six panels and one scale."""
    figure, axes = drawing.panels(palette, narrow, len(found), per_row=3, height=3.1 if not narrow else 3.7)
    images = [_draw_map(panel, map_, measured, palette) for panel, (map_, measured) in zip(axes, found, strict=True)]
    bar = figure.colorbar(images[0], ax=axes, location="bottom", shrink=0.5 if not narrow else 0.9, pad=0.03, aspect=40)
    bar.set_ticks([1e-3, 1e-2, 1e-1, 1], labels=["0.1 %", "1 %", "10 %", "100 %"])
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=0, labelcolor=palette.muted)
    bar.outline.set_visible(False)
    bar.set_label("error", color=palette.muted)
    return figure


def _draw_map(panel: Axes, map_: Map, measured: Grid, palette: Palette) -> AxesImage:
    xs, ys = map_.ticks(map_.x), map_.ticks(map_.y)
    colours = LinearSegmentedColormap.from_list("error", [palette.tile, palette.curves[0], palette.ink])
    image = panel.imshow(
        measured,
        origin="lower",
        aspect="auto",
        cmap=colours,
        norm=LogNorm(1e-3, 1),
        extent=(-0.5, len(xs) - 0.5, -0.5, len(ys) - 0.5),
        interpolation="nearest",
    )
    _draw_edge(panel, map_, palette)
    panel.grid(visible=False)
    panel.spines["bottom"].set_visible(False)
    _label(panel, map_)
    drawing.titled(panel, f"({map_.letter})  {map_.fixed_words()}")
    return image


def _draw_edge(panel: Axes, map_: Map, palette: Palette) -> None:
    """The theory's contour, on a grid finer than that of the squares."""
    fine = []
    for name in (map_.x, map_.y):
        ticks = map_.ticks(name)
        where = np.linspace(0, len(ticks) - 1, 41)
        scale = np.log if name == "r" else np.asarray
        values = np.interp(where, range(len(ticks)), scale(ticks))
        fine.append((where, np.exp(values) if name == "r" else values))
    (at_x, xs), (at_y, ys) = fine
    grid = np.log(theory_grid(map_, xs.tolist(), ys.tolist()))
    if grid.min() < np.log(EDGE) < grid.max():
        panel.contour(
            at_x, at_y, grid, levels=[np.log(EDGE)], colors=[palette.card], linewidths=4.2, linestyles="solid"
        )
        panel.contour(
            at_x, at_y, grid, levels=[np.log(EDGE)], colors=[palette.curves[2]], linewidths=2.2, linestyles="solid"
        )


def _label(panel: Axes, map_: Map) -> None:
    for name, set_ticks, set_label in (
        (map_.x, panel.set_xticks, panel.set_xlabel),
        (map_.y, panel.set_yticks, panel.set_ylabel),
    ):
        ticks = map_.ticks(name)
        chosen = sorted({0, len(ticks) // 3, 2 * len(ticks) // 3, len(ticks) - 1})
        set_ticks(chosen, [drawing.plain(float(f"{ticks[i]:.2g}")) for i in chosen])
        set_label(NAMES[name])


EXPERIMENT = Experiment("figure5", "Figure 5", cells, section)
