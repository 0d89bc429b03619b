"""Dictionary learning by l_p-norm maximisation: find the basis in which samples are sparse."""

from elldict import datasets, exceptions, metrics, theory
from elldict.learning import LpDictionaryLearning, load
from elldict.samples.open import open_samples
from elldict.solver.result import Iteration

__version__ = "0.1.0"

__all__ = ["Iteration", "LpDictionaryLearning", "datasets", "exceptions", "load", "metrics", "open_samples", "theory"]
