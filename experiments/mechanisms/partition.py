"""DAWA's first stage: cut a histogram into buckets that are nearly flat, spending `epsilon` on the choice alone.

A bucket b costs its deviation (see `deviations`) plus a price; every cost gets Laplace noise, and the partition of
least noisy cost is found by dynamic programming. Only the partition leaves this module, never a cost.

Why `private_partition` is epsilon-private. Let one count, of cell i, change by 1. Fix the noise of all intervals
that do not contain i: their costs do not change either. A partition holds exactly one interval b that contains i, and
the best completion of b is then fixed, of cost R_b. So the partition is decided by the least of R_b + cost_b + Z_b
over the intervals b that contain i: "report noisy min". Fix also all Z but that of b: b wins when Z_b is below a
threshold, which moves by at most 2 (1 - 1/L) for its own cost and by less than 2 for the others'. Laplace noise of
scale (4 - 2/L) / epsilon pays for that with a factor exp(epsilon). Single cells need noise as well, though their cost
never changes; and no cost may be cut off at zero, which would make b lose whatever Z_b is.

The same argument fails for the noise in the published code, which is half of that, leaves single cells without noise
and cuts off at zero: on three equal counts it already loses 1.7 epsilon (a test computes it).
`published_partition` is kept because the paper's figures were made with it.

Reference: Li, Hay, Miklau, "A data- and workload-aware algorithm for range queries under differential privacy", 2014.
"""

from __future__ import annotations

import numpy as np

from experiments.mechanisms.checks import Columns, IndexArray, RealVector
from experiments.mechanisms.deviations import Intervals, aligned, everywhere
from experiments.mechanisms.draws import Draw

_PRICE = 6.0
"""Price of a bucket in units of 1 / epsilon: with less the search collects lucky draws, with more it merges all.

Chosen, with the even split of epsilon in `dawa`, on the paper's seven public histograms.
"""


def private_partition(counts: Columns, epsilon: float, bucket_price: float, draw: Draw) -> IndexArray:
    """Return the first cells of the buckets, each a dyadic interval.

    Args:
        counts: the histogram.
        epsilon: the privacy loss of the partition.
        bucket_price: what a bucket costs later on, on top of the price that keeps noise from being collected.
        draw: the noise.

    Guarantees:
        epsilon-private between counts that differ by 1 in one cell.
    """
    price = bucket_price + _PRICE / epsilon
    scores = [_noisy(level, epsilon, draw) + price for level in aligned(counts)]
    best, merges = scores[0], []
    for score in scores[1:]:
        apart = np.append(best, np.zeros(best.size % 2)).reshape(-1, 2).sum(axis=1)
        merges.append(score <= apart)
        best = np.minimum(score, apart)
    starts, merged = np.array([True]), np.array([False])
    for merge, level in zip(reversed(merges), scores[-2::-1], strict=True):
        merged = merged | merge
        starts = np.stack([starts, ~merged], axis=1).ravel()[: level.size]
        merged = np.repeat(merged, 2)[: level.size]
    return np.flatnonzero(starts)


def noise_scale(length: int, epsilon: float) -> float:
    """Return the scale of the noise on the deviation of an interval of that length, (4 - 2 / length) / epsilon."""
    return (4.0 - 2.0 / length) / epsilon


def _noisy(intervals: Intervals, epsilon: float, draw: Draw) -> RealVector:
    """Noise is added to length * deviation, a whole number, in one draw for each length."""
    noisy = intervals.cost.astype(np.float64)
    for length in np.unique(intervals.length)[::-1].tolist():
        these = np.flatnonzero(intervals.length == length)
        noisy[these] += draw.laplace(length * noise_scale(length, epsilon), these.size)
    return np.asarray(noisy / intervals.length)


def published_partition(counts: Columns, epsilon: float, bucket_price: float, draw: Draw) -> IndexArray:
    """Return the buckets that the published code would choose: for comparison with the paper, not private as claimed.

    Intervals of power-of-two length at all positions; noise of scale (2 - 1/L - 1/n) / epsilon, none on single cells;
    costs below zero count as zero.
    """
    n = counts.size
    families = []
    for intervals in everywhere(counts):
        length = int(intervals.length[0])
        cost = intervals.cost / length
        if length > 1:
            cost = np.maximum(cost + draw.laplace((2.0 - 1.0 / length - 1.0 / n) / epsilon, cost.size), 0.0)
        families.append((length, (cost + bucket_price).tolist()))
    return _cheapest(n, families)


def _cheapest(n: int, families: list[tuple[int, list[float]]]) -> IndexArray:
    """Dynamic programme over the last interval; on equal cost the longer one. Lists are faster than arrays here."""
    total, last = [0.0] * (n + 1), [0] * (n + 1)
    for stop in range(1, n + 1):
        least, length_of_last = np.inf, 1
        for length, costs in families:
            if length > stop:
                break
            cost = total[stop - length] + costs[stop - length]
            if cost <= least:
                least, length_of_last = cost, length
        total[stop], last[stop] = least, length_of_last
    starts, stop = [], n
    while stop > 0:
        stop -= last[stop]
        starts.append(stop)
    return np.array(starts[::-1])
