"""The commands: their arguments, and the calls that do the work."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elldict._old.atomic import write_atomically
from elldict._old.cli import options as opt
from elldict._old.cli.checks import (
    check_checkpoint_name,
    check_output,
    choose_algorithm,
    parse_exponents,
    read_groups,
    refuse_with_ica,
)
from elldict._old.cli.errors import MistakeError, print_message, raise_as_mistakes
from elldict._old.cli.printing import (
    describe_file,
    list_fit,
    list_model,
    print_demo,
    print_json,
    print_summary,
    show_demo_progress,
    show_fit_progress,
)

if TYPE_CHECKING:
    from elldict._old.data.dataset import Dataset
    from elldict._old.estimator import LpEstimator

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Dictionary learning by l_p-norm maximisation: find the basis in which your samples are sparse.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from elldict import __version__  # noqa: PLC0415
        from elldict._old.backend.host_kernels import describe_kernels  # noqa: PLC0415

        print(f"elldict {__version__}, kernels: {describe_kernels()}")
        raise typer.Exit


@app.callback()
def elldict(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Page to write.")] = Path("elldict-demo.html"),
    picture: Annotated[Path | None, typer.Option(help="Also write one picture (.png) for a README or a slide.")] = None,
    force: opt.Force = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: a few seconds, larger errors.")] = False,
) -> None:
    """Recover a hidden dictionary, learn one from handwritten digits, and write a page about both.

    Takes under a minute and needs no network. The picture in docs/first-steps.md was made by
    'elldict demo --picture docs/images/demo.png --force'.
    """
    _require_page_packages("the demo", "demo")
    if picture is not None and picture.resolve() == output.resolve():
        raise MistakeError(f"page and picture are both {output}. Choose two names.")
    for path in [output] if picture is None else [output, picture]:
        check_output(path, force)
    from elldict._old.report import demo as page  # noqa: PLC0415

    with show_demo_progress() as show:
        results = page.compute_demo(page.QUICK if quick else page.FULL, show)
    write_atomically(output, lambda stream: stream.write(page.render_page(results).encode()))
    written = [("page", output)]
    if picture is not None:
        write_atomically(picture, lambda stream: stream.write(page.draw_picture(results)))
        written.append(("picture", picture))
    print_demo(results, written)


@app.command()
def fit(
    data: opt.DataFile,
    output: opt.ModelOutput,
    n_components: opt.Components = None,
    p: opt.Exponents = "3",
    solver: opt.SolverName = opt.Solver.auto,
    refine: opt.Refine = opt.Refinement.auto,
    normalize: opt.Normalize = opt.Normalization.auto,
    ica: opt.Ica = False,
    center: opt.Center = None,
    whiten: opt.Whiten = None,
    whiten_all: opt.WhitenAll = False,
    max_iter: opt.MaxIter = 1000,
    tol: opt.Tol = 1e-6,
    n_init: opt.Starts = 1,
    halves: opt.Halves = None,
    groups: opt.Groups = None,
    device: opt.Device = None,
    seed: opt.Seed = None,
    column: opt.Column = None,
    block_size: opt.BlockSize = None,
    checkpoint: opt.Checkpoint = None,
    resume: opt.Resume = False,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
    json: opt.AsJson = False,
) -> None:
    """Learn a dictionary from samples and write it to a file.

    With '--solver power --refine none' this is Algorithm 2 of the paper.
    """
    check_output(output, force, inputs=(data,))
    check_checkpoint_name(checkpoint, output, data)
    common: dict[str, Any] = {
        "p": parse_exponents(p),
        "solver": solver.value,
        "refine": None if refine is opt.Refinement.none else refine.value,
        "normalize": None if normalize is opt.Normalization.none else normalize.value,
        "max_iter": max_iter,
        "tol": tol,
        "n_init": n_init,
        "halves": "auto" if halves is None else halves,
        "device": device,
        "random_state": seed,
    }
    if ica:
        refuse_with_ica(center, whiten, whiten_all or None)
    else:
        common |= {"center": bool(center), "whiten": "all" if whiten_all else bool(whiten)}
    labels = read_groups(groups, halves)
    model = _make_model(n_components, common, ica=ica)
    began = time.perf_counter()
    with raise_as_mistakes(data), show_fit_progress(p, tol, quiet) as callback:
        samples = _open_data(data, column, block_size)
        model.fit(samples, groups=labels, callback=callback, checkpoint=checkpoint, resume=resume)
    seconds = time.perf_counter() - began
    model.save(output)
    shape = (samples.n_samples, samples.n_features)
    if json:
        print_json({**list_fit(model, shape, seconds), "model": str(output)})
    elif not quiet:
        from elldict._old.summary import describe_fit  # noqa: PLC0415

        lines = (*describe_fit(model, seconds), ("model", describe_file(output)))
        print_summary(f"[bold]Learned {model.n_components_} atoms[/] from {samples.n_samples} samples", lines)


def _make_model(n_components: int | None, parameters: dict[str, Any], *, ica: bool) -> LpEstimator:
    from elldict import LpDictionaryLearning, LpICA  # noqa: PLC0415

    return LpICA(n_components, **parameters) if ica else LpDictionaryLearning(n_components, **parameters)


@app.command()
def transform(
    model: opt.ModelFile,
    data: opt.DataFile,
    output: opt.RowsOutput,
    algorithm: opt.AlgorithmName = None,
    alpha: opt.Alpha = None,
    n_nonzero: opt.NonZero = None,
    column: opt.Column = None,
    block_size: opt.BlockSize = None,
    force: opt.Force = False,
    json: opt.AsJson = False,
) -> None:
    """Write the codes of samples: their sparse coordinates in a learned dictionary."""
    check_output(output, force, inputs=(model, data), zarr=True)
    fitted = _open_model(model)
    name = choose_algorithm(fitted, algorithm, alpha, n_nonzero)
    from elldict._old.cli.counting import CountedSamples  # noqa: PLC0415

    with raise_as_mistakes(data):
        samples = CountedSamples(_open_data(data, column, block_size))
        fitted.transform(samples, out=output)
    n_samples, n_atoms = samples.n_samples, fitted.n_components_
    share = samples.n_nonzero / (n_samples * n_atoms)
    if share == 0:
        print_message("warning: all codes are zero. Lower --alpha, or set --alpha auto.")
    if json:
        facts = {"samples": n_samples, "atoms": n_atoms, "algorithm": name, "nonzero_share": share}
        print_json({**facts, "codes": str(output)})
        return
    lines = [
        ("algorithm", name),
        ("non-zero", f"{100 * share:.3g} % of the codes"),
        ("codes", describe_file(output)),
    ]
    print_summary(f"[bold]Coded {n_samples} samples[/] in {n_atoms} atoms", lines)


@app.command()
def inverse(
    model: opt.ModelFile,
    codes: opt.CodeFile,
    output: opt.RowsOutput,
    column: opt.Column = None,
    block_size: opt.BlockSize = None,
    force: opt.Force = False,
    json: opt.AsJson = False,
) -> None:
    """Write the samples that codes stand for: the way back from 'elldict transform'."""
    check_output(output, force, inputs=(model, codes), zarr=True)
    fitted = _open_model(model)
    with raise_as_mistakes():
        opened = _open_data(codes, column, block_size)
        fitted.inverse_transform(opened, out=output)
    shape = (opened.n_samples, fitted.n_features_in_)
    if json:
        print_json({"samples": shape[0], "features": shape[1], "file": str(output)})
        return
    print_summary(f"[bold]Rebuilt {shape[0]} samples[/] of {shape[1]} features", [("samples", describe_file(output))])


@app.command()
def denoise(
    model: opt.ModelFile,
    data: opt.DataFile,
    output: opt.RowsOutput,
    noise_std: opt.NoiseStd = None,
    column: opt.Column = None,
    block_size: opt.BlockSize = None,
    force: opt.Force = False,
    json: opt.AsJson = False,
) -> None:
    """Write samples without noise and corruption: their posterior mean under the law that was learned.

    For patches of photographs with noise of 25 a threshold is better: 'elldict transform --algorithm hard_threshold
    --alpha 67.5', which is 2.7 times the noise, then 'elldict inverse'.
    """
    check_output(output, force, inputs=(model, data), zarr=True)
    fitted = _open_model(model)
    with raise_as_mistakes(data):
        samples = _open_data(data, column, block_size)
        fitted.denoise(samples, noise_std=noise_std, out=output)
    n_samples, n_features = samples.n_samples, fitted.n_features_in_
    if json:
        noise = fitted.noise_std_ if noise_std is None else noise_std
        facts = {"samples": n_samples, "features": n_features, "noise_std": noise}
        print_json({**facts, "corruption_rate": fitted.corruption_rate_, "file": str(output)})
        return
    fitted_noise = f"{fitted.noise_std_:.3g}, standard deviation of a code, as it was learned"
    lines = [("noise", fitted_noise if noise_std is None else f"{noise_std:.3g}, standard deviation of a feature")]
    if fitted.corruption_rate_ > 0:
        lines.append(("corruption", f"{100 * fitted.corruption_rate_:.2g} % of the entries were learned from"))
    lines.append(("samples", describe_file(output)))
    print_summary(f"[bold]Cleaned {n_samples} samples[/] of {n_features} features", lines)


@app.command()
def score(
    model: opt.ModelFile,
    data: opt.DataFile,
    column: opt.Column = None,
    block_size: opt.BlockSize = None,
    json: opt.AsJson = False,
) -> None:
    """Show how likely samples are under a learned dictionary: the larger, the better it fits them."""
    fitted = _open_model(model)
    with raise_as_mistakes(data):
        samples = _open_data(data, column, block_size)
        found = fitted.score(samples)
    if json:
        print_json({"samples": samples.n_samples, "log_likelihood": found})
        return
    print_summary(f"[bold]Scored {samples.n_samples} samples[/]", [("log-likelihood", f"{found:.6g} a sample")])


@app.command()
def report(
    model: opt.ModelFile,
    data: opt.DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PAGE.html", help="Page to write.")],
    shape: Annotated[
        str | None, typer.Option(help="Shape of an image, such as 8,8 or 8,8,3.", show_default="square, if it can be")
    ] = None,
    column: opt.Column = None,
    block_size: opt.BlockSize = None,
    force: opt.Force = False,
) -> None:
    """Write a page about a model: its atoms, how sure they are, what was assumed, and what to do next."""
    _require_page_packages("a report", "plot")
    check_output(output, force, inputs=(model, data))
    fitted = _open_model(model)
    with raise_as_mistakes(data):
        fitted.report(_open_data(data, column, block_size), output, shape=_parse_shape(shape))
    lines = [
        ("doubts", ", ".join(category for category, _ in fitted.warnings_) or "none"),
        ("page", describe_file(output)),
    ]
    print_summary(f"[bold]Reported on {fitted.n_components_} atoms[/]", lines)


@app.command()
def info(model: opt.ModelFile, json: opt.AsJson = False) -> None:
    """Show what a model file holds."""
    from elldict._old.summary import describe_model  # noqa: PLC0415

    fitted = _open_model(model)
    if json:
        print_json({"file": str(model), **list_model(fitted)})
        return
    lines = (("file", describe_file(model)), *describe_model(fitted))
    print_summary(f"[bold]{type(fitted).__name__}[/]", lines)


@app.command()
def export(model: opt.ModelFile, output: opt.AtomsOutput, force: opt.Force = False) -> None:
    """Write the atoms of a model, one for each row, for other programs.

    A text has the names of the features in its first line. A .npz or .mat file holds the rows that make codes
    (unmixing), the mean, and what the fit says of each atom as well.
    """
    check_output(output, force, inputs=(model,))
    fitted = _open_model(model)
    from elldict._old.cli.export import write_atoms  # noqa: PLC0415

    with raise_as_mistakes():
        write_atoms(fitted, output)
    shape = f"{fitted.n_components_} atoms[/] of {fitted.n_features_in_} features"
    print_summary(f"[bold]Exported {shape}", [("atoms", describe_file(output))])


def _require_page_packages(what: str, extra: str) -> None:
    """Say which packages are missing before the work starts."""
    missing = [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise MistakeError(f"{what} needs {' and '.join(missing)}: pip install '.[{extra}]' in a clone of elldict")


def _parse_shape(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise MistakeError(f"--shape {text!r}: expected numbers with commas between, such as 8,8 or 8,8,3.") from None


def _open_data(path: Path, columns: Sequence[str] | None, block_size: int | None) -> Dataset:
    """Samples of a file, left on disk."""
    from elldict._old.data.open import open_samples  # noqa: PLC0415

    column = columns[0] if columns and len(columns) == 1 else columns or None
    return open_samples(path, column=column, block_size=block_size)


def _open_model(path: Path) -> LpEstimator:
    from elldict._old.models import load  # noqa: PLC0415

    with raise_as_mistakes():
        return load(path)
