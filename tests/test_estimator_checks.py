"""scikit-learn's checks of both estimators with their default parameters."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from elldict import LpDictionaryLearning, LpICA


@pytest.mark.filterwarnings("ignore")  # the checks fit noise and too few samples
@parametrize_with_checks([LpDictionaryLearning(), LpICA()])
def test_estimator_follows_the_conventions_of_scikit_learn(estimator, check):
    check(estimator)
