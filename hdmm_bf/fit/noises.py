"""Noises side by side at one budget, and `auto`: the one that serves it best."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import Noise, RealVector
from hdmm_bf.fit.fit import Fit
from hdmm_bf.problem.goal import Goal
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.plan import Plan, plan
from hdmm_bf.release.privacy import NAMES, noise_variance
from hdmm_bf.strategies import limits
from hdmm_bf.strategies.gaussian.own import OwnFunction, seen

_SHARES: dict[Noise, float] = {"gaussian": 0.25, "norm": 0.6, "laplace": 1.0}
"""Of the time that is left, what each search may take; in this order."""


class NoiseRow(NamedTuple):
    """One noise at a budget.

    Attributes:
        noise: which.
        family: the family that found the strategy.
        promise: what is promised, in words.
        rmse: root mean squared error of an answer of a release.
        worst_stddev: largest standard deviation of an answer; None where there are too many to look at each.
        asked: what a release has of the goal, see `asked_of`; the noises are in its order.
        fit: the fit.
        plan: the plan of its release.
    """

    noise: Noise
    family: str
    promise: str
    rmse: float
    worst_stddev: float | None
    asked: float
    fit: Fit
    plan: Plan


ASKED = {
    "total": "rmse",
    "largest": "largest stddev",
    "worst group": "rmse of the worst group",
    "targets": "largest stddev over target",
    "own": "objective",
}
"""What noises are ranked by, for the name of every goal."""


def asked_of(problem: Problem, variances: RealVector) -> float:
    """Return what a release with these variances of its answers has of the problem's goal.

    The largest standard deviation times weight, or over its target; the root of the worst group's mean variance; the
    user's own function of the variances; for the total, the root mean square.
    """
    goal = problem.goal
    if goal.kind == "own":
        return OwnFunction(problem).at(seen(variances)).value
    if goal.kind == "total":
        return math.sqrt(float(variances.mean()))
    each = goal.scales(problem.workload) * variances
    if goal.groups is not None:
        each = np.bincount(goal.groups, each) / np.bincount(goal.groups)
    return math.sqrt(float(each.max()))


def compare_noises(
    problem: Problem, *, epsilon: float, delta: float | None = None, max_seconds: float | None = None, **options: Any
) -> list[NoiseRow]:
    """Fit every noise that keeps a promise, and return them by what a release has of the goal, best first.

    That is the root mean squared error for the total, see `asked_of` for other goals.

    Pure epsilon is also (epsilon, delta)-private, so with a delta all noises are in the race, without one all but the
    Gaussian. A noise that is not for this domain is left out.

    Args:
        problem: what is fitted, with its goal.
        epsilon: the privacy loss.
        delta: the probability that it is exceeded, where that is allowed.
        max_seconds: time limit for all of them together.
        options: other arguments of `fit`.
    """
    from hdmm_bf.fit.run import fit

    noise_variance("laplace" if delta is None else "gaussian", epsilon=epsilon, delta=delta)  # refuses what is none
    until = math.inf if max_seconds is None else limits.origin() + max_seconds
    wanted = _wanted(problem.goal)
    rows: list[NoiseRow] = []
    refusals: list[InputError] = []
    for noise, share in _SHARES.items():
        if noise == "gaussian" and delta is None:
            continue
        left = until - limits.now()
        if rows and (left <= 0 or limits.interrupted()):
            break
        budget = {"epsilon": epsilon} | ({"delta": delta} if noise == "gaussian" and delta is not None else {})
        with limits.counting_from(limits.now()):
            try:
                own = None if math.isinf(left) else max(share * left, 0.1)
                made = fit(problem.workload, problem.policy, noise=noise, max_seconds=own, **wanted, **options)
            except InputError as refusal:
                refusals.append(refusal)
                continue
        rows.append(noise_row(problem, made, budget))
    if not rows:
        raise refusals[0]
    return sorted(rows, key=lambda row: row.asked)


def noise_row(problem: Problem, made: Fit, budget: dict[str, float]) -> NoiseRow:
    """Return what a release of a fit has at a budget."""
    promise = ", ".join(f"{name} {value:g}" for name, value in budget.items())
    settled = plan(made, epsilon=budget["epsilon"], delta=budget.get("delta"))
    total = problem.goal.kind == "total"
    asked = settled.rmse if total else asked_of(problem, made.recovery.variances(problem.workload, settled))
    return NoiseRow(made.noise, made.family, promise, settled.rmse, settled.worst_stddev, asked, made, settled)


def _wanted(goal: Goal) -> dict[str, Any]:
    """Return a goal as arguments of `fit`."""
    objective = goal.kind if goal.function is None else goal.function
    return {"objective": objective, "targets": goal.targets, "groups": goal.groups}


def best_noise(problem: Problem, *, epsilon: float | None, delta: float | None, **options: Any) -> Fit:
    """Return the fit of the noise that has least of the goal at a budget; its `why` names the others."""
    if epsilon is None:
        advice = "Give epsilon=, and delta= if a small probability of more is acceptable."
        raise fail("fit", "noise='auto'", "needs the budget it is to serve", advice)
    first, *others = compare_noises(problem, epsilon=epsilon, delta=delta, **options)
    told = "; ".join(f"{NAMES[row.noise]} {row.asked:.4g}" for row in others)
    at = f"epsilon {epsilon:g}{'' if delta is None else f', delta {delta:g}'}"
    why = f"least {ASKED[problem.goal.name]} at {at}: {first.asked:.4g}"
    return replace(first.fit, why=f"{why} ({told})" if told else why)
