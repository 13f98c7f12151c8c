"""Noise of blocks that join attributes: N = Q (y + K_1 (z - T y) - K_2 S y), exactly, and how queries carry it.

Privacy-critical: a move p along the hidden attribute shifts y by p and z by T p, which are whole, and so N by p. All
that is computed here is a function of y and z in whole numbers over a power of two: nothing is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, final

import numpy as np

from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector, SparseMatrix
from hdmm_bf.matrix import apply_factors
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import kept_totals, others_of_totals
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.row_noise import draw_rows
from hdmm_bf.release.whole_numbers import along, from_limbs, limbs
from hdmm_bf.strategies.records import AnyTensor, JoinedBlock
from hdmm_bf.workload import Boxes

_VECTORS = 32
"""Vectors that are carried through the queries at a time."""

_NEGLIGIBLE = 1e-15
"""Share of the largest of the numbers lambda below which one is rounding."""


class Scales(NamedTuple):
    """Scales of whole-number noise: of y in records, one for each value, and of z in units of 2^-bits."""

    values: RealVector
    rows: float


def scales(block: JoinedBlock, settled: Plan) -> Scales:
    """Return the scales of a release.

    Guarantees:
        A value of weight w has a scale s with s w >= unit, and rows have one of at least the unit, the scale of the
        release in units of 2^-bits, in exact arithmetic: never less noise than the sensitivity was derived for.
    """
    if settled.row_sampler is None:
        return Scales(np.zeros(block.weights.size), 0.0)
    unit = Fraction(settled.row_sampler.scale) * Fraction(2) ** (block.bits - settled.bits)
    levels, place = np.unique(block.weights, return_inverse=True)
    found = np.array([_at_least(unit / weight) for weight in levels.tolist()])
    return Scales(found[place], _at_least(unit))


def _at_least(value: Fraction) -> float:
    """Return the least float, to rounding, that is not below a number."""
    found = float(value)
    while Fraction(found) < value:
        found = math.nextafter(found, math.inf)
    return found


@final
@dataclass(frozen=True, eq=False)
class Spread:
    """A covariance over the joined attributes: diag(own) + sum_k sizes_k u_k u_k^T."""

    own: RealVector
    sizes: RealVector
    vectors: RealMatrix


@final
@dataclass(frozen=True, eq=False)
class JoinedNoise:
    """A joined block of a problem."""

    product: ProductProblem
    block: JoinedBlock

    @cached_property
    def _totals(self) -> SparseMatrix:
        return kept_totals(self.product, self.block.axes, self.block.hides)

    @property
    def places(self) -> int:
        """Binary places of the exact noise."""
        return self.block.bits + self.block.gain_bits

    def _apart(self) -> list[int]:
        return [i for i in range(len(self.product.sizes)) if i not in self.block.axes]

    def _others(self) -> int:
        return math.prod(self.product.sizes[i] for i in self._apart())

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws."""
        return self.block.num_rows * self._others()

    def draw(self, settled: Plan, callback: Callable[[int], None] | None, count: int = 1) -> tuple[AnyArray, AnyArray]:
        """Draw y, one a value, and z, one a row, for every value of the other attributes, so many times."""
        found, columns = scales(self.block, settled), self._others() * count
        y = draw_rows(
            settled.row_sampler, np.broadcast_to(found.values[:, None], (found.values.size, columns)), callback
        )
        z = draw_rows(settled.row_sampler, np.full((len(self.block.rows), columns), found.rows), None)
        return y, z

    def exact(self, y: AnyArray, z: AnyArray) -> AnyArray:
        """Return N times 2^places over the cells, in whole numbers.

        Args:
            y: noise of the values, n x others, in records.
            z: noise of the rows, p x others, in units of 2^-bits.
        """
        block, S = self.block, self._totals
        told = z.astype(object) - from_limbs(along(limbs(block.rows), limbs(y), 0)) if len(z) else z.astype(object)
        kept = -(_sums(S, y.astype(object)) << block.bits)
        N: AnyArray = y.astype(object) << self.places
        if block.gains.shape[1]:
            N = N + from_limbs(along(limbs(block.gains), limbs(np.concatenate([told, kept])), 0))
        if S.shape[0]:
            N[_first(S)] -= _sums(S, N)
        return self._over_cells(N)

    def approximate(self, y: AnyArray, z: AnyArray) -> AnyTensor:
        """Return N over the cells in floating point, for simulations alone: further draws along the last axis."""
        block, S = self.block, self._totals
        T = np.ldexp(block.rows.astype(np.float64), -block.bits)
        K = np.ldexp(block.gains.astype(np.float64), -block.gain_bits)
        values = y.astype(np.float64)
        told = np.concatenate([np.ldexp(z.astype(np.float64), -block.bits) - T @ values, -(S @ values)])
        N = values + K @ told
        first, others = others_of_totals(S)
        N[first] = -(others @ N)
        return np.asarray(self._over_cells(N))

    def _over_cells(self, N: AnyArray) -> AnyArray:
        """From values of the joined attributes by values of the others to the cells; what is more comes last."""
        sizes, order = self.product.sizes, [*self.block.axes, *self._apart()]
        tensor = N.reshape(*(sizes[i] for i in order), -1)
        back = [*np.argsort(order).tolist(), len(sizes)]
        cells = tensor.transpose(back)
        return cells[..., 0] if cells.shape[-1] == 1 else cells

    def spread(self, values: RealVector, rows: float) -> Spread:
        """Return the covariance of N for one value of the other attributes, given the variances of y and z, in records.

        N = (I - L M) y + Q K_1 z with L = [Q K_1, Q K_2 + first values] and M = [T; S], so that it is
        D - L M D - D M^T L^T + L (M D M^T + R) L^T, R being the variance of z on the rows and 0 on the totals.
        """
        block, S = self.block, self._totals
        T = np.ldexp(block.rows.astype(np.float64), -block.bits)
        L = np.ldexp(block.gains.astype(np.float64), -block.gain_bits)
        first, others = others_of_totals(S)
        L[first] = -(others @ L)
        L[first, len(T) + np.arange(S.shape[0])] += 1.0
        M = np.vstack([T, S.toarray()])
        MD = M * values
        middle = MD @ M.T
        middle[np.arange(len(T)), np.arange(len(T))] += rows
        r = len(M)
        both, basis = np.hstack([L, MD.T]), np.zeros((2 * r, 2 * r))
        basis[:r, :r] = middle
        basis[:r, r:] = basis[r:, :r] = -np.eye(r)
        Q, R = np.linalg.qr(both)
        sizes, U = np.linalg.eigh(R @ basis @ R.T)
        large = np.abs(sizes) > _NEGLIGIBLE * np.abs(sizes).max(initial=0.0)
        return Spread(values, sizes[large], Q @ U[:, large])

    def unit_spread(self) -> Spread:
        """Return the covariance at a scale of 1 whose unit error is 1."""
        return self.spread(np.ldexp(self.block.weights.astype(np.float64), -self.block.bits) ** -2, 1.0)

    def settled_spread(self, settled: Plan) -> Spread:
        """Return the covariance of a release."""
        own, found = settled.row_sampler, scales(self.block, settled)
        if own is None:
            return Spread(0 * found.values, np.empty(0), np.empty((found.values.size, 0)))
        levels, place = np.unique(found.values, return_inverse=True)
        variances = np.array([replace(own, scale=level).variance for level in levels.tolist()])
        rows = math.ldexp(replace(own, scale=found.rows).variance, -2 * self.block.bits)
        return self.spread(variances[place], rows)

    def total(self, spread: Spread, terms: Sequence[Term]) -> float:
        """Return the sum of the variances of all queries of some terms."""
        shape = [self.product.sizes[i] for i in self.block.axes]
        total = 0.0
        for term in terms:
            own = [np.diag(term.grams[i]) for i in self.block.axes]
            diagonal = np.asarray(apply_factors([d[None] for d in own], spread.own.reshape(shape))).item()
            vectors = spread.vectors.reshape(*shape, -1)
            through = apply_factors([term.grams[i] for i in self.block.axes], vectors)
            carried = (vectors * through).sum(axis=tuple(range(len(shape))))
            others = math.prod(float(np.trace(term.grams[i])) for i in self._apart())
            total += term.weight**2 * others * (diagonal + float(spread.sizes @ carried))
        return total

    def of_term(self, spread: Spread, term: Term) -> RealVector:
        """Return the variance of every query of a term."""
        axes = self.block.axes
        shape = [self.product.sizes[i] for i in axes]
        squares = [_squared(term.factors[i].dense()) for i in range(len(self.product.sizes))]
        found = apply_factors([squares[i] for i in axes], spread.own.reshape(shape))
        for start in range(0, spread.sizes.size, _VECTORS):
            some = slice(start, start + _VECTORS)
            vectors = spread.vectors[:, some].reshape(*shape, -1)
            for axis, i in enumerate(axes):
                moved = np.moveaxis(vectors, axis, 0)
                mapped = term.factors[i].mv(moved.reshape(len(moved), -1)).reshape(-1, *moved.shape[1:])
                vectors = np.moveaxis(mapped, 0, axis)
            found = found + np.square(vectors) @ spread.sizes[some]
        apart = [squares[i].sum(axis=1) for i in self._apart()]
        every: AnyArray = np.asarray(found)
        for own in apart:
            every = every[..., None] * own
        back = np.argsort([*axes, *self._apart()])
        return np.asarray(term.weight**2 * every.transpose(back)).ravel()

    def of_boxes(self, spread: Spread, boxes: Boxes, chosen: IndexArray) -> RealVector:
        """Return the variances of boxes, by sums over the vectors' summed-area tables."""
        axes = self.block.axes
        shape = tuple(self.product.sizes[i] for i in axes)
        own = Boxes(shape, boxes.low[chosen][:, axes], boxes.high[chosen][:, axes])
        found = own.mv(spread.own)
        for start in range(0, spread.sizes.size, _VECTORS):
            some = slice(start, start + _VECTORS)
            found = found + np.square(own.mv(spread.vectors[:, some])) @ spread.sizes[some]
        widths = (boxes.high - boxes.low + 1)[chosen][:, self._apart()]
        return np.asarray(found * widths.prod(axis=1))


def _squared(matrix: AnyArray) -> RealMatrix:
    return np.asarray(matrix, dtype=np.float64) ** 2


def _first(S: SparseMatrix) -> IndexArray:
    """The first value of every total."""
    return np.asarray(S.indices[S.indptr[:-1]])


def _sums(S: SparseMatrix, values: AnyArray) -> AnyArray:
    """S times whole numbers of any size; every value is in one total at most."""
    if not S.shape[0]:
        return values[:0]
    return np.asarray(np.add.reduceat(values[S.indices], S.indptr[:-1], axis=0))
