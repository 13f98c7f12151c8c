"""Shapes of trees over the cells of a policy: chains, hierarchies, blocks; one tree for each component."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.policy import BOTTOM, Policy


@final
class Trees:
    """Trees that grow from the leaves; children always come before their parents."""

    def __init__(self, num_cells: int) -> None:
        self._parents = [-1] * num_cells

    def join(self, children: Sequence[int]) -> int:
        """Return a new node above some nodes; a single one stays what it is."""
        if len(children) == 1:
            return int(children[0])
        node = len(self._parents)
        self._parents.append(-1)
        for child in children:
            self._parents[child] = node
        return node

    @property
    def parents(self) -> IndexArray:
        """For every node its parent, or -1."""
        return np.array(self._parents, dtype=np.int64)


LARGEST_REORDERED = 300
"""Cells up to which sets need not be intervals: as many moments as cells are carried then."""

LARGEST_COVARIANCE = 4096
"""Cells up to which a certificate can be had for queries that are no sets of the tree."""

LARGEST_SEARCHED = 2**14
"""Cells up to which trees are searched."""

Shape: TypeAlias = Callable[[Trees, Sequence[int]], int]
"""Joins some nodes, in order, under one root, and returns it."""


def planted(policy: Policy, shape: Shape) -> IndexArray:
    """Return parents: a tree of a shape for every component, over its cells in the policy's order."""
    trees = Trees(policy.num_cells)
    for cells in ordered_components(policy):
        shape(trees, cells)
    return opened(policy, trees)


def opened(policy: Policy, trees: Trees) -> IndexArray:
    """Return parents, without sets that are complements of others because their total is public.

    Where such a root has two children, the children of one of them become its own.
    """
    parents, n = trees.parents, policy.num_cells
    hidden = policy.components.ground[policy.components.labels] == BOTTOM
    count = np.bincount(parents[parents >= 0], minlength=parents.size)
    first, gone = np.arange(parents.size), np.zeros(parents.size, dtype=bool)
    for node in range(parents.size):
        parent = parents[node]
        if parent < 0:
            continue
        first[parent] = first[node]
        if node >= n and parents[parent] < 0 and count[parent] == 2 and not hidden[first[node]]:
            count[parent] = 0  # one of the two is enough
            gone[node] = True
    above = np.where(np.append(gone, False)[parents], np.append(parents, -1)[parents], parents)
    number = np.append(np.cumsum(~gone) - 1, -1)
    return np.asarray(number[above[~gone]])


def ordered_components(policy: Policy) -> list[list[int]]:
    """Return the cells of every component in an order in which edges are short: their own, where that is one.

    The order of Cuthill and McKee is taken where it makes the longest edge less than half as long: it folds cycles.
    """
    labels = policy.components.labels
    inner = policy.edges[policy.edges[:, 1] != BOTTOM]
    order = np.arange(policy.num_cells)
    if len(inner) and policy.num_cells <= LARGEST_REORDERED and not _is_dense(policy):
        graph = sp.csr_array((np.ones(len(inner)), (inner[:, 0], inner[:, 1])), shape=(policy.num_cells,) * 2)
        found = np.asarray(csgraph.reverse_cuthill_mckee(sp.csr_array(graph + graph.T), symmetric_mode=True))
        place = np.empty_like(order)
        place[found] = np.arange(order.size)
        own, other = np.abs(np.diff(inner, axis=1)), np.abs(np.diff(place[inner], axis=1))
        if 2 * other.max() < own.max():
            order = found
    ranked = order[np.argsort(labels[order], kind="stable")]
    return [part.tolist() for part in np.split(ranked, np.cumsum(policy.components.sizes)[:-1])]


def _is_dense(policy: Policy) -> bool:
    return bool(policy.num_edges > 2 * policy.num_cells**1.5)


def chain(trees: Trees, nodes: Sequence[int]) -> int:
    """Join nodes one after the other: the sets are single nodes and all nodes up to one."""
    top = nodes[0]
    for node in nodes[1:]:
        top = trees.join([top, node])
    return int(top)


def hierarchy(branching: Sequence[int], *, top: Shape | None = None) -> Shape:
    """Return the shape of a hierarchy: numbers of children from the leaves up, the last one for all levels above.

    Args:
        branching: children of a node, level by level.
        top: how the nodes above the listed levels are joined, instead of more levels.
    """

    def shape(trees: Trees, nodes: Sequence[int]) -> int:
        level, current = 0, list(nodes)
        while len(current) > 1:
            if level >= len(branching) and top is not None:
                return top(trees, current)
            width = branching[min(level, len(branching) - 1)]
            groups = np.array_split(np.array(current), -(-len(current) // width))
            current = [trees.join(group.tolist()) for group in groups]
            level += 1
        return current[0]

    return shape


def equal_weights(parents: IndexArray) -> RealVector:
    """Return weights that are equal from a root down its longest path, the cells taking what is left: a start."""
    height = np.zeros(parents.size)
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            height[parent] = max(height[parent], height[node] + 1)
    weights, left = np.empty(parents.size), np.empty(parents.size)
    for node in range(parents.size - 1, -1, -1):
        before = 1.0 if parents[node] < 0 else left[parents[node]]
        weights[node] = before / (2 + height[node]) if height[node] else before
        left[node] = before - weights[node]
    return weights
