"""Sensitivity of blocks that join attributes, in whole numbers: over every edge of the attributes that are hidden."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hdmm_bf._types import AnyArray, EdgeArray
from hdmm_bf.policy import BOTTOM
from hdmm_bf.strategies.records import JoinedBlock

_LARGEST = 2**62
"""Sums of sizes along a column must stay below: they are exact in 64 bits."""


def fits_in_words(block: JoinedBlock) -> bool:
    """Whether the loss of every edge is exact in 64 bits."""
    rows = sum(int(np.abs(layer.rows.astype(object)).sum(axis=0).max()) for layer in block.layers if layer.rows.size)
    return 2 * (int(block.weights.max()) + rows) < _LARGEST


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
    weights = np.moveaxis(block.weights.reshape(shape), place, 0)
    layers = [np.moveaxis(layer.rows.reshape(-1, *shape), place + 1, 0) for layer in block.layers]
    largest = 0
    for u, v in edges[attribute].tolist():
        losses: AnyArray = weights[u] if v == BOTTOM else weights[u] + weights[v]
        for rows in layers:  # the attribute, rows, the other joined attributes
            losses = losses + np.abs(rows[u] if v == BOTTOM else rows[u] - rows[v]).sum(axis=0)
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
