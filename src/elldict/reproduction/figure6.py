"""Figure 6: handwritten digits from five coefficients each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from elldict.pages.palette import Palette
from elldict.reproduction import drawing
from elldict.reproduction.cell import Cell, Scalar
from elldict.reproduction.experiment import Claim, Entry, Experiment, Picture, Section, Size, Table, Verdict
from elldict.reproduction.images import N_KEPT, unpacked
from elldict.reproduction.methods import make_cell
from elldict.reproduction.results import Results
from elldict.reproduction.words import duration, percent, thousands


@dataclass(frozen=True)
class Way:
    """One way to rebuild an image from five numbers."""

    name: str
    label: str
    method: str
    options: dict[str, Scalar]
    first: bool = False  # the same five atoms for every image, instead of the best five of each


WAYS = (
    Way("top-k", "ℓ₃, then fitted to its best five", "top-k", {"n_nonzero_coefs": N_KEPT}),
    Way("l3", "ℓ₃", "lp", {"p": 3}),
    Way("l4", "ℓ₄", "lp", {"p": 4}),
    Way("pca", "PCA, best five of each image", "pca", {"center": False}),
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
    shown: NDArray[np.uint8]  # (10, side, side)
    values: dict[str, Any]
    seconds: float


def section(results: Results, size: Size) -> Section:
    """The figure, the errors, and the claims."""
    done = list(_rebuilt(results, size))
    setting = dict(cell_of(WAYS[0], size).setting)
    return Section(
        f"Digits from {N_KEPT} numbers each",
        f"Images: {size.source.words}. Atoms are learned from {thousands(int(setting['n_train']))} of them; "
        f"{thousands(int(setting['n_test']))} others are rebuilt from the {N_KEPT} largest of their coefficients.",
        pictures=(
            Picture(
                "figure6",
                "The first test image of each digit, and what is left of it. The number is the squared error over all "
                "test images, as a share of their squared length.",
                "Rows of ten handwritten digits: originals and reconstructions",
                lambda palette, narrow: draw(done, palette, narrow),
            ),
        )
        if done
        else (),
        tables=(_table(done),),
        claims=tuple(_claims(done, size)),
        notes=() if size.source.name == "mnist" else ("The paper shows MNIST: give its file with --mnist FILE.npz.",),
    )


def _rebuilt(results: Results, size: Size) -> Iterator[Rebuilt]:
    for way in WAYS:
        cell = cell_of(way, size)
        values = results.values(cell)
        if values is not None:
            error = values["first_error" if way.first else "error"]
            shown = unpacked(values["first_shown" if way.first else "shown"], size.source.side)
            yield Rebuilt(way, error, shown, values, results.summary([cell]).seconds or 0.0)


def _table(done: Sequence[Rebuilt]) -> Table:
    rows = []
    for result in done:
        curve = result.values["errors"]
        rows.append(
            (
                Entry(result.way.label, order=result.way.name),
                Entry(percent(result.error), order=result.error),
                *(Entry("" if result.way.first else percent(curve[k - 1]), order=curve[k - 1]) for k in (1, 10)),
                Entry(duration(result.seconds), order=result.seconds),
            )
        )
    columns = ("Atoms", f"Lost with {N_KEPT}", "Lost with 1", "Lost with 10", "Time to learn")
    return Table("images", "Squared error on images that no fit has seen.", columns, tuple(rows))


def _claims(done: Sequence[Rebuilt], size: Size) -> Iterator[Claim]:
    errors = {result.way.name: result.error for result in done}
    text = "Images rebuilt by ℓ₃ are more recognisable than by ℓ₄, and those by ℓ₄ than by PCA."
    names = ("l3", "l4", "pca", "pca-centred")
    if not set(names) <= set(errors):
        yield Claim(text, "Not run.", Verdict.OPEN)
        return
    l3, l4, around_zero, around_mean = (errors[name] for name in names)
    found = (
        f"As squared error on {size.source.name}: ℓ₃ {percent(l3)}, ℓ₄ {percent(l4)}, PCA {percent(around_zero)} "
        f"around zero, as the others, and {percent(around_mean)} around the mean image."
    )
    yield Claim(text, found, Verdict.of((l3 < l4) + (l4 < min(around_zero, around_mean)), 2))
    if "top-k" in errors:
        text = "An orthogonal dictionary fitted to its five largest coefficients is below ℓ₃."
        found = f"{percent(errors['top-k'])} against {percent(l3)}."
        yield Claim(text, found, Verdict.HOLDS if errors["top-k"] < l3 else Verdict.FAILS, ours=True)


def draw(done: Sequence[Rebuilt], palette: Palette, narrow: bool) -> Figure:
    """Strips of digits with a name and a number each."""
    side = done[0].shown.shape[1]
    strips = [("Original", unpacked(done[0].values["originals"], side))]
    strips += [(f"{result.way.label}: {100 * result.error:.1f} % lost", result.shown) for result in done]
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
    pixels = np.asarray(palette.pencil(images / 255))
    parts = []
    for image in pixels:
        parts += [image, np.zeros((image.shape[0], gap, 4))]
    return np.concatenate(parts[:-1], axis=1)


EXPERIMENT = Experiment("figure6", "Figure 6", cells, section)
