"""The demo: its two sizes, all that it computes, the page about it and the picture for a README."""

from __future__ import annotations

import io
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import sklearn
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from elldict import __version__
from elldict._old.report.figures import draw_curves, draw_noise_trials, paint_digits, paint_matrix
from elldict._old.report.page import format_percent, format_thousands, make_environment
from elldict._old.report.pictures import embed, make_inline_svg, paint_atoms
from elldict._old.report.studies import (
    EXACT,
    N_KEPT,
    Digits,
    DigitsSetting,
    NoiseSetting,
    NoiseTrial,
    Reconstruction,
    Recovery,
    RecoverySetting,
    ShowShare,
    recover,
    study_digits,
    study_noise,
)
from elldict._old.report.style import LIGHT, Palette
from elldict.datasets import make_bernoulli_gaussian

EXPONENTS = (3.0, 4.0, 5.0)

ShowProgress = Callable[[str, float], None]
"""Called with what is being done, and the share of all that is done."""


@dataclass(frozen=True)
class Size:
    """How large the demo is."""

    recovery: RecoverySetting
    noise: NoiseSetting
    digits: DigitsSetting
    command: str


FULL = Size(
    RecoverySetting(n_features=100, n_samples=40_000, density=0.3, seed=0, start_seed=1),
    NoiseSetting(n_features=32, n_samples=10_000, density=0.3, noise_stds=(0.0, 0.2, 0.4, 0.6), n_draws=2, seed=0),
    DigitsSetting(n_train=1297, max_iter=2000, tol=1e-3, seed=0),
    command="elldict demo",
)
QUICK = Size(
    RecoverySetting(n_features=30, n_samples=6_000, density=0.3, seed=0, start_seed=1),
    NoiseSetting(n_features=30, n_samples=6_000, density=0.3, noise_stds=(0.0, 0.2, 0.4), n_draws=1, seed=0),
    DigitsSetting(n_train=1297, max_iter=100, tol=1e-2, seed=0),
    command="elldict demo --quick",
)


@dataclass(frozen=True)
class Machine:
    """Software and machine that made the numbers."""

    elldict: str = __version__
    python: str = platform.python_version()
    numpy: str = np.__version__
    sklearn: str = sklearn.__version__
    system: str = f"{platform.system()} {platform.machine()}"
    cores: int = os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class Demo:
    """Everything the page shows."""

    size: Size
    recoveries: tuple[Recovery, ...]  # by l_p alone, one for each exponent; the first, p = 3, is the headline
    refined: Recovery  # p = 3, and then maximum likelihood
    trials: tuple[NoiseTrial, ...]  # both estimates, one trial for each level of noise
    digits: Digits
    machine: Machine
    seconds: float


def compute_demo(size: Size, show: ShowProgress) -> Demo:
    """Run every fit of the demo."""
    began = time.perf_counter()

    def show_part(doing: str, number: int) -> ShowShare:
        """Show the share of one of six parts as a share of all."""
        return lambda share: show(doing, (number + share) / 6)

    show("drawing samples", 0.0)
    setting = size.recovery
    X, dictionary, _ = make_bernoulli_gaussian(
        setting.n_samples, setting.n_features, density=setting.density, dtype=np.float32, random_state=setting.seed
    )
    hidden = (setting, X, dictionary)
    recoveries = []
    for number, p in enumerate(EXPONENTS):
        recoveries.append(recover(*hidden, p, show_part(f"finding the hidden atoms, p = {p:g}", number)))
    refined = recover(*hidden, EXPONENTS[0], show_part("refining, p = 3", 3), refine="auto")
    trials = study_noise(size.noise, show_part("finding them under noise", 4))
    digits = study_digits(size.digits, show_part("learning from digits", 5))
    show("drawing", 1.0)
    return Demo(size, tuple(recoveries), refined, trials, digits, Machine(), time.perf_counter() - began)


def render_page(demo: Demo) -> str:
    """The demo as HTML that loads nothing."""
    environment = make_environment()
    environment.filters |= {
        "percent_or_exact": lambda share: "exact" if share < EXACT else format_percent(share),
        "tenth_above": round_up_to_tenth,
    }
    environment.tests["exact"] = lambda error: error < EXACT
    digits, best = demo.digits, demo.recoveries[0]
    curves_label = "Error against iteration for p = 3, 4 and 5, falling to what theory expects, and on after refinement"
    curves = (draw_curves, (demo.recoveries, demo.refined), curves_label)
    trials_label = "True errors, what the fits say of them, and the smallest possible, at several levels of noise"
    trials = (draw_noise_trials, (demo.trials,), trials_label)
    return environment.get_template("demo.html.j2").render(
        demo=demo,
        setting=demo.size.recovery,
        best=best,
        refined=demo.refined,
        digits=digits,
        machine=demo.machine,
        n_kept=N_KEPT,
        # inches, on a desk and on a phone: scaled down, the letters of the wide ones could not be read
        wide_curves=make_inline_svg(*curves, (8.4, 4.0)),
        narrow_curves=make_inline_svg(*curves, (4.1, 4.2)),
        wide_trials=make_inline_svg(*trials, (8.4, 3.3)),
        narrow_trials=make_inline_svg(*trials, (4.1, 3.6)),
        frames=_paint_frames(best),
        originals=_embed(paint_digits, digits.originals),
        rows=[(row, _embed(paint_digits, row.shown)) for row in digits.reconstructions],
        atoms=_embed(paint_atoms, digits.atoms),
        white_atoms=_embed(paint_atoms, digits.white_atoms),
        largest_error=max(row.error for row in digits.reconstructions),
        ours=_find_best(digits, learned=True),
        theirs=_find_best(digits, learned=False),
    )


