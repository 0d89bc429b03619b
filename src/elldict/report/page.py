"""What all pages share: templates, drawings and images inside of the page, and the file they are written to."""

from __future__ import annotations

import base64
import errno
import html
import io
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn

import elldict
from elldict.atomic import open_atomic
from elldict.report.figures import Pixels, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARK = '<meta name="generator" content="elldict">'
"""Line by which pages are recognised, near their beginning."""


def render(template: str, **values: Any) -> str:
    """Fill in a template; texts are escaped."""
    jinja2 = require("jinja2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("elldict.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page: str = environment.get_template(template).render(mark=require("markupsafe").Markup(MARK), **values)
    return page


def list_versions() -> str:
    """Describe the software of this process."""
    return (
        f"elldict {elldict.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"scikit-learn {sklearn.__version__}"
    )


def write_page(make: Callable[[], str], path: str | os.PathLike[str]) -> str:
    """Make a page, write it to a file and return it; a file that is not a page of this library is never replaced."""
    path = Path(path)
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as stream:
            if MARK.encode() not in stream.read(1000):
                message = "Not an elldict page; choose another name, or remove the file first"
                raise FileExistsError(errno.EEXIST, message, os.fspath(path))
    page = make()
    with open_atomic(path) as stream:
        stream.write(page.encode())
    return page


def embed_drawing(draw: Callable[[Axes], object], label: str, size: tuple[float, float] = (5.0, 3.1)) -> Any:
    """Make an SVG element of a drawing of a size in inches, readable on a phone."""
    stream = io.StringIO()
    with require("matplotlib").rc_context({"svg.fonttype": "none", "svg.hashsalt": label, "font.size": 10}):
        figure = require("matplotlib.figure").Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    svg = stream.getvalue()
    svg = re.sub(r' id="[a-zA-Z.]+_[0-9]+"', "", svg[svg.index("<svg") :])  # nothing refers to them, and none is unique
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
    return require("markupsafe").Markup(svg)


def embed_image(pixels: Pixels) -> str:
    """Make a data URI of an image (h, w, 3); the page enlarges small ones."""
    stream = io.BytesIO()
    require("matplotlib.image").imsave(stream, pixels, format="png", metadata={"Software": None})
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
