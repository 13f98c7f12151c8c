"""Noises side by side at one budget, and `auto`: the one that serves it best."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import Noise
from hdmm_bf.fit.fit import Fit
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.privacy import NAMES, noise_variance
from hdmm_bf.strategies import limits

_SHARES: dict[Noise, float] = {"gaussian": 0.25, "norm": 0.6, "laplace": 1.0}
"""Of the time that is left, what each search may take; in this order."""


class NoiseRow(NamedTuple):
    """One noise at a budget.

    Attributes:
        noise: which.
        family: the family that found the strategy.
        promise: what is promised, in words.
        rmse: root mean squared error of an answer of a release.
        fit: the fit.
    """

    noise: Noise
    family: str
    promise: str
    rmse: float
    fit: Fit


def compare_noises(
    problem: Problem, *, epsilon: float, delta: float | None = None, max_seconds: float | None = None, **options: Any
) -> list[NoiseRow]:
    """Fit every noise that keeps a promise, and return them by their error in a release, best first.

    Pure epsilon is also (epsilon, delta)-private, so with a delta all noises are in the race, without one all but the
    Gaussian. A noise that is not for this domain is left out.

    Args:
        problem: what is fitted.
        epsilon: the privacy loss.
        delta: the probability that it is exceeded, where that is allowed.
        max_seconds: time limit for all of them together.
        options: other arguments of `fit`.
    """
    from hdmm_bf.fit.run import fit

    noise_variance("laplace" if delta is None else "gaussian", epsilon=epsilon, delta=delta)  # refuses what is none
    until = math.inf if max_seconds is None else limits.origin() + max_seconds
    rows: list[NoiseRow] = []
    refusals: list[InputError] = []
    for noise, share in _SHARES.items():
        if noise == "gaussian" and delta is None:
            continue
        left = until - limits.now()
        if rows and (left <= 0 or limits.interrupted()):
            break
        budget = {"epsilon": epsilon, "delta": delta} if noise == "gaussian" else {"epsilon": epsilon}
        with limits.counting_from(limits.now()):
            try:
                own = None if math.isinf(left) else max(share * left, 0.1)
                made = fit(problem.workload, problem.policy, noise=noise, max_seconds=own, **options)
            except InputError as refusal:
                refusals.append(refusal)
                continue
        promise = ", ".join(f"{name} {value:g}" for name, value in budget.items())
        rows.append(NoiseRow(noise, made.family, promise, made.rmse(**budget), made))
    if not rows:
        raise refusals[0]
    return sorted(rows, key=lambda row: row.rmse)


def best_noise(problem: Problem, *, epsilon: float | None, delta: float | None, **options: Any) -> Fit:
    """Return the fit of the noise with the least error at a budget; its `why` names the others."""
    if epsilon is None:
        advice = "Give epsilon=, and delta= if a small probability of more is acceptable."
        raise fail("fit", "noise='auto'", "needs the budget it is to serve", advice)
    first, *others = compare_noises(problem, epsilon=epsilon, delta=delta, **options)
    told = "; ".join(f"{NAMES[row.noise]} {row.rmse:.4g}" for row in others)
    why = f"least rmse at epsilon {epsilon:g}{'' if delta is None else f', delta {delta:g}'}: {first.rmse:.4g}"
    return replace(first.fit, why=f"{why} ({told})" if told else why)
