"""The worst answers of a release, by name: those of largest standard deviation, or farthest above their targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hdmm_bf._types import RealVector
from hdmm_bf.fit.fit import Fit
from hdmm_bf.release.plan import Plan

MOST_NAMED = 10
"""Queries that are named."""

_AS_BAD = 1e-3
"""Share of the worst by which a query may be better and still count as one of the worst."""

_ROUNDING = 1e-9
"""Relative excess over a target that is rounding: the budget for a target is found to 1e-14 of it."""


class QueryError(NamedTuple):
    """What a release has of one query.

    Attributes:
        query: its name.
        stddev: the standard deviation of its answer.
        target: the standard deviation it may have; None where none was asked.
    """

    query: str
    stddev: float
    target: float | None


class Worst(NamedTuple):
    """The worst answers of a release.

    Attributes:
        queries: the worst ones, worst first.
        binding: how many queries are as bad as the worst, to a thousandth: a smaller budget fails all of these.
        met: how many queries have a target and meet it; None where none was asked.
        asked: how many queries have a target.
    """

    queries: list[QueryError]
    binding: int
    met: int | None
    asked: int


def worst_queries(
    fit: Fit, settled: Plan, *, targets: RealVector | None = None, most: int = MOST_NAMED
) -> Worst | None:
    """Name the queries with the largest standard deviation, or the largest one over its target.

    Args:
        fit: the strategy.
        settled: the plan of a release.
        targets: m, the standard deviation that every query may have; NaN where none is asked.
        most: how many to name.

    Returns:
        The worst queries; None where there are too many to look at each.
    """
    if settled.variances is None:
        return None
    m = fit.problem.workload.num_queries
    targets = None if targets is None or np.all(np.isnan(targets)) else targets
    stddev = np.zeros(m) if settled.sampler is None else np.sqrt(settled.variances(settled))
    allowed = np.full(m, np.nan) if targets is None else targets
    share = stddev if targets is None else np.where(np.isnan(allowed), -1.0, stddev / allowed)
    order = np.argsort(-share, kind="stable")[:most]
    name = fit.problem.workload.name
    named = [
        QueryError(name(i), float(stddev[i]), None if np.isnan(allowed[i]) else float(allowed[i]))
        for i in order.tolist()
        if share[i] >= 0
    ]
    binding = int(np.sum(share >= (1 - _AS_BAD) * share.max()))
    met = None if targets is None else int(np.sum((share >= 0) & (share <= 1 + _ROUNDING)))
    return Worst(named, binding, met, int(np.sum(~np.isnan(allowed))))

