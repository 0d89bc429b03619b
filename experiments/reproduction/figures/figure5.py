"""Figure 5: six phase transitions of recovery."""

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

from elldict.theory import expected_error
from experiments.harness.axes import INK, MUTED, TILE
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, Verdict, judge
from experiments.reproduction.report import drawing
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.report.words import percent, thousands, whole_percent
from experiments.reproduction.results import Results

EDGE = 0.05  # error that separates recovery and failure
FAILED, RECOVERED = 0.5, 0.01  # errors above which no atom is found, and below which all are
HIGH = 0.3  # error that each map should exceed
SHARP = 4.0  # factor around the edge to which errors are clipped before contours are drawn
MOST, MANY = 0.95, 0.85  # fractions of fits or squares for which a claim holds, or holds in part

FIXED = {"p": 3.0, "theta": 0.3, "sigma": 0.2, "r": 10_000.0}
NAMES = {"p": "p", "theta": "θ", "sigma": "σ", "r": "r"}
AXES = {
    "a": ("r", "theta"),
    "b": ("r", "sigma"),
    "c": ("p", "theta"),
    "d": ("p", "sigma"),
    "e": ("p", "r"),
    "f": ("theta", "sigma"),  # the paper repeats the caption of (e); this is the remaining pair
}
LIMITS = {"tol": 1e-5, "max_iter": 400}  # beyond the edge the power method does not converge

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Map:
    """One map, by its letter and what varies along its axes."""

    letter: str
    x: str
    y: str
    size: Size

    @property
    def n(self) -> int:
        """Number of features; a quick run scales the problem down, and samples with it."""
        return 50 if self.size.full else 20

    def ticks(self, name: str) -> tuple[float, ...]:
        """List the values along an axis."""
        k = 10 if self.size.full else 6
        if name == "r":
            return tuple(float(round(r, -1)) for r in np.geomspace(500, 50_000, k) * self.n / 50)
        ranges = {"p": (2.5, 7), "theta": (0.1, 0.9), "sigma": (0.0, 1.2)}
        return tuple(round(float(value), 4) for value in np.linspace(*ranges[name], k))

    def point(self, x: float, y: float) -> dict[str, float]:
        """Return p, theta, sigma and r of a square."""
        return FIXED | {"r": FIXED["r"] * self.n / 50} | {self.x: x, self.y: y}

    def list_trials(self, x: float, y: float) -> list[Cell]:
        """List the fits of the power method for a square."""
        seeds = self.size.n_trials(quick=1, full=3)
        options: dict[str, Scalar] = {"p": self.point(x, y)["p"], **LIMITS}
        return [make_cell("recovery", "lp", self.make_setting(x, y), seed, options) for seed in seeds]

    def make_default(self, x: float, y: float) -> Cell:
        """Make the cell of elldict for a square; it does not depend on p."""
        return make_cell("recovery", "default", self.make_setting(x, y), 0)

    def make_setting(self, x: float, y: float) -> dict[str, Scalar]:
        """Make the setting of the samples of a square."""
        at = self.point(x, y)
        setting: dict[str, Scalar] = {"n_features": self.n, "n_samples": int(at["r"]), "density": at["theta"]}
        return setting | {"dtype": "float32"} | ({"noise_std": at["sigma"]} if at["sigma"] else {})

    def list_points(self) -> list[tuple[float, float]]:
        """List the squares, row by row."""
        return [(x, y) for y in self.ticks(self.y) for x in self.ticks(self.x)]

    def fixed_words(self) -> str:
        """Describe what does not vary."""
        at = FIXED | {"r": FIXED["r"] * self.n / 50}
        words = {name: thousands(int(value)) if name == "r" else f"{value:g}" for name, value in at.items()}
        return ", ".join(f"{NAMES[name]} = {word}" for name, word in words.items() if name not in (self.x, self.y))


@functools.cache
def compute_theory(n: int, p: float, theta: float, sigma: float, r: float) -> float:
    """Compute the theoretical error."""
    return expected_error(p, n_features=n, n_samples=int(r), density=theta, noise_std=sigma)


def make_theory(map_: Map, xs: Sequence[float], ys: Sequence[float]) -> Grid:
    """Compute theoretical errors (y, x) of a map."""
    return np.array([[compute_theory(map_.n, **map_.point(x, y)) for x in xs] for y in ys])


@dataclass(frozen=True, eq=False)
class Found:
    """Errors of l_p, of elldict and of theory on the squares (y, x) of a map; NaN where nothing was run."""

    map: Map
    lp: Grid
    elldict: Grid
    theory: Grid

    @property
    def agrees(self) -> NDArray[np.bool_]:
        """Squares on which l_p and theory are on the same side of the edge."""
        return np.asarray(((self.lp < EDGE) == (self.theory < EDGE)) & self.is_run)

    @property
    def is_run(self) -> NDArray[np.bool_]:
        """Squares with results of l_p."""
        return ~np.isnan(self.lp)


