"""Releases as tables: one row a query with what it asks and its numbers, or a wide table of two attributes and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hdmm_bf._checks import fail, nearest
from hdmm_bf.release import intervals
from hdmm_bf.release.simultaneous import method as how
from hdmm_bf.release.simultaneous import simultaneous_widths
from hdmm_bf.workload import Workload
from hdmm_bf.workload.columns import NUMBERS, TABLE

if TYPE_CHECKING:
    from hdmm_bf.release.release import Release

LEVEL = 0.95
"""Coverage of intervals where none is said."""


def numbers(
    out: Release, level: float, queries: Workload | None = None, simultaneous: bool = False
) -> tuple[dict[str, Any], str]:
    """Return estimate, stddev, low and high of every query, and how the intervals were made."""
    intervals.check_level(level)
    if simultaneous:
        asked = out.problem.workload if queries is None else queries
        answers, stddev = (out.answers, out.stddev) if queries is None else out.answer(queries)
        width = simultaneous_widths(out.recovery, asked, out.plan, level)
        found, method = (answers, stddev, answers - width, answers + width), how(out.recovery, asked.num_queries, level)
    elif queries is None:
        low, high = out.interval(level)
        found, method = (out.answers, out.stddev, low, high), out.interval_method()
    else:
        answers, stddev = out.answer(queries)
        width, method = out.recovery.half_widths_of(queries, out.plan, level)
        found = (answers, stddev, answers - width, answers + width)
    return dict(zip(NUMBERS, found, strict=False)), method


def long_columns(
    out: Release, level: float, queries: Workload | None = None, simultaneous: bool = False
) -> dict[str, Any]:
    """Return what every query asks, and its numbers."""
    asked = out.problem.workload if queries is None else queries
    return {**asked.columns(), **{k: v.tolist() for k, v in numbers(out, level, queries, simultaneous)[0].items()}}


def wide_columns(
    out: Release, asked: Workload, attributes: tuple[str, ...], value: str, level: float
) -> dict[str, Any]:
    """Return a table with one row for each combination of all attributes but the last, and one column a value of that.

    A table of one attribute has its numbers side by side instead.
    """
    if value not in NUMBERS[:4]:
        raise fail("release.table", f"value={value!r}", "is no number of a table", nearest(value, NUMBERS[:4]))
    domain = asked.domain
    found, _ = numbers(out, level, asked)
    said = asked.columns()
    del said[TABLE]
    if len(attributes) < 2:
        return {**said, **{k: v.tolist() for k, v in found.items()}}
    assert asked.layout is not None
    (block,) = asked.layout.blocks
    last = domain.attribute(attributes[-1])
    order = [domain.attribute(name) for name in attributes]
    counts = [block.counts[i] for i in range(domain.num_attributes)]  # type: ignore[union-attr]
    places = np.arange(asked.num_queries).reshape(counts)
    kept = np.moveaxis(places, order, range(len(order))).reshape(-1, counts[last])
    first = kept[:, 0]
    rows = {name: [cells[i] for i in first.tolist()] for name, cells in said.items() if not _of(name, attributes[-1])}
    part = block.part(last, kept[0])
    ends = zip(part.low.tolist(), part.high.tolist(), strict=True)
    names = part.names or tuple(domain.interval_name(last, low, high) for low, high in ends)
    return {**rows, **{name: found[value][kept[:, j]].tolist() for j, name in enumerate(_apart(names, rows))}}


def _of(column: str, attribute: str) -> bool:
    """Whether a column is one of an attribute's."""
    return column.rstrip("_") in (attribute, f"{attribute}_lo", f"{attribute}_hi")


def _apart(names: tuple[str, ...], taken: dict[str, Any]) -> list[str]:
    """Return names of columns that no other column has."""
    found: list[str] = []
    for name in names:
        while name in taken or name in found:
            name += "_"
        found.append(name)
    return found
