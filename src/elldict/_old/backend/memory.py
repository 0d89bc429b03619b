"""Memory of the host that was let go: kept for the next array, or given back to the system.

glibc asks the system for every array above a limit, and gives it back at once: the next array of that size then costs a
page fault every 4096 bytes, which is as much as the work on it. The limit is that of the largest array that was ever
let go, at most 32 MB. A fit that works on drawn samples and tiles of a few megabytes lets go of dozens of them.
"""

from __future__ import annotations

import functools

import numpy as np

KEPT_BYTES = 2**25 - 2**16
"""Size of arrays up to which memory is kept: just below the most that glibc allows."""


@functools.cache
def keep_freed_memory() -> None:
    """Let memory of arrays be kept for the next ones; once for a process, by letting go of a large one, unused.

    What any program does that has held an array of this size before. Other libraries of C have no such limit, or keep
    their own counsel.
    """
    np.empty(KEPT_BYTES, np.uint8)
