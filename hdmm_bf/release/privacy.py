"""From privacy parameters to the size of the noise, for a strategy of sensitivity 1, and back.

`noise_variance` is that of ideal Laplace and Gaussian noise, the Gaussian calibrated exactly (Balle and Wang, 2018): a
yardstick. What a release draws is discrete noise, accounted in zero-concentrated privacy (`zcdp_*`), which holds for it
exactly and asks for a few percent more noise; a plan predicts errors with that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from scipy.special import log_ndtr

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise

_SMALLEST, _LARGEST = 1e-30, 1e7
"""Privacy losses outside are mistakes, or of no use."""

_WEAK_DELTA, _WEAK_EPSILON, _USUAL_DELTA = 1e-3, 10.0, 1e-6
"""Parameters beyond which a promise is called weak, and the delta at which rho is judged."""

_HUGE, _TINY = 1e150, 1e-300

NAMES: dict[Noise, str] = {"gaussian": "Gaussian noise", "laplace": "Laplace noise", "norm": "tree-norm noise"}
"""The noises in words."""


def noise_variance(
    noise: Noise, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
) -> float:
    """Return the variance that a unit error is multiplied by: 2 / epsilon^2 (pure epsilon) or sigma^2 (Gaussian).

    Args:
        noise: "laplace" and "norm" take epsilon; "gaussian" takes epsilon and delta, or rho (zCDP).
        epsilon: the privacy loss.
        delta: the probability that it is exceeded.
        rho: the zCDP parameter.
    """
    if noise != "gaussian":
        if epsilon is None or delta is not None or rho is not None:
            shown = f"epsilon={epsilon}, delta={delta}, rho={rho}"
            raise fail("privacy", shown, f"{NAMES[noise]} takes epsilon alone", "Give epsilon only.")
        return 2.0 / _positive("epsilon", epsilon) ** 2
    if rho is not None and epsilon is None and delta is None:
        return 1.0 / (2 * _positive("rho", rho))
    if epsilon is None or delta is None or rho is not None:
        shown = f"epsilon={epsilon}, delta={delta}, rho={rho}"
        raise fail("privacy", shown, "Gaussian noise takes epsilon and delta, or rho", "Give one of the two.")
    return gaussian_sigma(epsilon, delta) ** 2


def guess_probability(
    *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None, mu: float | None = None
) -> float:
    """Return how often, at most, somebody is right who guesses which of two hidden values a record has.

    Both values are equally likely beforehand and all other records are known. With mu (Gaussian differential privacy)
    it is Phi(mu / 2), which the Gaussian mechanism attains; else (e^epsilon + delta) / (1 + e^epsilon), which
    randomised response attains; with rho alone 1/2 + sqrt(rho / 8), by Pinsker's inequality.
    """
    if mu is not None:
        return math.exp(float(log_ndtr(mu / 2)))
    if epsilon is not None:
        odds = math.exp(-_positive("epsilon", epsilon))
        return min((1 + (delta or 0.0) * odds) / (1 + odds), 1.0)
    if rho is None:
        raise fail("privacy", "no parameter", "bounds no guess", "Give epsilon, rho or mu.")
    return min(0.5 + math.sqrt(_positive("rho", rho) / 8), 1.0)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least standard deviation that makes Gaussian noise (epsilon, delta)-private at sensitivity 1.

    Guarantees:
        `gaussian_delta(sigma, epsilon)` equals delta to a relative 1e-12.
    """
    _positive("epsilon", epsilon)
    _probability(delta)
    return _least(lambda sigma: gaussian_delta(sigma, epsilon) <= delta)


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Return the least delta for which noise of that standard deviation is (epsilon, delta)-private."""
    first = log_ndtr(0.5 / sigma - epsilon * sigma)
    second = epsilon + log_ndtr(-0.5 / sigma - epsilon * sigma)
    return float(math.exp(first) * -math.expm1(min(second - first, 0.0)))


def gaussian_epsilon(sigma: float, delta: float) -> float:
    """Return the least epsilon for which noise of that standard deviation is (epsilon, delta)-private."""
    _probability(delta)
    if not 0 < sigma < math.inf:
        raise fail("privacy", f"sigma={sigma}", "must be a positive number", "Use for example 1.0.")
    return _least(lambda epsilon: gaussian_delta(sigma, epsilon) <= delta)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a delta for which rho-zCDP implies (epsilon, delta)-privacy.

    Guarantees:
        The infimum over orders alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1)
        (Canonne, Kamath, Steinke 2020, Proposition 12); every order gives a valid delta, so an inexact minimiser is
        safe.
    """
    from scipy.optimize import minimize_scalar  # loads slowly, and is seldom needed

    def log_delta(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        alpha = 1 + excess
        return excess * (alpha * rho - epsilon) - alpha * math.log1p(1 / excess) - log_excess

    found = minimize_scalar(log_delta, bounds=(-40.0, 40.0), method="bounded", options={"xatol": 1e-10})
    return math.exp(min(float(found.fun), 0.0))


@functools.lru_cache(maxsize=256)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the least epsilon for which rho-zCDP is known to imply (epsilon, delta)-privacy."""
    _positive("rho", rho)
    _probability(delta)
    return _least(lambda epsilon: zcdp_delta(rho, epsilon) <= delta)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP is known to imply (epsilon, delta)-privacy."""
    _positive("epsilon", epsilon)
    _probability(delta)
    return 1.0 / _least(lambda inverse: zcdp_delta(1.0 / inverse, epsilon) <= delta)


def weak_promises(*, epsilon: float | None, delta: float | None, rho: float | None) -> list[str]:
    """Say, a sentence each, which privacy parameters promise little; none for the usual ones."""
    found = []
    if delta is not None and delta > _WEAK_DELTA:
        found.append(
            f"delta = {delta:g} is a weak promise: with this probability the release may reveal a record in full. "
            "Use less than 1 / number of records, for example 1e-6."
        )
    limit = zcdp_epsilon(rho, _USUAL_DELTA) if epsilon is None and rho is not None else epsilon
    if limit is not None and limit > _WEAK_EPSILON:
        name = f"epsilon = {epsilon:g}" if epsilon is not None else f"rho = {rho:g}"
        odds = f"e^{limit:.0f}"
        found.append(
            f"{name} is a weak promise: the odds of any guess about one record may grow {odds} times. "
            "Usual are epsilons up to 10."
        )
    return found


def loss_for(wanted: float, error: Callable[[float], float]) -> float:
    """Return the privacy loss at which an error, which falls as the loss grows, is as wanted."""
    from scipy.optimize import brentq

    def excess(log_loss: float) -> float:
        return math.log(max(error(math.exp(log_loss)), _TINY)) - math.log(wanted)

    step = math.log(4.0)
    low = high = 0.0
    while excess(low) < 0:
        low -= step
    while excess(high) > 0:
        high += step
    return math.exp(low if low == high else brentq(excess, low, high, xtol=1e-14))


def _least(holds: Callable[[float], bool]) -> float:
    """Return the least positive number, to rounding, from which on a condition holds."""
    low, high, factor = 1.0, 1.0, 2.0
    while not holds(high):
        low, high, factor = high, high * factor, factor * factor
        if high > _HUGE:
            raise fail("privacy", "parameters", "are out of reach of the noise", "Use less extreme ones.")
    factor = 2.0
    while low > 1 / _HUGE and holds(low):
        low, high, factor = low / factor, low, factor * factor
    while high > (1 + 1e-15) * low:
        middle = math.sqrt(low) * math.sqrt(high) if high > 2 * low else (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _probability(delta: float) -> None:
    if not 0 < delta < 1:
        raise fail("privacy", f"delta={delta}", "must be between 0 and 1", "Use for example 1e-6.")


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _SMALLEST <= value <= _LARGEST:
        problem = f"must be a positive number from {_SMALLEST:g} to {_LARGEST:g}"
        raise fail("privacy", f"{name}={value}", problem, "Use for example 1.0.")
    return value
