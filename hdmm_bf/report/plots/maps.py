"""Districts on their map: coloured by a number each, or joined where the policy hides which of two a record is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hdmm_bf._types import EdgeArray, RealMatrix, RealVector
from hdmm_bf.policy.contiguity import Ring
from hdmm_bf.report.plots import canvas

if TYPE_CHECKING:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Outline

_MOST_LABELS, _LONGEST_LABEL = 30, 12
_LINE = 8
"""Letters of a name that stand in one line."""
_MOST_EDGES = 1500
_PLAIN = "#f3f5f7"
"""The ground of districts without a number."""

_LUMA = np.array([0.299, 0.587, 0.114])


def district_map(
    outlines: Sequence[Sequence[Ring]],
    names: Sequence[str],
    *,
    question: str,
    values: RealVector | None = None,
    unit: str = "",
    edges: EdgeArray | None = None,
) -> canvas.Figure:
    """Draw districts, coloured by their values or joined by the edges of a policy.

    Args:
        outlines: for every district its rings; none for a district that is not on the map.
        names: what the districts are called.
        question: the title.
        values: a number for every district, for the colours; NaN for none.
        unit: what the numbers are.
        edges: pairs of districts, drawn as lines between their middles.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.collections import PathCollection as Shapes

    with canvas.style():
        drawn = [i for i, rings in enumerate(outlines) if rings]
        below = 1.5 if values is not None else 0.7
        figure = canvas.new_figure(question, height=below + canvas.WIDTH * _shape([outlines[i] for i in drawn]))
        axis = figure.subplots()
        paths = [_path(outlines[i]) for i in drawn]
        shapes = Shapes(paths, facecolor=_PLAIN, edgecolor="#808080", linewidth=0.7)
        axis.add_collection(shapes)
        if values is not None:
            shapes.set_array(np.ma.masked_invalid(np.asarray(values)[drawn]))
            shapes.set_cmap("YlGnBu")
            figure.colorbar(shapes, ax=axis, shrink=0.8, orientation="horizontal").set_label(
                unit, fontsize=canvas.SMALL
            )
        middles = np.array([_middle(outlines[i]) for i in drawn]).reshape(-1, 2)
        if edges is not None:
            lines = _lines(edges, drawn, middles)
            axis.add_collection(LineCollection(lines, colors=canvas.BLUE, linewidths=1.2, alpha=0.8))
            axis.scatter(middles[:, 0], middles[:, 1], s=12, color="black", zorder=3)
        _label(axis, [names[i] for i in drawn], middles, _is_dark(shapes, len(drawn)), over_lines=edges is not None)
        axis.set_axis_off()
        axis.set_aspect("equal")
        axis.autoscale_view()
        return figure


def _shape(outlines: Sequence[Sequence[Ring]]) -> float:
    """Return height over width of a map, between a third and one and a half."""
    corners = np.array([point for rings in outlines for ring in rings for point in ring]).reshape(-1, 2)
    width, height = np.ptp(corners, axis=0) if len(corners) else (1.0, 1.0)
    return float(np.clip(height / width if width > 0 else 1.5, 1 / 3, 1.5))


def _path(rings: Sequence[Ring]) -> Outline:
    from matplotlib.path import Path as Made

    points = [point for ring in rings for point in ring]
    codes = [Made.MOVETO if k == 0 else Made.LINETO for ring in rings for k in range(len(ring))]
    return Made(points, codes)


def _middle(rings: Sequence[Ring]) -> RealVector:
    """Return the centre of the largest ring by area; the mean of its corners where it has no area."""
    found = max((np.asarray(ring) for ring in rings), key=lambda ring: abs(_area(ring)))
    area = _area(found)
    if area == 0:
        return np.asarray(found.mean(axis=0))
    x, y = (found - found[0]).T
    cross = x * np.roll(y, -1) - np.roll(x, -1) * y
    centre = np.array([np.sum((x + np.roll(x, -1)) * cross), np.sum((y + np.roll(y, -1)) * cross)]) / (6 * area)
    return np.asarray(found[0] + centre)


def _area(ring: RealMatrix) -> float:
    """Return the area of a ring with its sign (the shoelace formula)."""
    x, y = (ring - ring[0]).T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))


def _lines(edges: EdgeArray, drawn: Sequence[int], middles: RealMatrix) -> list[RealMatrix]:
    place = {district: k for k, district in enumerate(drawn)}
    known = [(place[u], place[v]) for u, v in edges.tolist() if u in place and v in place]
    return [middles[list(pair)] for pair in known[:_MOST_EDGES]]


def _is_dark(shapes: PathCollection, count: int) -> list[bool]:
    """Whether the colour of every district asks for white letters: its luma is below one half."""
    shapes.update_scalarmappable()
    colours = np.broadcast_to(np.asarray(shapes.get_facecolor())[:, :3], (count, 3))
    return [bool(dark) for dark in colours @ _LUMA < 0.5]


def _label(
    axis: canvas.Axes, names: Sequence[str], middles: RealMatrix, dark: Sequence[bool], *, over_lines: bool
) -> None:
    """Write names in the districts, in two lines if long, above the middle; on a plain ground over lines."""
    if len(names) > _MOST_LABELS:
        return
    from matplotlib.patheffects import withStroke

    for name, place, inverse in zip(names, middles, dark, strict=True):
        colour, halo = ("white", []) if inverse else ("black", [withStroke(linewidth=2, foreground="white")])
        label = _in_lines(canvas.shortened(name, _LONGEST_LABEL))
        style: dict[str, Any] = {
            "ha": "center",
            "fontsize": canvas.SMALL,
            "color": colour,
            "path_effects": halo,
            "zorder": 4,
        }
        if over_lines:
            style["bbox"] = {"boxstyle": "square,pad=0.1", "facecolor": _PLAIN, "edgecolor": "none"}
        axis.annotate(label, place, (0, 4), textcoords="offset points", va="bottom", linespacing=1.0, **style)


def _in_lines(label: str) -> str:
    """Break a name of more letters than a line takes at its last space."""
    return label if len(label) <= _LINE else "\n".join(label.rsplit(" ", 1))
