"""Strategies of blocks: rows that are products of rows, and noise that is added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import RealMatrix
from hdmm_bf.strategies.records.joined import JoinedBlock

AnyTensor: TypeAlias = Float64[np.ndarray, "..."]


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Rows that are products of rows.

    Attributes:
        integers: for every attribute the factor times 2^bits, r_i x n_i.
        bits: binary places of every factor.
        precisions: one precision per row, r_1 x ... x r_d: 1 / variance, relative to the noise of the release; infinite
            for public rows. May be given as a tensor that broadcasts to that shape.
        inverses: for every attribute G_i, n_i x r_i: what a measured row adds to the estimate.
        terms: terms of the workload that this block answers alone; None when the blocks complement each other.
        edges: in a `NoiseSum`, the attribute whose factor has a column for every edge of its policy, not for every
            value; None where all columns are values.
    """

    integers: tuple[Int64[np.ndarray, "_ _"], ...]
    bits: tuple[int, ...]
    precisions: AnyTensor
    inverses: tuple[RealMatrix, ...]
    terms: tuple[int, ...] | None = None
    edges: int | None = None

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
class ProductStrategy:
    """An implicit strategy for domains too large to write a matrix over their cells.

    A block measures every product of rows, one from an integer factor of each attribute, each with a precision of its
    own. A row that no edge of the policy sees (a public total) has infinite precision and is measured without noise.

    Attributes:
        blocks: what is measured.
        family: the family that found it.
    """

    blocks: tuple[Block, ...]
    family: str

    kind: ClassVar[Literal["blocks"]] = "blocks"
    column: ClassVar[Literal["cell"]] = "cell"

    def __repr__(self) -> str:
        return f"ProductStrategy({self.family}, {len(self.blocks)} blocks, {self.num_rows} rows)"

    @property
    def num_rows(self) -> int:
        """Number of queries measured."""
        return sum(block.num_rows for block in self.blocks)

    def matrix(self) -> RealMatrix:
        """Return the strategy written out, rows scaled to equal noise, without public rows; refused when too large."""
        n = math.prod(factor.shape[1] for factor in self.blocks[0].integers)
        rows = self.num_rows
        fits("strategy.matrix", f"{rows} x {n}", rows * n * 8, advice="Export the factors instead.")
        parts = []
        for block in self.blocks:
            weights = np.sqrt(block.full_precisions.ravel())
            noisy = np.isfinite(weights)
            dense = reduce(np.kron, [block.factor(i) for i in range(len(block.integers))])
            parts.append(weights[noisy, None] * dense[noisy])
        return np.concatenate(parts)


@final
@dataclass(frozen=True, eq=False)
class NoiseSum:
    """Noise on the cells, by factors: x + sum_b (G_1 (x) ... (x) G_d) noise_b is published, one block a kind of move.

    An edge of the policy moves a record along one attribute; the noise of the block that hides this attribute takes the
    move up, whatever the other blocks add. So no block pays for the moves of others, and each knows what stays the
    same under its own. Only the sum may be published, never the noisy rows of a block.

    Attributes:
        blocks: factors of full column rank and the precision of every row; rows of infinite precision have no noise.
        hides: for every block the attributes whose edges it hides. A block that hides several has one precision, and
            what its noise does to public totals is taken off again.
        family: the family that found it.
        joined: blocks whose rows are no products, added up with the others.
    """

    blocks: tuple[Block, ...]
    hides: tuple[tuple[int, ...], ...]
    family: str
    joined: tuple[JoinedBlock, ...] = ()

    kind: ClassVar[Literal["noise"]] = "noise"
    column: ClassVar[Literal["cell"]] = "cell"

    def __repr__(self) -> str:
        return f"NoiseSum({self.family}, {self.num_blocks} blocks, {self.num_rows} rows)"

    @property
    def num_blocks(self) -> int:
        """Number of blocks, of products of rows and of joined ones."""
        return len(self.blocks) + len(self.joined)

    @property
    def num_rows(self) -> int:
        """Number of rows that carry noise, or would; of joined blocks for one value of the other attributes."""
        return sum(block.num_rows for block in self.blocks) + sum(block.num_rows for block in self.joined)

    def matrix(self) -> RealMatrix:
        """Refuse: there is no one matrix whose noisy answers may be published."""
        advice = "Export the factors instead."
        raise fail("strategy.matrix", repr(self), "is noise for every kind of move, and no one matrix", advice)
