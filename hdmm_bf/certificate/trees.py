"""Exact facts about tree norms: their shape, the longest policy edge, and whether their law is proper.

Privacy hangs on `longest_edge`: z and z + e_u - e_v differ in norm by at most the length of the path between u and v in
the tree, so noise proportional to exp(-||z||) loses at most that on the edge. All of it is in whole numbers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64

from hdmm_bf._checks import fail
from hdmm_bf._types import EdgeArray, IndexArray
from hdmm_bf.policy import BOTTOM, Policy

_MOST_LENGTH = 2**62
"""Sums of all weights stay below, so that every length fits in 64 bits."""

_MOST_NODES = 2**24


def check_shape(parents: Int64[np.ndarray, " N"], integers: Int64[np.ndarray, " N"], policy: Policy) -> None:
    """Refuse what is no forest over the policy's cells, or whose trees do not fit its components."""
    n, nodes = policy.num_cells, parents.size
    if parents.ndim != 1 or integers.shape != parents.shape or not n <= nodes <= min(_MOST_NODES, max(1, 3 * n)):
        shown = f"tree with {nodes} nodes and {integers.size} weights"
        raise fail("certificate", shown, f"the policy has {n} cells", "Give one weight a node, at most 3 nodes a cell.")
    own = np.arange(nodes)
    inner = parents >= 0
    if np.any(parents < -1) or np.any(parents >= nodes) or np.any(parents[inner] <= np.maximum(own[inner], n - 1)):
        raise fail("certificate", "parents", "every parent must be a later node and no cell", "Fit again.")
    if np.setdiff1d(own[n:], parents).size:
        raise fail("certificate", "parents", "every node but the cells must have children", "Fit again.")
    if np.any(integers < 0) or sum(integers.tolist()) >= _MOST_LENGTH:
        raise fail("certificate", "weights", "must not be negative, nor add up to 2^62", "Use a coarser grid.")
    labels, roots = policy.components.labels, roots_of(parents)
    root_label = np.full(nodes, -1)
    root_label[roots[:n]] = labels
    if np.any(root_label[roots[:n]] != labels):
        cell = int(np.flatnonzero(root_label[roots[:n]] != labels)[0])
        raise fail("certificate", f"the tree of cell {cell}", "holds cells of several components", "Give each its own.")
    public = np.unique(roots[:n][is_public(policy)])
    if public.size != policy.components.public.size or np.any(integers[public] != 0):
        problem = "must be one tree with weight 0 at its root, because its total is public"
        raise fail("certificate", "a component without edges to BOTTOM", problem, "Fit again.")


def is_public(policy: Policy) -> Bool[np.ndarray, " n"]:
    """For every cell, whether the total of its component is public."""
    return np.isin(policy.components.labels, policy.components.public)


def roots_of(parents: Int64[np.ndarray, " N"]) -> IndexArray:
    """Return the root of every node."""
    roots = np.arange(parents.size)
    for node in range(parents.size - 1, -1, -1):
        if parents[node] >= 0:
            roots[node] = roots[parents[node]]
    return roots


def longest_edge(
    parents: Int64[np.ndarray, " N"], integers: Int64[np.ndarray, " N"], edges: EdgeArray
) -> tuple[int, int]:
    """Return the length of the longest policy edge in the tree, exactly, and which edge it is; (0, -1) without edges.

    An edge to BOTTOM, and one between cells of two trees, goes up through the roots.
    """
    if len(edges) == 0:
        return 0, -1
    height = np.zeros(parents.size + 1, dtype=np.int64)  # to above the root; the last entry is BOTTOM's
    for node in range(parents.size - 1, -1, -1):
        height[node] = integers[node] + (height[parents[node]] if parents[node] >= 0 else 0)
    ends = np.where(edges == BOTTOM, parents.size, edges)
    common = _common_ancestors(parents, ends)
    lengths = height[ends].sum(axis=1) - 2 * height[common]
    longest = int(np.argmax(lengths))
    return int(lengths[longest]), longest


def _common_ancestors(parents: Int64[np.ndarray, " N"], pairs: Int64[np.ndarray, "e 2"]) -> IndexArray:
    """Return the lowest common ancestor of every pair; parents.size, the vertex above all roots, where there is none.

    A tour down and up through the trees passes the ancestor between its two nodes: it is the last-numbered node on that
    stretch, because parents come after their children.
    """
    top = parents.size
    children: list[list[int]] = [[] for _ in range(top + 1)]
    for node, parent in enumerate(parents.tolist()):
        children[parent if parent >= 0 else top].append(node)
    tour: list[int] = []
    first = np.zeros(top + 1, dtype=np.int64)
    stack = [(top, 0)]
    while stack:
        node, done = stack.pop()
        if done == 0:
            first[node] = len(tour)
        tour.append(node)
        if done < len(children[node]):
            stack.append((node, done + 1))
            stack.append((children[node][done], 0))
    table = [np.array(tour)]
    while 2 ** len(table) <= len(tour):  # row k: the largest of every stretch of 2^k
        step = 2 ** (len(table) - 1)
        table.append(np.maximum(table[-1][:-step], table[-1][step:]))
    begin, end = np.sort(first[pairs], axis=1).T
    level = np.frexp((end - begin + 1).astype(np.float64))[1] - 1
    found = np.empty(len(pairs), dtype=np.int64)
    for k in np.unique(level):
        own = level == k
        found[own] = np.maximum(table[k][begin[own]], table[k][end[own] - 2**k + 1])
    return found


def free_nodes(parents: Int64[np.ndarray, " N"], integers: Int64[np.ndarray, " N"], policy: Policy) -> IndexArray:
    """Return the nodes whose sum no weight below or at them holds; refused where the law would be improper.

    A node without weight is free if it is a cell, or if one of its children is free. Two free children, or a free root
    where presence is hidden, can move against each other at no cost: the probabilities would not add up.
    """
    free = np.zeros(parents.size, dtype=np.int64)
    public = set(roots_of(parents)[: policy.num_cells][is_public(policy)].tolist())
    for node, parent in enumerate(parents.tolist()):
        if node < policy.num_cells:
            free[node] = 1
        hidden = parent < 0 and node not in public
        if free[node] > 1 or (hidden and free[node] and not integers[node]):
            problem = "have no weight that holds them: the noise would have no bounds"
            raise fail("certificate", f"sets below node {node}", problem, "Give every cell but one of a set a weight.")
        if parent >= 0 and free[node] and not integers[node]:
            free[parent] += 1
    return np.flatnonzero((free > 0) & (integers == 0))
