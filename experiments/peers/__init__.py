"""What l_p maximisation is compared with: one estimator a file, thin over a library that is well kept.

All have ``fit(X)`` and ``components_``, atoms as rows of unit length. Their libraries come with the extra
``elldict[reproduce]`` and are imported by `fit`; one that is not there is named by `MissingPackageError`.
"""

from experiments.peers.fast_ica import FastICA
from experiments.peers.ksvd import KSVD
from experiments.peers.msp import MSP
from experiments.peers.packages import MissingPackageError
from experiments.peers.pca import PCA
from experiments.peers.picard import Picard
from experiments.peers.riemannian_gradient import RiemannianGradient
from experiments.peers.top_k import TopKProcrustes
from experiments.peers.trust_region import TrustRegionL1

__all__ = [
    "KSVD",
    "MSP",
    "PCA",
    "FastICA",
    "MissingPackageError",
    "Picard",
    "RiemannianGradient",
    "TopKProcrustes",
    "TrustRegionL1",
]
