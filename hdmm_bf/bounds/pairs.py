"""A bound for Laplace strategies that is above the dual bound: edges in pairs.

Let w_e be the columns of W_G, mu >= 0 edge weights, L = P diag(mu) P^T, and X with X L X <= V in the Loewner order, as
X = V^(1/2) (V^(1/2) L V^(1/2))^(-1/2) V^(1/2) of the dual bound. For every strategy of error ||M||^2, w_e = M s_e,

    ||M||_F^2 >= sum_F tr(C_F diag(mu_F) C_F Y_F^-1),    C = P^T X P,  Y_F = (s_e . s_f) for e, f in F,

where groups F of edges share out the weights, sum_F mu_F = mu. Lengths ||s_e||_1 <= 1 leave little room for two
columns that are neither equal nor orthogonal: for pairs F each term is at least `pair_value`. With groups of one edge
the sum is the dual bound. Proofs: `docs/explanation/laplace_bound.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float64, Int64
from scipy.optimize import linprog

from hdmm_bf import _linalg as la
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.dense import GramRoot, is_public
from hdmm_bf.problem.transform import Problem


class Pairs(NamedTuple):
    """Pairs of edges, and how much of the weights of both ends each of them takes; the rest is left alone."""

    edges: Int64[np.ndarray, "p 2"]
    shares: Float64[np.ndarray, " p"]


MOST_CELLS = 2048
"""Cells up to which edges are paired: beyond, an eigenvalue problem with vectors takes minutes."""

MOST_WORK, _ENTRIES = 10**11, 2**23
"""Squares of the cells times edges, which are multiplied three times; entries that are held at once."""
_TIED = 0.962
"""|b| <= 0.962 min(a, c): the best Laplace strategy for [[a, b], [b, c]] is the identity; true up to 5 sqrt(3) / 9."""
_LIGHT = 1e-6
"""Share of the largest edge weight below which edges and pairs are left out."""
MOST_LOOKED_AT = 2**23
"""Pairs that are looked at: where there are more, edges find partners among those that stand near them in the list."""
_PARTNERS = 6
"""Partners that an edge may have: 16 instead of 6 gain less than 1e-4."""
_ROOM = 1e6
"""Eigenvalues are left out unless they are so many times what they may be wrong by."""


def pair_value(a: AnyArray, b: AnyArray, c: AnyArray) -> AnyArray:
    """Return a number that tr(K Y^-1) is not below, K = [[a, b], [b, c]], for all Gram matrices Y of L1 unit vectors.

    Where b is small it is a + c, and attained. Beyond, K is taken apart into parts for which it is known.
    """
    low, high, b = np.minimum(a, c), np.maximum(a, c), np.abs(b)
    both = np.minimum((low - b) / (1 - _TIED), low)
    joint = np.maximum(b - _TIED * low, 0.0) / (1 - _TIED)
    apart = np.where(b > low, 0.0, 2 * both + np.minimum(joint, low) + (high - low))
    single = low + high - b**2 / np.maximum(high, 1e-300)  # one query and a diagonal
    return np.asarray(np.maximum(apart, np.where(b > high, 0.0, single)))


def choose_pairs(problem: Problem, weights: Float64[np.ndarray, " e"], V: SquareMatrix | None = None) -> Pairs:
    """Return pairs of edges that raise the bound for Laplace strategies, as far as edges give weight to partners.

    Args:
        problem: the workload under the policy.
        weights: edge weights, at best those of the dual bound; shares are of them as they are scaled to sum 1.
        V: the grounded Gram matrix of the queries, where they have other weights than in the problem.
    """
    k, e = problem.grounding.kept.size, problem.policy.num_edges
    if is_public(problem) or k > MOST_CELLS or k * k * e > MOST_WORK:
        return Pairs(np.zeros((0, 2), dtype=np.int64), np.zeros(0))
    mu = weights / weights.sum()
    columns, _ = _columns(problem, mu, V)
    active = np.flatnonzero(mu > _LIGHT * mu.max())
    window = max(2, min(active.size, MOST_LOOKED_AT // max(active.size, 1)))
    edges, shares = [], []
    for start in range(0, active.size, window):
        own = active[start : start + window]
        h = columns(own)
        c = h.T @ h
        d = np.diag(c)
        gains = _value(d[:, None], c, d[None, :]) - (d[:, None] ** 2 + d[None, :] ** 2)
        np.fill_diagonal(gains, 0.0)
        found, taken = _shared_out(gains, mu[own])
        edges.append(own[found])
        shares.append(taken)
    return Pairs(np.concatenate(edges), np.concatenate(shares))


def laplace_bound(
    problem: Problem, weights: Float64[np.ndarray, " e"], pairs: Pairs, V: SquareMatrix | None = None
) -> float:
    """Return the bound that edge weights and pairs of edges prove.

    Guarantees:
        No strategy of L1 sensitivity 1 has a smaller unit error, whether its rows are over the cells or the edges.
    """
    if is_public(problem):
        return 0.0
    mu = weights / weights.sum()
    columns, slack = _columns(problem, mu, V)
    left = mu - sum(np.bincount(ends, pairs.shares, mu.size) for ends in pairs.edges.T)
    alone = [np.einsum("ij,ij->j", h, h) for h in map(columns, _portions(problem, np.arange(mu.size)))]
    d = np.concatenate(alone)
    c = [
        np.einsum("ij,ij->j", columns(pairs.edges[own, 0]), columns(pairs.edges[own, 1]))
        for own in _portions(problem, np.arange(len(pairs.edges)))
    ]
    e, f = pairs.edges.T
    with np.errstate(over="ignore", invalid="ignore"):  # weights of 1e-300 have squares of 1e300
        together = np.maximum(_value(d[e], np.concatenate([*c, np.zeros(0)]), d[f]), d[e] ** 2 + d[f] ** 2)
        found = float((np.maximum(left, 0.0) * d**2).sum() + (pairs.shares * together).sum())
    return found * (1 - slack) * (1 - la.AGREEMENT) if math.isfinite(found) else 0.0


Columns = Callable[[IndexArray], RealMatrix]


def _columns(problem: Problem, mu: RealVector, V: SquareMatrix | None) -> tuple[Columns, float]:
    """Return h_e with h_e . h_f = p_e^T X p_f, as a function of edges, and s with X L X <= (1 + s) V.

    Of V = R^T R only the differences R p_e are used: what edges of large weight move, and no query sees, is exactly 0.
    """
    root = GramRoot(problem, 1.0) if V is None else GramRoot.of(V)
    R = np.pad(root.R, ((0, 0), (0, 1)))  # the ground is cell -1

    def moved(edges: IndexArray) -> RealMatrix:
        return np.asarray(R[:, problem.P.head[edges]] - R[:, problem.P.tail[edges]])

    G = np.zeros((len(R), len(R)))
    for own in _portions(problem, np.flatnonzero(mu)):
        f = moved(own)
        G += (f * mu[own]) @ f.T
    values, Q = la.eigen(G)
    wrong = la.EIGENVALUE_ERROR * values.size * float(values[-1])
    kept = values > _ROOM * wrong
    half = (Q[:, kept] / values[kept] ** 0.25).T
    return lambda edges: np.asarray(half @ moved(edges)), wrong / float(values[kept].min(initial=math.inf))


def _portions(problem: Problem, edges: IndexArray) -> list[IndexArray]:
    """Split a list of edges so that a column for each of a portion fits in memory."""
    size = max(1, _ENTRIES // problem.grounding.kept.size)
    return [edges[start : start + size] for start in range(0, edges.size, size)]


def _value(d: AnyArray, c: AnyArray, f: AnyArray) -> AnyArray:
    """`pair_value` of C^2 for C = [[d, c], [c, f]]."""
    return pair_value(d**2 + c**2, c * (d + f), c**2 + f**2)


def _shared_out(gains: SquareMatrix, weights: RealVector) -> tuple[Int64[np.ndarray, "p 2"], RealVector]:
    """Share weights out to pairs so that they gain most, a linear programme over the best partners of every edge."""
    size, top = len(gains), min(_PARTNERS, len(gains) - 1)
    best = np.argpartition(-gains, top, axis=1)[:, :top] if top else np.zeros((size, 0), dtype=np.int64)
    e, f = np.repeat(np.arange(size), top), best.ravel()
    able = gains[e, f] > 0
    pairs = np.unique(np.sort(np.stack([e[able], f[able]], axis=1), axis=1), axis=0)
    if not len(pairs):
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    columns = np.tile(np.arange(len(pairs)), 2)
    takes = sp.csr_array((np.ones(columns.size), (pairs.T.ravel(), columns)), shape=(size, len(pairs)))
    worth = gains[pairs[:, 0], pairs[:, 1]]
    found = linprog(-worth / worth.max(), A_ub=takes, b_ub=weights / weights.max(), method="highs")
    if not found.success:  # numbers that the solver cannot handle: these edges stay alone, which proves less
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    shares = np.maximum(found.x, 0.0) * weights.max()
    fair = np.minimum(1.0, weights / np.maximum(takes @ shares, 1e-300))  # the programme is solved up to a tolerance
    shares *= fair[pairs].min(axis=1)
    used = shares > _LIGHT * weights.max()
    return pairs[used], shares[used]
