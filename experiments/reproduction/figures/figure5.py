"""Figure 5: six maps of where recovery ends."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from elldict._old.report.style import Palette
from elldict.theory import expected_error
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, Verdict
from experiments.reproduction.report import drawing
from experiments.reproduction.report.looks import LOOKS
from experiments.reproduction.report.words import percent, thousands, whole_percent
from experiments.reproduction.results import Results

EDGE = 0.05
"""Error at which the line between recovery and failure is drawn."""

LOST, RECOVERED = 0.5, 0.01
"""Errors above which nothing of the dictionary is left, and below which all of it was found."""

SHARP = 4.0
"""Factor around the edge beyond which errors do not move a line between squares."""

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
        """Fits of the power method at a point."""
        options: dict[str, Scalar] = {"p": self.point(x, y)["p"], **ENOUGH}
        seeds = self.size.n_trials(quick=1, full=3)
        return [make_cell("recovery", "lp", self.setting(x, y), seed, options) for seed in seeds]

    def default_cell(self, x: float, y: float) -> Cell:
        """A fit of elldict as it comes, which knows no p: along p it is always the same."""
        return make_cell("recovery", "default", self.setting(x, y), 0)

    def setting(self, x: float, y: float) -> dict[str, Scalar]:
        """What the samples at a point are drawn from."""
        at = self.point(x, y)
        setting: dict[str, Scalar] = {
            "n_features": self.n,
            "n_samples": int(at["r"]),
            "density": at["theta"],
            "dtype": "float32",
        }
        if at["sigma"]:
            setting["noise_std"] = at["sigma"]
        return setting

    def measured(self, results: Results) -> Grid:
        """Mean errors of the power method (y, x); NaN where nothing was run."""
        return self._grid(lambda x, y: results.mean(self.trials(x, y)))

    def default(self, results: Results) -> Grid:
        """Errors of elldict as it comes (y, x); NaN where nothing was run."""
        return self._grid(lambda x, y: results.mean([self.default_cell(x, y)]))

    def _grid(self, error: Callable[[float, float], float | None]) -> Grid:
        means = [[error(x, y) for x in self.ticks(self.x)] for y in self.ticks(self.y)]
        return np.array([[np.nan if mean is None else max(mean, 1e-9) for mean in row] for row in means])

    def fixed_words(self) -> str:
        """What does not vary."""
        at = FIXED | {"r": 10_000 * self.n / 50}
        names = {"p": "p", "theta": "θ", "sigma": "σ", "r": "r"}
        return ", ".join(
            f"{names[name]} = {thousands(int(value)) if name == 'r' else f'{value:g}'}"
            for name, value in at.items()
            if name not in (self.x, self.y)
        )


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
    points = [(map_, x, y) for map_ in maps(size) for x in map_.ticks(map_.x) for y in map_.ticks(map_.y)]
    fits = [cell for map_, x, y in points for cell in (*map_.trials(x, y), map_.default_cell(x, y))]
    return list(dict.fromkeys(fits))


def section(results: Results, size: Size) -> Section:
    """The figure, the agreement of each map with theory, and the claims."""
    found = [(map_, map_.measured(results)) for map_ in maps(size)]
    ours = [map_.default(results) for map_ in maps(size)]
    n = found[0][0].n
    return Section(
        "Where recovery ends",
        _finding(found, ours),
        f"Two of p, θ, σ and r vary, the others are fixed; n = {n}, {len(size.n_trials(quick=1, full=3))} "
        "trials. Colour is the mean error of ℓₚ, on the scale below the maps.",
        pictures=(
            Picture(
                "figure5",
                f"Phase transitions. Lines are at an error of {whole_percent(EDGE)}: where theory expects it of ℓₚ, "
                "and where elldict as it comes has it (one trial a square; it knows no p, so along p its line is "
                f"straight).{_line_words(found, ours)}",
                "Six heat maps of the error with lines between recovery and failure, of theory and of elldict",
                lambda palette, narrow: draw(found, ours, palette, narrow),
            ),
        ),
        tables=(_table(found, ours),),
        claims=(*_claims(found), _ahead(found, ours), _candour(results, size)),
        notes=()
        if size.full
        else ("A quick run takes n = 20 and two fifths of the samples; the paper has n = 50 and r = 10\u202f000.",),
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


def both(measured: Grid, default: Grid) -> tuple[Grid, Grid]:
    """Errors of both where both were run."""
    known = ~np.isnan(measured) & ~np.isnan(default)
    return measured[known], default[known]


def _finding(found: Found, ours: Sequence[Grid]) -> str:
    """Squares on which each recovers the dictionary."""
    pairs = [both(measured, default) for (_, measured), default in zip(found, ours, strict=True)]
    n_lp, n_ours = (sum(int(np.sum(pair[side] < EDGE)) for pair in pairs) for side in (0, 1))
    run = sum(len(pair[0]) for pair in pairs)
    if not run:
        return "Not run yet."
    counted = f"Of {run} squares ℓₚ recovers the dictionary on {n_lp}, elldict on {n_ours}"
    return f"{counted} (error below {whole_percent(EDGE)})."


def _line_words(found: Found, ours: Sequence[Grid]) -> str:
    """Why a line of elldict is not there, or ends."""
    all_below = [m.letter for (m, _), grid in zip(found, ours, strict=True) if np.all(grid < EDGE)]
    said = f" On map {', '.join(f'({letter})' for letter in all_below)} it is below everywhere." if all_below else ""
    partial = any(np.isnan(grid).any() and not np.isnan(grid).all() for grid in ours)
    return said + (" Its lines end where it was not run." if partial else "")


def _ahead(found: Found, ours: Sequence[Grid]) -> Claim:
    """Whether users lose anything by the default, among the maps of the default's own p."""
    text = "elldict recovers the dictionary wherever ℓ₃ does."
    pairs = [both(m, d) for (map_, m), d in zip(found, ours, strict=True) if "p" not in (map_.x, map_.y)]
    at_l3 = [bool(default < EDGE) for pair in pairs for l3, default in zip(*pair, strict=True) if l3 < EDGE]
    at_ours = sum(bool(default < EDGE <= l3) for pair in pairs for l3, default in zip(*pair, strict=True))
    if not at_l3:
        return Claim(text, "Not run.", Verdict.OPEN, ours=True)
    said = f"{sum(at_l3)} of {len(at_l3)} squares with an error below {whole_percent(EDGE)} at p = 3"
    found_ = f"{said}; and {at_ours} squares on which ℓ₃ does not."
    return Claim(text, found_, Verdict.of(sum(at_l3), len(at_l3)), ours=True)


