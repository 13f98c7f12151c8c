"""`release`: a fit, data and a budget in; private answers out.

The only place where data meet noise; privacy-critical and short on purpose. The order of things is the argument:

1. the plan: the noise is settled and its privacy map has confirmed it; no data yet;
2. the sensitivity is derived once more, from the integers that are about to be used, and compared with the plan's;
3. the data are checked and measured, exactly, in whole numbers;
4. the ledger, if there is one, counts the loss as spent;
5. noise is drawn, and only the sum of data and noise goes on.

Guarantees:
    Strategies over cells publish integers A x + noise; strategies over edges publish x + P S^+ noise on a grid, never
    the raw answers S x_G + noise; strategies by factors publish integers with one scale of noise for every row; sums of
    noise publish the counts plus the exact sum, on a grid; tree norms publish the counts plus whole-number noise,
    which is drawn for every public group by itself where there are such groups.
    Besides them only what the policy makes public is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from hdmm_bf.certificate import exact_sensitivity, grid_bits
from hdmm_bf.release.calibration import Accounting
from hdmm_bf.release.ledger import Account
from hdmm_bf.release.plan import Fitted, Plan, plan
from hdmm_bf.release.release import Release


def release(
    fit: Fitted,
    counts: object,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    accounting: Accounting = "analytic",
    per_person: int | None = None,
    account: Account | None = None,
    callback: Callable[[int], None] | None = None,
) -> Release:
    """Answer a workload on data, private under the fit's policy.

    Args:
        fit: a fitted strategy, from `fit` or `load`.
        counts: the histogram: one whole number for each cell, flat in row-major order or in the shape of the domain; or
            `Records`, for domains too large for a histogram.
        epsilon: the privacy loss; alone for pure epsilon, with delta for Gaussian noise.
        delta: the probability that it is exceeded.
        rho: the zCDP parameter, instead of epsilon and delta.
        accounting: for Gaussian noise, "analytic" or "zcdp"; see `plan`.
        per_person: the most records of one person in the data, to whom the promise is then made; see `plan`. Nothing is
            cut here: `histogram(..., person=...)` does that.
        account: the data's account in a ledger; the loss is counted as spent before noise is drawn.
        callback: told how many numbers of noise were drawn.

    Guarantees:
        For databases that are neighbours under the policy, the distributions of everything in the result differ by at
        most what was asked for; with `per_person=k`, for databases that differ by at most k moves along its edges. The
        distributions are those of exact integer noise, not of floating-point noise.
    """
    settled = plan(fit, epsilon=epsilon, delta=delta, rho=rho, accounting=accounting, per_person=per_person)
    for sentence in settled.warnings:
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return publish(settled, fit, counts, account=account, callback=callback)


def publish(
    settled: Plan,
    fit: Fitted,
    counts: object,
    *,
    account: Account | None = None,
    callback: Callable[[int], None] | None = None,
) -> Release:
    """Run a plan on data.

    Guarantees:
        For databases that are neighbours under the policy, or as many moves apart as the plan lets one person's records
        make, the distributions of everything in the result differ by at most what the plan promises. The distributions
        are those of exact integer noise, not of floating-point noise.
        The sensitivity is derived once more, from the integers that are used here; a plan that was made for another one
        is refused.
    """
    problem, strategy, recovery = fit.problem, fit.strategy, fit.recovery
    assert recovery.strategy is strategy, "what is measured is what noise is scaled for"
    assert recovery.problem is problem, "the policy that is measured is the one that noise is scaled for"
    derived = exact_sensitivity(strategy, problem, settled.noise)
    settled.check_made_for(fit.certificate, derived, grid_bits(strategy), problem)
    data = recovery.read(counts)
    exact = recovery.measure(data, settled)
    if account is not None:
        account.book(settled, policy=problem.policy, data=data, step=recovery.largest_step(settled))
    measured = recovery.add_noise(exact, data, settled, callback)
    return Release(problem, settled, measured, recovery)
