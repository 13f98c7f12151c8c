"""Gaussian and pure releases together: a bound, close from above, of the delta of what they lose in all.

Losses in mu-GDP compose as the root of the sum of squares (Dong, Roth, Su 2022). A pure epsilon loses at most what a
coin loses that tells the truth with probability e^epsilon / (1 + e^epsilon) (Kairouz, Oh, Viswanath 2015): its privacy
loss is epsilon or -epsilon; Laplace noise loses less, see `laws`. Losses of independent releases add up, so with l the
sum over the pure ones

    delta(epsilon) = E[ delta_mu(epsilon - l) ],

delta_mu being that of the Gaussian mechanism, at negative arguments too, and (1 - e^epsilon)_+ where there is no normal
noise. Both theorems hold when what is asked later is chosen in sight of earlier answers, but not when the kind or the
size of later noise is: then sums of epsilon alone, or of rho alone, hold (Rogers, Roth, Ullman, Vadhan 2016).

Sums of many losses are kept on a grid. An outcome of loss l between grid points a < b is split into one of loss a and
one of loss b, so that its probability stays what it was on both of two neighbours: under the first the share of b is
(1 - e^(a-l)) / (1 - e^(a-b)). Who sees which of the two it was can forget it, so what is split loses no less
(Doroshenko et al. 2022); e^-l keeps its mean, and splitting costs the square of the grid's step only.

Guarantees:
    `delta_above` is never below the truth.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, final

import numpy as np
from scipy.special import log_ndtr

from hdmm_bf._types import RealVector
from hdmm_bf.release.ledger.laws import NEAR, Law, Pure, law

_POINTS = 2**15
_POINTS_EACH = 48
"""Grid points up to the sum of the epsilons, in all and for each release, whichever is more: a release has at least 48
of them on the average then, and splitting adds a share of about 48^-2 / 6 to the variance of its loss."""

_MANY, _FEWEST_EACH = 1000, 12
"""Releases up to which each has so many points, and how many it has at least."""

_FEW = 4
"""Different losses of a release up to which sums are made of shifted copies."""

_TAIL = 1e-40
"""Probability that is given up at either end: below it counts as more, above it as lost."""

_MARGIN = 1e-9
_LOST = 1e-13
"""Relative room for rounding in what is added up, and in the difference of two normal probabilities."""

_ROOT_BITS = 96


def root_above(square: Fraction) -> Fraction:
    """Return a number that a square root does not exceed, close to it."""
    scaled = square.numerator * square.denominator << 2 * _ROOT_BITS
    return Fraction(math.isqrt(scaled) + 1, square.denominator << _ROOT_BITS)


def delta_above(mu: float, pures: tuple[Pure, ...], epsilon: float) -> float:
    """Return a bound, close from above, of the least delta of mu-GDP and pure losses together at an epsilon.

    Any release is also a coin of its epsilon, which needs no grid. So the least of three bounds is taken: by the laws,
    by them with the newest release as a coin, and with all as coins.

    Args:
        mu: of all Gaussian releases; 0 if there are none.
        pures: the others, at least one.
        epsilon: where delta is asked for.
    """
    newest_as_coin = (*pures[:-1], Pure(pures[-1].epsilon))
    all_as_coins = tuple(Pure(pure.epsilon) for pure in pures)
    return min(_delta_of(mu, reading, epsilon) for reading in {pures, newest_as_coin, all_as_coins})


def _delta_of(mu: float, pures: tuple[Pure, ...], epsilon: float) -> float:
    *before, last = sorted(pures, key=lambda pure: pure.step >= pure.epsilon)
    if last.step < last.epsilon:
        sums = _sums(tuple(pures))
        lost = float(sums.chances @ _delta(mu, epsilon - sums.losses))
    else:  # a coin, whose two losses need no grid
        sums, truth = _sums(tuple(before)), 1 / (1 + math.exp(-last.epsilon))
        shares = ((last.epsilon, truth), (-last.epsilon, 1 - truth))
        lost = sum(share * float(sums.chances @ _delta(mu, epsilon - loss - sums.losses)) for loss, share in shares)
    return min((lost + sums.lost) * (1 + _MARGIN), 1.0)


@final
@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums that pure losses can have, rounded up, their probabilities, and that of even larger ones."""

    losses: RealVector
    chances: RealVector
    lost: float


@functools.lru_cache(maxsize=32)
def _sums(pures: tuple[Pure, ...]) -> _Sums:
    if not pures:
        return _Sums(np.zeros(1), np.ones(1), 0.0)
    largest = max(pure.epsilon for pure in pures)
    points = max(_POINTS, _points_each(len(pures)) * len(pures))
    grid = largest / math.ceil(largest * points / sum(pure.epsilon for pure in pures))
    total = _Composed(Law(0, np.ones(1)), 0.0)
    for pure, count in Counter(pures).items():
        total = total.plus(_repeated(_Composed(law(pure, grid), 0.0), count))
    lowest, chances = total.law
    losses = grid * (lowest + np.arange(chances.size)) + 2 * NEAR * grid * len(pures)
    return _Sums(losses[chances > 0], chances[chances > 0], total.lost)


def _points_each(count: int) -> int:
    return max(_FEWEST_EACH, min(_POINTS_EACH, _POINTS_EACH * _MANY // count))


@final
class _Composed(NamedTuple):
    """The law of a sum of losses, and the probability of losses that were given up as too large."""

    law: Law
    lost: float

    def plus(self, other: _Composed) -> _Composed:
        """Add an independent loss, and give up what hardly ever happens."""
        chances, below, above = _trimmed(_convolved(self.law.chances, other.law.chances))
        return _Composed(Law(self.law.lowest + other.law.lowest + below, chances), self.lost + other.lost + above)


def _repeated(one: _Composed, count: int) -> _Composed:
    """Return the law of the sum of so many losses of one law, by doubling."""
    if count == 1:
        return one
    half = _repeated(one, count // 2)
    twice = half.plus(half)
    return twice.plus(one) if count % 2 else twice


def _convolved(first: RealVector, other: RealVector) -> RealVector:
    """Return the probabilities of sums: of positive numbers, so that small ones stay exact."""
    longer, shorter = (first, other) if first.size >= other.size else (other, first)
    few = np.flatnonzero(shorter)
    if few.size > _FEW:
        return np.convolve(longer, shorter)
    found = np.zeros(longer.size + shorter.size - 1)
    for place in few.tolist():
        found[place : place + longer.size] += shorter[place] * longer
    return found


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
