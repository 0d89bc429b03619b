"""Memory of the host that is let go and asked for again: what the allocator does with it."""

from __future__ import annotations

import numpy as np

MAX_KEPT_BYTES = 2**24
"""Bytes of an array up to which its memory is kept for the next one. glibc keeps twice that, and learns up to 2**25."""


def keep_freed_memory(n_bytes: int) -> None:
    """Let the allocator keep the memory of arrays up to this size when they are let go.

    glibc hands that of large arrays back to the system at once, and every page that is asked for again is a fault: a
    fourth of a fit that works on arrays of a megabyte. It learns from the largest array that was let go; this one is
    never written, and so takes no memory itself.
    """
    np.empty(min(n_bytes, MAX_KEPT_BYTES), dtype=np.uint8)
