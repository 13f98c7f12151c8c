"""Clusters: trees of the policy itself, of the nesting of attributes or queries, and of cells near each other.

Forests come with trees of their own: every edge cuts one set off, as the transformation of a forest does. Domains with
several attributes (region, province, district) are nested in their order, one weight for each level where all cells are
alike; large domains are nested as their queries are. Elsewhere cells are joined that are few edges apart, or that
queries treat alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csgraph
from scipy.spatial.distance import squareform

from hdmm_bf._types import IndexArray, RealVector, SquareMatrix
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.tree_plans import ordered_moments
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.norm.drafts import TreeDraft, tree_draft
from hdmm_bf.strategies.norm.queries import tree_of_queries
from hdmm_bf.strategies.norm.shapes import (
    LARGEST_COVARIANCE,
    LARGEST_REORDERED,
    Trees,
    equal_weights,
    hierarchy,
    opened,
)
from hdmm_bf.strategies.norm.weights import FULL, QUICK, Lengths, optimised
from hdmm_bf.strategies.registry import Family, Turns

NAME = "clusters"

_LARGEST_FREE = 2048
"""Cells up to which every set of nested attributes gets a weight of its own."""

_LEAST_SHARE = 0.02
"""Of the largest weight, for every set that is a query."""


def applies(problem: Problem) -> bool:
    """Nested attributes, forests that are no stars, and all problems small enough for any workload."""
    policy = problem.policy
    if policy.num_cells > 2**17:
        return False
    if policy.num_cells <= LARGEST_REORDERED or policy.num_cells > LARGEST_COVARIANCE:
        return True
    return policy.domain.num_attributes > 1 and _all_to_bottom(problem)


def steps(problem: Problem, *, seed: int) -> Iterator[TreeDraft]:
    """Yield the best weights of one tree after the other: nested attributes, the policy's own, then clusters."""
    small = problem.policy.num_cells <= LARGEST_REORDERED
    if problem.policy.num_cells > LARGEST_COVARIANCE:
        yield from _query_steps(problem)
    if problem.policy.domain.num_attributes > 1:
        yield from _nested_steps(problem, free=small or problem.policy.num_cells <= _LARGEST_FREE)
    if not small:
        return
    trees: list[Callable[[Problem], IndexArray]] = [_by_queries]
    if len(problem.policy.edges) and not _all_to_bottom(problem):
        trees.insert(0, own_tree if problem.policy.is_forest else _by_edges)
    if ordered_moments(problem.workload.objective, problem.policy.num_cells) is not None:
        trees.pop()  # queries of intervals: clusters would be intervals too, as those of hierarchies
    for tree in trees:
        if limits.ending():
            return
        parents = tree(problem)
        weights = _first_weights(problem, parents) if tree is own_tree else equal_weights(parents)
        weights = optimised(problem, parents, weights, QUICK)
        yield tree_draft(problem, parents, weights, origin=NAME)
        yield tree_draft(problem, parents, optimised(problem, parents, weights, FULL), origin=NAME)


def _query_steps(problem: Problem) -> Iterator[TreeDraft]:
    """Queries that are nested sets, one weight for each level; no query is left out for a small weight."""
    tree = tree_of_queries(problem)
    if tree is None:
        return
    parents = tree.parents
    levels = _levels(parents)
    first = np.full(int(levels.max()) + 1, 1 / (levels.max() + 1))
    for schedule in (QUICK, FULL):
        first = Lengths(problem, parents, levels).optimised(first, schedule)
        weights = first[levels]
        held = np.where(tree.asked, np.maximum(weights, _LEAST_SHARE * weights.max()), weights)
        yield tree_draft(problem, parents, held, origin=NAME)
        if limits.ending():
            return


def _all_to_bottom(problem: Problem) -> bool:
    return bool(np.all(problem.policy.edges[:, 1] == BOTTOM))


