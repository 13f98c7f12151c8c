"""The published tables by name: how exact each is, and its numbers where a release is given; districts on their map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hdmm_bf._checks import fail, readable_file
from hdmm_bf._display import facts_table, text
from hdmm_bf._types import RealVector
from hdmm_bf.domain import Domain
from hdmm_bf.fit import Fit
from hdmm_bf.fit.worst import deviations
from hdmm_bf.policy.attribute_words import attribute_edges
from hdmm_bf.policy.contiguity import Ring
from hdmm_bf.policy.files import read_outlines
from hdmm_bf.release.plan import plan
from hdmm_bf.report import plots
from hdmm_bf.report.comparison import example_privacy
from hdmm_bf.report.page import Section, paragraph, picture
from hdmm_bf.report.plots.worst import MOST_LOOKED_AT
from hdmm_bf.report.released import Released
from hdmm_bf.workload.layout import Block, TableBlock

_MOST_ROWS = 30
"""Rows of a published table that the page shows."""


class Map(NamedTuple):
    """Outlines of the values of one attribute.

    Attributes:
        attribute: its number.
        outlines: for every value its rings.
    """

    attribute: int
    outlines: list[list[Ring]]


def read_map(path: str, domain: Domain) -> Map:
    """Read a map for the attribute whose labels its districts have; the only one where there is one alone."""
    readable_file("report", path, missing="Check the path of the map.")
    labelled = [i for i in range(domain.num_attributes) if domain.labels[i] is not None]
    refusals = []
    for i in labelled or ([0] if domain.num_attributes == 1 else []):
        try:
            return Map(i, read_outlines(path, domain.only(i)))
        except ValueError as refused:
            refusals.append(refused)
    if len(refusals) == 1:
        raise refusals[0]
    advice = "Give a map whose districts are called by the labels of one attribute."
    raise fail("report", f"map {path!r}", "no attribute has its districts for labels", advice)


def errors(fit: Fit) -> Section | None:
    """Say how exact every table is; none where the queries are no tables of named attributes."""
    workload = fit.problem.workload
    if workload.layout is None or not workload.domain.has_own_names or workload.num_queries > MOST_LOOKED_AT:
        return None
    privacy = example_privacy(fit)
    stddev = deviations(plan(fit, **privacy))
    head = ("table", "counts", "rmse", "largest stddev", "wanted at most")
    rows = []
    for block, part in _split(fit, stddev):
        wanted = "-" if block.stddev is None else f"{block.stddev:g}"
        rows.append((block.name, str(part.size), f"{math.sqrt(np.mean(part**2)):.4g}", f"{part.max():.4g}", wanted))
    at = "epsilon 1, delta 1e-6" if "delta" in privacy else "epsilon 1"
    body = _table(head, rows, numbers=4) + paragraph(f"In records, at {at}.", "soft")
    return Section("tables", "What is published", body)


def _split(fit: Fit, values: RealVector) -> list[tuple[Block, RealVector]]:
    layout = fit.problem.workload.layout
    assert layout is not None
    return list(zip(layout.blocks, np.split(values, layout.ends[:-1]), strict=True))


def release(fit: Fit, released: Released) -> Section:
    """Show the published numbers, table by table, and what was promised with them."""
    said = {key: value for key, value in released.notes.items() if key in ("privacy", "interval", "noise", "made by")}
    known = facts_table(list(said.items())) if said else paragraph("The file says nothing of the promise.")
    return Section("release", "The release", known + "".join(_shown(fit, released)))


def _shown(fit: Fit, released: Released) -> list[str]:
    workload, numbers = fit.problem.workload, released.numbers
    named = workload.domain.has_own_names and workload.layout is not None
    columns: dict[str, list[Any]] = dict(workload.columns()) if named else {"query": workload.names()}
    tables = columns.pop("table", ["answers"] * workload.num_queries)
    parts = []
    for name in dict.fromkeys(tables):
        rows = [i for i, table in enumerate(tables) if table == name]
        own = _values({key: [cells[i] for i in rows] for key, cells in columns.items()})
        shown = _intervals({key: values[rows[:_MOST_ROWS]] for key, values in numbers.items()})
        lines = list(zip(*(cells[:_MOST_ROWS] for cells in own.values()), *shown.values(), strict=True))
        more = len(rows) - len(lines)
        rest = paragraph(f"{more} more rows are in the file.", "soft") if more > 0 else ""
        parts.append(f"<h3>{text(name)}</h3>" + _table((*own, *shown), lines, numbers=len(shown)) + rest)
    return parts


def _values(columns: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Return one column an attribute of a table: values, groups, or intervals, those of one value as that value."""
    told = {key: cells for key, cells in columns.items() if any(cell is not None for cell in cells)}
    found = {}
    for key, cells in told.items():
        name = key[: -len("_lo")]
        if key.endswith("_lo") and f"{name}_hi" in columns:
            pairs = zip(cells, columns[f"{name}_hi"], strict=True)
            found[name] = [_interval(first, last) for first, last in pairs]
        elif key.endswith("_hi") and f"{name}_lo" in columns:
            found.setdefault(name, [_interval(None, last) for last in cells])
        else:
            found[key] = ["all" if cell is None else str(cell) for cell in cells]
    return found


