"""Drawing atoms: as images, as bars of their strongest features, or all of them as one map."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from elldict._old.report.pictures import measure_tiles, paint_images, scale_atoms, tile
from elldict._old.report.style import LIGHT, Caption, frame_axes, interpolate
from elldict._old.summary import find_strongest, format_error

Matrix = NDArray[np.float64]

MOST_LABELLED = 60
"""Images up to which each has its number and error below."""

N_BARS = 8
"""Features that are drawn of an atom."""

PANEL_INCHES = (2.3, 1.95)
"""Room for the bars of an atom, with the names of its features."""

LABEL_PIXELS = 15
"""Room below an image for a number and an error."""

MOST_NAMED_COLUMNS = 40
"""Features of a map whose names can be read."""

LEAST_LETTERS, LETTER_INCHES = 8, 0.066
"""Letters of a name that are always shown, and the mean width of one."""

MOST_TICK_LETTERS = 15
"""Letters of a name below a map."""


def choose_columns(n: int, ratio: float) -> int:
    """Columns of a grid of n cells, about `ratio` times as wide as high, with few empty cells in its last row."""
    ideal = math.sqrt(n * ratio)
    candidates = range(max(1, round(0.75 * ideal)), min(n, max(1, round(1.3 * ideal))) + 1)
    return min(candidates, key=lambda c: (-n % c / n + abs(math.log(c / ideal)) / 3, c))


def measure_width(axes: Axes) -> float:
    """Width of axes in inches."""
    outer = axes.figure.bbox
    return float(axes.get_position().width * outer.width / axes.figure.dpi)


def measure_ratio(axes: Axes) -> float:
    """Width of axes in units of their height."""
    box = axes.get_position()
    outer = axes.figure.bbox
    return float(box.width * outer.width / (box.height * outer.height))


def draw_images(
    axes: Axes, atoms: Matrix, numbers: NDArray[np.intp], errors: Matrix, n_atoms: int, n_columns: int
) -> Caption:
    """Atoms (k, h, w) or (k, h, w, 3) as tiles; few enough of them have their number and error below."""
    below = LABEL_PIXELS if len(atoms) <= MOST_LABELLED else 0
    axes.imshow(tile(paint_images(atoms, LIGHT), n_columns, below), interpolation="nearest")
    if below:
        scale, gap = measure_tiles(atoms.shape[1:3])
        height, width = (scale * size + gap for size in atoms.shape[1:3])
        for place, number in enumerate(numbers):
            x = place % n_columns * width + (width - gap) / 2
            y = place // n_columns * (height + below) + height - gap + below / 2
            label = f"{number}: {format_error(errors[number])}"
            axes.text(x, y, label, ha="center", va="center", size="x-small", color=LIGHT.muted)
    axes.axis("off")
    axes.set_anchor("NW")
    return describe_atoms(len(atoms), n_atoms), describe_colours(in_colour=atoms.ndim == 4)


def describe_colours(*, in_colour: bool) -> str:
    """How to read an image of an atom."""
    coloured = "colours are those of the atom around grey" if in_colour else "blue is positive, orange negative"
    return f"{coloured}; each scaled to its largest entry"


def draw_bars(
    axes: Axes,
    atoms: Matrix,
    names: Sequence[str],
    numbers: NDArray[np.intp],
    errors: Matrix,
    n_atoms: int,
    n_columns: int,
) -> Caption:
    """The strongest features of each atom (k, n), in a panel of its own within the axes."""
    n_rows = -(-len(atoms) // n_columns)
    letters = max(LEAST_LETTERS, int(0.5 * measure_width(axes) / n_columns / LETTER_INCHES))
    for place, (atom, number) in enumerate(zip(atoms, numbers, strict=True)):
        left, row = place % n_columns / n_columns, place // n_columns
        bottom, height = 1 - (row + 1) / n_rows, 1 / n_rows
        bounds = (left, bottom, 0.92 / n_columns if n_columns > 1 else 1.0, 0.84 * height)
        panel = axes.inset_axes(bounds)
        _draw_panel(panel, atom, names, letters)
        text = f"atom {number}: {format_error(errors[number])}"
        panel.set_title(text, loc="left", size="medium", color=LIGHT.ink, weight="bold", pad=3)
    axes.axis("off")
    most = f"the {N_BARS} strongest features of each" if atoms.shape[1] > N_BARS else "their features"
    return describe_atoms(len(atoms), n_atoms), f"{most}, and the error of the atom"


def _draw_panel(panel: Axes, atom: Matrix, names: Sequence[str], letters: int) -> None:
    """Bars from the strongest feature downwards; names stand on the other side of zero."""
    chosen = find_strongest(atom, N_BARS)
    values = atom[chosen]
    places = range(len(chosen))
    panel.barh(places, values, height=0.72, color=[LIGHT.positive if v > 0 else LIGHT.negative for v in values])
    largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
    for place, feature, value in zip(places, chosen, values, strict=True):
        side = -math.copysign(0.05 * largest, value)
        align = "right" if value > 0 else "left"
        name = shorten(names[feature], letters)
        panel.text(side, place, name, ha=align, va="center", size="small", color=LIGHT.ink, parse_math=False)
    panel.axvline(0, color=LIGHT.line, linewidth=1)
    # names of positive bars need the left side, which negative bars need too
    panel.set(xlim=(-1.1 * largest, 1.1 * largest), ylim=(N_BARS - 0.4, -0.6), xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    panel.patch.set_visible(False)


def shorten(name: object, most: int) -> str:
    """A name of at most so many letters, on one line."""
    text = " ".join(str(name).split())
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def draw_map(
    axes: Axes, atoms: Matrix, names: Sequence[str] | None, numbers: NDArray[np.intp], n_atoms: int
) -> Caption:
    """Atoms (k, n) as rows of one picture, each scaled to its largest entry."""
    colours = interpolate(LIGHT.negative, LIGHT.tile, LIGHT.positive)
    axes.imshow(scale_atoms(atoms), cmap=colours, vmin=-1, vmax=1, aspect="auto", interpolation="antialiased")
    if len(numbers) <= 12 or not np.array_equal(numbers, np.arange(len(numbers))):
        shown = np.unique(np.linspace(0, len(numbers) - 1, 12).astype(int))
        axes.set_yticks(shown, [str(numbers[place]) for place in shown])
    axes.set(xlabel="feature", ylabel="atom")
    if names is not None and atoms.shape[1] <= MOST_NAMED_COLUMNS:
        axes.set_xticks(
            range(atoms.shape[1]), [shorten(name, MOST_TICK_LETTERS) for name in names], rotation=90, parse_math=False
        )
        axes.set_xlabel("")
    frame_axes(axes, "both")
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    return describe_atoms(len(atoms), n_atoms), describe_colours(in_colour=False)


def describe_atoms(n_shown: int, n_atoms: int) -> str:
    """How many atoms are shown."""
    count = "1 atom" if n_atoms == 1 else f"{n_atoms} atoms"
    title = f"{count}, strongest first" if n_shown == n_atoms > 1 else f"{n_shown} of {count}"
    return count if n_atoms == 1 else title
