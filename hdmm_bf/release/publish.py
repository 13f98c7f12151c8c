"""`release`: a fit, data and a budget in; private answers out, whichever kind of strategy the fit has."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from hdmm_bf.release.block_release import BlockRelease, FittedBlocks, release_blocks
from hdmm_bf.release.dense import Release, carry_out
from hdmm_bf.release.ledger import Account
from hdmm_bf.release.plan import Fitted, Plan, plan
from hdmm_bf.strategies.blocks import BlockStrategy


def release(
    fit: Fitted | FittedBlocks,
    counts: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    account: Account | None = None,
    callback: Callable[[int], None] | None = None,
) -> Release | BlockRelease:
    """Answer a workload on data, private under the fit's policy.

    Args:
        fit: a fitted strategy, from `fit` or `load`.
        counts: the histogram: one whole number for each cell, flat in row-major order or in the shape of the domain; or
            `Records`, for domains too large for a histogram.
        epsilon: the privacy loss; alone for Laplace noise, with delta for Gaussian noise.
        delta: the probability that it is exceeded.
        rho: the zCDP parameter, instead of epsilon and delta.
        account: the data's account in a ledger; the loss is counted as spent before noise is drawn.
        callback: told how many numbers of noise were drawn.

    Guarantees:
        For databases that are neighbours under the policy, the distributions of everything in the result differ by at
        most what was asked for. The distributions are those of exact integer noise, not of floating-point noise.
    """
    settled = plan(fit, epsilon=epsilon, delta=delta, rho=rho)
    for sentence in settled.warnings:
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return publish(settled, fit, counts, account=account, callback=callback)


def publish(
    settled: Plan,
    fit: Fitted | FittedBlocks,
    counts: Any,
    *,
    account: Account | None = None,
    callback: Callable[[int], None] | None = None,
) -> Release | BlockRelease:
    """Run a plan on data."""
    if isinstance(fit.strategy, BlockStrategy):
        return release_blocks(settled, fit, counts, account=account, callback=callback)
    return carry_out(settled, fit, counts, account=account, callback=callback)
