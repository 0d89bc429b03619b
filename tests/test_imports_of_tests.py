"""Test modules import at their top only what `make test` installs; anything else is skipped where it is missing."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
INSTALLED = Path(sys.prefix, ".dev")  # the Makefile lists there what it has installed before `make test`
IMPORT_WITHOUT = """
import ast, json, sys

folder, refused, files = json.load(sys.stdin)
sys.path[:0] = [folder, f"{folder}/.."]


class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse)
failures = []
for file in files:
    for node in ast.parse(open(file, encoding="utf-8").read()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            try:
                exec(compile(ast.Module([node], []), file, "exec"), {})
            except ImportError as error:
                failures.append(f"{file}:{node.lineno}: {ast.unparse(node)}: {error}")
print(json.dumps(failures))
"""


def fail_to_import(files, refused):
    """Run the imports at the top of files where these packages are not found; return those that fail."""
    question = json.dumps([str(TESTS), sorted(refused), [str(file) for file in files]])
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT], input=question, capture_output=True, encoding="utf-8", check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def find_packages_not_installed_by_make():
    """Packages of this environment that came into it later, by hand or by another target."""
    lines = INSTALLED.read_text(encoding="utf-8").splitlines()
    listed = {line.partition("==")[0].partition(" @ ")[0].strip() for line in lines}
    known = packages_distributions().items()
    return {package for package, distributions in known if not listed & set(distributions)}


def test_test_modules_import_only_what_make_test_installs():
    if not (INSTALLED.exists() and INSTALLED.stat().st_size):
        pytest.skip("this environment was not made by `make test`")
    refused = find_packages_not_installed_by_make() - {"elldict", "_elldict_editable"}
    assert fail_to_import(sorted(TESTS.rglob("*.py")), refused) == []


@pytest.mark.parametrize("line", ["import safetensors.torch", "from h5py import File", "import no_such_package"])
def test_an_import_that_make_test_does_not_provide_is_found(line, tmp_path):
    module = tmp_path / "test_example.py"
    module.write_text(f"import sys\n\n{line}\n")
    (failure,) = fail_to_import([module], {"torch", "h5py"})
    assert failure.startswith(f"{module}:3: {line}: ")


def test_an_import_inside_a_function_is_left_to_the_test(tmp_path):
    module = tmp_path / "test_example.py"
    module.write_text("def test_torch():\n    import torch\n")
    assert fail_to_import([module], {"torch"}) == []
