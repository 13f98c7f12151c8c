"""Sums of noise by factors: x + sum_b (G_b1 (x) ... (x) G_bd) noise_b is published, correctly rounded, and only that.

A move along an attribute shifts the whole-number noise of the block that hides it by a whole vector, so the *exact*
sum is as private as the noise; it is a rational number, and is enclosed so tightly that only one point of a shifted
grid can belong to it (see `exact`). Public totals are put right afterwards, from what is published and what is public.

Guarantees:
    `private_sum` returns a function of the exact sum and of independent random bits, and of nothing else.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Bool

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector
from hdmm_bf.certificate import Certificate
from hdmm_bf.certificate.joined import check_joined, keeps_totals
from hdmm_bf.data.tables import Tables
from hdmm_bf.matrix import apply_factors
from hdmm_bf.problem.product import ProductProblem, incidence
from hdmm_bf.problem.public_totals import indicators
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.exact import FIRST_BITS, GRID_BITS, MORE_BITS, MOST_BITS, SHIFT_BITS, rounded_to_grid
from hdmm_bf.release.joined_noise import Drawn, JoinedNoise, Spreads, scales
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.products import Pairs, ProductRecovery
from hdmm_bf.release.reconstruction import Progress, recovery
from hdmm_bf.release.row_noise import draw_rows, row_scales
from hdmm_bf.release.whole_numbers import Enclosed, along, enclosed_inverse, from_limbs, limbs
from hdmm_bf.strategies.records import AnyTensor, Block, NoiseSum
from hdmm_bf.workload import Boxes, Workload

_EACH = 100
"""Bytes for every number of noise, as Python's own whole number and in limbs."""


def enclosed_factors(product: ProductProblem, block: Block, bits: int) -> list[Enclosed]:
    """Return what a row of each factor adds to the estimate, times 2^bits; of a factor over edges P S^+."""
    found = [enclosed_inverse(integers, bits) for integers in block.integers]
    if block.edges is not None:
        G, error = found[block.edges]
        P = incidence(product, block.edges).sparse()
        degree = int(np.abs(P).sum(axis=1).max())
        found[block.edges] = Enclosed(from_limbs(along(limbs(P.toarray()), limbs(G), 0)), degree * error)
    return found


def enclosed_noise(factors: list[Enclosed], noise: AnyArray) -> tuple[AnyArray, int]:
    """Return the product of factors applied to noise, in whole numbers, and a bound on the error of every entry."""
    tensor = limbs(noise)
    for axis, factor in enumerate(factors):
        tensor = along(limbs(factor.matrix), tensor, axis)
    sums = [factor.row_sum for factor in factors]
    wider = [s + factor.matrix.shape[1] * factor.error for s, factor in zip(sums, factors, strict=True)]
    largest = int(np.abs(noise).max(initial=0))
    return from_limbs(tensor), largest * (math.prod(wider) - math.prod(sums))


@final
class ExactNoise:
    """A strategy made ready for exact sums, or refused: nothing here depends on data or noise."""

    def __init__(self, product: ProductProblem, strategy: NoiseSum) -> None:
        self._product, self._strategy = product, strategy
        self._factors: dict[int, list[list[Enclosed]]] = {}
        for block in strategy.joined:
            check_joined(product, block)
        self.joined = [JoinedNoise(product, block) for block in strategy.joined]
        self._at(FIRST_BITS)

    def _at(self, bits: int) -> list[list[Enclosed]]:
        if bits not in self._factors:
            self._factors[bits] = [enclosed_factors(self._product, block, bits) for block in self._strategy.blocks]
        return self._factors[bits]

    def private_sum(self, x: AnyArray, noise: list[AnyArray], joined: Sequence[Drawn] = ()) -> AnyTensor:
        """Return x + sum_b (x) G_b noise_b + the noise of joined blocks, correctly rounded to a shifted grid."""
        shift = 2 * secrets.randbits(SHIFT_BITS) + 1  # odd: never on a coarser point
        counts = x.astype(object)
        added_exactly = [(own.exact(*drawn), own.places) for own, drawn in zip(self.joined, joined, strict=True)]
        for each in range(FIRST_BITS, MOST_BITS, MORE_BITS):
            bits, error = each * x.ndim, 0
            centre = counts << bits
            for whole, places in added_exactly:
                assert places <= bits, "checked by the certificate"
                centre = centre + (whole << (bits - places))
            for factors, drawn in zip(self._at(each), noise, strict=True):
                added, off = enclosed_noise(factors, drawn)
                centre, error = centre + added, error + off
            flat = centre.ravel().tolist()
            low = rounded_to_grid([c - error for c in flat], bits, shift)
            if low == rounded_to_grid([c + error for c in flat], bits, shift):
                return np.array([math.ldexp(value, -GRID_BITS) for value in low]).reshape(x.shape)
        raise fail("release", "noise", "could not be added exactly", "Run the release again; nothing was published.")


