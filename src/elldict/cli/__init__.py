"""The command line. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from elldict.cli.process import flush_or_mute, prepare_process

__all__ = ["app", "main", "run"]


def main() -> None:
    """Run the command line and exit."""
    prepare_process()
    from elldict.cli.messages import run  # noqa: PLC0415

    code = run(sys.argv[1:])
    flush_or_mute()
    sys.exit(code)


def __getattr__(name: str) -> Any:
    """Import the application, or the function that runs it, when it is asked for."""
    if name not in ("app", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("elldict.cli.commands" if name == "app" else "elldict.cli.messages"), name)
