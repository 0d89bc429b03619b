"""How the site is built: `make docs`. Nothing is fetched, neither while it is built nor while it is read."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup

import elldict

sys.path.insert(0, str(Path(__file__).parent))
from gallery import SIZE, cut_thumbnails

os.environ.setdefault("MPLBACKEND", "agg")

project, author, version = "elldict", "The elldict developers", elldict.__version__
copyright = author
release = version
language = "en_GB"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_templates", "auto_examples/*.ipynb"]
nitpicky = False  # docstrings name types of NumPy and scikit-learn, which only a network could look up

myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc has them in words
numpydoc_show_class_members = False  # the template lists them
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "elldict"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "which-one": [], "changelog": []}
html_theme_options = {
    "logo": {"text": "elldict", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": "/plot_",
    "within_subsection_order": "gallery.ExampleOrder",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1,
    "thumbnail_size": SIZE,
    "matplotlib_animations": False,
    "abort_on_example_error": False,
}

warnings.filterwarnings("ignore", message=".*non-interactive.*")  # examples call plt.show()


def escape_names(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Names of fitted attributes in types and prose, as in `shape (n_components_,)`, are no links."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        field, rest = re.match(r"(\s*[\w, ]+ : )?(.*)", line).groups()
        parts = re.split(r"(`+[^`]*`+)", rest)
        parts[::2] = [re.sub(r"\b(\w+)_(?!\w)", r"\1\\_", part) for part in parts[::2]]
        lines[number] = (field or "") + "".join(parts)


LONGEST_CELL = 34
"""Characters of the longest cell, above which a table is one of words: four such columns do not fit on a phone."""


def label_table(table: Any) -> None:
    """Tables of words are stacked on phones, a card a row, so each cell has its heading; others scroll, and say so."""
    heads = [cell.get_text(" ", strip=True) for cell in table.select("thead th")]
    rows = [row.find_all("td", recursive=False) for row in table.select("tbody tr")]
    words = any(len(cell.get_text(" ", strip=True)) > LONGEST_CELL for row in rows for cell in row[1:])
    table["class"] = [*table.get("class", []), "stacks" if words else "scrolls" if len(heads) > 3 else "fits"]
    for row in rows:
        for cell, head in zip(row, heads, strict=False):
            cell["data-head"] = head
            if not cell.get_text(strip=True):
                cell["class"] = [*cell.get("class", []), "empty"]


def fit_phones(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:  # noqa: ARG001
    """Headings for the cells of tables, and pictures that open in full size."""
    if "body" not in context or doctree is None or page.startswith("api/"):
        return
    body = BeautifulSoup(context["body"], "html.parser")
    for table in body.select("table.docutils, table.table"):
        label_table(table)
    for image in body.find_all("img"):
        if image.find_parent("a") is None and not image.find_parent(class_="sphx-glr-thumbcontainer"):
            image.wrap(body.new_tag("a", href=image["src"], title="Open in full size", **{"class": "full-size"}))
    context["body"] = str(body)


def setup(app: Any) -> None:
    """Names are escaped before numpydoc, whose priority is 500."""
    app.connect("autodoc-process-docstring", escape_names, priority=400)
    app.connect("html-page-context", fit_phones)
    app.connect("builder-inited", cut_thumbnails, priority=900)  # after sphinx-gallery, which runs the examples then