@final
@dataclass(frozen=True, eq=False)
class NoiseRecovery(ProductRecovery):
    """Counts plus noise by factors: every query is answered from the same estimate of all cells."""

    strategy: NoiseSum

    @cached_property
    def exact(self) -> ExactNoise:
        """The strategy made ready for exact sums, or refused."""
        return ExactNoise(self.product, self.strategy)

    @cached_property
    def public_totals(self) -> list[RealMatrix]:
        """Indicators of components without BOTTOM, one matrix an attribute: their products are public totals."""
        return [indicators(edges, n) for edges, n in zip(self.product.edges, self.product.sizes, strict=True)]

    @cached_property
    def corrections(self) -> list[RealMatrix]:
        """K_i = Y_i C_i^T (C_i Y_i C_i^T)^-1 of the block that disturbs totals; evenly if none does."""
        pairs = zip(self.strategy.blocks, self.strategy.hides, strict=True)
        joint = next((block for block, hides in pairs if len(hides) > 1), None)
        found = []
        for i, C in enumerate(self.public_totals):
            G = np.eye(C.shape[1]) if joint is None else joint.inverses[i]
            half = (C @ G) @ G.T
            found.append(np.linalg.solve(half @ C.T, half).T)
        return found

    def measure(self, data: Tables, settled: Plan) -> list[AnyArray]:
        """Return the counts; a strategy that cannot be run exactly is refused here, whatever the data."""
        sizes = self.product.sizes
        needed = 400 * math.prod(sizes) + _EACH * self.noise_size + 8 * sum(n**2 for n in sizes)
        fits("release", f"{math.prod(sizes)} cells", needed, advice="Use Gaussian noise.")
        _ = self.exact
        return [np.asarray(data.table(range(len(sizes)))).reshape(sizes)]

    def add_noise(
        self, exact: Sequence[AnyArray], data: Tables, settled: Plan, callback: Progress
    ) -> tuple[AnyTensor, ...]:
        """Return the counts plus noise on a grid, with public totals put right."""
        noise = [draw_rows(settled.row_sampler, row_scales(b, settled), callback) for b in self.strategy.blocks]
        joined = [own.draw(settled, callback) for own in self.exact.joined]
        (x,) = exact
        return (self._put_right(self.exact.private_sum(x, noise, joined), x),)

    def _put_right(self, cells: AnyTensor, x: AnyArray) -> AnyTensor:
        """Take off what noise and rounding did to public totals C x, which are exact.

        Of joined blocks it is rounding. Where their gains do not keep totals, as those of least squares do, nothing is
        taken off: stated variances are those of the noise as it is.
        """
        if not all(map(len, self.public_totals)) or not self._totals_are_kept:
            return cells
        public = apply_factors([C.astype(np.int64) for C in self.public_totals], x)
        off = apply_factors(self.public_totals, cells) - public
        return np.asarray(cells - apply_factors(self.corrections, off))

    @cached_property
    def joined(self) -> list[JoinedNoise]:
        """Blocks that join attributes."""
        return [JoinedNoise(self.product, block) for block in self.strategy.joined]

    @cached_property
    def _totals_are_kept(self) -> bool:
        return all(keeps_totals(self.product, block) for block in self.strategy.joined)

    def public_queries(self, workload: Workload) -> Bool[np.ndarray, " m"]:
        """Return which queries are public, and so exact: none where noise does not keep public totals."""
        found = super().public_queries(workload)
        return found if self._totals_are_kept else np.zeros_like(found)

    def least_scale(self, settled: Plan) -> float:
        """Return the least scale of Laplace noise on a whole number."""
        joined = [scales(block, settled) for block in self.strategy.joined]
        return min([super().least_scale(settled), *(min(float(own.values.min()), own.rows) for own in joined)])

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws."""
        return super().noise_size + sum(own.noise_size for own in self.joined)

    def variances(self, workload: Workload, settled: Plan, chosen: IndexArray | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, with the noise of a plan."""
        spreads = [own.settled_spreads(settled) for own in self.joined]
        return self._with_joined(super().variances(workload, settled, chosen), workload, spreads, chosen)

    def unit_variances(self) -> RealVector:
        """Return the variance of every answer at unit noise."""
        spreads = [own.unit_spreads() for own in self.joined]
        return self._with_joined(super().unit_variances(), self.problem.workload, spreads, None)

    def total_variance(self, settled: Plan, certificate: Certificate) -> float:
        """Return the sum of the variances of all answers, with the noise of a plan."""
        terms = self._written()
        assert terms is not None, "problems by their factors have products for queries"
        more = [own.total(own.settled_spreads(settled), terms) for own in self.joined]
        return super().total_variance(settled, certificate) + sum(more)

    def _with_joined(
        self, found: RealVector, workload: Workload, spreads: list[Spreads], chosen: IndexArray | None
    ) -> RealVector:
        """Add the variances that joined blocks bring to queries that are not public."""
        matrix, terms = workload.matrix, self._terms(workload)
        picked = np.arange(workload.num_queries) if chosen is None else chosen
        more = np.zeros(picked.size)
        for own, spread in zip(self.joined, spreads, strict=True):
            if isinstance(matrix, Boxes):
                more += own.of_boxes(spread, matrix, picked)
            else:
                assert terms is not None, "refused before"
                more += np.concatenate([own.of_term(spread, term) for term in terms])[picked]
        return found + np.where(self.public_queries(workload)[picked], 0.0, np.maximum(more, 0.0))

    def squares(self, block: Block) -> Pairs:
        """(G - K C G)^2 for a block that disturbs public totals, else G^2."""
        G = block.inverses
        number = next(k for k, own in enumerate(self.strategy.blocks) if own is block)
        if len(self.strategy.hides[number]) < 2 or not all(map(len, self.public_totals)):
            return [(1.0, G, G)]
        F = [K @ (C @ own) for K, C, own in zip(self.corrections, self.public_totals, G, strict=True)]
        return [(1.0, G, G), (-2.0, G, F), (1.0, F, F)]

    def estimate(self, measured: Sequence[AnyTensor]) -> RealVector:
        """Return the estimate of every cell."""
        return np.asarray(measured[0]).ravel()

    def answers(self, workload: Workload, measured: Sequence[AnyTensor]) -> RealVector:
        """Return the answers of any workload on the same domain."""
        self._terms(workload)
        found = np.asarray(workload.matrix.mv(self.estimate(measured)), dtype=np.float64)
        return self._whole_where_public(workload, found)

    def error_draws(self, workload: Workload, settled: Plan, count: int) -> RealMatrix:
        """Return errors of all answers in so many fresh draws of the noise, one column a draw."""
        self._terms(workload)
        empty = np.zeros((*self.product.sizes, count), dtype=np.int64)
        cells = 0.0 * empty
        for block in self.strategy.blocks:
            cells += apply_factors(block.inverses, self._row_errors(block, settled, count))
        for own in self.joined:
            cells += own.approximate(*own.draw(settled, None, count)).reshape(cells.shape)
        right = self._put_right(cells, empty).reshape(-1, count)
        errors = np.asarray(workload.matrix.mv(right), dtype=np.float64)
        errors[self.public_queries(workload)] = 0.0
        return errors

    def check_steps(self, steps: Sequence[str]) -> None:
        """Refuse post-processing, which weighs cells by the precision of rows that are measured."""
        if steps:
            problem = "is for strategies that measure rows, and this one adds up noise on the cells"
            raise fail("postprocess", ", ".join(steps), problem, "Leave it out, or use Gaussian noise.")

    def check_covers(self, workload: Workload) -> None:
        """Refuse queries on another domain; all others are answered."""
        self._terms(workload)

    def check_estimate(self) -> None:
        """Nothing to refuse: cells are what is published."""


@recovery.register
def _(strategy: NoiseSum, problem: Problem) -> NoiseRecovery:
    return NoiseRecovery(problem, strategy)
