"""The tree of a tree norm as a picture: its sets as bars over their cells, small sets below, heavy ones dark.

Cells are in the order of a walk through the tree, which is their own wherever all sets are intervals, so every set is
one bar. Sets of like size share a band: 1, 2, 3-4, 5-8, ... cells. Sets of a band that overlap, as the prefixes of a
chain do, lie above each other inside it; where they are many they run into one another and the colour of the band is
what can be read: how much of the norm sets of that size are, and where they end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hdmm_bf._types import AnyArray, IndexArray
from hdmm_bf.domain import Domain
from hdmm_bf.report.plots import canvas
from hdmm_bf.strategies.records import TreeNorm

_MOST_SHAPES = 600
"""Bars that are drawn as shapes; more become one image."""

_GAP = 0.3
"""Of a cell, between bars, where that can be seen."""

_WIDE_CELLS = 160
"""Cells up to which it can."""

_LAYERED = 0.4
"""By which a band with twice as many layers is thicker, over a band with one."""

_TALLEST = 5.4
"""Inches."""

_MOST_TICKS, _LONGEST_LABEL = 8, 14


class Bars(NamedTuple):
    """Where every set is drawn.

    Attributes:
        begin, size: its first place in the walk, and its number of cells.
        bottom, height: in bands, the lowest of which begins at 0.
        edges: the lower end of every band, and the upper end of the last.
        names: the sizes of sets of every band.
    """

    begin: IndexArray
    size: IndexArray
    bottom: AnyArray
    height: AnyArray
    edges: AnyArray
    names: list[str]


def tree_bars(strategy: TreeNorm, domain: Domain, *, part: str = "") -> canvas.Figure:
    """Draw the sets of a tree norm that have a weight; `part` says which moves it hides, where these are of others."""
    shown = np.flatnonzero(strategy.integers > 0)
    begin, size = walk(strategy)
    bars = banded(begin[shown], size[shown])
    what, pays = ("values", "over its value") if part else ("cells", "it leaves or enters")
    note = f"{shown.size} sets of {what} with a weight, one a bar; a record\nthat moves pays for every bar {pays}"
    height = min(_TALLEST, 2.0 + 0.27 * float(bars.edges[-1]))
    title = f"Which {what} does the noise{part} tie together, how strongly?"
    figure = canvas.new_figure(title, height=height, note=note)
    axis = figure.subplots()
    weights = strategy.weights[shown] / strategy.weights.max()
    drawn = _draw(axis, bars, weights, strategy.num_cells)
    _name_cells(axis, domain, begin[: strategy.num_cells])
    _colours(figure, axis, drawn)
    return figure


def walk(strategy: TreeNorm) -> tuple[IndexArray, IndexArray]:
    """Return the first place of every set in a walk through the trees, children by their first cell, and its size."""
    n, parents = strategy.num_cells, strategy.parents
    size, first = np.zeros(parents.size, dtype=np.int64), np.full(parents.size, n)
    size[:n], first[:n] = 1, np.arange(n)
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            size[parent] += size[node]
            first[parent] = min(first[parent], first[node])
    begin = np.zeros(parents.size, dtype=np.int64)
    taken = np.zeros(parents.size + 1, dtype=np.int64)  # the last entry is above all roots
    ranked = np.lexsort((first, _depths(parents)))  # parents first, then from left to right
    for node in ranked.tolist():
        above = int(parents[node])
        begin[node] = taken[node] = taken[above]
        taken[above] += size[node]
    return begin, size


def _depths(parents: IndexArray) -> IndexArray:
    depth = np.zeros(parents.size, dtype=np.int64)
    for node in range(parents.size - 1, -1, -1):
        depth[node] = depth[parents[node]] + 1 if parents[node] >= 0 else 0
    return depth


def banded(begin: IndexArray, size: IndexArray) -> Bars:
    """Put sets into bands by their size, and those that overlap above each other, the larger ones higher."""
    band = np.ceil(np.log2(size)).astype(np.int64)
    bottom, height = np.zeros(size.size), np.ones(size.size)
    edges, names = [0.0], []
    for own in np.unique(band).tolist():
        members = np.flatnonzero(band == own)
        layer = _layers(begin[members], size[members])
        count = int(layer.max()) + 1
        thick = 1 + _LAYERED * np.log2(count)
        bottom[members], height[members] = edges[-1] + layer * thick / count, thick / count
        edges.append(edges[-1] + thick)
        names.append(_sizes(int(size[members].min()), int(size[members].max())))
    return Bars(begin, size, bottom, height, np.array(edges), names)


def _layers(begin: IndexArray, size: IndexArray) -> IndexArray:
    """Return for nested or disjoint sets how many of the others each one holds at most above each other."""
    top = np.zeros(int((begin + size).max()), dtype=np.int64)
    layer = np.zeros(size.size, dtype=np.int64)
    for k in np.argsort(size, kind="stable").tolist():
        own = slice(int(begin[k]), int(begin[k] + size[k]))
        layer[k] = top[own].max()
        top[own] = layer[k] + 1
    return layer


def _sizes(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}–{high}"


def _draw(axis: Any, bars: Bars, weights: AnyArray, cells: int) -> Any:
    from matplotlib.collections import PolyCollection

    gap = _GAP if cells <= _WIDE_CELLS else 0.0
    left, right = bars.begin - 0.5 + gap / 2, bars.begin + bars.size - 0.5 - gap / 2
    room = np.where(bars.height > 0.15, 0.1 * np.minimum(bars.height, 1.0), 0.0)
    low, high = bars.bottom + room, bars.bottom + bars.height - room
    corners = np.stack([np.stack([left, right, right, left], 1), np.stack([low, low, high, high], 1)], 2)
    drawn = PolyCollection(list(corners), array=np.sqrt(weights), cmap="Purples", clim=(-0.15, 1), lw=0)
    drawn.set_rasterized(len(corners) > _MOST_SHAPES)
    axis.add_collection(drawn)
    axis.set_xlim(-0.7, cells - 0.3)
    axis.set_ylim(0, float(bars.edges[-1]))
    axis.hlines(bars.edges[1:-1], -0.7, cells - 0.3, color=canvas.GREY, lw=0.3)
    axis.set_yticks((bars.edges[:-1] + bars.edges[1:]) / 2, bars.names, fontsize=canvas.SMALL)
    axis.tick_params(axis="y", length=0)
    axis.set_ylabel("cells in the set")
    return drawn


def _name_cells(axis: Any, domain: Domain, place: IndexArray) -> None:
    """Name some cells, by their labels where they have some; say so where the walk has another order than the cells."""
    n, own = place.size, bool(np.array_equal(place, np.arange(place.size)))
    cell_at = np.argsort(place)
    places = np.unique(np.linspace(0, n - 1, min(n, _MOST_TICKS)).round().astype(np.int64))
    named = any(labels is not None for labels in domain.labels)
    names = [_cell_name(domain, int(cell), named) for cell in cell_at[places]]
    turned = max(map(len, names)) > 5
    axis.set_xticks(
        places, names, fontsize=canvas.SMALL, rotation=35 if turned else 0, ha="right" if turned else "center"
    )
    axis.set_xlabel("cell" if own else "cell, in the order of the tree")


def _cell_name(domain: Domain, cell: int, named: bool) -> str:
    if not named:
        return f"{cell}"
    values = domain.unravel(cell)
    words = ", ".join(domain.value_name(k, int(value)) for k, value in enumerate(values))
    return canvas.plain(words if len(words) <= _LONGEST_LABEL else words[: _LONGEST_LABEL - 1] + "…")


def _colours(figure: Any, axis: Any, drawn: Any) -> None:
    bar = figure.colorbar(drawn, ax=axis, shrink=0.8)
    bar.set_label("weight (largest = 1)", fontsize=canvas.SMALL)
    ticks = np.array([0.0, 0.05, 0.25, 0.5, 1.0])
    bar.set_ticks(list(np.sqrt(ticks)), labels=[f"{t:g}" for t in ticks])
    bar.ax.set_ylim(0, 1)
