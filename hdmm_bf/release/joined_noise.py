"""Noise of blocks that join attributes: N = y + sum_l K_l (z_l - T_l y) - K S y, exactly, and how queries carry it.

Privacy-critical: a move p that a block hides shifts y by p and z_l by T_l p, which are whole, and so N by p. All that
is computed here is a function of y and z in whole numbers over a power of two: nothing is rounded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, TypeAlias, final

import numpy as np

from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector, SparseMatrix
from hdmm_bf.certificate.joined import MOST_UNEVEN, Sector, mixed, outside_share, sectors, unevenness
from hdmm_bf.matrix import apply_factors
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.row_noise import draw_rows
from hdmm_bf.release.whole_numbers import along, from_limbs, limbs
from hdmm_bf.strategies.records import AnyTensor, JoinedBlock
from hdmm_bf.workload import Boxes

_VECTORS = 32
"""Vectors that are carried through the queries at a time."""

_NEGLIGIBLE = 1e-15
"""Share of the largest of the numbers lambda below which one is rounding."""


Times: TypeAlias = Callable[[AnyArray, AnyArray], AnyArray]
"""A product of matrices, along the first axis of a tensor."""


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
    """A covariance over the joined attributes in one sector: diag(own) + sum_k sizes_k u_k u_k^T.

    Attributes:
        uneven: the mixed attributes outside of which the sector has what is left of their means (see
            `certificate.joined`).
    """

    uneven: tuple[int, ...]
    own: RealVector
    sizes: RealVector
    vectors: RealMatrix


Spreads: TypeAlias = tuple[Spread, ...]

Drawn: TypeAlias = tuple[AnyArray, list[AnyArray]]
"""y, n x the sizes outside x draws, in records; and for every layer z, rows x the sizes it keeps x draws, in units of
2^-bits."""


@final
@dataclass(frozen=True, eq=False)
class JoinedNoise:
    """A joined block of a problem."""

    product: ProductProblem
    block: JoinedBlock

    @cached_property
    def _totals(self) -> tuple[SparseMatrix, tuple[int, ...]]:
        return kept_totals(self.product, self.block.axes, self.block.hides)

    @cached_property
    def _outside(self) -> tuple[int, ...]:
        return self.block.outside(len(self.product.sizes))

    @property
    def places(self) -> int:
        """Binary places of the exact noise."""
        return self.block.bits + self.block.gain_bits

    def _sizes(self, attributes: Sequence[int]) -> list[int]:
        return [self.product.sizes[i] for i in attributes]

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws."""
        own = math.prod(self.product.sizes)
        return own + sum(len(layer.rows) * math.prod(self._sizes(layer.keeps)) for layer in self.block.layers)

    def draw(self, settled: Plan, callback: Callable[[int], None] | None, count: int = 1) -> Drawn:
        """Draw y, one a cell, and z, one for every row of every layer at every value that it keeps, so many times."""
        found, sampler = scales(self.block, settled), settled.row_sampler
        shape = (self.block.weights.size, *self._sizes(self._outside), count)
        own = found.values.reshape(-1, *[1] * (len(shape) - 1))
        y = draw_rows(sampler, np.broadcast_to(own, shape), callback)
        shapes = [(len(layer.rows), *self._sizes(layer.keeps), count) for layer in self.block.layers]
        return y, [draw_rows(sampler, np.full(shape, found.rows), None) for shape in shapes]

    def exact(self, y: AnyArray, z: Sequence[AnyArray]) -> AnyArray:
        """Return N times 2^places over the cells, in whole numbers, of noise that was drawn once."""

        def times(matrix: AnyArray, tensor: AnyArray) -> AnyArray:
            if not matrix.size or not tensor.size:
                return np.zeros((len(matrix), *tensor.shape[1:]), dtype=object)
            return from_limbs(along(limbs(matrix), limbs(tensor), 0))

        whole = [own.astype(object) for own in z]
        rows = [layer.rows for layer in self.block.layers]
        added = self._added(y.astype(object), whole, times, rows, unit=2**self.block.bits)
        return self._over_cells((y.astype(object) << self.places) + added)[..., 0]

    def approximate(self, y: AnyArray, z: Sequence[AnyArray]) -> AnyTensor:
        """Return N over the cells in floating point, for simulations alone: draws along the last axis."""

        def times(matrix: AnyArray, tensor: AnyArray) -> AnyArray:
            return np.tensordot(matrix, tensor, axes=1)

        block = self.block
        rows = [np.ldexp(layer.rows.astype(np.float64), -block.bits) for layer in block.layers]
        values = y.astype(np.float64)
        scaled = [np.ldexp(own.astype(np.float64), -block.bits) for own in z]
        added = self._added(values, scaled, times, rows, unit=1)
        return np.asarray(self._over_cells(values + np.ldexp(added, -block.gain_bits)), dtype=np.float64)

    def _added(
        self, y: AnyArray, z: Sequence[AnyArray], times: Times, rows: Sequence[AnyArray], *, unit: int
    ) -> AnyArray:
        """Return sum_l K_l (z_l - T_l y) - K S y, in units of gains times units of z, of which a record has `unit`."""
        pairs = zip(self.block.layers, z, rows, strict=True)
        told = [
            (layer.keeps, own - times(T, self._summed(y, self._outside, layer.keeps)), layer.gains)
            for layer, own, T in pairs
        ]
        S, kept = self._totals
        sums = times(S.toarray().astype(np.int64), self._summed(y, self._outside, kept))
        told.append((kept, -unit * sums, self.block.totals))
        added: AnyArray = np.zeros_like(y)
        for keeps, numbers, gains in told:
            for own in gains:
                found = times(own.integers, self._summed(numbers, keeps, own.keeps))
                shape = [self.product.sizes[i] if i in own.keeps else 1 for i in self._outside]
                added = added + found.reshape(len(found), *shape, y.shape[-1])
        return added

    def _summed(self, tensor: AnyArray, attributes: tuple[int, ...], kept: tuple[int, ...]) -> AnyArray:
        """Sum over the attributes that are not kept; the first axis is rows or values, the last draws."""
        return np.asarray(tensor.sum(axis=tuple(1 + k for k, i in enumerate(attributes) if i not in kept)))

    def _over_cells(self, N: AnyArray) -> AnyArray:
        """From values of the joined attributes by those of the others to the cells; draws come last."""
        order = [*self.block.axes, *self._outside]
        tensor = N.reshape(*self._sizes(order), -1)
        return np.asarray(tensor.transpose([*np.argsort(order).tolist(), len(order)]))

    def spreads(self, values: RealVector, rows: float) -> Spreads:
        """Return the covariance of N, sector by sector, given the variances of y and z, in records.

        In a sector N = (I - L M) y + L_z z, so with D and R, the variances of y and of z on rows and 0 on totals, it is
        D - L M D - D M^T L^T + L (M D M^T + R) L^T.
        """
        even = unevenness(self.block) <= MOST_UNEVEN
        return tuple(_spread(sector, values, rows, even=even) for sector in sectors(self.product, self.block))

    def unit_spreads(self) -> Spreads:
        """Return the covariance at a scale of 1 whose unit error is 1."""
        return self.spreads(np.ldexp(self.block.weights.astype(np.float64), -self.block.bits) ** -2, 1.0)

    def settled_spreads(self, settled: Plan) -> Spreads:
        """Return the covariance of a release."""
        own, found = settled.row_sampler, scales(self.block, settled)
        if own is None:  # nothing is protected, so there is no noise
            return self.spreads(np.zeros(self.block.weights.size), 0.0)
        levels, place = np.unique(found.values, return_inverse=True)
        variances = np.array([replace(own, scale=level).variance for level in levels.tolist()])
        rows = math.ldexp(replace(own, scale=found.rows).variance, -2 * self.block.bits)
        return self.spreads(variances[place], rows)

    def total(self, spreads: Spreads, terms: Sequence[Term]) -> float:
        """Return the sum of the variances of all queries of some terms."""
        shape, total = self._sizes(self.block.axes), 0.0
        for spread, term in itertools.product(spreads, terms):
            own = [np.diag(term.grams[i]) for i in self.block.axes]
            diagonal = np.asarray(apply_factors([d[None] for d in own], spread.own.reshape(shape))).item()
            vectors = spread.vectors.reshape(*shape, -1)
            through = apply_factors([term.grams[i] for i in self.block.axes], vectors)
            carried = (vectors * through).sum(axis=tuple(range(len(shape))))
            share = outside_share(self.product, self.block, term, spread.uneven)
            total += share * (diagonal + float(spread.sizes @ carried))
        return total

    def of_term(self, spreads: Spreads, term: Term) -> RealVector:
        """Return the variance of every query of a term."""
        axes = self.block.axes
        total: AnyArray = np.zeros(())
        for spread in spreads:
            shape = self._sizes(axes)
            squares = [_squared(term.factors[i].dense()) for i in axes]
            found: AnyArray = np.asarray(apply_factors(squares, spread.own.reshape(shape)))
            for start in range(0, spread.sizes.size, _VECTORS):
                some = slice(start, start + _VECTORS)
                vectors = spread.vectors[:, some].reshape(*shape, -1)
                for axis, i in enumerate(axes):
                    moved = np.moveaxis(vectors, axis, 0)
                    mapped = term.factors[i].mv(moved.reshape(len(moved), -1)).reshape(-1, *moved.shape[1:])
                    vectors = np.moveaxis(mapped, 0, axis)
                found = found + np.square(vectors) @ spread.sizes[some]
            for i in self._outside:
                factor = np.asarray(term.factors[i].dense(), dtype=np.float64)
                seen = self._seen(i, spread, _squared(factor).sum(axis=1), factor.sum(axis=1))
                found = found[..., None] * seen
            total = total + found
        back = np.argsort([*axes, *self._outside])
        return np.asarray(term.weight**2 * total.transpose(back)).ravel()

    def of_boxes(self, spreads: Spreads, boxes: Boxes, chosen: IndexArray) -> RealVector:
        """Return the variances of boxes, by sums over the vectors' summed-area tables."""
        axes = self.block.axes
        shape = tuple(self._sizes(axes))
        own = Boxes(shape, boxes.low[chosen][:, axes], boxes.high[chosen][:, axes])
        widths = (boxes.high - boxes.low + 1)[chosen].astype(np.float64)
        total = np.zeros(len(chosen))
        for spread in spreads:
            found = own.mv(spread.own)
            for start in range(0, spread.sizes.size, _VECTORS):
                some = slice(start, start + _VECTORS)
                found = found + np.square(own.mv(spread.vectors[:, some])) @ spread.sizes[some]
            for i in self._outside:
                found = found * self._seen(i, spread, widths[:, i], widths[:, i])
            total = total + found
        return np.asarray(total)

    def _seen(self, attribute: int, spread: Spread, squares: RealVector, sums: RealVector) -> RealVector:
        """How much of a sector queries see along an attribute outside, from their squared sizes and their sums."""
        even = sums**2 / self.product.sizes[attribute]
        if attribute not in self._mixed:
            return squares
        return squares - even if attribute in spread.uneven else even

    @cached_property
    def _mixed(self) -> tuple[int, ...]:
        return mixed(self.product, self.block)


