"""Gaussian and pure releases together: the exact delta of what they lose in all.

Losses in mu-GDP compose as the root of the sum of squares (Dong, Roth, Su 2022). A pure epsilon loses at most what a
coin loses that tells the truth with probability e^epsilon / (1 + e^epsilon) (Kairouz, Oh, Viswanath 2015): its privacy
loss is epsilon or -epsilon. Losses of independent releases add up, so with l the sum over the coins

    delta(epsilon) = E[ delta_mu(epsilon - l) ],

delta_mu being that of the Gaussian mechanism, at negative arguments too. Both theorems hold when later releases are
chosen in sight of earlier ones. Sums of many coins are kept on a grid, each loss rounded up.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from scipy.special import log_ndtr

from hdmm_bf._types import RealVector

_POINTS = 2**15
"""Grid points up to the sum of the epsilons: rounding adds at most a share of 2^-15 of it for each release."""

_NEAR = 1e-9
_MARGIN = 1e-9
_LOST = 1e-13
"""Relative room for rounding in what is added up, and in the difference of two normal probabilities."""

_ROOT_BITS = 96


def root_above(square: Fraction) -> Fraction:
    """Return a number that a square root does not exceed, close to it."""
    scaled = square.numerator * square.denominator << 2 * _ROOT_BITS
    return Fraction(math.isqrt(scaled) + 1, square.denominator << _ROOT_BITS)


def delta_above(mu: float, pures: tuple[float, ...], epsilon: float) -> float:
    """Return a bound, close from above, of the least delta of mu-GDP and pure losses together at an epsilon.

    Args:
        mu: of all Gaussian releases.
        pures: the epsilons of the others, at least one.
        epsilon: where delta is asked for.
    """
    *before, last = pures
    losses, chances = _coins(tuple(before))
    truth = 1 / (1 + math.exp(-last))
    lost = [
        share * float(chances @ _delta(mu, epsilon - sign * last - losses))
        for sign, share in ((1, truth), (-1, 1 - truth))
    ]
    return min(sum(lost) * (1 + _MARGIN), 1.0)


@functools.lru_cache(maxsize=32)
def _coins(pures: tuple[float, ...]) -> tuple[RealVector, RealVector]:
    """The sums that the losses of coins can have, rounded up, and their probabilities."""
    if not pures:
        return np.zeros(1), np.ones(1)
    largest = max(pures)
    step = largest / math.ceil(largest * _POINTS / sum(pures))
    chances, lowest = np.ones(1), 0
    for pure in pures:
        steps = pure / step
        whole = round(steps)
        near = abs(steps - whole) <= _NEAR  # what this rounds off is given back below
        up, down = (whole, whole) if near else (math.ceil(steps), math.floor(steps))
        truth = 1 / (1 + math.exp(-pure))
        spread = np.zeros(chances.size + up + down)
        spread[: chances.size] += (1 - truth) * chances
        spread[up + down :] += truth * chances
        chances, lowest = spread, lowest - down
    losses = step * (lowest + np.arange(chances.size)) + 2 * _NEAR * step * len(pures)
    return losses[chances > 0], chances[chances > 0]


def _delta(mu: float, epsilon: RealVector) -> RealVector:
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), with room for what cancels."""
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.exp(first) * (-np.expm1(np.minimum(second - first, 0.0)) + _LOST))
