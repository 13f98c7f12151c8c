"""From weights that prove a bound to a strategy near it: rounding X into the boxes of its variances and distances.

A strategy is good when d_e(X) <= c on every edge and v_i(X^-1) <= t / c for every query, with t just above the bound.
Each is a box in coordinates of its own: distances are entries of X, and for ranges and prefixes variances are entries
of X^-1 (see `QueryForms.shifted`). Moving what sticks out down to the box, first in X, then in X^-1, then again, costs
little more than an inverse each time, and what is paid is the average of the excess, not the largest. The mean of what
was rounded so far and of the newest X is where the next rounding starts: in the mean the swings of an ascent cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, final

import numpy as np

from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.strategies.gaussian.whole import Found, Kernel

_NEWEST = 0.5
"""Share of the newest matrix in the mean."""

_AIM = 0.8
"""Share of the wanted gap that the boxes leave: the rest is for what still sticks out of the last one."""

_PRICE, _PATIENCE = 3.0, 8
"""Nothing is rounded while the price is above so many gaps, because the ascent has more to do than the rounding; but
every so many steps, for searches that are stopped early."""

_TURNS, _FAR, _SLOW = 8, 10.0, 0.8
"""How often distances are moved into their box, with the variances moved into theirs in between: at most so many times,
while what is left above the bound is within so many gaps, and below this share of what was left before."""


class Rounded(NamedTuple):
    """A matrix X and the product of its largest variance and its largest distance."""

    error: float
    X: SquareMatrix


@final
class TwoBoxes:
    """The mean of what was rounded so far."""

    def __init__(self, forms: Kernel, *, gap: float) -> None:
        self.forms, self.gap = forms, gap
        self.mean: SquareMatrix | None = None
        self.waited = 0

    def rounded(self, newest: Found, lam: RealVector, mu: RealVector, bound: float) -> Rounded:
        """Round the mean of the newest matrix and of what was rounded before; return the best matrix on the way."""
        best, self.waited = Rounded(float(newest.v.max() * newest.d.max()), newest.X), self.waited + 1
        price = _excess(lam, newest.v) + _excess(mu, newest.d)
        if not price < _PRICE * self.gap and self.waited < _PATIENCE:
            return best
        self.waited, X = 0, newest.X / (mu @ newest.d)
        for each in self._turns(X if self.mean is None else (1 - _NEWEST) * self.mean + _NEWEST * X, mu, bound):
            best = min(best, each, key=lambda made: made.error)
        self.mean = best.X / (mu @ self.forms.distances(best.X))
        return best

    def _turns(self, X: SquareMatrix, mu: RealVector, bound: float) -> Iterator[Rounded]:
        d = self.forms.distances(X)
        top = float(mu @ d) * math.sqrt(1 + _AIM * self.gap)
        v_top = (1 + _AIM * self.gap) * bound / top
        before = math.inf
        for turn in range(_TURNS):
            X = self.forms.move_distances(X, np.minimum(top - d, 0.0))
            Y = self.forms.covariance(X)
            if Y is None:
                return
            v = self.forms.variances(Y)
            made = Rounded(float(v.max() * self.forms.distances(X).max()), X)
            yield made
            above = made.error / bound - 1
            if turn and (above < self.gap or above > min(_FAR * self.gap, _SLOW * before)):
                return
            before = above
            moved = self.forms.move_variances(Y, np.minimum(v_top - v, 0.0))
            back = None if moved is None else self.forms.metric(moved)
            if back is None:
                return
            X = back
            d = self.forms.distances(X)


def _excess(weights: RealVector, values: RealVector) -> float:
    """Return what is above the average, on average: to first order the price of moving it down."""
    return float(weights @ np.maximum(values / (weights @ values) - 1, 0.0))
