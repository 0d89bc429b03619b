"""The command line: arguments and printing only.

Whatever a user can get wrong ends in one line on standard error and exit code 2; see `run`. What takes long to import
is imported by the command that needs it, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elldict.atomic import write_atomically
from elldict.command_files import MistakeError, check_output, open_data, share_not_zero
from elldict.command_printing import (
    demo_bar,
    fit_bar,
    make_console,
    named_file,
    print_demo,
    print_fit,
    print_line,
    print_model,
)
from elldict.command_reproduce import reproduce

if TYPE_CHECKING:
    from elldict.estimator import LpDictionaryLearning

__all__ = ["app", "main", "run"]

MISTAKE = 2
INTERRUPTED = 130

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments: its own class or click's, depending on its version."""

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Dictionary learning by l_p-norm maximisation: find the basis in which your samples are sparse.",
)


class Refinement(StrEnum):
    """What may follow the l_p stages."""

    auto = "auto"
    bernoulli_gaussian = "bernoulli-gaussian"
    sparse_corruption = "sparse-corruption"
    none = "none"


class Algorithm(StrEnum):
    """Ways to make codes."""

    linear = "linear"
    threshold = "threshold"
    hard_threshold = "hard_threshold"
    omp = "omp"


DataFile = Annotated[
    Path, typer.Argument(metavar="DATA", help="Samples, one for each row: a .npy, zarr or parquet file, or a folder.")
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.npz", help="Model written by 'elldict fit'.")]
Column = Annotated[
    list[str] | None,
    typer.Option(help="Column of lists, or (given again and again) columns that are features; array of a zarr group."),
]
BlockSize = Annotated[
    int | None, typer.Option(min=1, help="Samples that are read at a time.", show_default="16 MB of them")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]


# --- entry points -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code: the one place where mistakes become lines."""
    try:
        with _warnings_as_lines():
            code = app(list(arguments) or ["--help"], prog_name="elldict", standalone_mode=False) or 0
    except UsageError as error:
        return _fail(error.format_message().removesuffix(".") + ". See 'elldict --help'.")
    except MistakeError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(_reason(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code and says nothing
        _say("interrupted.")
    return int(code)


# --- commands ---------------------------------------------------------------------------------------------------------


def _show_version(wanted: bool) -> None:
    if wanted:
        from elldict import __version__  # noqa: PLC0415

        print(f"elldict {__version__}")
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
    force: Force = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: a few seconds, larger errors.")] = False,
) -> None:
    """Recover a hidden dictionary, learn one from handwritten digits, and write a page about both.

    Takes under a minute and needs no network. The picture in the README was made by
    'elldict demo --picture docs/images/demo.png --force'.
    """
    _need("matplotlib", "jinja2")
    if picture is not None and picture.resolve() == output.resolve():
        raise MistakeError(f"page and picture are both {output}. Choose two names.")
    for path in [output] if picture is None else [output, picture]:
        check_output(path, force)
    from elldict.report import demo as page  # noqa: PLC0415

    with demo_bar() as report:
        results = page.compute_demo(page.QUICK if quick else page.FULL, report)
    write_atomically(output, lambda stream: stream.write(page.render_page(results).encode()))
    print_demo(results)
    print_line(make_console(), "page", named_file(output))
    if picture is not None:
        write_atomically(picture, lambda stream: stream.write(page.draw_picture(results)))
        print_line(make_console(), "picture", named_file(picture))


@app.command()
def fit(
    data: DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="MODEL.npz", help="Where the model goes.")],
    n_components: Annotated[int | None, typer.Option(help="Number of atoms.", show_default="all")] = None,
    p: Annotated[str, typer.Option(help="Exponent of the norm, above 2; or falling ones, such as 3,2.5,2.2.")] = "3",
    refine: Annotated[
        Refinement, typer.Option(help="Maximum likelihood after l_p; 'none' gives the paper's answer.")
    ] = Refinement.auto,
    center: Annotated[bool, typer.Option("--center/--no-center", help="Subtract the mean of the samples.")] = False,
    whiten: Annotated[bool, typer.Option("--whiten/--no-whiten", help="Atoms need not be orthogonal.")] = False,
    max_iter: Annotated[int, typer.Option(help="Most iterations of a start.")] = 1000,
    tol: Annotated[float, typer.Option(help="Step at which a start has converged.")] = 1e-6,
    n_init: Annotated[int, typer.Option(help="Number of random starts.")] = 1,
    device: Annotated[
        str | None, typer.Option(help="'cuda', or 'cuda:1', works on a graphics card.", show_default="the host")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random starts.", show_default="random")] = None,
    column: Column = None,
    block_size: BlockSize = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep here what is learned on the way, against interruptions.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")] = False,
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Learn a dictionary from samples and write it to a file."""
    check_output(output, force, inputs=(data,))
    if checkpoint is not None and checkpoint.resolve() in (output.resolve(), data.resolve()):
        raise MistakeError(f"checkpoint {checkpoint} is also the input or the output. Choose another name.")
    exponents = _exponents(p)
    from elldict.estimator import LpDictionaryLearning  # noqa: PLC0415

    model = LpDictionaryLearning(
        n_components,
        p=exponents,
        refine=None if refine is Refinement.none else refine.value,
        center=center,
        whiten=whiten,
        max_iter=max_iter,
        tol=tol,
        n_init=n_init,
        device=device,
        random_state=seed,
    )
    began = time.perf_counter()
    with _mistakes_named(), fit_bar(p, tol, quiet) as callback:
        samples = open_data(data, column or (), block_size)
        model.fit(samples, callback=callback, checkpoint=checkpoint, resume=resume)
    seconds = time.perf_counter() - began
    model.save(output)
    if not quiet:
        print_fit(model, (samples.n_samples, samples.n_features), seconds, output)


@app.command()
def transform(
    model: ModelFile,
    data: DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="CODES", help="Where the codes go, .npy or .zarr.")],
    algorithm: Annotated[Algorithm | None, typer.Option(help="How codes are made.", show_default="the model's")] = None,
    alpha: Annotated[float | None, typer.Option(help="Threshold, in the units of the codes.")] = None,
    n_nonzero: Annotated[int | None, typer.Option(min=1, help="Codes that omp keeps for each sample.")] = None,
    column: Column = None,
    block_size: BlockSize = None,
    force: Force = False,
) -> None:
    """Write the codes of samples: their sparse coordinates in a learned dictionary."""
    check_output(output, force, inputs=(model, data), zarr=True)
    fitted = _open_model(model)
    _choose_algorithm(fitted, algorithm, alpha, n_nonzero)
    with _mistakes_named():
        codes = fitted.transform(open_data(data, column or (), block_size), out=output)
    console = make_console()
    console.print(f"[bold]Coded {codes.shape[0]} samples[/] in {codes.shape[1]} atoms", highlight=False)
    print_line(console, "algorithm", fitted.transform_algorithm)
    print_line(console, "non-zero", f"{100 * share_not_zero(output):.3g} % of the codes")
    print_line(console, "codes", named_file(output))


@app.command()
def score(model: ModelFile, data: DataFile, column: Column = None, block_size: BlockSize = None) -> None:
    """Show how likely samples are under a learned dictionary: the larger, the better it fits them."""
    fitted = _open_model(model)
    with _mistakes_named():
        samples = open_data(data, column or (), block_size)
        found = fitted.score(samples)
    console = make_console()
    console.print(f"[bold]Scored {samples.n_samples} samples[/]", highlight=False)
    print_line(console, "log-likelihood", f"{found:.6g} a sample")


@app.command()
def info(model: ModelFile) -> None:
    """Show what a model file holds."""
    print_model(_open_model(model), model)


app.command()(reproduce)


# --- what the commands are made of ------------------------------------------------------------------------------------


def _open_model(path: Path) -> LpDictionaryLearning:
    from elldict.estimator import load  # noqa: PLC0415

    with _mistakes_named():
        return load(path)


def _choose_algorithm(
    model: LpDictionaryLearning, algorithm: Algorithm | None, alpha: float | None, n_nonzero: int | None
) -> None:
    """Put the options of the command line in place of the model's; an option that would do nothing is a mistake."""
    name = algorithm.value if algorithm else model.transform_algorithm
    if alpha is not None and name not in ("threshold", "hard_threshold"):
        raise MistakeError(f"--alpha does nothing with --algorithm {name}. Use threshold or hard_threshold.")
    if n_nonzero is not None and name != "omp":
        raise MistakeError(f"--n-nonzero does nothing with --algorithm {name}. Use omp.")
    if alpha is not None and not alpha >= 0:
        raise MistakeError(f"--alpha {alpha:g}: expected a number >= 0.")
    model.transform_algorithm = name
    if alpha is not None:
        model.transform_alpha = alpha
    if n_nonzero is not None:
        model.transform_n_nonzero_coefs = n_nonzero


def _exponents(text: str) -> float | tuple[float, ...]:
    try:
        exponents = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise MistakeError(f"--p {text!r}: expected a number above 2, or several with commas between.") from None
    return exponents[0] if len(exponents) == 1 else exponents


def _need(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MistakeError(f"the demo needs {' and '.join(missing)}: pip install 'elldict[demo]'")


# --- mistakes and warnings --------------------------------------------------------------------------------------------


@contextmanager
def _mistakes_named() -> Iterator[None]:
    """The library raises these for what it was given, or lacks; anywhere else they would be faults of ours."""
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        raise MistakeError(str(error)) from error
    except MemoryError as error:
        raise MistakeError(f"not enough memory: {error}") from error


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    def show(message: Warning | str, category: type[Warning], *_place: Any, **_more: Any) -> None:  # noqa: ARG001
        _say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)  # what a fit has to say is not silenced, nor made an error
        warnings.showwarning = show
        yield


def _fail(message: str) -> int:
    _say(f"error: {message}")
    return MISTAKE


def _say(message: str) -> None:
    """One line on standard error, whatever the message looked like."""
    print(f"elldict: {' '.join(message.split())}", file=sys.stderr)


def _reason(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}."
