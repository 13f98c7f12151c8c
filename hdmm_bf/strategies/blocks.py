"""Strategies of blocks: implicit strategies for domains too large to write a matrix over their cells.

A block measures every product of rows, one from an integer factor of each attribute, R_1 (x) ... (x) R_d, each with a
precision M_J of its own: independent noise of variance 1 / M_J when the sensitivity is 1. A row that no edge of the
policy sees (a public total) has infinite precision and is measured without noise. The estimate is
sum_b (G_1 (x) ... (x) G_d) y_b with one inverse G_i a factor; the blocks complement each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.matrix import Incidence
from hdmm_bf.strategies.records import AnyTensor, Block

_BITS = 16
_ALL_BITS = 36
"""Binary places of a factor, and of all factors of a block together: sums of counts must fit in 64 bits."""

_FINE_BITS = 10
"""Binary places of whole factors that are measured with normal noise: rounding it to whole records would add 1/12."""

_LARGEST_FINE = 2.0**20
"""Size of a row's largest entry from which on it has no need of more places."""
_NOISE_BITS, _ALL_NOISE_BITS = 20, 60
"""The same for blocks of noise, which no counts are multiplied with."""

_LEVELS = 256
_MOST_LEVELS = 4096
"""Precisions in more than 4096 different sizes are rounded to 256 steps an octave: one sampler serves each."""


def from_factors(
    factors: Sequence[RealMatrix],
    precisions: AnyTensor,
    terms: tuple[int, ...] | None = None,
    *,
    fine: bool = False,
) -> Block:
    """Put a block on a grid: whole factors stay as they are, others get binary places.

    Args:
        factors: one an attribute.
        precisions: one a row.
        terms: of the workload that the block answers alone.
        fine: give a block of whole factors binary places too, for noise that is rounded to its grid: normal noise.

    Guarantees:
        Rows that are constant stay constant, so what no edge sees stays unseen. The inverses are those of the integers.
        A fine block has at least 10 binary places in all: rounding adds less than 1e-7 squared records to a row. Rows
        whose entries reach 2^20 are left as they are.
    """
    whole = [bool(np.array_equal(factor, np.rint(factor))) for factor in factors]
    places = min(_BITS, _ALL_BITS // max(1, len(factors) - sum(whole)))
    bits = tuple(0 if exact else places for exact in whole)
    if fine and all(whole) and math.prod(float(np.abs(f).max(initial=1.0)) for f in factors) < _LARGEST_FINE:
        bits = (_FINE_BITS, *bits[1:])
    scaled, sizes = zip(*(_normalised(f, exact) for f, exact in zip(factors, whole, strict=True)), strict=True)
    integers = tuple(np.rint(np.ldexp(f, b)).astype(np.int64) for f, b in zip(scaled, bits, strict=True))
    return from_integers(integers, bits, _rounded(_rescaled(precisions, sizes)), terms)


def from_integers(
    integers: tuple[Int64[np.ndarray, "_ _"], ...],
    bits: tuple[int, ...],
    precisions: AnyTensor,
    terms: tuple[int, ...] | None = None,
) -> Block:
    """Return the block of integer factors, with their inverses."""
    inverses = tuple(_inverse(np.ldexp(f.astype(np.float64), -b)) for f, b in zip(integers, bits, strict=True))
    return Block(integers, bits, precisions, inverses, terms)


Over = tuple[int, Incidence]
"""The attribute whose factor is over the edges of its policy, and these edges as a matrix from edges to values."""


def noise_block(factors: Sequence[RealMatrix], precisions: AnyTensor, over: Over | None = None) -> Block:
    """Put a block of a `NoiseSum` on a grid: whole factors stay as they are, others get binary places.

    Args:
        factors: one an attribute, of full column rank.
        precisions: of every row; infinite where there is no noise.
        over: the attribute whose factor is over edges, if there is one.
    """
    whole = [bool(np.array_equal(factor, np.rint(factor))) for factor in factors]
    places = min(_NOISE_BITS, _ALL_NOISE_BITS // max(1, len(factors) - sum(whole)))
    bits = tuple(0 if exact else places for exact in whole)
    integers = tuple(np.rint(np.ldexp(f, b)).astype(np.int64) for f, b in zip(factors, bits, strict=True))
    return noise_from_integers(integers, bits, np.array(precisions, dtype=np.float64), over)


def noise_from_integers(
    integers: tuple[Int64[np.ndarray, "_ _"], ...], bits: tuple[int, ...], precisions: AnyTensor, over: Over | None
) -> Block:
    """Return the block of integer factors; the inverse of one over edges leads on to the values: P S^+."""
    plain = from_integers(integers, bits, precisions)
    if over is None:
        return plain
    attribute, P = over
    inverses = tuple(P.mv(G) if i == attribute else G for i, G in enumerate(plain.inverses))
    return Block(integers, bits, precisions, inverses, edges=attribute)


def _normalised(factor: RealMatrix, whole: bool) -> tuple[RealMatrix, RealVector]:
    """Rows scaled to largest entry 1, and their sizes; whole factors are left alone.

    A factor with more rows than columns is scaled by one number: its pseudo-inverse is least squares only for rows of
    equal noise.
    """
    sizes = np.ones(len(factor)) if whole else np.abs(factor).max(axis=1)
    if not whole and len(factor) > factor.shape[1]:
        sizes = np.full(len(factor), sizes.max())
    return factor / sizes[:, None], sizes


def _rescaled(precisions: AnyTensor, sizes: Sequence[RealVector]) -> AnyTensor:
    """A row divided by its size has its precision multiplied by the square."""
    for axis, size in enumerate(sizes):
        if np.any(size != 1):
            precisions = precisions * (size**2).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
    return np.array(precisions, dtype=np.float64)


def _rounded(precisions: AnyTensor) -> AnyTensor:
    if np.unique(precisions).size <= _MOST_LEVELS:
        return precisions
    known = np.isfinite(precisions) & (precisions > 0)
    rounded = precisions.copy()
    rounded[known] = np.exp2(np.rint(_LEVELS * np.log2(precisions[known])) / _LEVELS)
    return rounded


def _inverse(factor: RealMatrix) -> RealMatrix:
    rows, columns = factor.shape
    return np.asarray(np.linalg.inv(factor) if rows == columns and _is_regular(factor) else np.linalg.pinv(factor))


def _is_regular(factor: RealMatrix) -> bool:
    return bool(np.linalg.cond(factor) < 1e8)
