"""What a user gets wrong ends in one line on standard error and exit code 2; a warning is one line too."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from elldict._old.atomic import NAMELESS_ERRORS
from elldict._old.cli.process import INTERRUPTED
from elldict._old.cli.wording import name_options

MISTAKE = 2
"""Exit code of wrong usage."""

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments: its own class or click's, depending on its version."""


class MistakeError(Exception):
    """Something the user has to change; the message says what."""


def run_app(app: typer.Typer, arguments: Sequence[str], name: str) -> int:
    """Run an application under this name and return its exit code: the one place where mistakes become lines."""
    try:
        with _print_warnings_as_lines():
            code = app(list(arguments), prog_name=name, standalone_mode=False) or 0
    except UsageError as error:
        command = name if error.ctx is None else error.ctx.command_path
        return _fail(error.format_message().removesuffix(".") + f". See '{command} --help'.")
    except MistakeError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(_describe(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code and says nothing
        print_message("interrupted.")
    return int(code)


@contextmanager
def raise_as_mistakes(data: Path | None = None) -> Iterator[None]:
    """Raise what the library raises for what it was given, or lacks, as mistakes; elsewhere they are our faults.

    What is wrong with X is said of the file `data`.
    """
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        message = name_options(str(error))
        is_of_data = data is not None and message.startswith("X ") and str(data) not in message
        raise MistakeError(f"{data}: {message}" if is_of_data else message) from error
    except MemoryError as error:
        raise MistakeError(f"not enough memory: {error}") from error


def print_message(message: str) -> None:
    """One line on standard error, whatever the message looked like."""
    print(f"elldict: {' '.join(message.split())}", file=sys.stderr, flush=True)


@contextmanager
def _print_warnings_as_lines() -> Iterator[None]:
    def show(message: Warning | str, category: type[Warning], *_place: Any, **_more: Any) -> None:  # noqa: ARG001
        print_message(f"warning: {name_options(str(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)  # what a fit has to say is not silenced, nor made an error
        warnings.showwarning = show
        yield


def _fail(message: str) -> int:
    print_message(f"error: {message}")
    return MISTAKE


def _describe(error: OSError) -> str:
    if error.filename is None and error.errno in NAMELESS_ERRORS:  # those of files have a name
        return f"standard output: {error.strerror}."
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}."
