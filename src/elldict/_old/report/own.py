"""A page about a fit to the user's own samples: what was learned, how sure it is, what it assumes, what to do next."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
from matplotlib.axes import Axes
from numpy.typing import NDArray

from elldict import __version__
from elldict._old.data.dataset import Dataset
from elldict._old.plot import MOST_IMAGES, MOST_PANELS, choose_kind, describe_end, find_names, read_laws
from elldict._old.report.advice import Step, advise
from elldict._old.report.assumptions import Check, check_assumptions
from elldict._old.report.atom_plots import PANEL_INCHES, choose_columns, describe_atoms, describe_colours, draw_bars
from elldict._old.report.fit_plots import draw_codes, draw_convergence, draw_errors
from elldict._old.report.page import make_environment
from elldict._old.report.pictures import Pixels, embed, make_inline_svg, paint, paint_atoms, scale_atoms
from elldict._old.report.sampling import choose_samples, open_source, take_codes
from elldict._old.report.style import Caption, Palette
from elldict._old.summary import (
    EXACT,
    WITHIN,
    describe_fit,
    find_changed,
    format_angle,
    format_error,
    mean_density,
    read_atoms,
    read_errors,
    to_degrees,
)

Matrix = NDArray[np.float64]

MOST_SAMPLES = 5000
"""Samples that are read of any source."""

MOST_PIXELS = 2_000_000
"""Pixels of all images of atoms: a page of a few megabytes."""

WIDE, NARROW = 8.4, 4.1
"""Inches of a drawing on a desk and on a phone: scaled down, letters of the wide one could not be read."""

MOST_ROWS = 10
"""Atoms whose codes are drawn."""

GRADES = (
    (EXACT, "exact", "use their numbers as they are"),
    (0.01, "within 4 degrees", "numbers can be used"),
    (WITHIN, "within 13 degrees", "pictures of them are right, small entries are not"),
    (0.3, "within 23 degrees", "a rough idea: check them by stability"),
    (1.0, "by more than that", "other samples would give other atoms: use them as a basis only"),
)
"""Errors up to which atoms are so far off, in words, and what they are good for; as in docs/how-sure.md."""


@dataclass(frozen=True)
class Drawing:
    """A drawing of a page for both widths of screens, and what is said below it."""

    wide: Any  # SVG text, or data URIs by theme
    narrow: Any
    caption: str
    is_picture: bool = False


def make_report(model: Any, X: Any, *, names: Sequence[str] | None = None, shape: tuple[int, ...] | None = None) -> str:
    """The page as HTML that loads nothing."""
    samples = open_source(model, X, "report")
    labels = find_names(model, names)
    kind, image = choose_kind("auto", shape, labels, model.n_features_in_)
    codes = take_codes(model, samples, choose_samples(samples.n_samples, MOST_SAMPLES))
    checks = check_assumptions(model, codes)
    return (
        make_environment()
        .get_template("own.html.j2")
        .render(
            model=model,
            name=type(model).__name__,
            samples=samples,
            source=_describe_source(samples, len(codes)),
            lead=describe_sureness(model, checks),
            tiles=_make_tiles(model),
            atoms=_draw_atoms(model, kind, image, labels),
            errors=_draw_errors(model),
            grades=count_grades(read_errors(model)),
            checks=checks,
            n_doubts=sum(check.doubted for check in checks),
            codes=_draw_codes(model, codes),
            convergence=_draw_convergence(model),
            steps=list(advise(model, checks)),
            facts=[(name, str(value)) for name, value in describe_fit(model)],
            parameters=find_changed(model),
            versions=f"elldict {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
            f"scikit-learn {sklearn.__version__}",
            version=__version__,
        )
    )


def describe_sureness(model: Any, checks: Sequence[Check]) -> list[str]:
    """The fit in two or three sentences."""
    errors = read_errors(model)
    m, n_sure = len(errors), int(np.sum(errors <= WITHIN))
    if model.expected_error_ < EXACT:
        lines = ["The fit states that all atoms are exact, to the rounding of the numbers."]
    else:
        how = (
            "two halves of the samples, fitted separately"
            if model._split_halves
            else "the codes; no halves were fitted"
        )
        off = f"Estimated mean error: {format_angle(model.expected_error_)}, from {how}."
        some = f"{n_sure} of {m} atoms have an estimated error within {to_degrees(WITHIN):.2g} degrees"
        lines = [off, f"{some}." if n_sure else f"{some}: do not interpret single atoms."]
    n_doubts = sum(check.doubted for check in checks)
    if n_doubts:
        lines.append(f"{n_doubts} of {len(checks)} assumptions are in doubt; each is named below, with what helps.")
    else:
        lines.append(f"None of the {len(checks)} assumptions that were looked at is in doubt.")
    return lines


def _make_tiles(model: Any) -> list[tuple[str, str]]:
    """Four figures, and what each is."""
    errors = read_errors(model)
    return [
        (format_error(model.expected_error_), "expected error of the atoms, from 0 (exact) to 100 % (unrelated)"),
        (
            f"{int(np.sum(errors <= WITHIN))} of {len(errors)}",
            f"atoms are known to within {to_degrees(WITHIN):.2g} degrees",
        ),
        (f"{100 * mean_density(model):.2g} %", "of the codes are not zero, by the law fitted to them"),
        (str(model.n_iter_), f"iterations; {'converged' if model.converged_ else 'not converged'}"),
    ]


def count_grades(errors: Matrix) -> list[tuple[str, str, int, str]]:
    """How many atoms are how far off, which, and what they are good for; grades without atoms are left out."""
    rows, lowest = [], -1.0
    for highest, words, use in GRADES:
        chosen = np.flatnonzero((errors > lowest) & (errors <= highest))
        rows.append((words, use, chosen))
        lowest = highest
    rows.append(("unknown", "samples do not vary there: leave them out", np.flatnonzero(~np.isfinite(errors))))
    return [(words, use, len(chosen), _list_ranges(chosen)) for words, use, chosen in rows if len(chosen)]


def _list_ranges(numbers: NDArray[np.intp], most: int = 8) -> str:
    """Numbers, consecutive ones as a range."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}\u2013{run[-1]}" for run in runs]
    return ", ".join(texts) if len(texts) <= most else ", ".join(texts[:most]) + ", ..."


