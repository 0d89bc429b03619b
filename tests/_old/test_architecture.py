"""The old house: arrows point one way, rooms can be entered alone."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import elldict

ROOT = Path(elldict.__file__).parent / "_old"
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
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith("elldict._old."):
            base = node.module.removeprefix("elldict._old").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in known else base
        if isinstance(node, ast.Import):
            for alias in node.names:
                if f"{alias.name}.".startswith("elldict._old."):
                    yield alias.name.removeprefix("elldict._old").lstrip(".")


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


def test_every_module_can_be_imported_first():
    without = {"backend.triton_kernels"} if importlib.util.find_spec("triton") is None else set()
    names = [f"elldict._old.{name}" for name, _ in modules() if name and name not in without]
    run_python(f"""
import importlib, sys
for name in {names}:
    for loaded in [m for m in sys.modules if m.startswith("elldict")]:
        del sys.modules[loaded]
    importlib.import_module(name)
""")