def read(map_: Map, results: Results) -> Found:
    """Read the results of a map."""
    xs, ys = map_.ticks(map_.x), map_.ticks(map_.y)

    def fill(errors: list[float | None]) -> Grid:
        return np.reshape([np.nan if error is None else max(error, 1e-9) for error in errors], (len(ys), len(xs)))

    points = map_.list_points()
    lp = fill([results.mean(map_.list_trials(x, y)) for x, y in points])
    elldict = fill([results.mean([map_.make_default(x, y)]) for x, y in points])
    return Found(map_, lp, elldict, make_theory(map_, xs, ys))


def list_maps(size: Size) -> list[Map]:
    """List all six maps."""
    return [Map(letter, x, y, size) for letter, (x, y) in AXES.items()]


def list_cells(size: Size) -> list[Cell]:
    """List all cells."""
    points = [(map_, x, y) for map_ in list_maps(size) for x, y in map_.list_points()]
    return list(
        dict.fromkeys(cell for map_, x, y in points for cell in (*map_.list_trials(x, y), map_.make_default(x, y)))
    )


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    found = [read(map_, results) for map_ in list_maps(size)]
    n_run = sum(int(np.sum(f.is_run)) for f in found)
    n_lp, n_elldict = (sum(int(np.sum(getattr(f, name) < EDGE)) for f in found) for name in ("lp", "elldict"))
    finding = f"Of {n_run} squares ℓₚ recovers the dictionary on {n_lp}, elldict on {n_elldict}"
    note = "A quick run has n = 20 and two fifths of the samples; the paper has n = 50 and r = 10\u202f000."
    return Section(
        "Where recovery ends",
        f"{finding} (error below {whole_percent(EDGE)})." if n_run else "Not run yet.",
        f"Two of p, θ, σ and r vary, the others are fixed; n = {found[0].map.n}; trials of ℓₚ: "
        f"{len(size.n_trials(quick=1, full=3))}, of elldict: 1.",
        claims=list(_judge(found, results, size)),
        picture=Picture(
            f"Phase transitions. Colour: mean error of ℓₚ. Lines are at an error of {whole_percent(EDGE)} of theory "
            "and of elldict, which does not depend on p; where elldict has no line, it is below everywhere.",
            "Six maps of the error, with lines between recovery and failure of theory and of elldict",
            lambda: draw(found),
        ),
        table=_make_table(found),
        notes=() if size.full else (note,),
    )


def _make_table(found: Sequence[Found]) -> Table:
    rows = []
    for f in found:
        inside = (f.theory < EDGE / 2) & f.is_run
        ratio = f"{statistics.median((f.lp / f.theory)[inside].tolist()):.2f}" if inside.any() else "–"
        n_agree, n_run = int(np.sum(f.agrees)), int(np.sum(f.is_run))
        tone = "agrees" if n_run and n_agree >= MOST * n_run else ""
        counts = (Entry(str(np.sum(grid < EDGE))) for grid in (f.lp, f.elldict))
        agreement = Entry(f"{n_agree} of {n_run}", tone=tone)
        heads = Entry(f"({f.map.letter})"), Entry(f"{NAMES[f.map.x]}, {NAMES[f.map.y]}"), Entry(f.map.fixed_words())
        rows.append((*heads, agreement, Entry(ratio), *counts))
    columns = ("Map", "Vary", "Fixed", "As predicted", "Measured / theory", "Recovered, ℓₚ", "Recovered, elldict")
    caption = (
        f"Squares on the predicted side of {whole_percent(EDGE)}; median of measured over theory where theory "
        "is below half of that; and squares recovered."
    )
    return Table(caption, columns, tuple(rows), n_heads=3)


def _judge(found: Sequence[Found], results: Results, size: Size) -> Iterator[Claim]:
    text = "Each map shows a transition from recovery to failure."
    run = [f for f in found if f.is_run.any()]
    held = [bool(np.nanmin(f.lp) < EDGE / 2 and np.nanmax(f.lp) > HIGH) for f in run]
    more = f"{sum(held)} of {len(held)} maps have errors below {percent(EDGE / 2)} and above {whole_percent(HIGH)}."
    yield judge(text, held, more)
    yield _judge_theory(run)
    text = "elldict recovers the dictionary wherever ℓ₃ does."
    pairs = [f for f in found if "p" not in (f.map.x, f.map.y)]  # maps with p = 3
    both = [(lp, ours) for f in pairs for lp, ours in zip(f.lp.flat, f.elldict.flat, strict=True)]
    known = [(lp < EDGE, ours < EDGE) for lp, ours in both if not np.isnan(lp + ours)]
    held = [bool(ours) for lp, ours in known if lp]
    n_more = sum(ours and not lp for lp, ours in known)
    more = f"{sum(held)} of {len(held)} squares with an error below {whole_percent(EDGE)} of ℓ₃, and {n_more} others."
    yield judge(text, held, more, ours=True)
    yield _judge_warnings(results, size, "lp", "the power method")
    yield _judge_warnings(results, size, "default", "elldict")


