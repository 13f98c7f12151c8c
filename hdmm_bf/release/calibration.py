"""Noise made for a sensitivity and a promise, and what its privacy map states: checked before it is handed out."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import singledispatch
from typing import Literal, TypeAlias

from hdmm_bf._checks import fail
from hdmm_bf.policy import Policy
from hdmm_bf.problem.groups import policy_within
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import analytic, tree_noise
from hdmm_bf.release import noise as samplers
from hdmm_bf.release.noise import Sampler
from hdmm_bf.release.people import moved_together
from hdmm_bf.release.privacy import gaussian_sigma, zcdp_rho
from hdmm_bf.release.tree_noise import TreeSampler
from hdmm_bf.release.tree_sum_noise import TreeSumSampler, sum_loss, sum_sampler
from hdmm_bf.strategies.records import GroupedTree, MatrixStrategy, NoiseSum, ProductStrategy, TreeNorm, TreeSum

AnySampler: TypeAlias = Sampler | TreeSampler | TreeSumSampler
"""Noise of a release: on rows, on the cells by one tree, or by several."""

Accounting: TypeAlias = Literal["analytic", "zcdp"]
"""How Gaussian noise is calibrated to epsilon and delta: exactly, or through zero-concentrated privacy."""


@singledispatch
def noise_for(
    strategy: object, problem: Problem, exact: int, loss: float | None, records: int | None = None
) -> AnySampler:
    """Return the noise of a strategy for a pure epsilon; one implementation per record."""
    raise TypeError(f"no noise for {type(strategy).__name__}")


@noise_for.register
def _(strategy: TreeNorm, problem: Problem, exact: int, loss: float | None, records: int | None = None) -> AnySampler:
    return _tree_noise(strategy, problem.policy, loss, records)


@noise_for.register
def _(
    strategy: GroupedTree, problem: Problem, exact: int, loss: float | None, records: int | None = None
) -> AnySampler:
    """The noise of one group; what several records of one person lose adds up, in whatever groups they are."""
    own = policy_within(problem.policy, strategy.axes)
    return replace(_tree_noise(strategy.tree, own, loss, records), axes=strategy.axes)


@noise_for.register
def _(strategy: TreeSum, problem: Problem, exact: int, loss: float | None, records: int | None = None) -> AnySampler:
    """The noise of every part; what several records of one person lose adds up."""
    assert loss is not None
    return sum_sampler(strategy, problem.policy, analytic.down(Fraction(loss) / (records or 1)))


def _tree_noise(strategy: TreeNorm, policy: Policy, loss: float | None, records: int | None) -> TreeSampler:
    assert loss is not None
    share = analytic.down(Fraction(loss) / (records or 1))
    sampler = tree_noise.tree_sampler(strategy, policy, share)
    if not sampler.loss <= share:  # tables are made, and the loss derived from them, when something is drawn
        raise fail("release", f"loss {sampler.loss}", f"is more than the {share} asked for", "Report this as a bug.")
    return sampler


@noise_for.register(MatrixStrategy)
@noise_for.register(ProductStrategy)
@noise_for.register(NoiseSum)
def _(_: object, problem: Problem, exact: int, loss: float | None, records: int | None = None) -> AnySampler:
    assert loss is not None
    sampler = samplers.laplace(moved_together("laplace", exact, records), loss)
    if not sampler.loss <= loss:
        raise fail("release", f"loss {sampler.loss}", f"is more than the {loss} asked for", "Report this as a bug.")
    return sampler


def privacy_loss(sampler: AnySampler, sensitivity: int, problem: Problem, records: int | None = None) -> float:
    """Return what the privacy map of a noise states for that many moves along edges: one, unless told."""
    if isinstance(sampler, TreeSumSampler):
        once = sum_loss(sampler, problem.policy)
        return once if math.isinf(once) else analytic.up(Fraction(once) * (records or 1))
    if isinstance(sampler, TreeSampler):
        policy = problem.policy if sampler.axes is None else policy_within(problem.policy, sampler.axes)
        once = tree_noise.privacy_loss(sampler, policy.edges)
        return once if math.isinf(once) else analytic.up(Fraction(once) * (records or 1))
    return samplers.privacy_loss(sampler, moved_together(sampler.noise, sensitivity, records))


def gaussian_for(
    exact: int, epsilon: float | None, delta: float | None, rho: float | None, accounting: Accounting
) -> tuple[float, Sampler | None]:
    """Return rho and the noise of a squared sensitivity; none where everything is public."""
    if epsilon is None or delta is None:
        assert rho is not None
        made = (samplers.rounded if accounting == "analytic" else samplers.gaussian)(exact, rho) if exact else None
        if made is not None and not made.loss <= rho:
            raise fail("release", f"loss {made.loss}", f"is more than the {rho} asked for", "Report this as a bug.")
        return rho, made
    if accounting == "zcdp":
        loss = zcdp_rho(epsilon, delta)
        return (loss, None) if exact == 0 else _confirmed(exact, samplers.gaussian(exact, loss), epsilon, delta)
    if exact == 0:
        return 0.5 / gaussian_sigma(epsilon, delta) ** 2, None
    made = samplers.rounded_for(exact, epsilon, delta)
    return made.loss, made


def _confirmed(exact: int, sampler: Sampler, epsilon: float, delta: float) -> tuple[float, Sampler]:
    """Lower rho, by rounding errors, until OpenDP's own conversion to (epsilon, delta) confirms the request."""
    rho, less = sampler.loss, 1e-12
    while samplers.approximate_epsilon(sampler, exact, delta) > epsilon:
        rho, less = rho * (1 - less), min(2 * less, 0.5)
        sampler = samplers.gaussian(exact, rho)
    return rho, sampler
