"""How the expected error of a tree norm is computed: merges of messages, moments carried along, edges as paths.

A tree norm is sum_v w_v |z(v)| over the nodes of rooted trees whose leaves are the cells. Its law is a Markov chain
down the trees, so everything is computed from the leaves to the roots by messages over the sum s:

    m_v(s) = exp(-w_v |s|) (m_a * m_b)(s)                      one convolution for each merge of two children a, b
    x_v(s) = m_v(s) E[phi(z) | z(v) = s]                       a few linear moments phi, odd in s
    q_v(s) = m_v(s) E[quadratic form of the cells below v | z(v) = s]

Nodes with more children are merged two by two. Which linear moments are needed depends on the workload: with a left of
b, cells i in a and j in b meet in V_ij = (i + 1)(n - j) for all ranges and n - j for prefixes, one moment each; forms
that depend on the lowest common set of i and j alone (identities, totals of sets) need none; any other V has as many as
its rank. `Plan` is that description, for the messages in JAX (`trees`) and in NumPy (`trees_by_hand`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector, SparseMatrix, SquareMatrix
from hdmm_bf.matrix import Identity, Matrix, Ones, Stack, Weighted
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload.boxes import AllRange, Prefix

_RANK = 1e-11
"""Share of the largest eigenvalue below which a moment of a dense V is left out."""

_SAME = 1e-9
"""Relative difference at which two quadratic forms are not the same."""

_MOST_ENTRIES = 5 * 10**7
"""Entries of a workload that is searched for sets, and of V written out for it."""


class Moments(NamedTuple):
    """The quadratic form z^T V z in a form that can be carried from the leaves to the roots.

    A merge of a (left) and b adds 2 (s_a, phi_a)^T form (s_b, phi_b); a node adds charge * s^2.

    Attributes:
        linear: phi of a unit in every cell, n x r.
        form: (r + 1) x (r + 1), the first row and column for the sum itself.
        charges: for every node, leaves included.
        ordered: whether a merge must have its left part left.
    """

    linear: RealMatrix
    form: SquareMatrix
    charges: RealVector
    ordered: bool


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """Merges of two messages each, in levels whose merges do not need each other; leaves are the first level.

    Attributes:
        left, right: for every slot its children, or -1 for leaves.
        group: for every slot which weight it has, or -1 for none.
        linear, charges: for every slot, see `Moments`; linear is zero off the leaves.
        form: see `Moments`.
        levels: slots of every level.
        roots: slots of the roots, without isolated cells whose count is public.
        public: whether the sum of a root is fixed to zero.
        times: how many roots share that slot.
        num_weights: length of the weights.
    """

    left: IndexArray
    right: IndexArray
    group: IndexArray
    linear: RealMatrix
    charges: RealVector
    form: SquareMatrix
    levels: tuple[IndexArray, ...]
    roots: IndexArray
    public: AnyArray
    times: IndexArray
    num_weights: int

    def weights(self, weights: RealVector) -> RealVector:
        """Return the weight of every slot."""
        return np.asarray(np.append(weights, 0.0)[self.group])


def tree_plan(problem: Problem, parents: AnyArray, groups: AnyArray | None = None) -> Plan:
    """Return the plan of a problem and a tree; nodes of one group have one weight, and those of group -1 none.

    Subtrees that are equal, weights and moments included, are computed once.
    """
    forest = checked_tree(problem.policy, parents, groups)
    children = Children(forest.parents, problem.policy.num_cells)
    return _Builder(tree_moments(problem, children)).plan(children, forest)


class Forest(NamedTuple):
    """Trees over the cells of a policy.

    Attributes:
        parents: for every node its parent, or -1.
        groups: for every node which weight it has; -1 for none, as at public roots.
        public: for every node whether it is the root of a component whose total is public.
        num_weights: how many weights there are.
    """

    parents: IndexArray
    groups: IndexArray
    public: AnyArray
    num_weights: int


def checked_tree(policy: Policy, parents: AnyArray, groups: AnyArray | None = None) -> Forest:
    """Return the trees of a tree norm; refuse what is no forest over the policy's cells and components."""
    parents, n = np.asarray(parents, dtype=np.int64), policy.num_cells
    own = np.arange(parents.size)
    inner = parents >= 0
    shape = parents.ndim == 1 and parents.size >= n and bool(np.all(parents < parents.size))
    if not shape or bool(np.any(parents[inner] <= np.maximum(own[inner], n - 1))):
        advice = "Give for every node, the cells first, a later node that is its parent, or -1."
        raise fail("objectives.tree", f"parents of shape {parents.shape}", f"are no forest over {n} cells", advice)
    groups = own.copy() if groups is None else np.array(groups, dtype=np.int64)
    if groups.shape != parents.shape or np.setdiff1d(own[n:], parents).size:
        raise fail("objectives.tree", "nodes", "need a group each, and children unless they are cells", "Correct them.")
    root = own.copy()
    for node in range(parents.size - 1, -1, -1):
        if parents[node] >= 0:
            root[node] = root[parents[node]]
    label = np.full(parents.size, -1)
    label[root[:n]] = policy.components.labels
    if np.any(label[root[:n]] != policy.components.labels):
        raise fail("objectives.tree", "a tree", "holds cells of several components", "Give each component its own.")
    public = np.zeros(parents.size, dtype=bool)
    public[root[:n][np.isin(policy.components.labels, policy.components.public)]] = True
    if int(public.sum()) != policy.components.public.size:
        raise fail("objectives.tree", "a component", "has several trees, but its total is public", "Join them.")
    num_weights = int(groups.max(initial=-1)) + 1
    groups[public] = -1
    return Forest(parents, groups, public, num_weights)


