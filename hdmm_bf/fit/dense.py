"""Dense fits: matrices over cells or edges, found by the Gaussian search or by the portfolio, then certified."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Effort, Proof, RealVector, SquareMatrix
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.bounds.pairs import choose_pairs
from hdmm_bf.fit.certified import certified
from hdmm_bf.fit.fit import Fit, OwnValue
from hdmm_bf.fit.options import FitOptions, start_draft, start_weights
from hdmm_bf.fit.reserve import dense_seconds
from hdmm_bf.parallel.devices import clock
from hdmm_bf.parallel.workers import default_workers
from hdmm_bf.problem.query_forms import query_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import Outcome, Progress, Status, from_draft, from_gram, limits, nothing, search
from hdmm_bf.strategies.drafts import Draft
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.gaussian import largest
from hdmm_bf.strategies.gaussian import own as own_goal
from hdmm_bf.strategies.laplace import portfolio
from hdmm_bf.strategies.records import MatrixStrategy

_SEARCH_SHARE = 0.95
"""The search stops at this share of the wanted gap; the rest is for the grid."""

MOST_GOAL_STEPS = 2000
"""Steps after which a search for a goal other than the total is over, with whatever gap it has proven."""

JUMPS = (
    "its derivatives jump, so the search did not get far: use a smooth function, such as (v**16).sum() ** (1 / 16) for "
    "v.max(), or objective='largest'"
)

_MORE_STEPS = (
    f"{MOST_GOAL_STEPS} steps did not prove the requested gap: max_steps allows more, a larger gap needs fewer"
)

BOUND_GAP = 1e-4
BOUND_STEPS = 200
"""The lower bound beside a Laplace search is tight to this gap for Gaussian strategies, or as far as these steps go."""


class _Found(NamedTuple):
    strategy: MatrixStrategy
    weights: RealVector
    status: Status
    reached: dict[str, float]
    why: str = ""
    queries: RealVector | None = None
    own: tuple[float | None, str] | None = None


def fit_dense(problem: Problem, options: FitOptions) -> Fit:
    """Search, put the best strategy on its grid, and certify it."""
    with threads_for(problem.policy.num_cells):
        if is_public(problem):
            queries = None if problem.goal.kind == "total" else uniform(query_forms(problem).count)
            found = _Found(nothing(problem), uniform(problem.policy.num_edges), "exact", {}, queries=queries)
        else:
            reserve = 0.0 if options.max_seconds is None else dense_seconds(problem, options.noise)
            with _within(options, reserve):
                found = _search(problem, options)
        proof = edge_proof(found.weights, found.queries)
        if options.noise == "laplace":
            proof |= pairs_proof(problem, found.weights)
        made = certified(
            problem, found.strategy, proof, options, status=found.status, reached=found.reached, why=found.why
        )
        return made if found.own is None else with_own(made, *found.own)


def with_own(made: Fit, bound: float | None, shape: str) -> Fit:
    """Evaluate the user's own objective at the variances of the shipped strategy, and say what its bound hangs on."""
    v, phi = own_goal.seen(made.unit_variances()), own_goal.OwnFunction(made.problem)
    own = OwnValue(phi.at(v).value, bound, shape)
    told = {
        "neither": "the objective was found to be convex neither in the variances nor in their logarithms: no bound",
        "convex": f"the objective is {own.value:.6g}, not below {own.bound}; tried on pairs of points, it is convex",
    }
    why = told.get(shape, f"the objective is {own.value:.6g}, not below {own.bound}; tried on pairs, it is {shape}")
    if own.gap > made.requested_gap and phi.jumps(v):
        why += f"; {JUMPS}"
    proven: Status = "converged" if own.gap <= made.requested_gap else "finished"
    status: Status = proven if made.status in ("converged", "finished") else made.status
    return replace(made, own=own, why=why, status=status)


def edge_proof(weights: RealVector, queries: RealVector | None = None) -> Proof:
    """Return what proves a bound: weights on the edges, and on the queries for goals other than the total."""
    return {"kind": "edges", "weights": weights} | ({} if queries is None else {"queries": queries})


def pairs_proof(problem: Problem, weights: RealVector, V: SquareMatrix | None = None) -> Proof:
    """Return what proves more than edge weights for Laplace noise; nothing where no pair of edges does."""
    pairs = choose_pairs(problem, weights, V)
    return {"partners": pairs.edges, "shares": pairs.shares} if len(pairs.edges) else {}


def _search(problem: Problem, options: FitOptions) -> _Found:
    if options.noise == "laplace":
        return _laplace(problem, options)
    return _gaussian(problem, options) if problem.goal.kind == "total" else _goal(problem, options)


