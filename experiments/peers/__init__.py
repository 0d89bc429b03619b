"""Baselines: one adapter per method, over a well-maintained library.

Settings are arguments, so that the reproduction and the benchmarks run the same code. Optional libraries are imported
by `fit`, which raises `MissingPackageError` if one is not installed.
"""

from experiments.peers.base import MissingPackageError, Peer
from experiments.peers.dictionary_learning import KSVD, MiniBatch
from experiments.peers.ica import FastICA, Picard
from experiments.peers.manifolds import RiemannianGradient, TrustRegionL1
from experiments.peers.orthonormal import PCA, TopKProcrustes

__all__ = [
    "KSVD",
    "PCA",
    "FastICA",
    "MiniBatch",
    "MissingPackageError",
    "Peer",
    "Picard",
    "RiemannianGradient",
    "TopKProcrustes",
    "TrustRegionL1",
]
