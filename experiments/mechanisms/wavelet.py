"""The Haar wavelet with Privelet's weights as a fast transform, in one and more dimensions.

Unnormalised: the total, then for every halving the sum of the left half minus the sum of the right half, so that
whole counts have whole coefficients. Sizes need no power of two: the left half is the larger one. The matrix is
`strategies.classical.haar`, up to the order of its rows; nothing here writes it out.

Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", 2010.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from experiments.mechanisms.checks import Columns, IndexArray, RealVector
from experiments.mechanisms.draws import Draw
from experiments.mechanisms.mechanism import Mechanism, Stage
from hdmm_bf.domain import DomainLike, as_domain


class _Level(NamedTuple):
    """Intervals [start, stop) of one depth; those of two cells or more are halved at `middle`."""

    start: IndexArray
    stop: IndexArray

    @property
    def halved(self) -> IndexArray:
        return np.flatnonzero(self.stop - self.start > 1)

    @property
    def middle(self) -> IndexArray:
        return np.asarray((self.start + self.stop + 1) // 2)


@lru_cache(maxsize=64)
def _levels(size: int) -> tuple[_Level, ...]:
    levels = [_Level(np.array([0]), np.array([size]))]
    while levels[-1].halved.size:
        last = levels[-1]
        inner, middle = last.halved, last.middle
        start = np.stack([last.start[inner], middle[inner]], axis=1).ravel()
        stop = np.stack([middle[inner], last.stop[inner]], axis=1).ravel()
        levels.append(_Level(start, stop))
    return tuple(levels)


@lru_cache(maxsize=64)
def _cuts(size: int) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Start, middle and stop of every halved interval, from the coarsest to the finest."""
    levels = [(level.start[i], level.middle[i], level.stop[i]) for level in _levels(size) if (i := level.halved).size]
    if not levels:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, nothing
    start, middle, stop = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    return start, middle, stop


def depth(size: int) -> int:
    """Return the L1 sensitivity of the wavelet on `size` cells: how many coefficients one cell is part of, at most."""
    return 1 + (size - 1).bit_length()


def support(size: int) -> IndexArray:
    """Return how many cells each coefficient is about, in the order of `forward`."""
    start, _, stop = _cuts(size)
    return np.concatenate([[size], stop - start])


def forward(values: Columns, axis: int = 0) -> Columns:
    """Return the wavelet coefficients along an axis: as many as there were values; whole numbers stay whole."""
    front = np.moveaxis(values, axis, 0)
    sums = np.concatenate([np.zeros_like(front[:1]), np.cumsum(front, axis=0)])
    start, middle, stop = _cuts(len(front))
    coefficients = np.concatenate([sums[-1:], 2 * sums[middle] - sums[start] - sums[stop]])
    return np.moveaxis(coefficients, 0, axis)


def inverse(coefficients: Columns, axis: int = 0) -> Columns:
    """Return the values with these wavelet coefficients.

    Guarantees:
        inverse(forward(values)) equals the values.
    """
    front = np.moveaxis(coefficients, axis, 0).astype(np.float64)
    values = np.empty_like(front)
    sums, row = front[:1], 1
    for level in _levels(len(front)):
        inner = level.halved
        single = np.flatnonzero(level.stop - level.start == 1)
        values[level.start[single]] = sums[single]
        difference = front[row : row + inner.size]
        halves = [(sums[inner] + difference) / 2, (sums[inner] - difference) / 2]
        sums = np.stack(halves, axis=1).reshape(-1, *front.shape[1:])
        row += inner.size
    return np.moveaxis(values, 0, axis)


def privelet(domain: DomainLike) -> Mechanism:
    """Add equal Laplace noise to all wavelet coefficients of a histogram over one or more attributes.

    Guarantees:
        epsilon-private between counts that differ by 1 in one cell: that changes at most `depth(k)` coefficients of
        an attribute with k values, each by 1, and the product of these over the attributes.
    """
    sizes = as_domain(domain).sizes
    changed = math.prod(depth(size) for size in sizes)

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        coefficients = counts.reshape(sizes)
        for axis in range(len(sizes)):
            coefficients = forward(coefficients, axis)
        noisy: Columns = coefficients + draw.laplace(changed / epsilon, counts.size).reshape(sizes)
        for axis in range(len(sizes)):
            noisy = inverse(noisy, axis)
        return noisy.ravel()

    return Mechanism("Privelet", (Stage("coefficients", 1.0),), estimate, math.prod(sizes))
