"""Goals other than the total, where no search is for them: pure epsilon, tree norms, strategies by factors.

The total of weighted queries is searched, again and again; after every round queries that are too bad for the goal get
more weight, as in the joint ascent of the Gaussian search, whose weights are the first where there is one. The best
strategy for the goal is kept, and one of the paper's or the classical mechanisms if it is better. The Gaussian weights
prove a bound that holds for Laplace noise, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Proof, RealVector
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.certificate.goals import weighted_gram
from hdmm_bf.fit.certified import certificate, certified
from hdmm_bf.fit.dense import default_seconds, edge_proof, pairs_proof, with_own
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.tables import by_table, tables, weighted_tables
from hdmm_bf.matrix import Weighted
from hdmm_bf.problem.goal import TOTAL
from hdmm_bf.problem.query_forms import query_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import TracePoint, from_draft, limits, search
from hdmm_bf.strategies.gaussian import largest
from hdmm_bf.strategies.gaussian import own as own_goal
from hdmm_bf.strategies.laplace import portfolio

_FIRST_GAP, _FIRST_STEPS, _FIRST_SHARE = 1e-3, 300, 0.25
"""Gap, steps and share of the time of the Gaussian search that gives the first weights and the bound."""

_LIGHTEST = 1e-9
"""Smallest weight of a query, against the largest: what has no weight at all would not be answered."""

_STILL = 1e-6
"""Relative change of all weights below which another round would be the same."""

FitTotal = Callable[[Problem, FitOptions], Fit]


class Rounds(Protocol):
    """Where the weights of the rounds come from."""

    rounds: int

    def first(self) -> RealVector:
        """Return the first weights."""

    def weighted(self, lam: RealVector) -> Problem:
        """Return the total to search."""

    def next(self, lam: RealVector, v: RealVector) -> RealVector:
        """Return the weights after a round that ended with these variances of the queries."""

    def proof(self, lam: RealVector, found: Proof | None) -> Proof | None:
        """Return what proves a bound for the goal, given the weights and the proof of a round."""


class ByQuery:
    """A weight for every query, or group of queries; the Gaussian optimum gives the first, and the proof."""

    rounds = 3  # each takes as long as a search for the total; the third gains a percent or two

    def __init__(self, problem: Problem, options: FitOptions) -> None:
        self.problem, self.noise, self.forms = problem, options.noise, query_forms(problem)
        own = problem.goal.kind == "own"
        steps: Any = own_goal.steps(problem, gap=_FIRST_GAP) if own else largest.steps(problem, gap=_FIRST_GAP)
        seconds = _FIRST_SHARE * (math.inf if options.max_seconds is None else options.max_seconds)
        with threads_for(problem.policy.num_cells), limits.limited(limits.now() + seconds):
            found = search(steps, gap=_FIRST_GAP, max_iterations=_FIRST_STEPS, whole_steps=True)
        self.bound = found.bound if found.bound > 0 else None
        self.shape = found.proof.shape if own else ""
        self._weights = found.proof

    def first(self) -> RealVector:
        """Return those of the Gaussian optimum."""
        return np.asarray(self._weights.queries)

    def weighted(self, lam: RealVector) -> Problem:
        """Return the same queries times roots of their weights."""
        each = self.forms.scales * (lam if self.forms.groups is None else lam[self.forms.groups])
        heavy = Weighted(np.sqrt(np.maximum(each, 1e-300)), self.problem.workload.matrix)
        return Problem(replace(self.problem.workload, times_weights=heavy), self.problem.policy)

    def next(self, lam: RealVector, v: RealVector) -> RealVector:
        """Multiply by the variances, or take the derivatives of the user's own objective."""
        if self.problem.goal.kind == "own":
            return own_goal.OwnFunction(self.problem).at(own_goal.seen(v)).slope
        each = self.forms.scales * v
        return _moved(lam, each if self.forms.groups is None else np.bincount(self.forms.groups, each))

    def proof(self, lam: RealVector, found: Proof | None) -> Proof | None:
        """Return the Gaussian weights; tree norms keep their yardstick."""
        if self.noise == "norm":
            return found
        proof = edge_proof(self._weights.edges, self._weights.queries)
        if self.noise == "gaussian":
            return proof
        return proof | pairs_proof(self.problem, self._weights.edges, weighted_gram(self.problem, self.first()))


