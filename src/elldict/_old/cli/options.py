"""Arguments and options of the commands: their names, kinds and help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
Algorithm = StrEnum("Algorithm", ["linear", "threshold", "hard_threshold", "omp", "posterior"])

DataFile = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Samples, one for each row: a .npy, .npz, .csv, .tsv, .txt, .mat, HDF5, zarr, parquet, Arrow (Feather) or "
        "safetensors file, or a folder. One array of several is named after a colon, as in file.npz:X.",
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.npz", help="Model written by 'elldict fit'.")]
CodeFile = Annotated[
    Path, typer.Argument(metavar="CODES", help="Codes, one sample for each row: any file that holds samples.")
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of lists, or (given several times) columns that are features; or the array of a file that holds "
        "several."
    ),
]
BlockSize = Annotated[
    int | None, typer.Option(min=1, help="Samples that are read at a time.", show_default="16 MB of them")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead, with all digits.")]

ModelOutput = Annotated[Path, typer.Option("-o", "--output", metavar="MODEL.npz", help="Where the model goes.")]
RowsOutput = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Where the rows go: .npy or .zarr; or a table with names of columns, .csv, .tsv, .parquet or .feather.",
    ),
]
AtomsOutput = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Where the atoms go: .csv, .tsv, .npy, .npz or .mat.")
]

Components = Annotated[int | None, typer.Option(help="Number of atoms.", show_default="all")]
Exponents = Annotated[
    str, typer.Option(help="Exponent of the norm, above 0 but not 2; or decreasing ones, such as 3,2.5,2.2.")
]
SolverName = Annotated[
    Solver, typer.Option(help="'power' is the paper's: all samples in every iteration; 'auto' needs far fewer.")
]
Refine = Annotated[
    Refinement,
    typer.Option(
        help="Maximum likelihood after l_p, by the law of the codes: 'bernoulli-gaussian' for zeros and noise, "
        "'mixture' for any other, 'sparse-corruption' for entries that were hit; 'auto' tests which the data "
        "support, 'none' gives the l_p answer."
    ),
]
Normalize = Annotated[
    Normalization,
    typer.Option(help="Scale loud samples down: 'samples' always, 'auto' if the data call for it, 'none' never."),
]
Ica = Annotated[
    bool, typer.Option("--ica", help="Independent components: centre, whiten, and keep the model of an LpICA.")
]
Center = Annotated[
    bool | None,
    typer.Option("--center/--no-center", help="Subtract the mean of the samples.", show_default="--no-center"),
]
Whiten = Annotated[
    bool | None,
    typer.Option(
        "--whiten/--no-whiten",
        help="Atoms need not be orthogonal; fewer than features are learned in as many principal directions.",
        show_default="--no-whiten",
    ),
]
WhitenAll = Annotated[
    bool, typer.Option("--whiten-all", help="The same, but fewer atoms are sought in all directions.")
]
MaxIter = Annotated[int, typer.Option(help="Most iterations of a start.")]
Tol = Annotated[float, typer.Option(help="Step (root mean square) at which a start has converged.")]
Starts = Annotated[int, typer.Option(help="Number of random starts.")]
Halves = Annotated[
    bool | None,
    typer.Option(
        "--halves/--no-halves",
        help="Fit two halves of the samples too, for error bars.",
        show_default="where codes depend on each other",
    ),
]
Groups = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Labels of samples that belong together, as patches of one image: a .npy file, or a text with one a line. "
        "Error bars count them.",
    ),
]
Device = Annotated[
    str | None, typer.Option(help="'cuda', or 'cuda:1', works on a graphics card.", show_default="the host")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the random starts.", show_default="random")]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the state here, to resume after an interruption.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")]

AlgorithmName = Annotated[Algorithm | None, typer.Option(help="How codes are made.", show_default="the model's")]
Alpha = Annotated[
    str | None,
    typer.Option(
        help="Threshold, in the units of the codes; 'auto' is the best for each atom under the law that was learned."
    ),
]
NoiseStd = Annotated[
    float | None,
    typer.Option(min=0, help="Standard deviation of the noise of a feature, if known.", show_default="the one learned"),
]
NonZero = Annotated[int | None, typer.Option(min=1, help="Codes that omp keeps for each sample.")]
