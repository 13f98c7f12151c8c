"""Fits of sums of tree norms: a search for every attribute by itself, the bound beside it, then the certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from hdmm_bf._checks import InputError, fail
from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Effort, Proof
from hdmm_bf.fit.certified import certified
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.reserve import flows_seconds
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.tree_sum_noise import sum_sampler
from hdmm_bf.strategies import Progress, limits, search
from hdmm_bf.strategies.gaussian.choose import short_proof
from hdmm_bf.strategies.norm import flows
from hdmm_bf.strategies.norm.flows import FlowsDraft
from hdmm_bf.strategies.records import GroupedTree, TreeSum
from hdmm_bf.strategies.rounding import from_flows

LEAST_WEIGHT = 2.0**-7
"""Weight that every set gets, at a longest edge of 1, where the noise of the best tree has no table at epsilon 1."""

_HELD = 1e-3
"""Share of the error at which every set gets it anyway: short tables, and deviations at any epsilon."""

_SECONDS = 60.0
"""Limit of a search where none is given: one attribute after the other, few need as much."""

SHARE = 0.6
"""Of a time limit, where trees over all cells or groups are searched as well."""

_BOUND_SHARE = 0.2
"""Of a time limit, for the bound on matrix mechanisms that stands beside the error."""


def fit_flows(problem: Problem, options: FitOptions, *, share: float = 1.0) -> Fit:
    """Search the parts of a sum of tree norms, put the best on a grid, and certify it.

    Args:
        problem: a product policy.
        options: of the fit.
        share: of a time limit that the search may take.
    """
    if not flows.applies(problem):
        shown = f"family={flows.NAME!r} for {problem.workload.title} under {problem.policy.title}"
        advice = "Use a product of policies, one an attribute, and the total error; or leave the family out."
        raise fail("fit", shown, flows.FAMILY.needs, advice)
    reserve = 0.0 if options.max_seconds is None else flows_seconds(problem)
    limit = math.inf if options.limited else _SECONDS
    reached: dict[str, float] = {}
    with threads_for(max(problem.policy.domain.sizes)):
        with limits.limited(min(options.until(reserve), limits.now() + limit)):
            with limits.limited(limits.now() + _BOUND_SHARE * limits.time_left()):
                proof = _proof(problem)
            with limits.limited(limits.now() + share * limits.time_left()):
                effort: Effort = options.effort  # type: ignore[assignment]
                found = search(
                    _progress(flows.steps(problem, seed=options.seed, effort=effort), reached),
                    gap=options.gap,
                    max_iterations=options.max_steps,
                    callback=options.callback,
                )
        limits.keep()

        def certified_sum(draft: FlowsDraft) -> Fit:
            whole = from_flows(draft, problem.policy.domain.sizes)
            sum_sampler(whole, problem.policy, 1.0)
            strategy = _simplest(whole)
            own = proof if isinstance(strategy, TreeSum) else None  # bounds beside groups are derived without one
            return certified(problem, strategy, own, options, status=found.status, reached=reached)

        if not flows.has_light_sets(found.best, LEAST_WEIGHT):
            return certified_sum(found.best)
        held = flows.held(problem, found.best, LEAST_WEIGHT)
        if held.error <= found.best.error * (1 + _HELD):
            return certified_sum(held)
        try:  # queries that hold hardly a slot leave others without a weight to speak of
            made = certified_sum(found.best)
            _ = made.rmse(epsilon=1.0)
            return made
        except InputError:
            return certified_sum(held)


def better(made: Fit, other: Fit) -> Fit:
    """Return the fit with the smaller error; it names what both reached."""
    best = made if made.unit_error <= other.unit_error else other
    return replace(best, reached={**other.reached, **made.reached})


def _progress(drafts: Iterator[FlowsDraft], reached: dict[str, float]) -> Iterator[Progress[FlowsDraft, None]]:
    """Note what was reached; no bound binds tree norms."""
    for found in drafts:
        if found.error < math.inf:
            reached[found.origin] = min(found.error, reached.get(found.origin, math.inf))
        yield Progress(found.error, 0.0, found, None)


def _simplest(strategy: TreeSum) -> TreeSum | GroupedTree:
    """Return a tree within groups where that is all there is."""
    first, *others = strategy.parts
    return strategy if others or first.along is not None else GroupedTree(first.tree, first.axes, strategy.sizes)


def _proof(problem: Problem) -> Proof | None:
    product = as_product(problem)
    return None if product is None else short_proof(product)
