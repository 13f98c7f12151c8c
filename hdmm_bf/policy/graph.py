"""A policy: the graph on the cells that says which pairs of values must stay indistinguishable.

An edge (u, v) hides whether a record is in cell u or in cell v; an edge (u, BOTTOM) hides whether a
record in cell u is there at all. Edges are an integer array, one row an edge, with BOTTOM written -1
and always second. A Cartesian product keeps its factors and writes its edges out only when asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int
from scipy.sparse import csgraph

from hdmm_bf import _display
from hdmm_bf._checks import fail, fits
from hdmm_bf._types import EdgeArray, IndexArray, RealVector, SparseMatrix
from hdmm_bf.domain import Domain

BOTTOM = -1
"""The extra vertex "no record"."""

_EDGE_BYTES = 16
_SEARCH_EDGE_BYTES = 100  # measured peak of `components`: the edges, both ends in both directions, CSR twice
_SEARCH_CELL_BYTES = 80  # measured peak of `components` without edges
EDGE_ADVICE = "Use a smaller domain or a sparser policy."


@final
@dataclass(frozen=True, eq=False)
class Components:
    """Connected components, numbered by their first cell.

    Attributes:
        labels: the component of every cell.
        sizes: number of cells in every component.
        ground: for every component the cell it gives up (its last one), or BOTTOM where it contains that.
    """

    labels: Int[np.ndarray, " n"]
    sizes: Int[np.ndarray, " c"]
    ground: Int[np.ndarray, " c"]

    @property
    def count(self) -> int:
        """Number of components that hold at least one cell."""
        return int(self.sizes.size)

    @property
    def public(self) -> IndexArray:
        """Components without BOTTOM; the number of their records never changes between neighbours."""
        return np.flatnonzero(self.ground != BOTTOM)


@final
@dataclass(frozen=True, eq=False)
class Policy:
    """A policy graph on the cells of a domain; make one with the functions of `hdmm_bf.policy`.

    Attributes:
        domain: the cells.
        spec: the spec string that makes this policy again, or a description of where it came from.
        meaning: what the edges hide, as the end of the sentence "nobody can tell ...".
        notes: what was changed on reading, for example merged duplicate edges.
        factors: one-attribute policies whose Cartesian product this is, or None.

    Guarantees:
        No self-loops, no repeated edges, every end a cell or BOTTOM, BOTTOM only as second end.
    """

    domain: Domain
    spec: str
    meaning: str
    stored: EdgeArray | None = None
    factors: tuple[Policy, ...] | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.title != self.spec:  # which tells the edges
            return f"Policy({self.title}, cells={self.num_cells})"
        return f"Policy({self.spec!r}, cells={self.num_cells}, edges={self.num_edges})"

    def _repr_html_(self) -> str:
        from hdmm_bf.policy.words import discloses, hides

        rows = [
            ("cells", f"{self.num_cells}" if self.domain.num_attributes == 1 else f"{self.num_cells}: {self.domain}"),
            ("edges", str(self.num_edges)),
            ("hidden", hides(self)),
            ("public", "; ".join(discloses(self)) or "nothing, not even the number of records"),
            *(("note", note) for note in self.notes),
        ]
        return _display.card("Policy", self.title, _display.facts_table(rows))

    @cached_property
    def title(self) -> str:
        """What people call the policy: its spec if that makes these edges, else its name in quotes and its size."""
        from hdmm_bf.policy.naming import title

        return title(self)

    @property
    def num_cells(self) -> int:
        """Number of cells n."""
        return self.domain.num_cells

    @property
    def num_edges(self) -> int:
        """Number of edges e, known without writing them out."""
        if self.stored is not None:
            return len(self.stored)
        return sum(f.num_edges * (self.num_cells // f.num_cells) for f in self.factors or ())

    @cached_property
    def edges(self) -> EdgeArray:
        """The edges, e x 2; refused when they would not fit in memory."""
        if self.stored is not None:
            return self.stored
        check_edges_fit(self.spec, self.num_edges)
        return _product_edges(self.factors or (), self.num_edges)

    @property
    def has_bottom(self) -> bool:
        """Whether some edge hides the presence of a record."""
        if self.factors is not None:
            return any(f.has_bottom for f in self.factors)
        return bool(np.any(self.edges[:, 1] == BOTTOM))

    @cached_property
    def components(self) -> Components:
        """The connected components and the cell each gives up when it is grounded."""
        _, labels = csgraph.connected_components(self.adjacency, directed=False)
        cells, bottom_label = labels[:-1], labels[-1]
        _, first, renumbered, sizes = np.unique(cells, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        label = rank[renumbered]
        ground = np.zeros(order.size, dtype=np.int64)
        ground[label] = np.arange(self.num_cells)  # the last cell written wins
        if self.has_bottom:
            ground[label[cells == bottom_label]] = BOTTOM
        return Components(label, sizes[order], ground)

    @property
    def is_forest(self) -> bool:
        """Whether the graph has no cycle, so that P_G is square."""
        return self.num_edges == self.num_cells - int(self.components.public.size)

    @property
    def is_tree(self) -> bool:
        """Whether the graph is connected and has no cycle."""
        return self.is_forest and self.components.count == 1

    @cached_property
    def adjacency(self) -> SparseMatrix:
        """Symmetric adjacency over the cells and, as last vertex, BOTTOM."""
        n, e = self.num_cells, self.num_edges
        check_edges_fit(self.spec, e)
        size = n * _SEARCH_CELL_BYTES + e * _SEARCH_EDGE_BYTES  # paths and components are what it is for
        fits("policy.adjacency", f"{self.spec} with {n} cells and {e} edges", size, advice=EDGE_ADVICE)
        u, v = self.edges[:, 0], np.where(self.edges[:, 1] == BOTTOM, n, self.edges[:, 1])
        ends = (np.concatenate([u, v]), np.concatenate([v, u]))
        return sp.csr_array((np.ones(2 * u.size, dtype=np.int8), ends), shape=(n + 1, n + 1))

    def distances_from(self, cell: int) -> RealVector:
        """Return the number of edges from a cell (or BOTTOM) to every cell, infinite where there is no path."""
        vertex = self.vertex(cell)
        hops = csgraph.dijkstra(self.adjacency, indices=vertex, unweighted=True, directed=False)
        return np.asarray(hops[:-1], dtype=np.float64)

    def distance(self, u: int, v: int) -> float:
        """Return the length of the shortest path: the pair (u, v) is protected with that many epsilons."""
        if v == BOTTOM:
            u, v = v, u
        self.vertex(v)
        return 0.0 if u == v else float(self.distances_from(u)[v])

    def vertex(self, cell: int) -> int:
        """Return a cell's vertex number in `adjacency` (BOTTOM is the last one)."""
        if not BOTTOM <= cell < self.num_cells:
            raise fail(
                "policy.vertex",
                cell,
                f"cells are 0 to {self.num_cells - 1}",
                "Use policy.BOTTOM for the missing record.",
            )
        return cell % (self.num_cells + 1)


