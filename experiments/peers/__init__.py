"""What elldict is compared with: one adapter a method, thin over a library that is well kept.

Settings are arguments, so that the reproduction and the benchmarks run the same code with what each states. Optional
libraries are imported by `fit`; one that is not there is named by `MissingPackageError`.
"""

from experiments.peers.base import MissingPackageError, Peer
from experiments.peers.dictionary_learning import KSVD, MiniBatch, Spams
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
    "Spams",
    "TopKProcrustes",
    "TrustRegionL1",
]
