"""Slots: the places of noise that moves along one attribute of a product.

Let H be a graph on the values of attribute i, BOTTOM allowed, with a column e_u - e_v, or e_u, for every edge. Noise
phi, one number for every edge of H and every combination of values of the other attributes (a slot), becomes noise

    N = (M (x) I) phi,      M = P_H - sum_C 1_C (1_C^T P_H) / |C|

on the cells, C over the components of the attribute's policy whose totals are public: their totals get no noise. A move
p along the attribute that is a path in H, p = P_H y, is N for phi = y, because its totals are zero: so N hides what phi
hides, times the number of edges of the path. With phi drawn for every edge by itself, by one law, a query has the
variance that its squares w^T M M^T w on the attribute give it: nothing here has the size of the domain.
"""

from __future__ import annotations

import math
import secrets
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Int64
from scipy.sparse import csgraph

from hdmm_bf import policy as policies
from hdmm_bf._checks import fail, fits
from hdmm_bf._types import EdgeArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Dense, Kronecker, Matrix, Sparse, Stack, Weighted
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.product import product_terms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload import Boxes, Workload

MOST_EDGES, MOST_ENTRIES = 2**16, 2**22
"""Edges of a graph along which noise flows; values times edges."""

LARGEST_DENOMINATOR = 2**31
"""Of noise that keeps public totals, so that whole numbers stay small."""

_ENTRY = 24
"""Bytes of an entry while queries that are no products are written out for slots."""

_PROBE, _PROBES = 2**20, 3
_SEED = secrets.randbits(128)
"""Whole numbers of units on the edges of a graph, in so many draws, that a query must not see to have no noise."""


class Columns(NamedTuple):
    """M in whole numbers: `integers` over `denominator`."""

    integers: Int64[np.ndarray, "n k"]
    denominator: int

    @property
    def matrix(self) -> RealMatrix:
        """M, n x k."""
        return np.asarray(self.integers / self.denominator)

    @property
    def square(self) -> SquareMatrix:
        """M M^T, n x n: the covariance of one unit of noise on every edge."""
        return np.asarray(self.matrix @ self.matrix.T)


def columns(own: Policy, edges: EdgeArray) -> Columns:
    """Return M for the edges of a graph on the values of one attribute, whose policy tells which totals are public."""
    n, count = own.num_cells, len(edges)
    P = np.zeros((n + 1, count), dtype=np.int64)  # BOTTOM is the last row
    np.add.at(P, (edges[:, 0], np.arange(count)), 1)
    np.add.at(P, (edges[:, 1], np.arange(count)), -1)
    P = P[:n]
    disturbed = [(inside, P[inside].sum(axis=0)) for inside in _disturbed(own, edges)]
    denominator = math.lcm(*(int(inside.sum()) for inside, _ in disturbed))
    found = denominator * P
    for inside, totals in disturbed:
        found[inside] -= denominator // int(inside.sum()) * totals
    return Columns(found, denominator)


def is_small(own: Policy, edges: EdgeArray) -> bool:
    """Whether M of a graph can be written out, in whole numbers that leave room for sums."""
    small = 0 < len(edges) <= MOST_EDGES and own.num_cells * len(edges) <= MOST_ENTRIES
    return small and denominator_of(own, edges) <= LARGEST_DENOMINATOR


def denominator_of(own: Policy, edges: EdgeArray) -> int:
    """Return the denominator of M, of any size."""
    return math.lcm(*(int(inside.sum()) for inside in _disturbed(own, edges)))


def _disturbed(own: Policy, edges: EdgeArray) -> list[Bool[np.ndarray, " n"]]:
    """Return the components with public totals that some edge of a graph leaves or enters."""
    labels = np.append(own.components.labels, -1)  # the last is BOTTOM's
    ends = labels[edges]
    crossed = np.unique(ends[ends[:, 0] != ends[:, 1]])
    return [own.components.labels == label for label in np.intersect1d(crossed, own.components.public)]


def all_values(own: Policy) -> EdgeArray:
    """Return the graph with an edge from every value that has one in the policy to BOTTOM."""
    moved = np.unique(own.edges[own.edges != BOTTOM])
    return np.stack([moved, np.full(moved.size, BOTTOM)], axis=1).astype(np.int64)


def steps(moves: EdgeArray, edges: EdgeArray, num_values: int) -> int:
    """Return the most edges of a graph that the shortest path of a move along an attribute has; 0 without moves.

    Refused where a move is no path.

    Guarantees:
        Every move is a path of at most so many edges, and some move has no shorter one.
    """
    if len(moves) == 0:
        return 0
    ends = np.where(edges == BOTTOM, num_values, edges)
    there = np.where(moves == BOTTOM, num_values, moves)
    graph = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(num_values + 1, num_values + 1))
    starts, row = np.unique(there[:, 0], return_inverse=True)
    lengths = csgraph.shortest_path(graph, directed=False, unweighted=True, indices=starts)[row, there[:, 1]]
    if not np.all(np.isfinite(lengths)):
        shown = f"edge {tuple(moves[int(np.argmax(~np.isfinite(lengths)))].tolist())}"
        raise fail("certificate", shown, "is no path in the graph along which noise flows", "Fit again.")
    return int(lengths.max())


