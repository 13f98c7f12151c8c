"""Gaussian and pure releases together: the exact delta of what they lose in all.

Losses in mu-GDP compose as the root of the sum of squares (Dong, Roth, Su 2022). A pure epsilon loses at most what a
coin loses that tells the truth with probability e^epsilon / (1 + e^epsilon) (Kairouz, Oh, Viswanath 2015): its privacy
loss is epsilon or -epsilon. Losses of independent releases add up, so with l the sum over the coins

    delta(epsilon) = E[ delta_mu(epsilon - l) ],

delta_mu being that of the Gaussian mechanism, at negative arguments too, and (1 - e^epsilon)_+ where there is no normal
noise. Both theorems hold when later releases are chosen in sight of earlier ones.

Sums of many coins are kept on a grid. An outcome of loss l between grid points a < b is split into one of loss a and
one of loss b, so that its probability stays what it was on both of two neighbours: under the first the share of b is
(1 - e^(a-l)) / (1 - e^(a-b)). Who sees which of the two it was can forget it, so what is split loses no less
(Doroshenko et al. 2022); e^-l keeps its mean, and splitting costs the square of the grid's step only.

Guarantees:
    `delta_above` is never below the truth.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from scipy.special import log_ndtr

from hdmm_bf._types import RealVector

_POINTS = 2**15
_POINTS_EACH = 48
"""Grid points up to the sum of the epsilons, in all and for each release, whichever is more: a release has at least 48
of them on the average then, and splitting adds a share of about 48^-2 / 6 to the variance of its loss."""

_TAIL = 1e-40
_TRIMMED = 32
"""Probability that is given up at either end after so many releases: below it counts as more, above it as lost."""

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
        mu: of all Gaussian releases; 0 if there are none.
        pures: the epsilons of the others, at least one.
        epsilon: where delta is asked for.
    """
    *before, last = pures
    sums = _coins(tuple(before))
    truth = 1 / (1 + math.exp(-last))
    lost = [
        share * float(sums.chances @ _delta(mu, epsilon - sign * last - sums.losses))
        for sign, share in ((1, truth), (-1, 1 - truth))
    ]
    return min((sum(lost) + sums.lost) * (1 + _MARGIN), 1.0)


@final
@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums that the losses of coins can have, rounded up, their probabilities, and that of even larger ones."""

    losses: RealVector
    chances: RealVector
    lost: float


@functools.lru_cache(maxsize=32)
def _coins(pures: tuple[float, ...]) -> _Sums:
    if not pures:
        return _Sums(np.zeros(1), np.ones(1), 0.0)
    largest = max(pures)
    step = largest / math.ceil(largest * max(_POINTS, _POINTS_EACH * len(pures)) / sum(pures))
    chances, lowest, lost = np.ones(1), 0, 0.0
    for number, pure in enumerate(pures, start=1):
        truth = 1 / (1 + math.exp(-pure))
        parts = [*_split(pure, truth, step), *_split(-pure, 1 - truth, step)]
        least, most = min(place for place, _ in parts), max(place for place, _ in parts)
        spread = np.zeros(chances.size + most - least)
        for place, share in parts:
            spread[place - least : place - least + chances.size] += share * chances
        chances, lowest = spread, lowest + least
        if number % _TRIMMED == 0:
            chances, below, above = _trimmed(chances)
            lowest, lost = lowest + below, lost + above
    losses = step * (lowest + np.arange(chances.size)) + 2 * _NEAR * step * len(pures)
    return _Sums(losses[chances > 0], chances[chances > 0], lost)


def _split(loss: float, chance: float, step: float) -> list[tuple[int, float]]:
    """Return the grid points that an outcome is split into, and their probabilities."""
    steps = loss / step
    whole = round(steps)
    if abs(steps - whole) <= _NEAR:  # what this rounds off is given back in the sums
        return [(whole, chance)]
    below = math.floor(steps)
    share = min(math.expm1((below - steps) * step) / math.expm1(-step) + _NEAR, 1.0)
    return [(below, (1 - share) * chance), (below + 1, share * chance)]


def _trimmed(chances: RealVector) -> tuple[RealVector, int, float]:
    """Return probabilities without their smallest ends, the length of the lower end, and what the upper one held.

    What the lower end held is put on the first point that is kept, which is a larger loss.
    """
    start = int(np.searchsorted(np.cumsum(chances), _TAIL))
    beyond = int(np.searchsorted(np.cumsum(chances[::-1]), _TAIL))
    kept = chances[start : chances.size - beyond].copy()
    kept[0] += chances[:start].sum()
    return kept, start, float(chances[chances.size - beyond :].sum())


def _delta(mu: float, epsilon: RealVector) -> RealVector:
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), with room for what cancels."""
    if mu == 0:
        return np.asarray(-np.expm1(np.minimum(epsilon, 0.0)))
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.exp(first) * (-np.expm1(np.minimum(second - first, 0.0)) + _LOST))
