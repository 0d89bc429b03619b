"""The demo: three short studies, computed when the page is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_sample_images
from sklearn.feature_extraction.image import extract_patches_2d

import elldict
from elldict.report.figures import MUTED, NEGATIVE, POSITIVE, draw_series, frame, label_values
from elldict.report.own import make_tiles
from elldict.report.page import embed_drawing, list_versions, render
from elldict.samples.base import Array
from elldict.summary import EXACT, describe_errors, format_error, read_errors, to_degrees

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Recovery:
    """A fit to simulated samples: mean errors of its components."""

    noise: float
    true: float
    estimated: float
    limit: float  # that theory expects of the l_p norm, or Cramer-Rao bound


@dataclass(frozen=True)
class Separation:
    """Mixed signals and what was found: angles in degrees between true and found columns of the mixing matrix."""

    mixed: Array
    found: Array
    names: Sequence[str]
    angles: Array
    estimated: Array
    seconds: float


def make_demo(
    show: Callable[[str], None] = lambda _: None,
    *,
    n_samples: int = 20_000,
    n_features: int = 50,
    noise: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4),
    n_patches: int = 30_000,
    n_components: int = 40,
) -> str:
    """Compute the studies and make the page; with these sizes it takes some seconds.

    `show` is called with what is computed next. The standard deviations in `noise` are relative to codes that are not
    zero; `n_patches` of each of two photographs are reduced to `n_components`.
    """
    began = time.perf_counter()
    show("recovering simulated components")
    setting = {"n_samples": n_samples, "n_features": n_features, "density": 0.3}
    pairs = [recover(noise_std=std, **setting) for std in noise]
    show("separating mixed signals")
    signals = separate()
    show("learning components of photographs")
    shape = (10, 10)
    model, seconds = learn_patches(shape, n_patches, n_components)
    return render(
        "demo.html.j2",
        pairs=pairs,
        setting=setting,
        recovery=embed_drawing(lambda axes: draw_recovery(axes, pairs), "Errors against noise", (4.8, 3.6)),
        signals=signals,
        mixed=embed_drawing(lambda axes: draw_signals(axes, signals.mixed), "Mixed signals", (4.2, 3.3)),
        found=embed_drawing(lambda axes: draw_signals(axes, signals.found), "Recovered signals", (4.2, 3.3)),
        model=model,
        tiles=list(make_tiles(model, "images", shape, None)),
        shape=shape,
        patch_seconds=seconds,
        patch_errors=describe_errors(model),
        seconds=time.perf_counter() - began,
        versions=list_versions(),
        format_error=format_error,
    )


def recover(**setting: Any) -> tuple[Recovery, Recovery]:
    """Fit simulated samples with the l_p norm alone, and with the likelihood."""
    X, dictionary, _ = elldict.datasets.make_bernoulli_gaussian(**setting, random_state=0)
    limits = elldict.theory.expected_error(3, **setting), elldict.theory.cramer_rao_bound(**setting)
    rows = []
    for refine, limit in zip((None, "auto"), limits, strict=True):
        model = elldict.LpDictionaryLearning(refine=refine).fit(X)
        true = elldict.metrics.recovery_error(model.components_, dictionary)
        rows.append(Recovery(setting["noise_std"], true, model.expected_error_, limit))
    return rows[0], rows[1]


def separate() -> Separation:
    """Mix six signals and recover them."""
    rng, t = np.random.default_rng(0), np.arange(5000)
    signals = {
        "sine": np.sin(0.11 * t),
        "sawtooth": t / 37 % 1,
        "square wave": np.sign(np.sin(0.047 * t)),
        "Laplace noise": rng.laplace(size=len(t)),
        "pulses": rng.standard_normal(len(t)) * (rng.random(len(t)) < 0.1),
        "uniform noise": rng.uniform(size=len(t)),
    }
    sources = np.stack([(signal - np.mean(signal)) / np.std(signal) for signal in signals.values()], axis=1)
    mixing = rng.standard_normal((len(signals), len(signals)))
    mixed = sources @ mixing.T
    began = time.perf_counter()
    model = elldict.LpICA().fit(mixed)
    seconds = time.perf_counter() - began
    match = elldict.metrics.match_atoms(model.mixing_.T, mixing.T)
    order = np.argsort(match.indices)
    return Separation(
        mixed=mixed,
        found=(model.transform(mixed) * match.signs)[:, order],
        names=list(signals),
        angles=np.degrees(np.arccos(match.cosines[order])),
        estimated=read_errors(model)[order],
        seconds=seconds,
    )


def learn_patches(shape: tuple[int, int], n_patches: int, n_components: int) -> tuple[Any, float]:
    """Learn components of patches of two photographs; return the model, and the seconds of the fit."""
    photos = [photo.mean(axis=2) for photo in load_sample_images().images]
    patches = [extract_patches_2d(photo, shape, max_patches=n_patches, random_state=0) for photo in photos]
    X = np.concatenate(patches).reshape(2 * n_patches, -1)
    X -= X.mean(axis=1, keepdims=True)
    began = time.perf_counter()
    model = elldict.LpICA(n_components).fit(X)
    return model, time.perf_counter() - began


def draw_signals(axes: Axes, columns: Array) -> None:
    """Draw the beginning of signals (r, k) below each other."""
    draw_series(axes, columns[:400], [""] * columns.shape[1], np.arange(400))


def draw_recovery(axes: Axes, pairs: Sequence[tuple[Recovery, Recovery]]) -> None:
    """Draw true errors as dots, estimated ones as rings, and theoretical limits as dashed lines, against noise."""
    noise = np.array([pair[0].noise for pair in pairs])
    errors = np.array([[(row.true, row.estimated, row.limit) for row in pair] for pair in pairs])
    angles, exact = to_degrees(errors), errors[..., 0] < EXACT
    lowest = np.min(angles[~exact, 0]) / 2
    angles[exact, :2] = 1.15 * lowest
    for i, (color, name) in enumerate(((NEGATIVE, "l₃ norm"), (POSITIVE, "likelihood"))):
        true, estimated, limit = angles[:, i].T
        axes.plot(noise[limit > 0], limit[limit > 0], "--", color=color, linewidth=1, alpha=0.8)
        axes.plot(noise, true, "o", color=color, markersize=6)
        axes.plot(noise, estimated, "o", color=color, markersize=13, fillstyle="none", markeredgewidth=1.3)
        axes.annotate(name, (noise[-1], true[-1]), (14, 0), textcoords="offset points", color=color, va="center")
        for x in noise[exact[:, i]]:
            axes.annotate("exact", (x, 1.15 * lowest), (12, 0), textcoords="offset points", color=MUTED)
    axes.set(yscale="log", xlabel="noise", ylabel="error", ylim=(lowest, None), xticks=noise)
    label_values(axes, "°")
    axes.set_yticks([], minor=True)
    frame(axes)
