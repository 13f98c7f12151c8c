"""`fit`: from a workload and a policy to a certified strategy; `bound`; `load`; the `Fit` that users hold.

Every number of a `Fit` is its certificate's: derived from the shipped integers, not taken from the search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import scipy.linalg

from hdmm_bf import __version__, bundle
from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._checks import fail, fits
from hdmm_bf._types import Noise, RealMatrix, RealVector
from hdmm_bf.bounds import Bounds, is_public, svd_bound, uniform
from hdmm_bf.certificate import Certificate, certify, disagreements
from hdmm_bf.mechanisms.privacy import noise_variance
from hdmm_bf.policy import Policy
from hdmm_bf.strategies import Callback, Status, Strategy, TracePoint, from_gram, gaussian, nothing, search
from hdmm_bf.strategies.solver import SENTENCES
from hdmm_bf.transform import Problem
from hdmm_bf.workload import Workload

DEFAULT_GAP = 1e-3
_SEARCH_SHARE = 0.9
"""The search stops at this share of the wanted gap; the rest is for the grid."""

_ROW_BLOCK = 1024


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
        chosen = np.arange(m) if queries is None else np.asarray(queries, dtype=np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < m):
            worst = chosen.min() if chosen.min() < 0 else chosen.max()
            raise fail("fit.per_query_stddev", f"query {worst}", f"queries are 0 to {m - 1}", "Correct it.")
        blocks = [np.linalg.norm(self._noise_rows(block), axis=1) for block in _blocks(chosen)]
        return sigma * self.certificate.sensitivity * np.concatenate([np.empty(0), *blocks])

    def reconstruction(self) -> RealMatrix:
        """Return W A^+, m x r: it turns noisy answers of the strategy into answers of the workload."""
        m, r = self.problem.workload.num_queries, self.strategy.num_rows
        fits("fit.reconstruction", f"{m} x {r}", m * r * 8, advice="Reconstruct the chosen queries only.")
        return np.concatenate([np.empty((0, r)), *(self._noise_rows(block) for block in _blocks(np.arange(m)))])

    def _noise_rows(self, queries: np.ndarray) -> RealMatrix:
        """Rows of W A^+ for some queries."""
        m = self.problem.workload.num_queries
        picks = np.zeros((m, queries.size))
        picks[queries, np.arange(queries.size)] = 1.0
        rows = self.problem.workload.matrix.rmv(picks).T
        return np.asarray(self.problem.grounding.columns(rows) @ self._pseudo_inverse)

    @cached_property
    def _pseudo_inverse(self) -> RealMatrix:
        A = self.problem.grounding.columns(self.strategy.matrix())
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
        }
        return bundle.write(
            path,
            problem=self.problem,
            strategy=self.strategy,
            weights=self.weights,
            certificate=self.certificate.as_dict(),
            manifest=manifest,
        )


def fit(
    workload: Any,
    policy: Any,
    *,
    noise: Noise = "gaussian",
    gap: float = DEFAULT_GAP,
    max_seconds: float = math.inf,
    seed: int = 0,
    start: Fit | RealVector | None = None,
    callback: Callback | None = None,
) -> Fit:
    """Find the strategy of least expected error for a workload under a policy, and certify it.

    Args:
        workload: a Workload, a spec string or path, a NumPy or scipy.sparse matrix.
        policy: a Policy, a spec string or path, a networkx graph.
        noise: "gaussian".
        gap: stop when the error is proven to be within this share of the best possible.
        max_seconds: time limit of the search; the best strategy by then is returned.
        seed: for families that draw random numbers.
        start: an earlier fit, or its edge weights, for the same policy, to start from.
        callback: called with the error and bound after every step.

    Guarantees:
        Without a time limit, the same inputs and seed give the same strategy on the same machine, bit by bit.
    """
    started = time.perf_counter()
    problem = as_problem(workload, policy)
    if noise != "gaussian":
        raise fail("fit", f"noise={noise!r}", "is not available", "Use noise='gaussian'.")
    if not 0 < gap < math.inf or math.isnan(max_seconds) or max_seconds <= 0:
        shown = f"gap={gap}, max_seconds={max_seconds}"
        raise fail("fit", shown, "both must be positive numbers", "Use for example gap=1e-3, max_seconds=60.")
    if is_public(problem):
        strategy, weights = nothing(problem), uniform(problem.policy.num_edges)
        certificate = certify(problem, noise=noise, integers=strategy.integers, bits=strategy.bits, weights=weights)
        return Fit(problem, strategy, certificate, weights, gap, seed, "exact", time.perf_counter() - started)
    aim = _SEARCH_SHARE * gap
    found = search(
        gaussian.steps(problem, gap=aim, start=_start_weights(problem, start)),
        gap=aim,
        max_seconds=max_seconds,
        callback=callback,
    )
    strategy = from_gram(problem, found.best, gap=gap, family="gaussian")
    certificate = certify(problem, noise=noise, integers=strategy.integers, bits=strategy.bits, weights=found.proof)
    seconds = time.perf_counter() - started
    return Fit(problem, strategy, certificate, found.proof, gap, seed, found.status, seconds, found.trace)


def bound(
    workload: Any,
    policy: Any,
    *,
    gap: float = DEFAULT_GAP,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
) -> Bounds:
    """Return the SVD bound and the best proven bound on the unit error of any strategy, tight to `gap`."""
    problem = as_problem(workload, policy)
    if is_public(problem):
        return Bounds(0.0, 0.0, uniform(problem.policy.num_edges), 0.0)
    found = search(gaussian.steps(problem, gap=gap), gap=gap, max_seconds=max_seconds, callback=callback)
    svd = svd_bound(problem)
    return Bounds(svd, max(svd, found.bound), found.proof, found.error / found.bound - 1)


def load(path: str | Path) -> Fit:
    """Read a bundle and certify it anew; refused if anything in it disagrees with what is derived."""
    loaded, found = check(path)
    if found:
        raise bundle.BundleError(f"bundle.load({str(path)!r}): {found[0]}. Fit the strategy again.")
    return loaded


def check(path: str | Path) -> tuple[Fit, list[str]]:
    """Read a bundle, derive everything again from its files, and list what disagrees with its claims."""
    started = time.perf_counter()
    held = bundle.read(path)
    strategy = held.strategy
    derived = certify(
        held.problem,
        noise=held.manifest["noise"],
        integers=strategy.integers,
        bits=strategy.bits,
        weights=held.weights,
    )
    found = disagreements(held.certificate, derived)
    manifest, seconds = held.manifest, time.perf_counter() - started
    made = Fit(
        held.problem,
        strategy,
        derived,
        held.weights,
        float(manifest["requested_gap"]),
        int(manifest["seed"]),
        manifest["status"],
        seconds,
    )
    fresh = made.summary()
    claims = {key: manifest.get(key) for key in fresh if key not in ("workload", "policy", "seconds")}
    found += [
        f"manifest.json claims {key} = {claims[key]}, derived {fresh[key]}"
        for key in claims
        if not _same(claims[key], fresh[key])
    ]
    return made, found


def _same(claimed: Any, derived: Any) -> bool:
    if isinstance(derived, float) and isinstance(claimed, int | float):
        return math.isclose(claimed, derived, rel_tol=1e-9, abs_tol=1e-9)
    return bool(claimed == derived)


def as_problem(workload: Any, policy: Any) -> Problem:
    """Accept workloads and policies in every form users hold them."""
    return Problem(as_workload(workload), as_policy(policy))


def as_workload(value: Any) -> Workload:
    """Accept a Workload, a spec string or path, or any matrix."""
    if isinstance(value, Workload):
        return value
    return workloads.parse(str(value)) if isinstance(value, str | Path) else workloads.from_matrix(value)


def as_policy(value: Any) -> Policy:
    """Accept a Policy, a spec string or path, or a networkx graph."""
    if isinstance(value, Policy):
        return value
    if isinstance(value, str | Path):
        return policies.parse(str(value))
    if hasattr(value, "nodes") and hasattr(value, "edges"):
        return policies.from_networkx(value)
    advice = "Pass a Policy, a spec string, a path or a networkx graph."
    raise fail("fit", f"policy of type {type(value).__name__}", "is not a policy", advice)


def _start_weights(problem: Problem, start: Fit | RealVector | None) -> RealVector | None:
    if start is None:
        return None
    weights = start.weights if isinstance(start, Fit) else np.asarray(start, dtype=np.float64)
    edges = problem.policy.num_edges
    if weights.shape != (edges,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or not weights.sum() > 0:
        advice = "Start from a fit of the same policy."
        shown = f"start with {weights.size} weights"
        raise fail("fit", shown, f"must be {edges} weights, none negative, not all zero", advice)
    return weights


def _blocks(chosen: np.ndarray) -> list[np.ndarray]:
    return [chosen[i : i + _ROW_BLOCK] for i in range(0, chosen.size, _ROW_BLOCK)]
