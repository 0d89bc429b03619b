"""Closed forms from the paper and beyond: moments, bounds, and the algorithm on infinitely many samples."""

from elldict.theory.accuracy import cramer_rao_bound, expected_error, gaussian_moment
from elldict.theory.bounds import noise_gap, recovery_constant, samples_needed
from elldict.theory.population import (
    first_stage_bound,
    growth_rates,
    population_gradient,
    population_objective,
    population_step,
    signal_ratio,
    signal_ratios,
)
from elldict.theory.supports import expected_power
from elldict.theory.unmixing import bernoulli_gaussian_information, crosstalk_bound

__all__ = [
    "bernoulli_gaussian_information",
    "cramer_rao_bound",
    "crosstalk_bound",
    "expected_error",
    "expected_power",
    "first_stage_bound",
    "gaussian_moment",
    "growth_rates",
    "noise_gap",
    "population_gradient",
    "population_objective",
    "population_step",
    "recovery_constant",
    "samples_needed",
    "signal_ratio",
    "signal_ratios",
]