def _interval(first: Any, last: Any) -> str:
    """Write an interval; an end that is missing is where there is no limit, and both where all is counted."""
    if first is None or last is None:
        return "all" if first is last else f"below {last}" if first is None else f"{first} or more"
    return str(first) if first == last else f"{first} to {last}"


def _intervals(numbers: dict[str, RealVector]) -> dict[str, list[str]]:
    """Write numbers, with the two ends of an interval in one column."""
    shown = {key: [f"{value:,.1f}" for value in values] for key, values in numbers.items()}
    for low, high, name in (("low", "high", "low to high"), ("processed_low", "processed_high", "its low to high")):
        if low in shown and high in shown:
            ends = zip(shown.pop(low), shown.pop(high), strict=True)
            shown[name] = [f"{a} to {b}" for a, b in ends]
    order = ("estimate", "stddev", "low to high", "processed", "its low to high")
    return {key: shown[key] for key in order if key in shown}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> str:
    """Lay out rows whose last columns are numbers."""
    first = len(head) - numbers
    top = "".join(f'<th scope="col"{" class=number" if i >= first else ""}>{text(w)}</th>' for i, w in enumerate(head))
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=number' if i >= first else ''}>{text(cell)}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def on_map(fit: Fit, drawn: Map, released: Released | None) -> Section:
    """Draw the districts: the policy on them, and the published counts, or else their errors, as colours."""
    domain = fit.problem.policy.domain
    names = [domain.value_name(drawn.attribute, i) for i in range(domain.sizes[drawn.attribute])]
    parts = [_policy_map(fit, drawn, names), _value_map(fit, drawn, names, released)]
    body = "".join(parts) or paragraph("Neither the policy nor any table is about the districts alone.")
    return Section("map", "On the map", body)


def _policy_map(fit: Fit, drawn: Map, names: list[str]) -> str:
    """Draw which districts are hidden from each other, whatever the other attributes are."""
    found = attribute_edges(fit.problem.policy)
    edges = None if found is None else found[drawn.attribute]
    if edges is None or not len(edges):
        return ""
    question = "Which districts look alike? Joined ones:"
    figure = plots.district_map(drawn.outlines, names, question=question, edges=edges)
    alternative = f"Map of {len(names)} districts; lines join {len(edges)} pairs that nobody can tell apart."
    return picture(plots.as_svg(figure, name="map"), alternative, alternative)


def _value_map(fit: Fit, drawn: Map, names: list[str], released: Released | None) -> str:
    """Colour districts by the published count of each, or by the standard deviation that it will have."""
    block_values = _district_table(fit, drawn.attribute, released)
    if block_values is None:
        return ""
    block, values = block_values
    if released is None:
        question, unit = "How exact is each district?", "standard deviation (records), at epsilon 1"
    else:
        question, unit = "How many records has each district?", "published count (records)"
    figure = plots.district_map(drawn.outlines, names, question=question, values=values, unit=unit)
    alternative = f"Map of table {block.name}: {unit}, from {np.min(values):.4g} to {np.max(values):.4g}."
    return picture(plots.as_svg(figure, name="values"), alternative, alternative)


def _district_table(fit: Fit, attribute: int, released: Released | None) -> tuple[Block, RealVector] | None:
    """Return the first table that has every value of the attribute and sums over all others, and its numbers."""
    layout = fit.problem.workload.layout
    if layout is None or fit.problem.workload.num_queries > MOST_LOOKED_AT:
        return None
    values = released.numbers["estimate"] if released else deviations(plan(fit, **example_privacy(fit)))
    for block, part in _split(fit, values):
        if isinstance(block, TableBlock) and all(
            axis.kind == ("values" if i == attribute else "all") and axis.chosen is None
            for i, axis in enumerate(block.axes)
        ):
            return block, part
    return None
