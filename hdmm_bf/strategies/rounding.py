"""From floating point to the strategy that ships: rounding to a dyadic grid that costs a small share of the gap."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int64

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, SquareMatrix
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft
from hdmm_bf.strategies.norm.drafts import TreeDraft
from hdmm_bf.strategies.norm.flows import FlowsDraft
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, MatrixStrategy, TreeNorm, TreePart, TreeSum

MIN_BITS, MAX_BITS = 16, 44
_MANTISSA = 52
"""Integers below 2^52 convert to float64 and back without loss."""

_GRID_SHARE = 0.02
_COMPLETION_SHARE = 0.02
"""Shares of the wanted gap that rounding to the grid, and making a strategy answer everything, may cost."""

_GRID_GAP = 5e-5
"""Gap for which the grid of strategies without a proven gap is chosen."""

_TREE_BITS = 30
"""Binary places of the weights of a tree, the largest being 1: the error changes by less than 1e-8."""

_LARGEST_LEFT_OVER = 2**26
_LARGEST_BASIS = 2048
"""Cells up to which an integer basis is looked for; the elimination is column by column."""


def nothing(problem: Problem) -> CellStrategy:
    """Return the strategy with no rows, for workloads whose answers are all public."""
    return CellStrategy(np.zeros((0, problem.policy.num_cells), dtype=np.int64), MIN_BITS, "public")


def from_gram(problem: Problem, X: SquareMatrix, *, gap: float, family: str) -> MatrixStrategy:
    """Turn a Gram matrix X = A^T A over the kept cells (lower triangle) into a shipped vertex strategy.

    Guarantees:
        The strategy answers every query of the workload: it has full column rank, or its rows are combinations,
        exact in integers, of a basis of the workload's row space.
    """
    X = la.symmetric(X)
    X /= edge_forms(problem.P).distances(X).max()
    C = la.cholesky(X)
    safe = C is not None and np.diag(C).min() >= la.SAFE_PIVOT * math.sqrt(np.diag(X).max())
    basis = None if safe else _integer_basis(problem, X)
    if basis is None:
        if not safe:
            X[np.diag_indices_from(X)] += _COMPLETION_SHARE * gap
            C = la.cholesky(X)
        assert C is not None, "X plus a multiple of the identity is positive definite"
        factor, pattern = C.T, None
    else:
        pivots, pattern = basis
        C = la.cholesky(X[np.ix_(pivots, pivots)])
        assert C is not None, "X is positive definite on the workload's row space"
        factor = C.T
    bits = _grid_bits(factor, gap)
    integers = np.rint(np.ldexp(factor, bits)).astype(np.int64)
    rows = integers if pattern is None else integers @ pattern
    return CellStrategy(problem.grounding.inject(rows), bits, family)


def from_draft(problem: Problem, found: Draft) -> MatrixStrategy:
    """Put a strategy of full column rank on a grid fine enough that its error changes by less than a millionth.

    Guarantees:
        The strategy has full column rank, so it answers every query. On forests, where P^-1 is an integer matrix, edge
        strategies become vertex strategies exactly.
    """
    bits = _grid_bits(found.matrix, _GRID_GAP)
    integers = np.rint(np.ldexp(found.matrix, bits)).astype(np.int64)
    if found.kind == "edge" and not problem.policy.is_forest:
        return EdgeStrategy(integers, bits, found.origin)
    if found.kind == "edge":
        integers = over_cells(problem, integers)
    return CellStrategy(problem.grounding.inject(integers), bits, found.origin)


def from_tree(found: TreeDraft) -> TreeNorm:
    """Put the weights of a tree on a grid; one that is not zero stays so.

    Guarantees:
        Public totals have roots without weight.
    """
    integers = np.rint(np.ldexp(found.weights / found.weights.max(initial=1e-300), _TREE_BITS)).astype(np.int64)
    integers[(found.weights > 0) & (integers == 0)] = 1
    return TreeNorm(found.parents.astype(np.int64), integers, _TREE_BITS, found.origin)


def from_flows(found: FlowsDraft, sizes: tuple[int, ...]) -> TreeSum:
    """Put the weights of all parts on one grid; one that is not zero stays so.

    Guarantees:
        Public totals have roots without weight, and the longest move is 1 in every part, up to the grid.
    """
    weights = [tree.weights / place.steps for place, tree, _ in found.parts]
    largest = max(own.max(initial=1e-300) for own in weights)
    made = []
    for (place, tree, _), own_weights in zip(found.parts, weights, strict=True):
        integers = np.rint(np.ldexp(own_weights / largest, _TREE_BITS)).astype(np.int64)
        integers[(own_weights > 0) & (integers == 0)] = 1
        own = TreeNorm(tree.parents.astype(np.int64), integers, _TREE_BITS, tree.origin)
        made.append(TreePart(own, place.axes, place.along, place.edges))
    return TreeSum(tuple(made), sizes, found.origin)


def over_cells(problem: Problem, S: Int64[np.ndarray, "r e"]) -> Int64[np.ndarray, "r k"]:
    """Return A = S P^-1 over the kept cells of a forest, exactly: from the grounds down, each cell adds its edge."""
    head, tail = problem.oriented
    upwards, parent = problem.traversal
    n = problem.policy.num_cells
    tail = tail % (n + 1)  # BOTTOM is the last vertex
    down = parent[head] == tail
    below = np.where(down, head, tail)
    edge, sign = np.empty(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    edge[below], sign[below] = np.arange(head.size), np.where(down, 1, -1)
    columns, moves = np.zeros((n + 1, len(S)), dtype=np.int64), np.ascontiguousarray(S.T)
    for vertex in upwards[::-1]:
        columns[vertex] = columns[parent[vertex]] + sign[vertex] * moves[edge[vertex]]
    return np.ascontiguousarray(columns[problem.grounding.kept].T)


def _grid_bits(factor: RealMatrix, gap: float) -> int:
    """Bits so that the rounding noise, carried through the inverse, is a small share of the gap.

    Rounding adds independent errors of variance 4^-bits / 12 to r k entries; the relative change of A is that times
    the inverse, whose Frobenius norm bounds it.
    """
    Y = la.inverse(factor.T @ factor)
    assert Y is not None
    noise = math.sqrt(len(factor) / 12 * float(np.trace(Y)))
    wanted = math.ceil(math.log2(noise / (_GRID_SHARE * gap)))
    room = _MANTISSA - math.ceil(math.log2(float(np.abs(factor).max()))) - 1
    return min(max(wanted, MIN_BITS), MAX_BITS, room)


def _integer_basis(problem: Problem, X: SquareMatrix) -> tuple[np.ndarray, Int64[np.ndarray, "r k"]] | None:
    """Find E = [I, T], T integer, whose rows span the workload's, if there is one and the workload is singular.

    The pivots are cells whose columns of W are independent; every other column is T-combined from them, exactly: the
    workload is applied to what is left over, in its own arithmetic. Then X = E^T X_pp E for every X on that row space,
    and M E is exact whatever grid M is on.
    """
    V = problem.gram
    k = len(V)
    pivots = _independent_columns(V) if k <= _LARGEST_BASIS else np.arange(k)
    others = np.setdiff1d(np.arange(k), pivots)
    if others.size == 0 or problem.workload.num_queries * others.size > _LARGEST_LEFT_OVER:
        return None
    T = np.linalg.solve(V[np.ix_(pivots, pivots)], V[np.ix_(pivots, others)])
    if np.abs(T).max(initial=0) > 2**8:
        return None
    E = np.zeros((pivots.size, k), dtype=np.int64)
    E[np.arange(pivots.size), pivots] = 1
    E[:, others] = np.rint(T).astype(np.int64)
    left_over = np.zeros((k, others.size), dtype=np.int64)
    left_over[others, np.arange(others.size)] = 1
    left_over[pivots] = -E[:, others]
    if np.any(problem.answer(left_over)):
        return None
    reproduced = E.T.astype(np.float64) @ X[np.ix_(pivots, pivots)] @ E
    return (pivots, E) if np.abs(reproduced - X).max() <= 1e-6 * np.abs(X).max() else None


def _independent_columns(V: SquareMatrix) -> np.ndarray:
    """Return the first cells, in order, whose columns of W are independent, by elimination on V = W^T W.

    In order, not by largest pivot: for tables of counts the first independent cells give integer combinations. Each
    column is measured against its own length, so that light ones count too.
    """
    S, lengths = V.copy(), np.diag(V)
    pivots = []
    for j in range(len(S)):
        if S[j, j] > 1e-10 * lengths[j]:
            pivots.append(j)
            row = S[j, j:] / math.sqrt(S[j, j])
            S[j:, j:] -= np.outer(row, row)
    return np.array(pivots, dtype=np.int64)
