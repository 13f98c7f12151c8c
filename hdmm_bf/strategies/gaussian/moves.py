"""How far the edges of a policy move X = S diag(M) S^T: d_e(M) = p_e^T X p_e, its adjoint, and its slope in the bases.

    along one attribute    an edge of attribute i at the cells c of the others:
                           d = sum_J M_J A_{i e j_i} prod_{k != i} C_{k c_k j_k}
    in a ball              cells a and a + o for every offset o of L1 length 1 to the threshold:
                           d = D_a + D_{a+o} - 2 sum_J M_J prod_k E_{k |o_k| a_k j_k}
                           D_a = sum_J M_J prod_k C_{k a_k j_k}

(A and C: see `attribute`; E_{k s a j} = S_k[a, j] S_k[a + s, j], so that E_0 = C.) Contractions run axis by axis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float64

from hdmm_bf._types import RealMatrix
from hdmm_bf.matrix import apply_factors
from hdmm_bf.policy.constructors import offset_windows, offsets
from hdmm_bf.strategies.gaussian.attribute import Attribute

Tensor = Float64[np.ndarray, "..."]


class Moves(ABC):
    """The edges of a policy, in groups of one shape each, as bases see them.

    Args:
        attributes: one an attribute; the same object twice where two attributes are equal.
    """

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self.attributes = tuple(attributes)

    @cached_property
    @abstractmethod
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of every group of edges."""

    @abstractmethod
    def distances(self, M: Tensor) -> list[Tensor]:
        """Return d for every group."""

    @abstractmethod
    def pull(self, weights: Sequence[Tensor]) -> Tensor:
        """Return q = sum_e weight_e dd_e / dM."""

    @abstractmethod
    def slopes(self, weights: Sequence[Tensor], M: Tensor) -> tuple[list[RealMatrix], Tensor]:
        """Return sum_e weight_e dd_e / dS_i for every attribute, and q."""


@final
class AlongOne(Moves):
    """Edges of a Cartesian product: each changes one attribute. Of two equal attributes one has them."""

    @cached_property
    def types(self) -> list[int]:
        """The attributes whose edges are looked at."""
        every = [i for i, a in enumerate(self.attributes) if a.has_edges]
        return every[:1] if len(self.attributes) == 2 and self.attributes[0] is self.attributes[1] else every

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Edges of one attribute by cells of the others."""
        counts = [(a.moves.shape[1], a.cells.size) for a in self.attributes]
        return [tuple(edges if i == kind else cells for i, (edges, cells) in enumerate(counts)) for kind in self.types]

    def _matrices(self, kind: int) -> list[RealMatrix]:
        return [a.A if i == kind else a.C for i, a in enumerate(self.attributes)]

    def distances(self, M: Tensor) -> list[Tensor]:
        """Return d for every type of edge."""
        return [apply_factors(self._matrices(kind), M) for kind in self.types]

    def pull(self, weights: Sequence[Tensor]) -> Tensor:
        """Return q = sum_e weight_e dd_e / dM."""
        q: Tensor = np.zeros([a.n for a in self.attributes])
        for kind, w in zip(self.types, weights, strict=True):
            q = q + apply_factors([m.T for m in self._matrices(kind)], w)
        return q

    def slopes(self, weights: Sequence[Tensor], M: Tensor) -> tuple[list[RealMatrix], Tensor]:
        """Return the slopes through A and C."""
        found = [np.zeros_like(a.S) for a in self.attributes]
        q: Tensor = np.zeros(M.shape)
        for kind, w in zip(self.types, weights, strict=True):
            transposed = [m.T for m in self._matrices(kind)]
            for axis, a in enumerate(self.attributes):
                left = apply_factors([None if i == axis else m for i, m in enumerate(transposed)], w)
                slope = unfold(left, axis) @ unfold(M, axis).T
                if axis == kind:
                    found[axis] += a.moves @ (2 * a.E * slope)
                    q = q + apply_factors([m if i == axis else None for i, m in enumerate(transposed)], left)
                else:
                    found[axis][a.cells] += 2 * a.S[a.cells] * slope
        return found, q


@final
class InBalls(Moves):
    """Edges between all cells at L1 distance 1 to `threshold`: one group for every offset, half of all offsets.

    Offsets that differ in signs alone have one sum over the products, so they are contracted together.
    """

    def __init__(self, attributes: Sequence[Attribute], threshold: int) -> None:
        super().__init__(attributes)
        self.sizes = tuple(a.n for a in self.attributes)
        self.offsets = list(offsets(self.sizes, threshold))
        self.windows = [offset_windows(self.sizes, offset) for offset in self.offsets]
        self.lengths = [tuple(map(abs, offset)) for offset in self.offsets]

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Cells a for which a + o is a cell."""
        return [tuple(n - s for n, s in zip(self.sizes, length, strict=True)) for length in self.lengths]

    def _pairs(self, axis: int, length: int) -> RealMatrix:
        """E: products of a column's values at all cells so far apart."""
        S = self.attributes[axis].S
        return np.asarray(S[: len(S) - length] * S[length:])

    def _factors(self, lengths: Sequence[int]) -> list[RealMatrix]:
        return [self._pairs(axis, length) for axis, length in enumerate(lengths)]

    def distances(self, M: Tensor) -> list[Tensor]:
        """Return d for every offset; what is below zero is rounding."""
        own = apply_factors(self._factors([0] * M.ndim), M)
        both = {length: apply_factors(self._factors(length), M) for length in dict.fromkeys(self.lengths)}
        return [
            np.maximum(own[near] + own[far] - 2 * both[length], 0.0)
            for (near, far), length in zip(self.windows, self.lengths, strict=True)
        ]

    def _collected(self, weights: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        """What multiplies the products of every length: the weight of every cell's edges, then -2 that of the edges."""
        cells: Tensor = np.zeros(self.sizes)
        found = {(0,) * len(self.sizes): cells}
        for w, (near, far), length in zip(weights, self.windows, self.lengths, strict=True):
            cells[near] += w
            cells[far] += w
            found[length] = found.get(length, 0.0) - 2 * w
        return found

    def pull(self, weights: Sequence[Tensor]) -> Tensor:
        """Return q = sum_e weight_e dd_e / dM; what is below zero is rounding."""
        q: Tensor = np.zeros(self.sizes)
        for length, w in self._collected(weights).items():
            q = q + apply_factors([E.T for E in self._factors(length)], w)
        return np.asarray(np.maximum(q, 0.0))

    def slopes(self, weights: Sequence[Tensor], M: Tensor) -> tuple[list[RealMatrix], Tensor]:
        """Return the slopes through E."""
        found = [np.zeros_like(a.S) for a in self.attributes]
        q: Tensor = np.zeros(M.shape)
        for length, w in self._collected(weights).items():
            transposed = [E.T for E in self._factors(length)]
            for axis, (a, far) in enumerate(zip(self.attributes, length, strict=True)):
                left = apply_factors([None if i == axis else E for i, E in enumerate(transposed)], w)
                slope = unfold(left, axis) @ unfold(M, axis).T
                found[axis][: a.n - far] += a.S[far:] * slope
                found[axis][far:] += a.S[: a.n - far] * slope
            q = q + apply_factors([E if i == axis else None for i, E in enumerate(transposed)], left)
        return found, q


def unfold(tensor: Tensor, axis: int) -> RealMatrix:
    """Return a tensor as a matrix with one row an index of the axis."""
    return np.moveaxis(tensor, axis, 0).reshape(tensor.shape[axis], -1)
