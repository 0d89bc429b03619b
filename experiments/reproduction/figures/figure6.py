"""Figure 6: handwritten digits from five coefficients each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from elldict._old.report.style import Palette, interpolate
from experiments.reproduction.cells import Cell, Scalar, make_cell
from experiments.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, Verdict
from experiments.reproduction.images import N_KEPT, N_KNOWN, unpacked
from experiments.reproduction.report import drawing
from experiments.reproduction.report.words import bare, duration, percent, thousands
from experiments.reproduction.results import Results


@dataclass(frozen=True)
class Way:
    """One way to rebuild an image from five numbers."""

    name: str
    label: str
    method: str
    options: dict[str, Scalar]
    first: bool = False  # the same five atoms for every image, instead of the best five of each
    short: str = ""  # in the sentence that sums up


WAYS = (
    Way("top-k", "ℓ₃, then fitted to its best five", "top-k", {"n_nonzero_coefs": N_KEPT}),
    Way("default", "elldict", "default", {}, short="elldict"),
    Way("l3", "ℓ₃", "lp", {"p": 3}, short="ℓ₃"),
    Way("l4", "ℓ₄", "lp", {"p": 4}, short="ℓ₄"),
    Way("pca", "PCA, best five of each image", "pca", {"center": False}, short="PCA"),
    Way("pca-centred", "PCA around the mean image, best five", "pca", {"center": True}),
    Way("pca-first", "PCA, the first five", "pca", {"center": False}, first=True),
)


def cell_of(way: Way, size: Size) -> Cell:
    """The cell of a way."""
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
    options = dict(way.options)
    if way.method == "lp":
        options |= {"max_iter": 60, "tol": 1e-2} if few else {"max_iter": 500, "tol": 1e-3}
    if way.method == "top-k":
        options |= {"start_max_iter": 60, "tol": 1e-2} if few else {"start_max_iter": 500, "tol": 1e-3}
    return make_cell("images", way.method, setting, 0, options)


def cells(size: Size) -> list[Cell]:
    """Everything to run."""
    return list(dict.fromkeys(cell_of(way, size) for way in WAYS))


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """What a way gave."""

    way: Way
    error: float
    recognised: float  # share of images whose digit can still be told
    shown: NDArray[np.uint8]  # (10, side, side)
    values: dict[str, Any]
    seconds: float


def section(results: Results, size: Size) -> Section:
    """The figure, the errors, and the claims."""
    done = list(_rebuilt(results, size))
    setting = dict(cell_of(WAYS[0], size).setting)
    return Section(
        f"Digits from {N_KEPT} numbers each",
        _finding(done),
        f"Images: {size.source.words}. Atoms are learned from {thousands(int(setting['n_train']))} of them; "
        f"{thousands(int(setting['n_test']))} others are rebuilt from the {N_KEPT} largest of their coefficients. A "
        f"rebuilt image counts as recognised if the nearest of {thousands(int(setting['n_known']))} images that atoms "
        "were learned from shows the same digit.",
        pictures=(
            Picture(
                "figure6",
                "The first test image of each digit, and what is left of it. The numbers are of all test images: the "
                "squared error as a share of their squared length, and how many are recognised.",
                "Rows of ten handwritten digits: originals and reconstructions",
                lambda palette, narrow: draw(done, palette, narrow),
            ),
        )
        if done
        else (),
        tables=(_table(done),),
        claims=tuple(_claims(done, size)),
        notes=tuple(_notes(done, size)),
    )


def _notes(done: Sequence[Rebuilt], size: Size) -> Iterator[str]:
    if done and "default" not in {result.way.name for result in done}:
        yield "elldict as it comes has not been run on these images yet: the same command goes on with it."
    if size.source.name != "mnist":
        yield "The paper shows MNIST: give its file with --mnist FILE.npz."


def _rebuilt(results: Results, size: Size) -> Iterator[Rebuilt]:
    for way in WAYS:
        cell = cell_of(way, size)
        values = results.values(cell)
        if values is not None:
            prefix = "first_" if way.first else ""
            shown = unpacked(values[f"{prefix}shown"], size.source.side)
            error, recognised = values[f"{prefix}error"], values[f"{prefix}recognised"]
            yield Rebuilt(way, error, recognised, shown, values, results.summary([cell]).seconds or 0.0)


def _finding(done: Sequence[Rebuilt]) -> str:
    listed = ", ".join(f"{result.way.short} {percent(result.error)}" for result in done if result.way.short)
    return f"Squared error that is left with {N_KEPT} numbers an image: {listed}." if listed else "Not run yet."


def _table(done: Sequence[Rebuilt]) -> Table:
    rows = []
    for result in done:
        curve = result.values["errors"]
        rows.append(
            (
                Entry(result.way.label, order=result.way.name),
                Entry(bare(result.error), order=result.error),
                *(Entry("" if result.way.first else bare(curve[k - 1]), order=curve[k - 1]) for k in (1, 10)),
                Entry(bare(result.recognised), order=result.recognised),
                Entry(duration(result.seconds), order=result.seconds, lines=_stopped(result.values)),
            )
        )
    lost = (f"Lost with {k}" for k in (N_KEPT, 1, 10))
    columns = ("Atoms", *lost, f"Recognised with {N_KEPT}", "Time to learn")
    caption = "In per cent. Lost: squared error on images that no fit has seen, as a share of their squared length."
    if done:
        caption += f" Of the images themselves {percent(done[0].values['originals_recognised'])} are recognised."
    return Table("images", caption, columns, tuple(rows))


def _stopped(values: dict[str, Any]) -> tuple[str, ...]:
    return (f"stopped after {values['n_iter']} iterations",) if values["at_limit"] else ()


def _claims(done: Sequence[Rebuilt], size: Size) -> Iterator[Claim]:
    errors = {result.way.name: result.error for result in done}
    told = {result.way.name: result.recognised for result in done}
    text = "Images rebuilt by ℓ₃ are more recognisable than by ℓ₄, and those by ℓ₄ than by PCA."
    names = ("l3", "l4", "pca", "pca-centred")
    if not set(names) <= set(errors):
        yield Claim(text, "Not run.", Verdict.OPEN)
        return
    l3, l4, around_zero, around_mean = (errors[name] for name in names)
    found = (
        f"Squared error on {size.source.name}: ℓ₃ {percent(l3)}, ℓ₄ {percent(l4)}, PCA {percent(around_zero)} "
        f"around zero, as the others, and {percent(around_mean)} around the mean image. Recognised: "
        + ", ".join(percent(told[name]) for name in names)
        + "."
    )
    pca_told = max(told["pca"], told["pca-centred"])
    held = (l3 < l4, l4 < min(around_zero, around_mean), told["l3"] > told["l4"], told["l4"] > pca_told)
    yield Claim(text, found, Verdict.of(sum(held), len(held)))
    if "top-k" in errors:
        text = "An orthogonal dictionary fitted to its five largest coefficients is below ℓ₃."
        found = f"{percent(errors['top-k'])} against {percent(l3)}."
        yield Claim(text, found, Verdict.HOLDS if errors["top-k"] < l3 else Verdict.FAILS, ours=True)


def draw(done: Sequence[Rebuilt], palette: Palette, narrow: bool) -> Figure:
    """Strips of digits with a name and a number each."""
    side = done[0].shown.shape[1]
    strips = [("Original", unpacked(done[0].values["originals"], side))]
    strips += [(f"{r.way.label}: {percent(r.error)} lost, {percent(r.recognised)} recognised", r.shown) for r in done]
    width = drawing.NARROW_INCHES if narrow else drawing.WIDE_INCHES
    strip_height = width / 10.4 + 0.3
    figure = Figure(figsize=(width, strip_height * len(strips)), layout="constrained")
    for (label, images), axes in zip(strips, figure.subplots(len(strips), 1), strict=True):
        axes.imshow(_strip(images, palette), interpolation="nearest")
        axes.set_title(label, loc="left", size=10, color=palette.ink, pad=3)
        axes.axis("off")
    return figure


def _strip(images: NDArray[np.uint8], palette: Palette) -> NDArray[np.float64]:
    """Images side by side, as ink on tiles."""
    gap = max(1, images.shape[1] // 14)
    pixels = np.asarray(interpolate(palette.tile, palette.ink)(images / 255))
    parts = []
    for image in pixels:
        parts += [image, np.zeros((image.shape[0], gap, 4))]
    return np.concatenate(parts[:-1], axis=1)


EXPERIMENT = Experiment("figure6", "Figure 6", cells, section)
