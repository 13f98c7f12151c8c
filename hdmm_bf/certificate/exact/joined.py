"""Sensitivity of blocks that join attributes, in whole numbers: over every edge of the attributes that are hidden."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hdmm_bf._types import AnyArray, EdgeArray
from hdmm_bf.policy import BOTTOM
from hdmm_bf.strategies.records import JoinedBlock

_LARGEST = 2.0**61
"""Twice sums of sizes along a column must stay below: they are exact in 64 bits."""

_PORTION = 2**22
"""Numbers that are looked at together."""


def fits_in_words(block: JoinedBlock) -> bool:
    """Whether the loss of every edge is exact in 64 bits; sums in floating point are off by far less than a half."""
    sizes = block.weights.astype(np.float64)
    for layer in block.layers:
        sizes = sizes + np.abs(layer.rows.astype(np.float64)).sum(axis=0)
    return 2 * float(sizes.max()) < _LARGEST


def joined_sensitivity(sizes: Sequence[int], edges: Sequence[EdgeArray], block: JoinedBlock) -> int:
    """Return the largest of w_u + w_v + sum_lk |T_lku - T_lkv| over the moves from u to v, times 2^bits.

    A move goes along an edge of a hidden attribute at any value of the others; towards BOTTOM there is no v. Along an
    attribute outside the block it stays at one of the values that rows are over: a layer that keeps the attribute is
    changed twice, one that sums over it only when the record comes or goes.
    """
    assert fits_in_words(block), "sums must be exact in 64 bits"
    assert math.prod(sizes[i] for i in block.axes) == block.weights.size, "one weight for every value"
    inside = [_along(sizes, edges, block, i) for i in block.hides if i in block.axes]
    return max([*inside, *(_across(edges[i], block, i) for i in block.hides if i not in block.axes)], default=0)


def _along(sizes: Sequence[int], edges: Sequence[EdgeArray], block: JoinedBlock, attribute: int) -> int:
    """The largest loss along one of the joined attributes."""
    place, shape = block.axes.index(attribute), [sizes[i] for i in block.axes]
    own = [layer.rows for layer in block.layers] or [np.zeros((0, block.weights.size), dtype=np.int64)]
    rows = np.moveaxis(np.concatenate(own).reshape(-1, *shape), place + 1, 0)  # the attribute, rows, the others
    weights = np.moveaxis(block.weights.reshape(shape), place, 0)
    portion, largest = max(1, _PORTION // max(rows[0].size, weights[0].size)), 0
    for start in range(0, len(edges[attribute]), portion):
        u, v = edges[attribute][start : start + portion].T
        stays = (v != BOTTOM).reshape(-1, *[1] * (weights.ndim - 1))
        moved = np.abs(rows[u] - stays[:, None] * rows[v]).sum(axis=1)
        losses: AnyArray = weights[u] + stays * weights[v] + moved
        largest = max(largest, int(losses.max()))
    return largest


def _across(edges: EdgeArray, block: JoinedBlock, attribute: int) -> int:
    """The largest loss along an attribute outside the block."""
    gone, moved = block.weights, 2 * block.weights
    for layer in block.layers:
        worth = np.abs(layer.rows).sum(axis=0)
        gone = gone + worth
        moved = moved + (2 * worth if attribute in layer.keeps else 0)
    comes = edges[:, 1] == BOTTOM
    return max(int(gone.max()) if np.any(comes) else 0, int(moved.max()) if not np.all(comes) else 0)
