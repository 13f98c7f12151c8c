"""The plan of a release: which noise, how much, and what it will cost, settled before any data are read.

A plan holds the whole-number noise for a strategy's exact integer sensitivity, and its privacy map has confirmed the
request. Gaussian noise is a rounded normal variable with the exact (epsilon, delta) of the Gaussian mechanism; with
accounting "zcdp" it is OpenDP's discrete Gaussian, accounted in rho-zCDP, whose conversion OpenDP has confirmed too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol, final, get_args, runtime_checkable

from hdmm_bf import _display
from hdmm_bf._checks import fail
from hdmm_bf._types import JsonObject, Noise, RealVector
from hdmm_bf.bounds.unbiased import unbiased_error
from hdmm_bf.certificate import Certificate
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import analytic
from hdmm_bf.release import noise as samplers
from hdmm_bf.release.calibration import Accounting, AnySampler, gaussian_for, noise_for, privacy_loss
from hdmm_bf.release.noise import Sampler
from hdmm_bf.release.people import checked_per_person, for_people, moved_together
from hdmm_bf.release.privacy import NAMES, noise_variance, weak_promises, zcdp_epsilon
from hdmm_bf.release.tree_sum_noise import TreeSumSampler
from hdmm_bf.strategies.records import Strategy

_LARGEST_CONVERTED = 1e4

MOST_LISTED = 2**24
"""Queries up to which the variance of each is looked at."""


@runtime_checkable
class Fitted(Protocol):
    """What a plan and a release need of a fit."""

    @property
    def problem(self) -> Problem:
        """The workload and the policy."""

    @property
    def certificate(self) -> Certificate:
        """What holds for the strategy."""

    @property
    def strategy(self) -> Strategy:
        """What is measured."""

    @property
    def recovery(self) -> Any:
        """How answers of the strategy become answers of the workload."""


@final
@dataclass(frozen=True)
class Plan:
    """Noise that was checked against a request.

    Attributes:
        noise: "laplace", "gaussian" or "norm".
        epsilon: the epsilon asked for, or None when rho was.
        delta: the delta asked for, or None.
        rho: the zCDP parameter of Gaussian noise, or None; half the square of `mu`.
        sampler: the noise on the strategy's integers, or on the cells; None when every answer is public and no noise is
            needed.
        calibrated: the exact sensitivity of the integers that the noise was made for.
        bits: binary places of the strategy's grid.
        num_queries: how many.
        predict: from the plan to the expected total squared error, which takes seconds for tree norms.
        variances: from the plan to the variance of every answer, or None where there are too many to list.
        unbiased_error: what the total squared error of no unbiased mechanism with the same promise is below; None where
            no such bound is known.
        per_person: the most records of one person, all of which the promise lets change at once; None when it is about
            one record.
    """

    noise: Noise
    epsilon: float | None
    delta: float | None
    rho: float | None
    sampler: AnySampler | None
    calibrated: int
    bits: int
    num_queries: int
    predict: Callable[[Plan], float] | None = field(default=None, repr=False, compare=False)
    variances: Callable[[Plan], RealVector] | None = field(default=None, repr=False, compare=False)
    unbiased_error: float | None = None
    per_person: int | None = None

    @property
    def moved(self) -> int:
        """Exact sensitivity, squared for Gaussian noise, to all records of one person changing at once.

        By the triangle inequality k moves along edges change the strategy's answers by at most k times what one does;
        by no less when k records lie in one cell and all move along its worst edge.
        """
        return moved_together(self.noise, self.calibrated, self.per_person)

    @cached_property
    def expected_error(self) -> float:
        """Expected total squared error of the answers as written, with the noise that will be drawn."""
        return 0.0 if self.predict is None else self.predict(self)

    @property
    def row_sampler(self) -> Sampler | None:
        """The noise on the strategy's rows."""
        assert self.sampler is None or isinstance(self.sampler, Sampler), "noise of tree norms is drawn on the cells"
        return self.sampler

    @property
    def law(self) -> str:
        """What is drawn, in words."""
        if isinstance(self.sampler, TreeSumSampler):
            return "whole numbers for the moves along every attribute, by the norms of trees"
        if self.noise == "norm":
            return "whole numbers on the cells, by the norm of a tree"
        return "rounded normal" if self.mu is not None else f"discrete {self.noise.capitalize()}"

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on one row of the strategy; none where noise is drawn on the cells."""
        if self.sampler is None:
            return 0.0
        own = self.sampler
        return math.ldexp(math.sqrt(own.variance), -self.bits) if isinstance(own, Sampler) else math.nan

    @property
    def scale(self) -> float:
        """Scale of the noise on a row of precision 1; for tree norms, how large a norm weighs 1 / e."""
        if self.sampler is None:
            return 0.0
        grid = self.sampler.scale if isinstance(self.sampler, Sampler) else self.calibrated / self.sampler.loss
        return math.ldexp(grid, -self.bits)

    @property
    def rmse(self) -> float:
        """Root mean squared error of an answer, with the noise that will be drawn."""
        return math.sqrt(self.expected_error / self.num_queries)

    @cached_property
    def worst_stddev(self) -> float | None:
        """Largest standard deviation of an answer; None where there are too many answers to look at each."""
        if self.sampler is None:
            return 0.0
        return None if self.variances is None else math.sqrt(float(self.variances(self).max()))

    @property
    def any_unbiased_rmse(self) -> float | None:
        """Root mean squared error below which no unbiased mechanism of the same promise is; None where unknown."""
        return None if self.unbiased_error is None else math.sqrt(self.unbiased_error / self.num_queries)

    @property
    def accounting(self) -> Accounting:
        """How Gaussian noise was calibrated, which is also its law: rounded normal, or OpenDP's discrete Gaussian."""
        own = self.sampler
        return "zcdp" if isinstance(own, Sampler) and (own.noise, own.law) == ("gaussian", "discrete") else "analytic"

    @property
    def mu(self) -> float | None:
        """The parameter of Gaussian differential privacy (GDP), rounded up; None where there is none."""
        return None if self._exact_mu is None else analytic.up(self._exact_mu)

    @property
    def _exact_mu(self) -> Fraction | None:
        if not isinstance(self.sampler, Sampler) or self.sampler.law != "rounded":
            return None
        return analytic.mu_above(self.moved, self.sampler.scale)

    @property
    def loss(self) -> dict[str, Any]:
        """What the noise is made for: rho of Gaussian noise, epsilon of the others."""
        return {"rho": self.rho} if self.noise == "gaussian" else {"epsilon": self.epsilon}

    @property
    def promise(self) -> str:
        """The guarantee, in words."""
        whom = for_people(self.per_person)
        if self.noise != "gaussian":
            return f"epsilon = {self.epsilon:g}{whom}"
        by = f"rho = {self.rho:.6g} (zCDP)"
        if self.epsilon is None:
            return f"{by}{whom}"
        by = by if self.mu is None else f"mu = {self.mu:.6g} (GDP)"
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}, by {by}{whom}"

    def _repr_html_(self) -> str:
        worst, floor = self.worst_stddev, self.any_unbiased_rmse
        rows = [
            ("privacy", self.promise),
            ("noise", "none: every answer is public" if self.sampler is None else NAMES[self.noise]),
            ("queries", str(self.num_queries)),
            ("rmse of an answer", f"{self.rmse:.4g}"),
            *([] if worst is None else [("largest standard deviation", f"{worst:.4g}")]),
            *([] if floor is None else [("no unbiased mechanism is below", f"{floor:.4g}")]),
            *(("warning", sentence) for sentence in self.warnings),
        ]
        return _display.card("Plan", "of a release; nothing was read or spent", _display.facts_table(rows))

    @property
    def warnings(self) -> list[str]:
        """What whoever signs off the release should know: a sentence for each parameter that promises little."""
        return weak_promises(epsilon=self.epsilon, delta=self.delta, rho=self.rho)

    def check_made_for(self, certificate: Certificate, derived: int, bits: int, problem: Problem) -> None:
        """Refuse to be carried out on integers of another sensitivity than the plan's, or than their certificate's.

        Args:
            certificate: what the fit claims.
            derived: the exact sensitivity of the integers that are about to be used.
            bits: their binary places.
            problem: the policy that is to hold.
        """
        made_for = self.noise, self.calibrated, self.bits
        if (self.sampler is None) != (self.calibrated == 0):
            raise fail("release", "plan", "has noise that does not go with its sensitivity", "Make a new plan.")
        self._confirm(problem)
        if made_for != (certificate.noise, certificate.sensitivity_exact, certificate.bits):
            raise fail("release", "plan", "was made for another strategy", "Make a plan for this one.")
        if (derived, bits) != (self.calibrated, self.bits):
            seen = "has another sensitivity than its certificate says"
            raise fail("release", "strategy", seen, "Certify it: fit again, or load it from its bundle.")

    def _confirm(self, problem: Problem) -> None:
        """Ask the privacy map of the noise once more, so that what was confirmed is what runs."""
        if self.sampler is None:
            return
        asked = self.rho if self.noise == "gaussian" else self.epsilon
        lossy = asked is None or not privacy_loss(self.sampler, self.calibrated, problem, self.per_person) <= asked
        if not lossy and isinstance(self.sampler, Sampler) and self.epsilon is not None and self.delta is not None:
            lossy = not samplers.keeps(self.sampler, self.moved, self.epsilon, self.delta)
        if lossy or self.sampler.noise != self.noise:
            raise fail("release", "plan", "has less noise than its promise needs", "Make a new plan.")

    def epsilon_at(self, delta: float) -> float:
        """Return the epsilon that holds at a delta."""
        if self._exact_mu is not None:
            return analytic.epsilon_for(self._exact_mu, delta)
        if self.rho is not None:
            return zcdp_epsilon(self.rho, delta)
        assert self.epsilon is not None
        return self.epsilon

    def summary(self) -> JsonObject:
        """Return the privacy parameters and the expected error as plain values."""
        return {
            "noise": self.noise,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "mu": self.mu,
            "accounting": self.accounting if self.noise == "gaussian" else None,
            "noise_scale": self.scale,
            "grid_bits": self.bits,
            "expected_error": self.expected_error,
            "rmse": self.rmse,
            "worst_stddev": self.worst_stddev,
            "any_unbiased_rmse": self.any_unbiased_rmse,
            "per_person": self.per_person,
            "warnings": self.warnings,
        }


