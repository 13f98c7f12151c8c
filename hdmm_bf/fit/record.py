"""The `Fit` that users hold: a strategy, its certificate, and what follows from them before anything is spent.

Every number of a `Fit` is its certificate's: derived from the shipped integers, not taken from the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from hdmm_bf._checks import fits
from hdmm_bf._types import IndexArray, RealMatrix, RealVector
from hdmm_bf.bounds.dense import Bounds
from hdmm_bf.bundle import dense as bundle
from hdmm_bf.fit.facts import Facts
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.reconstruction import Reconstruction
from hdmm_bf.strategies import Strategy


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Fit(Facts):
    """A strategy for a workload under a policy, with its certificate.

    Attributes:
        strategy: what is measured, as it ships.
        weights: edge weights that prove the lower bound.
        why: what the search had to do otherwise than asked, in words; mostly nothing.
    """

    strategy: Strategy
    weights: RealVector
    why: str = ""

    __repr__ = Facts.__repr__

    @property
    def bounds(self) -> Bounds:
        """The SVD bound and the best proven bound."""
        return Bounds(self.certificate.svd_bound, self.certificate.lower_bound, self.weights, self.gap)

    @property
    def family(self) -> str:
        """The family that found the strategy."""
        return self.strategy.family

    @property
    def num_rows(self) -> int:
        """Number of queries measured."""
        return self.strategy.num_rows

    def _deviations(self, settled: Plan, chosen: IndexArray | None) -> RealVector:
        return np.asarray(settled.stddev * np.sqrt(self.recovery.variances(chosen)))

    def reconstruction(self) -> RealMatrix:
        """Return W A^+, m x r: it turns noisy answers of the strategy into answers of the workload."""
        m, r = self.problem.workload.num_queries, self.strategy.num_rows
        fits("fit.reconstruction", f"{m} x {r}", m * r * 8, advice="Reconstruct the chosen queries only.")
        blocks = self.recovery.blocks(np.arange(m))
        return np.concatenate([np.empty((0, r)), *map(self.recovery.queries, blocks)])

    @cached_property
    def recovery(self) -> Reconstruction:
        """How noisy answers of the strategy become answers of the workload."""
        return Reconstruction(self.problem, self.strategy)

    def save(self, path: str | Path) -> Path:
        """Write the fit as a bundle, a folder of plain files."""
        return bundle.write(
            path,
            problem=self.problem,
            strategy=self.strategy,
            weights=self.weights,
            certificate=self.certificate.as_dict(),
            manifest=self._claims(),
        )
