"""The `Fit` that users hold: a strategy, its certificate, and what follows from them before anything is spent.

Every number of a `Fit` is its certificate's: derived from the shipped integers, not taken from the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import scipy.linalg

from hdmm_bf import __version__, bundle
from hdmm_bf import policy as policies
from hdmm_bf._checks import fail, fits, whole_numbers
from hdmm_bf._types import Noise, RealMatrix, RealVector
from hdmm_bf.bounds import Bounds
from hdmm_bf.certificate import Certificate
from hdmm_bf.error import edge_columns
from hdmm_bf.mechanisms.privacy import noise_variance
from hdmm_bf.strategies import Status, Strategy, TracePoint
from hdmm_bf.strategies.solver import SENTENCES
from hdmm_bf.transform import Problem

_ROW_BLOCK = 1024
_BLOCK_ENTRIES = 2**25


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """A strategy for a workload under a policy, with its certificate.

    Attributes:
        problem: the workload and the policy.
        strategy: what is measured, as it ships.
        certificate: what holds for it.
        weights: edge weights that prove the lower bound.
        requested_gap: the gap that was asked for.
        seed: the seed of the search.
        status: how the search ended.
        seconds: how long it took, certificate included.
        trace: error and bound after every step.
        reached: unit error that every mechanism and family of the portfolio reached.
    """

    problem: Problem
    strategy: Strategy
    certificate: Certificate
    weights: RealVector
    requested_gap: float
    seed: int
    status: Status
    seconds: float
    trace: tuple[TracePoint, ...] = ()
    reached: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        name = f"{self.problem.workload.spec} under {self.problem.policy.spec}"
        return f"Fit({name}, {self.noise}, unit error {self.unit_error:.6g}, gap {self.gap:.2g})"

    @property
    def noise(self) -> Noise:
        """The noise the strategy is for."""
        return self.certificate.noise

    @property
    def unit_error(self) -> float:
        """sensitivity^2 ||W A^+||_F^2 of the strategy as shipped."""
        return self.certificate.unit_error

    @property
    def bounds(self) -> Bounds:
        """The SVD bound and the best proven bound."""
        return Bounds(self.certificate.svd_bound, self.certificate.lower_bound, self.weights, self.gap)

    @property
    def gap(self) -> float:
        """unit_error / lower bound - 1: the proven distance to the best possible."""
        return self.certificate.gap

    @property
    def certified(self) -> bool:
        """Whether the strategy is proven optimal to the requested gap."""
        return self.status == "exact" or (self.noise == "gaussian" and self.gap <= self.requested_gap)

    @property
    def discloses(self) -> list[str]:
        """What the policy makes public, in words."""
        return policies.discloses(self.problem.policy)

    @property
    def sentence(self) -> str:
        """How the search ended, in words."""
        return SENTENCES[self.status]

    def expected_error(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> float:
        """Return the expected total squared error over all queries."""
        return self.unit_error * noise_variance(self.noise, epsilon=epsilon, delta=delta, rho=rho)

    def rmse(self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None) -> float:
        """Return the root mean squared error of a query."""
        total = self.expected_error(epsilon=epsilon, delta=delta, rho=rho)
        return math.sqrt(total / self.problem.workload.num_queries)

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
        blocks = [np.linalg.norm(self._noise_rows(block), axis=1) for block in _blocks(chosen, m)]
        return sigma * self.certificate.sensitivity * np.concatenate([np.empty(0), *blocks])

    def reconstruction(self) -> RealMatrix:
        """Return W A^+, m x r: it turns noisy answers of the strategy into answers of the workload."""
        m, r = self.problem.workload.num_queries, self.strategy.num_rows
        fits("fit.reconstruction", f"{m} x {r}", m * r * 8, advice="Reconstruct the chosen queries only.")
        return np.concatenate([np.empty((0, r)), *(self._noise_rows(block) for block in _blocks(np.arange(m), m))])

    def _noise_rows(self, queries: np.ndarray) -> RealMatrix:
        """Rows of W A^+ for some queries."""
        m = self.problem.workload.num_queries
        fits("fit", f"{m} queries", m * queries.size * 8, advice="Ask for fewer queries at a time.")
        picks = np.zeros((m, queries.size))
        picks[queries, np.arange(queries.size)] = 1.0
        rows = self.problem.grounding.columns(self.problem.workload.matrix.rmv(picks).T)
        if self.strategy.kind == "edge":
            rows = edge_columns(self.problem, rows)
        return np.asarray(rows @ self._pseudo_inverse)

    @cached_property
    def _pseudo_inverse(self) -> RealMatrix:
        A = self.strategy.matrix()
        if self.strategy.kind == "vertex":
            A = self.problem.grounding.columns(A)
        return np.asarray(scipy.linalg.pinv(A)) if A.size else np.zeros(A.shape[::-1])

    def summary(self) -> dict[str, Any]:
        """Return the facts about this fit as plain values."""
        workload, policy, lower = self.problem.workload, self.problem.policy, self.certificate.lower_bound
        return {
            "workload": workload.spec,
            "policy": policy.spec,
            "noise": self.noise,
            "family": self.strategy.family,
            "num_cells": workload.num_cells,
            "num_queries": workload.num_queries,
            "num_edges": policy.num_edges,
            "num_rows": self.strategy.num_rows,
            "unit_error": self.unit_error,
            "sensitivity": self.certificate.sensitivity,
            "svd_bound": self.certificate.svd_bound,
            "lower_bound": lower,
            "ratio_to_svd": self.unit_error / self.certificate.svd_bound if lower > 0 else 1.0,
            "ratio_to_lower": self.unit_error / lower if lower > 0 else 1.0,
            "gap": self.gap,
            "certified": self.certified,
            "seconds": self.seconds,
            "seed": self.seed,
            "status": self.status,
            "discloses": self.discloses,
        }

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


def _blocks(chosen: np.ndarray, num_queries: int) -> list[np.ndarray]:
    """Cut a list of queries so that the unit vectors that pick a block stay small."""
    size = max(1, min(_ROW_BLOCK, _BLOCK_ENTRIES // num_queries))
    return [chosen[i : i + size] for i in range(0, chosen.size, size)]
