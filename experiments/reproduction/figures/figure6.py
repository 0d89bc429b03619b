"""Figure 6: handwritten digits from five coefficients each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.harness.axes import INK, TILE
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, judge
from experiments.reproduction.images import N_KEPT, N_KNOWN, unpack
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import bare, duration, percent, thousands
from experiments.reproduction.results import Results


@dataclass(frozen=True)
class Way:
    """One way to reconstruct an image from five coefficients."""

    label: str
    method: str
    options: dict[str, Scalar]
    first: bool = False  # the same five atoms for every image, instead of the best five of each


WAYS = {
    "top-k": Way("ℓ₃, then fitted to its best five", "top-k", {"n_nonzero_coefs": N_KEPT}),
    "default": Way("elldict", "default", {}),
    "l3": Way("ℓ₃", "lp", {"p": 3}),
    "l4": Way("ℓ₄", "lp", {"p": 4}),
    "pca": Way("PCA, best five of each image", "pca", {"center": False}),
    "pca-centred": Way("PCA around the mean image, best five", "pca", {"center": True}),
    "pca-first": Way("PCA, the first five", "pca", {"center": False}, first=True),
}
SUMMARISED = ("default", "l3", "l4", "pca")


def make_image_cell(way: Way, size: Size) -> Cell:
    """Make the cell of a way."""
    source = size.source
    few = source.name == "mnist" and not size.full
    n_train = 4000 if few else source.n_train
    setting: dict[str, Scalar] = {
        "source": source.name,
        "fingerprint": source.fingerprint,
        "n_train": n_train,
        "n_test": 1000 if few else source.n_test,
        "n_known": min(n_train, N_KNOWN),
    }
    max_iter, tol = (60, 1e-2) if few else (500, 1e-3)
    limits = {"lp": {"max_iter": max_iter, "tol": tol}, "top-k": {"start_max_iter": max_iter, "tol": tol}}
    return make_cell("images", way.method, setting, 0, way.options | limits.get(way.method, {}))


def list_cells(size: Size) -> list[Cell]:
    """List all cells."""
    return list(dict.fromkeys(make_image_cell(way, size) for way in WAYS.values()))


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Results of a way."""

    way: Way
    error: float
    recognised: float  # fraction of images whose digit is recognised
    shown: NDArray[np.uint8]  # (10, side, side)
    values: dict[str, Any]
    seconds: float


def read(results: Results, size: Size) -> dict[str, Rebuilt]:
    """Read the results of all ways."""
    done = {}
    for name, way in WAYS.items():
        cell = make_image_cell(way, size)
        values = results.values(cell)
        if values is not None:
            prefix = "first_" if way.first else ""
            shown = unpack(values[f"{prefix}shown"], size.source.side)
            error, recognised = values[f"{prefix}error"], values[f"{prefix}recognised"]
            done[name] = Rebuilt(way, error, recognised, shown, values, results.summary([cell]).seconds)
    return done


def make_section(results: Results, size: Size) -> Section:
    """Make the section of the report."""
    done, setting = read(results, size), dict(make_image_cell(WAYS["l3"], size).setting)
    listed = ", ".join(f"{WAYS[name].label} {percent(done[name].error)}" for name in SUMMARISED if name in done)
    picture = Picture(
        "The first test image of each digit, and its reconstructions. The numbers are those of all test images: "
        "squared error as a fraction of their squared norm, and the fraction recognised.",
        "Rows of ten handwritten digits: originals and reconstructions",
        lambda: draw(list(done.values())),
    )
    return Section(
        f"Digits from {N_KEPT} coefficients each",
        f"Squared error with {N_KEPT} coefficients per image: {listed or 'not run yet'}.",
        f"Images: {size.source.words}. Atoms are learned from {thousands(int(setting['n_train']))} of them; "
        f"{thousands(int(setting['n_test']))} others are reconstructed from their {N_KEPT} largest coefficients. "
        "A reconstruction is recognised if its nearest neighbour among "
        f"{thousands(int(setting['n_known']))} training images shows the same digit.",
        claims=list(_judge(done, size)),
        picture=picture if done else None,
        table=_make_table(list(done.values())),
        notes=() if size.source.name == "mnist" else ("The paper shows MNIST: pass its file with --mnist FILE.npz.",),
    )


def _make_table(done: Sequence[Rebuilt]) -> Table:
    rows = []
    for result in done:
        curve, values = result.values["errors"], result.values
        stopped = (f"stopped after {values['n_iter']} iterations",) if values["at_limit"] else ()
        others = [Entry("" if result.way.first else bare(curve[k - 1])) for k in (1, 10)]
        numbers = Entry(bare(result.error)), *others, Entry(bare(result.recognised))
        rows.append((Entry(result.way.label), *numbers, Entry(duration(result.seconds), stopped)))
    errors = (f"Error with {k}" for k in (N_KEPT, 1, 10))
    columns = ("Atoms", *errors, f"Recognised with {N_KEPT}", "Time of the fit")
    caption = "In per cent. Error: squared error of test images, as a fraction of their squared norm."
    if done:
        caption += f" Of the original images {percent(done[0].values['originals_recognised'])} are recognised."
    return Table(caption, columns, tuple(rows))


def _judge(done: dict[str, Rebuilt], size: Size) -> Iterator[Claim]:
    text = "Images reconstructed with ℓ₃ are more recognisable than with ℓ₄, and those with ℓ₄ than with PCA."
    names = ("l3", "l4", "pca", "pca-centred")
    if not set(names) <= set(done):
        yield judge(text, [], "")
        return
    l3, l4, pca, centred = (done[name] for name in names)
    found = f"Squared error on {size.source.name}, and fraction recognised: " + "; ".join(
        f"{one.way.label} {percent(one.error)}, {percent(one.recognised)}" for one in (l3, l4, pca, centred)
    )
    errors = [l3.error < l4.error, l4.error < min(pca.error, centred.error)]
    recognised = [l3.recognised > l4.recognised, l4.recognised > max(pca.recognised, centred.recognised)]
    yield judge(text, [*errors, *recognised], f"{found}.")
    if "top-k" in done:
        text = "An orthogonal dictionary fitted to its five largest coefficients has a smaller error than ℓ₃."
        best = done["top-k"].error
        yield judge(text, [best < l3.error], f"{percent(best)} and {percent(l3.error)}.", ours=True)


def draw(done: Sequence[Rebuilt]) -> Figure:
    """Draw one strip of digits per way, with its numbers."""
    side = done[0].shown.shape[1]
    strips = {"Original": unpack(done[0].values["originals"], side)}
    for result in done:
        title = f"{result.way.label}: error {percent(result.error)}, {percent(result.recognised)} recognised"
        strips[title] = result.shown
    height = drawing.WIDTH / 10.4 + 0.3
    figure = Figure(figsize=(drawing.WIDTH, height * len(strips)), layout="constrained")
    colours = LinearSegmentedColormap.from_list("ink", [TILE, INK])
    for (title, images), axes in zip(strips.items(), figure.subplots(len(strips), 1), strict=True):
        gap = np.full((len(images), side, max(1, side // 14)), np.nan)
        strip = np.concatenate([images / 255, gap], axis=2)
        axes.imshow(np.concatenate(list(strip), axis=1), cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, loc="left", size=10, color=INK, pad=3)
        axes.axis("off")
    return figure


EXPERIMENT = Experiment("figure6", "Figure 6", list_cells, make_section)
