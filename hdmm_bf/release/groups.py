"""Tree norms within public groups: x + z over the cells, the noise of every group drawn by itself, all by one law.

A query is a sum over groups of what it asks in each, so its variance is the sum of theirs: for products
w^2 (W_own C W_own^T)_ii (W_public W_public^T)_jj, C being the covariance within a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import IndexArray, RealMatrix, RealVector
from hdmm_bf.certificate import Certificate
from hdmm_bf.certificate.norms import fixed_roots
from hdmm_bf.data.checked import as_tables
from hdmm_bf.data.tables import Tables
from hdmm_bf.matrix import Matrix, Sparse, Stack, Weighted
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
from hdmm_bf.release.norms import CellsRecovery, NormRecovery
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.reconstruction import Progress, Weighing, recovery
from hdmm_bf.release.tree_noise import TreeSampler
from hdmm_bf.strategies.records import GroupedTree
from hdmm_bf.workload import Boxes, Workload

_DRAWS, _FEWEST = 2**12, 1000
_MOST_NOISE, _MOST_ENTRIES = 2**25, 2**27
"""Draws of the noise from which intervals are made; numbers of noise, and errors of queries, that they may take."""

_SPREAD = 3.0
"""Standard errors by which the share of draws inside an interval is above its level."""

_BLOCK, _FEW = 2**23, 4
"""Numbers that are held at a time; single rows are made of queries that are fewer than one in so many."""


@final
@dataclass(frozen=True, eq=False)
class GroupedRecovery(CellsRecovery):
    """x + z, with z drawn for every group by itself."""

    problem: Problem
    strategy: GroupedTree
    by_factors: ClassVar[bool] = True

    @cached_property
    def own(self) -> NormRecovery:
        """The tree on the queries within a group, as written: its total is that of all groups together."""
        return NormRecovery(problem_within(self.problem, self.strategy.axes, written=True), self.strategy.tree)

    def read(self, counts: object) -> Tables:
        """Accept a histogram, or records."""
        return as_tables(self.problem, counts)

    def measure(self, data: Tables, settled: Plan) -> Int64[np.ndarray, " n"]:
        """Return the counts; noise that is not made for this tree and these groups is refused, whatever the data."""
        if settled.sampler is not None:
            self._sampler(settled)
        return np.asarray(data.table(range(len(self.strategy.sizes))), dtype=np.int64).ravel()

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

    def add_noise(
        self, exact: Int64[np.ndarray, " n"], data: Tables, settled: Plan, callback: Progress
    ) -> tuple[RealVector]:
        """Return the counts plus noise, in whole numbers."""
        noise = np.zeros_like(exact) if settled.sampler is None else self._noise(settled, 1)[:, 0]
        if callback is not None:
            callback(noise.size)
        noisy = [count + z for count, z in zip(exact.tolist(), noise.tolist(), strict=True)]  # of any size
        return (np.array(noisy, dtype=np.float64),)

    def _noise(self, settled: Plan, count: int) -> Int64[np.ndarray, "n count"]:
        """Return draws of the noise on all cells, one column each."""
        cells = self.strategy.cells
        drawn = self._sampler(settled).draw(len(cells) * count).reshape(count, *cells.shape)
        noise = np.empty((cells.size, count), dtype=np.int64)
        noise[cells] = np.moveaxis(drawn, 0, -1)
        return noise

    def estimate(self, measured: tuple[RealVector]) -> RealVector:
        """Return the noisy counts."""
        return measured[0]

    def totals(self, measured: tuple[RealVector]) -> RealVector:
        """Return the totals of public components, to which noise adds nothing."""
        return np.asarray(self.problem.grounding.totals(self.estimate(measured)))

    def answers(self, workload: Workload, measured: tuple[RealVector]) -> RealVector:
        """Return the answers of a workload; whole coefficients and whole counts make whole answers."""
        self.check_covers(workload)
        fits("release", f"{workload.num_queries} answers", workload.num_queries * 8, advice="Ask for fewer queries.")
        return np.asarray(workload.matrix.mv(self.estimate(measured)), dtype=np.float64)

    def variances(self, workload: Workload, settled: Plan, chosen: Int[np.ndarray, " q"] | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, from the law of the noise."""
        self.check_covers(workload)
        count = workload.num_queries if chosen is None else chosen.size
        if settled.sampler is None:
            return np.zeros(count)
        return self._variances(workload.matrix, self._sampler(settled).rates, chosen)

    def unit_variances(self) -> RealVector:
        """Return lim epsilon^2 Var / 2 of every answer of the fitted workload."""
        exact, integers = float(self.own.longest), self.strategy.tree.integers
        if exact == 0:
            return np.zeros(self.problem.workload.num_queries)
        step = 1e-6 / integers.max()
        every = self._variances(self.problem.workload.matrix, step * integers, None)
        return np.asarray(every * (step * exact) ** 2 / 2)

    def _variances(self, matrix: Matrix, rates: RealVector, chosen: IndexArray | None) -> RealVector:
        """Add the variances in all groups up, of all queries or of chosen ones."""
        axes, sizes = self.strategy.axes, self.strategy.sizes
        terms = product_terms(matrix, sizes)
        if terms is not None:
            counts = [math.prod(factor.shape[0] for factor in term.factors) for term in terms]
            return _by_parts([partial(self._of_term, term, rates) for term in terms], counts, chosen)
        if isinstance(matrix, Stack):
            parts = [partial(self._variances, block, rates) for block in matrix.blocks]
            return _by_parts(parts, [block.shape[0] for block in matrix.blocks], chosen)
        if isinstance(matrix, Weighted):
            weights = np.broadcast_to(matrix.weights, matrix.shape[0])
            found = self._variances(matrix.inner, rates, chosen)
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

    def half_widths(self, settled: Plan, level: float, chosen: Int[np.ndarray, " q"]) -> RealVector:
        """Return half widths from draws of the noise, or by Chebyshev's inequality where these are too few."""
        return self._half_widths(self.problem.workload, settled, level, chosen)

    def half_widths_of(self, workload: Workload, settled: Plan, level: float) -> tuple[RealVector, str]:
        """Return half widths from draws of the noise, or by Chebyshev's inequality where these are too few.

        Guarantees:
            The share of all draws inside is above the level by three standard errors, or the tail bound holds.
        """
        every = np.arange(workload.num_queries)
        return self._half_widths(workload, settled, level, every), self.interval_method(settled, every.size)

    def _half_widths(self, workload: Workload, settled: Plan, level: float, chosen: IndexArray) -> RealVector:
        if settled.sampler is None or chosen.size == 0:
            return np.zeros(chosen.size)
        draws = self._draws(chosen.size)
        rank = math.ceil(draws * level + _SPREAD * math.sqrt(draws * level * (1 - level)))
        if rank >= draws:  # no draw is so far out, or none is made: Chebyshev
            return np.asarray(np.sqrt(self.variances(workload, settled, chosen) / (1 - level)))
        asked = _rows(workload.matrix, chosen)
        block = max(1, _BLOCK // max(self.noise_size, asked.shape[0]))
        sizes = [min(block, draws - start) for start in range(0, draws, block)]
        errors = [np.abs(asked.mv(self._noise(settled, size).astype(np.float64))) for size in sizes]
        kept = [own if asked.shape[0] == chosen.size else own[chosen] for own in errors]
        return np.asarray(np.partition(np.concatenate(kept, axis=1), rank, axis=1)[:, rank])

    def _draws(self, queries: int) -> int:
        """How many draws intervals of so many queries come from; 0 where they would take too long."""
        found = min(_DRAWS, _MOST_NOISE // self.noise_size, _MOST_ENTRIES // max(queries, 1))
        return found if found >= _FEWEST else 0

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws: one a cell."""
        return math.prod(self.strategy.sizes)

    def error_draws(self, workload: Workload, settled: Plan, count: int) -> RealMatrix:
        """Return errors of all answers in so many fresh draws of the noise, one column a draw."""
        if settled.sampler is None:
            return np.zeros((workload.num_queries, count))
        return np.asarray(workload.matrix.mv(self._noise(settled, count).astype(np.float64)), dtype=np.float64)

    def interval_method(self, settled: Plan, num_queries: int) -> str:
        """Say that intervals are simulated, or come from Chebyshev's inequality on large domains."""
        return "simulated" if settled.sampler is None or self._draws(num_queries) else "tail bound"

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

    def reconstruction(self) -> RealMatrix:
        """Refuse: answers are the queries of the noisy counts."""
        advice = "Export the tree, or release and ask for answers."
        raise fail("fit.reconstruction", repr(self.strategy), "is not written out", advice)


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


def _rows(matrix: Matrix, chosen: IndexArray) -> Matrix:
    """Return a matrix of chosen rows where they are few, else the whole."""
    if _FEW * chosen.size >= matrix.shape[0]:
        return matrix
    return Sparse(sp.vstack([sp.csr_array(matrix.row(int(query))[None]) for query in chosen], format="csr"))


@recovery.register
def _(strategy: GroupedTree, problem: Problem) -> GroupedRecovery:
    return GroupedRecovery(problem, strategy)
