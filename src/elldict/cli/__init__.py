"""The command line: arguments and printing only.

What takes long to import is imported by the command that needs it, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from elldict.cli.commands import app
from elldict.cli.errors import run_app

__all__ = ["app", "main", "run"]


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; without arguments, show the help."""
    return run_app(app, arguments or ["--help"], "elldict")
