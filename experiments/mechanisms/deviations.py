"""How far a histogram is from flat on an interval: the cost that a partition into buckets pays.

The deviation of an interval of length L is sum |x_i - mean|; L times it is a whole number for whole counts, and
equals 2 (L * T - S * N) with S the sum of the interval, N and T the number and the sum of its entries above the mean.

Between neighbours (one entry changes by 1) the deviation changes by at most 2 (1 - 1/L): the entry's own term by
at most 1 - 1/L, each of the L - 1 others by at most 1/L. Both are attained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from experiments.mechanisms.checks import Columns, IndexArray


class Intervals(NamedTuple):
    """Intervals [start, start + length), with `length` times their deviation."""

    start: Int[np.ndarray, " m"]
    length: Int[np.ndarray, " m"]
    cost: Columns


def aligned(counts: Columns) -> list[Intervals]:
    """Return the dyadic intervals, one list a level, from single cells to the whole; the last of a level may be cut.

    Every cell is in one interval of each level.
    """
    n = counts.size
    sums = np.concatenate([np.zeros_like(counts[:1]), np.cumsum(counts)])
    levels, width = [], 1
    while True:
        start = np.arange(0, n, width)
        length = np.minimum(start + width, n) - start
        total = sums[start + length] - sums[start]
        cells = np.repeat(length, length), np.repeat(total, length)
        levels.append(Intervals(start, length, np.add.reduceat(np.abs(cells[0] * counts - cells[1]), start)))
        if start.size == 1:
            return levels
        width *= 2


def everywhere(counts: Columns) -> list[Intervals]:
    """Return the intervals of power-of-two length at all positions, one list a length, in O(n log^2 n)."""
    n = counts.size
    sums = np.concatenate([np.zeros_like(counts[:1]), np.cumsum(counts)])
    above = _Above(counts)
    families, length = [], 1
    while length <= n:
        start = np.arange(n - length + 1)
        total = sums[length:] - sums[: n - length + 1]
        number, upper = above(start, start + length, total / length)
        families.append(Intervals(start, np.full(start.size, length), 2 * (length * upper - total * number)))
        length *= 2
    return families


class _Above:
    """Number and sum of the entries of x[start:stop] above a threshold, for many intervals at once.

    A wavelet matrix on the ranks of the entries: bit by bit, from the highest, the entries are sorted stably into
    those with a 0 and those with a 1, and an interval follows the bits of its threshold's rank through the order.
    """

    def __init__(self, counts: Columns) -> None:
        n = counts.size
        order = np.argsort(counts, kind="stable")
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        self._sorted = counts[order]
        self._num_bits = n.bit_length()
        self._ones: list[IndexArray] = []
        self._sums: list[Columns] = []
        values = counts
        for bit in reversed(range(self._num_bits)):
            high = (rank >> bit & 1).astype(np.int64)
            self._ones.append(np.concatenate([[0], np.cumsum(high)]))
            self._sums.append(np.concatenate([np.zeros_like(values[:1]), np.cumsum(values * high)]))
            place = np.argsort(high, kind="stable")
            rank, values = rank[place], values[place]

    def __call__(self, start: IndexArray, stop: IndexArray, threshold: Columns) -> tuple[IndexArray, Columns]:
        """Entries of rank at least r are those above the threshold, r being the number of entries up to it."""
        r = np.searchsorted(self._sorted, threshold, side="right")
        number, total = np.zeros(start.size, dtype=np.int64), np.zeros(start.size, dtype=self._sorted.dtype)
        for level, bit in enumerate(reversed(range(self._num_bits))):
            ones, sums = self._ones[level], self._sums[level]
            low, high = ones[start], ones[stop]
            up = (r >> bit & 1).astype(bool)
            number += np.where(up, 0, high - low)
            total += np.where(up, 0, sums[stop] - sums[start])
            zeros = self._sorted.size - ones[-1]
            start, stop = np.where(up, zeros + low, start - low), np.where(up, zeros + high, stop - high)
        number += stop - start  # the entry of rank r itself
        leaf = np.minimum(r, self._sorted.size - 1)
        total += np.where(stop > start, self._sorted[leaf], 0)
        return number, total