def slot_policy(sizes: tuple[int, ...], axes: tuple[int, ...]) -> Policy:
    """Return the policy that hides one unit in any slot: presence, on the attributes of a tree; all others are public.

    Guarantees:
        Its edges are from every slot to BOTTOM, and nothing else.
    """
    factors = (policies.unbounded(n) if i == axes[0] else policies.empty(n) for i, n in enumerate(sizes))
    return policies.product(*factors)


def moves_along(policy: Policy, axes: tuple[int, ...]) -> Policy:
    """Return a product policy with the edges along some attributes alone, on the same cells.

    Guarantees:
        Its edges are those of the policy that change one of these attributes.
    """
    assert policy.factors is not None, "a product"
    kept = (own if i in axes else policies.empty(own.num_cells) for i, own in enumerate(policy.factors))
    return policies.product(*kept, domain=policy.domain)


def folded_problem(problem: Problem, along: int, axes: tuple[int, ...], M: Columns) -> Problem:
    """Return the problem of noise on slots: every query as it asks the slots, the total error being the same.

    One slot stands for all edges of the graph where queries are products or boxes: it is asked with the root of the
    sum of their squares.
    """
    sizes, workload = problem.policy.domain.sizes, problem.workload
    matrix, slots = on_slots(workload.matrix, sizes, along, M)
    policy = slot_policy(slots, axes)
    heavy = on_slots(workload.objective, sizes, along, M)[0] if workload.is_weighted else None
    return Problem(slot_workload(matrix, policy.domain, heavy), policy)


def slot_workload(matrix: Matrix, domain: Domain, times_weights: Matrix | None = None) -> Workload:
    """Return queries of slots; they have no names of their own."""
    return Workload(matrix, domain, "queries of slots", lambda i: f"query {i}", times_weights)


def on_slots(matrix: Matrix, sizes: tuple[int, ...], along: int, M: Columns) -> tuple[Matrix, tuple[int, ...]]:
    """Return queries of cells as queries of slots with the same variances, and how many slots each attribute has."""
    one = tuple(1 if i == along else n for i, n in enumerate(sizes))
    folded = _folded(matrix, sizes, along, M)
    if folded is not None:
        return folded, one
    before, after = math.prod(sizes[:along]), math.prod(sizes[along + 1 :])
    entries = int(np.count_nonzero(M.integers)) * before * after
    advice = "Use queries that are products or boxes, or fewer cells."
    fits("problem", f"{matrix} on slots", _ENTRY * (entries + matrix.nnz * M.integers.shape[1]), advice=advice)
    pushed = sp.kron(sp.kron(sp.eye_array(before), sp.csr_array(M.matrix)), sp.eye_array(after), format="csc")
    slots = tuple(M.integers.shape[1] if i == along else n for i, n in enumerate(sizes))
    return Sparse(sp.csr_array(matrix.sparse() @ pushed)), slots


def _folded(matrix: Matrix, sizes: tuple[int, ...], along: int, M: Columns) -> Matrix | None:
    """Put one column sqrt(w^T M M^T w) in the place of an attribute; None for queries that are no products."""
    terms = product_terms(matrix, sizes)
    if terms is not None:
        blocks = []
        for term in terms:
            column = Dense(_roots(term.factors[along], M)[:, None])
            factors = tuple(column if i == along else factor for i, factor in enumerate(term.factors))
            blocks.append(Weighted(np.array([term.weight]), Kronecker(factors)))
        return blocks[0] if len(blocks) == 1 else Stack(tuple(blocks))
    if isinstance(matrix, Stack):
        parts = [_folded(block, sizes, along, M) for block in matrix.blocks]
        return None if any(part is None for part in parts) else Stack(tuple(part for part in parts if part is not None))
    if isinstance(matrix, Weighted):
        inner = _folded(matrix.inner, sizes, along, M)
        if isinstance(inner, Weighted):
            return Weighted(np.asarray(matrix.weights * inner.weights), inner.inner)
        return None if inner is None else Weighted(matrix.weights, inner)
    if isinstance(matrix, Boxes):
        own = Boxes((sizes[along],), matrix.low[:, [along]], matrix.high[:, [along]])
        ends = [np.where(np.arange(len(sizes)) == along, 0, end) for end in (matrix.low, matrix.high)]
        one = tuple(1 if i == along else n for i, n in enumerate(sizes))
        return Weighted(_roots(own, M), Boxes(one, *ends))
    return None


def _roots(queries: Matrix, M: Columns) -> RealVector:
    """Return sqrt(w^T M M^T w) for the rows w of queries of one attribute; zero where w sees none of the noise."""
    units = np.random.default_rng(_SEED).integers(1, _PROBE, size=(M.integers.shape[1], _PROBES))
    seen = np.any(np.asarray(queries.mv(M.integers @ units)), axis=1)
    return np.where(seen, np.sqrt(np.maximum(queries.quadratic(M.square), 0.0)), 0.0)
