"""The command line: arguments and printing only."""

from elldict._old.cli import __getattr__, main, run  # noqa: F401

__all__ = ["app", "main", "run"]  # noqa: F822  by __getattr__
