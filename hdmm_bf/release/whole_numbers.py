"""Tensors of whole numbers of any size, and inverses of integer matrices enclosed between them.

Numbers are kept in limbs of 18 bits on a list, the lowest first, as floats: sums of up to 2^16 products of two limbs
are exact in float64, so that matrices are multiplied as fast as floating point goes and not a bit is lost.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float64, Int64
from scipy.linalg import cho_factor, cho_solve

from hdmm_bf._checks import fail
from hdmm_bf._types import EPS, AnyArray

_LIMB = 18
_MASK = 2**_LIMB - 1
_MOST_PRODUCTS = 2**16
_FLOOR_BITS = 40
_FLOAT_BITS = 900
"""Of numbers that are divided in floating point by singular values, none of which is below 2^-20."""

_SURE = 16
"""Times n eps: the share of the smallest squared singular value in the largest from which on every step helps."""

Limbs: TypeAlias = list[Float64[np.ndarray, "..."]]
"""Limbs in [0, 2^18) but for the last, which is below 2^18 in size and carries the sign."""


def limbs(values: AnyArray) -> Limbs:
    """Return whole numbers, 64 bits or Python's own, as limbs."""
    found, rest = [], values
    while np.any((rest != 0) & (rest != -1)):
        found.append((rest & _MASK).astype(np.float64))
        rest = rest >> _LIMB
    return [*found, rest.astype(np.float64)]


def from_limbs(parts: Limbs) -> AnyArray:
    """Return the numbers as Python's own, of any size."""
    total: AnyArray = np.zeros(parts[0].shape, dtype=object)
    for part in reversed(parts):
        total = (total << _LIMB) + part.astype(np.int64).astype(object)
    return total


def along(matrix: Limbs, tensor: Limbs, axis: int) -> Limbs:
    """Return a matrix applied along one axis of a tensor, exactly."""
    assert matrix[0].shape[1] <= _MOST_PRODUCTS, "sums of products of limbs must be exact"
    sums: list[AnyArray | int] = [0] * (len(matrix) + len(tensor) - 1)
    for i, left in enumerate(matrix):
        if np.any(left):
            for j, right in enumerate(tensor):
                if np.any(right):
                    product = np.moveaxis(np.tensordot(left, right, axes=(1, axis)), 0, axis)
                    sums[i + j] = sums[i + j] + product.astype(np.int64)
    shape = list(tensor[0].shape)
    shape[axis] = len(matrix[0])
    return _carried([np.broadcast_to(total, shape) for total in sums])


def _carried(sums: list[Int64[np.ndarray, ...]]) -> Limbs:
    """Bring sums below 2^62 in size back to limbs."""
    found, carry = [], np.zeros(sums[0].shape, dtype=np.int64)
    for total in sums:
        carry = carry + total
        found.append((carry & _MASK).astype(np.float64))
        carry = carry >> _LIMB
    while np.any((carry != 0) & (carry != -1)):
        found.append((carry & _MASK).astype(np.float64))
        carry = carry >> _LIMB
    return [*found, carry.astype(np.float64)]


class Enclosed(NamedTuple):
    """A matrix times 2^bits as whole numbers, no entry off by more than `error`."""

    matrix: AnyArray
    error: int

    @property
    def row_sum(self) -> int:
        """The largest sum of sizes along a row."""
        return int(np.abs(self.matrix).sum(axis=1).max())


def enclosed_inverse(R: Int64[np.ndarray, "r c"], bits: int) -> Enclosed:
    """Return R^+ = (R^T R)^-1 R^T times 2^bits for an integer matrix of full column rank.

    Steps G += (R^T R)^-1 (R^T 2^bits - R^T R G) with the bracket in whole numbers. A column of G is off by at most the
    norm of the bracket's column over sigma_min(R)^2, whatever floating point did to the steps.

    Guarantees:
        The error is a proven bound. A matrix that is too close to singular is refused; for one that is not, the error
        does not grow with the number of bits.
    """
    if max(R.shape) > _MOST_PRODUCTS:
        problem = f"has a factor of {R.shape[0]} x {R.shape[1]}, which is too large to be run exactly"
        raise fail("release", "strategy", problem, "Use a smaller domain, or Gaussian noise.")
    floor = _smallest_square(R)
    N = from_limbs(along(limbs(R.T), limbs(R), 0))
    factor = cho_factor(N.astype(np.float64), check_finite=False)
    target, whole_N = R.T.astype(object) << bits, limbs(N)
    G: AnyArray = np.zeros(target.shape, dtype=object)
    best: Enclosed | None = None
    while True:
        left = target - from_limbs(along(whole_N, limbs(G), 0))
        norm = math.isqrt(int((left * left).sum(axis=0).max())) + 1
        error = (norm << _FLOOR_BITS) // floor + 1
        if best is not None and 2 * error > best.error:
            return best
        best = Enclosed(G, error)
        G = G + _step(factor, left)


def _step(factor: tuple[AnyArray, Any], left: AnyArray) -> AnyArray:
    """(R^T R)^-1 left to about the precision of floating point, for numbers far beyond its range."""
    shrink = max(0, int(np.abs(left).max()).bit_length() - _FLOAT_BITS)
    found = cho_solve(factor, (left >> shrink).astype(np.float64), check_finite=False)
    return np.asarray(_whole(found) << shrink)


_whole = np.vectorize(round, otypes=[object])


def _smallest_square(R: Int64[np.ndarray, "r c"]) -> int:
    """A whole number that sigma_min(R)^2 times 2^40 certainly reaches."""
    values = np.linalg.svd(R.astype(np.float64), compute_uv=False)
    lowest = float(values[-1]) - 8 * EPS * max(R.shape) * float(values[0])
    floor = math.floor(math.ldexp(max(lowest, 0.0) ** 2 * (1 - 1e-9), _FLOOR_BITS))
    if floor < 1 or R.shape[0] < R.shape[1] or not every_step_helps(lowest, float(values[0]), R.shape[1]):
        raise fail("release", "strategy", "is too close to singular to be run exactly", "Fit the strategy again.")
    return floor


def every_step_helps(lowest: float, highest: float, size: int) -> bool:
    """Whether steps in floating point bring every solution with R^T R nearer, R having these singular values.

    Where they help for some noise and not for other, only the first is added exactly and published, the other is
    refused, and what is published shows more than the sum: noise zero is added exactly by every matrix.
    """
    return lowest > 0 and _SURE * EPS * size * (highest / lowest) ** 2 <= 1
