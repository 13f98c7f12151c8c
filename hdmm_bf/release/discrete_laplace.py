"""Discrete Laplace noise: whole numbers k with probabilities proportional to exp(-|k| / scale).

floor(scale t) of an exponential variable t is geometric with ratio exp(-1/scale); with a random sign, and -0 drawn
again, it has the law. The same exact sampler as for normal noise draws t.

Guarantees:
    `draw(scale, size)` returns independent whole numbers with exactly these probabilities, for the scale as the dyadic
    number that it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._types import AnyArray
from hdmm_bf.release.choice import Source
from hdmm_bf.release.staircase import CELLS, Staircase
from hdmm_bf.release.staircase import draw as draw_staircase


@final
@dataclass(frozen=True)
class Exponential(Staircase):
    """E(t) = t, rounded down."""

    offset: Fraction = Fraction(0)

    def energy(self, cell: int) -> Fraction:
        """i/16."""
        return Fraction(cell, CELLS)

    def rise(self, cell: int, place: Fraction) -> Fraction:
        """f/16."""
        return place / CELLS

    def rises(self, cells: Int64[np.ndarray, " k"], places: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
        """The same, exact but for the rounding of f."""
        return np.asarray(places * (1 / CELLS))


def draw(scale: float, size: int, *, source: Source = os.urandom) -> AnyArray:
    """Draw independent samples; 64-bit integers, or of any size where they do not fit.

    Args:
        scale: how far a probability falls to 1 / e; any positive number, taken as the dyadic number that it is.
        size: how many.
        source: gives random bytes; another one than the system's secure generator is only for tests.
    """
    parts: list[AnyArray] = []
    missing = size
    while missing:
        sizes = draw_staircase(Exponential(), scale, missing, source)
        negative = np.frombuffer(source(missing), dtype=np.uint8) & 1 == 1
        signed = np.where(negative, -sizes, sizes)
        parts.append(signed[~negative | (sizes != 0)])
        missing -= parts[-1].size
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
