"""The `Fit` that users hold: a strategy, its certificate, and what follows from them before anything is spent.

Every number of a `Fit` is its certificate's: derived from the shipped integers, not taken from the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from hdmm_bf import __version__, _display, bundle
from hdmm_bf import policy as policies
from hdmm_bf._checks import fail, whole_numbers
from hdmm_bf._types import JsonObject, Noise, Proof, RealMatrix, RealVector
from hdmm_bf.bounds.dense import Bounds
from hdmm_bf.certificate import Certificate
from hdmm_bf.fit import budget
from hdmm_bf.problem.goal import Groups, Targets
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.calibration import Accounting
from hdmm_bf.release.plan import Plan, plan
from hdmm_bf.release.reconstruction import Recovery, recovery
from hdmm_bf.strategies import Status, TracePoint
from hdmm_bf.strategies.records import Strategy
from hdmm_bf.strategies.search import SENTENCES

TRACE_KEPT = 200
"""Steps of a search that a bundle keeps, evenly chosen, the first and the last among them."""


@final
@dataclass(frozen=True)
class OwnValue:
    """What a fit reached of the user's own objective.

    Attributes:
        value: the objective at the variances of the strategy as shipped.
        bound: what no strategy is below; None where nothing is proven.
        shape: "convex", "convex in the logarithms" or "neither", found by trying; the bound hangs on it.
    """

    value: float
    bound: float | None
    shape: str

    @property
    def gap(self) -> float:
        """Value / bound - 1; infinite where nothing is proven."""
        return self.value / self.bound - 1 if self.bound is not None and self.bound > 0 else math.inf


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """A strategy for a workload under a policy, with its certificate.

    Attributes:
        problem: the workload and the policy.
        strategy: what is measured, as it ships.
        certificate: what holds for the strategy as it ships.
        proof: what proves the lower bound; None when no bound is proven.
        requested_gap: the gap that was asked for.
        seed: the seed of the search.
        status: how the search ended.
        seconds: how long it took, certificate included.
        options: limits and family that the search was given, where it was given any.
        trace: error and bound after every step; a bundle keeps at most `TRACE_KEPT` of them.
        reached: unit error that every mechanism and family reached.
        why: why this family was chosen, or what the search had to do otherwise than asked, in words.
        digest: sha256 of the manifest of the bundle it was read from; None for a fit that was not read.
        own: value, bound and shape of the user's own objective; None for others, and for a fit that was read.
    """

    problem: Problem
    strategy: Strategy
    certificate: Certificate
    proof: Proof | None
    requested_gap: float
    seed: int
    status: Status
    seconds: float
    options: Mapping[str, object] = field(default_factory=dict)
    trace: tuple[TracePoint, ...] = ()
    reached: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    digest: str | None = None
    own: OwnValue | None = None

    def __repr__(self) -> str:
        reached, gap = f"unit error {self.unit_error:.6g}", self.gap
        if self.objective != "total":
            reached = f"{self.objective} {self.objective_value:.6g}"
            gap = self.certificate.objective_gap if self.own is None else self.own.gap
        return f"Fit({self._name}, {self.noise}, {reached}, gap {gap:.2g})"

    def _repr_html_(self) -> str:
        lower = self.bounds.lower
        proven = f"{lower:.6g} (the error is {self.unit_error / lower:.6g} times this)" if lower > 0 else "none"
        rows = [
            ("noise", self.noise),
            ("unit error", f"{self.unit_error:.6g}"),
            ("proven lower bound", "0: all answers are public" if self.unit_error == 0 else proven),
            ("strategy", f"{self.num_rows} measured queries, family {self.family}"),
            ("public", "; ".join(self.discloses) or "nothing"),
            ("status", self.sentence),
        ]
        return _display.card("Fit", self._name, _display.facts_table(rows))

    @property
    def _name(self) -> str:
        return f"{self.problem.workload.title} under {self.problem.policy.title}"

    @property
    def weights(self) -> RealVector:
        """Edge weights that prove the lower bound; empty where the bound is proven by factors."""
        by_edges = self.proof is not None and self.proof["kind"] == "edges"
        return np.asarray(self.proof["weights"]) if by_edges and self.proof is not None else np.empty(0)

    @property
    def bounds(self) -> Bounds:
        """The SVD bound and the best proven bound; zero where none is proven."""
        lower = self.certificate.lower_bound
        laplace = lower if self.noise == "laplace" else None
        return Bounds(self.certificate.svd_bound, lower, self.weights, self.gap, laplace)

    @property
    def family(self) -> str:
        """The family that found the strategy."""
        return self.strategy.family

    @property
    def num_rows(self) -> int:
        """Number of queries measured."""
        return self.strategy.num_rows

    @cached_property
    def recovery(self) -> Recovery:
        """How noisy answers of the strategy become answers of the workload."""
        return recovery(self.strategy, self.problem)

    def unit_variances(self) -> RealVector:
        """Return the variance of every query as written, at sensitivity 1; for tree norms lim epsilon^2 Var / 2."""
        square = 1.0 if self.noise == "norm" else self.certificate.sensitivity**2
        return np.asarray(square * self.recovery.unit_variances())

    def reconstruction(self) -> RealMatrix:
        """Return W A^+, m x r: it turns noisy answers of the strategy into answers of the workload."""
        return self.recovery.reconstruction()

    def save(self, path: str | Path) -> Path:
        """Write the fit as a bundle, a folder of plain files."""
        return bundle.write(
            path,
            problem=self.problem,
            strategy=self.strategy,
            proof=self.proof,
            certificate=self.certificate.as_dict(),
            manifest=self._claims(),
        )

    @property
    def noise(self) -> Noise:
        """The noise the strategy is for."""
        return self.certificate.noise

    @property
    def unit_error(self) -> float:
        """sensitivity^2 ||W A^+||_F^2 of the strategy as shipped, W being the queries times their weights.

        For tree norms epsilon^2 E[z^T W^T W z] / 2 in the limit of small epsilon.
        """
        return self.certificate.unit_error

    @property
    def gap(self) -> float:
        """unit_error / lower bound - 1, the proven distance to the best possible."""
        return self.certificate.gap

    @property
    def matrix_bound(self) -> float:
        """The best proven bound on matrix mechanisms whatever their noise; it does not bind tree norms."""
        certificate = self.certificate
        return certificate.lower_bound if certificate.matrix_bound is None else certificate.matrix_bound

    @property
    def yardstick(self) -> float:
        """What errors are set beside: the lower bound, or, for tree norms, the bound of matrix mechanisms."""
        return self.matrix_bound if self.noise == "norm" else self.certificate.lower_bound

    @property
    def certified(self) -> bool:
        """Whether the strategy is proven optimal to the requested gap."""
        proven = self.certificate.objective_gap if self.own is None else self.own.gap
        return self.status == "exact" or (self.noise == "gaussian" and proven <= self.requested_gap)

    @property
    def objective(self) -> str:
        """What the strategy was made for: total, largest, targets or own."""
        return self.certificate.objective

    @property
    def objective_value(self) -> float:
        """What the strategy reaches of its objective, at sensitivity 1.

        The unit error; the largest variance, or mean variance of a group, times squared weights; the largest variance
        over squared targets; the user's own function of the variances (of a bundle, which cannot know it: the sum of
        variances weighted by its derivatives).
        """
        value = self.certificate.objective_value if self.own is None else self.own.value
        assert value is not None
        return value

    @property
    def objective_bound(self) -> float | None:
        """What no strategy is below; None where nothing is proven."""
        return self.certificate.objective_bound if self.own is None else self.own.bound

    @property
    def worst_variance(self) -> float | None:
        """The largest variance of a query as written, at sensitivity 1; None where queries are too many to look at."""
        return self.certificate.worst_variance

    @property
    def discloses(self) -> list[str]:
        """What the policy makes public, in words."""
        return policies.discloses(self.problem.policy)

    @property
    def sentence(self) -> str:
        """How the search ended, in words."""
        return SENTENCES[self.status]

    def expected_error(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        accounting: Accounting = "analytic",
        per_person: int | None = None,
    ) -> float:
        """Return the expected total squared error of a release over all queries as written.

        Guarantees:
            The same as of `plan` with these arguments, as are `rmse`, `per_query_stddev` and `epsilon_for`.
        """
        return self._plan(epsilon, delta, rho, accounting, per_person).expected_error

    def rmse(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        accounting: Accounting = "analytic",
        per_person: int | None = None,
    ) -> float:
        """Return the root mean squared error of an answer of a release."""
        return self._plan(epsilon, delta, rho, accounting, per_person).rmse

    def epsilon_for(
        self,
        *,
        rmse: float | None = None,
        stddev: Targets | None = None,
        largest: float | None = None,
        delta: float | None = None,
        accounting: Accounting = "analytic",
        per_person: int | None = None,
        groups: Groups | None = None,
    ) -> float:
        """Return the smallest epsilon at which a release is good enough.

        Args:
            rmse: the root mean squared error of an answer that is wanted, or
            stddev: the standard deviation that every query may have (one for all, or one each; NaN asks for none), or
            largest: the largest standard deviation of any query.
            delta: for Gaussian noise, the probability that epsilon is exceeded.
            accounting: for Gaussian noise, "analytic" or "zcdp"; see `plan`.
            per_person: the most records of one person, to whom epsilon is then promised; see `plan`.
            groups: for stddev={group: target}, the name of every query's group.

        Guarantees:
            A release at this epsilon has it, as `per_query_stddev` and `plan` tell.
            What `plan` would refuse is refused here.
        """
        wanted, reached = budget.wanted(self, rmse=rmse, stddev=stddev, largest=largest, groups=groups)
        shown = "these targets" if stddev is not None else f"an error of {wanted:g}"
        return budget.smallest_epsilon(
            self, wanted, reached, shown, delta=delta, accounting=accounting, per_person=per_person
        )

    def _plan(
        self,
        epsilon: float | None,
        delta: float | None,
        rho: float | None,
        accounting: Accounting,
        per_person: int | None,
    ) -> Plan:
        return plan(self, epsilon=epsilon, delta=delta, rho=rho, accounting=accounting, per_person=per_person)

    def per_query_stddev(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        accounting: Accounting = "analytic",
        per_person: int | None = None,
        queries: Sequence[int] | None = None,
    ) -> RealVector:
        """Return the standard deviation that a release gives every answer, or those of the chosen queries."""
        settled = self._plan(epsilon, delta, rho, accounting, per_person)
        m = self.problem.workload.num_queries
        chosen = None if queries is None else whole_numbers("fit.per_query_stddev", "queries", queries)
        if chosen is not None and chosen.size and not (chosen.min() >= 0 and chosen.max() < m):
            worst = chosen.min() if chosen.min() < 0 else chosen.max()
            raise fail("fit.per_query_stddev", f"query {worst}", f"queries are 0 to {m - 1}", "Correct it.")
        return np.asarray(np.sqrt(self.recovery.variances(self.problem.workload, settled, chosen)))

    def summary(self) -> JsonObject:
        """Return the facts about this fit as plain values."""
        workload, policy, lower = self.problem.workload, self.problem.policy, self.certificate.lower_bound
        return {
            "workload": workload.title,
            "policy": policy.title,
            "noise": self.noise,
            "family": self.family,
            "num_cells": workload.num_cells,
            "num_queries": workload.num_queries,
            "num_edges": policy.num_edges,
            "num_rows": self.num_rows,
            "unit_error": self.unit_error,
            "sensitivity": self.certificate.sensitivity,
            "svd_bound": self.certificate.svd_bound,
            "lower_bound": None if self.noise == "norm" else lower,
            "matrix_bound": self.matrix_bound,
            "ratio_to_svd": self._ratio(self.certificate.svd_bound),
            "ratio_to_lower": self._ratio(lower),
            "gap": self.gap if math.isfinite(self.gap) else None,
            "certified": self.certified,
            "seconds": self.seconds,
            "seed": self.seed,
            "status": self.status,
            "discloses": self.discloses,
            "objective": self.objective,
            "objective_value": self.objective_value,
            "objective_bound": self.objective_bound,
            "worst_variance": self.worst_variance,
        }

    def _claims(self) -> JsonObject:
        """Return what a bundle says of a fit in its manifest."""
        kept = np.unique(np.linspace(0, len(self.trace) - 1, min(len(self.trace), TRACE_KEPT)).astype(int))
        return {
            "versions": {"hdmm_bf": __version__, "numpy": np.__version__},
            **{key: value for key, value in self.summary().items() if key not in ("workload", "policy")},
            "certified": replace(self, own=None).certified,  # as it will be read: of the weighted sum of variances
            "objective_value": self.certificate.objective_value,
            "objective_bound": self.certificate.objective_bound,
            "requested_gap": self.requested_gap,
            "options": dict(self.options),
            "reached": dict(self.reached),
            "why": self.why,
            "trace": [[p.seconds, p.error, p.bound] for p in (self.trace[i] for i in kept)],
        }

    def _ratio(self, bound: float) -> float | None:
        """How many times a bound the error is; None when no bound is known."""
        if bound > 0:
            return self.unit_error / bound
        return 1.0 if self.unit_error == 0 else None