def _judge_theory(found: Sequence[Found]) -> Claim:
    text = "The transition is where theory predicts it."
    n_run, n_agree = sum(int(np.sum(f.is_run)) for f in found), sum(int(np.sum(f.agrees)) for f in found)
    if not n_run:
        return judge(text, [], "", ours=True)
    n_failed = sum(int(np.sum((f.theory < EDGE) & (f.lp >= EDGE))) for f in found)
    more = (
        f"{n_agree} of {n_run} squares are on the predicted side; {n_failed} of the other {n_run - n_agree} "
        "failed where it predicts recovery. It is a theory of small errors, and does not know of local maxima."
    )
    verdict = Verdict.HOLDS if n_agree >= MOST * n_run else Verdict.PARTLY if n_agree >= MANY * n_run else Verdict.FAILS
    return Claim(text, more, verdict, ours=True)


def _judge_warnings(results: Results, size: Size, method: str, label: str) -> Claim:
    """Judge whether warnings separate failed from good fits."""
    text = f"A fit of {label} that failed warns, and one that found all atoms does not."
    cells = [cell for cell in list_cells(size) if cell.method == method]
    fits = [values for cell in cells if (values := results.values(cell)) is not None]
    failed = [bool(values["warnings"]) for values in fits if values["error"] > FAILED]
    good = [not values["warnings"] for values in fits if values["error"] < RECOVERED]
    more = (
        f"{sum(failed)} of {len(failed)} fits with an error above {whole_percent(FAILED)} warned; {sum(good)} of "
        f"{len(good)} with one below {whole_percent(RECOVERED)} did not."
    )
    held = [sum(kind) >= MOST * len(kind) for kind in (failed, good)]
    return judge(text, held if failed and good else [], more, ours=True)


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(found: Sequence[Found]) -> Figure:
    """Draw six panels and one scale."""
    figure, axes = drawing.make_panels(len(found), per_row=3, height=3.1)
    images = [_draw_map(panel, f) for panel, f in zip(axes, found, strict=True)]
    for label, colour in (("theory of ℓₚ", INK), ("elldict", STYLES["default"].colour)):
        axes[0].plot([], [], color=colour, linewidth=2.4, label=label)
    drawing.add_legend(figure, axes[:1])
    bar = figure.colorbar(images[0], ax=axes, location="bottom", shrink=0.5, pad=0.03, aspect=40)
    bar.set_ticks([10.0**k for k in (-3, -2, -1, 0)], labels=[drawing.format_error(k) for k in (-3, -2, -1, 0)])
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=0, labelcolor=MUTED)
    bar.outline.set_visible(False)
    bar.set_label("error", color=MUTED)
    return figure


def _draw_map(panel: Axes, f: Found) -> AxesImage:
    ticks = {name: f.map.ticks(name) for name in (f.map.x, f.map.y)}
    n_x, n_y = len(ticks[f.map.x]), len(ticks[f.map.y])
    image = panel.imshow(
        f.lp,
        origin="lower",
        aspect="auto",
        cmap=LinearSegmentedColormap.from_list("error", [TILE, STYLES["l3"].colour]),
        norm=LogNorm(1e-3, 1),
        extent=(-0.5, n_x - 0.5, -0.5, n_y - 0.5),
        interpolation="nearest",
    )
    panel.grid(visible=False)
    panel.spines["bottom"].set_visible(False)
    fine = {name: np.linspace(0, len(values) - 1, 41) for name, values in ticks.items()}
    xs, ys = (_interpolate(name, fine[name], ticks[name]) for name in (f.map.x, f.map.y))
    _draw_contour(panel, fine[f.map.x], fine[f.map.y], make_theory(f.map, xs, ys), INK)
    clipped = np.clip(f.elldict, EDGE / SHARP, EDGE * SHARP)
    _draw_contour(panel, np.arange(n_x), np.arange(n_y), clipped, STYLES["default"].colour)
    for name, axis in ((f.map.x, panel.xaxis), (f.map.y, panel.yaxis)):
        k = len(ticks[name])
        chosen = sorted({0, k // 3, 2 * k // 3, k - 1})
        axis.set_ticks(chosen, [drawing.format_tick(float(f"{ticks[name][i]:.2g}")) for i in chosen])
        axis.set_label_text(NAMES[name])
    drawing.set_title(panel, f"({f.map.letter})  {f.map.fixed_words()}")
    return image


def _interpolate(name: str, at: Grid, ticks: Sequence[float]) -> list[float]:
    """Interpolate the values of an axis at positions between its ticks; samples are on a log scale."""
    is_log = name == "r"
    values = np.interp(at, range(len(ticks)), np.log(ticks) if is_log else ticks)
    return [float(value) for value in (np.exp(values) if is_log else values)]


def _draw_contour(panel: Axes, at_x: NDArray[np.generic], at_y: NDArray[np.generic], errors: Grid, colour: str) -> None:
    """Draw the line at an error of EDGE, if there is one, with a white border."""
    if np.nanmin(errors, initial=np.inf) < EDGE < np.nanmax(errors, initial=-np.inf):
        for width, shade in ((4.2, "white"), (2.2, colour)):
            panel.contour(
                at_x, at_y, np.log(errors), levels=[np.log(EDGE)], colors=[shade], linewidths=width, linestyles="-"
            )


EXPERIMENT = Experiment("figure5", "Figure 5", list_cells, make_section)
