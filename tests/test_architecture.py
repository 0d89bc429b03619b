"""The house: arrows point one way, rooms can be entered alone, public names are documented."""

import ast
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from numpydoc.validate import validate

import elldict

ROOT = Path(elldict.__file__).parent
FLOORS = [  # a module may import from floors below its own, and from its own floor where no cycle arises
    {"backend", "theory", "exceptions", "atomic"},
    {"data", "record_file"},
    {"solver", "result"},
    {
        "diagnostics",
        "validation",
        "denoising",
        "transform",
        "checkpoint",
        "persistence",
        "progress",
        "summary",
        "rotation_result",
    },
    {"datasets", "metrics", "estimation", "competing_bases", "error_bars", "fit", "online", "split_fits"},
    {"dictionary_learning", "estimator", "ica", "models", "rotation"},
    {"axes", "mne", "plot", "report", "stable_atoms"},
    {"cli", "__main__"},
]


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imports_of(path):
    """Modules of the package that a file imports, wherever it does."""
    known = {name for name, _ in modules()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "elldict":
            base = node.module.removeprefix("elldict").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in known else base
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "elldict":
                    yield alias.name.removeprefix("elldict").lstrip(".")


def floor_of(name):
    for number, rooms in enumerate(FLOORS):
        if any(name == room or name.startswith(f"{room}.") for room in rooms):
            return number
    raise AssertionError(f"{name} has no place in the house: give it a floor in this test")


@pytest.mark.parametrize(("name", "path"), [pair for pair in modules() if pair[0] not in ("", "solver")])
def test_arrows_point_down(name, path):
    for target in imports_of(path):
        if target:
            assert floor_of(target) <= floor_of(name), f"{name} imports {target}"


def test_the_package_does_not_know_the_experiments():
    """They are not installed with it."""
    for _, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "experiments" for name in names), path


def test_shared_code_does_not_read_components():
    """What one estimator calls components_ makes samples, what another calls so makes codes."""
    for name, path in modules():
        if name not in ("dictionary_learning", "estimator", "ica"):
            read = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
            assert not any(node.attr == "components_" for node in read), f"{name}: use mixing_ or unmixing_"


def test_no_cycles():
    graph = {name: set(imports_of(path)) - {name, ""} for name, path in modules() if name}
    done = set()

    def visit(name, road):
        assert name not in road, f"cycle: {' -> '.join([*road, name])}"
        if name not in done:
            for target in graph.get(name, ()):
                visit(target, [*road, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def run_python(script):
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)


def test_importing_the_package_imports_no_optional_dependency():
    heavy = [
        "torch",
        "dask",
        "matplotlib",
        "typer",
        "jinja2",
        "cupy",
        "triton",
        "zarr",
        "pyarrow",
        "h5py",
        "safetensors",
    ]
    # scikit-learn imports pandas where it is installed, and pandas pyarrow
    run_python(f"""
import sys
sys.modules["pandas"] = None
from elldict import *
found = [name for name in {heavy} if name in sys.modules]
assert not found, found
""")


def test_help_does_not_wait_for_scikit_learn():
    run_python("""
import sys
import elldict.cli
assert "sklearn" not in sys.modules and "scipy" not in sys.modules
""")


def test_every_module_can_be_imported_first():
    without = {"backend.triton_kernels"} if importlib.util.find_spec("triton") is None else set()
    names = [f"elldict.{name}" for name, _ in modules() if name and name not in without]
    run_python(f"""
import importlib, sys
for name in {names}:
    for loaded in [m for m in sys.modules if m.startswith("elldict")]:
        del sys.modules[loaded]
    importlib.import_module(name)
""")


def public_objects():
    for kind in (elldict.LpDictionaryLearning, elldict.LpICA):
        yield f"elldict.{kind.__name__}", kind
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and member.__module__.startswith("elldict"):
                yield f"elldict.{kind.__name__}.{name}", member
    yield "elldict.load", elldict.load
    yield "elldict.open_samples", elldict.open_samples
    yield "elldict.Iteration", elldict.Iteration
    yield "elldict.stability", elldict.stability
    yield "elldict.rotate", elldict.rotate
    yield "elldict.Rotation", elldict.Rotation
    yield "elldict.Rotator", elldict.Rotator
    yield "elldict.Rotation.summary", elldict.Rotation.summary
    for name in ("fit", "fit_transform", "transform", "get_feature_names_out"):
        yield f"elldict.Rotator.{name}", getattr(elldict.Rotator, name)
    yield "elldict.Stability", elldict.Stability
    for name in ("stable", "count_stable", "summary", "plot"):
        yield f"elldict.Stability.{name}", getattr(elldict.Stability, name)
    for module in (elldict.datasets, elldict.metrics, elldict.plot, elldict.theory):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


IGNORED = {
    "ES01",  # no extended summary: the first line says it
    "SA01",  # see also
    "EX01",  # methods have their examples in the class
    "SS06",
    "GL08",
    "YD01",
    "RT03",
    "RT05",
    "PR01",  # an exception class
    "SS05",  # a summary may name what is returned
}


@pytest.mark.parametrize("name", [name for name, _ in public_objects()])
def test_public_docstrings_follow_numpydoc(name):
    problems = [f"{code}: {text}" for code, text in validate(name)["errors"] if code not in IGNORED]
    assert not problems


def test_public_names_exist_and_are_documented():
    for name in elldict.__all__:
        assert getattr(elldict, name).__doc__
    assert elldict.__version__
