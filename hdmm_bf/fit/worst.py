"""The worst answers of a release, by name: those of largest standard deviation, or farthest above their targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hdmm_bf._types import RealVector
from hdmm_bf.fit.fit import Fit
from hdmm_bf.release.plan import Plan
from hdmm_bf.workload import Workload

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
    return worst_of(fit.problem.workload, deviations(settled), targets, most=most)


def deviations(settled: Plan) -> RealVector:
    """Return the standard deviation of every answer of a release."""
    if settled.sampler is None:
        return np.zeros(settled.num_queries)
    assert settled.variances is not None, "there are too many queries to look at each"
    return np.asarray(np.sqrt(settled.variances(settled)))


def worst_of(workload: Workload, stddev: RealVector, targets: RealVector | None, *, most: int = MOST_NAMED) -> Worst:
    """Name the worst of given standard deviations, one a query."""
    asked = np.zeros(stddev.size, dtype=bool) if targets is None else ~np.isnan(targets)
    share, met = stddev, None
    if targets is not None and np.any(asked):
        share = np.where(asked, stddev / targets, -1.0)
        met = int(np.sum(asked & (share <= 1 + _ROUNDING)))
    order = np.argsort(-share, kind="stable")[:most]
    named = [
        QueryError(workload.name(i), float(stddev[i]), float(targets[i]) if targets is not None and asked[i] else None)
        for i in order.tolist()
        if share[i] >= 0
    ]
    return Worst(named, int(np.sum(share >= (1 - _AS_BAD) * share.max())), met, int(asked.sum()))
