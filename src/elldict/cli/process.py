"""The process: streams that may be closed, and signals that end the work as errors do."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

received: list[int] = []
"""Signals that asked the process to end; libraries may turn what is raised then into errors of their own."""


def prepare_process() -> None:
    """Make sure that no output fails for lack of a stream or a letter, and handle signals."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed: the next file opened would get its number
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free one
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # letters that a terminal cannot show are escaped
            stream.reconfigure(errors="backslashreplace")
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        kind = getattr(signal, name, None)  # Windows has no SIGHUP
        if kind is not None and signal.getsignal(kind) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(kind, stop)  # one that is ignored, as by nohup, stays so


def stop(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Raise an error, so that files are completed or removed, with the exit code that shells use for a signal."""
    received.append(number)
    raise SystemExit(128 + number)


def flush_or_mute() -> None:
    """Write what is left in the streams; drop it where that fails, before Python fails at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            mute(stream)


def mute(stream: Any) -> None:
    """Let a stream write to the null device from now on."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