def _goal(problem: Problem, options: FitOptions) -> _Found:
    """Search for a goal other than the total."""
    aim = _SEARCH_SHARE * options.gap
    own = problem.goal.kind == "own"
    steps: Iterator[Progress[SquareMatrix, Any]]
    steps = own_goal.steps(problem, gap=aim) if own else largest.steps(problem, gap=aim)
    found: Outcome[SquareMatrix, Any] = search(
        steps,
        gap=aim,
        max_seconds=_seconds(options),
        max_iterations=options.max_steps or MOST_GOAL_STEPS,
        callback=options.callback,
        whole_steps=True,
    )
    status: Status = "finished" if found.status == "iteration limit" and options.max_steps is None else found.status
    strategy = from_gram(problem, found.best, gap=options.gap, family="gaussian")
    judged = (found.bound if found.bound > 0 else None, found.proof.shape) if own else None
    why = "" if own or status != "finished" else _MORE_STEPS
    return _Found(strategy, found.proof.edges, status, {}, why, queries=found.proof.queries, own=judged)


def _within(options: FitOptions, reserve: float) -> contextlib.AbstractContextManager[None]:
    """Limit the time of all that is searched; processes that search together agree on it step by step instead."""
    return limits.limited(options.until(reserve)) if clock(options.mesh) is limits.now else contextlib.nullcontext()


def _gaussian(problem: Problem, options: FitOptions) -> _Found:
    aim = _SEARCH_SHARE * options.gap
    initial = start_weights(problem, options.start)
    kernel = None if options.mesh is None else gaussian.on_devices(problem, options.mesh, gap=aim)
    found = search(
        gaussian.steps(problem, gap=aim, start=initial, kernel=kernel),
        gap=aim,
        max_seconds=_seconds(options),
        max_iterations=options.max_steps,
        callback=options.callback,
        clock=clock(options.mesh),
        whole_steps=True,
    )
    X = found.best if kernel is None else kernel.to_host(found.best)
    strategy = from_gram(problem, X, gap=options.gap, family="gaussian")
    return _Found(strategy, found.proof, found.status, {}, kernel.why if kernel else "")


def _laplace(problem: Problem, options: FitOptions) -> _Found:
    initial, mesh = start_draft(problem, options.start), options.mesh
    limit = _seconds(options) if options.limited else default_seconds(problem)
    kernel = None if mesh is None else gaussian.on_devices(problem, mesh, gap=BOUND_GAP)
    lower = search(
        gaussian.steps(problem, gap=BOUND_GAP, kernel=kernel),
        gap=BOUND_GAP,
        max_seconds=min(limit, limits.time_left()) / 4,
        max_iterations=BOUND_STEPS,
        clock=clock(mesh),
        whole_steps=True,
    )
    stopped = lower.status == "interrupted"
    table = portfolio.Table()
    floors = portfolio.Floors(problem, table, "L1")
    search_limit = limits.now() + (limit if clock(mesh) is limits.now else math.inf)
    with limits.limited(search_limit):
        found = _portfolio(problem, options, initial, lower, table, floors, limit, 1 if stopped else options.max_steps)
        best = min([found.best, *floors], key=lambda d: d.error)  # those that a limit on steps has left over
    status: Status = "interrupted" if stopped else found.status
    why = kernel.why if kernel else ""
    return _Found(from_draft(problem, best), found.proof, status, table.errors, why)


def _portfolio(
    problem: Problem,
    options: FitOptions,
    initial: Draft | None,
    lower: Outcome[object, RealVector],
    table: portfolio.Table,
    floors: portfolio.Floors,
    limit: float,
    max_steps: int | None,
) -> Outcome[Draft, RealVector]:
    return search(
        portfolio.steps(
            problem,
            bound=lower.bound,
            weights=lower.proof,
            seed=options.seed,
            table=table,
            floors=floors,
            family=options.family,
            initial=initial,
            workers=options.workers or (default_workers() if options.max_steps is None else 1),
            in_turn=options.max_steps is not None,
            mesh=options.mesh,
            effort=cast(Effort, options.effort),
        ),
        gap=options.gap,
        max_seconds=limit,
        max_iterations=max_steps,
        callback=options.callback,
        clock=clock(options.mesh),
    )


def _seconds(options: FitOptions) -> float:
    """The time limit of processes that agree on it; for one process it stands around the search."""
    alone = clock(options.mesh) is limits.now
    return math.inf if alone or options.max_seconds is None else options.max_seconds


def default_seconds(problem: Problem) -> float:
    """Return the default time limit of a Laplace search: 90 s at 64 cells, growing a little faster, 20 s to 400 s."""
    cells = float(max(problem.grounding.kept.size, 4))
    return min(max(20.0, 90.0 * math.pow(cells / 64, 1.25)), 400.0)
