"""From stored fits to numbers: how soon each solver was how good, medians over seeds and repeats."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments.benchmarks.speed.problems import Problem
from experiments.benchmarks.speed.solvers import DEFAULT, POWER
from experiments.harness.store import Store, latest

SAME_ERROR = 1.01
"""Within a hundredth of an error is at it; peers profit, whose last iterations change little."""

ROUNDED = 1.0005
"""Curves are stored to four digits."""

Line = dict[str, Any]
Round = dict[str, Line]
"""Fits of all solvers to the same samples, one after the other."""


@dataclass(frozen=True)
class Row:
    """What a problem came to. Times are infinite where an error was never reached."""

    problem: Problem
    rounds: list[Round]
    best_error: float  # of the best peer, at its end
    ours_to_best: float
    peers_to_best: float
    ratio: float
    fastest_peer: str
    ours_to_limit: float
    peers_to_own: float
    passes: float

    @property
    def ratio_held(self) -> bool:
        """Whether elldict was as much sooner as is asked."""
        return self.ratio >= self.problem.asked_ratio

    @property
    def limit_held(self) -> bool:
        """Whether it was at the limit when the fastest peer was at its own answer."""
        return self.ours_to_limit <= self.peers_to_own

    @property
    def passes_held(self) -> bool:
        """Whether it looked at the samples no more often than is asked."""
        return self.problem.asked_passes is None or self.passes <= self.problem.asked_passes


def time_to(line: Line, error: float) -> float:
    """Seconds after which the error of a fit is at most this and stays so: a dip on the way is no answer."""
    reached = math.inf
    for seconds, found in reversed(line["curve"]):
        if found > error * ROUNDED:
            break
        reached = seconds
    return reached


def stored_rounds(listed: Iterable[Problem], path: Path) -> dict[str, list[Round]]:
    """Rounds of each problem that has any."""
    grouped: dict[tuple[str, int, int], Round] = defaultdict(dict)
    for line in latest(Store(path).records.values(), "problem"):
        grouped[line["problem"], line["seed"], line["repeat"]][line["solver"]] = line
    found: dict[str, list[Round]] = {problem.name: [] for problem in listed}
    for (name, _, _), fits_of_round in sorted(grouped.items()):
        if name in found:
            found[name].append(fits_of_round)
    return {name: rounds for name, rounds in found.items() if rounds}


def row_of(problem: Problem, rounds: Sequence[Round]) -> Row | None:
    """Numbers of one problem; None where elldict or every peer is missing."""
    complete = [fits for fits in rounds if _is_done(fits.get(DEFAULT)) and peers_of(fits)]
    if not complete:
        return None
    duels = [_Duel.of(fits) for fits in complete]
    return Row(
        problem=problem,
        rounds=complete,
        best_error=median(duel.best_error for duel in duels),
        ours_to_best=median(duel.ours_to_best for duel in duels),
        peers_to_best=median(duel.peers_to_best for duel in duels),
        ratio=median(duel.peers_to_best / duel.ours_to_best for duel in duels),
        fastest_peer=_most_common([duel.fastest_peer for duel in duels]),
        ours_to_limit=median(times_to_limit([fits[DEFAULT] for fits in complete], problem)),
        peers_to_own=median(duel.peers_to_own for duel in duels),
        passes=median(fits[DEFAULT]["passes"] for fits in complete),
    )


def times_to_limit(fits: Sequence[Line], problem: Problem) -> list[float]:
    """Seconds of each fit to the limit.

    With noise the error of one data set scatters about the bound, by a quarter at n = 8: the mean over fits is compared
    with it, and what that mean has to spare every fit may use.
    """
    if not problem.noise_std:
        return [time_to(line, problem.at_the_limit) for line in fits]
    to_spare = problem.at_the_limit / mean(line["error"] for line in fits)
    if to_spare < 1:
        return [math.inf] * len(fits)
    return [time_to(line, to_spare * line["error"]) for line in fits]


def peers_of(fits: Round) -> Round:
    """Fits of the others that came to an end."""
    return {name: line for name, line in fits.items() if name not in (DEFAULT, POWER) and _is_done(line)}


def _is_done(line: Line | None) -> bool:
    return line is not None and line["status"] == "done"


def _most_common(names: list[str]) -> str:
    return max(sorted(set(names)), key=names.count)


@dataclass(frozen=True)
class _Duel:
    """One round: elldict against all peers."""

    best_error: float
    ours_to_best: float
    peers_to_best: float
    fastest_peer: str
    peers_to_own: float

    @classmethod
    def of(cls, fits: Round) -> _Duel:
        ours, peers = fits[DEFAULT], peers_of(fits)
        best = min(line["error"] for line in peers.values())
        times = {name: time_to(line, SAME_ERROR * best) for name, line in peers.items()}
        fastest = min(times, key=lambda name: times[name])
        # an answer that mixes atoms is none, however soon it is there
        sound = [line for line in peers.values() if not line["wrong_atoms"]] or list(peers.values())
        return cls(
            best_error=best,
            ours_to_best=time_to(ours, SAME_ERROR * best),
            peers_to_best=times[fastest],
            fastest_peer=fastest,
            peers_to_own=min(line["seconds"] for line in sound),
        )
