"""What pages share: templates, numbers in words, and the colours of light and dark screens."""

from __future__ import annotations

import jinja2

from elldict._old.report.style import DARK, LIGHT


def make_environment() -> jinja2.Environment:
    """Templates whose texts are escaped, with the colours of both themes."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("elldict._old.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": format_percent,
        "thousands": format_thousands,
        "fixed": lambda number, digits: f"{number:.{digits}f}",
    }
    environment.globals |= {"light": LIGHT.variables, "dark": DARK.variables}
    return environment


def format_percent(share: float, digits: int = 3) -> str:
    """A share in per cent; a narrow space keeps number and sign together."""
    return f"{100 * share:.{digits}f}\u202f%"


def format_thousands(number: int, space: str = "\u202f") -> str:
    """A number with its thousands set apart."""
    return f"{number:,}".replace(",", space)
