"""From a strategy on its grid to a `Fit`: the certificate, with what is known of single queries."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

import numpy as np

from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import BOUND_ROUNDING, Noise, Proof
from hdmm_bf.certificate import Certificate, certify
from hdmm_bf.certificate.duals import ProvenBounds, proven_bounds
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.memory import MOST_LISTED
from hdmm_bf.fit.options import FitOptions, final_status
from hdmm_bf.fit.tables import check_tables, weighted_tables
from hdmm_bf.problem.product import as_product, product_view
from hdmm_bf.problem.query_forms import query_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.reconstruction import recovery
from hdmm_bf.strategies import Status, limits
from hdmm_bf.strategies.records import (
    GroupedTree,
    MatrixStrategy,
    NoiseSum,
    ProductStrategy,
    Strategy,
    TreeNorm,
    TreeSum,
)


@singledispatch
def factor_bounds(strategy: object, problem: Problem, proof: Proof | None) -> ProvenBounds | None:
    """Evaluate the proof of a strategy by factors; code of the certificate, as for edge weights."""
    raise TypeError(f"no bounds for {type(strategy).__name__}")


@factor_bounds.register(MatrixStrategy)
@factor_bounds.register(TreeNorm)
def _(_: MatrixStrategy | TreeNorm, problem: Problem, proof: Proof | None) -> ProvenBounds | None:
    return None  # evaluated with the rest of the certificate


@factor_bounds.register(ProductStrategy)
@factor_bounds.register(NoiseSum)
def _(_: ProductStrategy | NoiseSum, problem: Problem, proof: Proof | None) -> ProvenBounds | None:
    return proven_bounds(product_view(problem, balls=True), proof)


@factor_bounds.register
def _(_: GroupedTree, problem: Problem, proof: Proof | None) -> ProvenBounds | None:
    product = as_product(problem)
    return None if product is None else proven_bounds(product, None)


@factor_bounds.register
def _(_: TreeSum, problem: Problem, proof: Proof | None) -> ProvenBounds | None:
    product = as_product(problem)
    return None if product is None else proven_bounds(product, proof)


def certificate(strategy: Strategy, problem: Problem, *, noise: Noise, proof: Proof | None) -> Certificate:
    """Return the certificate of a strategy, with the bounds that its proof gives."""
    bounds = factor_bounds(strategy, problem, proof)
    return with_queries(strategy, problem, certify(strategy, problem, noise=noise, proof=proof, bounds=bounds), proof)


@singledispatch
def with_queries(strategy: object, problem: Problem, derived: Certificate, proof: Proof | None) -> Certificate:
    """Add what is known of single queries, where the certificate has no code for it."""
    return derived


@with_queries.register(ProductStrategy)
@with_queries.register(NoiseSum)
@with_queries.register(GroupedTree)
@with_queries.register(TreeSum)
def _(
    strategy: ProductStrategy | NoiseSum | GroupedTree | TreeSum,
    problem: Problem,
    derived: Certificate,
    proof: Proof | None,
) -> Certificate:
    """From the variances of all answers, as a release computes them, if they can be listed."""
    goal, m = problem.goal, problem.workload.num_queries
    if derived.noise != "norm" and (goal.kind == "own" or goal.groups is not None):
        raise fail("fit", f"objective {goal.name!r}", "is not for strategies by factors", "Use objective='largest'.")
    if m > MOST_LISTED and goal.kind != "total":
        advice = "Use the total, or fewer queries."
        raise fail("fit", f"objective {goal.kind!r}", f"cannot look at each of {m} queries", advice)
    if m > MOST_LISTED:
        return derived
    square = 1.0 if derived.noise == "norm" else derived.sensitivity**2
    try:
        v = square * recovery(strategy, problem).unit_variances()
    except InputError:
        if goal.kind != "total":
            raise
        return derived  # standard deviations are not for these queries
    derived = replace(derived, worst_variance=float(v.max(initial=0.0)))
    if goal.kind == "total":
        return derived
    bound = None
    value = float((goal.scales(problem.workload) * v).max())
    if goal.groups is not None:
        value = float(np.bincount(goal.groups, query_forms(problem).scales * v).max())
    if proof is not None and "tables" in proof:
        lam = np.asarray(proof["tables"], dtype=np.float64)
        check_tables(lam, problem)
        found = proven_bounds(product_view(weighted_tables(problem, lam / lam.sum()), balls=True), proof)
        bound = found.lower if found.paired is None else max(found.paired, found.lower or 0.0)
    if bound is not None and not value >= bound * (1 - BOUND_ROUNDING):
        raise fail("certificate", f"objective {value}", f"is below the bound {bound}", "Report this as a bug.")
    return replace(derived, objective=goal.kind, objective_value=value, objective_bound=bound)


def certified(
    problem: Problem,
    strategy: Strategy,
    proof: Proof | None,
    options: FitOptions,
    *,
    status: Status,
    reached: dict[str, float] | None = None,
    why: str = "",
) -> Fit:
    """Certify a strategy and return it as a fit."""
    derived = certificate(strategy, problem, noise=options.noise, proof=proof)
    return Fit(
        problem=problem,
        strategy=strategy,
        certificate=derived,
        proof=proof,
        requested_gap=options.gap,
        seed=options.seed,
        status=final_status(status, derived, options.gap),
        seconds=limits.now() - options.started,
        reached=reached or {},
        why=why,
    )
