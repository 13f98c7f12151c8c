"""The paper's data-independent mechanisms as strategies: what any search must beat.

Identity on the edges (Transformed + Laplace; on a line the noisy prefix sums); subgraph approximation through a
spanning tree or the spanner H^theta, with identity or wavelets on its groups of edges; rows and columns of wavelets
on grids. Each is measured with its exact sensitivity under the policy, which is at most the stretch the paper uses.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf._types import Norm, RealMatrix
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.baselines.classical import haar
from hdmm_bf.strategies.drafts import Draft, draft
from hdmm_bf.workload import identity

_LARGEST_EDGES = 3000
"""Edge strategies with more columns than this are left out."""


def floors(problem: Problem, norm: Norm) -> Iterator[Draft]:
    """Yield the paper's mechanisms that apply to the policy."""
    if problem.policy.num_edges <= _LARGEST_EDGES:
        yield draft(problem, "edge", np.eye(problem.policy.num_edges), norm=norm, origin="identity on edges")
        grid = rows_and_columns(problem.policy)
        if grid is not None:
            yield draft(problem, "edge", grid, norm=norm, origin="rows and columns of wavelets")
    for name, spanner in spanners(problem.policy):
        inverse = tree_inverse(spanner)
        yield draft(problem, "vertex", inverse, norm=norm, origin=f"identity on {name}")
        yield draft(problem, "vertex", grouped(spanner) @ inverse, norm=norm, origin=f"wavelets on {name}")


def spanners(policy: Policy) -> Iterator[tuple[str, Policy]]:
    """A breadth-first tree of a graph that is none, and H^theta of one-attribute threshold policies."""
    if not policy.is_forest:
        yield "a spanning tree", policies.spanning_tree(policy)
    reach = int(np.abs(policy.edges[:, 0] - policy.edges[:, 1]).max(initial=0))
    if policy.domain.num_attributes == 1 and not policy.has_bottom and reach > 1 and policy.components.count == 1:
        spanner = policies.h_theta(policy.domain, reach)
        if reach < policy.num_cells:
            yield "H^theta", spanner


def tree_inverse(forest: Policy) -> RealMatrix:
    """Return P^-1 of a forest over its kept cells: an integer matrix, one row an edge."""
    P = Problem(identity(forest.domain), forest).P.dense()
    inverse = np.rint(np.linalg.inv(P))
    assert np.array_equal(P @ inverse, np.eye(len(P))), (
        "the inverse of a forest's incidence matrix is an integer matrix"
    )
    return inverse


def grouped(tree: Policy) -> RealMatrix:
    """Haar wavelets within each group of edges that hang on the same vertex, in the order of the cells."""
    u, v = tree.edges.T
    hub = np.where(v == BOTTOM, -1, np.maximum(u, v))
    blocks = np.zeros((len(tree.edges), len(tree.edges)))
    row = 0
    for vertex in np.unique(hub):
        group = np.flatnonzero(hub == vertex)
        blocks[row : row + group.size, group] = haar(group.size)
        row += group.size
    return blocks


def rows_and_columns(policy: Policy) -> RealMatrix | None:
    """Return the grid strategy: wavelets along every line of parallel edges; None if the policy is no grid.

    Reference: Section 5.1 of the paper, in d dimensions lines become (d-1)-dimensional slabs.
    """
    factors = policy.factors
    if factors is None or len(factors) < 2 or any(not f.is_tree or f.has_bottom for f in factors):
        return None
    sizes = [f.num_cells for f in factors]
    blocks = []
    for i, factor in enumerate(factors):
        others = [np.eye(factor.num_edges) if j == i else haar(size) for j, size in enumerate(sizes)]
        made = others[0]
        for other in others[1:]:
            made = np.kron(made, other)
        blocks.append(made)
    total = sum(len(b) for b in blocks)
    S = np.zeros((total, total))
    start = 0
    for block in blocks:
        S[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return S
