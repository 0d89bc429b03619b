"""Results as lines of JSON: a run that was interrupted goes on, tables and pictures are redrawn without a fit."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

from elldict import __version__
from experiments import BENCHMARK_RESULTS
from experiments.benchmarks.limit.fits import Result, Setting, fitted

PATH = BENCHMARK_RESULTS / "limit.jsonl"
DEFAULTS = {field.name: field.default for field in fields(Setting)}
Key = tuple[Setting, int, str]


def versions() -> dict[str, Any]:
    """What made the numbers."""
    return {
        "elldict": __version__,
        "numpy": np.__version__,
        "sklearn": sklearn.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


class Store:
    """Results by setting, seed and method; those that are missing are computed and written down at once."""

    def __init__(self, path: Path = PATH, *, fresh: bool = False, stored_only: bool = False) -> None:
        self.path = path
        self.stored_only = stored_only
        self._known: dict[Key, Result] = {} if fresh else self._read()

    def results(self, setting: Setting, seeds: int, methods: Sequence[str]) -> dict[str, list[Result]]:
        """Results of each method, seed by seed; with `stored_only` perhaps fewer than were asked for."""
        found: dict[str, list[Result]] = {method: [] for method in methods}
        for seed in range(seeds):
            self._complete(setting, seed, methods)
            if all((setting, seed, method) in self._known for method in methods):  # methods stay comparable
                for method in methods:
                    found[method].append(self._known[setting, seed, method])
        return found

    def _complete(self, setting: Setting, seed: int, methods: Sequence[str]) -> None:
        missing = [method for method in methods if (setting, seed, method) not in self._known]
        if not missing or self.stored_only:
            return
        X, dictionary = setting.drawn(seed)
        for method in missing:
            self._write((setting, seed, method), fitted(method, X, dictionary, seed))

    def _write(self, key: Key, result: Result) -> None:
        setting, seed, method = key
        special = {name: value for name, value in asdict(setting).items() if value != DEFAULTS[name]}
        line = {"setting": special, "seed": seed, "method": method, "result": asdict(result), "made_by": versions()}
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._known[key] = result

    def _read(self) -> dict[Key, Result]:
        """What is stored; the last of several lines wins. Other versions count only where nothing is to be run."""
        known: dict[Key, Result] = {}
        for text in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:  # a run was killed while it wrote
                continue
            if self.stored_only or line["made_by"]["elldict"] == __version__:
                result = line["result"] | {"warned": tuple(line["result"]["warned"])}
                known[Setting(**line["setting"]), line["seed"], line["method"]] = Result(**result)
        return known
