"""Queries in columns: one row a query, one column an attribute, or two where intervals of it are asked for.

What a cell holds is what people call the value: its label, a number where labels are whole numbers or there are none,
and the edges of its interval where values are intervals. Cells of an attribute that a table sums over are empty.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hdmm_bf._checks import written_whole
from hdmm_bf._types import IndexArray
from hdmm_bf.domain import Domain
from hdmm_bf.workload.layout import Block, Layout, Part

if TYPE_CHECKING:
    from hdmm_bf.workload.queries import Workload

T = TypeVar("T")

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
    tables = [block.name for block in layout.blocks for _ in range(block.num_queries)]
    return {TABLE: tables, **_apart([_attribute(domain, layout, i) for i in range(domain.num_attributes)])}


def column_words(workload: Workload) -> dict[str, str]:
    """Return of every column of an attribute what stands in it, and what it says where nothing does."""
    layout, domain = workload.layout, workload.domain
    return {} if layout is None else _apart([_words(domain, layout, i) for i in range(domain.num_attributes)])


def _apart(attributes: Sequence[Mapping[str, T]]) -> dict[str, T]:
    """Put the columns of all attributes together, under names that differ."""
    found: dict[str, T] = {}
    for own in attributes:
        for name, column in own.items():
            found[_free(name, (TABLE, QUERY, *NUMBERS, *found))] = column
    return found


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name of a column, with a line below after it where another column has it."""
    while name in taken:
        name += "_"
    return name


def _attribute(domain: Domain, layout: Layout, i: int) -> dict[str, list[Any]]:
    """Return the columns of one attribute: none if no table speaks of it."""
    name, as_values, as_ends = domain.names[i], *_forms(domain, layout, i)
    parts = [block.part(i, np.arange(block.num_queries)) for block in layout.blocks] if as_values or as_ends else []
    found = {}
    if as_values:
        found[name] = _of_one_kind([cell for part in parts for cell in _cells(domain, i, part, values=not as_ends)])
    if as_ends:
        ends = [_ends(domain, i, part) for part in parts]
        found[_LOW.format(name)] = [cell for low, _ in ends for cell in low]
        found[_HIGH.format(name)] = [cell for _, high in ends for cell in high]
    return found


def _forms(domain: Domain, layout: Layout, i: int) -> tuple[bool, bool]:
    """Whether an attribute has a column of its name, for values or groups, and whether it has two for ends."""
    kinds = {_kind(block, i) for block in layout.blocks}
    if kinds <= {"all"}:
        return False, False
    as_ends = "intervals" in kinds or (domain.bins[i] is not None and domain.labels[i] is None)
    return "groups" in kinds or not as_ends, as_ends


def _words(domain: Domain, layout: Layout, i: int) -> dict[str, str]:
    """Describe the columns of one attribute: `first value of age, in years; empty: all of age`."""
    name, unit, edges = domain.names[i], domain.units[i], _edges(domain, i)
    as_values, as_ends = _forms(domain, layout, i)
    told = name if unit is None else f"{name}, in {unit}"
    summed = [f"all of {name}"] if any(_kind(block, i) == "all" for block in layout.blocks) else []
    grouped = ["a group"] if as_values and as_ends else []
    found = {}
    if as_values:
        found[name] = f"group of {name}{_empty(['no group'])}" if as_ends else told + _empty(summed)
    if as_ends:
        kinds = ("first value", "last value") if edges is None else ("lower edge", "upper edge")
        for form, kind, end in zip((_LOW, _HIGH), kinds, (0, -1), strict=True):
            unlimited = ["no limit"] if edges is not None and edges[end] is None else []
            found[form.format(name)] = f"{kind} of {told}" + _empty([*summed, *grouped, *unlimited])
    return found


def _empty(meanings: Sequence[str]) -> str:
    """Say what an empty cell means, if there are any."""
    return f"; empty: {' or '.join(meanings)}" if meanings else ""


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
    """Write the first and the last value, or the outer edges of their intervals; None for groups and sums over all."""
    if part.names is not None or part.whole:
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
