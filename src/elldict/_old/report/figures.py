"""Drawing the demo: results in, axes or pixels out. Nothing is computed here and nothing global is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from elldict._old.report.pictures import paint, tile
from elldict._old.report.studies import EXACT, ErrorAndBar, NoiseTrial, Recovery
from elldict._old.report.style import LIGHT, Palette, style_axes


def draw_curves(axes: Axes, recoveries: Sequence[Recovery], refined: Recovery) -> None:
    """Error against iteration on a log axis, the error that theory expects as dashed lines, and the refinement."""
    longest = max(row.n_iter for row in (*recoveries, refined))
    smallest = 100 * min(min(row.error, row.expected_error) for row in recoveries)
    lowest = smallest / 12
    _draw_refinement(axes, recoveries[0], refined, lowest)
    for row, colour in zip(recoveries, LIGHT.curves, strict=True):
        axes.axhline(100 * row.expected_error, color=colour, linewidth=1.2, linestyle=(0, (5, 4)), alpha=0.75)
        axes.plot(100 * row.errors, color=colour, linewidth=2.6, solid_capstyle="round")
        axes.plot(row.n_iter, 100 * row.error, "o", color=colour, markersize=6)
        _label_curve(axes, f"p = {row.p:g}", 100 * row.error, colour, "center")
    axes.set(yscale="log", xlim=(0, longest + 1), ylim=(lowest, 160), xlabel="iteration", ylabel="error")
    axes.text(0.5, smallest / 1.7, "dashed: what theory expects", color=LIGHT.muted, va="center")
    style_axes(axes, "y", lowest, 160)


def _draw_refinement(axes: Axes, plain: Recovery, refined: Recovery, lowest: float) -> None:
    """Go on from where p = 3 ended, to the lower edge of the axes or to the end above it."""
    errors = 100 * refined.errors[plain.n_iter :]
    low = errors <= lowest
    n_shown = int(np.argmax(low)) + 1 if low.any() else len(errors)
    shown = np.maximum(errors[:n_shown], lowest)
    iterations = plain.n_iter + np.arange(n_shown)
    axes.plot(iterations, shown, color=LIGHT.ink, linewidth=2.6, solid_capstyle="round")
    axes.plot(iterations[-1], shown[-1], "v" if low.any() else "o", color=LIGHT.ink, markersize=8, clip_on=False)
    _label_curve(axes, _name_refined(refined), shown[-1], LIGHT.ink, "bottom" if low.any() else "center")


def _label_curve(axes: Axes, text: str, y: float, colour: str, align: str) -> None:
    """Name a curve to the right of its end."""
    beside = ("axes fraction", "data")
    axes.annotate(text, xy=(1.02, y), xycoords=beside, color=colour, weight="bold", verticalalignment=align)


def _name_refined(refined: Recovery | ErrorAndBar) -> str:
    return "refined:\nexact" if refined.error < EXACT else "refined"


def draw_noise_trials(axes: Axes, trials: Sequence[NoiseTrial]) -> None:
    """A row for each noise: true errors as dots, stated ones as rings around them, what is out of reach as a bar."""
    errors = [fit.error for trial in trials for fit in (trial.plain, trial.refined) if fit.error >= EXACT]
    lowest, highest = 100 * min(errors) / 3, 100 * max(errors) * 1.6  # in per cent

    def place(error: float) -> float:
        """Position on the axis; zero stands beside its left end."""
        return 1.3 * lowest if error < EXACT else 100 * error

    for row, trial in enumerate(trials):
        axes.barh(row, max(100 * trial.limit - lowest, 0), left=lowest, height=0.6, color=LIGHT.line, zorder=0)
        ends = [place(fit.error) for fit in (trial.refined, trial.plain)]
        axes.plot(ends, [row, row], color=LIGHT.muted, linewidth=1.2, zorder=1)
        refined = (trial.refined, _name_refined(trial.refined), LIGHT.ink)
        for fit, name, colour in ((trial.plain, "p = 3", LIGHT.curves[0]), refined):
            axes.plot(place(fit.error), row, "<" if fit.error < EXACT else "o", color=colour, markersize=8, zorder=3)
            ring: dict[str, Any] = {"markersize": 15, "fillstyle": "none", "markeredgewidth": 1.6}
            axes.plot(place(fit.error_bar), row, "o", color=colour, zorder=3, **ring)
            if row == 0:
                axes.text(place(fit.error), -0.42, name, color=colour, weight="bold", ha="center", va="bottom")
    axes.set(xscale="log", xlim=(lowest, highest), ylim=(len(trials) - 0.5, -1.15), xlabel="error")
    names = [f"noise {trial.noise_std:g}" if trial.noise_std else "no noise" for trial in trials]
    axes.set_yticks(range(len(trials)), names)
    style_axes(axes, "x", lowest, highest)


def paint_matrix(matrix: NDArray[Any], palette: Palette) -> NDArray[np.uint8]:
    """Entries between 0 and 1 as a square of colour each."""
    return paint(matrix, palette.card, palette.curves[0])


def paint_digits(images: NDArray[Any], palette: Palette) -> NDArray[np.uint8]:
    """Images side by side, on the scale of the originals (0 to 16)."""
    return tile(paint(images / 16, palette.tile, palette.ink), len(images))
