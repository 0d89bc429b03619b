"""The commands: their arguments, what is checked before the work starts, and the calls that do it."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from elldict.atomic import temporary_beside, write_atomically
from elldict.cli.errors import MistakeError, raise_as_mistakes
from elldict.cli.printing import (
    describe_file,
    describe_fit,
    describe_model,
    print_demo,
    print_summary,
    show_demo_progress,
    show_fit_progress,
)

if TYPE_CHECKING:
    from elldict.backend.base import Array, Backend
    from elldict.data.dataset import Dataset
    from elldict.estimator import LpEstimator

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Dictionary learning by l_p-norm maximisation: find the basis in which your samples are sparse.",
)


Solver = StrEnum("Solver", ["auto", "power"])
Refinement = StrEnum(
    "Refinement",
    {
        "auto": "auto",
        "bernoulli": "bernoulli-gaussian",
        "mixture": "mixture",
        "corruption": "sparse-corruption",
        "none": "none",
    },
)
Normalization = StrEnum("Normalization", ["auto", "samples", "none"])
Algorithm = StrEnum("Algorithm", ["linear", "threshold", "hard_threshold", "omp"])

DataFile = Annotated[
    Path, typer.Argument(metavar="DATA", help="Samples, one for each row: a .npy, zarr or parquet file, or a folder.")
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.npz", help="Model written by 'elldict fit'.")]
Column = Annotated[
    list[str] | None,
    typer.Option(help="Column of lists, or (given several times) columns that are features; array of a zarr group."),
]
BlockSize = Annotated[
    int | None, typer.Option(min=1, help="Samples that are read at a time.", show_default="16 MB of them")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]


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

    Takes under a minute and needs no network. The picture in docs/first-steps.md was made by
    'elldict demo --picture docs/images/demo.png --force'.
    """
    missing = [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise MistakeError(f"the demo needs {' and '.join(missing)}: pip install 'elldict[demo]'")
    if picture is not None and picture.resolve() == output.resolve():
        raise MistakeError(f"page and picture are both {output}. Choose two names.")
    for path in [output] if picture is None else [output, picture]:
        _check_output(path, force)
    from elldict.report import demo as page  # noqa: PLC0415

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
    data: DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="MODEL.npz", help="Where the model goes.")],
    n_components: Annotated[int | None, typer.Option(help="Number of atoms.", show_default="all")] = None,
    p: Annotated[
        str, typer.Option(help="Exponent of the norm, above 0 but not 2; or decreasing ones, such as 3,2.5,2.2.")
    ] = "3",
    solver: Annotated[
        Solver, typer.Option(help="'power' is the paper's: all samples in every iteration; 'auto' needs far fewer.")
    ] = Solver.auto,
    refine: Annotated[
        Refinement,
        typer.Option(
            help="Maximum likelihood after l_p, by the law of the codes: 'bernoulli-gaussian' for zeros and noise, "
            "'mixture' for any other, 'sparse-corruption' for entries that were hit; 'auto' tests which the data "
            "support, 'none' gives the l_p answer."
        ),
    ] = Refinement.auto,
    normalize: Annotated[
        Normalization,
        typer.Option(help="Scale loud samples down: 'samples' always, 'auto' if the data call for it, 'none' never."),
    ] = Normalization.auto,
    ica: Annotated[
        bool, typer.Option("--ica", help="Independent components: centre, whiten, and keep the model of an LpICA.")
    ] = False,
    center: Annotated[
        bool | None,
        typer.Option("--center/--no-center", help="Subtract the mean of the samples.", show_default="--no-center"),
    ] = None,
    whiten: Annotated[
        bool | None,
        typer.Option(
            "--whiten/--no-whiten",
            help="Atoms need not be orthogonal; fewer than features are learned in as many principal directions.",
            show_default="--no-whiten",
        ),
    ] = None,
    whiten_all: Annotated[
        bool, typer.Option("--whiten-all", help="The same, but fewer atoms are sought in all directions.")
    ] = False,
    max_iter: Annotated[int, typer.Option(help="Most iterations of a start.")] = 1000,
    tol: Annotated[float, typer.Option(help="Step (root mean square) at which a start has converged.")] = 1e-6,
    n_init: Annotated[int, typer.Option(help="Number of random starts.")] = 1,
    device: Annotated[
        str | None, typer.Option(help="'cuda', or 'cuda:1', works on a graphics card.", show_default="the host")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random starts.", show_default="random")] = None,
    column: Column = None,
    block_size: BlockSize = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the state here, to resume after an interruption.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")] = False,
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Learn a dictionary from samples and write it to a file.

    With '--solver power --refine none' this is Algorithm 2 of the paper.
    """
    _check_output(output, force, inputs=(data,))
    if ica:
        _refuse_with_ica(center, whiten, whiten_all or None)
    if checkpoint is not None and checkpoint.resolve() in (output.resolve(), data.resolve()):
        raise MistakeError(f"checkpoint {checkpoint} is also the input or the output. Choose another name.")
    common: dict[str, Any] = {
        "p": _parse_exponents(p),
        "solver": solver.value,
        "refine": None if refine is Refinement.none else refine.value,
        "normalize": None if normalize is Normalization.none else normalize.value,
        "max_iter": max_iter,
        "tol": tol,
        "n_init": n_init,
        "device": device,
        "random_state": seed,
    }
    from elldict import LpDictionaryLearning, LpICA  # noqa: PLC0415

    model: LpEstimator
    if ica:
        model = LpICA(n_components, **common)
    else:
        directions = "all" if whiten_all else bool(whiten)
        model = LpDictionaryLearning(n_components, center=bool(center), whiten=directions, **common)
    began = time.perf_counter()
    with raise_as_mistakes(), show_fit_progress(p, tol, quiet) as callback:
        samples = _open_data(data, column, block_size)
        model.fit(samples, callback=callback, checkpoint=checkpoint, resume=resume)
    seconds = time.perf_counter() - began
    model.save(output)
    if not quiet:
        shape = (samples.n_samples, samples.n_features)
        lines = (*describe_fit(model, shape, seconds), ("model", describe_file(output)))
        print_summary(f"[bold]Learned {model.n_components_} atoms[/] from {shape[0]} samples", lines)


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
    _check_output(output, force, inputs=(model, data), zarr=True)
    fitted = _open_model(model)
    name = _choose_algorithm(fitted, algorithm, alpha, n_nonzero)
    with raise_as_mistakes():
        codes = fitted.transform(_open_data(data, column, block_size), out=output)
    written = _open_data(output, None, None)  # a block at a time, as whoever wrote them did
    share = written.sum(NonZeroKernel()) / (written.n_samples * written.n_features)
    lines = [
        ("algorithm", name),
        ("non-zero", f"{100 * share:.3g} % of the codes"),
        ("codes", describe_file(output)),
    ]
    print_summary(f"[bold]Coded {codes.shape[0]} samples[/] in {codes.shape[1]} atoms", lines)


@app.command()
def score(model: ModelFile, data: DataFile, column: Column = None, block_size: BlockSize = None) -> None:
    """Show how likely samples are under a learned dictionary: the larger, the better it fits them."""
    fitted = _open_model(model)
    with raise_as_mistakes():
        samples = _open_data(data, column, block_size)
        found = fitted.score(samples)
    print_summary(f"[bold]Scored {samples.n_samples} samples[/]", [("log-likelihood", f"{found:.6g} a sample")])


@app.command()
def info(model: ModelFile) -> None:
    """Show what a model file holds."""
    fitted = _open_model(model)
    lines = (("file", describe_file(model)), *describe_model(fitted))
    print_summary(f"[bold]{type(fitted).__name__}[/]", lines)


def _check_output(path: Path, force: bool, inputs: Sequence[Path] = (), *, zarr: bool = False) -> None:
    """Raise now what would otherwise be found out after the work is done; a zarr array is a folder."""
    if path.is_dir() and not (zarr and path.suffix == ".zarr"):
        raise MistakeError(f"output {path} is a directory, expected the name of a file.")
    if not path.parent.is_dir():
        raise MistakeError(f"output folder {path.parent} does not exist. Create it first.")
    if path.exists():
        if not path.is_file() and not path.is_dir():
            raise MistakeError(f"output {path} is not a regular file. Choose another name.")
        if any(given.exists() and path.samefile(given) for given in inputs):
            raise MistakeError(f"output {path} is also an input. Choose another name.")
        if not force:
            raise MistakeError(f"output {path} exists. Overwrite it with --force.")
    try:
        probe = temporary_beside(path)  # the only sure test: permissions, quotas and read-only disks all have a say
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise MistakeError(f"output {path} cannot be written: {error.strerror}.") from error


def _open_data(path: Path, columns: Sequence[str] | None, block_size: int | None) -> Dataset:
    """Samples of a file, left on disk."""
    from elldict.data.open import open_samples  # noqa: PLC0415

    column = columns[0] if columns and len(columns) == 1 else columns or None
    return open_samples(path, column=column, block_size=block_size)


def _open_model(path: Path) -> LpEstimator:
    from elldict.models import load  # noqa: PLC0415

    with raise_as_mistakes():
        return load(path)


class NonZeroKernel:
    """Number of values that are not zero."""

    def bind(self, backend: Backend) -> Callable[[Array], int]:  # noqa: ARG002
        """Return the function that counts in one tile."""
        return np.count_nonzero


def _choose_algorithm(
    model: LpEstimator, algorithm: Algorithm | None, alpha: float | None, n_nonzero: int | None
) -> str:
    """Put the options of the command line in place of the model's; an option that would do nothing is a mistake."""
    own = getattr(model, "transform_algorithm", None)
    if own is None and algorithm not in (None, Algorithm.linear):
        raise MistakeError(f"--algorithm {algorithm.value}: {type(model).__name__} makes linear codes and no others.")
    name = algorithm.value if algorithm else own or "linear"
    if alpha is not None and name not in ("threshold", "hard_threshold"):
        raise MistakeError(f"--alpha does nothing with --algorithm {name}. Use threshold or hard_threshold.")
    if n_nonzero is not None and name != "omp":
        raise MistakeError(f"--n-nonzero does nothing with --algorithm {name}. Use omp.")
    if alpha is not None and not alpha >= 0:
        raise MistakeError(f"--alpha {alpha:g}: expected a number >= 0.")
    if own is not None:
        model.transform_algorithm = name
    if alpha is not None:
        model.transform_alpha = alpha
    if n_nonzero is not None:
        model.transform_n_nonzero_coefs = n_nonzero
    return name


def _refuse_with_ica(center: bool | None, whiten: bool | None, whiten_all: bool | None) -> None:
    """An option that would do nothing, or undo what --ica says, is a mistake."""
    for name, value in (("center", center), ("whiten", whiten), ("whiten-all", whiten_all)):
        if value is not None:
            raise MistakeError(f"--ica always centres and whitens. Leave out --{'' if value else 'no-'}{name}.")


def _parse_exponents(text: str) -> float | tuple[float, ...]:
    try:
        exponents = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise MistakeError(
            f"--p {text!r}: expected a number above 0 but not 2, or several with commas between."
        ) from None
    return exponents[0] if len(exponents) == 1 else exponents