def _nested_steps(problem: Problem, *, free: bool) -> Iterator[TreeDraft]:
    """Attributes nested in their order, then with pairs or fours inside each attribute."""
    for width in (None, 4, 2):
        if width is not None and (not free or limits.ending()):
            return
        parents = nested(problem, width)
        levels = _levels(parents)
        weights = np.full(int(levels.max()) + 1, 1 / (levels.max() + 1))
        weights = Lengths(problem, parents, levels).optimised(weights, FULL)[levels]
        yield tree_draft(problem, parents, weights, origin=NAME)
        if free and not limits.ending():
            yield tree_draft(problem, parents, optimised(problem, parents, weights, FULL), origin=NAME)


def nested(problem: Problem, width: int | None) -> IndexArray:
    """Return the tree of nested attributes in every component; `width` splits the values of each attribute further."""
    domain, policy = problem.policy.domain, problem.policy
    trees = Trees(policy.num_cells)
    split = hierarchy((width,)) if width is not None else lambda trees, nodes: trees.join(nodes)
    for component in range(policy.components.count):
        cells = np.flatnonzero(policy.components.labels == component)
        nodes, keys = cells.tolist(), cells
        for size in reversed(domain.sizes):
            keys = keys // size
            begins = np.flatnonzero(np.diff(keys, prepend=-1))
            nodes = [split(trees, part.tolist()) for part in np.split(np.array(nodes), begins[1:])]
            keys = keys[begins]
    return opened(policy, trees)


def _levels(parents: IndexArray) -> IndexArray:
    """Return the distance of every node from the leaves below it, the same for all nodes of a balanced tree."""
    height = np.zeros(parents.size, dtype=np.int64)
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            height[parent] = max(height[parent], height[node] + 1)
    return height


def own_tree(problem: Problem) -> IndexArray:
    """Return the tree of a forest: the cells themselves, and for every edge all that hangs on it."""
    policy = problem.policy
    upwards, parent = problem.traversal
    trees, n = Trees(policy.num_cells), policy.num_cells
    hanging: dict[int, list[int]] = {cell: [cell] for cell in range(n)}
    for vertex in upwards.tolist():
        above = int(parent[vertex])
        top = trees.join(hanging[vertex])
        if above < n:
            hanging[above].append(top)
    for ground in policy.components.ground[policy.components.public].tolist():
        trees.join(hanging[ground])
    return opened(policy, trees)


def _first_weights(problem: Problem, parents: IndexArray) -> RealVector:
    """Almost all on the cuts, which for cells with one edge are the cells themselves."""
    weights = np.full(parents.size, 0.9)
    degrees = np.diff(problem.policy.adjacency.indptr)[:-1]
    weights[: degrees.size][degrees > 1] = 0.05
    return weights


def _by_edges(problem: Problem) -> IndexArray:
    """Join cells that are few edges apart; those of one component only."""
    graph = problem.policy.adjacency[:-1, :-1]
    hops = csgraph.shortest_path(graph, directed=False, unweighted=True)
    return _clustered(problem, np.where(np.isfinite(hops), hops, 2.0 * problem.policy.num_cells))


def _by_queries(problem: Problem) -> IndexArray:
    """Join cells whose columns of the workload are alike, each scaled to length 1."""
    V = np.asarray(problem.workload.objective.gram(), dtype=np.float64)
    size = np.sqrt(np.maximum(np.diag(V), 1e-300))
    return _clustered(problem, np.sqrt(np.maximum(2 - 2 * V / np.outer(size, size), 0.0)))


def _clustered(problem: Problem, distances: SquareMatrix) -> IndexArray:
    policy = problem.policy
    trees = Trees(policy.num_cells)
    for component in range(policy.components.count):
        nodes: list[int] = np.flatnonzero(policy.components.labels == component).tolist()
        if len(nodes) == 1:
            continue
        own = distances[np.ix_(nodes, nodes)]
        for left, right, *_ in linkage(squareform(own, checks=False), "average"):
            nodes.append(trees.join([nodes[int(left)], nodes[int(right)]]))
    return opened(policy, trees)


FAMILY = Family(name=NAME, noise="norm", structured=False, search=steps, applies=applies, turns=Turns(look=2, stale=6))
