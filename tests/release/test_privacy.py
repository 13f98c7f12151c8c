"""Noise sizes against the definition of (epsilon, delta)-privacy, by numerical integration."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from hdmm_bf._checks import InputError
from hdmm_bf.release.privacy import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    noise_variance,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)

CASES = [(0.1, 1e-5), (0.5, 1e-9), (1.0, 1e-6), (1.0, 0.001), (4.0, 1e-12), (0.01, 0.3)]


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_sigma_gives_exactly_the_wanted_delta(epsilon, delta):
    """Quotes gaussian_sigma: `gaussian_delta(sigma, epsilon)` equals delta to a relative 1e-12."""
    sigma = gaussian_sigma(epsilon, delta)
    assert gaussian_delta(sigma, epsilon) == pytest.approx(delta, rel=1e-12)
    assert gaussian_delta(sigma, epsilon) <= delta * (1 + 1e-14)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (1.0, 0.01), (2.0, 0.05)])
def test_delta_is_the_integral_of_the_excess_of_one_density_over_the_other(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta)
    one, other = stats.norm(1, sigma), stats.norm(0, sigma)
    threshold = epsilon * sigma**2 + 0.5
    value, _ = integrate.quad(
        lambda t: one.pdf(t) - math.exp(epsilon) * other.pdf(t), threshold, threshold + 12 * sigma, epsabs=1e-12
    )
    assert value == pytest.approx(delta, rel=1e-6)


def test_less_privacy_needs_less_noise():
    sigmas = [gaussian_sigma(epsilon, 1e-6) for epsilon in np.geomspace(0.01, 10, 12)]
    assert sigmas == sorted(sigmas, reverse=True)


def test_laplace_and_zcdp_have_their_closed_forms():
    assert noise_variance("laplace", epsilon=0.5) == 8.0
    assert noise_variance("gaussian", rho=0.125) == 4.0


@pytest.mark.parametrize(
    ("noise", "given"),
    [
        ("laplace", {}),
        ("laplace", {"epsilon": 1.0, "delta": 0.1}),
        ("laplace", {"epsilon": math.inf}),
        ("gaussian", {"epsilon": 1.0}),
        ("gaussian", {"epsilon": 1.0, "delta": 0.1, "rho": 1.0}),
        ("gaussian", {"rho": -1.0}),
        ("gaussian", {"epsilon": 1.0, "delta": 0.0}),
    ],
)
def test_parameters_that_do_not_fit_the_noise_are_refused(noise, given):
    with pytest.raises(InputError, match="privacy"):
        noise_variance(noise, **given)


# ---------------------------------------------------------------- zero-concentrated privacy

ZCDP = [(0.5, 1e-6), (0.02, 1e-9), (0.001, 1e-3), (3.0, 1e-12), (0.1, 0.2)]


def converted_delta(rho, epsilon):
    """Proposition 12 of Canonne, Kamath and Steinke (2020), minimised over a fine grid of orders."""
    alpha = 1 + np.geomspace(1e-6, 1e6, 400_001)
    logs = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
    return math.exp(logs.min())


@pytest.mark.parametrize(("rho", "delta"), ZCDP)
def test_conversions_to_epsilon_and_delta_are_those_of_the_literature(rho, delta):
    """Quotes zcdp_delta: The infimum over orders alpha > 1; every order gives a valid delta."""
    epsilon = zcdp_epsilon(rho, delta)
    assert converted_delta(rho, epsilon) == pytest.approx(delta, rel=1e-6)
    assert zcdp_delta(rho, epsilon) <= delta
    assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-9)
    assert zcdp_rho(epsilon, delta) == pytest.approx(rho, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "delta"), ZCDP)
def test_conversions_agree_with_dp_accounting(rho, delta):
    """Theirs minimise over a list of orders, so it is at least ours; with a fine list it is the same."""
    accounting = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant", reason="needs dp-accounting")
    orders = 1 + np.geomspace(1e-3, 1e5, 20_001)
    theirs, _ = accounting.compute_epsilon(orders, orders * rho, delta)
    ours = zcdp_epsilon(rho, delta)
    assert ours <= theirs * (1 + 1e-9)
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-4), (2.0, 1e-3)])
def test_discrete_gaussian_noise_at_that_rho_keeps_epsilon_and_delta(epsilon, delta):
    """The definition, by enumeration: sum over k of max(0, p(k) - e^epsilon p(k - s)); 0.85 of the noise breaks it."""
    for shift in (1, 4):
        needed = shift / math.sqrt(2 * zcdp_rho(epsilon, delta))
        for sigma, fine in ((needed, True), (0.85 * needed, False)):
            k = np.arange(-math.ceil(40 * sigma), math.ceil(40 * sigma) + 1)
            p = np.exp(-((k / sigma) ** 2) / 2)
            p /= p.sum()
            excess = np.maximum(p[:-shift] - math.exp(epsilon) * p[shift:], 0.0).sum()
            assert bool(excess <= delta) == fine


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.5, 1e-9)])
def test_the_noise_of_zcdp_is_enough_for_the_accountant_of_dp_accounting(epsilon, delta):
    """Privacy loss distributions of the discrete Gaussian: tight, so 0.85 of the noise must be too little."""
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="needs dp-accounting")
    sigma = 1 / math.sqrt(2 * zcdp_rho(epsilon, delta))
    for noise, fine in ((sigma, True), (0.85 * sigma, False)):
        made = losses.from_discrete_gaussian_mechanism(noise, value_discretization_interval=1e-4)
        assert bool(made.get_epsilon_for_delta(delta) <= epsilon) == fine


@pytest.mark.parametrize(("sigma", "delta"), [(1.0, 1e-6), (3.0, 1e-3), (20.0, 1e-9)])
def test_the_epsilon_of_a_sigma_is_the_inverse_of_the_sigma_of_an_epsilon(sigma, delta):
    assert gaussian_sigma(gaussian_epsilon(sigma, delta), delta) == pytest.approx(sigma, rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: gaussian_epsilon(1.0, 1.0),
        lambda: gaussian_epsilon(-1.0, 0.1),
        lambda: zcdp_epsilon(0.0, 0.1),
        lambda: zcdp_epsilon(1.0, math.nan),
        lambda: zcdp_rho(1.0, 0.0),
        lambda: zcdp_rho(math.nan, 0.1),
    ],
)
def test_conversions_refuse_what_is_no_parameter(wrong):
    with pytest.raises(InputError, match="privacy"):
        wrong()
