"""Whole numbers of any size as arrays of digits: floats that hold small whole numbers, whose products BLAS adds up.

Every sum of products stays below 2^53, so nothing here rounds. Digits are of 18 bits, the lowest first; a number below
zero has -1 as its highest digit, and none of the others is negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fits
from hdmm_bf._types import AGREEMENT

_DIGIT = 18
"""Bits of a digit: 2^17 products of two digits add up to less than 2^53."""

_MASK = 2**_DIGIT - 1
_MOST_PRODUCTS = 2 ** (53 - 2 * _DIGIT)
Digits = Float64[np.ndarray, "_ ..."]
"""Whole numbers of any size: digits of 18 bits on the first axis, the lowest first."""


def float_digits(values: Float64[np.ndarray, ...], lowest: int) -> Digits:
    """Digits of values over 2^lowest, exactly."""
    mantissa, exponent = np.frexp(values.ravel())
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    shift = np.where(whole > 0, exponent - 53 - lowest, 0)
    assert np.all(shift >= 0), "every value is a whole multiple of 2^lowest"
    first, rest = np.divmod(shift, _DIGIT)
    sums = np.zeros((int(first.max(initial=0)) + 4, whole.size), dtype=np.int64)
    every = np.arange(whole.size)
    for place, digit in enumerate(digits(whole, 3).astype(np.int64)):
        moved = digit << rest
        sums[first + place, every] += moved & _MASK
        sums[first + place + 1, every] += moved >> _DIGIT
    return carried(sums).reshape(-1, *values.shape)


def digits(values: Int64[np.ndarray, ...], count: int | None = None) -> Digits:
    """Digits of whole numbers below 2^63, none negative."""
    needed = count or -(-int(values.max(initial=0)).bit_length() // _DIGIT) or 1
    return np.stack([((values >> (_DIGIT * i)) & _MASK).astype(np.float64) for i in range(needed)])


def multiplied(a: Digits, b: Digits) -> Digits:
    """Products of whole numbers, none negative."""
    sums = np.zeros((len(a) + len(b) - 1, *a.shape[1:]), dtype=np.int64)
    for i, first in enumerate(a):
        for j, second in enumerate(b):
            sums[i + j] += (first * second).astype(np.int64)
    return carried(sums)


def contracted(moves: Digits, tensor: Digits, axis: int) -> Digits:
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
    return np.moveaxis(carried(sums), 1, axis + 1)


def carried(sums: Int64[np.ndarray, "_ ..."]) -> Digits:
    """Sums of digits, each below 2^62 in size, as digits; leading zeros are left out."""
    found, carry = [], np.zeros(sums.shape[1:], dtype=np.int64)
    for total in sums:
        carry = carry + total
        found.append((carry & _MASK).astype(np.float64))
        carry = carry >> _DIGIT
    while np.any((carry != 0) & (carry != -1)):
        found.append((carry & _MASK).astype(np.float64))
        carry = carry >> _DIGIT
    if np.any(carry):
        found.append(carry.astype(np.float64))
    while len(found) > 1 and not np.any(found[-1]):
        found.pop()
    return np.stack(found)


def narrowed(tensor: Digits, axis: int) -> Digits:
    """Keep one entry of an axis along which nearly nothing varies: the largest, so the result is an upper bound."""
    scale = np.ldexp(1.0, _DIGIT * (np.arange(len(tensor)) - len(tensor) + 1))
    about = np.tensordot(scale, tensor, axes=(0, 0))
    top, low = about.max(axis=axis, keepdims=True), about.min(axis=axis, keepdims=True)
    return largest_along(tensor, axis) if np.all(top - low <= AGREEMENT * top) else tensor


def largest_along(tensor: Digits, axis: int) -> Digits:
    """The largest number along an axis, by its highest digit first."""
    leading = np.ones(tensor.shape[1:], dtype=bool)
    found = []
    for digit in tensor[::-1]:
        top = np.where(leading, digit, -1.0).max(axis=axis, keepdims=True)
        leading &= digit == top
        found.append(top)
    return np.stack(found[::-1])


def added(parts: Sequence[Digits], times: Sequence[int] | None = None) -> Digits:
    """Sums of tensors, each a few times; where they are above zero all in all, so are the digits."""
    shape = np.broadcast_shapes(*(part.shape[1:] for part in parts))
    count = max(map(len, parts))
    fits("certificate", f"edges of {len(shape)} attributes", count * math.prod(shape) * 16, advice="Use fewer cells.")
    sums = np.zeros((count, *shape), dtype=np.int64)
    for part, factor in zip(parts, times or [1] * len(parts), strict=True):
        sums[: len(part)] += factor * part.astype(np.int64)
    return carried(sums)


def largest_number(tensor: Digits) -> int:
    """Return the largest of numbers none of which is negative."""
    flat = tensor.reshape(len(tensor), -1)
    assert np.all(flat >= 0), "losses are sums of squares or sizes"
    top = largest_along(flat, 0)[:, 0]
    return sum(int(digit) << (_DIGIT * place) for place, digit in enumerate(top.tolist()))
