"""The tables of `limit.py`, printed row by row as results come."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from experiments.benchmarks.limit.fits import Fits, Result, Setting
from experiments.benchmarks.limit.rows import BASINS, FEW, Row, departures, held, mean_of, misspecified_settings

COMPARED = ("l3", "FastICA", "refined")
SHORT = {"bernoulli-gaussian": "bg", "sparse-corruption": "sc", None: "l_p"}


def print_errors(fits: Fits, rows: Iterable[Row], seeds: int | None) -> None:
    """One row a setting: errors beside theory and limit, and what the refined answer says of itself."""
    print(
        f"\n{'n':>3} {'r':>5} {'type':>7} {'theta':>5} {'sigma':>5} {'corr':>4} | {'l3':>7} {'theory':>7} "
        f"{'FastICA':>7} {'refined':>7} {'bar':>7} {'limit':>7} | {'ratio':>5} {'answers':>13} | "
        f"{'density off':>13} {'noise off':>13} | {'seconds':>17} | asked\n"
        "errors in per cent, means over seeds; bar: expected_error_ of the refined answer; ratio: refined / limit;\n"
        "answers: bg Bernoulli-Gaussian, sc sparse corruption, l_p kept; off: by how many per cent, mean and worst;\n"
        "seconds: l3, FastICA, refined"
    )
    for row in rows:
        found = fits.results(row.setting, seeds or row.seeds, COMPARED)
        if found["refined"]:
            print(_line(row, found), flush=True)


def _line(row: Row, found: dict[str, list[Result]]) -> str:
    setting, refined = row.setting, found["refined"]
    mean = {method: mean_of("error", results) for method, results in found.items()}
    errors = (mean["l3"], row.theory, mean["FastICA"], mean["refined"], mean_of("bar", refined), row.limit)
    ratio = f"{mean['refined'] / row.limit:.3f}" if row.limit > 0 else "-"
    off = [_off(*departures("density", refined, setting.density))]
    off += [_off(*departures("noise_std", refined, setting.noise_std))]
    seconds = ", ".join(f"{mean_of('seconds', found[method]):.2f}" for method in COMPARED)
    return (
        f"{setting.n_features:>3} {setting.n_samples:>5} {setting.dtype:>7} {setting.density:>5} "
        f"{setting.noise_std:>5} {setting.corruption:>4} | {' '.join(map(_per_cent, errors))} | {ratio:>5} "
        f"{_answers(refined):>13} | {off[0]:>13} {off[1]:>13} | {seconds:>17} | "
        f"{'held' if held(row, found) else 'MISSED'}"
    )


def _per_cent(error: float) -> str:
    if math.isnan(error):
        return f"{'-':>7}"
    return f"{100 * error:>7.4f}" if error == 0 or error >= 5e-7 else f"{100 * error:>7.0e}"


def _off(mean: float, worst: float) -> str:
    return "-" if math.isnan(mean) else f"{100 * mean:+.1f}, {100 * worst:.1f}"


def _answers(results: Sequence[Result]) -> str:
    counts = Counter(SHORT.get(result.refined, str(result.refined)) for result in results)
    return " ".join(f"{number} {name}" for name, number in counts.most_common())


def print_few(fits: Fits, seeds: int | None, *, small: bool) -> None:
    """Share of exact recoveries, and of answers that say they are exact and are not."""
    print(
        f"\nfew samples, no noise: exact recoveries of l3 and of p = (3, 2.5, 2.2), refine='auto'\n"
        f"{'n':>3} {'r':>5} | {'l3':>7} {'annealed':>9} {'wrong, claims exact':>20} | {'seconds':>7} | asked"
    )
    for setting, share in FEW:
        if small and setting.n_features > 32:
            continue
        found = fits.results(setting, seeds or 40, ("l3", "annealed"))
        plain, annealed = found["l3"], found["annealed"]
        number = len(annealed)
        if not number:
            continue
        exact = sum(result.exact for result in annealed)
        false = sum(result.claims_to_be_exact and not result.exact for result in annealed)
        print(
            f"{setting.n_features:>3} {setting.n_samples:>5} | {_of(sum(r.exact for r in plain), number):>7} "
            f"{_of(exact, number):>9} {_of(false, number):>20} | {mean_of('seconds', annealed):>7.2f} | "
            f"{'held' if exact >= share * number else 'MISSED'} ({share:.0%})",
            flush=True,
        )


def print_basins(fits: Fits, seeds: int | None) -> None:
    """Whether a wrong answer ever goes unreported."""
    results = fits.results(BASINS, seeds or 200, ("annealed",))["annealed"]
    wrong = [result for result in results if not result.exact]
    silent = sum(not result.reported for result in wrong)
    print(
        f"\nwrong basins, n = {BASINS.n_features}, r = {BASINS.n_samples}, no noise, p = (3, 2.5, 2.2), refine='auto': "
        f"{len(results)} fits, {len(results) - len(wrong)} exact, {len(wrong) - silent} wrong and reported, "
        f"{silent} wrong and not reported | {'MISSED' if silent else 'held'}"
    )


def print_misspecified(fits: Fits, seeds: int | None, *, small: bool) -> None:
    """What the refinement does to data whose law it does not know, beside the l_3 answer."""
    print(
        f"\nother laws, n = 16, 32, 64, r = 8000, noise 0, .1, .3 of the codes' rms: error with refine='auto' beside "
        f"refine=None\n{'codes':>26} | {'worst ratio':>11} {'better':>9} {'refined':>9} | {'worst at':>22} | asked"
    )
    kinds: dict[str, list[Setting]] = {}
    for kind, setting in misspecified_settings():
        if not (small and setting.n_features > 32):
            kinds.setdefault(kind, []).append(setting)
    for kind, settings in kinds.items():
        _print_kind(kind, settings, fits, seeds or 3)


def _print_kind(kind: str, settings: list[Setting], fits: Fits, seeds: int) -> None:
    worst, place, better, refined, number = 0.0, "", 0, 0, 0
    for setting in settings:
        found = fits.results(setting, seeds, ("l3", "refined"))
        for seed, (plain, auto) in enumerate(zip(found["l3"], found["refined"], strict=True)):
            ratio = max(auto.error, 1e-10) / max(plain.error, 1e-10)  # below 1e-10 there is nothing to compare
            number += 1
            better += ratio < 1
            refined += auto.refined is not None
            if ratio > worst:
                worst = ratio
                place = f"n {setting.n_features}, noise {setting.noise_std:.2g}, seed {seed}"
    if number:
        print(
            f"{kind:>26} | {worst:>11.3f} {_of(better, number):>9} {_of(refined, number):>9} | {place:>22} | "
            f"{'held' if worst <= 1.02 else 'MISSED'}",
            flush=True,
        )


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole}"
