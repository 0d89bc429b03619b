"""Drawing: how far off fits are, beside what they say of themselves and what is possible."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from elldict.pages.axes import per_cent_ticks, quiet_frame
from elldict.pages.error_bars import Claim, Trial
from elldict.pages.palette import Palette
from elldict.pages.recovery import EXACT

RING, DOT = 15, 8
BESIDE = 1.3
"""Where zero is drawn on a log axis: the left end, times this."""


def draw_dots(axes: Axes, trials: Sequence[Trial], palette: Palette) -> None:
    """A row for each noise: true errors as dots, stated ones as rings around them, what is out of reach as a bar."""
    lowest, highest = _ends(trials)
    for row, trial in enumerate(trials):
        axes.barh(row, max(100 * trial.limit - lowest, 0), left=lowest, height=0.6, color=palette.line, zorder=0)
        ends = [_place(claim.error, lowest) for claim in (trial.refined, trial.plain)]
        axes.plot(ends, [row, row], color=palette.muted, linewidth=1.2, zorder=1)
        _draw_claim(axes, trial.plain, row, lowest, palette.curves[0])
        _draw_claim(axes, trial.refined, row, lowest, palette.ink)
    _name_answers(axes, trials[0], lowest, palette)
    axes.set(xscale="log", xlim=(lowest, highest), ylim=(len(trials) - 0.5, -1.15), xlabel="error")
    axes.set_yticks(range(len(trials)), [_named(trial.noise_std) for trial in trials])
    per_cent_ticks(axes.xaxis, lowest, highest)
    quiet_frame(axes, palette, along="x")


def _draw_claim(axes: Axes, claim: Claim, row: int, lowest: float, colour: str) -> None:
    marker = "<" if claim.error < EXACT else "o"
    axes.plot(_place(claim.error, lowest), row, marker, color=colour, markersize=DOT, zorder=3)
    ring = _place(claim.error_bar, lowest)
    axes.plot(ring, row, "o", color=colour, markersize=RING, fillstyle="none", markeredgewidth=1.6, zorder=3)


def _name_answers(axes: Axes, trial: Trial, lowest: float, palette: Palette) -> None:
    """Name the two answers once, above the first row."""
    refined = "refined:\nexact" if trial.refined.error < EXACT else "refined"
    for claim, name, colour in ((trial.plain, "p = 3", palette.curves[0]), (trial.refined, refined, palette.ink)):
        axes.text(_place(claim.error, lowest), -0.42, name, color=colour, weight="bold", ha="center", va="bottom")


def _place(error: float, lowest: float) -> float:
    """Per cent on the axis; zero stands beside its left end."""
    return BESIDE * lowest if error < EXACT else 100 * error


def _ends(trials: Sequence[Trial]) -> tuple[float, float]:
    """Ends of the axis, in per cent: room for every error that is not zero, and to the left for those that are."""
    errors = [claim.error for trial in trials for claim in (trial.plain, trial.refined) if claim.error >= EXACT]
    return 100 * min(errors) / 3, 100 * max(errors) * 1.6


def _named(noise_std: float) -> str:
    return f"noise {noise_std:g}" if noise_std else "no noise"
