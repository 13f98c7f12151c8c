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
from hdmm_bf.strategies.gaussian.whole import Kernel

_NEWEST = 0.5
"""Share of the newest matrix in the mean."""

_AIM = 0.5
"""Share of the wanted gap that the boxes leave: the rest is for what still sticks out of the last one."""

_TURNS = 3
"""How often distances are moved into their box, with the variances moved into theirs in between."""

_FAR = 10
"""Gaps from the bound beyond which a second turn is the last: the ascent has more to do than the rounding."""


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

    def rounded(self, newest: Rounded, mu: RealVector, bound: float) -> Rounded:
        """Round the mean of the newest matrix and of what was rounded before; return the best matrix on the way."""
        X = newest.X / (mu @ self.forms.distances(newest.X))
        best, found = newest, X if self.mean is None else (1 - _NEWEST) * self.mean + _NEWEST * X
        for each in self._turns(found, mu, bound):
            best = min(best, each, key=lambda made: made.error)
        self.mean = best.X / (mu @ self.forms.distances(best.X))
        return best

    def _turns(self, X: SquareMatrix, mu: RealVector, bound: float) -> Iterator[Rounded]:
        d = self.forms.distances(X)
        top = float(mu @ d) * math.sqrt(1 + _AIM * self.gap)
        v_top = (1 + _AIM * self.gap) * bound / top
        for turn in range(_TURNS):
            X = self.forms.move_distances(X, np.minimum(top - d, 0.0))
            Y = self.forms.covariance(X)
            if Y is None:
                return
            v = self.forms.variances(Y)
            made = Rounded(float(v.max() * self.forms.distances(X).max()), X)
            yield made
            last = turn + 1 == _TURNS or (turn > 0 and made.error > (1 + _FAR * self.gap) * bound)
            moved = None if last else self.forms.move_variances(Y, np.minimum(v_top - v, 0.0))
            back = None if moved is None else self.forms.metric(moved)
            if back is None:
                return
            X = back
            d = self.forms.distances(X)