def breadth_first(policy: Policy, roots: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Search from several roots at once; return the vertices reached, in order, and every vertex's parent.

    Vertices are the cells and BOTTOM (number n). Roots, and vertices not reached, are their own parents.
    """
    hub = policy.num_cells + 1
    A = policy.adjacency
    indices = np.concatenate([A.indices, roots.astype(A.indices.dtype)])
    indptr = np.append(A.indptr, A.indptr[-1] + A.indptr.dtype.type(roots.size))
    graph = sp.csr_array((np.ones(indices.size), indices, indptr), shape=(hub + 1, hub + 1))
    order, predecessor = csgraph.breadth_first_order(graph, hub, directed=True)
    own = np.arange(hub)
    before = predecessor[:hub].astype(np.int64)
    parent = np.where((before == hub) | (before < 0), own, before)
    return order[1:].astype(np.int64), parent


def check_edges_fit(where: str, num_edges: int) -> None:
    """Refuse an edge list that would not fit in memory, before it is made."""
    fits("policy", f"{where} with {num_edges} edges", num_edges * _EDGE_BYTES, advice=EDGE_ADVICE)


def attribute_groups(domain: Domain, policies: Sequence[Policy]) -> list[tuple[str, ...]]:
    """Return, for each policy of a product, the names of the attributes of `domain` that it speaks about.

    A policy has either its own attributes there, or one attribute with all its cells.
    """
    groups = []
    start = 0
    for policy in policies:
        own = policy.domain.sizes
        width = len(own) if domain.sizes[start : start + len(own)] == own else 1
        if domain.sizes[start : start + width] not in (own, (policy.num_cells,)):
            break
        groups.append(domain.names[start : start + width])
        start += width
    if len(groups) != len(policies) or start != domain.num_attributes:
        seen = f"policies on {', '.join(str(p.domain) for p in policies)}"
        raise fail("policy.product", seen, f"do not make up the domain {domain}", "Give one for each attribute.")
    return groups


def _product_edges(factors: tuple[Policy, ...], num_edges: int) -> EdgeArray:
    """Edges of type i are (edge of G_i) x (any cell of the others): P_G is the stack of these columns."""
    out = np.empty((num_edges, 2), dtype=np.int64)
    sizes = [f.num_cells for f in factors]
    start = 0
    for i, factor in enumerate(factors):
        before, after = math.prod(sizes[:i]), math.prod(sizes[i + 1 :])
        block = out[start : start + before * factor.num_edges * after]
        view = block.reshape(before, factor.num_edges, after, 2)
        offset = (np.arange(before) * (sizes[i] * after))[:, None] + np.arange(after)
        view[:] = (factor.edges * after)[None, :, None, :]
        view += offset[:, None, :, None]
        view[:, factor.edges[:, 1] == BOTTOM, :, 1] = BOTTOM
        start += len(block)
    return out
