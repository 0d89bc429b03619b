"""Tables of the pages, from what is stored; runs no fit.

python -m experiments.tables            # write every table between its marks, in README.md and docs/*.md
python -m experiments.tables --check    # write nothing; exit 1 if a page is not what is stored
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments import BENCHMARK_RESULTS, ROOT
from experiments.benchmarks import ablation, cases
from experiments.benchmarks.ica.__main__ import read_rows
from experiments.benchmarks.limit import rows as limit_rows
from experiments.benchmarks.limit.fits import Fits, Result
from experiments.benchmarks.real.__main__ import read_sets
from experiments.benchmarks.real.fits import OURS
from experiments.benchmarks.speed.problems import Problem, problems
from experiments.benchmarks.speed.times import row_of, stored_rounds
from experiments.campaign.grid import LEAST_UNWARNED, Summary, choose_cases, list_kinds, read_results, tell_share
from experiments.campaign.kinds import KINDS
from experiments.harness.store import Store

Row = dict[str, Any]
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.S)
"""A table of a page: its name, and what stands between the marks."""

README_SETS = ("flower.jpg in colour", "camera", "chelsea", "digits", "breast cancer", "gravel", "grass")
"""Real data of the README: wins and both losses."""

PEERS = ("FastICA logcosh", "FastICA exp", "Picard-O extended")
EMBEDDINGS = {
    "bg4096": ("n = 4096, r = 10⁶, density .1, whitened", "6 s"),
    "bg2048": ("n = 2048, r = 10⁶, density .1, whitened", "1.5 s"),
    "laplace768": ("n = 768, r = 5x10⁵, Laplace, whitened", "1 s"),
    "plain1024": ("n = 1024, r = 10⁶, density .1", "0.4 s"),
    "hopeless": ("n = 2048, r = 10⁶, Laplace, whitened: told that samples are too few", "9 s"),
}
"""Parts of `experiments.benchmarks.gpu.embeddings`: what they are, and how long they should take."""

EXACT = 1e-6
"""Errors below are rounding in float32."""


def write_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---"] * len(head), *lines])


def tell_time(seconds: float) -> str:
    """Seconds or milliseconds, with two digits."""
    if seconds == float("inf"):
        return "never"
    if seconds < 0.0995:
        return f"{1e3 * seconds:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"


def tell_error(error: float) -> str:
    """In per cent."""
    return "exact" if error < EXACT else f"{100 * error:.3g} %"


# --- real data --------------------------------------------------------------------------------------------------------


def tabulate_real() -> str:
    """All sets and methods: gain, seconds, how far seeds differ."""
    names = (*PEERS, OURS)
    lines = []
    for rows in read_real():
        found = {row["method"]: row for row in rows}
        best = max(found[name]["gain"] for name in names)
        cells = [f"{rows[0]['set']}, {rows[0]['n_samples']} x {rows[0]['n_directions']}"]
        lines.append([*cells, *(tell_fit(found[name], best) for name in names)])
    return write_table(["samples", *names], lines)


def tabulate_real_in_short() -> str:
    """Some sets: gains, and seconds of the fastest FastICA and of elldict."""
    lines = []
    for rows in read_real():
        found = {row["method"]: row for row in rows}
        if any(part in rows[0]["set"] for part in README_SETS):
            best = max(found[name]["gain"] for name in (*PEERS, OURS))
            fastest = min(found[name]["seconds"] for name in PEERS[:2])
            gains = [tell_gain(found[name]["gain"], best) for name in (*PEERS, OURS)]
            size = f"{rows[0]['n_samples']} x {rows[0]['n_directions']}"
            times = f"{tell_time(fastest)}, {tell_time(found[OURS]['seconds'])}"
            lines.append([f"{rows[0]['set']}, {size}", *gains, times])
    return write_table(["samples", *PEERS, OURS, "time: faster FastICA, elldict"], lines)


def read_real() -> list[list[Row]]:
    """Rows of each set, in the order of the list."""
    return read_sets(Store(BENCHMARK_RESULTS / "real.jsonl"))


def tell_gain(gain: float, best: float) -> str:
    """The best one in bold."""
    return f"**{gain:.2f}**" if gain == best else f"{gain:.2f}"


def tell_fit(row: Row, best: float) -> str:
    """Gain, time, difference of seeds; a star for a fit that did not converge."""
    star = "" if row["converged"] == row["seeds"] else " \\*"
    return f"{tell_gain(row['gain'], best)}, {tell_time(row['seconds'])}, {row['differ']:.2f}{star}"


# --- simulated data ---------------------------------------------------------------------------------------------------


def tabulate_ica() -> str:
    """Errors of LpICA and FastICA, and what LpICA states of its own."""
    ours, peers = "LpICA()", ("FastICA logcosh", "FastICA exp")
    found: dict[str, dict[str, Row]] = {}
    for row in read_rows(Store(BENCHMARK_RESULTS / "ica.jsonl")):
        found.setdefault(row["problem"], {})[row["method"]] = row
    lines = []
    for problem, rows in found.items():
        stated = f"{rows[ours]['stated']:.5f}"
        errors = [tell_lost(rows[name]) if name in rows else "-" for name in (ours, *peers)]
        lines.append([problem.replace(" + ", ", "), errors[0], stated, *errors[1:]])
    return write_table(["sources", "`LpICA()`", "its error bar", *peers], lines)


def tell_lost(row: Row) -> str:
    """Error, and sources that were not found."""
    lost = row["sought"] - row["found"]
    return f"{row['error']:.5f}" + (f", {lost} of {row['sought']} lost" if lost else "")


def tabulate_limit() -> str:
    """Errors in per cent beside the Cramer-Rao bound."""
    fits, sizes = Fits(stored_only=True), [limit_rows.SMALL, limit_rows.LARGE]
    clean = [row for row in limit_rows.noiseless_rows(sizes) if row.setting.dtype == "float32"]
    lines = []
    for row in [*clean, *limit_rows.noisy_rows(sizes), *limit_rows.corrupted_rows(sizes)]:
        found = fits.results(row.setting, row.seeds, ("l3", "FastICA", "refined"))
        if found["refined"]:
            lines.append(list_limit_cells(row, found))
    head = ["n", "r", "density", "noise", "corruption", "l_3", "FastICA", "default", "its error bar", "limit"]
    return write_table([*head, "default / limit", "seconds: l_3, FastICA, default"], lines)


def list_limit_cells(row: limit_rows.Row, found: dict[str, list[Result]]) -> list[str]:
    """One setting."""
    setting, refined = row.setting, found["refined"]
    error = limit_rows.mean_of("error", refined)
    errors = [limit_rows.mean_of("error", found[name]) for name in ("l3", "FastICA")]
    errors += [error, limit_rows.mean_of("bar", refined)]
    told = ["exact" if each < EXACT else f"{100 * each:.4f}" for each in errors]
    limit = ["0" if row.limit == 0 else "-", "-"]
    if row.limit > 0:  # not a number under corruption, for which there is no bound
        limit = [f"{100 * row.limit:.4f}", f"{error / row.limit:.3f}"]
    seconds = ", ".join(f"{limit_rows.mean_of('seconds', results):.2f}" for results in found.values())
    law = [setting.n_features, setting.n_samples, setting.density, setting.noise_std, setting.corruption]
    return [*map(str, law), *told, *limit, seconds]


def tabulate_speed() -> str:
    """Time to an error, elldict beside the fastest peer; a problem a line."""
    listed = problems()
    rounds = stored_rounds(listed, BENCHMARK_RESULTS / "bench.jsonl")
    lines = []
    for row in (row_of(problem, rounds.get(problem.name, [])) for problem in listed):
        if row is not None:
            ratio = f"{row.ratio:.2g}" if row.ratio >= 1 else f"**{row.ratio:.2g}**"
            times = [tell_time(row.ours_to_limit), tell_time(row.peers_to_own)]
            lines.append([name_problem(row.problem), tell_error(row.best_error), ratio, *times, f"{row.passes:.1f}"])
    head = ["problem", "best peer's error", "ratio", "elldict to the limit", "fastest peer to its own answer", "passes"]
    return write_table(head, lines)


def name_problem(problem: Problem) -> str:
    """What was drawn."""
    samples = f"{problem.n_samples:,}".replace(",", " ")
    noise = f"noise {problem.noise_std:g}" if problem.noise_std else "no noise"
    return f"n = {problem.n_features}, r = {samples}, density {problem.density:g}, {noise}"


def tabulate_gpu() -> str:
    """Whole fits on a graphics card."""
    records = Store(BENCHMARK_RESULTS / "gpu.jsonl").records.values()
    found = {record.identity["part"]: record.values for record in records}
    sizes = {"n100": (100, "40 000", 0.3), "n400": (400, "160 000", 0.3), "n1024": (1024, "10⁶", 0.1)}
    lines = []
    for part, (n, r, density) in sizes.items():
        ours = [tell_time(found[part][name]["milliseconds"] / 1e3) for name in ("default", "l3", "power_method")]
        peer, two = found[part].get("fast_ica"), found.get(f"{part}_fast_ica")
        told = tell_time(peer["milliseconds"] / 1e3) if peer else "-"
        if two is not None:
            told = f"{two['iterations']} of its iterations: {tell_time(two['milliseconds'] / 1e3)}"
        lines.append([f"n = {n}, r = {r}, density {density:g}", *ours, told])
    head = ["problem", "default fit, exact", "l_3 alone", "20 lines of torch, l_3", "FastICA, 16 cores"]
    return write_table(head, lines)


def tabulate_embeddings() -> str:
    """Fits of the size of embeddings on a graphics card, and first fits of a process."""
    parts = read_embeddings()["parts"]
    lines = []
    for part, (problem, asked) in EMBEDDINGS.items():
        for row in parts[part]["rows"]:
            kind = f", {row['name'].split()[-1]}" if len(parts[part]["rows"]) > 1 else ""
            found = f"{row['atoms']} of {row['of']}"
            lines.append([problem + kind, tell_time(row["seconds"]), asked, found, f"{row['passes']:.1f}"])
    for row in parts["cold"]["rows"]:
        size = row["name"].split()[0].replace("=", " = ")
        if row["name"].endswith("first, all"):
            lines.append([f"{size}, r = 400 n, the first fit of a process", tell_time(row["fit"]), "1.5 s", "all", "-"])
        elif row["name"].endswith(", all"):
            kind, asked = row["name"].split()[1].rstrip(","), f"{1e3 * float(row['asked']):.0f} ms"
            lines.append([f"{size}, r = 400 n, later, {kind}", tell_time(row["seconds"]), asked, "all", "-"])
    return write_table(["problem", "whole fit", "goal", "atoms found", "passes"], lines)


def tabulate_gpu_peers() -> str:
    """What others need for the same samples on the same card, beside later and first fits of elldict."""
    found = read_embeddings()
    later = {name: found["parts"][name]["rows"] for name in ("bg4096", "bg2048", "laplace768")}
    ours = {part: rows[0] for part, rows in later.items()} | {"loud768": later["laplace768"][1]}
    first = {row["name"]: row for row in found["parts"]["once"]["rows"]}
    problems = {part: problem for part, (problem, _) in EMBEDDINGS.items() if part in later}
    problems = {"laplace768": problems["laplace768"], "loud768": f"{problems['laplace768']}, loud"} | problems
    lines = []
    for part, problem in problems.items():
        row = ours[part]
        once = f"{tell_time(row['seconds'])}; {tell_time(first[part]['seconds'])}" if part in first else ""
        told = once or tell_time(row["seconds"])
        lines.append(
            [problem, "elldict, later; the only fit of a process" if once else "elldict", told, _tell_atoms(row)]
        )
        for peer in found["peers"]:
            if peer["problem"] == part and "seconds" in peer:
                name = f"{peer['peer']}, {peer['iterations']} iterations"
                lines.append(["", name, tell_time(peer["seconds"]), _tell_atoms(peer)])
            elif peer["problem"] == part:
                lines.append(["", peer["peer"], "fails", "-"])
    return write_table(["problem", "method", "whole fit", "atoms found"], lines)


def _tell_atoms(row: Row) -> str:
    return f"{row['atoms']} of {row['of']}"


def read_embeddings() -> dict[str, Any]:
    """Fits of the size of embeddings, by elldict and others, with the machine."""
    found: dict[str, Any] = json.loads((BENCHMARK_RESULTS / "embeddings.json").read_text(encoding="utf-8"))
    return found


# --- error bars -------------------------------------------------------------------------------------------------------


def tabulate_grid() -> str:
    """Stated errors beside true ones, in words and by kind of data set."""
    results = read_results(choose_cases(list(KINDS), 0, short=False), Store(BENCHMARK_RESULTS / "grid.jsonl"))
    total = Summary.of(results)
    low = sum(ratio < LEAST_UNWARNED for ratio in total.unwarned)
    text = (
        f"Of {total.n_sets} fits {len(total.warned)} warn. Of those that do not, {tell_share(total.within)} state an "
        f"error within a factor of two of the true one, and {low} state less than a third of it. Of those that warn, "
        f"{tell_share(total.covered)} state at least half of it. {total.false_exact} claim to be exact and are not.\n\n"
    )
    lines = []
    for name, found in list_kinds(results):
        each = Summary.of(found)
        lines.append([name, str(each.n_sets), tell_share(each.within), str(len(each.warned)), tell_share(each.covered)])
    head = ["kind", "sets", "no warning: within a factor of two", "warned", "warned: at least half the truth"]
    return text + write_table(head, lines)


def tabulate_ablation() -> str:
    """What each part of the new core earns."""
    return "\n".join(ablation.list_lines(json.loads(ablation.RESULTS.read_text(encoding="utf-8"))))


def tabulate_cases() -> str:
    """Special cases of the present core beside the new one."""
    return "\n".join(cases.list_lines(json.loads(cases.RESULTS.read_text(encoding="utf-8"))))


TABLES: dict[str, Callable[[], str]] = {
    "ablation": tabulate_ablation,
    "cases": tabulate_cases,
    "real": tabulate_real,
    "real-short": tabulate_real_in_short,
    "ica": tabulate_ica,
    "limit": tabulate_limit,
    "speed": tabulate_speed,
    "gpu": tabulate_gpu,
    "embeddings": tabulate_embeddings,
    "gpu-peers": tabulate_gpu_peers,
    "grid": tabulate_grid,
}


def list_pages() -> list[Path]:
    """Pages that may have tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def fill(text: str) -> str:
    """Put the tables of a page between their marks."""
    return MARKED.sub(_fill_one, text)


def _fill_one(match: re.Match[str]) -> str:
    begin, name, end = match.groups()
    if name not in TABLES:
        raise SystemExit(f"there is no table {name!r}; expected one of {', '.join(TABLES)}")
    return f"{begin}\n{TABLES[name]()}\n{end}"


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is not what is stored")
    options = parser.parse_args()
    old = []
    for page in list_pages():
        text = page.read_text(encoding="utf-8")
        filled = fill(text)
        if filled != text:
            old.append(page.name)
            if not options.check:
                page.write_text(filled, encoding="utf-8")
    print(f"{'not what is stored' if options.check else 'written'}: {', '.join(old) or 'none'}")
    raise SystemExit(1 if options.check and old else 0)


if __name__ == "__main__":
    main()
