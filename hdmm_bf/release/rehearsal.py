"""Rehearsal of a release: everything that will be asked of it, tried without data, so that no mistake is paid for."""

from __future__ import annotations

from collections.abc import Sequence

from hdmm_bf._checks import fail
from hdmm_bf.release.plan import Fitted, Plan
from hdmm_bf.workload import Workload


def rehearse(
    settled: Plan,
    fit: Fitted,
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
        raise fail("release", f"workload {queries.title}", problem, "Ask queries on the same domain.")
    fit.recovery.check_steps(steps)
    if queries is not None:
        fit.recovery.check_covers(queries)
    fit.recovery.variances(queries or fit.problem.workload, settled)  # refused if there are too many
    if estimate:
        fit.recovery.check_estimate()
