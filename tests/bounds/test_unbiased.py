"""The bound for every unbiased mechanism: divergences by numerical integration, mechanisms beside it."""

import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.bounds.unbiased import largest_divergence, unbiased_error


@pytest.mark.parametrize("rho", [0.01, 0.3, 2.0])
def test_the_divergence_of_zcdp_is_that_of_shifted_normal_variables(rho):
    sigma = 1 / math.sqrt(2 * rho)
    t = np.linspace(-60 * sigma, 60 * sigma, 400_001)
    p, q = (np.exp(-((t - shift) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) for shift in (1.0, 0.0))
    divergence = np.trapezoid(np.where(q > 0, p**2 / np.where(q > 0, q, 1.0), 0.0), t) - 1
    assert largest_divergence(rho=rho) == pytest.approx(divergence, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0])
def test_no_pair_of_laws_within_pure_epsilon_has_a_larger_divergence(epsilon):
    e = math.exp(epsilon)
    q = np.array([e, 1.0]) / (1 + e)  # randomised response attains it
    p = q[::-1]
    assert largest_divergence(epsilon=epsilon) == pytest.approx((p**2 / q).sum() - 1, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(200):
        q = rng.dirichlet(np.ones(5))
        ratio = np.exp(rng.uniform(-epsilon, epsilon, 5) / 2)
        p = q * ratio / (q @ ratio)
        assert np.abs(np.log(p / q)).max() <= epsilon
        assert (p**2 / q).sum() - 1 <= largest_divergence(epsilon=epsilon) + 1e-12


def test_nothing_is_known_with_a_delta_nor_without_a_bound():
    assert unbiased_error(3.0, epsilon=1.0, delta=1e-6) is None
    assert unbiased_error(0.0, epsilon=1.0) is None
    assert unbiased_error(3.0, epsilon=1000.0) is None


def test_at_small_budgets_gaussian_fits_are_next_to_the_bound_and_pure_ones_at_least_twice_above():
    gaussian = bf.fit("all-range:16", "threshold:16:2", gap=1e-4)
    settled = bf.plan(gaussian, rho=1e-3)
    assert settled.any_unbiased_rmse is not None
    factor = math.expm1(2e-3) / 2e-3
    assert 1 <= settled.rmse / settled.any_unbiased_rmse <= math.sqrt(factor * 1.0002) + 1e-6
    assert bf.plan(gaussian, epsilon=1.0, delta=1e-6).any_unbiased_rmse is None
    laplace = bf.fit("all-range:8", "line:8", noise="laplace", max_steps=3)
    pure = bf.plan(laplace, epsilon=0.01)
    assert pure.any_unbiased_rmse is not None
    assert pure.rmse >= math.sqrt(2) * pure.any_unbiased_rmse * (1 - 1e-4)
