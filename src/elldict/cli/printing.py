"""What commands print: JSON, facts and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from elldict.cli.messages import name_option
from elldict.exceptions import make_readable

SIZES = ("n_samples_seen", "n_features_in", "n_components", "n_iter", "n_passes", "converged", "status", "refined")
PROPERTIES = ("objective", "density", "scale", "noise_std", "expected_error", "atom_error", "warnings")
"""Fitted attributes in JSON, without their underscore."""

Fact = tuple[str, str]
"""A name, and its value."""


def print_json(facts: dict[str, Any]) -> None:
    """Print one JSON object; numbers have all their digits, and those that are not finite are null."""
    text = json.dumps(facts, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))
    print(json.dumps(json.loads(text, parse_constant=lambda _: None)))


def list_model(model: Any) -> dict[str, Any]:
    """List what a model is and how it was found, for programs."""
    results = {name: getattr(model, f"{name}_") for name in (*SIZES, *PROPERTIES)}
    names = getattr(model, "feature_names_in_", None)
    return {"class": type(model).__name__, "parameters": model.get_params(), **results, "feature_names": names}


def format_options(model: Any) -> str:
    """Format the parameters that are not at their defaults as options; the seed always."""
    defaults = signature(type(model)).parameters
    changed = [
        name_option(name, str(value))
        for name, value in model.get_params().items()
        if value != defaults[name].default or name == "random_state"
    ]
    return " ".join(["--ica"] * (type(model).__name__ == "LpICA") + changed)


def print_model(model: Any, facts: Iterable[Fact], warnings: Sequence[str] = ()) -> None:
    """Print what a model is, how it was found, and its first components."""
    from elldict.summary import make_summary  # noqa: PLC0415

    print(make_summary(model, [("options", format_options(model)), *facts], warnings))


def print_facts(title: str, facts: Iterable[Fact]) -> None:
    """Print a title, and names with their values."""
    print(make_readable(title))
    for name, value in facts:
        print(f"  {name:<14}  {make_readable(value)}")


def describe_file(path: Path) -> str:
    """Format the name and the size of a file."""
    from rich.filesize import decimal  # noqa: PLC0415

    return f"{path} ({decimal(path.stat().st_size)})"


def shows_progress(quiet: bool) -> bool:
    """Return whether progress is shown: on a terminal, unless it is not wanted."""
    return not quiet and sys.stderr.isatty()
