"""The command line. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import sys

from elldict.cli.process import flush_or_mute, prepare_process


def main() -> None:
    """Run the command line and exit."""
    prepare_process()
    from elldict.cli.messages import run  # noqa: PLC0415

    code = run(sys.argv[1:])
    flush_or_mute()
    sys.exit(code)
