"""Noise sizes against the definition of (epsilon, delta)-privacy, by numerical integration."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from hdmm_bf._checks import InputError
from hdmm_bf.mechanisms.privacy import gaussian_delta, gaussian_sigma, noise_variance

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
