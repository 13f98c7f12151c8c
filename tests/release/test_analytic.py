"""Exact privacy of normal noise: enclosures against arbitrary precision, calibration against its definition."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import analytic
from hdmm_bf.release.privacy import noise_variance
from hdmm_bf.strategies.records import EdgeStrategy
from tests.support.fits import shipped
from tests.support.mistakes import _as_users_run_it  # noqa: F401
from tests.support.noises import mean_of

POINTS = [(0.2, 1.0), (1.0, 1.0), (5.0, 1.0), (0.01, 0.01), (1e-6, 1e-7), (20.0, 300.0), (137.0, 1e4), (3.0, 1e-3)]


def exact_delta(mu, epsilon):
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), with more digits than can cancel."""
    mu, epsilon = (mpmath.mpf(v.numerator) / v.denominator for v in (mu, epsilon))
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("mu", "epsilon"), [*POINTS, (12.0, 0.5), (0.07, 2.0), (1e-9, 1e-30)])
def test_the_delta_of_normal_noise_is_enclosed_to_forty_digits(mu, epsilon):
    with mpmath.workdps(400):
        truth = exact_delta(Fraction(mu), Fraction(epsilon))
        low, high = (
            mpmath.mpf(v.numerator) / v.denominator for v in analytic.delta_enclosure(Fraction(mu), Fraction(epsilon))
        )
        assert low <= truth <= high
        assert high - low <= truth * mpmath.mpf(10) ** -40


@pytest.mark.parametrize("t", [0.0, 1e-9, 0.3, 1.0, 3.7, 5.99, 6.0, 11.0, 140.0])
def test_the_ratio_of_mills_is_enclosed(t):
    with mpmath.workdps(200):
        truth = mpmath.sqrt(mpmath.pi / 2) * mpmath.exp(mpmath.mpf(t) ** 2 / 2) * mpmath.erfc(t / mpmath.sqrt(2))
        low, high = analytic.mills(Fraction(t), 200)
        assert low <= mpmath.ldexp(truth, 200) <= high
        assert high - low <= 2**60


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01, 0.6])
def test_sigma_is_enough_and_the_least(epsilon, delta):
    """Quotes analytic: makes answers (epsilon, delta)-private; with 10^-14 less that is not seen to hold."""
    square = 3 * 2**41
    sigma = analytic.sigma_for(square, epsilon, delta)
    with mpmath.workdps(60):
        for factor, fine in ((1.0, True), (1 - 1e-13, False)):
            mu = Fraction(float(mpmath.sqrt(square) / (sigma * factor)))
            assert (exact_delta(mu, Fraction(epsilon)) <= mpmath.mpf(delta) * (1 + 1e-14)) == fine
    assert analytic.keeps(analytic.mu_above(square, sigma), epsilon, delta)
    assert not analytic.keeps(analytic.mu_above(square, sigma * (1 - 1e-14)), epsilon, delta)
    back = analytic.epsilon_for(analytic.mu_above(square, sigma), delta)
    assert back == pytest.approx(epsilon, rel=1e-9)


def test_parameters_out_of_reach_are_refused_in_words():
    with pytest.raises(InputError, match="out of reach of the noise"):
        analytic.sigma_for(1, 1e-20, 1e-20)


# ---------------------------------------------------------------- releases have the error of the ideal mechanism


def edge_fit():
    """Identity on the edges, off trees."""
    problem = Problem(workload.all_range(64), policy.threshold(64, 4))
    e = problem.policy.num_edges
    return shipped(problem, EdgeStrategy(np.eye(e, dtype=np.int64) << 20, 20, "identity on edges"), "gaussian")


FITS = {
    "dense": lambda: bf.fit("all-range:64", "threshold:64:4"),
    "edge": edge_fit,
    "structured": lambda: bf.fit("all-range:64", "threshold:64:4", family="bases"),
    "structured, two attributes": lambda: bf.fit("all-range:8x8", "threshold:8x8:1", family="bases"),
}


@pytest.mark.parametrize(("count", "control"), [(25, 2.0), pytest.param(400, 1.14, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", FITS)
def test_releases_have_the_squared_error_of_the_ideal_gaussian_mechanism(kind, count, control):
    """The unit error times sigma^2 of Balle and Wang, within five standard errors, and not 14 % more."""
    fit, asked = FITS[kind](), {"epsilon": 1.0, "delta": 1e-6}
    unit = fit.unit_error
    ideal = unit * noise_variance("gaussian", **asked)
    assert fit.expected_error(**asked) == pytest.approx(ideal, rel=1e-9)
    x = np.zeros(64, dtype=int)
    errors = [float((bf.release(fit, x, **asked).answers ** 2).sum()) for _ in range(count)]
    assert mean_of(errors, fit.expected_error(**asked), control=control)
    by_way = fit.expected_error(**asked, accounting="zcdp")
    assert by_way > 1.13 * ideal


def test_the_delta_of_a_release_is_what_was_asked_for():
    """By integration of the privacy loss, normal with mean mu^2 / 2 and variance mu^2, over what exceeds epsilon."""
    fit, epsilon, delta = FITS["dense"](), 1.0, 1e-6
    settled = bf.plan(fit, epsilon=epsilon, delta=delta)
    A, G = fit.strategy.integers.astype(object), fit.problem.policy.edges.tolist()
    moved = [A[:, u] - (A[:, v] if v >= 0 else 0) for u, v in G]
    worst = max(sum(int(a) ** 2 for a in shift) for shift in moved)
    mu = math.sqrt(worst) / settled.sampler.scale
    loss = np.linspace(epsilon, epsilon + 14 * mu, 400_001)
    density = np.exp(-(((loss - mu**2 / 2) / mu) ** 2) / 2) / (mu * math.sqrt(2 * math.pi))
    found = np.trapezoid(-np.expm1(epsilon - loss) * density, loss)
    assert 0.999 * delta < found < delta * (1 + 1e-8)


def test_an_accounting_that_there_is_none_of_is_refused():
    fit = bf.fit("identity:3", "line:3")
    with pytest.raises(InputError, match="accounting='rdp'"):
        bf.plan(fit, epsilon=1.0, delta=1e-6, accounting="rdp")
