"""What users can name, as `public_surface.txt` lists it, one entry a line: nothing is added or lost unnoticed.

    python tests/test_public_surface.py

writes the list anew.
"""

import inspect
import re
import tomllib
import warnings
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
LISTED = Path(__file__).with_name("public_surface.txt")
BEFORE = Path(__file__).with_name("public_surface_before.txt")
"""The surface of the package before it was written again."""

PLAIN = (str, bytes, bool, int, float, type(None), tuple)
"""Defaults that are written down as they are; of others only that there is one."""


OF_OPENED_SAMPLES = ("dtype", "fingerprint", "n_features", "n_samples")
"""What the documentation reads of the result of `open_samples`."""


# --- modules, functions and classes -----------------------------------------------------------------------------------


def list_names():
    """Pairs of a public name and its object, modules and what is in them."""
    import elldict  # noqa: PLC0415  after the tracing of coverage has begun

    for name in elldict.__all__:
        found = getattr(elldict, name)
        yield f"elldict.{name}", found
        if inspect.ismodule(found):
            yield from ((f"elldict.{name}.{inner}", getattr(found, inner)) for inner in found.__all__)


def list_parameters(name, function):
    """A line for each parameter: by position or by keyword only, and its default."""
    parameters = [found for found in inspect.signature(function).parameters.values() if found.name != "self"]
    for position, parameter in enumerate(parameters, 1):
        shown = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        if parameter.default is not parameter.empty:
            shown += f"={parameter.default!r}" if isinstance(parameter.default, PLAIN) else "=<object>"
        by_keyword = parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
        yield f"{name} takes {'by keyword' if by_keyword else f'at position {position}'}: {shown}"


