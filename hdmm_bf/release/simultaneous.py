"""Intervals that hold all at once: with the stated probability every one of them covers its true answer.

The error of an answer does not depend on the data, so its law can be simulated with the noise that is drawn. All half
widths are the same number of standard deviations: what the largest of |error| / stddev over the queries stays within
in a share of the draws that is above the level by three standard errors. Where draws would be too many or too large,
the union bound is used: each interval by itself holds with probability 1 - (1 - level) / number of queries.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int

from hdmm_bf._types import RealVector
from hdmm_bf.release import intervals
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.reconstruction import Recovery
from hdmm_bf.workload import Workload

_DRAWS = 2**13
_DRAWS_BY_FACTORS = 2**11
"""Draws of the noise; fewer where each is reconstructed by itself."""

_FEWEST = 1000
_MOST_NOISE = 2**25
_MOST_ENTRIES = 2**28
"""Numbers of noise, and answers, that a simulation may take in all."""

_BLOCK_ENTRIES = 2**24
_SPREAD = 3.0
"""Standard errors by which the share of draws inside is above the level."""

SIMULATED, UNION = "all at once, simulated", "all at once, union bound"


def draws_for(recovery: Recovery, num_queries: int, level: float) -> int:
    """Return how many draws a simulation takes; 0 where it would take too long or too many."""
    rows = max(recovery.noise_size, 1)
    most = _DRAWS_BY_FACTORS if recovery.by_factors else _DRAWS
    draws = min(most, _MOST_NOISE // rows, _MOST_ENTRIES // max(num_queries, recovery.problem.policy.num_cells, 1))
    return draws if draws >= _FEWEST and _rank(draws, level) < draws else 0


def method(recovery: Recovery, num_queries: int, level: float) -> str:
    """Say how simultaneous intervals of that many queries are made."""
    return SIMULATED if draws_for(recovery, num_queries, level) else UNION


def simultaneous_widths(
    recovery: Recovery, workload: Workload, settled: Plan, level: float, chosen: Int[np.ndarray, " q"] | None = None
) -> RealVector:
    """Return half the width of intervals that cover all answers, or all chosen ones, at once with probability `level`.

    Guarantees:
        The share of all draws with every error inside is above the level by three standard errors, or the union bound
        over the intervals of single answers holds.
    """
    intervals.check_level(level)
    stddev = np.sqrt(recovery.variances(workload, settled))
    picked = np.arange(stddev.size) if chosen is None else chosen
    live = picked[stddev[picked] > 0]
    if live.size == 0:
        return np.zeros(picked.size)
    draws = draws_for(recovery, workload.num_queries, level)
    if not draws:
        each = 1 - (1 - level) / live.size
        return np.asarray(recovery.half_widths_of(workload, settled, each)[0][picked])
    largest = np.concatenate([np.empty(0), *_largest(recovery, workload, settled, live, stddev, draws)])
    return np.asarray(np.partition(largest, _rank(draws, level))[_rank(draws, level)] * stddev[picked])


def _rank(draws: int, level: float) -> int:
    return math.ceil(draws * level + _SPREAD * math.sqrt(draws * level * (1 - level)))


def _largest(
    recovery: Recovery,
    workload: Workload,
    settled: Plan,
    live: Int[np.ndarray, " l"],
    stddev: RealVector,
    draws: int,
) -> list[RealVector]:
    """The largest of |error| / stddev over the queries, draw by draw, in blocks that stay small."""
    widest = max(workload.num_queries, recovery.problem.policy.num_cells, recovery.noise_size)
    block = max(1, min(draws, _BLOCK_ENTRIES // widest))
    sizes = [min(block, draws - start) for start in range(0, draws, block)]
    return [
        np.abs(recovery.error_draws(workload, settled, size)[live] / stddev[live, None]).max(axis=0) for size in sizes
    ]
