"""Queries in columns: one row a query, one column an attribute, or two where intervals of it are asked for.

What a cell holds is what people call the value: its label, a number where labels are whole numbers or there are none,
and the edges of its interval where values are intervals.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from hdmm_bf._checks import written_whole
from hdmm_bf._types import IndexArray
from hdmm_bf.domain import Domain
from hdmm_bf.workload.layout import Block, Layout, Part

if TYPE_CHECKING:
    from hdmm_bf.workload.queries import Workload

TABLE, QUERY = "table", "query"
NUMBERS = ("estimate", "stddev", "low", "high", "processed", "processed_low", "processed_high")
"""Columns that a published table has after these."""

_LOW, _HIGH = "{}_lo", "{}_hi"


def described(workload: Workload, query: int) -> dict[str, Any]:
    """Return what one query asks, by attribute."""
    if workload.layout is None:
        return {QUERY: workload.name(query)}
    domain = workload.domain
    block, row = workload.layout.place(query)
    found: dict[str, Any] = {TABLE: block.name}
    for i, name in enumerate(domain.names):
        part = block.part(i, np.array([row]))
        if part.names is not None:
            found[name] = part.names[0]
        elif not part.whole:
            first, last = (_values(domain, i)[int(end[0])] for end in (part.low, part.high))
            edges = _edges(domain, i)
            if edges is not None and domain.labels[i] is None:
                found[name] = (edges[int(part.low[0])], edges[int(part.high[0]) + 1])
            else:
                found[name] = first if block.kinds[i] == "values" else (first, last)
    return found


def columns(workload: Workload) -> dict[str, list[Any]]:
    """Return what all queries ask, in columns; `query` alone where only names are known."""
    layout, domain = workload.layout, workload.domain
    if layout is None:
        return {QUERY: workload.names()}
    found: dict[str, list[Any]] = {TABLE: [block.name for block in layout.blocks for _ in range(block.num_queries)]}
    for i in range(domain.num_attributes):
        for name, cells in _attribute(domain, layout, i).items():
            found[_free(name, (QUERY, *NUMBERS, *found))] = cells
    return found


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name of a column, with a line below after it where another column has it."""
    while name in taken:
        name += "_"
    return name


def _attribute(domain: Domain, layout: Layout, i: int) -> dict[str, list[Any]]:
    """Return the columns of one attribute: none if no table speaks of it."""
    kinds = {kind for block in layout.blocks for kind in [_kind(block, i)]}
    name = domain.names[i]
    if kinds <= {"all"}:
        return {}
    parts = [block.part(i, np.arange(block.num_queries)) for block in layout.blocks]
    as_ends = "intervals" in kinds or (domain.bins[i] is not None and domain.labels[i] is None)
    found = {}
    if "groups" in kinds or not as_ends:
        found[name] = _of_one_kind([cell for part in parts for cell in _cells(domain, i, part, values=not as_ends)])
    if as_ends:
        ends = [_ends(domain, i, part) for part in parts]
        found[_LOW.format(name)] = [cell for low, _ in ends for cell in low]
        found[_HIGH.format(name)] = [cell for _, high in ends for cell in high]
    return found


def _kind(block: Block, i: int) -> str:
    """Sort a block: all of an attribute, its values, intervals of it, or groups."""
    kind = block.kinds[i]
    whole = kind == "all" and block.part(i, np.array([0])).whole
    return "all" if whole else kind if kind in ("values", "groups") else "intervals"


def _cells(domain: Domain, i: int, part: Part, *, values: bool) -> list[Any]:
    """Write groups by their names and values, if they are to stand here, as people call them."""
    if part.names is not None:
        return list(part.names)
    if part.whole or not values:
        return [None] * part.low.size
    known = _values(domain, i)
    return [known[v] for v in part.low.tolist()]


def _ends(domain: Domain, i: int, part: Part) -> tuple[list[Any], list[Any]]:
    """Write the first and the last value, or the outer edges of their intervals; None for groups."""
    if part.names is not None:
        return [None] * part.low.size, [None] * part.low.size
    edges = _edges(domain, i)
    if edges is not None:
        return _taken(edges, part.low), _taken(edges[1:], part.high)
    known = _values(domain, i)
    return _taken(known, part.low), _taken(known, part.high)


def _taken(known: list[Any], places: IndexArray) -> list[Any]:
    return [known[v] for v in places.tolist()]


def _of_one_kind(cells: list[Any]) -> list[Any]:
    """Write numbers as text where names of groups stand in the same column: files have one type a column."""
    kinds = {type(cell) for cell in cells if cell is not None}
    return [None if cell is None else str(cell) for cell in cells] if len(kinds) > 1 else cells


def _edges(domain: Domain, i: int) -> list[Any] | None:
    """Edges of the intervals of an attribute, whole numbers where all are; None where there is no limit."""
    edges = domain.bins[i]
    if edges is None:
        return None
    finite = [edge for edge in edges if math.isfinite(edge)]
    whole = all(edge.is_integer() for edge in finite)
    return [None if math.isinf(edge) else int(edge) if whole else edge for edge in edges]


def _values(domain: Domain, i: int) -> list[Any]:
    """What the values of an attribute are called: numbers where that is what their labels are, too."""
    labels = domain.labels[i]
    if labels is None:
        return list(range(domain.sizes[i]))
    numbers = [written_whole(label) for label in labels]
    exact = all(number is not None and str(number) == label for number, label in zip(numbers, labels, strict=True))
    return list(numbers if exact else labels)