def list_class(name, kind):
    if issubclass(kind, BaseException):
        bases = [base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"]
        yield f"{name} is a {bases[0]}"
        return
    yield from list_parameters(name, kind)
    if is_dataclass(kind) or issubclass(kind, tuple):
        fields = getattr(kind, "__dataclass_fields__", None) or kind._fields
        yield from (f"{name} has attribute {field}" for field in fields if not field.startswith("_"))
    for member in dir(kind):
        if member.startswith("_") or member.endswith("_"):  # those of a fit are listed by `list_fitted_attributes`
            continue
        found = inspect.getattr_static(kind, member)
        is_ours = (getattr(found, "__module__", None) or "").startswith("elldict")
        if isinstance(found, property):
            yield f"{name} has attribute {member}"
        elif inspect.isroutine(found) and is_ours:
            yield f"{name}.{member}"
            yield from list_parameters(f"{name}.{member}", getattr(kind, member))


def list_library():
    for name, found in list_names():
        yield name
        if inspect.isclass(found):
            yield from list_class(name, found)
        elif inspect.isfunction(found):
            yield from list_parameters(name, found)


# --- what a fit leaves behind -----------------------------------------------------------------------------------------


def fit_estimators():
    """Estimators that are fitted so that every attribute is there, each with the name of its class."""
    import elldict  # noqa: PLC0415
    from elldict.datasets import make_bernoulli_gaussian  # noqa: PLC0415

    pandas = pytest.importorskip("pandas")
    X, _, _ = make_bernoulli_gaussian(1500, 5, density=0.3, noise_std=0.2, random_state=0)
    table = pandas.DataFrame(X, columns=list("abcde"))
    yield "LpDictionaryLearning", elldict.LpDictionaryLearning(random_state=0).fit(table)
    yield "LpDictionaryLearning", elldict.LpDictionaryLearning(random_state=0, whiten=True).partial_fit(X)
    yield "LpDictionaryLearning", elldict.LpDictionaryLearning(random_state=0, solver="power", refine=None).fit(X)
    yield "LpICA", elldict.LpICA(random_state=0).fit(table)
    yield "Rotator", elldict.Rotator(random_state=0).fit(X[:40])


def describe_kind(value):
    """Name the kind of a value, in the same words whatever the machine."""
    if isinstance(value, np.ndarray):
        return f"array with {value.ndim} axes"
    for kind in (bool, int, float, str, tuple):
        if isinstance(value, (kind, np.bool_) if kind is bool else kind):
            return kind.__name__
    return type(value).__name__


def list_fitted_attributes():
    kinds = {}
    for name, model in fit_estimators():
        for attribute in dir(model):
            if re.fullmatch(r"[a-z]\w*_", attribute):
                kinds.setdefault(f"elldict.{name} has {attribute} after a fit", set()).add(
                    describe_kind(getattr(model, attribute))
                )
    for entry, found in kinds.items():
        yield f"{entry}: {' or '.join(sorted(found))}"


def list_opened_samples():
    import elldict  # noqa: PLC0415

    samples = elldict.open_samples(np.zeros((3, 2)))
    yield from (f"elldict.open_samples gives {name}" for name in OF_OPENED_SAMPLES if hasattr(samples, name))


# --- the command line -------------------------------------------------------------------------------------------------


def list_commands():
    """The options of every command, and the numbers of its arguments; what they do is in the tests of commands."""
    from typer.main import get_command  # noqa: PLC0415

    from elldict.cli.commands import app  # noqa: PLC0415

    group = get_command(app)
    for name, command in {
        "elldict": group,
        **{f"elldict {name}": each for name, each in group.commands.items()},
    }.items():
        yield f"$ {name}"
        arguments = [option for option in command.params if option.param_type_name == "argument"]
        yield from (f"$ {name} argument {position}, {each.name}" for position, each in enumerate(arguments, start=1))
        options = [option for option in command.params if option not in arguments]
        yield from (f"$ {name} {'/'.join([', '.join(each.opts), *each.secondary_opts])}" for each in options)


# --- the repository ---------------------------------------------------------------------------------------------------


def list_targets_and_extras():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    yield from (f"make {target}" for target in re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from (f"extra elldict[{extra}]" for extra in project["optional-dependencies"])
    yield from (f"program {program}" for program in project["scripts"])


# --- compared ---------------------------------------------------------------------------------------------------------


def list_surface():
    """Every entry, sorted."""
    parts = (
        list_library,
        list_fitted_attributes,
        list_opened_samples,
        list_commands,
        list_targets_and_extras,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted({entry for part in parts for entry in part()})


def test_public_surface_is_the_one_that_is_listed():
    now, listed = list_surface(), LISTED.read_text(encoding="utf-8").splitlines()
    added = [f"  added:   {entry}" for entry in now if entry not in listed]
    removed = [f"  removed: {entry}" for entry in listed if entry not in now]
    assert not added + removed, "\n".join(
        [
            f"the public surface is not the one that tests/{LISTED.name} lists:",
            *removed,
            *added,
            "update the list by `python tests/test_public_surface.py`, and record every removal in CHANGELOG.md with",
            "what to do instead",
        ]
    )
    assert listed == now  # sorted, and nothing twice


def read_words_of_removed_entries():
    """Read the first column of the table of removed entries in CHANGELOG.md."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, _, table = changes.partition("| removed | instead |")
    for row in table.partition("\n\n")[0].splitlines()[2:]:
        yield from re.findall(r"`([^`]+)`", row.split(" | ")[0])


def test_what_was_removed_is_in_the_changelog():
    listed = set(LISTED.read_text(encoding="utf-8").splitlines())
    words = [re.compile(rf"(?<![\w-]){re.escape(word)}(?!\w)") for word in read_words_of_removed_entries()]
    removed = [entry for entry in BEFORE.read_text(encoding="utf-8").splitlines() if entry not in listed]
    assert [entry for entry in removed if not any(word.search(entry) for word in words)] == []


if __name__ == "__main__":
    LISTED.write_text("\n".join(list_surface()) + "\n", encoding="utf-8")
