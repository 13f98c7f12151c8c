"""Rows that hide the moves along one attribute take in those along another.

Noise for the moves along one attribute i hides those along another, k, for what they lose by its rows: less than 1
where rows are long along k. What they move besides is the totals over i; rows on these, with what is left of the
budget, tell the totals that the noise knew for nothing while it hid i alone. All moves along k are then hidden without
a block of their own: for all ranges of 100 ages and 50 regions at a third of its error.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import IndexArray, RealMatrix, RealVector
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch
from hdmm_bf.strategies.laplace.factors import own_policy, tree_rows
from hdmm_bf.strategies.laplace.joined import Joined

_SHARES = (1.0, 0.99, 0.98, 0.96, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
"""Of the budget of the moves along i that the rows are given, so that more of the other's is left; tried in order."""

_LEAST = 1e-3
"""What must be left for rows on totals."""

_FLOOR = 2.0**-12
"""The least weight of a value: on the grid there is no other."""

_EVEN = 2.0**-7
"""The least weight from which on errors may be computed as differences, at a tenth of the cost."""

_WRITTEN_OUT = 2048
"""Values beyond which certificates write no covariance out, so that weights must be less uneven."""

_COLUMNS = 256


def with_another(problem: Joined, sketch: JoinedSketch) -> Iterator[tuple[JoinedSketch, float]]:
    """Yield, for every other attribute with edges that is joined, rows that also hide its moves, and their error.

    Guarantees:
        Every edge of both attributes loses at most 1.
    """
    product = problem.product
    if np.any(product.edges[problem.attribute][:, 1] == BOTTOM):
        return  # who comes or goes changes the totals that the other attribute's moves are told by
    for other in problem.axes:
        if other != problem.attribute and len(product.edges[other]):
            found = _taking_in(problem, sketch, other)
            if found is not None:
                yield found


def _taking_in(problem: Joined, sketch: JoinedSketch, other: int) -> tuple[JoinedSketch, float] | None:
    """The best share of the budget; with heavier least weights only where rows are too uneven otherwise."""
    found = (_best_share(problem, sketch, other, floor) for floor in (_FLOOR, 4 * _FLOOR, 8 * _FLOOR, _EVEN))
    return next((own for own in found if own is not None), None)


def _best_share(problem: Joined, sketch: JoinedSketch, other: int, floor: float) -> tuple[JoinedSketch, float] | None:
    """Try smaller and smaller shares of the budget until the error rises."""
    ((keeps, rows),) = sketch.layers
    hides = tuple(sorted((problem.attribute, other)))
    S = kept_totals(problem.product, problem.axes, hides)[0].toarray()
    most = 0.98 * 2.0**14 if sketch.weights.size > _WRITTEN_OUT else 2.0**21
    best: tuple[JoinedSketch, float] | None = None
    for share in _SHARES:
        raised = bool(np.any(share * sketch.weights < floor))
        room = share + 2 * floor * raised  # an edge changes two values
        w = np.maximum(share * sketch.weights, floor) / max(room, 1.0)
        own = share * rows / max(room, 1.0)
        left = 1 - _losses(problem, w, own, other)
        if left.min() < _LEAST:
            continue
        more = np.vstack([own, _on_totals(problem, other, left)])
        if float((w + np.abs(more).sum(axis=0)).max()) > most * float(w.min()):
            continue  # the certificate could not state its error
        error = _error(problem, w, more, S)
        if best is not None and error >= best[1]:
            break
        best = JoinedSketch(sketch.axes, hides, w, ((keeps, more),)), error
    return best


def _losses(problem: Joined, weights: RealVector, rows: RealMatrix, other: int) -> RealMatrix:
    """What moves along another attribute lose at most, edges x values of the remaining ones: the worst over i."""
    place, first = problem.axes.index(other), problem.axes.index(problem.attribute)
    u, v = problem.product.edges[other].T
    ends = [u] if np.all(v == BOTTOM) else [u, np.where(v == BOTTOM, u, v)]
    tensor = np.moveaxis(rows.reshape(-1, *problem.shape), 1 + place, 1)
    own = np.moveaxis(weights.reshape(problem.shape), place, 0)
    gone = (v == BOTTOM).reshape(-1, *[1] * (own.ndim - 1))
    lost = own[ends[0]] + np.abs(tensor[:, ends[0]] - np.where(gone, 0.0, tensor[:, ends[-1]])).sum(axis=0)
    lost = lost + np.where(gone, 0.0, own[ends[-1]])
    worst = lost.max(axis=1 + first - (first > place))
    return np.asarray(worst.reshape(len(u), -1))


def _on_totals(problem: Joined, other: int, left: RealMatrix) -> RealMatrix:
    """Rows on the totals over i: of a tree, one for each of its edges; else one for each value, at half the budget."""
    product, n = problem.product, problem.product.sizes[other]
    policy = own_policy(product.edges[other], n)
    if policy.is_forest:
        own, weights = tree_rows(policy), left
    else:
        ends = 1 if np.all(product.edges[other][:, 1] == BOTTOM) else 2
        own, weights = np.eye(n), np.full((n, left.shape[1]), left.min() / ends)
    remaining = [i for i in problem.axes if i not in (problem.attribute, other)]
    factors = {other: own, problem.attribute: np.ones((1, product.sizes[problem.attribute]))}
    factors |= {i: np.eye(product.sizes[i]) for i in remaining}
    rows = reduce(np.kron, [factors[i] for i in problem.axes])
    order = [i for i in problem.axes if i != problem.attribute]
    scale = weights if order[0] == other else None
    if scale is None:  # the other attribute is not the first: its rows alternate with the remaining values
        shape = [product.sizes[i] for i in remaining]
        scale = np.moveaxis(weights.reshape(len(own), *shape), 0, order.index(other))
    return np.asarray(rows * scale.reshape(-1, 1))


@la.in_float64
def _error(problem: Joined, weights: RealVector, rows: RealMatrix, S: RealMatrix) -> float:
    """The unit error of least squares.

    It is tr(V D) - tr((M D M^T + R)^-1 M D V D M^T), R being 0 on totals, or, where noise on single values is so large
    that nothing would be left of the difference, tr(V F D F^T) + tr(V K R K^T) with gains K and F = I - K M.
    """
    D, M, p = weights**-2, np.vstack([rows, S]), len(rows)
    MD = M * D
    B = MD @ M.T
    noisy: IndexArray = np.arange(p)
    B[noisy, noisy] += 1.0
    if weights.min() >= _EVEN:
        through = problem.V.rows(MD)
        return float(problem.diagonal @ D - np.trace(np.linalg.solve(B, through @ MD.T)))
    gains = np.linalg.solve(B, MD)  # K^T
    total = _carried(problem, gains[:p])
    for start in range(0, weights.size, _COLUMNS):
        columns = slice(start, min(start + _COLUMNS, weights.size))
        F = -M[:, columns].T @ gains
        F[np.arange(len(F)), np.arange(columns.start, columns.stop)] += 1.0
        total += _carried(problem, F / weights[columns, None])
    return total


def _carried(problem: Joined, vectors: RealMatrix) -> float:
    """The squared size of vectors, one a row, in all queries."""
    return float(np.vdot(problem.V.rows(vectors), vectors))
