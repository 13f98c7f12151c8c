"""Recovery: how a strategy is measured on data, and how its noisy answers become answers of queries.

One implementation per record of strategy, made by `recovery(strategy, problem)`: `matrices` for those that are written
out, `products` for those by factors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import singledispatch
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Int

from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate import Certificate
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import analytic, intervals
from hdmm_bf.release.plan import Plan
from hdmm_bf.strategies.records import Strategy
from hdmm_bf.workload import Workload

Progress = Callable[[int], None] | None
"""Told how many numbers of noise were drawn."""


class Weighing(NamedTuple):
    """A precision of all cells that is not written out: how it acts on a vector, and a bound of its largest factor."""

    apply: Callable[[RealVector], RealVector]
    largest: float


class Recovery(ABC):
    """What a release does with one strategy."""

    problem: Problem
    strategy: Strategy
    by_factors: ClassVar[bool] = False
    """Whether nothing of the domain's size squared is made."""

    @abstractmethod
    def read(self, counts: object) -> Any:
        """Check data against the problem; refusals show no count."""

    @abstractmethod
    def measure(self, data: Any, settled: Plan) -> Any:
        """Return the exact answers of the strategy, before noise; nothing is refused for its size."""

    @abstractmethod
    def add_noise(self, exact: Any, data: Any, settled: Plan, callback: Progress) -> Any:
        """Draw the noise of a plan and return what may be published: sums of exact answers and noise."""

    @abstractmethod
    def estimate(self, measured: Any) -> RealVector:
        """Return the unbiased estimate of every cell; refused where there are too many."""

    @abstractmethod
    def answers(self, workload: Workload, measured: Any) -> RealVector:
        """Return unbiased answers of a workload that the strategy measures."""

    @abstractmethod
    def variances(self, workload: Workload, settled: Plan, chosen: Int[np.ndarray, " q"] | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, with the noise of a plan."""

    @abstractmethod
    def unit_variances(self) -> RealVector:
        """Return the variance of every answer of the fitted workload for noise of variance 1 on every row."""

    @abstractmethod
    def total_variance(self, settled: Plan, certificate: Certificate) -> float:
        """Return the sum of the variances of all answers of the fitted workload, with the noise of a plan."""

    @abstractmethod
    def half_widths(self, settled: Plan, level: float, chosen: Int[np.ndarray, " q"]) -> RealVector:
        """Return half the width of intervals that cover chosen answers, each with probability `level` at least."""

    @abstractmethod
    def interval_method(self, settled: Plan, num_queries: int) -> str:
        """Say how intervals of that many queries are made: normal, exact Laplace sums, tail bound or simulated."""

    def half_widths_of(self, workload: Workload, settled: Plan, level: float) -> tuple[RealVector, str]:
        """Return half the width of intervals of another workload's answers, and how they are made."""
        stddev = np.sqrt(self.variances(workload, settled))
        method = "normal" if settled.noise == "gaussian" else "tail bound"
        return np.asarray(intervals.half_width(settled.noise, level) * stddev), method

    def largest_step(self, settled: Plan) -> float | None:
        """Return the most that is lost when one of a strategy's whole numbers changes by one; None where unknown.

        Guarantees:
            A move along an edge is made of such changes, each of them and all together losing no more than stated.
        """
        if settled.noise != "laplace" or settled.sampler is None:
            return None
        return analytic.up(1 / Fraction(self.least_scale(settled)))

    def least_scale(self, settled: Plan) -> float:
        """Return the least scale of Laplace noise on a whole number."""
        assert settled.row_sampler is not None
        return settled.row_sampler.scale

    @property
    @abstractmethod
    def noise_size(self) -> int:
        """How many numbers of noise a release draws."""

    @abstractmethod
    def error_draws(self, workload: Workload, settled: Plan, count: int) -> RealMatrix:
        """Return errors of all answers in so many fresh draws of the noise, one column a draw; no data are needed."""

    def totals(self, measured: Any) -> RealVector:
        """Return the exact totals of the policy's public components."""
        return np.asarray(measured.totals)

    @abstractmethod
    def precision(self) -> SquareMatrix | Weighing:
        """Return the precision of the cells, for noise of variance 1 on every row: of the kept ones, or by factors."""

    @abstractmethod
    def reconstruction(self) -> RealMatrix:
        """Return W A^+, m x r, written out; refused where it does not fit."""

    @abstractmethod
    def check_covers(self, workload: Workload) -> None:
        """Refuse queries on another domain, and queries that the strategy does not measure."""

    @abstractmethod
    def check_steps(self, steps: Sequence[str]) -> None:
        """Refuse post-processing that this strategy cannot have."""

    @abstractmethod
    def check_estimate(self) -> None:
        """Refuse an estimate of every cell that this strategy cannot give."""


@singledispatch
def recovery(strategy: object, problem: Problem) -> Recovery:
    """Return how a strategy is measured and reconstructed; one implementation per record."""
    raise TypeError(f"no recovery for {type(strategy).__name__}")
