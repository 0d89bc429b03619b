"""The command line: arguments and printing only.

What takes long to import is imported by the command that needs it, so that help and mistakes are answered at once; and
what takes a moment, by `run`, so that Ctrl-C in that moment is answered as later on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from elldict._old.cli.process import INTERRUPTED, prepare_process

__all__ = ["app", "main", "run"]


def main() -> None:
    """Run the command line and exit."""
    try:
        prepare_process()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        print("elldict: interrupted.", file=sys.stderr, flush=True)
        code = INTERRUPTED
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; without arguments, show the help."""
    from elldict._old.cli.commands import app  # noqa: PLC0415
    from elldict._old.cli.errors import run_app  # noqa: PLC0415

    return run_app(app, arguments or ["--help"], "elldict")


def __getattr__(name: str) -> Any:
    """Import the application when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from elldict._old.cli.commands import app  # noqa: PLC0415

    return app
