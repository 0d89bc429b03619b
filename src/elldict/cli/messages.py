"""Messages: warnings, mistakes and bugs are one line each, in the words of the command line, with an exit code."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from elldict.cli.process import mute, received
from elldict.exceptions import make_readable

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments: a class of its own or click's, depending on its version."""

RENAMED = {"random_state": "seed", "transform_algorithm": "algorithm", "transform_alpha": "alpha"}
LONG = "|".join([*RENAMED, "n_components", "error_bars", "max_iter", "noise_std"])
"""Parameters whose names are not words of the language: options wherever they occur; the others only with a value."""

NAME = f"{LONG}|p|solver|refine|normalize|standardize|center|whiten|tol|checkpoint|resume|column"


class Mistake(Exception):  # noqa: N818  not an error of the program
    """Something that the user has to change; the message says what."""


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; what goes wrong is said in one line."""
    try:
        from elldict.cli.commands import app  # noqa: PLC0415

        if "_ELLDICT_COMPLETE" in os.environ:  # a shell asks for completions
            app(arguments, prog_name="elldict")
        command: Any = typer.main.get_command(app)
        with suppress(typer.Exit), command.make_context("elldict", arguments or ["--help"]) as context:
            command.invoke(context)  # without typer's own answers to errors
        sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):  # as by `| head`
            mute(sys.stdout)
            return 128 + signal.SIGPIPE
        if isinstance(error, SystemExit) and not received:
            return int(error.code or 0)
        message, code = explain(error)
        print_message(" ".join([message, *getattr(error, "__notes__", ())]))
        return code
    return 0


def explain(error: BaseException) -> tuple[str, int]:
    """Return the message and the exit code for an error: 2 for one of the user, 1 for a bug."""
    if received or isinstance(error, (KeyboardInterrupt, typer.Abort)):
        number = received[0] if received else signal.SIGINT
        return "interrupted." if number == signal.SIGINT else "terminated.", 128 + number
    if isinstance(error, UsageError):
        command = "elldict" if error.ctx is None else error.ctx.command_path
        return f"error: {error.format_message().removesuffix('.')}. See '{command} --help'.", 2
    if isinstance(error, OSError) and error.strerror is not None:
        return f"error: {error.filename or 'standard output'}: {reword(error.strerror)}.", 2
    if isinstance(error, (Mistake, OSError)):
        return f"error: {error}", 2
    if sys.flags.dev_mode:
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    found = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
    return f"bug: {found}. Please report it; PYTHONDEVMODE=1 in the environment shows the traceback.", 1


def print_message(message: str) -> None:
    """Print one line on standard error, whatever the message contains; nothing happens if the stream is closed."""
    try:
        print("elldict:", make_readable(" ".join(message.split())), file=sys.stderr, flush=True)
    except OSError:
        mute(sys.stderr)


@contextmanager
def translate(data: Path | None = None, checkpoint: Path | None = None) -> Iterator[None]:
    """Print warnings, each once, and raise what the library refuses as mistakes; its X is the file `data`."""
    shown: set[str] = set()

    def show(message: Warning | str, *_place: Any, **_more: Any) -> None:
        text = reword(str(message), data)
        if text not in shown:
            shown.add(text)
            print_message(f"warning: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those for developers
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as error:
            if checkpoint is not None and checkpoint.exists():
                error.add_note(f"The state is in {checkpoint}: continue with the same command and --resume.")
            raise
        except MemoryError as error:
            raise Mistake(f"not enough memory. {error}") from error
        except (ValueError, TypeError, ImportError) as error:
            raise Mistake(" ".join([reword(str(error), data), *getattr(error, "__notes__", ())])) from error


def reword(message: str, data: Path | None = None) -> str:
    """Put options in the place of parameters, and the name of the file in that of X."""
    message = re.sub(r"\bout=(\S+)", r"output \1", message.replace("column=[...]", "--column, once for each"))
    message = re.sub(rf"The '({NAME})' parameter of \w+", lambda match: name_option(match[1]), message)
    message = re.sub(rf"`({NAME})`", lambda match: name_option(match[1]), message)
    message = re.sub(r",? or None(?=\.| with)", "", message).replace("the estimator", "the model")
    value = rf"\b({NAME})=('[^']*'|[\w.+-]*\w)"
    message = re.sub(value, lambda match: name_option(match[1], match[2].strip("'")), message)
    message = re.sub(rf"(?<![\w-])({LONG})\b", lambda match: name_option(match[1]), message)
    message = re.sub(r"^(groups|shape)\b", r"--\1", message)
    message = re.sub(r"\bset (?=--)", "use ", message)
    message = re.sub(r"^Found array with\b", "X has", message)
    return message if data is None else re.sub(r"^(Input X|X|codes)\b", lambda _: str(data), message)


def name_option(parameter: str, value: str = "") -> str:
    """Return what to type for a parameter, with a value as Python writes it."""
    option = RENAMED.get(parameter, parameter).replace("_", "-")
    if value == "None":
        return f"--{option} none" if parameter in ("refine", "normalize") else f"no --{option}"
    return f"--no-{option}" if value == "False" else f"--{option} {value}".removesuffix(" True").rstrip()
