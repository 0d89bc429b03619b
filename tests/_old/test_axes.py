"""Axes: strongest samples by name, and strengths."""

import numpy as np
import pandas as pd
import pytest

import elldict

N_SAMPLES = 4000


@pytest.fixture(scope="module")
def fitted():
    """Sources that are sparser and sparser: Laplace, one in ten, one in thirty; the last one is skewed."""
    rng = np.random.default_rng(0)
    sources = rng.laplace(size=(N_SAMPLES, 3))
    sources[:, 1] *= rng.random(N_SAMPLES) < 0.1
    sources[:, 2] = np.abs(sources[:, 2]) * (rng.random(N_SAMPLES) < 1 / 30)
    sources -= np.mean(sources, axis=0)
    X = sources @ rng.standard_normal((3, 5)) + 0.01 * rng.standard_normal((N_SAMPLES, 5))
    return elldict.LpICA(3, random_state=0).fit(X), X, sources


def test_names_are_those_of_the_largest_codes(fitted):
    model, X, _ = fitted
    names = [f"word {i}" for i in range(N_SAMPLES)]
    found = elldict.describe_axes(model, X, names, n_strongest=4)
    codes = model.transform(X)
    for axis in range(3):
        order = np.argsort(codes[:, axis])
        assert found.positive[axis] == tuple(names[i] for i in order[::-1][:4])
        assert found.negative[axis] == tuple(names[i] for i in order[:4])
        assert np.all(np.diff(found.positive_codes[axis]) <= 0)
        assert np.all(found.negative_codes[axis] < 0)
        # codes of an LpICA have unit variance: the unit is theirs
        np.testing.assert_allclose(found.positive_codes[axis], codes[order[::-1][:4], axis], rtol=1e-3)


def test_strength_is_one_for_gaussian_codes_and_follows_the_law(fitted):
    """E|z|^3 / E[z^2]^1.5 of Laplace values on a share d of samples is 6 / 2^1.5 / sqrt(d), over 1.596: 1.33 for d = 1
    and 4.20 for d = .1. Its standard error at 4000 samples is below 15 % (E z^6 = 720 d): 45 % is three of them."""
    model, X, sources = fitted
    found = elldict.describe_axes(model, X)
    match = np.argmax(np.abs(np.corrcoef(model.transform(X).T, sources.T)[:3, 3:]), axis=0)
    assert abs(found.strength[match[0]] / 1.329 - 1) < 0.15
    assert abs(found.strength[match[1]] / 4.203 - 1) < 0.45
    assert np.all(np.diff(found.strength[match]) > 0)
    # of the skewed source the long tail comes first
    strongest = int(found.strongest[match[2]][0])
    assert strongest in np.argsort(-sources[:, 2])[:3]
    noise = np.random.default_rng(1).standard_normal((N_SAMPLES, 5))
    with pytest.warns(elldict.exceptions.NotIdentifiableWarning):
        gaussian = elldict.LpICA(2, random_state=0).fit(noise)
    # of 4000 values it is known to sqrt(15 - 8 / pi) / 1.596 / 63 = 3.5 %, and the search adds what chance allows
    assert np.all(np.abs(elldict.describe_axes(gaussian, noise).strength - 1) < 0.15)


def test_table_has_names_of_a_data_frame(fitted):
    model, X, _ = fitted
    model = elldict.LpICA(3, random_state=0).fit(pd.DataFrame(X).rename(columns=str))
    frame = pd.DataFrame(X, index=[f"w{i}" for i in range(N_SAMPLES)]).rename(columns=str)
    found = elldict.describe_axes(model, frame)
    lines = str(found).splitlines()
    assert len(lines) == 4
    first = int(np.argmax(found.strength))
    assert lines[1].split()[:2] == [str(first), f"{found.strength[first]:.2f}"]
    assert f" {found.strongest[first][0]}, {found.strongest[first][1]}" in lines[1]
    assert all(len(line) <= 110 for line in lines)
    assert "... and 2 more axes" in found.summary(most=1)
    assert found.summary([2, 0]).splitlines()[1].split()[0] == "2"
    assert repr(found).startswith("<Axes: 3 axes, strength ")


def test_files_give_the_same(fitted, tmp_path):
    model, X, _ = fitted
    np.save(tmp_path / "x.npy", X)
    one, other = (elldict.describe_axes(model, source) for source in (X, tmp_path / "x.npy"))
    assert one.positive == other.positive
    np.testing.assert_array_equal(one.strength, other.strength)


def test_wrong_arguments_are_refused(fitted):
    model, X, _ = fitted
    with pytest.raises(ValueError, match="names has 2 entries, expected one for each of 4000 samples"):
        elldict.describe_axes(model, X, ["a", "b"])
    with pytest.raises(ValueError, match="n_strongest=0, expected"):
        elldict.describe_axes(model, X, n_strongest=0)
