"""What l_p maximisation is compared with: one estimator a file, thin over a library that is well kept.

All have ``fit(X)`` and ``components_``, atoms as rows of unit length. Their libraries come with the extra
``elldict[reproduce]`` and are imported by `fit`; one that is not there is named by `MissingPackageError`.
"""

from elldict.baselines.fast_ica import FastICA
from elldict.baselines.ksvd import KSVD
from elldict.baselines.msp import MSP
from elldict.baselines.packages import MissingPackageError
from elldict.baselines.pca import PCA
from elldict.baselines.picard import Picard
from elldict.baselines.riemannian_gradient import RiemannianGradient
from elldict.baselines.top_k import TopKProcrustes
from elldict.baselines.trust_region import TrustRegionL1

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
