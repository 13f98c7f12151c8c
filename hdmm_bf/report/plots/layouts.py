"""Where the cells of a policy are drawn: on a path, a grid, a circle, or pulled together by their edges.

Positions are rows (x, y); BOTTOM, where the policy has it, is the last row.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._types import EdgeArray, RealMatrix

_ROUNDS = 250
_FIRST_STEP = 0.15
_GRAVITY = 0.3


def on_path(cells: int) -> RealMatrix:
    """Place cells from left to right, and BOTTOM under their middle."""
    across = np.arange(cells, dtype=np.float64)
    bottom = [[(cells - 1) / 2, -4.0]]
    return np.concatenate([np.stack([across, np.zeros(cells)], axis=1), bottom])


def on_grid(rows: int, columns: int) -> RealMatrix:
    """Place the cells of two attributes as a table, the first row on top, and BOTTOM to its right."""
    i, j = np.divmod(np.arange(rows * columns), columns)
    bottom = [[columns + 1.0, -(rows - 1) / 2]]
    return np.concatenate([np.stack([j.astype(np.float64), -i.astype(np.float64)], axis=1), bottom])


def on_circle(cells: int) -> RealMatrix:
    """Place cells clockwise from the top, and BOTTOM in the centre."""
    angle = 2 * math.pi * np.arange(cells) / cells
    ring = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return np.concatenate([ring, np.zeros((1, 2))])


def around_hub(cells: int, hub: int) -> RealMatrix:
    """Place one vertex (a cell, or BOTTOM) in the centre and the cells around it."""
    places = on_circle(cells)
    if hub < cells:
        places = np.insert(on_circle(cells - 1), hub, 0.0, axis=0)
    return places


def by_springs(cells: int, edges: EdgeArray) -> RealMatrix:
    """Let edges pull and cells push each other, from a circle, with smaller and smaller steps (Fruchterman, Reingold).

    Args:
        cells: number of cells; BOTTOM is the vertex after them.
        edges: both ends of every edge as vertex numbers.
    """
    place = on_circle(cells)
    place[-1] += 0.01  # exactly in the centre, BOTTOM would be pushed from all sides alike
    wanted = 1 / math.sqrt(cells + 1)
    for round_number in range(_ROUNDS):
        apart = place[:, None] - place[None]
        distance = np.maximum(np.sqrt((apart**2).sum(axis=2)), 0.01 * wanted)
        force = (apart * (wanted / distance)[:, :, None] ** 2).sum(axis=1) - _GRAVITY * place
        pull = (place[edges[:, 0]] - place[edges[:, 1]]) * (distance[edges[:, 0], edges[:, 1]] / wanted)[:, None]
        np.add.at(force, edges[:, 0], -pull)
        np.add.at(force, edges[:, 1], pull)
        length = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-12)
        place = place + force / length * np.minimum(length, _FIRST_STEP * (1 - round_number / _ROUNDS))
    return np.asarray(place)
