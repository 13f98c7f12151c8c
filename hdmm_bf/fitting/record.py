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

from hdmm_bf import __version__, bundle
from hdmm_bf import policy as policies
from hdmm_bf._checks import fail, fits, whole_numbers
from hdmm_bf._types import Noise, RealMatrix, RealVector
from hdmm_bf.bounds import Bounds
from hdmm_bf.certificate import Certificate
from hdmm_bf.mechanisms.privacy import gaussian_epsilon, noise_variance
from hdmm_bf.mechanisms.reconstruction import Reconstruction
from hdmm_bf.strategies import Status, Strategy, TracePoint
from hdmm_bf.strategies.solver import SENTENCES
from hdmm_bf.transform import Problem


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

    def epsilon_for(self, *, rmse: float, delta: float | None = None) -> float:
        """Return the epsilon at which the root mean squared error of a query is as wanted.

        Args:
            rmse: the error wanted.
            delta: for Gaussian noise, the probability that epsilon is exceeded.
        """
        if not (rmse > 0 and math.isfinite(rmse)):
            raise fail("fit.epsilon_for", f"rmse={rmse}", "must be a positive number", "Use for example 5.0.")
        if (delta is None) != (self.noise == "laplace"):
            advice = "Give delta for Gaussian noise, and none for Laplace noise."
            raise fail("fit.epsilon_for", f"delta={delta}", f"does not go with {self.noise} noise", advice)
        if self.unit_error == 0:
            raise fail("fit.epsilon_for", f"rmse={rmse}", "the answers are public and have no error", "Publish them.")
        scale = rmse / math.sqrt(self.unit_error / self.problem.workload.num_queries)
        return math.sqrt(2) / scale if delta is None else gaussian_epsilon(scale, delta)

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
