"""Axes: the strongest samples by name, the strength of codes, tables."""

import warnings

import numpy as np
import pytest

from elldict import LpDictionaryLearning, LpICA, describe_axes

R = 4000


def draw_samples(seed=0):
    """Laplace sources that are zero in no sample, in 9 of 10, and in 29 of 30; the last one is skewed."""
    rng = np.random.default_rng(seed)
    sources = rng.laplace(size=(R, 3))
    sources[:, 1] *= rng.random(R) < 0.1
    sources[:, 2] = np.abs(sources[:, 2]) * (rng.random(R) < 1 / 30)
    return sources @ rng.standard_normal((3, 5)) + 0.01 * rng.standard_normal((R, 5)), sources


@pytest.fixture(scope="module")
def fitted():
    X, sources = draw_samples()
    return LpICA(3, error_bars=False).fit(X), X, sources


def test_strongest_samples_are_those_with_the_largest_codes(fitted):
    model, X, _ = fitted
    names = [f"word {i}" for i in range(R)]
    found, codes = describe_axes(model, X, names, n_strongest=4), model.transform(X)
    for axis in range(3):
        order = np.argsort(codes[:, axis])
        assert found.positive[axis] == tuple(names[i] for i in order[::-1][:4])
        assert found.negative[axis] == tuple(names[i] for i in order[:4])
        # codes have unit variance already
        np.testing.assert_allclose(found.positive_codes[axis], codes[order[::-1][:4], axis], rtol=1e-6)
        np.testing.assert_allclose(found.negative_codes[axis], codes[order[:4], axis], rtol=1e-6)
    np.testing.assert_array_equal(found.error, model.atom_error_)


def test_wrong_arguments_are_refused(fitted):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=r"one entry per sample, 4000\. Got 2"):
        describe_axes(model, X, ["a", "b"])
    with pytest.raises(ValueError, match="n_strongest must be an int"):
        describe_axes(model, X, n_strongest=0)


def test_strength_is_that_of_the_density_of_codes(fitted):
    # E |z|^3 / E[z^2]^1.5 is 6 / 2^1.5 / sqrt(d) if a fraction d of Laplace codes is not zero, divided by 1.596: 1.33
    # for d = 1, 4.20 for d = 0.1. As E z^6 = 720 d, its standard error with 4000 samples is below 5 and 15 %
    model, X, sources = fitted
    found = describe_axes(model, X)
    axis = np.argmax(np.abs(np.corrcoef(model.transform(X).T, sources.T)[:3, 3:]), axis=0)
    assert abs(found.strength[axis[0]] / 1.329 - 1) < 0.15
    assert abs(found.strength[axis[1]] / 4.203 - 1) < 0.45
    assert int(found.strongest[axis[2]][0]) == np.argmax(sources[:, 2])
    # of Gaussian codes: sqrt(15 - 8 / pi) / 1.596 / sqrt(4000) = 3.5 %, and the search adds what chance allows
    noise = np.random.default_rng(1).standard_normal((R, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaussian = LpICA(2, error_bars=False).fit(noise)
    np.testing.assert_allclose(describe_axes(gaussian, noise).strength, 1, atol=0.15)


def test_largest_codes_are_found_across_blocks():
    # blocks have 2^18 / n rows; equal codes are listed in the order of the samples
    rng = np.random.default_rng(0)
    X = np.round(rng.laplace(size=(10_000, 64)), 1)
    model = LpDictionaryLearning(solver="power", random_state=0, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:500])
    model.unmixing_ = np.eye(64)
    found = describe_axes(model, X, n_strongest=12)
    for axis in range(64):
        expected = np.argsort(-X[:, axis], kind="stable")[:12]
        assert found.positive[axis] == tuple(map(str, expected))
        rms = np.sqrt(np.mean(X[:, axis] ** 2))
        np.testing.assert_allclose(found.positive_codes[axis], X[expected, axis] / rms)


def test_table_lists_the_long_tail_first_with_names_of_a_data_frame(fitted):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(fitted[1], columns=list("abcde"), index=[f"w\x1b{i}" for i in range(R)])
    found = describe_axes(LpICA(3).fit(frame), frame)
    lines, first = str(found).splitlines(), int(np.argmax(found.strength))
    assert len(lines) == 4
    assert lines[1].split()[:2] == [str(first), f"{found.strength[first]:.2f}"]
    assert f" {found.strongest[first][0]}, {found.strongest[first][1]}" in lines[1]
    assert found.strongest[first][0].startswith(r"w\x1b")  # no command to the terminal
    assert all(len(line) <= 110 for line in lines)
    assert found.summary(most=1).endswith("... and 2 more axes")
    assert found.summary([2, 0]).splitlines()[1].split()[0] == "2"
    assert repr(found).startswith("<Axes: 3 axes, strength ")
