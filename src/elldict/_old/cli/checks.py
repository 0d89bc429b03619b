"""What is checked before the work starts: outputs that can be written, and options that would do nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elldict._old.atomic import refuse_special, temporary_beside
from elldict._old.cli.errors import MistakeError
from elldict._old.cli.options import Algorithm

if TYPE_CHECKING:
    from elldict._old.estimator import LpEstimator


def check_output(path: Path, force: bool, inputs: Sequence[Path] = (), *, zarr: bool = False) -> None:
    """Raise now what would otherwise be found out after the work is done; a zarr array is a folder."""
    if path.is_dir() and not (zarr and path.suffix == ".zarr"):
        raise MistakeError(f"output {path} is a directory, expected the name of a file.")
    if not path.parent.is_dir():
        raise MistakeError(f"output folder {path.parent} does not exist. Create it first.")
    if path.exists():
        if not path.is_file() and not path.is_dir():
            raise MistakeError(f"output {path} is not a regular file. Choose another name.")
        if any(_is_same(path, given) for given in inputs):
            raise MistakeError(f"output {path} is also an input. Choose another name.")
        if not force:
            raise MistakeError(f"output {path} exists. Overwrite it with --force.")
    try:
        probe = temporary_beside(path)  # the only sure test: permissions, quotas and read-only disks all have a say
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise MistakeError(f"output {path} cannot be written: {error.strerror}.") from error


def _is_same(path: Path, given: Path) -> bool:
    """Whether an input is this file, or an array in it, as in file.npz:X."""
    from elldict._old.data.open import split_array_name  # noqa: PLC0415

    file, _ = split_array_name(given)
    return file.exists() and path.samefile(file)


def check_checkpoint_name(checkpoint: Path | None, output: Path, data: Path) -> None:
    """A checkpoint is a file of its own."""
    if checkpoint is None:
        return
    from elldict._old.data.open import split_array_name  # noqa: PLC0415

    if checkpoint.resolve() in (output.resolve(), split_array_name(data)[0].resolve()):
        raise MistakeError(f"checkpoint {checkpoint} is also the input or the output. Choose another name.")


def refuse_with_ica(center: bool | None, whiten: bool | None, whiten_all: bool | None) -> None:
    """An option that would do nothing, or undo what --ica says, is a mistake."""
    for name, value in (("center", center), ("whiten", whiten), ("whiten-all", whiten_all)):
        if value is not None:
            raise MistakeError(f"--ica always centres and whitens. Leave out --{'' if value else 'no-'}{name}.")


def choose_algorithm(model: LpEstimator, algorithm: Algorithm | None, alpha: str | None, n_nonzero: int | None) -> str:
    """Put the options of the command line in place of the model's; an option that would do nothing is a mistake."""
    own = getattr(model, "transform_algorithm", None)
    if own is None and algorithm not in (None, Algorithm.linear):
        raise MistakeError(f"--algorithm {algorithm.value}: {type(model).__name__} makes linear codes and no others.")
    name = algorithm.value if algorithm else own or "linear"
    if alpha is not None and name not in ("threshold", "hard_threshold"):
        raise MistakeError(f"--alpha does nothing with --algorithm {name}. Use threshold or hard_threshold.")
    if n_nonzero is not None and name != "omp":
        raise MistakeError(f"--n-nonzero does nothing with --algorithm {name}. Use omp.")
    threshold = None if alpha is None else parse_threshold(alpha)
    if own is not None:
        model.transform_algorithm = name
    if alpha is not None:
        model.transform_alpha = threshold
    if n_nonzero is not None:
        model.transform_n_nonzero_coefs = n_nonzero
    return name


def parse_threshold(text: str) -> float | str:
    """A number that is not negative, or 'auto'."""
    try:
        threshold = text if text == "auto" else float(text)
    except ValueError:
        threshold = math.nan
    if not isinstance(threshold, str) and not 0 <= threshold < math.inf:
        raise MistakeError(f"--alpha {text}: expected a number >= 0, or auto.")
    return threshold


def parse_exponents(text: str) -> float | tuple[float, ...]:
    """One exponent, or several with commas between."""
    try:
        exponents = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise MistakeError(
            f"--p {text!r}: expected a number above 0 but not 2, or several with commas between."
        ) from None
    return exponents[0] if len(exponents) == 1 else exponents


def read_groups(path: Path | None, halves: bool | None) -> Any:
    """Labels of samples, from a .npy file or from the lines of a text."""
    if path is None:
        return None
    if halves is False:
        raise MistakeError("--groups does nothing with --no-halves: error bars come from halves of whole groups.")
    refuse_special(path)
    with path.open("rb") as stream:
        is_npy = stream.read(6) == b"\x93NUMPY"
    if not is_npy:
        return np.array([line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()])
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except ValueError as error:
        raise MistakeError(f"{path}: {error}") from error
