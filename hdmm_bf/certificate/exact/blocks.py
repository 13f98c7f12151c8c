"""Sensitivity of strategies by factors, in whole numbers, over edges that change one attribute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float64, Int64

from hdmm_bf._types import EdgeArray, Noise
from hdmm_bf.certificate.exact.dense import within_limit
from hdmm_bf.certificate.exact.digits import (
    Digits,
    added,
    contracted,
    digits,
    float_digits,
    largest_number,
    multiplied,
    narrowed,
)
from hdmm_bf.policy import BOTTOM
from hdmm_bf.strategies.records import Block

GRID_BITS = 30
"""Binary places to which the sensitivity of blocks is rounded up."""

_MOST_AT_ONCE, _PORTION = 2**26, 2**22
"""Numbers beyond which edges are looked at in portions, and numbers in one."""


def hidden_moves(edges: Sequence[EdgeArray], block: Block, hides: Sequence[int]) -> list[EdgeArray]:
    """Return, for every attribute, between which columns of its factor the moves go that a block hides.

    A factor over edges has a column for each: that column alone moves.
    """
    found = [own if i in hides else own[:0] for i, own in enumerate(edges)]
    if block.edges is not None:
        every = np.arange(block.integers[block.edges].shape[1])
        found[block.edges] = np.stack([every, np.full(every.size, BOTTOM)], axis=1)
    return found


def block_sensitivity(edges: Sequence[EdgeArray], blocks: Sequence[Block], noise: Noise) -> int:
    """Return max over edges of sum_J M_J (R p_e)_J^2 times 4^GRID_BITS (Gaussian), rounded up to a whole number.

    For Laplace noise it is sum_J w_J |(R p_e)_J| times 2^GRID_BITS, w_J = `row_weight(M_J)`. An edge of attribute i at
    the cells c of the others moves row J by (p_e R_i)_j prod_k R_k[j_k, c_k].

    Args:
        edges: the edges of every attribute's policy, BOTTOM being -1 and second.
        blocks: what is measured; rows of infinite precision carry no noise and are not counted here.
    """
    assert noise != "norm", "the noise of tree norms is not drawn on rows"
    squares = 2 if noise == "gaussian" else 1
    levels = [row_levels(block, noise) for block in blocks]
    places = [squares * sum(block.bits) for block in blocks]
    lowest = min((lowest_power(level) - place for level, place in zip(levels, places, strict=True)), default=0)
    largest = 0
    for axis, pairs in enumerate(edges):
        if len(pairs):
            tensors = [float_digits(m, lowest + place) for m, place in zip(levels, places, strict=True)]
            every = range(len(edges))
            portion = len(pairs)
            if _is_large(blocks, axis, pairs):  # cells of the other attributes first, then some edges at a time
                others = [k for k in every if k != axis]
                tensors = [_losses(b, t, axis, pairs, squares, others) for b, t in zip(blocks, tensors, strict=True)]
                every, portion = range(axis, axis + 1), _portion(tensors, axis)
            for start in range(0, len(pairs), portion):
                some = pairs[start : start + portion]
                losses = [_losses(b, t, axis, some, squares, every) for b, t in zip(blocks, tensors, strict=True)]
                largest = max(largest, largest_number(added(losses)))
    shift = lowest + squares * GRID_BITS
    return largest << shift if shift >= 0 else -(-largest >> -shift)


def row_weight(precision: float) -> float:
    """Return the least float whose square is at least a precision: what Laplace noise on such a row is divided by."""
    weight = math.sqrt(precision)
    while Fraction(weight) ** 2 < Fraction(precision):
        weight = math.nextafter(weight, math.inf)
    return weight


def row_levels(block: Block, noise: Noise) -> Float64[np.ndarray, ...]:
    """What multiplies the loss of every row: its precision, or its weight; 0 for rows without noise."""
    noisy = np.where(np.isposinf(block.precisions), 0.0, block.precisions)
    if noise == "laplace":
        values, place = np.unique(noisy, return_inverse=True)
        noisy = np.array([row_weight(value) for value in values.tolist()])[place].reshape(noisy.shape)
    return np.broadcast_to(noisy, block.shape)


def lowest_power(values: Float64[np.ndarray, ...]) -> int:
    """The power of two of which all values are whole multiples."""
    positive = values[values > 0]
    return int(np.frexp(positive)[1].min()) - 53 if positive.size else 0


def _is_large(blocks: Sequence[Block], axis: int, edges: EdgeArray) -> bool:
    """Whether the moves of all edges, or their losses at all rows of the other attributes, are too many at once."""
    rows = [block.shape for block in blocks]
    return any(len(edges) * max(r[axis], math.prod(r[:axis] + r[axis + 1 :])) > _MOST_AT_ONCE for r in rows)


def _portion(tensors: Sequence[Digits], axis: int) -> int:
    """How many edges are looked at together."""
    each = max(max(int(t.shape[axis + 1]), int(t[0].size) // int(t.shape[axis + 1])) for t in tensors)
    return max(1, _PORTION // each)


def _losses(
    block: Block, tensor: Digits, axis: int, edges: EdgeArray, squares: int, attributes: Sequence[int]
) -> Digits:
    """The loss of every edge of one type in one block, cells of the other attributes on the other axes.

    Of the attributes some, one after the other; what is left for later stays rows.
    """
    for i in attributes:
        integers = block.integers[i]
        assert within_limit(integers), "differences must be exact in 64 bits"
        alone = np.count_nonzero(integers, axis=1) <= 1
        if i == axis and np.any(alone):
            found = [_at_both_ends(integers[alone], np.compress(alone, tensor, axis=i + 1), i, edges, squares)]
            if not np.all(alone):
                found.append(_moved(differences(integers[~alone], edges), tensor, ~alone, i, squares))
            tensor = narrowed(added(found), i)
        else:
            moves = differences(integers, edges) if i == axis else integers.T
            tensor = narrowed(_moved(moves, tensor, None, i, squares), i)
    return tensor


def _moved(
    moves: Int64[np.ndarray, "e r"], tensor: Digits, rows: Bool[np.ndarray, " every"] | None, axis: int, squares: int
) -> Digits:
    """What rows lose by moves, summed over them; of the tensor some rows alone."""
    parts = digits(np.abs(moves))
    own = tensor if rows is None else np.compress(rows, tensor, axis=axis + 1)
    return contracted(multiplied(parts, parts) if squares == 2 else parts, own, axis)


def _at_both_ends(
    integers: Int64[np.ndarray, "r c"], tensor: Digits, axis: int, edges: EdgeArray, squares: int
) -> Digits:
    """The losses of edges where no row sees both ends, as for cells: what either end loses by itself, added up."""
    parts = digits(np.abs(integers.T))
    columns = contracted(multiplied(parts, parts) if squares == 2 else parts, tensor, axis)
    head, tail = edges.T
    last = np.take(columns, np.maximum(tail, 0), axis=axis + 1)
    shape = [-1 if k == axis + 1 else 1 for k in range(last.ndim)]
    return added([np.take(columns, head, axis=axis + 1), last * (tail != BOTTOM).reshape(shape)])


def differences(factor: Int64[np.ndarray, "r c"], edges: EdgeArray) -> Int64[np.ndarray, "e r"]:
    """(R p_e)^T for every edge."""
    head, tail = edges.T
    moves = factor[:, head].T.copy()
    inner = tail != BOTTOM
    moves[inner] -= factor[:, tail[inner]].T
    return moves
