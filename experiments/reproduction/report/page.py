"""Render the report as one self-contained page."""

from __future__ import annotations

import base64
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from elldict.atomic import open_atomic
from experiments.harness.axes import INK, LINE, MUTED, PAPER
from experiments.reproduction.experiment import Claim, Experiment, Size, Verdict
from experiments.reproduction.paper import MISPRINTS
from experiments.reproduction.report.drawing import draw_png
from experiments.reproduction.report.styles import STYLES
from experiments.reproduction.results import Results

PACKAGES = ("elldict", "numpy", "scipy", "scikit-learn", "dictlearn", "pymanopt", "python-picard", "matplotlib")


def render(experiments: Sequence[Experiment], results: Results, size: Size, facts: Mapping[str, str]) -> str:
    """Render the page as HTML; `facts` say how it was made."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments.reproduction.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [(experiment, experiment.section(results, size)) for experiment in experiments]
    claims = [claim for _, section in sections for claim in section.claims]
    pictures = {
        experiment.name: base64.b64encode(draw_png(section.picture)).decode()
        for experiment, section in sections
        if section.picture is not None
    }
    return environment.get_template("report.html.j2").render(
        sections=sections,
        pictures=pictures,
        counts=[(title, count_verdicts(claims, ours=ours)) for ours, title in TITLES.items()],
        headline=write_headline(claims),
        misprints=MISPRINTS,
        size=size,
        facts={**facts, "Versions": list_versions()},
        colours={"ink": INK, "line": LINE, "muted": MUTED, "paper": PAPER},
        dots={style.label: style.colour for style in STYLES.values()},
    )


TITLES = {False: "claims of the paper", True: "checks of our own"}


def count_verdicts(claims: Sequence[Claim], *, ours: bool) -> dict[Verdict, int]:
    """Count the verdicts on the claims of the paper, or on our own checks."""
    found = [claim.verdict for claim in claims if claim.ours is ours]
    return {verdict: found.count(verdict) for verdict in Verdict}


def write_headline(claims: Sequence[Claim]) -> str:
    """Write how many claims of the paper hold; or of our checks, if there are no others."""
    ours = all(claim.ours for claim in claims)
    counts = count_verdicts(claims, ours=ours)
    if counts[Verdict.OPEN] == sum(counts.values()):
        return "Nothing has been run yet"
    return f"{counts[Verdict.HOLDS]} of {sum(counts.values())} {TITLES[ours]} hold"


def list_versions() -> str:
    """List the versions of Python and of packages."""
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return ", ".join(found)


def write_pictures(experiments: Sequence[Experiment], results: Results, size: Size, folder: Path) -> None:
    """Write each figure to a file of its own, for slides."""
    folder.mkdir(exist_ok=True)
    for experiment in experiments:
        picture = experiment.section(results, size).picture
        if picture is not None:
            with open_atomic(folder / f"{experiment.name}.png") as stream:
                stream.write(draw_png(picture))
