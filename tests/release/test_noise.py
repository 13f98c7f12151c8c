"""Discrete noise: its distribution by enumeration, its calibration by exact arithmetic, its samples by chi-square."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hdmm_bf._checks import InputError
from hdmm_bf.release import noise
from hdmm_bf.release.noise import LARGEST, Sampler

FIVE_SIGMA = 2 * stats.norm.sf(5)
"""Probability beyond five standard errors, also for statistics that are not normal."""


def log_weights(kind, scale, reach):
    """Logarithms of the unnormalised probabilities of -reach to reach."""
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    return -np.abs(k) / scale if kind == "laplace" else -((k / scale) ** 2) / 2


def mass(kind, scale, reach):
    """Probabilities of -reach to reach."""
    w = np.exp(log_weights(kind, scale, reach))
    return w / w.sum()


# ---------------------------------------------------------------- the distribution


@pytest.mark.parametrize("scale", [0.02, 0.05, 0.1, 0.3, 1.0, 1.5, 4.99, 5.01, 30.0, 1000.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_variance_is_that_of_the_discrete_distribution(kind, scale):
    reach = math.ceil(60 * scale) + 60
    k = np.arange(-reach, reach + 1)
    assert Sampler(kind, scale, 1.0).variance == pytest.approx(
        float((k**2 * mass(kind, scale, reach)).sum()), rel=1e-12
    )


def chi_square(samples, kind, scale):
    """Pearson's statistic over values expected at least 20 times, the tails as one, and its degrees of freedom."""
    reach = 200
    expected = mass(kind, scale, reach) * samples.size
    seen = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)
    common = expected >= 20
    expected = np.append(expected[common], expected[~common].sum())
    seen = np.append(seen[common], seen[~common].sum())
    return float(((seen - expected) ** 2 / expected).sum()), expected.size - 1


@pytest.mark.parametrize("scale", [1.5, 6.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_samples_have_the_stated_probabilities(kind, scale):
    """Pearson's statistic of n samples is chi-square; a scale wrong by 5 % moves it by about n (0.05)^2 = 250."""
    samples = Sampler(kind, scale, 1.0).draw(100_000)
    statistic, freedom = chi_square(samples, kind, scale)
    assert statistic < stats.chi2.isf(FIVE_SIGMA, freedom)
    statistic, freedom = chi_square(samples, kind, 1.05 * scale)
    assert statistic > stats.chi2.isf(FIVE_SIGMA, freedom)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_samples_are_independent_within_and_between_chunks(kind):
    """The correlation of n independent pairs has standard error 1 / sqrt n; the control pairs them with their signs."""
    size = 5 * noise._CHUNK + 17
    samples = Sampler(kind, 40.0, 1.0).draw(size).astype(np.float64)
    for lag in (1, 2, noise._CHUNK):
        assert abs(np.corrcoef(samples[lag:], samples[:-lag])[0, 1]) < 5 / math.sqrt(size - lag)
    half = samples[: size // 2]
    assert np.corrcoef(half, np.sign(half))[0, 1] > 5 / math.sqrt(half.size)


def test_progress_is_told_and_ends_at_the_size():
    told = []
    samples = Sampler("laplace", 3.0, 1.0).draw(2 * noise._CHUNK + 3, callback=told.append)
    assert told == [noise._CHUNK, 2 * noise._CHUNK, 2 * noise._CHUNK + 3]
    assert samples.dtype == np.int64
    assert samples.shape == (told[-1],)
    assert Sampler("gaussian", 3.0, 1.0).draw(0).shape == (0,)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_hardly_any_sample_exceeds_the_reach(kind):
    """The mass beyond 64 scales is at most e^-64, in logarithms that do not vanish."""
    sampler = Sampler(kind, 7.0, 1.0)
    assert sampler.reach == 448
    beyond = log_weights(kind, 7.0, 5000)
    beyond = beyond[np.abs(np.arange(-5000, 5001)) > sampler.reach]
    assert np.logaddexp.reduce(beyond) - np.logaddexp.reduce(log_weights(kind, 7.0, 5000)) <= -64


# ---------------------------------------------------------------- what it promises, by enumeration


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 0.1), (1, 1.0), (3, 0.7), (7, 4.0)])
def test_laplace_noise_loses_exactly_epsilon(sensitivity, epsilon):
    """Quotes noise: The noise of `laplace(s, epsilon)` makes integer answers of L1 sensitivity s epsilon-private.

    The largest log-ratio of the probabilities of k and of k + s is s / scale; noise of 0.95 of the scale breaks it.
    """
    made = noise.laplace(sensitivity, epsilon)
    for scale, fine in ((made.scale, True), (0.95 * made.scale, False)):
        logs = log_weights("laplace", scale, 400)
        loss = max(np.abs(logs[s:] - logs[:-s]).max() for s in range(1, sensitivity + 1))
        assert bool(loss <= epsilon * (1 + 1e-12)) == fine
    assert made.loss == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(("sensitivity", "rho"), [(1, 0.5), (1, 0.02), (2, 0.3), (5, 2.0)])
