"""Messages of the library in the words of the command line: options in the place of parameters."""

from __future__ import annotations

import re

SWITCHES = {
    "center=True": "--center",
    "center=False": "--no-center",
    "whiten=True": "--whiten",
    "whiten=False": "--no-whiten",
    "whiten='all'": "--whiten-all",
    "whiten='unit-variance'": "--ica",
    "halves=True": "--halves",
    "halves=False": "--no-halves",
}
"""Options that are there or not, by the value of a parameter."""

OPTIONS = {
    "n_components": "--n-components",
    "max_iter": "--max-iter",
    "n_init": "--n-init",
    "solver": "--solver",
    "refine": "--refine",
    "normalize": "--normalize",
    "device": "--device",
    "transform_algorithm": "--algorithm",
    "transform_alpha": "--alpha",
    "transform_n_nonzero_coefs": "--n-nonzero",
    "noise_std": "--noise-std",
}
"""Options that take a value, by the name of the parameter."""

NAMED_WITHOUT_VALUE = (
    "n_components",
    "max_iter",
    "n_init",
    *(name for name in OPTIONS if name.startswith("transform")),
)
"""Parameters that messages name without a value, and whose names are no words of the language."""


def name_options(message: str) -> str:
    """Say of a message what to type: `--whiten` instead of whiten=True."""
    message = message.replace("(LpICA: whiten='unit-variance')", "or --ica")
    message = message.replace("Leave n_components=None", "Leave out --n-components")
    message = re.sub(r"\bn_components=None", "no --n-components", message)
    message = message.replace("max_iter or tol", "max_iter or --tol")
    for code, option in SWITCHES.items():
        message = message.replace(code, option)
    for name, option in OPTIONS.items():
        message = re.sub(rf"(?<![\w-]){name}=None\b", f"{option} none", message)
        message = re.sub(rf"(?<![\w-]){name}=(?:'([^']*)'|([\w.+-]*\w))", rf"{option} \1\2", message)
    for name in NAMED_WITHOUT_VALUE:
        message = re.sub(rf"(?<![\w-]){name}\b(?!=)", OPTIONS[name], message)
    return message
