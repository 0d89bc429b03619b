"""Run `python -m experiments.reproduction`, or name the packages to install first."""

import importlib.util
import sys

if __name__ == "__main__":
    missing = [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"the report needs {' and '.join(missing)}: pip install -e '.[reproduce]'", file=sys.stderr)
        sys.exit(2)
    from experiments.reproduction.command import run

    sys.exit(run(sys.argv[1:]))
