"""Who may import whom, and how large parts of the package may be; public names are documented."""

import ast
import inspect
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from numpydoc.validate import validate

import elldict

ROOT = Path(elldict.__file__).parent
TESTS = Path(__file__).parent

LAYERS = [  # a module imports from its own layer and from those before it
    {"exceptions", "datasets", "metrics", "theory", "samples", "gpu", "atomic", "archive", "blas"},
    {"solver", "corruption"},
    {"atoms", "errors", "warnings", "entries", "result"},
    {"fit"},
    {"history", "validation"},
    {"denoising", "progress", "checkpoint"},
    {"transform"},
    {"fitted", "estimator", "model_file", "plot", "report", "stream", "summary"},
    {"dictionary_learning", "ica", "axes", "halves", "mne", "rotation"},
    {"replication"},
    {"cli", "__main__", "__init__"},
]
CORE = ("samples", "solver", "errors", "atoms.py", "fit.py", "result.py", "warnings.py", "entries.py")
ESTIMATORS = ["dictionary_learning", "estimator", "fitted", "ica", "validation", "transform"]
FILES = [ROOT / "samples" / f"{name}.py" for name in ("files", "formats", "open", "output", "tables")]
"""What no fit of an array enters; opened with it, because estimators accept names of files."""

MOST_LINES = {"core": 3654, "files": 1040, "cli": 622, "estimators": 1800, "gpu": 310, "native": 500, "file": 400}
MOST_CONSTANTS = 99
"""Tuning constants of the core: names in capitals of numbers, at the top of a module."""


def find_sources():
    return sorted(ROOT.rglob("*.py"))


def list_imports(node, *, only_at_import=False):
    """Names of all modules that are imported within a part of a file; or of those that importing the file imports."""
    for inner in ast.iter_child_nodes(node):
        if only_at_import and (is_function(inner) or is_for_types(inner)):
            continue
        if isinstance(inner, ast.Import):
            yield from (alias.name for alias in inner.names)
        if isinstance(inner, ast.ImportFrom) and inner.module and not inner.level:
            yield inner.module
            yield from (f"{inner.module}.{alias.name}" for alias in inner.names)
        yield from list_imports(inner, only_at_import=only_at_import)


def is_function(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def is_for_types(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def find_core():
    return [path for path in find_sources() if path.relative_to(ROOT).parts[0] in CORE]


def find_layer(name):
    return next((number for number, layer in enumerate(LAYERS) if name in layer), None)


@pytest.mark.parametrize("path", find_sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_module_imports_from_its_layer_and_those_below(path):
    own = find_layer(path.relative_to(ROOT).parts[0].removesuffix(".py"))
    assert own is not None, "is in no layer"
    for name in list_imports(ast.parse(path.read_text(encoding="utf-8"))):
        assert name.split(".")[0] != "experiments", "they are not installed"
        if name.startswith("elldict."):
            assert (find_layer(name.split(".")[1]) or 0) <= own, f"imports {name}"


def test_core_modules_do_not_import_each_other_in_a_circle():
    names = {".".join(("elldict", *path.relative_to(ROOT).with_suffix("").parts)): path for path in find_core()}
    graph = {name: set(list_imports(ast.parse(path.read_text()))) & set(names) for name, path in names.items()}
    TopologicalSorter(graph).prepare()  # raises where there is a cycle


def count_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_core_stays_small():
    lines = {path: count_lines(path) for path in find_core()}
    assert sum(lines.values()) - sum(map(count_lines, FILES)) <= MOST_LINES["core"]
    assert sum(map(count_lines, FILES)) <= MOST_LINES["files"]
    assert max(lines.values()) <= MOST_LINES["file"]
    assert sum(len(list(list_constants(path))) for path in lines) <= MOST_CONSTANTS


def test_estimators_and_kernels_stay_small():
    assert sum(map(count_lines, (ROOT / f"{name}.py" for name in ESTIMATORS))) <= MOST_LINES["estimators"]
    assert sum(map(count_lines, (ROOT / "gpu").glob("*.py"))) <= MOST_LINES["gpu"]
    assert sum(map(count_lines, (ROOT / "cli").glob("*.py"))) <= MOST_LINES["cli"]
    if (native := TESTS.parent / "native").is_dir():  # a wheel has none
        assert sum(map(count_lines, native.glob("*.cpp"))) <= MOST_LINES["native"]


def list_constants(path):
    """Names in capitals that are numbers, or made of numbers."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        leaves = [leaf.value for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)] if names else []
        if leaves and all(isinstance(leaf, (int, float)) and not isinstance(leaf, bool) for leaf in leaves):
            yield from (name for name in names if name.isupper())


@pytest.mark.parametrize("path", find_sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_module_imports_no_optional_dependency_before_it_is_needed(path):
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {requirement.split(">")[0].replace("-", "_") for requirement in project["dependencies"]}
    known = {*sys.stdlib_module_names, *required, "sklearn", "elldict"}
    imported = list_imports(ast.parse(path.read_text(encoding="utf-8")), only_at_import=True)
    assert {name.split(".")[0] for name in imported} <= known


def find_imported(script, names):
    """Run a script in another process, and return which of these modules it has imported."""
    script = f"import sys; {script}; print(*{{*{names}}} & {{*sys.modules}})"
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()


def test_importing_the_package_imports_no_optional_dependency():
    heavy = ["torch", "dask", "matplotlib", "typer", "jinja2", "cupy", "zarr", "pyarrow", "h5py", "safetensors"]
    # scikit-learn imports pandas where it is installed, and pandas pyarrow
    assert not find_imported("sys.modules['pandas'] = None; from elldict import *", heavy)


def test_help_does_not_wait_for_scikit_learn():
    assert not find_imported("import elldict.cli", ["sklearn", "scipy"])


PUBLIC = [
    *("load", "open_samples", "Iteration", "stability", "rotate", "Rotation", "Rotation.summary", "Rotator"),
    *("Rotator.fit", "Rotator.transform", "Stability", "Stability.count_stable", "Stability.summary"),
]


def list_public():
    """List what has to be documented: functions, classes and their methods."""
    for kind in (elldict.LpDictionaryLearning, elldict.LpICA):
        yield f"elldict.{kind.__name__}"
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and member.__module__.startswith("elldict"):
                yield f"elldict.{kind.__name__}.{name}"
    yield from (f"elldict.{name}" for name in PUBLIC)
    for module in (elldict.datasets, elldict.metrics, elldict.plot, elldict.theory):
        yield from (f"{module.__name__}.{name}" for name in module.__all__)


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


@pytest.mark.parametrize("name", list(list_public()))
def test_public_docstrings_follow_numpydoc(name):
    problems = [f"{code}: {text}" for code, text in validate(name)["errors"] if code not in IGNORED]
    assert not problems


def test_public_names_exist_and_are_documented():
    for name in elldict.__all__:
        assert getattr(elldict, name).__doc__
    assert elldict.__version__
