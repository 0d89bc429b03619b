"""Count the files and functions of elldict that one fit enters: how far a reader has to follow it.

    python experiments/count_calls.py [--list]

Every Python function counts, comprehensions and lambdas too; what is only imported does not.
"""

from __future__ import annotations

import argparse
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import elldict
from elldict.datasets import make_bernoulli_gaussian

ROOT = Path(elldict.__file__).parent
FITS: dict[str, dict[str, Any]] = {"default": {}, "Algorithm 2": {"solver": "power", "refine": None}}


def trace(work: Callable[[], object]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Functions that some work enters, each as (file, name), and calls from file to file."""
    entered: set[tuple[str, str]] = set()
    calls: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(str(ROOT)):
            return
        entered.add((file, frame.f_code.co_qualname))
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        if caller.startswith(str(ROOT)) and caller != file:
            calls.add((caller, file))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered, calls


def main() -> None:
    """Print the counts for a default fit and for the paper's algorithm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="also name the functions")
    listed = parser.parse_args().list
    warnings.simplefilter("ignore")
    X, _, _ = make_bernoulli_gaussian(20_000, 24, density=0.3, noise_std=0.2, random_state=0)
    for name, options in FITS.items():
        model = elldict.LpDictionaryLearning(random_state=0, **options)
        entered, calls = trace(lambda model=model: model.fit(X))  # type: ignore[misc]
        by_file: dict[str, list[str]] = defaultdict(list)
        for file, function in sorted(entered):
            by_file[str(Path(file).relative_to(ROOT))].append(function)
        print(f"{name}: {len(by_file)} files, {len(entered)} functions, {len(calls)} calls from file to file")
        for file, functions in by_file.items() if listed else ():
            print(f"  {file} ({len(functions)}): {', '.join(functions)}")
    files = [path for path in ROOT.rglob("*") if path.is_file() and path.suffix not in {".pyc", ".so", ".pyd"}]
    n_lines = sum(len(path.read_text().splitlines()) for path in files)
    print(f"package: {len([path for path in files if path.suffix == '.py'])} modules, {n_lines} lines")


if __name__ == "__main__":
    main()
