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
from elldict._old.atomic import write_atomically
from elldict._old.report.style import DARK, LIGHT, Palette
from experiments.reproduction.cells import METHODS
from experiments.reproduction.experiment import Claim, Experiment, Picture, Section, Size, Verdict
from experiments.reproduction.paper import MISPRINTS
from experiments.reproduction.report import drawing, words
from experiments.reproduction.report.looks import NAMES, variables
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

VERDICT_WORDS = {
    Verdict.HOLDS: "hold",
    Verdict.PARTLY: "in part",
    Verdict.FAILS: "fail",
    Verdict.OPEN: "not run",
}


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
    claims = [claim for _, section in sections for claim in section.claims]
    return {
        "sections": sections,
        "pictures": {picture.name: _variants(picture) for _, section in sections for picture in section.pictures},
        "counts": count_verdicts(claims),
        "headline": _headline(claims),
        "misprints": MISPRINTS,
        "size": size,
        "made": made,
        "missing": sorted({method.missing for method in METHODS.values() if method.missing}),
        "machines": results.machines(),
        "cards": results.cards(),
        "versions": _versions(),
        "light": LIGHT.variables | variables(LIGHT),
        "dark": DARK.variables | variables(DARK),
        "methods": NAMES,
        "words_of": VERDICT_WORDS,
    }


@dataclass(frozen=True)
class Count:
    """How the claims of the paper came out, or our own checks: the numbers add up to all of them."""

    title: str
    ours: bool
    verdicts: dict[Verdict, int]

    @property
    def n_all(self) -> int:
        """All of them."""
        return sum(self.verdicts.values())

    @property
    def n_open(self) -> int:
        """Those that nothing was run for."""
        return self.verdicts[Verdict.OPEN]


def count_verdicts(claims: Sequence[Claim]) -> list[Count]:
    """One count of the paper's claims, and one of our own checks, which are not claims of the paper."""
    counts = []
    for ours, title in ((False, "claims of the paper"), (True, "checks of our own")):
        found = [claim.verdict for claim in claims if claim.ours is ours]
        if found:
            counts.append(Count(title, ours, {verdict: found.count(verdict) for verdict in Verdict}))
    return counts


def _headline(claims: Sequence[Claim]) -> str:
    """How many of all claims of the paper hold; of our checks, where the paper claims nothing of what was run."""
    counts = count_verdicts(claims)
    if not counts or all(claim.verdict is Verdict.OPEN for claim in claims):
        return "Nothing has been run yet"
    first = counts[0]
    return f"{first.verdicts[Verdict.HOLDS]} of {first.n_all} {first.title} hold"


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
