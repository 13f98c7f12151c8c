"""A workload: the queries to be answered, as an implicit m x n matrix with names for its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias, final

import numpy as np
import scipy.sparse as sp

from hdmm_bf import _display
from hdmm_bf._checks import as_array, fail, finite, fits, position, real_matrix, same_cells
from hdmm_bf._types import AnyArray, JsonObject, Number, RealVector, SquareMatrix
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.matrix import Dense, Kronecker, Matrix, Sparse, Stack, Weighted
from hdmm_bf.workload.layout import Layout, TableBlock, query_name

MatrixLike: TypeAlias = object
"""A NumPy array, a scipy.sparse matrix, nested lists, or one of our implicit matrices."""

_BYTES_PER_NAME = 80
_SHOWN = 3
"""Queries whose names a notebook shows, besides the last."""
_LARGEST_INDEX = np.iinfo(np.int64).max


@final
@dataclass(frozen=True, eq=False)
class Workload:
    """Linear counting queries over the cells of a domain.

    Attributes:
        matrix: the queries, implicit; one row a query, one column a cell.
        domain: the cells.
        spec: the spec string that makes this workload again, or where it came from.
        namer: gives the name of a query from its number.
        times_weights: the queries times their weights, row by row, or None where all have weight 1. A search minimises
            the error of these; nothing that is published depends on the weights.
        layout: which table and which values of every attribute each query asks for, where that is known.
    """

    matrix: Matrix
    domain: Domain
    spec: str
    namer: Callable[[int], str]
    times_weights: Matrix | None = None
    layout: Layout | None = None

    def __post_init__(self) -> None:
        assert self.objective.shape == self.matrix.shape, "one weight a query"
        if self.matrix.shape[1] != self.domain.num_cells:
            raise fail(
                "workload",
                f"{self.matrix.shape[1]} columns",
                f"the domain {self.domain} has {self.domain.num_cells} cells",
                "Give one column for each cell, in row-major order.",
            )

    def __repr__(self) -> str:
        if self.title != self.spec:  # which tells the queries
            return f"Workload({self.title}, cells={self.num_cells})"
        return f"Workload({self.spec!r}, queries={self.num_queries}, cells={self.num_cells})"

    def _repr_html_(self) -> str:
        m, n = self.matrix.shape
        shown = [*range(min(m, _SHOWN)), *([m - 1] if m > _SHOWN else [])] if m <= _LARGEST_INDEX else []
        rows = [
            ("queries", str(m)),
            ("cells", str(n) if self.domain.num_attributes == 1 else f"{n}: {self.domain}"),
            *((f"query {i}", self.namer(i)) for i in shown),
        ]
        return _display.card("Workload", self.title, _display.facts_table(rows))

    @cached_property
    def title(self) -> str:
        """What people call the workload: its spec if that makes it again, else its name in quotes and its size."""
        from hdmm_bf.workload.naming import title

        return title(self)

    @property
    def num_queries(self) -> int:
        """Number of queries m."""
        return self.matrix.shape[0]

    @property
    def num_cells(self) -> int:
        """Number of cells n."""
        return self.matrix.shape[1]

    @property
    def is_weighted(self) -> bool:
        """Whether some queries steer a search more than others."""
        return self.times_weights is not None

    @property
    def objective(self) -> Matrix:
        """The queries times their weights: what a search minimises the error of."""
        return self.matrix if self.times_weights is None else self.times_weights

    def weights(self) -> RealVector:
        """Return the weight of every query."""
        fits("workload.weights", f"{self.num_queries} queries", self.num_queries * 8, advice="Use a smaller domain.")
        return row_weights(self.objective, self.matrix)

    @cached_property
    def gram(self) -> SquareMatrix:
        """W^T W of the queries times their weights, in closed form where the workload has one."""
        return self.objective.gram()

    def name(self, query: int) -> str:
        """Return the name of one query."""
        if self.num_queries > _LARGEST_INDEX:
            problem = "has more than 2^63 queries, too many to number"
            raise fail("workload.name", self.spec, problem, "Use a smaller domain.")
        return self.namer(position("workload.name", query, self.num_queries, "queries"))

    def query(self, query: int) -> JsonObject:
        """Return what a query asks: its table, and by attribute a value, an interval (first, last) or a group's name.

        Attributes that are summed over are left out. A value is its label, or its number where it has none.
        """
        from hdmm_bf.workload.columns import described

        return described(self, position("workload.query", query, self.num_queries, "queries"))

    def columns(self) -> dict[str, list[str | float | int | None]]:
        """Return what all queries ask, one row a query: the columns that a published table has before its numbers.

        `table` is the name of the table. An attribute has a column of its name; where some query asks for several of
        its values, columns `age_lo` and `age_hi` with the first and the last, or with both edges of an interval. What
        a query sums over is None, in two columns in both. Queries of a custom matrix have one column, `query`.
        """
        from hdmm_bf.workload.columns import columns

        size = self.num_queries * _BYTES_PER_NAME * (1 + self.domain.num_attributes)
        fits("workload.columns", f"{self.num_queries} queries", size, advice="Use query(i) for the ones you need.")
        return columns(self)

    @property
    def targets(self) -> RealVector:
        """The standard deviation that is asked of every query, m numbers; NaN where none is asked."""
        fits("workload.targets", f"{self.num_queries} queries", self.num_queries * 8, advice="Use a smaller domain.")
        return np.full(self.num_queries, np.nan) if self.layout is None else self.layout.targets()

    @property
    def has_targets(self) -> bool:
        """Whether a standard deviation is asked of some query."""
        return self.layout is not None and any(block.stddev is not None for block in self.layout.blocks)

    def names(self) -> list[str]:
        """Return the names of all queries."""
        size = self.num_queries * _BYTES_PER_NAME
        fits("workload.names", f"{self.num_queries} queries", size, advice="Use name(i) for the ones you need.")
        return [self.namer(i) for i in range(self.num_queries)]


def from_matrix(
    matrix: MatrixLike,
    *,
    domain: DomainLike | None = None,
    names: Sequence[str] | None = None,
    spec: str = "custom matrix",
) -> Workload:
    """Make a workload from any real m x n matrix, dense or scipy.sparse."""
    made = _as_matrix(matrix)
    m, n = made.shape
    if m == 0 or n == 0:
        raise fail("workload.from_matrix", f"{m} x {n}", "has no entries", "Give at least one query and one cell.")
    if names is not None and len(names) != m:
        raise fail("workload.from_matrix", f"{len(names)} names", f"there are {m} queries", "Name each query once.")
    given = list(names) if names is not None else None
    return Workload(
        made,
        as_domain(domain if domain is not None else n),
        spec,
        given.__getitem__ if given is not None else lambda i: f"query {i}",
    )


def from_tables(blocks: Sequence[TableBlock], domain: Domain) -> Workload:
    """Return the workload that is these tables, one above the other; nothing is written out."""
    layout = Layout(tuple(blocks), makes=True)

    def name(query: int) -> str:
        return query_name(domain, *layout.place(query))

    heavy = [b.matrix if b.weight == 1 else Weighted(np.array([b.weight]), b.matrix) for b in blocks]
    times = None if all(b.weight == 1 for b in blocks) else _stacked(heavy)
    spec = "; ".join(block.name for block in blocks)
    return Workload(_stacked([b.matrix for b in blocks]), domain, spec, name, times, layout)


def _stacked(blocks: Sequence[Matrix]) -> Matrix:
    return blocks[0] if len(blocks) == 1 else Stack(tuple(blocks))


def _as_matrix(matrix: MatrixLike) -> Matrix:
    if isinstance(matrix, Matrix):
        return matrix
    real = real_matrix("workload.from_matrix", "W", matrix, advice="Write a single query as [[...]].")
    return Sparse(real) if sp.issparse(real) else Dense(real)


def union(*workloads: Workload) -> Workload:
    """Ask the queries of several workloads on the same cells together."""
    if not workloads:
        raise fail("workload.union", "no workloads", "needs at least one", "Pass the workloads to unite.")
    first = workloads[0]
    same_cells("workload.union", "workloads", [other.num_cells for other in workloads])
    ends = np.cumsum([w.num_queries for w in workloads])

    def name(query: int) -> str:
        block = int(np.searchsorted(ends, query, side="right"))
        return workloads[block].name(query - int(ends[block]) + workloads[block].num_queries)

    spec = f"union({', '.join(w.spec for w in workloads)})"
    matrix, heavy = _both(workloads, Stack)
    return Workload(matrix, first.domain, spec, name, heavy, _joined(workloads))


def _joined(workloads: Sequence[Workload]) -> Layout | None:
    """Put layouts one after the other, if every workload has one on the same sizes."""
    layouts = [w.layout for w in workloads if w.layout is not None and w.domain.sizes == workloads[0].domain.sizes]
    if len(layouts) < len(workloads):
        return None
    return Layout(tuple(block for layout in layouts for block in layout.blocks))


def _both(
    workloads: Sequence[Workload], combine: Callable[[tuple[Matrix, ...]], Matrix]
) -> tuple[Matrix, Matrix | None]:
    """Combine the queries as written, and times their weights where some workload has any."""
    matrix = combine(tuple(w.matrix for w in workloads))
    has_weights = any(w.is_weighted for w in workloads)
    return matrix, combine(tuple(w.objective for w in workloads)) if has_weights else None


def row_weights(objective: Matrix, written: Matrix) -> RealVector:
    """Return the factor between the rows of two matrices that are built alike, up to weights."""
    if objective is written:
        return np.ones(written.shape[0])
    if isinstance(objective, Weighted):
        return np.asarray(objective.weights * row_weights(objective.inner, written))
    if isinstance(objective, Stack) and isinstance(written, Stack):
        pairs = zip(objective.blocks, written.blocks, strict=True)
        return np.concatenate([row_weights(*pair) for pair in pairs])
    assert isinstance(objective, Kronecker)
    assert isinstance(written, Kronecker)
    return reduce(np.kron, [row_weights(*pair) for pair in zip(objective.factors, written.factors, strict=True)])


def weighted(workload: Workload, weights: Number | Sequence[Number] | AnyArray) -> Workload:
    """Say how much queries matter (one weight for all, or one each): the search counts an error of weight 2 as 4.

    Guarantees:
        Weights steer the search only: published answers, their names and their standard deviations are those of the
        queries as written.
    """
    vector = finite("workload.weighted", "weights", np.atleast_1d(as_array("workload.weighted", "weights", weights)))
    if vector.ndim != 1 or vector.size not in (1, workload.num_queries):
        raise fail(
            "workload.weighted",
            f"{vector.size} weights",
            f"there are {workload.num_queries} queries",
            "Give one weight, or one for each query.",
        )
    if vector.min() <= 0:
        advice = "Leave out queries that do not matter: what has no weight is not measured."
        raise fail("workload.weighted", f"a weight of {vector.min():g}", "must be positive", advice)
    shown = f"{vector[0]:g}" if vector.size == 1 else f"{vector.size} weights"
    spec = f"weighted({workload.spec}, {shown})"
    heavy = Weighted(vector, workload.objective)
    layout = None if workload.layout is None else workload.layout.unmade()
    return Workload(workload.matrix, workload.domain, spec, workload.namer, heavy, layout)


def product(*workloads: Workload) -> Workload:
    """Combine one workload for each attribute into the workload of all their conjunctions."""
    if not workloads:
        raise fail("workload.product", "no workloads", "needs at least one", "Pass one for each attribute.")
    domain = Domain(tuple(size for w in workloads for size in w.domain.sizes))
    counts = [w.num_queries for w in workloads]

    def name(query: int) -> str:
        numbers = np.unravel_index(query, counts)
        return " and ".join(w.name(int(i)) for w, i in zip(workloads, numbers, strict=True))

    spec = f"product({', '.join(w.spec for w in workloads)})"
    matrix, heavy = _both(workloads, Kronecker)
    return Workload(matrix, domain, spec, name, heavy)
