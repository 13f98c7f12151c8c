"""A policy as a picture: cells are dots, pairs that nobody can tell apart are joined."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import EdgeArray, IndexArray, JsonObject, RealMatrix, RealVector
from hdmm_bf.domain import Domain
from hdmm_bf.policy import BOTTOM, Policy, empty
from hdmm_bf.policy.attribute_words import attribute_edges
from hdmm_bf.policy.constructors import from_edges
from hdmm_bf.report.plots import canvas
from hdmm_bf.report.plots.layouts import around_hub, by_springs, on_circle, on_grid, on_path

MOST_CELLS = 150
_MOST_EDGES = 1500
_PATH_CELLS, _GRID_SIDE = 24, 12
"""Cells drawn of a path, and along each side of a grid: more would run into each other."""

_EDGES_LISTED = 2_000_000
_MOST_PANELS = 4
_DENSE_SHARE = 0.6
_LABEL: JsonObject = {
    "fontsize": canvas.SMALL,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
}
_NEAR = 8
_STRAIGHT = 1.5
_PATH_BEND, _GRID_BEND = 0.5, 0.12
_HUB_SHARE = 0.9
_LONGEST_NAME, _LONGEST_LABEL = 16, 12
"""Characters of the name of an attribute, and of a label, that are drawn."""
_MOST_LABELS, _ACROSS = 30, 48
"""Cells up to which labels are drawn; characters that stand side by side under a path."""


class _Drawing(NamedTuple):
    """The cells that are drawn, their places (BOTTOM last), edges between rows of `places`, and names of the cells."""

    cells: IndexArray
    places: RealMatrix
    edges: EdgeArray
    bend: float
    names: tuple[str, ...] | None = None


def policy_graph(policy: Policy) -> canvas.Figure:
    """Draw which cells a policy makes indistinguishable; of large policies a part, and the title says which."""
    with canvas.style():
        question = "Which values cannot be told apart? Joined ones:"
        parts = _parts(policy)
        drawings = [_named(_drawing(part), part) for part in parts[:_MOST_PANELS]]
        columns = min(2, len(drawings))
        rows = -(-len(drawings) // columns)
        height = 3.6 if len(drawings) == 1 else 0.6 + 2.2 * rows
        flat = len(drawings) == 1 and _is_flat(drawings[0])
        figure = canvas.new_figure(question, height=2.0 if flat else height, note=_note(policy, parts, drawings))
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        names = _names(policy, len(parts))
        for number, axis in enumerate(axes):
            axis.set_axis_off()
            if number < len(drawings):
                _draw(axis, drawings[number], 1500.0 if len(drawings) == 1 else 500.0)
                if len(drawings) > 1:
                    shown, cells = drawings[number].cells.size, parts[number].num_cells
                    some = "" if shown == cells else f", {shown} drawn"
                    free = "" if parts[number].num_edges else ", public"
                    axis.set_title(f"{names[number]}: {cells} values{some}{free}", fontsize=canvas.SMALL, pad=12)
        return figure


def _names(policy: Policy, parts: int) -> list[str]:
    """Name what is drawn: attributes by their names where they have some."""
    if parts != policy.domain.num_attributes:
        return [f"part {i + 1}" for i in range(parts)]
    if not policy.domain.has_own_names:
        return [f"attribute {i + 1}" for i in range(parts)]
    return [canvas.shortened(name, _LONGEST_NAME) for name in policy.domain.names]


def _parts(policy: Policy) -> list[Policy]:
    """Return the policies to draw: the whole, or one an attribute where the whole is a product of many.

    Attributes with names of their own are drawn one by one, with their labels.
    """
    own = attribute_edges(policy) if policy.domain.has_own_names and policy.domain.num_attributes > 1 else None
    if own is not None and not policy.has_bottom:
        return [_one(policy.domain.only(i), edges) for i, edges in enumerate(own)]
    flat = policy.domain.num_attributes <= 2 and policy.num_edges <= _EDGES_LISTED
    return [policy] if policy.factors is None or flat else list(policy.factors)


def _one(domain: Domain, edges: EdgeArray) -> Policy:
    return from_edges(edges[:, 0], edges[:, 1], domain) if len(edges) else empty(domain)


def _note(policy: Policy, parts: list[Policy], drawings: list[_Drawing]) -> str:
    if len(drawings) > 1:
        some = f" ({len(drawings)} of {len(parts)} are drawn)" if len(parts) > len(drawings) else ""
        return f"One attribute changes at a time{some}."
    shown = drawings[0].cells.size
    return "" if shown == policy.num_cells else f"A part is drawn: {shown} of {policy.num_cells} cells."


def _drawing(policy: Policy) -> _Drawing:
    """Choose the cells and the layout."""
    edges = policy.edges
    inner = edges[edges[:, 1] != BOTTOM]
    if len(inner) == 0 and len(edges):
        return _arranged(policy, _first(policy, (40,)), "circle")
    if policy.domain.num_attributes == 2 and min(policy.domain.sizes) > 1:
        return _grid(policy)
    whole = 2 < policy.num_cells <= _NEAR + 1 and len(inner) > _DENSE_SHARE * math.comb(policy.num_cells, 2)
    if (
        policy.domain.num_attributes == 1
        and not whole
        and (len(inner) == 0 or np.abs(inner[:, 0] - inner[:, 1]).max() <= _NEAR)
    ):
        return _arranged(policy, _first(policy, (_PATH_CELLS,)), "path")
    cells = _first(policy, (MOST_CELLS, 100, 60, 40, 24), near=True)
    joined = _between(policy, cells)
    if np.bincount(joined.ravel()).max(initial=0) >= _HUB_SHARE * cells.size and len(joined) < 2 * cells.size:
        return _arranged(policy, cells, "hub")
    return _arranged(policy, cells, "circle" if len(joined) > _DENSE_SHARE * math.comb(cells.size, 2) else "springs")


def _named(drawing: _Drawing, policy: Policy) -> _Drawing:
    """Call the cells of one attribute by the labels of its values, where they have some."""
    domain = policy.domain
    if domain.num_attributes > 1 or domain.labels[0] is None:
        return drawing
    return drawing._replace(names=tuple(domain.value_name(0, int(cell)) for cell in drawing.cells))


def _first(policy: Policy, numbers: tuple[int, ...], *, near: bool = False) -> IndexArray:
    """Return the cells to draw: the first ones, or those nearest to cell 0; fewer when they have too many edges."""
    order = np.arange(policy.num_cells)
    if near and policy.num_cells > numbers[-1]:
        order = np.argsort(policy.distances_from(0), kind="stable")
    for number in numbers:
        cells = np.sort(order[:number])
        if len(_between(policy, cells)) <= _MOST_EDGES:
            break
    return cells


def _between(policy: Policy, cells: IndexArray) -> EdgeArray:
    """Return the edges between chosen cells and BOTTOM, by their places in the list; BOTTOM is the last."""
    place = np.full(policy.num_cells + 1, -1)
    place[cells] = np.arange(cells.size)
    place[-1] = cells.size  # BOTTOM is -1
    ends = place[policy.edges]
    return np.asarray(ends[(ends >= 0).all(axis=1)])


def _arranged(policy: Policy, cells: IndexArray, layout: str) -> _Drawing:
    edges = _between(policy, cells)
    if layout == "path":
        return _Drawing(cells, on_path(cells.size), edges, _PATH_BEND)
    if layout == "hub":
        places = around_hub(cells.size, int(np.bincount(edges.ravel()).argmax()))
    else:
        places = on_circle(cells.size) if layout == "circle" else by_springs(cells.size, edges)
    return _Drawing(cells, places, edges, 0.0)


def _grid(policy: Policy) -> _Drawing:
    rows, columns = policy.domain.sizes
    whole = rows * columns <= MOST_CELLS
    height, width = (rows, columns) if whole else (min(rows, _GRID_SIDE), min(columns, _GRID_SIDE))
    cells = (np.arange(height)[:, None] * columns + np.arange(width)).ravel()
    places = on_grid(height, width)
    if height > width:
        places = -places[:, ::-1]  # on its side: the page is wider than high
    return _Drawing(cells, places, _between(policy, cells), _GRID_BEND)


def _is_flat(drawing: _Drawing) -> bool:
    """Whether everything is on one line."""
    return bool(np.ptp(drawing.places[:-1, 1]) == 0) and not np.any(drawing.edges == drawing.cells.size)


def _draw(axis: canvas.Axes, drawing: _Drawing, ink: float) -> None:
    from matplotlib.collections import LineCollection

    places, count = drawing.places, drawing.cells.size
    curves = [_curve(places[u], places[v], drawing.bend if v < count else 0.0) for u, v in drawing.edges]
    strength = 0.75 if len(curves) < 200 else 0.4
    axis.add_collection(LineCollection(curves, colors=canvas.BLUE, linewidths=0.9, alpha=strength, zorder=1))
    size = float(np.clip(ink / count, 9, 90))
    axis.scatter(places[:-1, 0], places[:-1, 1], s=size, color="black", zorder=2)
    if np.any(drawing.edges == count):
        axis.scatter(places[-1, 0], places[-1, 1], s=110, marker="s", color=canvas.VERMILION, zorder=3)
        axis.annotate("no record", places[-1], (0, -9), textcoords="offset points", ha="center", va="top", **_LABEL)
    if drawing.bend > _PATH_BEND / 2:
        _number(axis, drawing)
    else:
        axis.set_aspect("equal")
        _label(axis, drawing)
    axis.margins(0.06, 0.06)
    axis.autoscale_view()
    if drawing.bend > _PATH_BEND / 2 and not np.any(drawing.edges == count):
        axis.set_ylim(-1.2, max(1.2, 1.1 * axis.get_ylim()[1]))


def _number(axis: canvas.Axes, drawing: _Drawing) -> None:
    """Write the numbers of some cells under a path, or their labels, as many as stand side by side."""
    step = 1 if drawing.cells.size <= _PATH_CELLS / 2 else 5
    written = list(map(str, drawing.cells)) if drawing.names is None else list(drawing.names)
    longest = max(min(len(name), _LONGEST_LABEL) for name in written)
    if drawing.names is not None:
        step = max(step, -(-drawing.cells.size * (longest + 1) // _ACROSS))
    for name, place in zip(written[::step], drawing.places[:-1:step], strict=True):
        label = canvas.shortened(name, _LONGEST_LABEL)
        axis.annotate(label, place, (0, -9), textcoords="offset points", ha="center", va="top", fontsize=canvas.SMALL)


def _label(axis: canvas.Axes, drawing: _Drawing) -> None:
    """Write labels beside cells that have some, where there are not too many."""
    if drawing.names is None or drawing.cells.size > _MOST_LABELS:
        return
    for name, place in zip(drawing.names, drawing.places[:-1], strict=True):
        label = canvas.shortened(name, _LONGEST_LABEL)
        axis.annotate(label, place, (0, 5), textcoords="offset points", ha="center", va="bottom", **_LABEL)


def _curve(start: RealVector, end: RealVector, bend: float) -> RealMatrix:
    """Return a straight line between neighbours, and an arc that rises with the distance between others."""
    apart = end - start
    length = math.hypot(*apart)
    if bend == 0 or length <= _STRAIGHT:
        return np.stack([start, end])
    t = np.linspace(0, 1, 13)[:, None]
    side = np.array([-apart[1], apart[0]]) * bend
    if side[1] < 0 or (side[1] == 0 and side[0] < 0):
        side = -side
    return np.asarray(start + t * apart + 4 * t * (1 - t) * side)
