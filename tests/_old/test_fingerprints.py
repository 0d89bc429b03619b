"""Fingerprints: equal for equal samples, different for others, cheap for large ones."""

import itertools

import numpy as np
import pytest

from elldict._old.data import dataset as digest
from elldict._old.data.dataset import ArrayDataset, choose_digest_ranges


def test_memory_fingerprint_follows_shape_dtype_and_every_value(rng):
    X = rng.standard_normal((50, 4))
    first = ArrayDataset(X).fingerprint()
    assert ArrayDataset(np.asfortranarray(X)).fingerprint() == first, "the same values, laid out differently"
    changed = X.copy()
    changed[37, 2] = np.nextafter(changed[37, 2], 9)
    others = [changed, X.reshape(40, 5), X.astype(np.float32), X[:-1]]
    assert len({first, *(ArrayDataset(other).fingerprint() for other in others)}) == 5


@pytest.mark.parametrize(("n_samples", "row_bytes"), [(1, 8), (1000, 400), (10**6, 400), (3 * 10**7, 400), (7, 10**8)])
def test_ranges_begin_and_end_with_the_samples_and_never_overlap(n_samples, row_bytes):
    ranges = list(choose_digest_ranges(n_samples, row_bytes))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n_samples
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))
    read = sum(stop - start for start, stop in ranges) * row_bytes
    if n_samples * row_bytes <= digest.DIGEST_WHOLE_BYTES:
        assert read == n_samples * row_bytes
    else:
        assert read <= digest.DIGEST_BLOCKS * max(digest.DIGEST_BLOCK_BYTES, row_bytes)