def test_gaussian_noise_is_concentrated_at_rho(sensitivity, rho):
    """Quotes noise: and that of `gaussian(t, rho)` makes integer answers of squared L2 sensitivity t rho-zCDP.

    Renyi divergences of the discrete distributions, summed: at most alpha rho, and nearly that for whole shifts.
    """
    made = noise.gaussian(sensitivity**2, rho)
    reach = math.ceil(60 * made.scale) + 20
    for scale, fine in ((made.scale, True), (0.97 * made.scale, False)):
        logs = log_weights("gaussian", scale, reach)
        logs = logs - np.logaddexp.reduce(logs)
        p, q = logs[sensitivity:], logs[:-sensitivity]
        for alpha in (1.1, 2.0, 3.7, 8.0) if fine else (2.0, 8.0):  # whole orders attain alpha rho
            divergence = np.logaddexp.reduce(alpha * p + (1 - alpha) * q) / (alpha - 1)
            assert bool(divergence <= alpha * rho * (1 + 1e-9)) == fine


@given(st.integers(1, 2**50), st.floats(1e-3, 1e3))
def test_laplace_calibration_is_on_the_safe_side_by_rounding_only(sensitivity, epsilon):
    made = noise.laplace(sensitivity, epsilon)
    needed = Fraction(sensitivity) / Fraction(epsilon)
    assert needed <= Fraction(made.scale) <= needed * (1 + Fraction(1, 10**12))
    assert made.loss <= epsilon


@given(st.integers(1, 2**100), st.floats(1e-3, 1e3))
def test_gaussian_calibration_is_on_the_safe_side_by_rounding_only(square, rho):
    made = noise.gaussian(square, rho)
    needed = Fraction(square) / (2 * Fraction(rho))
    assert needed <= Fraction(made.scale) ** 2 <= needed * (1 + Fraction(1, 10**12))
    assert made.loss <= rho


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("sensitivity", [0, -1, LARGEST])
def test_sensitivities_out_of_range_are_refused(sensitivity):
    with pytest.raises(InputError, match="does not fit in 64 bits"):
        noise.laplace(sensitivity, 1.0)


@pytest.mark.parametrize(
    "calibrate",
    [
        lambda: noise.laplace(LARGEST - 1, 1.0),
        lambda: noise.laplace(1, 1e-18),
        lambda: noise.laplace(1, 5e-324),
        lambda: noise.gaussian(0, 1.0),
        lambda: noise.gaussian(2**120, 1e-3),
        lambda: noise.gaussian(1, 1.7e308),
    ],
)
def test_scales_that_are_zero_or_too_large_are_refused(calibrate):
    with pytest.raises(InputError, match="must be positive, and its samples must fit in 64 bits"):
        calibrate()
