"""Counts plus whole-number noise, drawn by factors: what releases of tree norms by factors have in common.

How the noise of all cells is drawn, and what its variances are, is theirs; answers, intervals and what is published
follow from it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector
from hdmm_bf.data.checked import as_tables
from hdmm_bf.data.tables import Tables
from hdmm_bf.matrix import Matrix, Sparse
from hdmm_bf.release.norms import CellsRecovery
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.reconstruction import Progress
from hdmm_bf.strategies.records import GroupedTree, TreeSum
from hdmm_bf.workload import Workload

_DRAWS, _FEWEST = 2**12, 1000
_MOST_NOISE, _MOST_ENTRIES = 2**25, 2**27
"""Draws of the noise from which intervals are made; numbers of noise, and errors of queries, that they may take."""

_SPREAD = 3.0
"""Standard errors by which the share of draws inside an interval is above its level."""

_BLOCK, _FEW = 2**23, 4
"""Numbers that are held at a time; single rows are made of queries that are fewer than one in so many."""


class DrawnCells(CellsRecovery):
    """x + N, with whole-number noise N over a denominator."""

    strategy: GroupedTree | TreeSum
    by_factors: ClassVar[bool] = True
    denominator: int = 1

    @abstractmethod
    def noise(self, settled: Plan, count: int) -> AnyArray:
        """Return draws of the noise on all cells times the denominator, one column each, in whole numbers."""

    @abstractmethod
    def check_made(self, settled: Plan) -> None:
        """Refuse noise that is not made for this strategy."""

    @abstractmethod
    def matrix_variances(self, matrix: Matrix, settled: Plan, chosen: IndexArray | None) -> RealVector:
        """Return the variances of any queries on the domain, all or chosen ones."""

    @property
    @abstractmethod
    def noise_size(self) -> int:
        """How many numbers of noise a release draws."""

    def read(self, counts: object) -> Tables:
        """Accept a histogram, or records."""
        return as_tables(self.problem, counts)

    def measure(self, data: Tables, settled: Plan) -> Int64[np.ndarray, " n"]:
        """Return the counts; noise that is not made for this strategy is refused, whatever the data."""
        if settled.sampler is not None:
            self.check_made(settled)
        return np.asarray(data.table(range(len(self.strategy.sizes))), dtype=np.int64).ravel()

    def add_noise(
        self, exact: Int64[np.ndarray, " n"], data: Tables, settled: Plan, callback: Progress
    ) -> tuple[RealVector]:
        """Return the counts plus noise: whole numbers, or the nearest numbers to a sum over the denominator."""
        whole = self.denominator
        noise = np.zeros_like(exact) if settled.sampler is None else self.noise(settled, 1)[:, 0]
        if callback is not None:
            callback(noise.size)
        pairs = zip(exact.tolist(), noise.tolist(), strict=True)
        return (np.array([(whole * count + z) / whole for count, z in pairs], dtype=np.float64),)  # of any size

    def estimate(self, measured: tuple[RealVector]) -> RealVector:
        """Return the noisy counts."""
        return measured[0]

    def totals(self, measured: tuple[RealVector]) -> RealVector:
        """Return the totals of public components, to which noise adds nothing: whole numbers, but for rounding."""
        return np.asarray(np.rint(self.problem.grounding.totals(self.estimate(measured))))

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
        return self.matrix_variances(workload.matrix, settled, chosen)

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
        errors = [np.abs(asked.mv(self._errors(settled, size))) for size in sizes]
        kept = [own if asked.shape[0] == chosen.size else own[chosen] for own in errors]
        return np.asarray(np.partition(np.concatenate(kept, axis=1), rank, axis=1)[:, rank])

    def _draws(self, queries: int) -> int:
        """How many draws intervals of so many queries come from; 0 where they would take too long."""
        found = min(_DRAWS, _MOST_NOISE // self.noise_size, _MOST_ENTRIES // max(queries, 1))
        return found if found >= _FEWEST else 0

    def _errors(self, settled: Plan, count: int) -> RealMatrix:
        """Return draws of the noise on all cells in floating point."""
        return np.asarray(self.noise(settled, count) / self.denominator, dtype=np.float64)

    def error_draws(self, workload: Workload, settled: Plan, count: int) -> RealMatrix:
        """Return errors of all answers in so many fresh draws of the noise, one column a draw."""
        if settled.sampler is None:
            return np.zeros((workload.num_queries, count))
        return np.asarray(workload.matrix.mv(self._errors(settled, count)), dtype=np.float64)

    def interval_method(self, settled: Plan, num_queries: int) -> str:
        """Say that intervals are simulated, or come from Chebyshev's inequality on large domains."""
        return "simulated" if settled.sampler is None or self._draws(num_queries) else "tail bound"

    def reconstruction(self) -> RealMatrix:
        """Refuse: answers are the queries of the noisy counts."""
        advice = "Export the tree, or release and ask for answers."
        raise fail("fit.reconstruction", repr(self.strategy), "is not written out", advice)


def _rows(matrix: Matrix, chosen: IndexArray) -> Matrix:
    """Return a matrix of chosen rows where they are few, else the whole."""
    if _FEW * chosen.size >= matrix.shape[0]:
        return matrix
    return Sparse(sp.vstack([sp.csr_array(matrix.row(int(query))[None]) for query in chosen], format="csr"))