def _table(found: Found, ours: Sequence[Grid]) -> Table:
    rows = []
    for (map_, measured), default in zip(found, ours, strict=True):
        l_p, elldict = both(measured, default)
        agree, run = same_side(map_, measured)
        middle = ratio(map_, measured)
        rows.append(
            (
                Entry(f"({map_.letter})", order=map_.letter),
                Entry(f"{NAMES[map_.x]}, {NAMES[map_.y]}", order=map_.x),
                Entry(map_.fixed_words()),
                Entry(f"{agree} of {run}", order=agree / max(run, 1), tone="agrees" if agree >= MOST * run else ""),
                Entry("–" if middle is None else f"{middle:.2f}", order=middle or 0.0),
                Entry(str(int(np.sum(l_p < EDGE))), order=int(np.sum(l_p < EDGE))),
                Entry(str(int(np.sum(elldict < EDGE))), order=int(np.sum(elldict < EDGE))),
            )
        )
    columns = ("Map", "Vary", "Fixed", "As theory says", "Measured / theory", "Recovered, ℓₚ", "Recovered, elldict")
    caption = (
        f"Squares on the side of the line at {whole_percent(EDGE)} that theory says; the median of measured over "
        "theory where ℓₚ is expected to recover; and squares recovered."
    )
    return Table("maps", caption, columns, tuple(rows), n_heads=2)


def _claims(found: Found) -> Iterator[Claim]:
    text = "Each map shows a transition from recovery to failure."
    shown = []
    for _, measured in found:
        if not np.all(np.isnan(measured)):
            shown.append(bool(np.nanmin(measured) < EDGE / 2 and np.nanmax(measured) > 0.3))
    counted = (
        f"{sum(shown)} of {len(shown)} maps hold errors below {percent(EDGE / 2)} and above {whole_percent(0.3)}."
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
    planned = [cell for cell in cells(size) if cell.method == "lp"]
    fits = [values for cell in planned if (values := results.values(cell)) is not None]
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


def draw(found: Found, ours: Sequence[Grid], palette: Palette, narrow: bool) -> Figure:
    """Six panels and one scale."""
    figure, axes = drawing.panels(palette, narrow, len(found), per_row=3, height=3.1 if not narrow else 3.7)
    images = [_draw_map(panel, map_, measured, palette) for panel, (map_, measured) in zip(axes, found, strict=True)]
    for panel, default in zip(axes, ours, strict=True):
        _draw_default(panel, default, palette)
    for label, colour in (("theory of ℓₚ", palette.ink), ("elldict", LOOKS["default"].colour(palette))):
        axes[0].plot([], [], color=colour, linewidth=2.4, label=label)
    drawing.legend_above(figure, axes[:1], palette, narrow)
    bar = figure.colorbar(images[0], ax=axes, location="bottom", shrink=0.5 if not narrow else 0.9, pad=0.03, aspect=40)
    bar.set_ticks([1e-3, 1e-2, 1e-1, 1], labels=[drawing.per_cent_tick(tick) for tick in (1e-3, 1e-2, 1e-1, 1)])
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=0, labelcolor=palette.muted)
    bar.outline.set_visible(False)
    bar.set_label("error", color=palette.muted)
    return figure


def _draw_map(panel: Axes, map_: Map, measured: Grid, palette: Palette) -> AxesImage:
    xs, ys = map_.ticks(map_.x), map_.ticks(map_.y)
    colours = LinearSegmentedColormap.from_list("error", [palette.tile, LOOKS["l3"].colour(palette)])
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
    _draw_contour(panel, at_x, at_y, grid, palette.ink, palette)


def _draw_default(panel: Axes, default: Grid, palette: Palette) -> None:
    """Where elldict as it comes passes the edge, between the squares."""
    logs = np.log(np.clip(default, EDGE / SHARP, EDGE * SHARP))
    at_x, at_y = np.arange(default.shape[1], dtype=float), np.arange(default.shape[0], dtype=float)
    _draw_contour(panel, at_x, at_y, logs, LOOKS["default"].colour(palette), palette)


def _draw_contour(panel: Axes, at_x: Grid, at_y: Grid, logs: Grid, colour: str, palette: Palette) -> None:
    if np.nanmin(logs, initial=np.inf) < np.log(EDGE) < np.nanmax(logs, initial=-np.inf):
        for width, shade in ((4.2, palette.card), (2.2, colour)):
            panel.contour(at_x, at_y, logs, levels=[np.log(EDGE)], colors=[shade], linewidths=width, linestyles="solid")


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
