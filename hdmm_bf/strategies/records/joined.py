"""Noise by rows that are no products, on several tables at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Int64

from hdmm_bf.strategies.records.owned import owned


@final
@dataclass(frozen=True, eq=False)
class Gains:
    """What numbers add to the estimate of every value, on a grid.

    Attributes:
        keeps: the attributes outside the block over whose values the numbers are not summed before they are multiplied,
            ascending; what is added is the same for all values of the others.
        integers: n x p, times 2^gain_bits of the block.
    """

    keeps: tuple[int, ...]
    integers: Int64[np.ndarray, "n p"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "integers", owned(self.integers))


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """Rows of a `JoinedBlock` in one table: on totals over some of the attributes outside the block.

    Attributes:
        keeps: the attributes outside the block whose values the table tells apart, ascending; it sums over the others.
        rows: T times 2^bits of the block, p x n, for every value it keeps; their noise z has the scale of the release.
        gains: what z - T y adds to the estimate, a sum over subsets of what the layer keeps.
    """

    keeps: tuple[int, ...]
    rows: Int64[np.ndarray, "p n"]
    gains: tuple[Gains, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", owned(self.rows))


@final
@dataclass(frozen=True, eq=False)
class JoinedBlock:
    """Noise that hides the moves along some attributes by rows that are no products, on several tables at once.

    With noise y on every cell, noise z_l on rows T_l over a table, and S the totals that the moves leave alone,

        N = y + sum_l K_l (z_l - T_l y) - K S y

    is added to the counts. A move p has S p = 0, so y shifted by p and z_l by T_l p is N shifted by p, whatever the
    gains K are: the loss is that of y and z. Everything is whole over a power of two, so sums are exact.

    Rows are over the values of the joined attributes together; the others are kept by a layer, or summed over.

    Attributes:
        axes: the joined attributes, ascending; n is the product of their sizes, values in row-major order.
        hides: the attributes whose edges are hidden, ascending, joined or not.
        weights: of every value, times 2^bits, at least 1: its noise y has the scale of the release over the weight.
        layers: the rows.
        totals: gains of the totals (see `public_totals.kept_totals`), sums over subsets of the attributes they keep.
        bits: binary places of weights and rows.
        gain_bits: binary places of the gains.
    """

    axes: tuple[int, ...]
    hides: tuple[int, ...]
    weights: Int64[np.ndarray, " n"]
    layers: tuple[Layer, ...]
    totals: tuple[Gains, ...]
    bits: int
    gain_bits: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", owned(self.weights))

    @property
    def num_rows(self) -> int:
        """Numbers of noise for every value that a layer keeps, and for every value of the attributes outside."""
        return self.weights.size + sum(len(layer.rows) for layer in self.layers)

    def outside(self, count: int) -> tuple[int, ...]:
        """Return the attributes, of so many, that are not joined."""
        return tuple(i for i in range(count) if i not in self.axes)
