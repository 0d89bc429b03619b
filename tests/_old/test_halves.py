"""Halves of the samples: disjoint, whole blocks and groups, and the error bars that they give."""

import numpy as np
import pytest

from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.halves import N_BLOCKS, check_groups, split_alternately, split_at_random, take_half


@pytest.mark.parametrize("n_samples", [2, 3, 41, 80, 1000, 1003])
def test_alternating_halves_hold_every_sample_once(n_samples: int) -> None:
    one, other = split_alternately(n_samples, n_samples)
    assert sorted([*one, *other]) == list(range(n_samples))
    assert abs(len(one) - len(other)) <= N_BLOCKS


def test_alternating_halves_are_made_of_consecutive_samples() -> None:
    one, _ = split_alternately(4000, 4000)
    assert np.sum(np.diff(one) > 1) == N_BLOCKS // 2 - 1


def test_halves_of_groups_keep_them_whole_and_are_of_like_size() -> None:
    groups = np.random.default_rng(0).integers(0, 13, 1000)
    for one, other in (split_alternately(1000, 1000, groups), split_at_random(1000, 1000, _rng(), groups=groups)):
        assert not set(groups[one]) & set(groups[other])
        assert len(one) + len(other) == 1000
        assert abs(len(one) - len(other)) < 250


def test_one_large_group_leaves_the_others_to_the_other_half() -> None:
    groups = np.repeat([0, 1, 2], [900, 50, 50])
    for seed in range(5):
        one, other = split_at_random(1000, 1000, np.random.default_rng(seed), groups=groups)
        assert min(len(one), len(other)) in (50, 100)


@pytest.mark.parametrize("block_rows", [1, 10])
def test_random_halves_are_disjoint_and_differ_from_draw_to_draw(block_rows: int) -> None:
    rng = _rng()
    (one, other), (another, _) = (split_at_random(1000, 1000, rng, block_rows=block_rows) for _ in range(2))
    assert not set(one) & set(other)
    assert len(one) == len(other) == 500
    assert not np.array_equal(one, another)
    assert np.all(one.reshape(-1, block_rows)[:, -1] - one.reshape(-1, block_rows)[:, 0] == block_rows - 1)


def test_large_halves_are_thinned_out_in_all_parts() -> None:
    one, other = split_alternately(4000, 400)
    assert len(one) == len(other) == 400
    assert one[-1] > 3700
    assert len(split_at_random(4000, 400, _rng())[0]) == 400
    assert len(split_at_random(4000, 400, _rng(), groups=np.arange(4000) % 7)[0]) == 400


def test_a_half_is_a_copy_in_the_order_of_the_samples() -> None:
    X = np.random.default_rng(0).standard_normal((100, 3))
    one, _ = split_alternately(100, 100)
    assert np.array_equal(take_half(ArrayDataset(X), one).X, X[one])


@pytest.mark.parametrize(("groups", "found"), [([1, 2], r"shape \(2,\)"), (np.zeros(100), "one label")])
def test_groups_that_cannot_be_halved_are_refused(groups: object, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        check_groups(groups, 100)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)