class ByTable:
    """A weight for every table, at first the same. Rounds are short, and end at the gap or when nothing moves."""

    rounds = 100
    bound: float | None = None
    shape = ""

    def __init__(self, problem: Problem) -> None:
        if problem.goal.kind == "own" or problem.goal.groups is not None:
            advice = "Use objective='largest' or targets, or a smaller domain."
            raise fail("fit", f"objective {problem.goal.name!r}", "is not for strategies by factors", advice)
        self.problem = problem

    def first(self) -> RealVector:
        """Return equal weights."""
        return uniform(len(tables(self.problem)))

    def weighted(self, lam: RealVector) -> Problem:
        """Return every table with its share."""
        return weighted_tables(self.problem, lam)

    def next(self, lam: RealVector, v: RealVector) -> RealVector:
        """Multiply by the worst of every table."""
        each = by_table(self.problem, self.problem.goal.scales(self.problem.workload) * v)
        return _moved(lam, np.array([table.max() for table in each]) ** 2)  # safe: edges follow in every round

    def proof(self, lam: RealVector, found: Proof | None) -> Proof | None:
        """Add the weights of the tables to what was proven with them."""
        return None if found is None else {**found, "tables": lam.tolist()}


def fit_for_goal(problem: Problem, options: FitOptions, fit_total: FitTotal, *, structured: bool) -> Fit:
    """Search for a goal by rounds of weighted totals, with a function that fits a total."""
    if not structured and is_public(problem):
        made = fit_total(replace(problem, goal=TOTAL), options)
        forms_proof = edge_proof(made.weights, uniform(query_forms(problem).count))
        return certified(problem, made.strategy, forms_proof, options, status="exact")
    source: ByQuery | ByTable = ByTable(problem) if structured else ByQuery(problem, options)
    best = _rounds(problem, options, fit_total, source)
    if options.noise == "laplace" and not structured:
        best = _best_floor(problem, best, options)
    best = replace(best, seconds=limits.now() - options.started, seed=options.seed, requested_gap=options.gap)
    if problem.goal.kind != "own":
        return best
    return with_own(best, None if options.noise == "norm" else source.bound, source.shape)


def _rounds(problem: Problem, options: FitOptions, fit_total: FitTotal, source: ByQuery | ByTable) -> Fit:
    default = math.inf if options.limited else default_seconds(problem)
    until = limits.now() + default if options.max_seconds is None else options.until(0.0)
    best: Fit | None = None
    lam = source.first()
    for turn in range(source.rounds):
        left = until - limits.now()
        if best is not None and (left <= 0 or limits.interrupted() or best.status == "interrupted"):
            break
        seconds = None if math.isinf(left) else max(left / (source.rounds - turn), 0.1)
        start = best if options.noise == "laplace" and isinstance(source, ByQuery) else None
        own = replace(options, max_seconds=seconds, origin=limits.now(), start=start, callback=None)
        found = fit_total(source.weighted(np.maximum(lam, _LIGHTEST * lam.max())), own)
        proof = source.proof(lam, found.proof)
        derived = certificate(found.strategy, problem, noise=found.noise, proof=proof)
        made = replace(found, problem=problem, certificate=derived, proof=proof, trace=(), reached={})
        best = made if best is None else _best_of(best, made)
        if options.callback is not None:
            bound = best.objective_bound or 0.0
            options.callback(TracePoint(limits.now() - options.started, best.objective_value, bound, math.inf))
        if best.certificate.objective_gap <= options.gap:
            return replace(best, status="converged")
        last, lam = lam, source.next(lam, made.unit_variances())
        if np.allclose(last, lam, rtol=_STILL, atol=0.0):
            break
    assert best is not None
    return replace(best, status="finished") if best.status == "converged" else best


def _best_of(best: Fit, made: Fit) -> Fit:
    """Return the better strategy of two, with the proof of the better bound: it holds for both."""
    kept, other = (made, best) if made.objective_value < best.objective_value else (best, made)
    if not (other.objective_bound or 0.0) > (kept.objective_bound or 0.0):
        return kept
    derived = certificate(kept.strategy, kept.problem, noise=kept.noise, proof=other.proof)
    return replace(kept, certificate=derived, proof=other.proof)


def _moved(lam: RealVector, each: RealVector) -> RealVector:
    """Give more weight to what is too bad."""
    moved = lam * each
    return np.asarray(moved / moved.sum())


def _best_floor(problem: Problem, best: Fit, options: FitOptions) -> Fit:
    """Return the fit, or the best of the paper's and the classical mechanisms if that is better for the goal."""
    total = replace(problem, goal=TOTAL)
    with limits.limited(options.until(0.0)):
        floors = [from_draft(total, draft) for draft in portfolio.Floors(total, portfolio.Table(), "L1")]
    for strategy in floors:
        derived = certificate(strategy, problem, noise="laplace", proof=best.proof)
        if derived.objective_value is not None and derived.objective_value < best.objective_value:
            best = replace(best, strategy=strategy, certificate=derived)
    return best
