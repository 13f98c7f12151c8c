"""Strategies of blocks: implicit strategies for domains too large to write a matrix over their cells.

A block measures every product of rows, one from an integer factor of each attribute, R_1 (x) ... (x) R_d, each with a
precision M_J of its own: independent noise of variance 1 / M_J when the sensitivity is 1. A row that no edge of the
policy sees (a public total) has infinite precision and is measured without noise. The estimate is
sum_b (G_1 (x) ... (x) G_d) y_b with one inverse G_i a factor; the blocks complement each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, final

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fits
from hdmm_bf._types import AnyArray, RealMatrix, RealVector

AnyTensor: TypeAlias = Float64[np.ndarray, "..."]

_BITS = 16
_ALL_BITS = 36
"""Binary places of a factor, and of all factors of a block together: sums of counts must fit in 64 bits."""

_LEVELS = 256
_MOST_LEVELS = 4096
"""Precisions in more than 4096 different sizes are rounded to 256 steps an octave: one sampler serves each."""


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Rows that are products of rows.

    Attributes:
        integers: forevery attribute the factor times 2^bits, r_i x n_i.
        bits: binary places of every factor.
        precisions: one precision a row, r_1 x ... x r_d: 1 / variance, relative to the noise of the release; infinite
            for public rows. May be given as a tensor that broadcasts to that shape.
        inverses: forevery attribute G_i, n_i x r_i: what a measured row adds to the estimate.
        terms: terms of the workload that this block answers alone; None when the blocks complement each other.
    """

    integers: tuple[Int64[np.ndarray, "_ _"], ...]
    bits: tuple[int, ...]
    precisions: AnyTensor
    inverses: tuple[RealMatrix, ...]
    terms: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for array in (*self.integers, self.precisions, *self.inverses):
            array.setflags(write=False)  # what was certified is what runs

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of every factor."""
        return tuple(len(factor) for factor in self.integers)

    @property
    def num_rows(self) -> int:
        """Number of measured rows."""
        return math.prod(self.shape)

    def factor(self, attribute: int) -> RealMatrix:
        """Return R_i."""
        return np.asarray(np.ldexp(self.integers[attribute].astype(np.float64), -self.bits[attribute]))

    def answers(self, term: int) -> bool:
        """Whether a term of the workload is answered, or partly answered, by this block."""
        return self.terms is None or term in self.terms

    @property
    def full_precisions(self) -> AnyTensor:
        """Precisions written out in the block's shape."""
        return np.broadcast_to(self.precisions, self.shape)


@final
@dataclass(frozen=True, eq=False)
class BlockStrategy:
    """An implicit strategy.

    Attributes:
        blocks: what is measured.
        family: the family that found it.
    """

    blocks: tuple[Block, ...]
    family: str

    kind = "blocks"

    def __repr__(self) -> str:
        return f"BlockStrategy({self.family}, {len(self.blocks)} blocks, {self.num_rows} rows)"

    @property
    def num_rows(self) -> int:
        """Number of queries measured."""
        return sum(block.num_rows for block in self.blocks)

    def matrix(self) -> RealMatrix:
        """Return the strategy written out, rows scaled to equal noise, without public rows; refused when too large."""
        n = math.prod(factor.shape[1] for factor in self.blocks[0].integers)
        rows = self.num_rows
        fits("strategy.matrix", f"{rows} x {n}", rows * n * 8, advice="Export the factors instead.")
        found = []
        for block in self.blocks:
            weights = np.sqrt(block.full_precisions.ravel())
            noisy = np.isfinite(weights)
            dense = reduce(np.kron, [block.factor(i) for i in range(len(block.integers))])
            found.append(weights[noisy, None] * dense[noisy])
        return np.concatenate(found)


def apply_factors(factors: Sequence[AnyArray], tensor: AnyArray) -> AnyArray:
    """Return (F_1 (x) ... (x) F_d) applied to a tensor with one axis an attribute."""
    for axis, factor in enumerate(factors):
        tensor = np.moveaxis(np.tensordot(factor, tensor, axes=(1, axis)), 0, axis)
    return tensor


def from_factors(factors: Sequence[RealMatrix], precisions: AnyTensor, terms: tuple[int, ...] | None = None) -> Block:
    """Put a block on a grid: whole factors stay as they are, others get binary places.

    Guarantees:
        Rows that are constant stay constant, so what no edge sees stays unseen. The inverses are those of the integers.
    """
    whole = [bool(np.array_equal(factor, np.rint(factor))) for factor in factors]
    places = min(_BITS, _ALL_BITS // max(1, len(factors) - sum(whole)))
    bits = tuple(0 if exact else places for exact in whole)
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


def _normalised(factor: RealMatrix, whole: bool) -> tuple[RealMatrix, RealVector]:
    """Rows scaled to largest entry 1, and their sizes; whole factors are left alone."""
    sizes = np.ones(len(factor)) if whole else np.abs(factor).max(axis=1)
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