def _describe_source(samples: Dataset, n_drawn: int) -> str:
    r, n = samples.n_samples, samples.n_features
    drawn = "all of them" if n_drawn == r else f"{n_drawn} of them, drawn at random"
    return f"{r} samples of {n} features; codes are those of {drawn}"


# --- drawings ---------------------------------------------------------------------------------------------------------


def _draw_both(draw: Callable[[Axes, bool], Caption], label: str, heights: Sequence[float]) -> Drawing:
    """A drawing on a desk and on a phone; `draw` is told whether it is the narrow one, and returns its caption."""
    captions: list[Caption] = []

    def make(width: float, height: float, *, small: bool) -> str:
        return make_inline_svg(lambda axes: captions.append(draw(axes, small)), (), label, (width, height))

    wide, narrow = make(WIDE, heights[0], small=False), make(NARROW, heights[1], small=True)
    return Drawing(wide, narrow, _join(captions[0]))


def _join(caption: Caption) -> str:
    title, note = caption
    return f"{title}: {note}."


def _draw_atoms(model: Any, kind: str, image: tuple[int, ...], labels: list[str] | None) -> Drawing:
    atoms, errors = read_atoms(model), read_errors(model)
    m = len(atoms)
    if kind == "bars":
        assert labels is not None
        numbers = np.arange(min(m, MOST_PANELS))
        columns = (min(4, len(numbers)), min(2, len(numbers)))
        heights = [PANEL_INCHES[1] * -(-len(numbers) // column) for column in columns]
        return _draw_both(
            lambda axes, small: draw_bars(axes, atoms[numbers], labels, numbers, errors, m, columns[small]),
            "The strongest features of each atom",
            heights,
        )
    if kind == "images":
        most = max(1, min(m, MOST_IMAGES, MOST_PIXELS // (image[0] * image[1])))
        shown = atoms[:most].reshape(-1, *image)
        wide, narrow = choose_columns(most, 2.0), choose_columns(most, 0.9)
        caption = _join((describe_atoms(most, m), describe_colours(in_colour=len(image) == 3)))
        return _make_picture(lambda palette, small: paint_atoms(shown, palette, narrow if small else wide), caption)
    note = f"a row an atom, a column a feature; {describe_colours(in_colour=False)}"
    caption = _join((describe_atoms(m, m), note))
    return _make_picture(lambda palette, small: _paint_map(atoms, palette, 0.7 if small else 0.3), caption)


def _make_picture(paint_sized: Callable[[Palette, bool], Pixels], caption: str) -> Drawing:
    """Pixels for a desk and for a phone; `paint_sized` is told whether it is the narrow one."""
    wide = embed(lambda palette: paint_sized(palette, False))
    narrow = embed(lambda palette: paint_sized(palette, True))
    return Drawing(wide, narrow, caption, is_picture=True)


def _paint_map(atoms: Matrix, palette: Palette, share: float) -> Pixels:
    """Atoms as rows of a picture at least so high, as a share of its width."""
    rows = paint((scale_atoms(atoms) + 1) / 2, palette.negative, palette.tile, palette.positive)
    times = max(1, round(share * atoms.shape[1] / len(atoms)))
    return rows.repeat(times, axis=0)


def _draw_errors(model: Any) -> Drawing:
    errors = read_errors(model)
    return _draw_both(
        lambda axes, _: draw_errors(axes, errors, model.expected_error_, WITHIN), "Error of each atom", (3.6, 3.6)
    )


def _draw_codes(model: Any, codes: Matrix) -> Drawing:
    laws, m = read_laws(model), model.n_components_
    numbers = np.arange(min(m, MOST_ROWS))
    height = 0.8 + 0.42 * len(numbers)
    return _draw_both(
        lambda axes, _: draw_codes(axes, codes[:, numbers], numbers, laws, m),
        "Densities of codes, and the laws fitted to them",
        (height, height),
    )


def _draw_convergence(model: Any) -> Drawing:
    def draw(axes: Axes, _: bool) -> Caption:
        draw_convergence(axes, model.history_, "step")
        return describe_end(model)

    return _draw_both(draw, "Step of each iteration", (3.4, 3.4))


__all__ = ["Check", "Step", "make_report"]
