"""Rehearsal of a release: everything that will be asked of it, tried without data, so that no mistake is paid for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf.release.block_release import BlockRelease, FittedBlocks
from hdmm_bf.release.plan import Fitted, Plan
from hdmm_bf.release.postprocess import check_steps
from hdmm_bf.strategies.blocks import BlockStrategy
from hdmm_bf.workload import Workload, identity


def rehearse(
    settled: Plan,
    fit: Fitted | FittedBlocks,
    *,
    queries: Workload | None = None,
    steps: Sequence[str] = (),
    estimate: bool = False,
) -> None:
    """Refuse what a release of a fit could not give: other queries, post-processing, an estimate of every cell.

    Guarantees:
        No data and no noise are needed, and nothing is spent.
    """
    if queries is not None and queries.num_cells != fit.problem.policy.num_cells:
        problem = f"is on another domain, the strategy is for {fit.problem.policy.domain}"
        raise fail("release", f"workload {queries.spec}", problem, "Ask queries on the same domain.")
    if isinstance(fit.strategy, BlockStrategy):
        _rehearse_blocks(settled, fit, queries, steps, estimate)
        return
    check_steps(fit.problem, steps)
    if queries is not None and not fit.recovery.covers(queries):
        problem = "asks what the strategy does not measure"
        raise fail("release", f"workload {queries.spec}", problem, "Fit a strategy for it.")
    if queries is not None or estimate or steps:
        _ = fit.recovery.covariance  # refused if it is too large; kept for the release


def _rehearse_blocks(
    settled: Plan, fit: FittedBlocks, queries: Workload | None, steps: Sequence[str], estimate: bool
) -> None:
    """Ask a release of zeros: the refusals of a block strategy do not depend on what was measured."""
    zeros = tuple(np.broadcast_to(0.0, block.shape) for block in fit.strategy.blocks)
    empty = BlockRelease(fit.problem, settled, zeros, fit.recovery)
    if steps:
        empty.postprocess(*steps)
    if queries is not None:
        empty.answer(queries)
    else:
        _ = empty.answers, empty.stddev
    if estimate:
        _ = empty.estimate
        empty.answer(identity(fit.problem.policy.domain))
