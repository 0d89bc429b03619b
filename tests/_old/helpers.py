"""What tests compare with."""

import math
from html.parser import HTMLParser

import numpy as np

from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.statistics import compute_statistics
from elldict._old.data.whitening import Whitening
from elldict._old.solver.directions import polar, power_step, random_orthonormal
from elldict._old.solver.evaluate import evaluate
from elldict._old.solver.loop import FitLog, Phase, run_starts
from elldict._old.solver.objective import Lp, Quantities
from elldict.metrics import match_atoms

KINDS = ["uniform"] * 4 + ["binary"] * 2 + ["laplace"] * 4 + ["sparse"] * 2


def assert_same_atoms(A, B, tolerance=1e-10):
    """Equal up to a signed permutation."""
    match = match_atoms(A, B)
    assert sorted(match.indices) == list(range(len(A)))
    np.testing.assert_allclose(A, match.signs[:, None] * np.asarray(B)[match.indices], atol=tolerance)


def prepared(X, *, center=False, whiten=False, tile_rows=0):
    """Samples and their frame."""
    samples = ArrayDataset(X, tile_rows)
    return samples, Whitening.of(
        compute_statistics(samples, center=center, precise=whiten), center=center, whiten=whiten
    )


def sums_at(X, A, p=3.0, quantities=Quantities.GRADIENT, precision="float64", **how):
    samples, whitening = prepared(X, **how)
    return evaluate(samples, whitening, Lp(p), A, quantities, precision)


def one_step(X, A, p=3.0, **how):
    """A after one iteration of the power method."""
    return power_step(sums_at(X, A, p, **how), A)


def run_from(X, start, p=3.0, direction=power_step, tol=1e-8, max_iter=500, callback=None, objective=None):
    """Estimate and history from a given start, for l_p or another objective."""
    samples, whitening = prepared(X)
    phase = Phase(objective or Lp(p), direction, samples.dtype, tol, max_iter)
    estimate, _, history = run_starts(samples, whitening, [phase], [start], FitLog(callback))
    return estimate, history


def plain_power_step(X, A, p):
    """Algorithm 2 of the paper, written down once more without tiles, scales or frames."""
    Z = X @ A.T
    return polar((np.sign(Z) * np.abs(Z) ** (p - 1)).T @ X)


def draw(kind, r, rng):
    """Codes of unit variance."""
    return {
        "uniform": lambda: math.sqrt(3) * rng.uniform(-1, 1, r),
        "binary": lambda: rng.choice([-1.0, 1.0], r),
        "laplace": lambda: rng.laplace(size=r) / math.sqrt(2),
        "sparse": lambda: rng.standard_normal(r) * (rng.random(r) < 0.3) / math.sqrt(0.3),
        "gaussian": lambda: rng.standard_normal(r),
        "exponential": lambda: rng.exponential(size=r) - 1,
        "sine": lambda: math.sqrt(2) * np.sin(rng.uniform(0, 2 * math.pi, r)),
    }[kind]()


def mix(kinds, r, seed):
    """Samples of these sources, their orthonormal dictionary, and their codes."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack([draw(kind, r, rng) for kind in kinds])
    dictionary = random_orthonormal(len(kinds), len(kinds), rng)
    return codes @ dictionary, dictionary, codes


VOID = {"meta", "img", "br", "source", "link", "input", "hr"}


class Page(HTMLParser):
    """Elements of a page, in order, each with the text inside; raises if tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[list[str]] = []
        self._open: list[int] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {[self.elements[i][0] for i in self._open]}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.append([])
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.append([])

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        opened = self.elements[self._open.pop()][0]
        assert opened == tag, f"</{tag}> closes <{opened}>"

    def handle_data(self, data):
        for number in self._open:
            self.texts[number].append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text_of(self, tag: str) -> list[str]:
        return ["".join(text).strip() for (name, _), text in zip(self.elements, self.texts, strict=True) if name == tag]