def _spread(sector: Sector, values: RealVector, rows: float, *, even: bool) -> Spread:
    """The covariance of a sector; where there are many rows, or it is uneven, it is written out."""
    L, M, p = sector.gains, sector.told, sector.num_rows
    n, r = L.shape
    if 2 * r >= n or not even:
        F = np.eye(n) - L @ M
        vectors, deviations, _ = np.linalg.svd(
            np.hstack([F * np.sqrt(values), math.sqrt(rows) * L[:, :p]]), full_matrices=False
        )
        large = deviations > _NEGLIGIBLE * deviations.max(initial=0.0)
        return Spread(sector.uneven, np.zeros(n), deviations[large] ** 2, vectors[:, large])
    MD = M * values
    middle = MD @ M.T
    middle[np.arange(p), np.arange(p)] += rows
    both, basis = np.hstack([L, MD.T]), np.zeros((2 * r, 2 * r))
    basis[:r, :r] = middle
    basis[:r, r:] = basis[r:, :r] = -np.eye(r)
    Q, R = np.linalg.qr(both)
    sizes, U = np.linalg.eigh(R @ basis @ R.T)
    large = np.abs(sizes) > _NEGLIGIBLE * np.abs(sizes).max(initial=0.0)
    return Spread(sector.uneven, values, sizes[large], Q @ U[:, large])


def _squared(matrix: AnyArray) -> RealMatrix:
    return np.asarray(matrix, dtype=np.float64) ** 2
