"""What the process of the command line needs before anything else is imported: streams, and signals that end it."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit code of Ctrl-C, by the custom of shells."""

ENDING_SIGNALS = ("SIGTERM", "SIGHUP")
"""Signals that ask a process to end; Windows has no second one."""


def prepare_process() -> None:
    """Let output never be the reason why work is lost, and let signals end the work as errors do."""
    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names that the terminal cannot show are shown by numbers
            stream.reconfigure(errors="backslashreplace")
    for name in ENDING_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # one that is ignored stays so
            signal.signal(number, _end)


def replace_closed_streams() -> None:
    """Put the null device in the place of closed streams: the next file opened would get their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # until the end


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """End with the exit code of a process that a signal ended; unfinished files are removed on the way."""
    raise SystemExit(128 + number)
