"""From privacy parameters to the size of the noise, for a strategy of sensitivity 1.

These are the numbers for predicting errors: ideal Laplace and Gaussian noise, the Gaussian calibrated exactly
(Balle and Wang, 2018). What a release draws is discrete noise, calibrated on its own grid.
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise


def noise_variance(
    noise: Noise, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
) -> float:
    """Return the variance of one coordinate of the noise: 2 / epsilon^2 (Laplace) or sigma^2 (Gaussian).

    Args:
        noise: "laplace" takes epsilon; "gaussian" takes epsilon and delta, or rho (zero-concentrated privacy).
        epsilon: the privacy loss.
        delta: the probability that it is exceeded.
        rho: the zCDP parameter.
    """
    if noise == "laplace":
        if epsilon is None or delta is not None or rho is not None:
            shown = f"epsilon={epsilon}, delta={delta}, rho={rho}"
            raise fail("privacy", shown, "Laplace noise takes epsilon alone", "Give epsilon only.")
        return 2.0 / _positive("epsilon", epsilon) ** 2
    if rho is not None and epsilon is None and delta is None:
        return 1.0 / (2 * _positive("rho", rho))
    if epsilon is None or delta is None or rho is not None:
        shown = f"epsilon={epsilon}, delta={delta}, rho={rho}"
        raise fail("privacy", shown, "Gaussian noise takes epsilon and delta, or rho", "Give one of the two.")
    return gaussian_sigma(epsilon, delta) ** 2


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least standard deviation that makes Gaussian noise (epsilon, delta)-private at sensitivity 1.

    Guarantees:
        `gaussian_delta(sigma, epsilon)` equals delta to a relative 1e-12.
    """
    _positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise fail("privacy", f"delta={delta}", "must be between 0 and 1", "Use for example 1e-6.")
    low = high = 1.0 / epsilon
    while gaussian_delta(high, epsilon) > delta:
        high *= 2
    while gaussian_delta(low, epsilon) < delta:
        low /= 2
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if gaussian_delta(middle, epsilon) > delta else (low, middle)
    return high


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Return the least delta for which noise of that standard deviation is (epsilon, delta)-private."""
    first = log_ndtr(0.5 / sigma - epsilon * sigma)
    second = epsilon + log_ndtr(-0.5 / sigma - epsilon * sigma)
    return float(math.exp(first) * -math.expm1(min(second - first, 0.0)))


def _positive(name: str, value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise fail("privacy", f"{name}={value}", "must be a positive number", "Use for example 1.0.")
    return value
