"""Graphs from and to other software: networkx and scipy adjacency matrices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hdmm_bf._checks import fail, fits, real_matrix
from hdmm_bf._types import AnyArray, SparseMatrix
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.policy.constructors import check_vertices, from_edges
from hdmm_bf.policy.graph import BOTTOM, Policy
from hdmm_bf.policy.node_names import BOTTOM_NAME, label_numbers, labels_of, own_numbers

if TYPE_CHECKING:
    import networkx as nx

_ADJACENCY = "policy.from_adjacency"
_NETWORKX_BYTES = 300  # a node or an edge, measured


def from_networkx(
    graph: nx.Graph,
    cells: Sequence[Hashable] | None = None,
    *,
    domain: DomainLike | None = None,
    spec: str = "networkx graph",
) -> Policy:
    """Make a policy from a networkx graph.

    Args:
        graph: any networkx graph; directions, parallel edges and attributes are dropped.
        cells: the nodes in cell order. Without it nodes must be called 0, 1, ... (numbers or strings), or by the
            labels of the domain, or have a property, such as `label` or `name`, that is one. BOTTOM is the node `"_"`.
        domain: the domain, when it has labels or more than one attribute.
        spec: how the policy calls itself.
    """
    made_for = None if domain is None else as_domain(domain)
    nodes = [node for node in graph.nodes if node != BOTTOM_NAME]
    numbers = _given_numbers(nodes, cells) if cells is not None else _numbers(graph, nodes, made_for)
    numbers[BOTTOM_NAME] = BOTTOM
    num_cells = len(cells) if cells is not None else max(numbers.values(), default=-1) + 1
    if num_cells == 0:
        raise fail("policy.from_networkx", spec, "the graph has no cells", "Add one node for each cell.")
    if made_for is None or cells is not None:
        made_for = _same_cells("policy.from_networkx", num_cells, made_for)
    check_vertices(np.array([*numbers.values()], dtype=np.int64), made_for.num_cells)
    ends = np.array([(numbers[a], numbers[b]) for a, b, *_ in graph.edges], dtype=np.int64).reshape(-1, 2)
    return from_edges(ends[:, 0], ends[:, 1], made_for, spec=spec)


def _numbers(graph: nx.Graph, nodes: Sequence[Hashable], domain: Domain | None) -> dict[Hashable, int]:
    """Return the cells of nodes that are called by labels, or else by numbers."""
    labels = labels_of(domain)
    found = None
    if labels is not None:
        found = label_numbers("policy.from_networkx", nodes, labels, dict(graph.nodes(data=True)))
    return own_numbers("policy.from_networkx", nodes) if found is None else found


def _same_cells(where: str, num_cells: int, domain: Domain | None) -> Domain:
    """Return the domain of a graph with that many cells; a given one must agree."""
    if domain is not None and domain.num_cells != num_cells:
        seen = f"{num_cells} cells, domain {domain}"
        raise fail(where, seen, f"the domain has {domain.num_cells} cells", "Give a domain of the graph's size.")
    return domain or as_domain(num_cells)


def _given_numbers(nodes: Sequence[Hashable], cells: Sequence[Hashable]) -> dict[Hashable, int]:
    numbers = {node: i for i, node in enumerate(cells)}
    if len(numbers) != len(cells):
        raise fail("policy.from_networkx", f"{len(cells)} cells", "a cell is named twice", "List each cell once.")
    if BOTTOM_NAME in numbers:
        problem = f"'{BOTTOM_NAME}' is BOTTOM, which is no cell"
        raise fail("policy.from_networkx", f"cells with '{BOTTOM_NAME}'", problem, "Leave it out of cells=[...].")
    unknown = [node for node in nodes if node not in numbers]
    if unknown:
        raise fail("policy.from_networkx", f"node {unknown[0]!r}", "is not among the cells", "Add it to cells=[...].")
    return numbers


def to_networkx(policy: Policy) -> nx.Graph:
    """Return the policy as a networkx graph on the cell numbers and, if some edge needs it, `"_"` for BOTTOM."""
    import networkx as nx

    size = (policy.num_cells + policy.num_edges) * _NETWORKX_BYTES
    seen = f"{policy.spec} with {policy.num_cells} cells"
    fits("policy.to_networkx", seen, size, advice="Use policy.edges or policy.adjacency.")
    graph = nx.Graph()
    graph.add_nodes_from(range(policy.num_cells))
    graph.add_edges_from((u, BOTTOM_NAME if v == BOTTOM else v) for u, v in policy.edges.tolist())
    return graph


def from_adjacency(adjacency: SparseMatrix | AnyArray, *, domain: DomainLike | None = None) -> Policy:
    """Make a policy from a square adjacency matrix (dense or scipy.sparse): a non-zero entry is an edge."""
    matrix = sp.csr_array(real_matrix(_ADJACENCY, "A", adjacency, advice="Give one row for each cell."))
    rows, columns = matrix.shape
    if rows != columns:
        raise fail(_ADJACENCY, f"{rows} x {columns}", "must be square", "Give one row for each cell.")
    made_for = _same_cells(_ADJACENCY, int(rows), None if domain is None else as_domain(domain))
    present = matrix != 0
    upper = sp.coo_array(sp.triu(present + present.T))  # a symmetric matrix names every edge twice
    return from_edges(upper.row, upper.col, made_for, spec="adjacency matrix")
