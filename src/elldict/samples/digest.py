"""Fingerprints: what tells one set of samples from another without a look at all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

DIGESTED_WHOLE = 2**26
"""Bytes up to which every value goes into a fingerprint."""

N_BLOCKS = 64
BLOCK_BYTES = 2**16
"""Beyond, blocks of these many bytes do: the first, the last, and others evenly between them."""


def started_digest(*facts: object) -> hashlib.blake2b:
    """A digest that has seen some facts."""
    return hashlib.blake2b("\n".join(map(str, facts)).encode(), digest_size=16)


def sampled_ranges(n_samples: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """First and last-plus-one row of each range that goes into a fingerprint."""
    rows = min(n_samples, max(1, BLOCK_BYTES // row_bytes))
    whole = n_samples * row_bytes <= DIGESTED_WHOLE or n_samples <= N_BLOCKS * rows
    step = rows if whole else (n_samples - rows) / (N_BLOCKS - 1)
    for number in range(-(-n_samples // rows) if whole else N_BLOCKS):
        start = int(number * step)
        yield start, min(start + rows, n_samples)
