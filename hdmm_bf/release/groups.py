"""Tree norms within public groups: x + z over the cells, the noise of every group drawn by itself, all by one law.

A query is a sum over groups of what it asks in each, so its variance is the sum of theirs: for products
w^2 (W_own C W_own^T)_ii (W_public W_public^T)_jj, C being the covariance within a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.certificate import Certificate
from hdmm_bf.certificate.norms import fixed_roots
from hdmm_bf.matrix import Matrix, Stack, Weighted
from hdmm_bf.problem.groups import (
    box_within,
    groups_in,
    own_factor,
    problem_within,
    row_squares,
    slices,
    workload_within,
)
from hdmm_bf.problem.product import Term, product_terms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.drawn_cells import DrawnCells
from hdmm_bf.release.norms import NormRecovery
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.reconstruction import Weighing, recovery
from hdmm_bf.release.tree_noise import TreeSampler
from hdmm_bf.strategies.records import GroupedTree
from hdmm_bf.workload import Boxes


@final
@dataclass(frozen=True, eq=False)
class GroupedRecovery(DrawnCells):
    """x + z, with z drawn for every group by itself."""

    problem: Problem
    strategy: GroupedTree

    @cached_property
    def own(self) -> NormRecovery:
        """The tree on the queries within a group, as written: its total is that of all groups together."""
        return NormRecovery(problem_within(self.problem, self.strategy.axes, written=True), self.strategy.tree)

    def check_made(self, settled: Plan) -> None:
        """Refuse noise that is not of this tree on these attributes."""
        self._sampler(settled)

    def _sampler(self, settled: Plan) -> TreeSampler:
        """The noise of one group, which must be that of this tree on these attributes, for which it was checked."""
        sampler, tree = settled.sampler, self.strategy.tree
        if not (
            isinstance(sampler, TreeSampler)
            and sampler.axes == self.strategy.axes
            and np.array_equal(sampler.parents, tree.parents)
            and np.array_equal(sampler.fixed, np.flatnonzero(fixed_roots(tree.parents, self.own.problem.policy)))
        ):
            raise fail("release", "plan", "has noise of another tree", "Make a plan for this one.")
        return sampler

    def noise(self, settled: Plan, count: int) -> Int64[np.ndarray, "n count"]:
        """Return draws of the noise on all cells, one column each."""
        cells = self.strategy.cells
        drawn = self._sampler(settled).draw(len(cells) * count).reshape(count, *cells.shape)
        noise = np.empty((cells.size, count), dtype=np.int64)
        noise[cells] = np.moveaxis(drawn, 0, -1)
        return noise

    def matrix_variances(self, matrix: Matrix, settled: Plan, chosen: IndexArray | None) -> RealVector:
        """Return the variances of any queries on the domain, all or chosen ones."""
        return self.variances_at(matrix, self._sampler(settled).rates, chosen)

    def unit_variances(self) -> RealVector:
        """Return lim epsilon^2 Var / 2 of every answer of the fitted workload."""
        exact, integers = float(self.own.longest), self.strategy.tree.integers
        if exact == 0:
            return np.zeros(self.problem.workload.num_queries)
        step = 1e-6 / integers.max()
        every = self.variances_at(self.problem.workload.matrix, step * integers, None)
        return np.asarray(every * (step * exact) ** 2 / 2)

    def variances_at(self, matrix: Matrix, rates: RealVector, chosen: IndexArray | None) -> RealVector:
        """Add the variances in all groups up, of all queries or of chosen ones."""
        axes, sizes = self.strategy.axes, self.strategy.sizes
        terms = product_terms(matrix, sizes)
        if terms is not None:
            counts = [math.prod(factor.shape[0] for factor in term.factors) for term in terms]
            return _by_parts([partial(self._of_term, term, rates) for term in terms], counts, chosen)
        if isinstance(matrix, Stack):
            parts = [partial(self.variances_at, block, rates) for block in matrix.blocks]
            return _by_parts(parts, [block.shape[0] for block in matrix.blocks], chosen)
        if isinstance(matrix, Weighted):
            weights = np.broadcast_to(matrix.weights, matrix.shape[0])
            found = self.variances_at(matrix.inner, rates, chosen)
            return np.asarray((weights if chosen is None else weights[chosen]) ** 2 * found)
        if isinstance(matrix, Boxes):
            every = groups_in(matrix, axes) * self._within(box_within(matrix, axes), rates)
        else:
            cut = slices(matrix, sizes, axes)
            every = np.bincount(cut.query, self._within(cut.own, rates), matrix.shape[0])
        return np.asarray(every if chosen is None else every[chosen])

    def _of_term(self, term: Term, rates: RealVector, chosen: IndexArray | None) -> RealVector:
        """Variances of a product of queries: within a group, times how many groups are counted."""
        axes, rows = self.strategy.axes, tuple(factor.shape[0] for factor in term.factors)
        within = term.weight**2 * self._within(own_factor(term, axes), rates).reshape([rows[i] for i in axes])
        others = {i: row_squares(factor) for i, factor in enumerate(term.factors) if i not in axes}
        if chosen is not None:
            places = np.unravel_index(chosen, rows)
            found = within[tuple(places[i] for i in axes)]
            return np.asarray(math.prod((squares[places[i]] for i, squares in others.items()), start=found))
        fits("release", f"{math.prod(rows)} variances", math.prod(rows) * 8, advice="Ask for chosen queries.")
        found = np.expand_dims(within, tuple(others))
        for i, squares in others.items():
            found = found * squares.reshape([-1 if k == i else 1 for k in range(len(rows))])
        return np.asarray(found.ravel())

    def _within(self, matrix: Matrix, rates: RealVector) -> RealVector:
        """Variances of queries within one group."""
        return self.own.of_rates(workload_within(matrix, self.own.problem.policy.domain), rates)

    def total_variance(self, settled: Plan, certificate: Certificate) -> float:
        """Return the sum of the variances of all answers as written."""
        return self.own.total_variance(settled, certificate)

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws: one a cell."""
        return math.prod(self.strategy.sizes)

    def precision(self) -> Weighing:
        """Return the pseudo-inverse of the covariance, group by group, as epsilon goes to 0, for 2 / epsilon^2 = 1."""
        kept, n = self.own.problem.grounding.kept, self.strategy.tree.num_cells
        M, cells = np.zeros((n, n)), self.strategy.cells
        M[np.ix_(kept, kept)] = self.own.precision()

        def apply(x: RealVector) -> RealVector:
            found = np.zeros_like(x)
            found[cells] = x[cells] @ M
            return found

        return Weighing(apply, float(np.linalg.norm(M, 2)))


def _by_parts(
    parts: Sequence[Callable[[IndexArray | None], RealVector]], counts: Sequence[int], chosen: IndexArray | None
) -> RealVector:
    """Put what is known of the queries of every part together, of all or of chosen ones."""
    if chosen is None:
        return np.concatenate([part(None) for part in parts])
    found, ends = np.zeros(chosen.size), np.cumsum(counts)
    for part, end, count in zip(parts, ends.tolist(), counts, strict=True):
        mine = (chosen >= end - count) & (chosen < end)
        if np.any(mine):
            found[mine] = part(chosen[mine] - (end - count))
    return found


@recovery.register
def _(strategy: GroupedTree, problem: Problem) -> GroupedRecovery:
    return GroupedRecovery(problem, strategy)
