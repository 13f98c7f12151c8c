"""What the queries of a workload ask, by attribute: the key from a query's number to its place in a printed table.

A workload is made of blocks. A `TableBlock` is a product: one `Axis` an attribute, and a query is one row of each.
`BoxBlock` is a list of boxes. Either says of an attribute and some queries whether they ask for all of it, for an
interval of its values, or for a named group of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int

from hdmm_bf._types import AnyArray, IndexArray, RealVector
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Identity, Kronecker, Matrix, Ones, Sparse
from hdmm_bf.workload.boxes import AllRange, Prefix

AxisKind: TypeAlias = Literal["all", "values", "prefixes", "ranges", "groups"]


_MATRICES: dict[str, Callable[[int], Matrix]] = {
    "all": Ones,
    "values": Identity,
    "prefixes": Prefix,
    "ranges": AllRange,
}


class Part(NamedTuple):
    """What some queries ask of one attribute: values `low` to `high`, or where `names` is given, groups so called."""

    whole: bool
    low: IndexArray
    high: IndexArray
    names: tuple[str, ...] | None = None


@final
@dataclass(frozen=True, eq=False)
class Axis:
    """Subsets of the values of one attribute, one a row of `matrix`.

    Attributes:
        kind: all values together, each value, each prefix, each range, or named groups.
        size: number of values of the attribute.
        chosen: the values that are spoken of, in rising order, and without a hole except for
            "values"; None for all.
        groups: for groups, their names and members.
    """

    kind: AxisKind
    size: int
    chosen: tuple[int, ...] | None = None
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def width(self) -> int:
        """Number of values that are spoken of."""
        return self.size if self.chosen is None else len(self.chosen)

    @cached_property
    def matrix(self) -> Matrix:
        """One row a subset, one column a value."""
        if self.kind == "groups":
            return self._indicator([members for _, members in self.groups])
        k = self.width
        plain = _MATRICES[self.kind](k)
        if self.chosen is None:
            return plain
        S = sp.coo_array(plain.sparse())
        columns = np.array(self.chosen, dtype=np.int64)[S.col]
        return Sparse(sp.csr_array((S.data, (S.row, columns)), shape=(S.shape[0], self.size)))

    def _indicator(self, subsets: Sequence[Sequence[int]]) -> Matrix:
        row = np.repeat(np.arange(len(subsets)), [len(members) for members in subsets])
        column = np.array([v for members in subsets for v in members], dtype=np.int64)
        return Sparse(sp.csr_array((np.ones(row.size), (row, column)), shape=(len(subsets), self.size)))

    def part(self, rows: IndexArray) -> Part:
        """Say what some rows ask for."""
        if self.kind == "groups":
            names = tuple(self.groups[i][0] for i in rows.tolist())
            return Part(False, np.full(rows.size, -1), np.full(rows.size, -1), names)
        low, high = self._ends(rows)
        if self.chosen is None:
            return Part(self.kind == "all", low, high)
        place = np.array(self.chosen, dtype=np.int64)
        return Part(False, place[low], place[high])

    def _ends(self, rows: IndexArray) -> tuple[IndexArray, IndexArray]:
        """First and last of the values that are spoken of, counted among these."""
        k = self.width
        if self.kind == "all":
            return np.zeros_like(rows), np.full_like(rows, k - 1)
        if self.kind == "values":
            return rows, rows
        if self.kind == "prefixes":
            return np.zeros_like(rows), rows
        starts = np.concatenate([[0], np.cumsum(np.arange(k, 0, -1))])  # ranges are ordered by low, then high
        low = np.searchsorted(starts, rows, side="right") - 1
        return low, low + rows - starts[low]


def in_a_row(values: Sequence[int]) -> bool:
    """Whether values follow one another without a hole."""
    return all(b == a + 1 for a, b in pairwise(values))


@final
@dataclass(frozen=True, eq=False)
class TableBlock:
    """All conjunctions of one row of every axis: a table, with how much it matters and how exact it should be."""

    name: str
    axes: tuple[Axis, ...]
    weight: float = 1.0
    stddev: float | None = None

    @cached_property
    def matrix(self) -> Matrix:
        """The queries, implicit."""
        factors = tuple(axis.matrix for axis in self.axes)
        return factors[0] if len(factors) == 1 else Kronecker(factors)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of rows of every axis."""
        return tuple(axis.matrix.shape[0] for axis in self.axes)

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return math.prod(self.counts)

    def part(self, attribute: int, rows: IndexArray) -> Part:
        """Say what some queries ask of an attribute."""
        own = np.unravel_index(rows, self.counts)[attribute]
        return self.axes[attribute].part(np.asarray(own, dtype=np.int64))

    @property
    def kinds(self) -> tuple[AxisKind, ...]:
        """What is asked of every attribute."""
        return tuple(axis.kind for axis in self.axes)


@final
@dataclass(frozen=True, eq=False)
class BoxBlock:
    """A list of boxes, with both ends of every attribute."""

    name: str
    low: Int[np.ndarray, "m d"]
    high: Int[np.ndarray, "m d"]
    stddev: float | None = None

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.low)

    def part(self, attribute: int, rows: IndexArray) -> Part:
        """Say what some queries ask of an attribute."""
        return Part(False, self.low[rows, attribute], self.high[rows, attribute])

    @property
    def kinds(self) -> tuple[AxisKind, ...]:
        """What is asked of every attribute."""
        ranges: tuple[AxisKind, ...] = ("ranges",)
        return ranges * int(self.low.shape[1])


Block: TypeAlias = TableBlock | BoxBlock


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """The blocks of a workload in the order of its queries.

    Attributes:
        blocks: one a table.
        makes: whether the blocks alone make the workload again, weights included.
    """

    blocks: tuple[Block, ...]
    makes: bool = False

    @cached_property
    def ends(self) -> AnyArray:
        """Number of queries up to and with every block."""
        return np.cumsum([block.num_queries for block in self.blocks])

    def place(self, query: int) -> tuple[Block, int]:
        """Return the block of a query, and its number there."""
        b = int(np.searchsorted(self.ends, query, side="right"))
        return self.blocks[b], query - int(self.ends[b]) + self.blocks[b].num_queries

    def targets(self) -> RealVector:
        """Return the standard deviation that is asked of every query, NaN where none is."""
        wanted = [math.nan if block.stddev is None else block.stddev for block in self.blocks]
        return np.repeat(np.array(wanted), [block.num_queries for block in self.blocks])

    def unmade(self) -> Layout:
        """Return the same places for a workload that is no longer made of the blocks alone."""
        return replace(self, makes=False)


def query_name(domain: Domain, block: Block, row: int) -> str:
    """Name a query: `age=3..7, sex=F`; attributes of which all is asked are left out, and `total` if that is all."""
    parts = []
    for i, name in enumerate(domain.names):
        part = block.part(i, np.array([row]))
        low, high = int(part.low[0]), int(part.high[0])
        if part.names is not None:
            parts.append(f"{name}={part.names[0]}")
        elif (low, high) != (0, domain.sizes[i] - 1) or low == high:
            parts.append(f"{name}={domain.interval_name(i, low, high)}")
    return ", ".join(parts) or "total"
