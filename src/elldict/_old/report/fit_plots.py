"""Drawing a fit: errors of atoms, how it converged, and the codes of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.special import ndtr

from elldict._old.report.style import LIGHT, Caption, frame_axes
from elldict._old.result import Iteration
from elldict._old.solver.mixture import MixtureLaw, MixtureLikelihood
from elldict._old.summary import EXACT, format_error, to_degrees

Matrix = NDArray[np.float64]

# --- errors -----------------------------------------------------------------------------------------------------------


def draw_errors(axes: Axes, errors: Matrix, expected: float, threshold: float) -> Caption:
    """Error of each atom (m,) on a log axis, exact ones at its foot, those that are not known at its top."""
    numbers, percent = np.arange(len(errors)), 100 * errors
    known = np.isfinite(errors)
    exact = known & (errors < EXACT)
    usual = known & ~exact
    lowest = _choose_lowest(percent[usual], 100 * threshold)
    size = 6.5 if len(errors) <= 80 else 4.0
    axes.axhline(100 * threshold, color=LIGHT.curves[0], linewidth=1.2, linestyle=(0, (5, 4)), alpha=0.75, zorder=1)
    sure = usual & (errors <= threshold)
    for part, colour in ((sure, LIGHT.curves[0]), (usual & ~sure, LIGHT.plain)):
        axes.plot(numbers[part], percent[part], "o", color=colour, markersize=size, markeredgewidth=0, zorder=3)
    foot = np.full(len(errors), 1.25 * lowest)
    axes.plot(numbers[exact], foot[exact], "v", color=LIGHT.curves[0], markersize=size, zorder=3)
    axes.plot(numbers[~known], np.full(np.sum(~known), 100.0), "x", color=LIGHT.ink, markersize=size, zorder=3)
    axes.set(yscale="log", xlim=_widen(len(errors)), ylim=(lowest, 160), xlabel="atom, strongest first", ylabel="error")
    _label_errors(axes, lowest, any_exact=bool(np.any(exact)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    frame_axes(axes, "y")
    n_sure = int(np.sum(sure | exact))
    whole = f"{n_sure} of {len(errors)} atoms" if len(errors) > 1 else "The atom"
    verb = ("are" if len(errors) > 1 else "is") + ("" if n_sure or len(errors) > 1 else " not")
    words = f"{whole} {verb} known to within {to_degrees(threshold):.2g} degrees"
    note = "all are exact" if expected < EXACT else f"the mean error is {format_error(expected)}"
    note += f"; {np.sum(~known)} not known (x)" if not np.all(known) else ""
    return words, note


def _choose_lowest(percent: Matrix, threshold: float) -> float:
    """The foot of the axis: a power of ten below the errors, and at least one below the threshold."""
    smallest = min(float(np.min(percent, initial=threshold)), threshold) / 2
    return float(10.0 ** np.floor(np.log10(smallest)))


def _label_errors(axes: Axes, lowest: float, *, any_exact: bool) -> None:
    """Per cent on the left, the angle that it stands for on the right."""
    ticks = 10.0 ** np.arange(round(np.log10(lowest)), 3)
    ticks = ticks[:: max(1, len(ticks) // 6)]
    labels = [f"{tick:g} %" for tick in ticks]
    if any_exact:
        labels[0] = "exact"
    axes.set_yticks(ticks, labels)
    axes.set_yticks([], minor=True)
    beside = axes.get_yaxis_transform()
    shown = ticks[1:] if any_exact else ticks
    for tick in shown[shown <= 10]:  # beyond, errors of an angle are no longer twice its square
        text = f"{to_degrees(tick / 100):.2g}°"
        axes.text(1.012, tick, text, transform=beside, color=LIGHT.muted, va="center", size="small")


def _widen(n: int) -> tuple[float, float]:
    """Limits of an axis of n atoms."""
    return -0.5 - 0.01 * n, n - 0.5 + 0.01 * n


# --- convergence ------------------------------------------------------------------------------------------------------

QUANTITIES = {"step": "step of an iteration", "objective": "objective"}

LEAST_STEP = 1e-16
"""Steps below this are rounding."""


def draw_convergence(axes: Axes, history: Sequence[Iteration], quantity: str) -> None:
    """Steps or objectives of all iterations against passes; bands tell phases apart."""
    axes.set(xlabel="passes over the samples", ylabel=QUANTITIES[quantity])
    frame_axes(axes, "y")
    if not history:
        axes.text(0.5, 0.5, "no iterations", color=LIGHT.muted, transform=axes.transAxes, ha="center", va="center")
        return
    values = np.array([getattr(iteration, quantity) for iteration in history])
    passes = np.array([iteration.passes for iteration in history])
    parts = _split_phases(history)
    if quantity == "step":
        values = np.maximum(values, LEAST_STEP)
        _use_log_scale(axes, float(np.min(values)), float(np.max(values)))
    else:
        axes.set_ymargin(0.15)
    right = float(passes[-1])
    ends = [*(float(passes[part.start]) for part in parts[1:]), right * 1.02]
    begin = 0.0
    several = history[-1].start > 0
    for place, (part, end) in enumerate(zip(parts, ends, strict=True)):
        if place % 2 == 0:
            axes.axvspan(begin, end, color=LIGHT.tile, zorder=0, linewidth=0)
        colour = LIGHT.curves[0]
        axes.plot(passes[part], values[part], "-o", color=colour, markersize=4, linewidth=1.4, zorder=3)
        _label_phase(axes, history[part.start], (begin + end) / 2, (end - begin) / right, several=several)
        begin = end
    axes.set_xlim(0, right * 1.02)


def _use_log_scale(axes: Axes, lowest: float, highest: float) -> None:
    """Powers of ten, or numbers between them where there are less than two."""
    lowest, highest = lowest / 1.6, highest * 1.6 * (highest / lowest) ** 0.12  # with room for the names of phases
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    every = max(1, (last - first) // 6)
    steps = (1, 2, 5) if math.log10(highest / lowest) < 2.5 else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
    shown = [tick for tick in ticks if lowest <= tick <= highest]
    axes.set(yscale="log", ylim=(lowest, highest))
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.set_yticks([], minor=True)


def _split_phases(history: Sequence[Iteration]) -> list[slice]:
    """Parts of the history that belong to one phase of one start."""
    keys = [(iteration.start, iteration.stage) for iteration in history]
    begins = [k for k, key in enumerate(keys) if k == 0 or key != keys[k - 1]]
    return [slice(begin, end) for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True)]


def _label_phase(axes: Axes, first: Iteration, middle: float, width: float, *, several: bool) -> None:
    """Name a phase above its band, where there is room."""
    if several:
        text, room = (f"start {first.start}", 0.08) if first.stage == 0 else ("", 1.0)
    else:
        text, room = f"phase {first.stage}", 0.06
    if text and width >= room:
        upper = axes.get_xaxis_transform()
        axes.text(middle, 0.975, text, transform=upper, ha="center", va="top", color=LIGHT.muted, size="small")


# --- codes ------------------------------------------------------------------------------------------------------------

REACH, N_CODE_BINS = 6.0, 97
"""Standard deviations of a code that are drawn on either side, and bins: an odd number, so that one is around zero."""


MOST_ABOVE = 6.0
"""Times the density of all other codes to which that of codes around zero is cut off."""


class CodeLaws:
    """The law of the codes of each atom, as a fitted model holds it."""

    def __init__(self, density: Matrix, scale: Matrix, noise_std: float, mixture: MixtureLaw | None) -> None:
        self.density, self.scale, self.noise_std, self.mixture = density, scale, noise_std, mixture
        self._place = np.cumsum(density > 0) - 1  # of an atom among those that have a mixture

    def make_density(self, atom: int, edges: Matrix) -> Matrix | None:
        """Mean density of the codes of an atom between edges (b + 1,); None of an atom without codes."""
        if self.density[atom] == 0:
            return None
        widths = np.diff(edges)
        if self.mixture is None:
            share, noise = self.density[atom], max(self.noise_std, 1e-9 * self.scale[atom])
            active = np.hypot(self.scale[atom], noise)
            mass = (1 - share) * np.diff(ndtr(edges / noise)) + share * np.diff(ndtr(edges / active))
            return np.asarray(mass / widths)
        place = self._place[[atom]]
        law = MixtureLaw(self.mixture.weights[place], self.mixture.std[place])
        inner = edges[:-1, None] + widths[:, None] * (np.arange(16) + 0.5) / 16
        logs = MixtureLikelihood(law).log_density(inner.reshape(-1, 1), np)
        return np.asarray(np.exp(logs).reshape(inner.shape).mean(axis=1))


def draw_codes(axes: Axes, codes: Matrix, numbers: NDArray[np.intp], laws: CodeLaws, n_atoms: int) -> Caption:
    """Densities of codes (r, k) of some atoms, one below the other, and the laws that were fitted to them."""
    edges = np.linspace(-REACH, REACH, N_CODE_BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    for row, number in enumerate(numbers):
        std = float(np.std(codes[:, row])) or 1.0
        found = np.histogram(codes[:, row] / std, edges)[0] / (len(codes) * np.diff(edges))
        law = laws.make_density(int(number), edges * std)
        top = _choose_top(found)
        height = np.minimum(0.8 * np.sqrt(found) / top, 0.9)
        axes.fill_between(middles, row, row - height, color=LIGHT.curves[0], alpha=0.28, linewidth=0, step="mid")
        if law is not None:
            curve = row - np.minimum(0.8 * np.sqrt(law * std) / top, 0.9)
            axes.plot(middles, curve, color=LIGHT.ink, linewidth=1.1, drawstyle="steps-mid")
        text = f"{100 * laws.density[number]:.2g} % active" if law is not None else "no codes"
        beside = axes.get_yaxis_transform()
        axes.text(1.01, row - 0.3, text, transform=beside, va="center", size="small", color=LIGHT.muted)
    axes.set(xlim=(-REACH, REACH), ylim=(len(numbers) - 0.6, -1.1), xlabel="code, in standard deviations")
    axes.set_yticks(np.arange(len(numbers)) - 0.3, [f"atom {number}" for number in numbers])
    frame_axes(axes, "x")
    note = "filled: samples; line: the law that was fitted; heights are roots, spikes at zero are cut off"
    return _describe_codes("Codes", len(numbers), n_atoms), note


def _choose_top(density: Matrix) -> float:
    """Root of the density that fills a row: the largest, or less if all but the codes around zero would vanish."""
    middle = len(density) // 2
    others = np.delete(density, [middle - 1, middle, middle + 1])
    return math.sqrt(min(np.max(density), MOST_ABOVE * np.max(others)) or 1.0)


def draw_series(axes: Axes, codes: Matrix, numbers: NDArray[np.intp], first: int, n_atoms: int) -> Caption:
    """Codes (r, k) of consecutive samples, one atom below the other."""
    size = np.std(codes, axis=0)
    scaled = codes / np.where(size > 0, size, 1.0)
    reach = float(np.percentile(np.abs(scaled), 99.9)) or 1.0
    when = first + np.arange(len(codes))
    for row in range(len(numbers)):
        line = row - np.clip(0.8 * scaled[:, row] / reach, -0.95, 0.95)
        axes.plot(when, line, color=LIGHT.curves[0], linewidth=0.8)
    axes.set(xlim=(when[0], max(when[-1], when[0] + 1)), ylim=(len(numbers) - 0.2, -1.0), xlabel="sample")
    axes.set_yticks(np.arange(len(numbers)), [f"atom {number}" for number in numbers])
    frame_axes(axes, "x")
    note = "each in units of its standard deviation, cut off beyond its neighbours"
    return _describe_codes("Codes of consecutive samples", len(numbers), n_atoms), note


def _describe_codes(what: str, n_shown: int, n_atoms: int) -> str:
    return what if n_shown == n_atoms else f"{what}, {n_shown} of {n_atoms} atoms"
