"""The report: sections in, one self-contained page out."""

from __future__ import annotations

import base64
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from elldict import __version__
from elldict.atomic import write_atomically
from elldict.report.style import DARK, LIGHT, Palette
from experiments.reproduction.cells import METHODS
from experiments.reproduction.experiment import Claim, Experiment, Picture, Section, Size, Verdict
from experiments.reproduction.paper import MISPRINTS
from experiments.reproduction.report import drawing, words
from experiments.reproduction.results import Results

PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "dictlearn",
    "numba",
    "pymanopt",
    "python-picard",
    "numexpr",
    "matplotlib",
)


@dataclass(frozen=True)
class Made:
    """How the report came about."""

    command: str
    n_cells: int
    n_done: int
    n_failed: int
    n_not_run: int
    seconds_needed: float


def render(experiments: Sequence[Experiment], results: Results, size: Size, made: Made) -> str:
    """The page as HTML that loads nothing."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments.reproduction.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": words.duration, "thousands": words.thousands}
    sections = [(experiment, experiment.section(results, size)) for experiment in experiments]
    return environment.get_template("report.html.j2").render(_contents(sections, results, size, made))


def write_pictures(experiments: Sequence[Experiment], results: Results, size: Size, folder: Path) -> None:
    """Each figure as a file of its own, on white, for slides."""
    folder.mkdir(exist_ok=True)
    for experiment in experiments:
        for picture in experiment.section(results, size).pictures:
            with drawing.page_style(LIGHT):
                content = drawing.png(picture.draw(LIGHT, False), LIGHT.card)
            write_atomically(folder / f"{picture.name}.png", lambda stream, content=content: stream.write(content))  # type: ignore[misc]


def _contents(
    sections: Sequence[tuple[Experiment, Section]], results: Results, size: Size, made: Made
) -> dict[str, Any]:
    claims = [(experiment, claim) for experiment, section in sections for claim in section.claims]
    return {
        "sections": sections,
        "pictures": {picture.name: _variants(picture) for _, section in sections for picture in section.pictures},
        "claims": claims,
        "verdicts": {verdict: sum(claim.verdict is verdict for _, claim in claims) for verdict in Verdict},
        "headline": _headline([claim for _, claim in claims]),
        "misprints": MISPRINTS,
        "size": size,
        "made": made,
        "missing": sorted({method.missing for method in METHODS.values() if method.missing}),
        "machines": results.machines(),
        "cards": results.cards(),
        "versions": _versions(),
        "light": LIGHT.variables,
        "dark": DARK.variables,
        "Verdict": Verdict,
    }


def _headline(claims: Sequence[Claim]) -> str:
    """How many claims of the paper hold; of ours, where the paper makes none about what was run."""
    theirs = [claim for claim in claims if not claim.ours]
    counted = theirs or claims
    judged = [claim for claim in counted if claim.verdict is not Verdict.OPEN]
    if not judged:
        return "Nothing has been run yet"
    held = sum(claim.verdict is Verdict.HOLDS for claim in judged)
    n_open = len(counted) - len(judged)
    words = f"{held} of {len(judged)} claims of {'the paper' if theirs else 'ours'} hold"
    return f"{words}, {n_open} not run yet" if n_open else words


def _versions() -> dict[str, str]:
    found = {"elldict": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# --- pictures ---------------------------------------------------------------------------------------------------------


def _variants(picture: Picture) -> dict[str, str]:
    """Data URIs by theme and width."""
    return {
        f"{theme}_{width}": _uri(_drawn(picture, palette, narrow=width == "narrow"))
        for theme, palette in (("light", LIGHT), ("dark", DARK))
        for width in ("wide", "narrow")
    }


def _drawn(picture: Picture, palette: Palette, *, narrow: bool) -> bytes:
    with drawing.page_style(palette):
        return drawing.webp(picture.draw(palette, narrow), palette.card, picture.smooth)


def _uri(content: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(content).decode()}"
