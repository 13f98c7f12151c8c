"""Tree norms: the counts plus whole-number noise are published, and queries are answered from them.

Standard deviations come from the law of the noise (`certificate.tree_law`). For small epsilon the law, scaled, tends to
a density, and what is wanted is a smooth function of epsilon^2: it is interpolated between a few laws with short
tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Int, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AnyArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate import Certificate
from hdmm_bf.certificate.norms import MOST_CELLS, fixed_roots, set_queries, tree_law, variances_of_sets
from hdmm_bf.data.checked import checked_counts
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.matrices import Cells
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.postprocess import check_steps
from hdmm_bf.release.public import public_queries, with_public_answers
from hdmm_bf.release.reconstruction import Progress, Recovery, recovery
from hdmm_bf.release.tree_noise import TreeSampler
from hdmm_bf.strategies.records import TreeNorm
from hdmm_bf.workload import Workload

_STEPS = 0.5, 0.5 / math.sqrt(2), 0.25, 0.25 / math.sqrt(2)
"""Largest rates of the laws between which smaller ones are interpolated, to a relative 1e-7."""

_DRAWS = 2**14
_DRAW_ENTRIES = 2**25
"""Draws of the noise from which intervals are made, and entries of answers that are held at once."""

_SPREAD = 3.0
"""Standard errors by which the share of draws inside an interval is above its level."""


class CellsRecovery(Recovery):
    """Counts plus noise, cell by cell, are what is published: every query of the cells can be answered."""

    def check_covers(self, workload: Workload) -> None:
        """Refuse queries on another domain; every query of the cells can be answered."""
        if workload.num_cells != self.problem.policy.num_cells:
            raise fail("release.answer", f"workload {workload.title}", "is on another domain", "Fit a strategy for it.")

    def check_steps(self, steps: Sequence[str]) -> None:
        """Refuse steps that do not exist or do not apply to the policy."""
        check_steps(self.problem, steps)

    def check_estimate(self) -> None:
        """Every cell is published."""


@final
@dataclass(frozen=True, eq=False)
class NormRecovery(CellsRecovery):
    """x + z over the cells."""

    problem: Problem
    strategy: TreeNorm

    def read(self, counts: object) -> Int64[np.ndarray, " n"]:
        """Return the histogram as int64, one entry per cell."""
        return checked_counts(self.problem, counts)

    def measure(self, data: Int64[np.ndarray, " n"], settled: Plan) -> Int64[np.ndarray, " n"]:
        """Return the counts; noise that is not made for this tree under this policy is refused, whatever the data."""
        sampler, policy = settled.sampler, self.problem.policy
        if sampler is None:
            return data
        fixed = np.flatnonzero(fixed_roots(self.strategy.parents, policy))
        if not (
            isinstance(sampler, TreeSampler)
            and sampler.axes is None
            and np.array_equal(sampler.parents, self.strategy.parents)
            and np.array_equal(sampler.fixed, fixed)
        ):
            raise fail("release", "plan", "has noise of another tree", "Make a plan for this one.")
        return data

    def add_noise(
        self, exact: Int64[np.ndarray, " n"], data: Int64[np.ndarray, " n"], settled: Plan, callback: Progress
    ) -> Cells:
        """Return the counts plus noise, in whole numbers."""
        noise = np.zeros_like(exact) if settled.sampler is None else self._sampler(settled).draw(1)[0]
        if callback is not None:
            callback(noise.size)
        noisy = [count + z for count, z in zip(exact.tolist(), noise.tolist(), strict=True)]  # of any size
        totals = self.problem.grounding.totals(data)
        return Cells(np.array(noisy, dtype=np.float64), totals.astype(np.float64))

    @staticmethod
    def _sampler(settled: Plan) -> TreeSampler:
        assert isinstance(settled.sampler, TreeSampler), "tree norms have noise of their own"
        return settled.sampler

    def estimate(self, measured: Cells) -> RealVector:
        """Return the noisy counts."""
        return measured.estimate

    def answers(self, workload: Workload, measured: Cells) -> RealVector:
        """Return the answers of a workload; those of public queries come from the totals alone."""
        answers = np.asarray(workload.matrix.mv(measured.estimate), dtype=np.float64)
        return with_public_answers(workload.matrix, self.problem.grounding, answers, measured.totals)

    def variances(self, workload: Workload, settled: Plan, chosen: Int[np.ndarray, " q"] | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, from the law of the noise."""
        if settled.sampler is None:
            every = np.zeros(workload.num_queries)
        else:
            every = self.of_rates(workload, self._sampler(settled).rates)
        return every if chosen is None else every[chosen]

    def unit_variances(self) -> RealVector:
        """Return lim epsilon^2 Var / 2 of every answer of the fitted workload."""
        if self.longest == 0:
            return np.zeros(self.problem.workload.num_queries)
        largest = self.strategy.integers.max()
        tiny = 1e-6 * self.strategy.integers / largest
        exact = float(self.longest)
        return np.asarray(self.of_rates(self.problem.workload, tiny) * (1e-6 * exact / largest) ** 2 / 2)

    @cached_property
    def longest(self) -> int:
        """The longest policy edge in the tree, exactly."""
        from hdmm_bf.certificate import exact_sensitivity

        return exact_sensitivity(self.strategy, self.problem, "norm")

    def of_rates(self, workload: Workload, rates: RealVector) -> RealVector:
        """Return the variance of every answer of a workload, from the law of noise with given rates."""
        sets = set_queries(workload.matrix, self.strategy.parents, self.problem.policy.num_cells)
        if sets is not None:
            node, scale = sets
            every = scale**2 * self._interpolated("sets", rates)[node]
        else:
            n = self.problem.policy.num_cells
            if n > MOST_CELLS:
                advice = "Ask for queries that are sets of the tree."
                raise fail("release", f"deviations over {n} cells", "are too many to compute", advice)
            every = np.maximum(workload.matrix.quadratic(self._interpolated("cells", rates)), 0.0)
        every[public_queries(workload.matrix, self.problem.grounding)] = 0.0
        return np.asarray(every)

    def covariance_at(self, rates: RealVector) -> SquareMatrix:
        """Return the covariance of the cells, for noise with given rates."""
        return np.asarray(self._interpolated("cells", rates))

    def _interpolated(self, what: str, rates: RealVector) -> AnyArray:
        """Variances of the sets, or covariances of the cells, at given rates: a polynomial in their square."""
        largest = float(rates.max(initial=0.0))
        if largest >= _STEPS[0]:
            return self._law(what, rates)
        squares = np.array(_STEPS) ** 2
        found: AnyArray = np.zeros(())
        for k, step in enumerate(_STEPS):
            others = np.delete(squares, k)
            weight = float(np.prod((largest**2 - others) / (squares[k] - others)))
            found = found + weight * (step / largest) ** 2 * self._laws[what, k]
        return found

    @cached_property
    def _laws(self) -> _Kept:
        return _Kept(self)

    def _law(self, what: str, rates: RealVector) -> AnyArray:
        if what == "sets":
            return variances_of_sets(self.strategy, self.problem.policy, rates)
        return tree_law(self.strategy, self.problem.policy, rates).covariance()

    def total_variance(self, settled: Plan, certificate: Certificate) -> float:
        """Return the sum of the variances of all answers as written."""
        return float(self.variances(self.problem.workload, settled).sum())

    def half_widths(self, settled: Plan, level: float, chosen: Int[np.ndarray, " q"]) -> RealVector:
        """Return half widths from draws of the noise."""
        return np.asarray(self.half_widths_of(self.problem.workload, settled, level)[0][chosen])

    def half_widths_of(self, workload: Workload, settled: Plan, level: float) -> tuple[RealVector, str]:
        """Return half widths from draws of the noise, or by Chebyshev's inequality where these are too few.

        Guarantees:
            The share of all draws inside is above the level by three standard errors, or the tail bound holds.
        """
        m, n = workload.num_queries, self.problem.policy.num_cells
        widths = np.zeros(m)
        if settled.sampler is None:
            return widths, self.interval_method(settled, m)
        draws = max(1000, min(_DRAWS, _DRAW_ENTRIES // max(m, n)))
        rank = math.ceil(draws * level + _SPREAD * math.sqrt(draws * level * (1 - level)))
        if rank >= draws:  # no draw is so far out: Chebyshev
            return np.sqrt(self.variances(workload, settled) / (1 - level)), "tail bound"
        fits("release.interval", f"{m} queries", m * draws * 8, advice="Ask for fewer queries.")
        sizes = np.abs(self.error_draws(workload, settled, draws))
        widths = np.partition(sizes, rank, axis=1)[:, rank]
        return np.asarray(widths, dtype=np.float64), self.interval_method(settled, m)

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws: one a cell."""
        return self.problem.policy.num_cells

    def error_draws(self, workload: Workload, settled: Plan, count: int) -> RealMatrix:
        """Return errors of all answers in so many fresh draws of the noise, one column a draw."""
        if settled.sampler is None:
            return np.zeros((workload.num_queries, count))
        noise = self._sampler(settled).draw(count).T.astype(np.float64)
        return np.asarray(workload.matrix.mv(noise), dtype=np.float64)

    def interval_method(self, settled: Plan, num_queries: int) -> str:
        """Say that intervals are simulated."""
        return "simulated"

    def precision(self) -> SquareMatrix:
        """Return the inverse of the covariance of the kept cells, as epsilon goes to 0, for 2 / epsilon^2 = 1."""
        kept = self.problem.grounding.kept
        if kept.size == 0:
            return np.zeros((0, 0))
        exact, integers = float(self.longest), self.strategy.integers
        rates = 1e-6 * integers / integers.max()
        C = self._interpolated("cells", rates) * (rates.max() * exact / integers.max()) ** 2 / 2
        return np.asarray(np.linalg.inv(C[np.ix_(kept, kept)]))

    def reconstruction(self) -> RealMatrix:
        """Return W, m x n: answers are the queries of the noisy counts."""
        m, n = self.problem.workload.matrix.shape
        fits("fit.reconstruction", f"{m} x {n}", m * n * 8, advice="Reconstruct the chosen queries only.")
        return np.asarray(self.problem.workload.matrix.dense(), dtype=np.float64)


class _Kept(dict[tuple[str, int], AnyArray]):
    """Laws between which others are interpolated, computed when they are asked for."""

    def __init__(self, own: NormRecovery) -> None:
        super().__init__()
        self._own = own

    def __missing__(self, key: tuple[str, int]) -> AnyArray:
        what, k = key
        integers = self._own.strategy.integers
        self[key] = self._own._law(what, _STEPS[k] * integers / max(integers.max(initial=0), 1))
        return self[key]


@recovery.register
def _(strategy: TreeNorm, problem: Problem) -> NormRecovery:
    return NormRecovery(problem, strategy)
