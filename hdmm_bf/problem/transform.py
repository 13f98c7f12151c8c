"""From (workload, policy) to an ordinary differential-privacy problem: grounding, P_G, W_G, x_G.

Each component of the policy graph is grounded: at BOTTOM if it holds it, else at its last cell, which is
given up because the component's total n_C is public. With D the identity on the kept cells and -1 in the
row of a given-up cell::

    x = D x_kept + sum_C n_C e_C        W x = (W D) x_kept + sum_C n_C W[:, C]        W_G = W D P_G

for any real W. P_G has full row rank; on forests it is square and its inverse is an integer matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float64, Int, Shaped
from scipy.sparse import csgraph

from hdmm_bf._checks import fail, finite, fits, numbers
from hdmm_bf._linalg import solve_sparse_spd
from hdmm_bf._types import AnyArray, Columns, IndexArray, Number, RealMatrix, SparseMatrix, SquareMatrix
from hdmm_bf.matrix import Dense, Incidence, Matrix, Sparse, Stack, Weighted
from hdmm_bf.policy import BOTTOM, Policy, breadth_first
from hdmm_bf.problem.goal import TOTAL, Goal
from hdmm_bf.workload import Workload

_SMALLEST_SQUARE, _LARGEST_SQUARE = 1e-200, 1e200
"""Sizes that entries of V must have, so that what is computed from them neither vanishes nor overflows."""


@final
@dataclass(frozen=True, eq=False)
class Grounding:
    """Which cells are kept, which are given up, and how the others are expressed by them.

    Attributes:
        kept: the k kept cells, in order.
        given_up: the cell each public component gives up.
        anchor: for every kept cell the cell its component gives up, or BOTTOM.
        position: for every cell its place among the kept ones, or -1 where it is given up.
        group: for every cell its place among the public components, or -1 where presence is hidden.
    """

    kept: Int[np.ndarray, " k"]
    given_up: Int[np.ndarray, " c"]
    anchor: Int[np.ndarray, " k"]
    position: Int[np.ndarray, " n"]
    group: Int[np.ndarray, " n"]

    def totals(self, vector: Columns) -> Columns:
        """Return the public component totals of a vector over the cells, exact for integers."""
        cells = numbers("transform.totals", "vector", vector)
        if self._is_one_component:
            return np.asarray(cells.sum(axis=0, keepdims=True))
        if self.given_up.size == 0:
            return np.zeros((0, *cells.shape[1:]), dtype=cells.dtype)
        order = np.argsort(self.group, kind="stable")
        starts = np.searchsorted(self.group[order], np.arange(self.given_up.size))  # no component is empty
        return np.asarray(np.add.reduceat(cells[order], starts, axis=0))

    def expand(self, kept: Columns, totals: Columns | None = None) -> Columns:
        """Return D kept + the totals at the given-up cells: the full vector over the cells."""
        values = numbers("transform.expand", "kept", kept)
        if totals is None and self.given_up.size == 0:  # every cell is kept
            return values.copy()
        public = numbers("transform.expand", "totals", 0 if totals is None else totals)
        full = np.zeros((self.position.size, *values.shape[1:]), dtype=np.result_type(values, public))
        full[self.kept] = values
        full[self.given_up] = public - self.totals(full)
        return full

    def columns(self, matrix: Shaped[np.ndarray, "r n"]) -> Shaped[np.ndarray, "r k"]:
        """Return M D for a matrix over all cells."""
        cells = numbers("transform.columns", "matrix", matrix)
        grounded: AnyArray = np.take(cells, self.kept, axis=1)
        if self._is_one_component:
            grounded -= cells[:, self.given_up]
        elif self.given_up.size:
            anchored = self.anchor != BOTTOM
            grounded[:, anchored] -= cells[:, self.anchor[anchored]]
        return grounded

    @property
    def _is_one_component(self) -> bool:
        """Whether all cells are one component of public total, which is common and faster."""
        return self.given_up.size == 1 and self.kept.size == self.position.size - 1 and bool(np.all(self.group == 0))

    def gram(self, gram: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "k k"]:
        """Return D^T V D for a Gram matrix over all cells."""
        return self.columns(self.columns(gram).T)

    def lift(self) -> SparseMatrix:
        """Return D, n x k, sparse."""
        k = self.kept.size
        anchored = np.flatnonzero(self.anchor != BOTTOM)
        rows = np.concatenate([self.kept, self.anchor[anchored]])
        columns = np.concatenate([np.arange(k), anchored])
        signs = np.repeat([1.0, -1.0], [k, anchored.size])
        return sp.csr_array((signs, (rows, columns)), shape=(self.position.size, k))

    def inject(self, matrix: Shaped[np.ndarray, "r k"]) -> Shaped[np.ndarray, "r n"]:
        """Write a matrix over the kept cells as one over all cells, with zero columns for those given up."""
        full = np.zeros((matrix.shape[0], self.position.size), dtype=matrix.dtype)
        full[:, self.kept] = matrix
        return full


def ground(policy: Policy) -> Grounding:
    """Ground every component of a policy.

    Guarantees:
        x = expand(x[kept], totals(x)) for every vector x over the cells, exactly for integers.
    """
    components = policy.components
    public = components.public
    given_up = components.ground[public]
    place = np.full(components.count, -1)
    place[public] = np.arange(public.size)
    is_kept = np.ones(policy.num_cells, dtype=bool)
    is_kept[given_up] = False
    kept = np.flatnonzero(is_kept)
    position = np.full(policy.num_cells, -1)
    position[kept] = np.arange(kept.size)
    return Grounding(kept, given_up, components.ground[components.labels[kept]], position, place[components.labels])


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """A workload under a policy, in grounded coordinates, with what is to be small: what a search works on.

    `gram`, `W_D` and `W_G` are of the queries times their weights, which a search minimises the error of; `answer` and
    `constants` are of the queries as written.

    Guarantees:
        W x = answer(x_kept) + constants(totals(x)) for any real W and any x.
        P has full row rank; it is square exactly when the policy graph is a forest.
    """

    workload: Workload
    policy: Policy
    goal: Goal = TOTAL

    def __post_init__(self) -> None:
        if self.workload.num_cells != self.policy.num_cells:
            raise fail(
                "transform",
                f"workload {self.workload.spec} with {self.workload.num_cells} columns",
                f"the policy {self.policy.spec} has {self.policy.num_cells} cells",
                "Use a workload and a policy on the same domain.",
            )

    @cached_property
    def grounding(self) -> Grounding:
        """The kept and the given-up cells."""
        return ground(self.policy)

    @cached_property
    def oriented(self) -> tuple[IndexArray, IndexArray]:
        """Cells (head, tail) of every edge, turned so that the head is kept; the tail may be BOTTOM."""
        u, v = self.policy.edges.T
        turn = self.grounding.position[u] < 0
        return np.where(turn, v, u), np.where(turn, u, v)

    @cached_property
    def traversal(self) -> tuple[IndexArray, IndexArray]:
        """The forest's vertices from the leaves up, without the grounds, and every vertex's parent."""
        n = self.policy.num_cells
        order, parent = breadth_first(self.policy, np.unique(self.policy.components.ground % (n + 1)))
        upwards = order[::-1]
        return upwards[parent[upwards] != upwards], parent

    @cached_property
    def P(self) -> Incidence:
        """P_G, k x e; a column is e_head - e_tail, or e_head when the tail is the ground."""
        head, tail = self.oriented
        position = np.append(self.grounding.position, -1)  # BOTTOM (-1) is the last entry
        return Incidence(position[head], position[tail], self.grounding.kept.size)

    @cached_property
    def ground_groups(self) -> tuple[IndexArray, int]:
        """The group of every kept cell, and how many there are: components that remain without the grounds.

        Each group has a ground of its own; what a ground holds is, up to a public constant, minus the sum of its cells.
        """
        P, n = self.P, self.P.num_vertices
        inner = P.tail >= 0
        graph = sp.coo_array((np.ones(inner.sum()), (P.head[inner], P.tail[inner])), shape=(n, n))
        count, label = csgraph.connected_components(graph, directed=False)
        return np.asarray(label), int(count)

    @cached_property
    def gram(self) -> SquareMatrix:
        """V = (W D)^T (W D), k x k; each block is grounded before it is weighted, so that no total drowns the rest."""
        with np.errstate(over="ignore"):
            V = _grounded_gram(self.workload.objective, self.grounding)
        largest = float(np.abs(V).max(initial=0.0))
        if not _SMALLEST_SQUARE < largest < _LARGEST_SQUARE and self._sees_something():
            size = f"workload {self.workload.spec} with squared entries of {largest:.1e}"
            raise fail("transform", size, "is too small or too large to square", "Multiply the workload by a constant.")
        return V

    def _sees_something(self) -> bool:
        """Whether any query changes along any kept cell, judged by the entries and not by their squares."""
        matrix = self.workload.matrix
        if isinstance(matrix, Dense):  # differences of equal entries are zero; sums of many products are only nearly so
            return bool(np.any(self.grounding.columns(matrix.array)))
        # Whole numbers, whose public totals cancel exactly in workloads of whole numbers.
        probe = np.random.default_rng(0).integers(2**20, 2**21, self.grounding.kept.size).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.any(self.answer(probe) != 0))

    def W_D(self) -> RealMatrix:
        """Return W D, m x k, written out."""
        return self.grounding.columns(self.workload.objective.dense())

    def W_G(self) -> RealMatrix:
        """Return W_G = W D P_G, m x e, written out: refused when it would not fit in memory."""
        m, e = self.workload.num_queries, self.policy.num_edges
        fits("transform.W_G", f"{m} x {e}", m * e * 8, advice="Work with the Gram matrix `gram` and with `P`.")
        return np.asarray((self.workload.objective.sparse() @ self._lifted()).toarray())

    def _lifted(self) -> SparseMatrix:
        """D P_G: the incidence matrix over all cells."""
        head, tail = self.oriented
        return Incidence(head, tail, self.policy.num_cells).sparse()

    def answer(self, kept: Columns) -> Columns:
        """Return W D kept without writing W out."""
        return self.workload.matrix.mv(self.grounding.expand(kept))

    def constants(self, totals: Columns) -> Columns:
        """Return the public part of the answers: sum_C n_C W[:, C]."""
        full = np.zeros((self.policy.num_cells, *totals.shape[1:]), dtype=totals.dtype)
        full[self.grounding.given_up] = totals
        return self.workload.matrix.mv(full)


def _grounded_gram(matrix: Matrix, grounding: Grounding) -> SquareMatrix:
    """(M D)^T (M D): from the rows where they are written out, else from the closed-form Gram matrix.

    Rows first: D^T (M^T M) D cancels large entries of M^T M, and would lose a light query beside a heavy public one.
    """
    if isinstance(matrix, Stack):
        first, *rest = (_grounded_gram(block, grounding) for block in matrix.blocks)
        return sum(rest, start=first)
    if isinstance(matrix, Weighted) and matrix.weights.size == 1:
        return float(matrix.weights[0]) ** 2 * _grounded_gram(matrix.inner, grounding)
    if isinstance(matrix, Dense):
        W = grounding.columns(matrix.array)
        return np.asarray(W.T @ W)
    if isinstance(matrix, Sparse | Weighted):
        S = matrix.sparse() @ grounding.lift()
        return np.asarray((S.T @ S).toarray(), dtype=np.float64)
    return grounding.gram(matrix.gram())


def to_edges(problem: Problem, vector: Columns | Sequence[Number]) -> Columns:
    """Return x_G with P_G x_G = x_kept: exact subtree sums on forests, the Moore-Penrose solution elsewhere.

    On a line this is the vector of prefix sums. Takes O(n) on forests, where integers stay integers.
    """
    cells = numbers("transform.to_edges", "vector", vector)
    if cells.shape != (problem.policy.num_cells,):
        raise fail(
            "transform.to_edges",
            f"a vector of shape {cells.shape}",
            f"the policy has {problem.policy.num_cells} cells",
            "Give one number for each cell.",
        )
    real = finite("transform.to_edges", "vector", cells)
    if problem.policy.is_forest:
        return _subtree_sums(problem, cells)
    P = problem.P.sparse()
    laplacian = sp.csr_array(P @ P.T)
    return np.asarray(P.T @ solve_sparse_spd(laplacian, real[problem.grounding.kept]))


def _subtree_sums(problem: Problem, vector: AnyArray) -> Columns:
    """The flow on a tree edge is all that hangs below it, with the sign of the edge at its lower end."""
    upwards, parent = problem.traversal
    below = [*vector.tolist(), 0]  # Python numbers: no overflow on the way
    for vertex, above in zip(upwards.tolist(), parent[upwards].tolist(), strict=True):
        below[above] += below[vertex]
    head, tail = problem.oriented
    down = parent[head] == tail % (problem.policy.num_cells + 1)
    try:
        sums = np.array(below, dtype=vector.dtype)
    except OverflowError:
        largest = max(map(abs, below))
        advice = "Counts this large cannot be handled exactly."
        raise fail("transform.to_edges", f"a sum of {largest}", "does not fit in 64 bits", advice) from None
    flow: Columns = np.where(down, sums[head], -sums[tail])
    return flow
