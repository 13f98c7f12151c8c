"""Exact sensitivities: how far the shipped integers can move between neighbours, in whole numbers.

Noise is scaled to what this file returns, so no result in it hangs on rounding. Floating point appears in two roles
only: to leave out edges that are certainly smaller than the largest (`dense_sensitivity`, with a proven margin on
finite numbers), and as a container of digits, whole numbers below 2^53 whose sums and products are exact.

Guarantees:
    `dense_sensitivity` is exact. `block_sensitivity` is an upper bound in whole numbers, exact up to its last binary
    place where no axis is narrowed; it is 0 only if no edge moves any row that carries noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import singledispatch

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AGREEMENT, EPS, EdgeArray, IndexArray, Noise, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import Block, CellStrategy, EdgeStrategy, MatrixStrategy, NoiseSum, ProductStrategy

INTEGER_LIMIT = 2**52
"""Size that the integers of a strategy stay below: differences of two are exact in float64."""

GRID_BITS = 30
"""Binary places to which the sensitivity of blocks is rounded up."""

_EXACT_FLOAT = 2**52
_CHUNK_ENTRIES = 2**22
_DIGIT = 18
"""Bits of a digit: 2^17 products of two digits add up to less than 2^53."""

_MASK = 2**_DIGIT - 1
_MOST_PRODUCTS = 2 ** (53 - 2 * _DIGIT)
Digits = Float64[np.ndarray, "_ ..."]
"""Whole numbers of any size, none negative: digits of 18 bits on the first axis, the lowest first."""


@singledispatch
def exact_sensitivity(strategy: object, problem: Problem, noise: Noise) -> int:
    """Return max_e of ||A p_e||_1 (Laplace) or ||A p_e||_2^2 (Gaussian) of a strategy's integers, a whole number.

    It is over 2^grid_bits (Laplace) or 4^grid_bits (Gaussian).
    """
    raise TypeError(f"no sensitivity of {type(strategy).__name__}")


@exact_sensitivity.register
def _(strategy: CellStrategy, problem: Problem, noise: Noise) -> int:
    return dense_sensitivity(strategy.integers, *problem.oriented, noise)


@exact_sensitivity.register
def _(strategy: EdgeStrategy, problem: Problem, noise: Noise) -> int:
    """A p_e is the column of the edge."""
    columns = strategy.integers.shape[1]
    return dense_sensitivity(strategy.integers, np.arange(columns), np.full(columns, -1), noise)


@exact_sensitivity.register
def _(strategy: ProductStrategy, problem: Problem, noise: Noise) -> int:
    return block_sensitivity(product_view(problem).edges, strategy.blocks, noise)


@exact_sensitivity.register
def _(strategy: NoiseSum, problem: Problem, noise: Noise) -> int:
    """The largest over the blocks, each for the moves that it hides: the others' noise does not depend on them."""
    edges = product_view(problem).edges
    hidden = {i for hides in strategy.hides for i in hides}
    left = [i for i, own in enumerate(edges) if len(own) and i not in hidden]
    if left:
        raise fail(
            "certificate", f"moves along attribute {left[0]}", "are hidden by no block", "Fit the strategy again."
        )
    pairs = zip(strategy.blocks, strategy.hides, strict=True)
    return max(block_sensitivity(hidden_moves(edges, *pair), pair[:1], noise) for pair in pairs)


def hidden_moves(edges: Sequence[EdgeArray], block: Block, hides: Sequence[int]) -> list[EdgeArray]:
    """Return, for every attribute, between which columns of its factor the moves go that a block hides.

    A factor over edges has a column for each: that column alone moves.
    """
    found = [own if i in hides else own[:0] for i, own in enumerate(edges)]
    if block.edges is not None:
        every = np.arange(block.integers[block.edges].shape[1])
        found[block.edges] = np.stack([every, np.full(every.size, BOTTOM)], axis=1)
    return found


