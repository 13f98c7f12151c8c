"""Correctly rounded normal noise: whole numbers with exactly the law of round(N(0, sigma^2)).

Whole answers plus this noise are the ideal Gaussian mechanism, rounded: x + round(N) = round(x + N) for whole x. So
they have exactly its privacy, on a real computer: mu-GDP with mu = shift / sigma, rho-zCDP with rho = mu^2 / 2, and its
least (epsilon, delta). Nothing here sees data: noise is drawn first and added by the caller.

Guarantees:
    `draw(sigma, size)` returns independent whole numbers k with probabilities Phi((k + 1/2)/sigma) -
    Phi((k - 1/2)/sigma), exactly, for sigma as the dyadic number that it is.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import ndtr

from hdmm_bf._types import AnyArray
from hdmm_bf.release.choice import Source
from hdmm_bf.release.staircase import CELLS, Staircase
from hdmm_bf.release.staircase import draw as draw_staircase

_SMOOTH = 2.0
"""From here on the variance of the rounded numbers is sigma^2 + 1/12 to a relative 1e-31."""


@final
@dataclass(frozen=True)
class HalfNormal(Staircase):
    """E(t) = t^2 / 2: the size of a standard normal variable, rounded to the nearest whole number."""

    offset: Fraction = Fraction(1, 2)

    def energy(self, cell: int) -> Fraction:
        """(i/16)^2 / 2."""
        return Fraction(cell * cell, 2 * CELLS**2)

    def rise(self, cell: int, place: Fraction) -> Fraction:
        """(2 i + f) f / 512."""
        return place * (2 * cell + place) / (2 * CELLS**2)

    def rises(self, cells: Int64[np.ndarray, " k"], places: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
        """The same: an addition and a multiplication are rounded, and f was; dividing by 512 is exact."""
        return np.asarray((places + 2 * cells) * places * (1 / (2 * CELLS**2)))


def draw(sigma: float, size: int, *, source: Source = os.urandom) -> AnyArray:
    """Draw independent samples of round(N(0, sigma^2)); 64-bit integers, or of any size where they do not fit.

    Args:
        sigma: the standard deviation before rounding; any positive number, taken as the dyadic number that it is.
        size: how many.
        source: gives random bytes; another one than the system's secure generator is only for tests.
    """
    sizes = draw_staircase(HalfNormal(), sigma, size, source)
    negative = np.frombuffer(source(size), dtype=np.uint8) & 1 == 1
    return np.where(negative, -sizes, sizes)


def variance(sigma: float) -> float:
    """Return the variance of round(N(0, sigma^2)): sigma^2 + 1/12, unless sigma is small."""
    if sigma >= _SMOOTH:
        return sigma * sigma + 1 / 12
    k = np.arange(math.ceil(40 * sigma) + 1)
    return float(2 * np.sum((2 * k + 1) * ndtr(-(k + 0.5) / sigma)))  # E k^2 = sum (2k + 1) P(|K| > k)
