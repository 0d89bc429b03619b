"""The commands, their arguments and options."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import elldict
from elldict.cli.files import check_output, open_data, read_groups, read_version, write_components
from elldict.cli.messages import Mistake, reword, translate
from elldict.cli.printing import describe_file, list_model, print_facts, print_json, print_model, shows_progress

Solver = StrEnum("Solver", ["auto", "power"])
Refine = StrEnum("Refine", {"auto": "auto", "sparse_corruption": "sparse-corruption", "none": "none"})
Normalize = StrEnum("Normalize", ["auto", "samples", "none"])
Algorithm = StrEnum("Algorithm", ["linear", "threshold", "hard_threshold", "top_k", "posterior"])

Method = partial(Option, rich_help_panel="Method")
Output = partial(Option, "-o", "--output", metavar="FILE")

Data = Annotated[Path, Argument(metavar="DATA", help="Samples as rows: a file or folder, or FILE:ARRAY.")]
Model = Annotated[Path, Argument(metavar="MODEL", help="Model written by 'elldict fit'.")]
Column = Annotated[list[str] | None, Option(metavar="NAME", help="Feature, or array of a file; may be repeated.")]
Force = Annotated[bool, Option("--force", help="Overwrite the output.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print warnings and errors only.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object instead.")]
Rows = Annotated[Path, Output(help="File to write: .npy, .csv, .tsv, .parquet or .feather.")]
Page = Annotated[Path, Output(help="Page to write: .html.")]

app = typer.Typer(
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find the components in which samples are sparse or independent, and how accurate they are.",
)


def command(function: Callable[..., None]) -> None:
    """Add a command; what the library says in it is put in the words of the command line."""

    @app.command()
    @wraps(function)
    def run(**options: Any) -> None:
        with translate(options.get("data"), options.get("checkpoint")):
            function(**options)


def parse_alpha(text: str) -> float | str:
    """Return the number that a text is, or 'auto'."""
    return int(text) if text.isdecimal() else text if text == "auto" else float(text)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return numbers separated by commas."""
    if not re.fullmatch(r"\d+(,\d+)+", text):
        raise ValueError(f"{text!r} is not like 8,8 or 8,8,3")
    return tuple(map(int, text.split(",")))


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        print(f"elldict {elldict.__version__}")
        raise typer.Exit


@app.callback()
def take_options(
    version: Annotated[bool, Option("--version", callback=show_version, is_eager=True, help="Version.")] = False,
) -> None:
    """Take the options before a command."""


