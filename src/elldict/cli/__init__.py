"""The command line. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from elldict.cli.process import flush_or_mute, prepare_process

__all__ = ["app", "main", "run"]


def main() -> None:
    """Run the command line and exit."""
    prepare_process()
    code = run(sys.argv[1:])
    flush_or_mute()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; without arguments, show the help."""
    from elldict.cli.messages import run_app  # noqa: PLC0415

    return run_app(list(arguments) or ["--help"])


def __getattr__(name: str) -> Any:
    """Import the application when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from elldict.cli.commands import app  # noqa: PLC0415

    return app
