"""The `Fit` that users hold: a strategy, its certificate, and what follows from them before anything is spent.

Every number of a `Fit` is its certificate's: derived from the shipped integers, not taken from the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from hdmm_bf import __version__, bundle
from hdmm_bf._checks import fail, fits, whole_numbers
from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.bounds import Bounds
from hdmm_bf.fitting.facts import Facts
from hdmm_bf.mechanisms.privacy import noise_variance
from hdmm_bf.mechanisms.reconstruction import Reconstruction
from hdmm_bf.strategies import Strategy, TracePoint


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Fit(Facts):
    """A strategy for a workload under a policy, with its certificate.

    Attributes:
        strategy: what is measured, as it ships.
        weights: edge weights that prove the lower bound.
        trace: error and bound after every step.
        reached: unit error that every mechanism and family of the portfolio reached.
    """

    strategy: Strategy
    weights: RealVector
    trace: tuple[TracePoint, ...] = ()
    reached: Mapping[str, float] = field(default_factory=dict)

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

    def per_query_stddev(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        queries: Sequence[int] | None = None,
    ) -> RealVector:
        """Return the standard deviation of every answer, or of the chosen queries."""
        sigma = math.sqrt(noise_variance(self.noise, epsilon=epsilon, delta=delta, rho=rho))
        m = self.problem.workload.num_queries
        chosen = np.arange(m) if queries is None else whole_numbers("fit.per_query_stddev", "queries", queries)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < m):
            worst = chosen.min() if chosen.min() < 0 else chosen.max()
            raise fail("fit.per_query_stddev", f"query {worst}", f"queries are 0 to {m - 1}", "Correct it.")
        variances = self.recovery.variances(None if queries is None else chosen)
        return np.asarray(sigma * self.certificate.sensitivity * np.sqrt(variances))

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
        summary = self.summary()
        manifest = {
            "versions": {"hdmm_bf": __version__, "numpy": np.__version__},
            **{key: value for key, value in summary.items() if key not in ("workload", "policy")},
            "requested_gap": self.requested_gap,
            "reached": dict(self.reached),
        }
        return bundle.write(
            path,
            problem=self.problem,
            strategy=self.strategy,
            weights=self.weights,
            certificate=self.certificate.as_dict(),
            manifest=manifest,
        )
