"""The page: results and drawings in, one self-contained HTML text out."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import jinja2
from matplotlib.axes import Axes
from numpy.typing import NDArray

from elldict.pages import figures
from elldict.pages.demo import Demo
from elldict.pages.digits import N_KEPT, Way
from elldict.pages.dots import draw_dots
from elldict.pages.palette import DARK, LIGHT, Palette
from elldict.pages.recovery import EXACT, Recovery

WIDE, NARROW = (8.4, 4.0), (4.1, 4.2)
LOW, LOW_NARROW = (8.4, 3.3), (4.1, 3.6)
"""Inches of curves and dots, on a desk and on a phone: scaled down, the letters of the wide ones could not be read."""

Themed = dict[str, str]
"""Data URIs of a picture, in light and in dark."""


def render_page(demo: Demo) -> str:
    """The demo as HTML that loads nothing."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("elldict.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "percent_or_exact": percent_or_exact,
        "thousands": thousands,
        "tenth_above": tenth_above,
        "fixed": lambda number, digits: f"{number:.{digits}f}",
    }
    environment.tests["exact"] = lambda error: error < EXACT
    return environment.get_template("demo.html.j2").render(_contents(demo))


def _contents(demo: Demo) -> dict[str, Any]:
    digits = demo.digits
    return {
        "demo": demo,
        "setting": demo.setting,
        "best": demo.best,
        "refined": demo.refined,
        "digits": digits,
        "machine": demo.machine,
        "n_kept": N_KEPT,
        "light": LIGHT.variables,
        "dark": DARK.variables,
        **_drawings(demo),
        "frames": _frames(demo.best),
        "originals": _digits_picture(digits.originals),
        "rows": [(way, _digits_picture(way.shown)) for way in digits.ways],
        "atoms": _atoms_picture(digits.atoms),
        "white_atoms": _atoms_picture(digits.white_atoms),
        "largest_error": max(way.error for way in digits.ways),
        "ours": _best_of(demo, learned=True),
        "theirs": _best_of(demo, learned=False),
    }


def _drawings(demo: Demo) -> dict[str, str]:
    """Curves and dots, each for a desk and for a phone."""

    def curves(axes: Axes, palette: Palette) -> None:
        figures.draw_curves(axes, demo.recoveries, demo.refined, palette)

    def dots(axes: Axes, palette: Palette) -> None:
        draw_dots(axes, demo.trials, palette)

    curves_label = "Error against iteration for p = 3, 4 and 5, falling to what theory expects, and on after refinement"
    dots_label = "True errors, what the fits say of them, and the smallest possible, at several levels of noise"
    return {
        "wide_curves": figures.inline_svg(curves, WIDE, curves_label),
        "narrow_curves": figures.inline_svg(curves, NARROW, curves_label),
        "wide_dots": figures.inline_svg(dots, LOW, dots_label),
        "narrow_dots": figures.inline_svg(dots, LOW_NARROW, dots_label),
    }


def _frames(recovery: Recovery) -> list[dict[str, Any]]:
    """Four moments of a fit: the start, two on the way, the end."""
    numbers = [0, *(_first_below(recovery, error) for error in (0.75, 0.25)), len(recovery.overlaps) - 1]
    return [
        {
            "iteration": number,
            "error": recovery.errors[number],
            "picture": _matrix_picture(recovery.overlaps[number]),
        }
        for number in numbers
    ]


def _first_below(recovery: Recovery, error: float) -> int:
    """First iteration with less than this error; the start, should there be none."""
    return int((recovery.errors[:-1] < error).argmax())


def _best_of(demo: Demo, *, learned: bool) -> Way:
    """The best way to rebuild digits, ours or PCA's."""
    return min((way for way in demo.digits.ways if way.learned == learned), key=lambda way: way.error)


def _matrix_picture(matrix: NDArray[Any]) -> Themed:
    return _themed(lambda palette: figures.matrix_png(matrix, palette))


def _atoms_picture(atoms: NDArray[Any]) -> Themed:
    return _themed(lambda palette: figures.atoms_png(atoms, 8, palette))


def _digits_picture(images: NDArray[Any]) -> Themed:
    return _themed(lambda palette: figures.digits_png(images, palette))


def _themed(draw: Callable[[Palette], bytes]) -> Themed:
    return {name: _data_uri(draw(palette)) for name, palette in (("light", LIGHT), ("dark", DARK))}


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def percent(share: float, digits: int = 3) -> str:
    """A share in per cent; a narrow space keeps number and sign together."""
    return f"{100 * share:.{digits}f}\u202f%"


def percent_or_exact(share: float, digits: int = 3) -> str:
    """A share in per cent, in words where it is nothing but rounding."""
    return "exact" if share < EXACT else percent(share, digits)


def thousands(number: int) -> str:
    """A number with its thousands set apart."""
    return f"{number:,}".replace(",", "\u202f")


def tenth_above(number: float) -> str:
    """The next tenth above: what is "within" it is within it."""
    return f"{math.ceil(10 * number) / 10:.1f}"
