from elldict import LpDictionaryLearning, datasets, metrics


def test_learns():
    X, dictionary, _ = datasets.make_bernoulli_gaussian(5000, 16, density=0.2, random_state=0)
    assert metrics.recovery_error(LpDictionaryLearning(random_state=0).fit(X).components_, dictionary) < 0.01