def plan(
    fit: Fitted,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    accounting: Accounting = "analytic",
    per_person: int | None = None,
) -> Plan:
    """Settle the noise of a release and check it against the request, before any data are read.

    Args:
        fit: a fitted strategy.
        epsilon: the privacy loss; alone for pure epsilon, with delta for Gaussian noise.
        delta: the probability that it is exceeded.
        rho: the zCDP parameter, instead of epsilon and delta.
        accounting: for Gaussian noise, "analytic": rounded normal noise with the exact delta of the Gaussian mechanism;
            "zcdp": discrete Gaussian noise by way of zCDP, which needs more noise for the same epsilon and delta.
        per_person: the most records that one person has in the data. The promise is then made to people: it holds when
            all of a person's records, at most so many, change at once, each along an edge of the policy. Without it the
            promise is about one record.

    Guarantees:
        With `per_person=k`, databases that differ by at most k moves along edges are told apart no better than was
        asked for: noise is made for k times the sensitivity, which k records of one cell attain.
        The privacy map of the noise, at the exact integer sensitivity of the strategy under the policy, is at most what
        was asked for: OpenDP's for discrete noise; for rounded normal noise the enclosed delta of the Gaussian
        mechanism; for tree norms the loss that is derived from the ratios of the noise on every policy edge.
    """
    if accounting not in get_args(Accounting):
        raise fail("release", f"accounting={accounting!r}", "is none", f"Use one of {', '.join(get_args(Accounting))}.")
    certificate = fit.certificate
    noise_variance(certificate.noise, epsilon=epsilon, delta=delta, rho=rho)  # refuses what does not go together
    if epsilon is not None and delta is not None and epsilon > _LARGEST_CONVERTED:
        problem = f"is beyond {_LARGEST_CONVERTED:g}, where Gaussian noise is not calibrated"
        raise fail("release", f"epsilon={epsilon}", problem, "Use a smaller epsilon, or rho.")
    records = checked_per_person(per_person)
    floor = _unbiased_error(fit, records, epsilon=epsilon, delta=delta, rho=rho)
    exact = certificate.sensitivity_exact
    sampler: AnySampler | None = None
    if certificate.noise == "gaussian":
        rho, sampler = gaussian_for(moved_together("gaussian", exact, records), epsilon, delta, rho, accounting)
    elif exact > 0:
        sampler = noise_for(fit.strategy, fit.problem, exact, epsilon, records)
    m = fit.problem.workload.num_queries
    settled = Plan(certificate.noise, epsilon, delta, rho, sampler, exact, certificate.bits, m, per_person=records)
    settled = replace(settled, predict=lambda own: _expected_error(fit, own), unbiased_error=floor)
    if m <= MOST_LISTED:
        settled = replace(settled, variances=lambda own: fit.recovery.variances(fit.problem.workload, own))
    if sampler is None or isinstance(sampler, Sampler):
        _ = settled.expected_error  # refused here, if it is
    return settled


def _unbiased_error(fit: Fitted, records: int | None, **promise: float | None) -> float | None:
    """From the bound on matrix mechanisms, which is of the queries as written unless they have weights.

    Neighbours k moves apart along one edge shift the answers k times as far, at the same divergence.
    """
    if fit.problem.workload.is_weighted:
        return None
    certificate = fit.certificate
    bound = certificate.lower_bound if certificate.matrix_bound is None else certificate.matrix_bound
    return unbiased_error(bound * (records or 1) ** 2, **promise)


def _expected_error(fit: Fitted, settled: Plan) -> float:
    """From the certificate where every row has the same noise and every query the same weight, else row by row."""
    certificate = fit.certificate
    if settled.sampler is None:
        return 0.0
    return float(fit.recovery.total_variance(settled, certificate))
