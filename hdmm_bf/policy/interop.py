"""Graphs from and to other software: networkx and scipy adjacency matrices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hdmm_bf._checks import fail, finite
from hdmm_bf._types import AnyArray, SparseMatrix
from hdmm_bf.domain import DomainLike
from hdmm_bf.policy.constructors import from_edges
from hdmm_bf.policy.graph import BOTTOM, Policy

if TYPE_CHECKING:
    import networkx as nx

BOTTOM_NAME = "_"
"""How BOTTOM is spelled in files and in networkx graphs."""


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
        cells: the nodes in cell order. Without it nodes must be called 0, 1, ... (numbers or strings).
            BOTTOM is the node `"_"`.
        domain: the domain, when it has more than one attribute.
        spec: how the policy calls itself.
    """
    nodes = [node for node in graph.nodes if node != BOTTOM_NAME]
    numbers = _given_numbers(nodes, cells) if cells is not None else _own_numbers(nodes)
    numbers[BOTTOM_NAME] = BOTTOM
    num_cells = len(cells) if cells is not None else max(numbers.values(), default=-1) + 1
    if num_cells == 0:
        raise fail("policy.from_networkx", spec, "the graph has no cells", "Add one node for each cell.")
    ends = np.array([(numbers[a], numbers[b]) for a, b, *_ in graph.edges], dtype=np.int64).reshape(-1, 2)
    return from_edges(ends[:, 0], ends[:, 1], domain if domain is not None else num_cells, spec=spec)


def _given_numbers(nodes: Sequence[Hashable], cells: Sequence[Hashable]) -> dict[Hashable, int]:
    numbers = {node: i for i, node in enumerate(cells)}
    if len(numbers) != len(cells):
        raise fail("policy.from_networkx", f"{len(cells)} cells", "a cell is named twice", "List each cell once.")
    unknown = [node for node in nodes if node not in numbers]
    if unknown:
        raise fail("policy.from_networkx", f"node {unknown[0]!r}", "is not among the cells", "Add it to cells=[...].")
    return numbers


def _own_numbers(nodes: Sequence[Hashable]) -> dict[Hashable, int]:
    numbers: dict[Hashable, int] = {}
    for node in nodes:
        text = str(node)
        if isinstance(node, bool) or not (text.isascii() and text.isdecimal()):
            raise fail(
                "policy.from_networkx",
                f"node {node!r}",
                "is not a cell number",
                f"Name nodes 0, 1, ... and '{BOTTOM_NAME}' for BOTTOM, or pass cells=[...].",
            )
        numbers[node] = int(text)
    return numbers


def to_networkx(policy: Policy) -> nx.Graph:
    """Return the policy as a networkx graph on the cell numbers and, if some edge needs it, `"_"` for BOTTOM."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(policy.num_cells))
    graph.add_edges_from((u, BOTTOM_NAME if v == BOTTOM else v) for u, v in policy.edges.tolist())
    return graph


def from_adjacency(adjacency: SparseMatrix | AnyArray, *, domain: DomainLike | None = None) -> Policy:
    """Make a policy from a square adjacency matrix (dense or scipy.sparse): a non-zero entry is an edge."""
    matrix = sp.coo_array(adjacency)
    rows, columns = matrix.shape
    if rows != columns:
        raise fail("policy.from_adjacency", f"{rows} x {columns}", "must be square", "Give one row for each cell.")
    present = finite("policy.from_adjacency", "entries", matrix.data) != 0
    u, v = matrix.row[present].astype(np.int64), matrix.col[present].astype(np.int64)
    keep = (u < v) | ~np.isin(u * rows + v, v * rows + u)  # a symmetric matrix names every edge twice
    made_for = domain if domain is not None else int(rows)
    return from_edges(u[keep | (u == v)], v[keep | (u == v)], made_for, spec="adjacency matrix")
