"""Laplace noise over one attribute: rows that hide its own edges, or, under another attribute's edges, its cells.

A factor is a matrix R over the values of an attribute (or over the edges of its policy) with the covariance Y of what
its noise does to the values when it is scaled to a loss of 1:

    star     every column has L1 norm at most the loss:       Y = loss^2 (R^T R)^-1
    cells    every edge moves R by at most the loss; totals of components are public, and R is taken orthogonally to
             them:                                            Y = loss^2 (R^T R)^+
    edges    S over the edges, every column at most the loss: Y = loss^2 P (S^T S)^-1 P^T

The error of a product of factors is the product of tr(V_i Y_i).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import EdgeArray, RealMatrix, SquareMatrix
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Incidence
from hdmm_bf.objectives import limits
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.public_totals import indicators
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.baselines.classical import branchings, haar, hierarchy
from hdmm_bf.strategies.baselines.paper import grouped, spanners, tree_inverse
from hdmm_bf.workload import identity

IDENTITY, EDGES, WAVELET = "identity", "identity on edges", "wavelet (Privelet)"

_MOST_EDGES = 3000
"""Edges up to which noise is drawn for each."""
_SINGULAR = 1e12
"""Size of rows times that of their inverse, squared, from which on they are taken to leave something unknown."""

_PORTION = 2**24
"""Numbers in the moves of edges that are looked at together."""


class Factor(NamedTuple):
    """Rows over one attribute.

    Attributes:
        name: where it is from.
        matrix: the rows, those of public totals first.
        loss: what an edge, or a cell, moves them by at most.
        covariance: of the values, at a loss of 1.
        public: number of rows of public totals.
        over_edges: whether the columns are edges.
    """

    name: str
    matrix: RealMatrix
    loss: float
    covariance: SquareMatrix
    public: int = 0
    over_edges: bool = False


def reach(A: RealMatrix, edges: EdgeArray) -> float:
    """Return the largest ||A p_e||_1 over the edges of an attribute.

    It is at most what both columns have apart from the median of every row, which the difference does not see. Edges
    are looked at from the largest such bound on until it is reached: of two million edges between 2000 values the
    first few thousand are enough for identity and for hierarchies.
    """
    stays = edges[:, 1] != BOTTOM
    columns = np.abs(A - np.median(A, axis=1, keepdims=True)).sum(axis=0) if len(A) else np.zeros(A.shape[1])
    bounds = np.where(stays, columns[edges[:, 0]] + columns[edges[:, 1]], math.inf)
    order = np.argsort(-bounds, kind="stable")
    largest, portion = 0.0, max(1, _PORTION // max(len(A), 1))
    for start in range(0, len(edges), portion):
        some = order[start : start + portion]
        if largest >= bounds[some[0]]:
            break
        head, tail = edges[some].T
        moves = Incidence(head, tail, A.shape[1]).differences(A)
        largest = max(largest, float(np.abs(moves).sum(axis=0).max(initial=0.0)))
    return largest


def on_star(A: RealMatrix, name: str) -> Factor | None:
    """Return a factor for the moves of other attributes; None where it has not full column rank."""
    Y = _inverse_gram(A)
    if Y is None:
        return None
    loss = float(np.abs(A).sum(axis=0).max())
    return Factor(name, A, loss, loss**2 * Y)


def on_cells(A: RealMatrix, edges: EdgeArray, name: str) -> Factor | None:
    """Return a factor for an attribute's own moves that knows its public totals; None where it leaves others unknown.

    Args:
        A: rows over all values, of full column rank together with the totals.
        edges: of the attribute's policy.
        name: where it is from.
    """
    n = A.shape[1]
    C = indicators(edges, n)
    if len(A) + len(C) > n:  # more rows than are needed: least squares given the totals
        counts = C.sum(axis=1)
        A = counts[0] * A - (A @ C.T) @ C if len(C) == 1 else A - (A @ C.T / counts) @ C
    A = _plain(A[np.abs(A).max(axis=1) > 0])
    full = np.vstack([C, A])
    loss = reach(A, edges)
    Y = _inverse_gram(full) if loss > 0 else None
    if Y is None or not np.linalg.norm(Y) * np.linalg.norm(full) ** 2 < _SINGULAR:
        return None
    G = Y @ A.T
    return Factor(name, full, loss, loss**2 * (G @ G.T), len(C))


def _plain(A: RealMatrix) -> RealMatrix:
    """Whole rows as they are, others scaled to largest entry 1."""
    return A if np.array_equal(A, np.rint(A)) else A / np.abs(A).max()


def on_edges(edges: EdgeArray, n: int) -> Factor | None:
    """Return identity on the edges; None where they are too many."""
    if len(edges) > _MOST_EDGES:
        return None
    P = Incidence(edges[:, 0], edges[:, 1], n).sparse()
    return Factor(EDGES, np.eye(len(edges)), 1.0, (P @ P.T).toarray().astype(np.float64), 0, True)


def _inverse_gram(A: RealMatrix) -> SquareMatrix | None:
    Y = la.inverse(A.T @ A) if len(A) >= A.shape[1] else None
    return None if Y is None else la.symmetric(Y)


def stars(n: int) -> Iterator[Factor]:
    """Yield the classical mechanisms: identity, the Haar wavelet, hierarchies; identity alone when time is up."""
    yield from _in_time(_stars(n))


def _stars(n: int) -> Iterator[Factor | None]:
    yield on_star(np.eye(n), IDENTITY)
    yield on_star(haar(n), WAVELET)
    for name, branching in branchings(n):
        yield on_star(np.vstack(hierarchy(n, branching)), name)


def owns(edges: EdgeArray, n: int) -> Iterator[Factor]:
    """Yield identity on the cells of an attribute, and the paper's mechanisms for its own edges unless time is up."""
    yield from _in_time(_owns(edges, n))


def _owns(edges: EdgeArray, n: int) -> Iterator[Factor | None]:
    policy = own_policy(edges, n)
    yield on_cells(np.eye(n), edges, IDENTITY)
    if policy.is_forest:
        yield on_cells(tree_rows(policy), edges, EDGES)
        return
    yield on_edges(edges, n)
    for name, tree in spanners(policy):
        rows = tree_rows(tree)
        yield on_cells(rows, edges, f"identity on {name}")
        yield on_cells(grouped(tree) @ rows, edges, f"wavelets on {name}")


def _in_time(factors: Iterator[Factor | None]) -> Iterator[Factor]:
    """Yield the factors that there are, the first whatever the time."""
    known = False
    for factor in factors:
        if factor is not None:
            yield factor
            known = True
        if known and limits.ending():
            return


def own_policy(edges: EdgeArray, n: int) -> Policy:
    """Return the policy of one attribute."""
    return Policy(Domain((n,)), "factor", "", edges)


def tree_rows(forest: Policy) -> RealMatrix:
    """Return P^-1 of a forest over all its cells, those given up being zero: one row an edge."""
    grounding = Problem(identity(forest.domain), forest).grounding
    return np.asarray(grounding.inject(tree_inverse(forest)))
