"""Weights for ranges and prefixes of a line, from the same problem on half as many cells.

Queries and edges on a line are intervals: a length and a place. Under a policy that looks the same everywhere the best
weights of n / 2 and of n cells look alike: rows of intervals of one length are stretched, and the list of lengths too.
Where the policy has a reach (edges of at most t cells), what is near the ends, and what is as short as a few reaches,
keeps its distance in cells instead. Only a search starts here: what weights prove is derived from them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm_bf._types import IndexArray, RealMatrix, RealVector
from hdmm_bf.policy import BOTTOM, Policy, from_edges
from hdmm_bf.problem.goal import Goal
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload import AllRange, Prefix, Workload, all_range, prefix

_FEWEST_CELLS, _FEWEST_REACHES = 32, 8
"""Half as many cells must be at least this many, and this many reaches: a search of fewer is no help."""

_SHORT, _END = 4, 6
"""Lengths of intervals and distances from the ends, in reaches, up to which weights are kept cell by cell."""

_LIGHTEST = 1e-9
"""Smallest weight, against the largest: what has none could not grow."""


@final
@dataclass(frozen=True, eq=False)
class Intervals:
    """Queries, or edges, as intervals of a line.

    Attributes:
        length: from 1; 0 for what has a place and no length: prefixes, and edges to BOTTOM.
        place: the first cell, from 0; for prefixes the last.
    """

    length: IndexArray
    place: IndexArray


@final
@dataclass(frozen=True, eq=False)
class Line:
    """A problem whose queries and edges are intervals: all there are of some lengths.

    Attributes:
        cells: number of cells.
        make: makes the queries for any number of cells.
        reach: length of the longest edge of a policy that has one, 0 where all pairs, or none, are edges.
        queries, edges: which intervals they are, in their order.
    """

    cells: int
    make: Callable[[int], Workload]
    reach: int
    queries: Intervals
    edges: Intervals


def line(problem: Problem) -> Line | None:
    """Return the intervals of a problem that has one on half as many cells, else None."""
    shape = intervals(problem)
    enough = shape is not None and shape.cells // 2 >= max(_FEWEST_CELLS, _FEWEST_REACHES * shape.reach)
    return shape if enough else None


def intervals(problem: Problem) -> Line | None:
    """Recognise all ranges, or prefixes, of a line, all counted alike, under a policy that is the same everywhere."""
    matrix, n = problem.workload.matrix, problem.policy.num_cells
    if not isinstance(matrix, AllRange | Prefix) or problem.goal.groups is not None:
        return None
    scales, edges = problem.goal.scales(problem.workload), _edges(problem.policy)
    if edges is None or scales.min() < scales.max():
        return None
    longest = int(edges.length.max())
    reach = 0 if longest == n - 1 else longest
    if isinstance(matrix, Prefix):
        return Line(n, prefix, reach, Intervals(np.zeros(n, dtype=np.int64), np.arange(n)), edges)
    low, high = np.triu_indices(n)
    return Line(n, all_range, reach, Intervals(high - low + 1, low), edges)


def _edges(policy: Policy) -> Intervals | None:
    """Return the edges as intervals if all there are of every length up to the longest are among them, else None."""
    u, v = policy.edges.T
    grounded = v == BOTTOM
    length = np.where(grounded, 0, np.abs(u - v))
    counts = np.bincount(length, minlength=1)
    if counts[0] not in (0, policy.num_cells) or np.any(counts[1:] != policy.num_cells - np.arange(1, counts.size)):
        return None
    return Intervals(length, np.where(grounded, u, np.minimum(u, v)))


def halved(shape: Line) -> Problem:
    """Return the same problem on half as many cells."""
    n = shape.cells // 2
    longest = shape.reach or (n - 1) * int(shape.edges.length.max() > 0)
    low = [np.arange(n - length) for length in range(1, longest + 1)]
    ends = [(u, u + length) for length, u in enumerate(low, start=1)]
    if shape.edges.length.min() == 0:
        ends.append((np.arange(n), np.full(n, BOTTOM)))
    u, v = (np.concatenate(parts) for parts in zip(*ends, strict=True))
    return Problem(shape.make(n), from_edges(u, v, n), Goal("largest"))


def stretched(weights: RealVector, coarse: Intervals, fine: Intervals, reach: int) -> RealVector:
    """Return weights of the intervals of a line, with sum 1, from those on fewer cells."""
    most, least = int(fine.length.max()), int(coarse.length.max())
    table = np.zeros((least + 1, int(coarse.place.max()) + 1))
    table[coarse.length, coarse.place] = weights
    lengths = np.arange(most + 1.0)
    short = min(_SHORT * reach, least)
    at = lengths if most == least else np.interp(lengths, [0, short, most], [0, short, least])
    density = np.concatenate([[1.0], np.diff(at)])  # how many of the few lengths stand for one of the many
    at[1:] = np.maximum(at[1:], 1.0)
    below = np.floor(at).astype(np.int64)
    above, share = np.minimum(below + 1, least), at - below
    found = np.zeros(fine.length.size)
    for row, part in ((below, 1 - share), (above, share)):
        found += (part * density)[fine.length] * _placed(table, coarse, fine, row, _END * reach)
    found = np.maximum(found, _LIGHTEST * found.max())
    return np.asarray(found / found.sum())


def _placed(table: RealMatrix, coarse: Intervals, fine: Intervals, row: IndexArray, end: int) -> RealVector:
    """Stretch the row of the coarse table that belongs to each length over the fine row, its sum kept."""
    last = np.bincount(fine.length) - 1.0  # the last place of every fine row
    coarse_last = np.bincount(coarse.length)[row] - 1.0
    kept = np.minimum(end, np.minimum(last, coarse_last) / 2)[fine.length]
    last_, coarse_last_ = last[fine.length], coarse_last[fine.length]
    from_start, to_end = fine.place, last_ - fine.place
    inner = (coarse_last_ - 2 * kept) / np.maximum(last_ - 2 * kept, 1.0)
    x = np.where(to_end < kept, coarse_last_ - to_end, kept + (from_start - kept) * inner)
    x = np.clip(np.where(from_start < kept, from_start, x), 0.0, coarse_last_)
    left = np.floor(x).astype(np.int64)
    right = np.minimum(left + 1, coarse_last_.astype(np.int64))
    rows = row[fine.length]
    value = (1 - (x - left)) * table[rows, left] + (x - left) * table[rows, right]
    sums, wanted = np.bincount(fine.length, value, last.size), table.sum(axis=1)[row]
    return np.asarray(value * (wanted / np.where(sums > 0, sums, 1.0))[fine.length])