def _paint_frames(recovery: Recovery) -> list[dict[str, Any]]:
    """Four iterations of a fit: the start, the first below two errors (the start, should there be none), the end."""
    first_below = [int((recovery.errors[:-1] < error).argmax()) for error in (0.75, 0.25)]
    return [
        {"iteration": k, "error": recovery.errors[k], "picture": _embed(paint_matrix, recovery.overlaps[k])}
        for k in (0, *first_below, len(recovery.overlaps) - 1)
    ]


def _find_best(digits: Digits, *, learned: bool) -> Reconstruction:
    """The best reconstruction, ours or PCA's."""
    return min((row for row in digits.reconstructions if row.learned == learned), key=lambda row: row.error)


def _embed(paint: Callable[[NDArray[Any], Palette], NDArray[np.uint8]], values: NDArray[Any]) -> dict[str, str]:
    """Data URIs of a picture, in light and in dark."""
    return embed(lambda palette: paint(values, palette))


def round_up_to_tenth(number: float) -> str:
    """The next tenth above: what is "within" it is within it."""
    return f"{math.ceil(10 * number) / 10:.1f}"


PICTURE_INCHES, PICTURE_DPI = (14.0, 8.7), 100
MARGIN_INCHES = 0.2
N_PICTURE_ATOMS = 50


def draw_picture(demo: Demo) -> bytes:
    """PNG on white: the hidden dictionary in the upper half, the digits in the lower."""
    with mpl.rc_context({"font.size": 12, "text.color": LIGHT.ink}):
        layout = ConstrainedLayoutEngine(w_pad=MARGIN_INCHES, h_pad=MARGIN_INCHES / 2, wspace=0, hspace=0)
        figure: Any = Figure(figsize=PICTURE_INCHES, layout=layout, facecolor=LIGHT.card)
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.0, 0.85))
        _draw_recovery(upper, demo)
        _draw_digits(lower, demo.digits)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=PICTURE_DPI, metadata={"Software": None})
    return stream.getvalue()


def _draw_recovery(part: Any, demo: Demo) -> None:
    setting = demo.size.recovery
    n_samples = format_thousands(setting.n_samples, space="\u2009")
    _set_headline(part, f"{setting.n_features} hidden atoms, found again in {n_samples} mixtures of them")
    left, middle, right = part.subfigures(1, 3, width_ratios=(1.7, 0.62, 1.25))
    draw_curves(left.subplots(), demo.recoveries, demo.refined)
    best = demo.recoveries[0]  # agreement of its atoms with the true ones, before and after
    titles = ("random start", f"after {best.n_iter} iterations")
    for axes, number, title in zip(middle.subplots(2, 1), (0, -1), titles, strict=True):
        axes.imshow(paint_matrix(best.overlaps[number], LIGHT), interpolation="nearest")
        axes.set_title(title, size=12, color=LIGHT.muted)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(LIGHT.line)
    trials = right.subplots()
    draw_noise_trials(trials, demo.trials)
    key = "dots: true errors; rings: what the fits\nsay of them; grey: out of reach"
    trials.set_title(key, size=12, color=LIGHT.muted, loc="left")


def _draw_digits(part: SubFigure, digits: Digits) -> None:
    _set_headline(part, "Handwritten digits, learned without labels")
    atoms, rows = part.subplots(1, 2, width_ratios=(0.83, 1.0))
    shown = digits.white_atoms[:N_PICTURE_ATOMS]
    atoms.imshow(paint_atoms(shown, LIGHT, n_columns=10), interpolation="nearest")
    atoms.set_title(f"the {len(shown)} strongest of {len(digits.white_atoms)} learned atoms", size=13, loc="left")
    atoms.axis("off")
    atoms.set_anchor("NW")
    _draw_reconstructions(rows, digits)


def _set_headline(part: SubFigure, text: str) -> None:
    part.suptitle(text, x=MARGIN_INCHES / PICTURE_INCHES[0], ha="left", size=21, weight="bold")


def _draw_reconstructions(axes: Axes, digits: Digits) -> None:
    """Unseen digits, and the same from a few numbers each, with what is lost."""
    usual, pca, _, l3, white = digits.reconstructions
    lines = [("original", digits.originals)]
    lines += [(f"{row.name}\n{100 * row.error:.1f} % lost", row.shown) for row in (white, l3, pca, usual)]
    height = 0.0
    for label, images in lines:
        strip = paint_digits(images, LIGHT)
        bottom = height + strip.shape[0]
        axes.imshow(strip, extent=(0, strip.shape[1], bottom, height), interpolation="nearest")
        axes.text(-14, (height + bottom) / 2, label, ha="right", va="center", linespacing=1.35)
        height = bottom + 12
    axes.set(xlim=(-150, strip.shape[1]), ylim=(height - 12, 0))
    axes.set_title(f"unseen digits from {N_KEPT} numbers each", size=13, loc="left")
    axes.axis("off")
    axes.set_anchor("N")
