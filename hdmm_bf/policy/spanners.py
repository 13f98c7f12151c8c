"""Sparser graphs that stand in for a policy, and how much that costs.

If every edge of G is a path of at most `stretch` edges in H, a mechanism that is (epsilon / stretch, H)-private
is (epsilon, G)-private. The stretch is always computed, never assumed.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csgraph

from hdmm_bf._checks import fail, fits, positive_int
from hdmm_bf._types import IndexArray
from hdmm_bf.domain import DomainLike, as_domain
from hdmm_bf.policy.constructors import canonical_edges
from hdmm_bf.policy.graph import BOTTOM, EDGE_ADVICE, Policy, breadth_first

_CHUNK_ENTRIES = 2**24
_H_THETA_BYTES, _H_THETA_AXIS_BYTES = 110, 25  # measured peak a cell


def h_theta(domain: DomainLike, threshold: int) -> Policy:
    """Return the paper's spanner H^theta of the threshold policy, in one or more dimensions.

    The domain is cut into cubes of side max(1, threshold // d). Every cell hangs on its cube's last corner
    (internal edges), and neighbouring corners are joined in a grid (external edges). In one dimension this is
    a tree: a path of "red" cells with the others hanging on the next red one to the right.
    """
    cells = as_domain(domain)
    limit = positive_int("policy.h_theta", "threshold", threshold, advice="Use at least 1; 1 gives the grid.")
    spec = f"h-theta:{cells}:{limit}"
    size = cells.num_cells * (_H_THETA_BYTES + _H_THETA_AXIS_BYTES * cells.num_attributes)
    fits("policy", f"{spec} with {cells.num_cells} cells", size, advice=EDGE_ADVICE)
    side = max(1, limit // cells.num_attributes)
    coordinates = np.stack(np.unravel_index(np.arange(cells.num_cells), cells.sizes))
    last = np.array(cells.sizes)[:, None] - 1
    corner = np.ravel_multi_index(tuple(np.minimum(coordinates // side * side + side - 1, last)), cells.sizes)
    hanging = np.flatnonzero(corner != np.arange(cells.num_cells))
    ends = [(hanging, corner[hanging])]
    red = coordinates[:, corner == np.arange(cells.num_cells)]
    for axis in range(cells.num_attributes):
        start = red[:, red[axis] < last[axis]]
        stop = start.copy()
        stop[axis] = np.minimum(stop[axis] + side, last[axis])
        ends.append((np.ravel_multi_index(tuple(start), cells.sizes), np.ravel_multi_index(tuple(stop), cells.sizes)))
    u, v = (np.concatenate(side_) for side_ in zip(*ends, strict=True))
    edges, _ = canonical_edges(u, v, cells.num_cells)
    meaning = f"whether any one record is in a cell or in the corner of its block of side {side}, or in the next corner"
    return Policy(cells, spec, meaning, edges)


def spanning_tree(policy: Policy, root: int | None = None) -> Policy:
    """Return a breadth-first spanning forest of the policy, one tree for each component.

    Args:
        policy: the graph to thin out.
        root: cell (or BOTTOM) to start from; by default BOTTOM where a component has it, else a cell of
            highest degree.
    """
    n = policy.num_cells
    roots = _roots(policy)
    if root is not None:
        policy.vertex(root)
        component = policy.components.labels[root] if root != BOTTOM else np.flatnonzero(roots == n)[:1]
        roots[component] = root % (n + 1)
    order, parent = breadth_first(policy, roots)
    child = order[parent[order] != order]
    edges, _ = canonical_edges(_cell(child, n), _cell(parent[child], n), n)
    return Policy(policy.domain, f"spanning tree of {policy.spec}", f"along a tree, {policy.meaning}", edges)


def _cell(vertices: IndexArray, num_cells: int) -> IndexArray:
    return np.where(vertices == num_cells, BOTTOM, vertices)


def _roots(policy: Policy) -> IndexArray:
    """BOTTOM (vertex n) for components that hold it, else the cell of highest degree."""
    components, n = policy.components, policy.num_cells
    degree = np.diff(policy.adjacency.indptr)[:n]
    by_degree = np.lexsort((degree, components.labels))
    last_of_component = np.cumsum(components.sizes) - 1
    return np.where(components.ground == BOTTOM, n, by_degree[last_of_component])


def stretch(policy: Policy, spanner: Policy) -> int:
    """Return the largest distance in `spanner` between the two ends of an edge of `policy`.

    Guarantees:
        A mechanism that is (epsilon, spanner)-private is (stretch * epsilon, policy)-private.
    """
    if policy.num_cells != spanner.num_cells:
        raise fail(
            "policy.stretch",
            f"{policy.num_cells} and {spanner.num_cells} cells",
            "both graphs must be on the same cells",
            "Build the spanner for the policy's domain.",
        )
    if policy.num_edges == 0:
        return 0
    u, v = policy.edges[:, 0], policy.edges[:, 1] % (policy.num_cells + 1)
    longest = _longest_forest_distance(spanner, u, v) if spanner.is_forest else _longest_distance(spanner, u, v)
    if not np.isfinite(longest):
        raise fail(
            "policy.stretch",
            spanner.spec,
            "does not connect the two ends of some edge of the policy",
            "Use a spanner with the same components, for example policy.spanning_tree(policy).",
        )
    return int(longest)


def _longest_distance(spanner: Policy, u: IndexArray, v: IndexArray) -> float:
    """Breadth-first search from every first end, a block of them at a time."""
    longest = 0.0
    sources, which = np.unique(u, return_inverse=True)
    order = np.argsort(which, kind="stable")
    chunk = max(1, _CHUNK_ENTRIES // (spanner.num_cells + 1))
    for start in range(0, sources.size, chunk):
        low, high = np.searchsorted(which[order], [start, start + chunk])
        block = order[low:high]
        hops = csgraph.dijkstra(spanner.adjacency, indices=sources[start : start + chunk], unweighted=True)
        longest = max(longest, float(hops[which[block] - start, v[block]].max()))
    return longest


def _longest_forest_distance(spanner: Policy, u: IndexArray, v: IndexArray) -> float:
    """Tree distance by lowest common ancestors: depth(u) + depth(v) - 2 depth(lca), all edges at once."""
    _, labels = csgraph.connected_components(spanner.adjacency, directed=False)
    if np.any(labels[u] != labels[v]):
        return float("inf")
    _, parent = breadth_first(spanner, _roots(spanner))
    ancestors, depth = [parent], (parent != np.arange(parent.size)).astype(np.int64)
    while np.any(ancestors[-1] != ancestors[-1][ancestors[-1]]):
        depth += depth[ancestors[-1]]  # pointer doubling: the depth of 2^k generations
        ancestors.append(ancestors[-1][ancestors[-1]])
    deeper = depth[u] >= depth[v]
    low, high = np.where(deeper, u, v), np.where(deeper, v, u)
    climb = depth[low] - depth[high]
    for bit, up in enumerate(ancestors):
        low = np.where(climb >> bit & 1, up[low], low)
    for up in reversed(ancestors):
        apart = up[low] != up[high]
        low, high = np.where(apart, up[low], low), np.where(apart, up[high], high)
    meet = np.where(low == high, low, parent[low])
    return float((depth[u] + depth[v] - 2 * depth[meet]).max())