@singledispatch
def grid_bits(strategy: object) -> int:
    """Return the binary places of a strategy's sensitivity."""
    raise TypeError(f"no grid of {type(strategy).__name__}")


@grid_bits.register
def _(strategy: MatrixStrategy) -> int:
    return strategy.bits


@grid_bits.register(ProductStrategy)
@grid_bits.register(NoiseSum)
def _(_: ProductStrategy | NoiseSum) -> int:
    return GRID_BITS


def within_limit(integers: Int64[np.ndarray, ...]) -> bool:
    """Whether all integers are smaller than 2^52 in size; not by their absolute values: -2^63 has none."""
    return bool(np.all((integers < INTEGER_LIMIT) & (integers > -INTEGER_LIMIT)))


def dense_sensitivity(integers: Int64[np.ndarray, "r c"], head: IndexArray, tail: IndexArray, noise: Noise) -> int:
    """Return max over pairs of ||A[:, head] - A[:, tail]||_1 (Laplace) or its squared L2 norm (Gaussian), exactly.

    A tail of -1 is a column of zeros.
    """
    assert within_limit(integers), "differences must be exact in float64"
    assert noise != "norm", "the noise of tree norms is not drawn on rows"
    if head.size == 0 or len(integers) == 0:
        return 0
    A = integers.astype(np.float64)
    candidates = np.arange(head.size)
    if noise == "gaussian":  # from the Gram matrix first: O(n^3 + e) instead of O(r e)
        X = A.T @ A
        candidates = _largest(_gram_distances(X, head, tail), 16 * len(A) * EPS * float(np.diag(X).max()))
    powers = _edge_powers(A, head[candidates], tail[candidates], noise)
    if float(powers.max()) < _EXACT_FLOAT:  # every partial sum is a whole number that float64 holds
        return int(powers.max())
    candidates = candidates[_largest(powers, 8 * EPS * (len(A) + 8) * float(powers.max()))]
    columns = np.concatenate([integers, np.zeros((len(integers), 1), dtype=np.int64)], axis=1)
    step = max(1, _CHUNK_ENTRIES // len(integers))
    parts = [candidates[start : start + step] for start in range(0, candidates.size, step)]
    return max(_exact_power(columns[:, head[part]] - columns[:, tail[part]], noise) for part in parts)


def _exact_power(moves: Int64[np.ndarray, "r q"], noise: Noise) -> int:
    """Largest L1 norm, or squared L2 norm, of the columns, from digits whose sums fit in 64 bits."""
    digits = _digits(np.abs(moves)).astype(np.int64)
    if noise == "laplace":
        return _largest_number(_carried(digits.sum(axis=1)))
    products = np.einsum("irq,jrq->ijq", digits, digits)
    sums = np.zeros((2 * len(digits) - 1, moves.shape[1]), dtype=np.int64)
    for i, j in np.ndindex(len(digits), len(digits)):
        sums[i + j] += products[i, j]
    return _largest_number(_carried(sums))


def _largest(values: RealVector, slack: float) -> IndexArray:
    """Positions that may hold the largest value, each value being known up to half the slack."""
    assert math.isfinite(slack), "sums of squares of integers below 2^53 are finite"
    assert np.all(np.isfinite(values)), "sums of squares of integers below 2^53 are finite"
    return np.flatnonzero(values >= values.max() - slack)


def _gram_distances(X: SquareMatrix, head: IndexArray, tail: IndexArray) -> RealVector:
    """||A p_e||_2^2 from X = A^T A; the column of BOTTOM is zero."""
    diagonal = np.append(np.diag(X), 0.0)
    cross = np.where(tail < 0, 0.0, X[head, tail])
    return np.asarray(diagonal[head] + diagonal[tail] - 2 * cross)


def _edge_powers(A: RealMatrix, head: IndexArray, tail: IndexArray, noise: Noise) -> RealVector:
    """||A p_e||_1 or ||A p_e||_2^2 in floating point, with a relative error of a few eps a row."""
    columns = np.ascontiguousarray(np.concatenate([A, np.zeros((len(A), 1))], axis=1).T)
    step = max(1, _CHUNK_ENTRIES // len(A))
    found = []
    for start in range(0, head.size, step):
        block = columns[head[start : start + step]] - columns[tail[start : start + step]]
        found.append(np.abs(block).sum(axis=1) if noise == "laplace" else np.einsum("er,er->e", block, block))
    return np.concatenate(found)


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
    levels = [_levels(block, noise) for block in blocks]
    places = [squares * sum(block.bits) for block in blocks]
    lowest = min((_lowest(level) - place for level, place in zip(levels, places, strict=True)), default=0)
    largest = 0
    for axis, pairs in enumerate(edges):
        if len(pairs):
            losses = []
            for block, level, place in zip(blocks, levels, places, strict=True):
                tensor = _float_digits(level, lowest + place)
                losses.append(_losses(block, tensor, axis, pairs, squares))
            largest = max(largest, _largest_number(_added(losses)))
    shift = lowest + squares * GRID_BITS
    return largest << shift if shift >= 0 else -(-largest >> -shift)


def row_weight(precision: float) -> float:
    """Return the least float whose square is at least a precision: what Laplace noise on such a row is divided by."""
    weight = math.sqrt(precision)
    while Fraction(weight) ** 2 < Fraction(precision):
        weight = math.nextafter(weight, math.inf)
    return weight


def _levels(block: Block, noise: Noise) -> Float64[np.ndarray, ...]:
    """What multiplies the loss of every row: its precision, or its weight; 0 for rows without noise."""
    noisy = np.where(np.isposinf(block.precisions), 0.0, block.precisions)
    if noise == "laplace":
        values, place = np.unique(noisy, return_inverse=True)
        noisy = np.array([row_weight(value) for value in values.tolist()])[place].reshape(noisy.shape)
    return np.broadcast_to(noisy, block.shape)


def _lowest(values: Float64[np.ndarray, ...]) -> int:
    """The power of two of which all values are whole multiples."""
    positive = values[values > 0]
    return int(np.frexp(positive)[1].min()) - 53 if positive.size else 0


def _float_digits(values: Float64[np.ndarray, ...], lowest: int) -> Digits:
    """Digits of values over 2^lowest, exactly."""
    mantissa, exponent = np.frexp(values.ravel())
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    shift = np.where(whole > 0, exponent - 53 - lowest, 0)
    assert np.all(shift >= 0), "every value is a whole multiple of 2^lowest"
    first, rest = np.divmod(shift, _DIGIT)
    sums = np.zeros((int(first.max(initial=0)) + 4, whole.size), dtype=np.int64)
    every = np.arange(whole.size)
    for place, digit in enumerate(_digits(whole, 3).astype(np.int64)):
        moved = digit << rest
        sums[first + place, every] += moved & _MASK
        sums[first + place + 1, every] += moved >> _DIGIT
    return _carried(sums).reshape(-1, *values.shape)


def _losses(block: Block, tensor: Digits, axis: int, edges: EdgeArray, squares: int) -> Digits:
    """The loss of every edge of one type in one block, cells of the other attributes on the other axes."""
    for i, integers in enumerate(block.integers):
        assert within_limit(integers), "differences must be exact in 64 bits"
        moves = np.abs(differences(integers, edges) if i == axis else integers.T)
        digits = _digits(moves)
        if squares == 2:
            digits = _squared(digits)
        tensor = _narrowed(_contracted(digits, tensor, i), i)
    return tensor


def differences(factor: Int64[np.ndarray, "r c"], edges: EdgeArray) -> Int64[np.ndarray, "e r"]:
    """(R p_e)^T for every edge."""
    head, tail = edges.T
    moves = factor[:, head].T.copy()
    inner = tail != BOTTOM
    moves[inner] -= factor[:, tail[inner]].T
    return moves


def _digits(values: Int64[np.ndarray, ...], count: int | None = None) -> Digits:
    """Digits of whole numbers below 2^63, none negative."""
    needed = count or -(-int(values.max(initial=0)).bit_length() // _DIGIT) or 1
    return np.stack([((values >> (_DIGIT * i)) & _MASK).astype(np.float64) for i in range(needed)])


def _squared(digits: Digits) -> Digits:
    sums = np.zeros((2 * len(digits) - 1, *digits.shape[1:]), dtype=np.int64)
    for i, a in enumerate(digits):
        for j, b in enumerate(digits):
            sums[i + j] += (a * b).astype(np.int64)
    return _carried(sums)


def _contracted(moves: Digits, tensor: Digits, axis: int) -> Digits:
    """sum_j moves[e, j] tensor[..., j, ...] on an axis, exactly: every product of digits is summed below 2^53."""
    rows = np.moveaxis(tensor, axis + 1, 0)
    size = math.prod(rows.shape[2:]) * moves.shape[1]
    count = len(moves) + len(tensor) - 1
    fits("certificate", f"edges of attribute {axis}", 3 * count * size * 8, advice="Use a smaller domain.")
    sums = np.zeros((count, moves.shape[1], *rows.shape[2:]), dtype=np.int64)
    for start in range(0, len(rows), _MOST_PRODUCTS):
        part = slice(start, start + _MOST_PRODUCTS)
        for place, digit in enumerate(moves):
            products = np.tensordot(digit[:, part], rows[part], axes=(1, 0))
            sums[place : place + len(tensor)] += np.moveaxis(products, 1, 0).astype(np.int64)
    return np.moveaxis(_carried(sums), 1, axis + 1)


def _carried(sums: Int64[np.ndarray, "_ ..."]) -> Digits:
    """Sums of digits, each below 2^62, as digits; leading zeros are left out."""
    found, carry = [], np.zeros(sums.shape[1:], dtype=np.int64)
    for total in sums:
        carry = carry + total
        found.append((carry & _MASK).astype(np.float64))
        carry = carry >> _DIGIT
    while np.any(carry):
        found.append((carry & _MASK).astype(np.float64))
        carry = carry >> _DIGIT
    while len(found) > 1 and not np.any(found[-1]):
        found.pop()
    return np.stack(found)


def _narrowed(tensor: Digits, axis: int) -> Digits:
    """Keep one entry of an axis along which nearly nothing varies: the largest, so the result is an upper bound."""
    scale = np.ldexp(1.0, _DIGIT * (np.arange(len(tensor)) - len(tensor) + 1))
    about = np.tensordot(scale, tensor, axes=(0, 0))
    top, low = about.max(axis=axis, keepdims=True), about.min(axis=axis, keepdims=True)
    return _largest_along(tensor, axis) if np.all(top - low <= AGREEMENT * top) else tensor


def _largest_along(tensor: Digits, axis: int) -> Digits:
    """The largest number along an axis, by its highest digit first."""
    leading = np.ones(tensor.shape[1:], dtype=bool)
    found = []
    for digit in tensor[::-1]:
        top = np.where(leading, digit, -1.0).max(axis=axis, keepdims=True)
        leading &= digit == top
        found.append(top)
    return np.stack(found[::-1])


def _added(losses: Sequence[Digits]) -> Digits:
    shape = np.broadcast_shapes(*(loss.shape[1:] for loss in losses))
    count = max(map(len, losses))
    fits("certificate", f"edges of {len(shape)} attributes", count * math.prod(shape) * 16, advice="Use fewer cells.")
    sums = np.zeros((count, *shape), dtype=np.int64)
    for loss in losses:
        sums[: len(loss)] += loss.astype(np.int64)
    return _carried(sums)


def _largest_number(tensor: Digits) -> int:
    flat = tensor.reshape(len(tensor), -1)
    top = _largest_along(flat, 0)[:, 0]
    return sum(int(digit) << (_DIGIT * place) for place, digit in enumerate(top.tolist()))
