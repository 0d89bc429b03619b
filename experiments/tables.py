"""Write the tables of the pages from stored results; nothing is measured.

python -m experiments.tables            # write every table between its marks, in README.md and docs/*.md
python -m experiments.tables --check    # write nothing; exit 1 if a page differs from what is stored

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. If it was not measured with the present
version of the solver, or not completely, it says so.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from experiments import ROOT
from experiments.benchmarks.real import tabulate_short
from experiments.measure import STUDIES, load_study

MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.S)
"""A table of a page: its name, and what is between the marks."""

PLACEHOLDER = "Measured again with `make measure`."
"""In place of a table without results."""

TABLES = {**{name.replace("_", "-"): name for name in STUDIES}, "real-short": "real", "errors": "error_bars"}
"""Studies by the name of the table."""


def write_table(name: str) -> str:
    """Write the table of a study, with a note if it is not that of the present version."""
    study = load_study(TABLES[name])
    rows, n_missing = study.read(), len(study.list_missing())
    if not rows:
        return f"{PLACEHOLDER}\n"
    text = tabulate_short(rows) if name == "real-short" else study.tabulate(rows)
    found = f"{n_missing} of {len(study.cells)} measurements are missing, or of another version of the solver"
    return text + (f"\n*{found}: `{study.command}` makes them.*\n" if n_missing else "")


def list_pages() -> list[Path]:
    """List the pages that may have tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def fill(text: str) -> str:
    """Write the tables of a page between their marks."""
    return MARKED.sub(fill_one, text)


def fill_one(match: re.Match[str]) -> str:
    """Write one table between its marks."""
    begin, name, end = match.groups()
    if name not in TABLES:
        raise SystemExit(f"There is no table {name!r}; expected one of {', '.join(sorted(TABLES))}.")
    return f"{begin}\n{write_table(name)}\n{end}"


def main() -> None:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page differs")
    options = parser.parse_args()
    changed = []
    for page in list_pages():
        text = page.read_text(encoding="utf-8")
        if (filled := fill(text)) != text:
            changed.append(page.name)
            if not options.check:
                page.write_text(filled, encoding="utf-8")
    print(f"{'differ from what is stored' if options.check else 'written'}: {', '.join(changed) or 'none'}")
    raise SystemExit(1 if options.check and changed else 0)


if __name__ == "__main__":
    main()