@final
class Children:
    """Children of every node, from left to right by their first cell."""

    def __init__(self, parents: IndexArray, num_cells: int) -> None:
        self.parents, self.num_cells = parents, num_cells
        self.first = np.arange(parents.size)
        self.first[num_cells:] = num_cells
        self.last = np.where(np.arange(parents.size) < num_cells, np.arange(parents.size), -1)
        self.sizes = (np.arange(parents.size) < num_cells).astype(np.int64)
        self.of: list[list[int]] = [[] for _ in range(parents.size)]
        for node, parent in enumerate(parents.tolist()):
            if parent >= 0:
                self.of[parent].append(node)
                self.first[parent] = min(self.first[parent], self.first[node])
                self.last[parent] = max(self.last[parent], self.last[node])
                self.sizes[parent] += self.sizes[node]
        for own in self.of:
            own.sort(key=self.first.__getitem__)

    @property
    def are_intervals(self) -> bool:
        """Whether every set is an interval of cells."""
        return bool(np.all(self.last - self.first + 1 == self.sizes))


@final
class _Builder:
    """Slots, equal ones once."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        self.known: dict[tuple[Any, ...], int] = {}
        self.rows: list[tuple[int, int, int, int, float, int]] = []  # left, right, group, level, charge, cell

    def _slot(self, left: int, right: int, group: int, charge: float, cell: int = -1) -> int:
        linear = self.moments.linear[cell].tobytes() if cell >= 0 else b""
        key = (left, right, group, charge, linear)
        if key not in self.known:
            level = 0 if cell >= 0 else 1 + max(self.rows[left][3], self.rows[right][3])
            self.known[key] = len(self.rows)
            self.rows.append((left, right, group, level, charge, cell))
        return self.known[key]

    def _merged(self, own: list[int], group: int, charge: float) -> int:
        while len(own) > 2:
            pairs = [self._slot(a, b, -1, 0.0) for a, b in zip(own[::2], own[1::2], strict=False)]
            own = pairs + own[len(own) - len(own) % 2 :]
        return self._slot(own[0], own[1], group, charge)

    def plan(self, children: Children, forest: Forest) -> Plan:
        charges, groups, public = self.moments.charges, forest.groups, forest.public
        slot = np.full(groups.size, -1)
        for node, own in enumerate(children.of):
            if node < children.num_cells:
                isolated = public[node]  # a component of one cell, whose count is public
                slot[node] = -1 if isolated else self._slot(-1, -1, int(groups[node]), float(charges[node]), node)
            elif len(own) == 1:
                raise fail("objectives.tree", f"node {node}", "has a single child", "Leave it out.")
            else:
                parts = [int(slot[child]) for child in own]
                slot[node] = self._merged(parts, int(groups[node]), float(charges[node]))
        tops = np.flatnonzero((children.parents < 0) & (slot >= 0))
        roots, index, times = np.unique(slot[tops], return_index=True, return_counts=True)
        left, right, group, level, charge, cell = (np.array(part) for part in zip(*self.rows, strict=True))
        linear = np.where(cell[:, None] >= 0, self.moments.linear[cell], 0.0)
        levels = tuple(np.flatnonzero(level == k) for k in range(int(level.max()) + 1))
        shared = left, right, group, linear, charge, self.moments.form, levels
        return Plan(*shared, roots, public[tops[index]], times, forest.num_weights)


def tree_moments(problem: Problem, children: Children) -> Moments:
    """Return the moments of a workload on a tree, the fewest that are known."""
    matrix = problem.workload.objective
    nodes = children.parents.size
    if children.are_intervals:
        ordered = ordered_moments(matrix, nodes)
        if ordered is not None:
            return ordered
    of_sets = _moments_of_sets(matrix, children)
    return of_sets if of_sets is not None else _dense_moments(problem, nodes)


def _leaves(values: RealVector, nodes: int) -> RealVector:
    return np.concatenate([values, np.zeros(nodes - values.size)])


@singledispatch
def ordered_moments(matrix: Matrix, nodes: int) -> Moments | None:
    """Return the moments of a workload on trees of intervals; None where no short form is known."""
    return None


@ordered_moments.register
def _(matrix: AllRange, nodes: int) -> Moments | None:
    """With l = sum (i + 1) z_i: V_ij = (i + 1)(n + 1 - (j + 1)), so l_a ((n + 1) s_b - l_b)."""
    n, i = matrix.n, np.arange(matrix.n, dtype=np.float64)
    form = np.array([[0.0, 0.0], [n + 1.0, -1.0]])
    return Moments((i + 1)[:, None], form, _leaves((i + 1) * (n - i), nodes), True)


@ordered_moments.register
def _(matrix: Prefix, nodes: int) -> Moments | None:
    """With l = sum (n - j) z_j: V_ij = n - j, so s_a l_b."""
    n, i = matrix.n, np.arange(matrix.n, dtype=np.float64)
    form = np.array([[0.0, 1.0], [0.0, 0.0]])
    return Moments((n - i)[:, None], form, _leaves(n - i, nodes), True)


@ordered_moments.register
def _(matrix: Identity, nodes: int) -> Moments | None:
    return Moments(np.zeros((matrix.n, 0)), np.zeros((1, 1)), _leaves(np.ones(matrix.n), nodes), True)


@ordered_moments.register
def _(matrix: Ones, nodes: int) -> Moments | None:
    return Moments(np.zeros((matrix.n, 0)), np.ones((1, 1)), _leaves(np.ones(matrix.n), nodes), True)


@ordered_moments.register
def _(matrix: Weighted, nodes: int) -> Moments | None:
    inner = ordered_moments(matrix.inner, nodes) if matrix.weights.size == 1 else None
    if inner is None:
        return None
    square = float(matrix.weights[0]) ** 2
    return inner._replace(form=square * inner.form, charges=square * inner.charges)


@ordered_moments.register
def _(matrix: Stack, nodes: int) -> Moments | None:
    """Moments side by side, forms and charges added."""
    known = [ordered_moments(block, nodes) for block in matrix.blocks]
    parts = [part for part in known if part is not None]
    if len(parts) < len(known):
        return None
    linear = np.hstack([part.linear for part in parts])
    form = np.zeros((linear.shape[1] + 1,) * 2)
    begin = 1
    for part in parts:
        places = np.concatenate([[0], np.arange(begin, begin + part.linear.shape[1])])
        form[np.ix_(places, places)] += part.form
        begin += part.linear.shape[1]
    return Moments(linear, form, np.sum([part.charges for part in parts], axis=0), True)


def _moments_of_sets(matrix: Matrix, children: Children) -> Moments | None:
    """Return charges alone if V_ij depends on the lowest common set of i and j: V = sum_v c_v 1_v 1_v^T.

    The charges follow from one pair of cells for each set; a random vector for every tree checks them.
    """
    if matrix.nnz > _MOST_ENTRIES:
        return None
    n, parents = children.num_cells, children.parents
    tops = np.flatnonzero(parents < 0)
    if tops.size > 16:
        return None
    S = sp.csc_array(matrix.sparse())
    one = children.first
    other = np.array([children.first[own[1]] if len(own) > 1 else one[v] for v, own in enumerate(children.of)])
    common = np.concatenate([_products(S, a, b) for a, b in _pieces(one, other)])
    charges = common - np.where(parents >= 0, common[parents], 0.0)
    root = np.arange(parents.size)
    for node in range(parents.size - 1, -1, -1):
        root[node] = node if parents[node] < 0 else root[parents[node]]
    probe = np.random.default_rng(0).normal(size=n)
    for top in tops:
        inside = probe * (root[:n] == top)
        below = np.zeros(parents.size)
        below[:n] = inside
        for node, parent in enumerate(parents.tolist()):
            if parent >= 0:
                below[parent] += below[node]
        above = charges * below
        for node in range(parents.size - 1, -1, -1):
            if parents[node] >= 0:
                above[node] += above[parents[node]]
        seen = np.asarray(S.T @ (S @ inside))
        own = root[:n] == top
        if np.abs(seen - above[:n])[own].max() > _SAME * max(np.abs(seen[own]).max(), np.abs(charges).max()):
            return None
    return Moments(np.zeros((n, 0)), np.zeros((1, 1)), charges, False)


def _pieces(one: IndexArray, other: IndexArray) -> list[tuple[IndexArray, IndexArray]]:
    return [(one[k : k + 4096], other[k : k + 4096]) for k in range(0, one.size, 4096)]


def _products(S: SparseMatrix, a: IndexArray, b: IndexArray) -> RealVector:
    return np.asarray(S[:, a].multiply(S[:, b]).sum(axis=0), dtype=np.float64).ravel()


def _dense_moments(problem: Problem, nodes: int) -> Moments:
    """Return one moment for each dimension that V has: V = R^T R, where public totals are taken out first."""
    n, components = problem.policy.num_cells, problem.policy.components
    fits("objectives.tree", f"moments of {n} cells", nodes * n * 8 * 64, advice="Use a smaller domain.")
    V = np.asarray(problem.workload.objective.gram(), dtype=np.float64)
    for component in components.public:
        own = components.labels == component
        V = V - own * (V @ own / own.sum())[:, None]
        V = V - own[:, None] * (own @ V / own.sum())
    values, Q = np.linalg.eigh((V + V.T) / 2)
    kept = values > _RANK * max(values[-1], 0.0)
    linear = np.ascontiguousarray(Q[:, kept] * np.sqrt(values[kept]))
    form = np.zeros((linear.shape[1] + 1,) * 2)
    form[1:, 1:] = np.eye(linear.shape[1])
    return Moments(linear, form, _leaves((linear**2).sum(axis=1), nodes), False)


def edge_paths(policy: Policy, parents: AnyArray, groups: AnyArray | None = None) -> SparseMatrix:
    """Return the edges of a policy as paths, e' x num_weights: how often an edge passes weight g; equal ones once.

    The ends of an edge climb until they meet, always the lower-numbered first: parents come after their children.
    """
    parents, groups, _, num_weights = checked_tree(policy, parents, groups)
    top = parents.size
    above = np.where(parents >= 0, parents, top)
    ends = np.where(policy.edges == BOTTOM, top, policy.edges)
    rows, nodes = _climbs(ends, above)
    weighted = groups[nodes] >= 0
    shape = (len(ends), num_weights)
    paths = sp.csr_array((np.ones(int(weighted.sum())), (rows[weighted], groups[nodes[weighted]])), shape=shape)
    paths.sum_duplicates()
    keys = paths @ np.random.default_rng(0).uniform(1, 2, (num_weights, 2))
    return paths[np.sort(np.unique(keys.round(9), axis=0, return_index=True)[1])]


def _climbs(ends: AnyArray, above: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return (edge, node) for every node on the path of every edge."""
    low, high = np.sort(ends, axis=1).T
    edges = np.arange(low.size)
    rows: list[AnyArray] = []
    nodes: list[AnyArray] = []
    while edges.size:
        apart = low != high
        edges, low, high = edges[apart], low[apart], high[apart]
        rows.append(edges)
        nodes.append(low)
        climbed = above[low]
        low, high = np.minimum(climbed, high), np.maximum(climbed, high)
    return _joined(rows), _joined(nodes)


def _joined(parts: Sequence[AnyArray]) -> IndexArray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
