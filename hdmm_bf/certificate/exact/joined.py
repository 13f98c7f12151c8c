"""Sensitivity of blocks that join attributes, in whole numbers: over every edge of the one that is hidden."""

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
    rows = int(np.abs(block.rows.astype(object)).sum(axis=0).max()) if block.rows.size else 0
    return 2 * (int(block.weights.max()) + rows) < _LARGEST


def joined_sensitivity(sizes: Sequence[int], edges: Sequence[EdgeArray], block: JoinedBlock) -> int:
    """Return the largest of w_u + w_v + sum_k |T_ku - T_kv| over the moves from u to v, times 2^bits.

    A move goes along an edge of the hidden attribute at any value of the others; towards BOTTOM there is no v.
    """
    assert fits_in_words(block), "sums must be exact in 64 bits"
    place = block.axes.index(block.hides)
    shape = [sizes[i] for i in block.axes]
    assert math.prod(shape) == block.weights.size, "one weight for every value"
    weights = np.moveaxis(block.weights.reshape(shape), place, 0)
    rows = np.moveaxis(block.rows.reshape(-1, *shape), place + 1, 0)  # hidden attribute, rows, others
    largest = 0
    for u, v in edges[block.hides].tolist():
        losses: AnyArray = weights[u] + np.abs(rows[u] if v == BOTTOM else rows[u] - rows[v]).sum(axis=0)
        if v != BOTTOM:
            losses = losses + weights[v]
        largest = max(largest, int(losses.max()))
    return largest
