"""Streams whose samples change: it is noticed, said once, and counted in the error bars; unchanged ones say nothing."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.linalg
import scipy.signal

from elldict import LpDictionaryLearning, LpICA
from elldict._old.solver.change import BLOCKS_PER_FALSE_ALARM, ChangeTest
from elldict.datasets import make_bernoulli_gaussian
from elldict.exceptions import DataChangedWarning
from elldict.metrics import recovery_error

SIZE, AT = 500, 30


def draw_dictionary(n, rng):
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def draw_codes(rng, n, size=SIZE, law="bernoulli-gaussian", density=0.2):
    if law == "laplace":
        return rng.laplace(size=(size, n))
    return rng.standard_normal((size, n)) * (rng.random((size, n)) < density)


def follow(batches, **options):
    """A stream of batches, each with its true dictionary or None.

    Numbers of the batches that were warned of, the messages, and for each batch its number, true and stated error.
    """
    model = LpDictionaryLearning(**{"random_state": 0, **options})
    warned, said, errors = [], [], []
    for number, (X, dictionary) in enumerate(batches):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataChangedWarning)
            model.partial_fit(X)
        for each in caught:
            assert each.category is DataChangedWarning
            assert each.filename == __file__
            warned.append(number)
            said.append(str(each.message))
        true = np.nan if dictionary is None else recovery_error(model.components_, dictionary)
        errors.append((number, true, model.expected_error_))
    return model, warned, said, np.array(errors)


def make_batches(n, n_batches, change, noise_std=0.2, seed=0, **law):
    """Batches of sparse codes; `change(number, codes, dictionary)` says what becomes of them."""
    rng = np.random.default_rng(seed)
    dictionary = draw_dictionary(n, rng)
    for number in range(n_batches):
        codes, now = change(number, draw_codes(rng, n, **law), dictionary)
        yield codes @ now + noise_std * rng.standard_normal(codes.shape), now


def leave(number, codes, dictionary):
    return codes, dictionary


def replace_all(number, codes, dictionary):
    other = draw_dictionary(len(dictionary), np.random.default_rng(99))
    return codes, dictionary if number < AT else other


def rotate(number, codes, dictionary, speed=4e-6):
    turn = np.random.default_rng(1).standard_normal(dictionary.shape)
    turn = (turn - turn.T) * np.sqrt(len(turn)) / np.linalg.norm(turn - turn.T)
    return codes, scipy.linalg.expm(speed * SIZE * number * turn) @ dictionary


def assert_admitted(errors, since):
    """From the batch on which it was noticed: at least half the true error is stated."""
    after = errors[errors[:, 0] >= since]
    assert np.all(after[:, 2] >= 0.5 * after[:, 1])


@pytest.mark.parametrize("noise_std", [0.0, 0.2])
@pytest.mark.parametrize("n", [10, 20])
def test_another_dictionary_is_noticed_and_admitted(n, noise_std):
    model, warned, said, errors = follow(make_batches(n, 45, replace_all, noise_std))
    assert len(warned) == 1
    assert AT < warned[0] <= AT + 4
    assert np.all(errors[warned[0] :, 1] > 0.5)  # nothing is found again without half_life
    assert_admitted(errors, warned[0])
    assert "their codes are less sparse" in said[0]
    assert "Set half_life" in said[0]
    assert "begin a new model" in said[0]
    since = int(said[0].split("sample ")[1].split()[0])
    assert abs(since - AT * SIZE) <= 2 * SIZE
    assert f"changed since about sample {since}" in model.status_
    assert np.mean(model.atom_error_) == pytest.approx(model.expected_error_)


def test_another_dictionary_of_laplace_codes_is_noticed():
    _, warned, _, errors = follow(make_batches(10, 45, replace_all, 0.0, law="laplace"))
    assert len(warned) == 1
    assert AT < warned[0] <= AT + 4
    assert_admitted(errors, warned[0])


@pytest.mark.parametrize(("n", "seed"), [(10, 1), (20, 0)])
def test_a_slow_rotation_is_noticed_before_it_is_large(n, seed):
    _, warned, said, errors = follow(make_batches(n, 80, rotate, seed=seed))
    assert len(warned) == 1
    assert errors[warned[0], 1] < 0.004
    assert errors[-1, 1] > 0.01
    assert "turn the atoms to one side" in said[0]
    assert_admitted(errors, warned[0])


def test_samples_that_turn_gaussian_are_noticed():
    def turn_gaussian(number, codes, dictionary):
        if number >= AT:
            codes = np.std(codes) * np.random.default_rng(number).standard_normal(codes.shape)
        return codes, dictionary

    _, warned, said, errors = follow(make_batches(12, 50, turn_gaussian))
    assert len(warned) == 1
    assert AT < warned[0] <= AT + 4
    assert "their codes are less sparse" in said[0]
    assert np.all(errors[warned[0] :, 2] > 0.75)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_another_scale_is_noticed_and_leaves_the_error_bar(factor):
    def scale(number, codes, dictionary):
        return codes * (factor if number >= AT else 1.0), dictionary

    _, warned, said, errors = follow(make_batches(12, 50, scale, 0.0))
    assert len(warned) == 1
    assert AT < warned[0] <= AT + 4
    assert "times as large as before. The atoms still fit them" in said[0]
    assert errors[-1, 2] < 1e-10


def test_one_atom_that_is_replaced_is_named():
    """By a direction that belongs to no atom: the first of 8 sought ones moves out of their span."""
    rng = np.random.default_rng(0)
    frame = draw_dictionary(12, rng)
    model = LpDictionaryLearning(random_state=0, n_components=8, refine=None)
    said = []
    for number in range(45):
        atoms = frame[:8].copy()
        atoms[0] = frame[0 if number < AT else 8]
        X = draw_codes(rng, 8) @ atoms + 0.2 * rng.standard_normal((SIZE, 12))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataChangedWarning)
            model.partial_fit(X)
        said += [str(each.message) for each in caught]
        if number == AT - 1:
            lost = int(np.argmax(np.abs(model.components_ @ frame[0])))
    assert len(said) == 1
    assert f"For the new ones atoms {lost} may be off" in said[0]
    assert model.atom_error_[lost] > 0.5
    assert np.all(np.delete(model.atom_error_, lost) < 0.1)


def test_two_atoms_that_turn_are_named():
    def turn_two(number, codes, dictionary):
        c, s = np.cos(0.5), np.sin(0.5)
        turned = np.vstack([[[c, s], [-s, c]] @ dictionary[:2], dictionary[2:]])
        return codes, dictionary if number < AT else turned

    batches = list(make_batches(12, 45, turn_two, 0.1))
    model, warned, said, errors = follow(batches)
    assert len(warned) == 1
    turned = np.argmax(np.abs(model.components_ @ batches[0][1][:2].T), axis=0)
    first, second = sorted(int(atom) for atom in turned)
    assert f"atoms {first}, {second} may be off" in said[0]
    assert_admitted(errors, warned[0])


def test_a_stream_that_forgets_recovers_and_says_it_once():
    model, warned, _, errors = follow(make_batches(10, 90, replace_all), half_life=2000.0)
    assert len(warned) == 1
    assert AT < warned[0] <= AT + 4
    assert_admitted(errors, warned[0])
    assert errors[warned[0], 2] > 0.3
    assert errors[-1, 1] < 0.002
    assert errors[-1, 2] < 2 * errors[AT - 1, 2]  # the error bar is what it was
    assert "changed" not in model.status_
    assert model._state.model.change.kinds == (False, False, False)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("law", ["bernoulli-gaussian", "laplace"])
def test_unchanged_samples_are_not_warned_of(law, seed):
    """200 batches each; one false alarm is expected in `BLOCKS_PER_FALSE_ALARM`, 1 in 80 of these tests at worst."""
    model, warned, _, _ = follow(make_batches(8, 200, leave, seed=seed, law=law))
    assert not warned
    assert "changed" not in model.status_
    assert BLOCKS_PER_FALSE_ALARM >= 10_000


@pytest.mark.parametrize(("size", "n"), [(1, 3), (7, 5), (50, 8), (20_000, 8)])
def test_batches_of_any_size_are_not_warned_of(size, n):
    n_samples = 1000 + (300 if size == 1 else max(1500, 4 * size))
    X, _, _ = make_bernoulli_gaussian(n_samples, n, density=0.2, noise_std=0.2, random_state=0)
    model = LpDictionaryLearning(random_state=0).partial_fit(X[:1000])
    for start in range(1000, len(X), size):
        model.partial_fit(X[start : start + size])
    assert model._state.model.change.n_blocks >= 1


def test_single_samples_of_another_dictionary_are_noticed():
    rng = np.random.default_rng(0)
    X = draw_codes(rng, 4, 8000) @ draw_dictionary(4, rng) + 0.1 * rng.standard_normal((8000, 4))
    model = LpDictionaryLearning(random_state=0).partial_fit(X[:4000])
    for start in range(4000, 7000, 300):
        model.partial_fit(X[start : start + 300])
    other = X[7000:] @ draw_dictionary(4, rng)
    for start in (0, 260):  # two blocks, and an alarm takes three
        model.partial_fit(other[start : start + 260])
    with pytest.warns(DataChangedWarning, match="have changed since about sample"):  # noqa: PT031
        for row in other[520:800]:
            model.partial_fit(row[None, :])


def test_samples_that_depend_on_each_other_within_a_block_are_not_warned_of():
    """Codes and which of them are active are remembered for about ten samples: scores are twice as large and more."""
    rng, memory, n = np.random.default_rng(0), 0.9, 8
    scale = np.sqrt(1 - memory**2)
    value, active = (
        scipy.signal.lfilter([scale], [1, -memory], rng.standard_normal((40_000, n)), axis=0) for _ in range(2)
    )
    X = value * (active > 0.84) @ draw_dictionary(n, rng) + 0.2 * rng.standard_normal((40_000, n))
    model = LpDictionaryLearning(random_state=0)
    for start in range(0, len(X), SIZE):
        model.partial_fit(X[start : start + SIZE])
    change = model._state.model.change
    assert np.mean(change.squares[-9:]) > 3 * change.n_blocks


@pytest.mark.parametrize("kind", [LpDictionaryLearning, LpICA])
def test_whitened_streams_notice_too(kind):
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((8, 8)) for _ in range(2))
    options = {"whiten": True, "center": True} if kind is LpDictionaryLearning else {}
    model = kind(random_state=0, **options)
    for _ in range(AT):
        model.partial_fit(draw_codes(rng, 8) @ first)
    before = model.expected_error_
    with pytest.warns(DataChangedWarning, match="have changed since about sample"):  # noqa: PT031
        for _ in range(6):
            model.partial_fit(draw_codes(rng, 8) @ second)
    assert before < 0.01
    assert model.expected_error_ > 0.3


def test_what_a_change_test_keeps_does_not_grow():
    batches = [X for X, _ in make_batches(6, 60, replace_all)]
    model, sizes = LpDictionaryLearning(random_state=0), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataChangedWarning)
        for X in batches:
            model.partial_fit(X)
            if isinstance(getattr(getattr(model._state, "model", None), "change", None), ChangeTest):
                sizes.append(len(pickle.dumps(model._state.model.change)))
    assert max(sizes) <= min(sizes) + 100