@command
def fit(
    data: Data,
    output: Annotated[Path | None, Output(help="Model to write.", show_default="DATA.model.npz")] = None,
    column: Column = None,
    n_components: Annotated[int | None, Method(metavar="N", help="Number of components.", show_default="all")] = None,
    ica: Annotated[bool, Method("--ica", help="Independent components: centre, reduce to N, whiten.")] = False,
    center: Annotated[bool, Method(help="Subtract the mean.")] = False,
    whiten: Annotated[bool, Method(help="For components that are not orthogonal.")] = False,
    standardize: Annotated[bool, Method(help="Divide features by their standard deviation.")] = False,
    orthogonal: Annotated[bool, Method("--orthogonal", help="Keep codes of whitened samples uncorrelated.")] = False,
    normalize: Annotated[Normalize, Method(help="Scale samples of large norm down.")] = Normalize.auto,
    p: Annotated[float, Method(help="Exponent of the norm.")] = 3,
    solver: Annotated[Solver, Method(help="'power' is Algorithm 2 of the paper.")] = Solver.auto,
    refine: Annotated[Refine, Method(help="Maximum likelihood after the norm.")] = Refine.auto,
    max_iter: Annotated[int, Method(metavar="N", help="Maximum number of iterations of a climb.")] = 1000,
    tol: Annotated[float, Method(help="Size of the last step of --solver power.")] = 1e-6,
    error_bars: Annotated[bool | None, Method(help="Estimate errors.", show_default="but for --solver power")] = None,
    groups: Annotated[str | None, Method(metavar="FILE|COLUMN", help="Labels of dependent samples.")] = None,
    seed: Annotated[int, Method(min=0, metavar="N", help="Seed of the start of --solver power.")] = 0,
    checkpoint: Annotated[Path | None, Option(metavar="FILE", help="Where the state of the fit is kept.")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue from the checkpoint.")] = False,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find the components of samples, and write them to a model file."""
    began = time.perf_counter()
    output = output or Path(f"{Path(str(data).partition(':')[0]).resolve().stem}.model.npz")
    check_output(output, [data], force=force)
    if checkpoint is not None and checkpoint.resolve() in (output.resolve(), data.resolve()):
        raise Mistake(f"checkpoint {checkpoint} is also the input or the output. Choose another name.")
    if ica and (center or whiten):
        raise Mistake("--ica always centres and whitens. Leave out --center and --whiten.")
    if groups is not None and error_bars is False:
        raise Mistake("--groups does nothing with --no-error-bars: only errors depend on groups.")
    parameters: dict[str, Any] = {
        "n_components": n_components,
        "p": p,
        "solver": solver.value,
        "refine": None if refine is Refine.none else refine.value,
        "normalize": None if normalize is Normalize.none else normalize.value,
        "standardize": standardize,
        "orthogonal": orthogonal,
        "max_iter": max_iter,
        "tol": tol,
        "error_bars": "auto" if error_bars is None else error_bars,
        "random_state": seed,
        "verbose": shows_progress(quiet),
    }
    labels, column = read_groups(groups, data, column)
    samples = open_data(data, column)
    parameters |= {} if ica else {"center": center, "whiten": whiten}
    model = (elldict.LpICA if ica else elldict.LpDictionaryLearning)(**parameters)
    model.fit(samples, groups=labels, checkpoint=checkpoint, resume=resume)
    model.set_params(verbose=False)
    model.save(output, overwrite=True)
    seconds = time.perf_counter() - began
    if json:
        print_json({**list_model(model), "seconds": seconds, "model": output})
    elif not quiet:
        print_model(model, [("model", describe_file(output)), ("time", f"{seconds:.1f} s")])


@command
def transform(
    model: Model,
    data: Data,
    output: Rows,
    inverse: Annotated[bool, Option("--inverse", help="DATA holds codes: write their samples.")] = False,
    denoise: Annotated[bool, Option("--denoise", help="Write samples without noise.")] = False,
    algorithm: Annotated[Algorithm | None, Option(help="How codes are made.", show_default="the model's")] = None,
    alpha: Annotated[Any, Option(parser=parse_alpha, metavar="N|auto", help="Threshold; number for top_k.")] = None,
    noise_std: Annotated[float | None, Option(help="Noise of a feature, for --denoise.")] = None,
    column: Column = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the codes of samples, the samples of codes, or samples without noise."""
    if inverse + denoise + (algorithm is not None or alpha is not None) > 1:
        raise Mistake("--inverse, --denoise, and --algorithm with --alpha exclude each other.")
    if noise_std is not None and not denoise:
        raise Mistake("--noise-std does nothing without --denoise.")
    check_output(output, [model, data], force=force)
    fitted = elldict.load(model)
    choose_algorithm(fitted, algorithm, alpha)
    samples = open_data(data, column)
    if denoise:
        fitted.denoise(samples, noise_std=noise_std, out=output)
    else:
        (fitted.inverse_transform if inverse else fitted.transform)(samples, out=output)
    kind = "samples" if inverse else "denoised samples" if denoise else "codes"
    if json:
        print_json({"n_samples": samples.n_samples, "kind": kind, "output": output})
    elif not quiet:
        print_facts(f"{kind.capitalize()}: {samples.n_samples:,} rows", [("file", describe_file(output))])


def choose_algorithm(model: Any, algorithm: Algorithm | None, alpha: Any) -> None:
    """Put options in the place of the parameters of a model; one that would do nothing is a mistake."""
    own = getattr(model, "transform_algorithm", "linear")
    name = algorithm.value if algorithm else own
    if name != "linear" and not hasattr(model, "transform_algorithm"):
        raise Mistake(f"{type(model).__name__} makes linear codes only. Leave out --algorithm {name}.")
    if alpha is not None and name in ("linear", "posterior"):
        raise Mistake(f"--alpha does nothing with --algorithm {name}. Use threshold, hard_threshold or top_k.")
    if name != own:
        model.set_params(transform_algorithm=name, transform_alpha=None)
    if alpha is not None:
        model.set_params(transform_alpha=alpha)


@command
def score(model: Model, data: Data, column: Column = None, json: Json = False) -> None:
    """Show the mean log-likelihood of samples: the larger, the better the model fits them."""
    samples = open_data(data, column)
    found = elldict.load(model).score(samples)
    if json:
        print_json({"n_samples": samples.n_samples, "log_likelihood": found})
    else:
        title = f"{data}: {samples.n_samples:,} samples of {samples.n_features:,} features"
        print_facts(title, [("log-likelihood", f"{found:.6g} nats per sample"), ("model", str(model))])


@command
def report(
    model: Model,
    output: Page,
    data: Annotated[Path | None, Argument(metavar="[DATA]", help="Samples whose codes are shown.")] = None,
    shape: Annotated[Any, Option(parser=parse_shape, metavar="H,W", help="Samples are images: 8,8 or 8,8,3.")] = None,
    column: Column = None,
    force: Force = False,
) -> None:
    """Write a page about a model: components, errors, warnings, and the codes of samples."""
    check_output(output, [model, data], force=force)
    fitted = elldict.load(model)
    fitted.report(None if data is None else open_data(data, column), output, shape=shape)
    print_facts(f"Report on {fitted.n_components_:,} components", [("page", describe_file(output))])


@command
def info(model: Model, json: Json = False) -> None:
    """Show what a model is: size, errors, options, warnings and first components."""
    fitted, version = elldict.load(model), read_version(model)
    if json:
        print_json({**list_model(fitted), "elldict": version, "model": model})
    else:
        warnings = [reword(message) for _, message in fitted.warnings_]
        print_model(fitted, [("model", f"{describe_file(model)}, by elldict {version}")], warnings)


@command
def export(model: Model, output: Rows, force: Force = False) -> None:
    """Write the components as rows, for other programs; tables have the names of the features."""
    check_output(output, [model], force=force)
    fitted = elldict.load(model)
    write_components(fitted, output)
    print_facts(f"Components: {fitted.n_components_:,} rows", [("file", describe_file(output))])


@command
def demo(output: Page = Path("elldict-demo.html"), force: Force = False, quiet: Quiet = False) -> None:
    """Write a page with three short studies; takes some seconds, and needs no data."""
    check_output(output, [], force=force)
    from elldict.progress import show_progress  # noqa: PLC0415
    from elldict.report.demo import make_demo  # noqa: PLC0415
    from elldict.report.figures import require  # noqa: PLC0415
    from elldict.report.page import write_page  # noqa: PLC0415

    require("matplotlib")  # now, not after the studies
    require("jinja2")
    with show_progress("demo") if shows_progress(quiet) else nullcontext() as line:
        write_page(lambda: make_demo(line.show if line else lambda _: None), output)
    if not quiet:
        print_facts("Demo", [("page", describe_file(output))])
