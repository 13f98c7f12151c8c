"""Problems that look the same from both ends: reversing the cells maps edges to edges and queries to queries.

All ranges and single cells are of this kind, and prefixes where the total is public, under policies such as ordinary
privacy, bounded privacy, lines and thresholds. By convexity some of the best weights are then the same on both members
of a pair of mirror images, and there is a best strategy that is its own mirror image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.transform import Problem

_FEWEST_CELLS = 4
"""With fewer there are no two halves."""

_PROBES, _PROBE = 2, 2**30
"""Databases on which queries are compared, and their counts: whole numbers, whose sums are exact."""


@final
@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries, or edges, that are mirror images of each other; one that is its own image is a pair by itself.

    Attributes:
        of: the pair of each.
        first: one member of every pair.
        sizes: how many each holds; more than two where queries are repeated.
    """

    of: IndexArray
    first: IndexArray
    sizes: RealVector

    @property
    def count(self) -> int:
        """Number of pairs."""
        return int(self.first.size)

    def spread(self, weights: RealVector) -> RealVector:
        """Return weights of the members from those of the pairs."""
        return np.asarray((weights / self.sizes)[self.of])

    def gathered(self, weights: RealVector) -> RealVector:
        """Return weights of the pairs from those of the members."""
        return np.bincount(self.of, weights, self.count)


@final
@dataclass(frozen=True, eq=False)
class Mirror:
    """The pairs of a problem that looks the same from both ends; found by `mirror`."""

    queries: Pairs
    edges: Pairs


def mirror(problem: Problem) -> Mirror | None:
    """Return the pairs if reversing the cells changes neither policy nor queries, else None.

    Queries are compared by their answers on random databases, so that they need not be written out. Nothing that is
    proven hangs on it: bounds are derived from the weights themselves.
    """
    grounding, n = problem.grounding, problem.policy.num_cells
    whole = grounding.given_up.size == 0 or grounding.kept.size == n - 1
    if n < _FEWEST_CELLS or not whole or problem.goal.groups is not None:
        return None
    edges = _edge_pairs(problem.policy)
    queries = None if edges is None else _query_pairs(problem)
    return None if edges is None or queries is None else Mirror(queries, edges)


def _edge_pairs(policy: Policy) -> Pairs | None:
    n, (u, v) = policy.num_cells, policy.edges.T
    place = np.full((n + 1) * (n + 1), -1)  # BOTTOM (-1) is the last row and column
    place[_flat(u, v, n)] = np.arange(u.size)
    image = place[_flat(_reversed(u, n), _reversed(v, n), n)]
    if np.any(image < 0):
        return None
    first, of = np.unique(np.minimum(image, np.arange(u.size)), return_inverse=True)
    return Pairs(of, first, np.bincount(of).astype(np.float64))


def _flat(u: IndexArray, v: IndexArray, n: int) -> IndexArray:
    u, v = u % (n + 1), v % (n + 1)
    return np.asarray(np.minimum(u, v) * (n + 1) + np.maximum(u, v))


def _reversed(cells: IndexArray, n: int) -> IndexArray:
    return np.where(cells == BOTTOM, BOTTOM, n - 1 - cells)


def _query_pairs(problem: Problem) -> Pairs | None:
    """Pair queries whose answers on a database are, up to sign, each other's on the reversed one."""
    kept = problem.grounding.kept.size
    x = problem.grounding.expand(np.random.default_rng(0).integers(-_PROBE, _PROBE, (kept, _PROBES)).astype(np.float64))
    answers = np.abs(problem.workload.matrix.mv(np.concatenate([x, x[::-1]], axis=1)))
    here, there = answers[:, 0], answers[:, _PROBES]
    low, high = np.minimum(here, there), np.maximum(here, there)
    order = np.argsort(low)
    is_first = np.append(True, np.diff(low[order]) > 0)
    first, of = order[is_first], np.empty_like(order)
    of[order] = np.cumsum(is_first) - 1
    turned = np.bincount(of, np.sign(here - there))  # as many on one side as on the other
    scales = problem.goal.scales(problem.workload)
    other = answers[:, 1] + answers[:, _PROBES + 1]
    alike = all(np.array_equal(each[first][of], each) for each in (high, scales, other))
    return Pairs(of, first, np.bincount(of).astype(np.float64)) if alike and not np.any(turned) else None
