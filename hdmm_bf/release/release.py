"""The release: private answers, how good they are, what was promised and what is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Int64

from hdmm_bf import _display
from hdmm_bf import policy as policies
from hdmm_bf._checks import fail, whole_numbers
from hdmm_bf._types import JsonObject, RealVector
from hdmm_bf.data.frames import frame
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import intervals
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.postprocess import Processed, postprocess
from hdmm_bf.release.reconstruction import Recovery
from hdmm_bf.release.simultaneous import simultaneous_widths
from hdmm_bf.release.tables import LEVEL, long_columns, wide_columns
from hdmm_bf.workload import Workload
from hdmm_bf.workload import language as tables

_SHOWN = 5
"""Answers that a notebook shows."""

_QUICK = 2**20
"""Queries up to which a notebook shows some answers of a large domain."""


class Interval(NamedTuple):
    """Lower and upper ends, one for each query."""

    low: RealVector
    high: RealVector


@final
@dataclass(frozen=True, eq=False)
class Release:
    """Private answers and how good they are. Everything in it may be published.

    Attributes:
        problem: the workload and the policy.
        plan: the noise and the promise.
        measured: the noisy measurements: an estimate of every cell with the public totals, or one tensor per block.
        recovery: how they become answers.
    """

    problem: Problem
    plan: Plan
    measured: Any
    recovery: Recovery

    def __repr__(self) -> str:
        return f"Release({self._name}, {self.plan.promise}, rmse {self.plan.rmse:.6g})"

    def _repr_html_(self) -> str:
        rows = [
            ("privacy", self.plan.promise),
            ("hidden", policies.hides(self.problem.policy)),
            ("people", policies.people(self.problem.policy, self.plan.per_person)),
            ("public", "; ".join(self.discloses) or "nothing"),
            ("queries", str(self.problem.workload.num_queries)),
            ("rmse of an answer", f"{self.plan.rmse:.4g}"),
        ]
        return _display.card("Release", self._name, _display.facts_table(rows), self._first_answers())

    def _first_answers(self) -> str:
        workload = self.problem.workload
        if workload.num_queries > _QUICK:
            return ""
        shown = np.arange(min(_SHOWN, workload.num_queries))
        found = zip(shown.tolist(), *self._some(shown), strict=True)
        rows = [(workload.name(i), f"{answer:.6g}", f"{stddev:.4g}") for i, answer, stddev in found]
        more = workload.num_queries - shown.size
        return _display.table(("query", "answer", "stddev"), [*rows, *([("...", f"{more} more", "")] if more else [])])

    @property
    def _name(self) -> str:
        return f"{self.problem.workload.title} under {self.problem.policy.title}"

    @cached_property
    def answers(self) -> RealVector:
        """Unbiased answers of the workload; refused when they are too many, then use `answer`."""
        return self.recovery.answers(self.problem.workload, self.measured)

    @cached_property
    def stddev(self) -> RealVector:
        """Standard deviation of every answer."""
        return np.asarray(np.sqrt(self.recovery.variances(self.problem.workload, self.plan)))

    @cached_property
    def estimate(self) -> RealVector:
        """Unbiased estimate of every cell; refused when they are too many."""
        return self.recovery.estimate(self.measured)

    @property
    def totals(self) -> RealVector:
        """Exact totals of the policy's public components."""
        return self.recovery.totals(self.measured)

    def interval(self, level: float, queries: Sequence[int] | None = None, *, simultaneous: bool = False) -> Interval:
        """Return the ends of intervals that cover the true answers, each with probability `level`, or all at once.

        Args:
            level: the probability.
            queries: numbers of queries; all by default.
            simultaneous: make intervals of which, with probability `level`, not one misses its true answer.

        Guarantees:
            Simultaneous intervals come from many draws of the noise, all of a width in standard deviations that holds
            in a share of draws above the level by three standard errors, or from the union bound. Of the others:
            Gaussian noise: normal quantiles. Laplace noise: quantiles of the sum of Laplace variables in each answer,
            or wider ends from a tail bound when there are too many to compute; tree norms: quantiles of many draws
            of the noise, rounded up by three standard errors, and Chebyshev's inequality for levels that are too high
            for the draws. `interval_method` says which.
        """
        intervals.check_level(level)
        chosen = self.chosen(queries)
        if simultaneous:
            width = simultaneous_widths(self.recovery, self.problem.workload, self.plan, level, chosen)
        else:
            width = self.recovery.half_widths(self.plan, level, chosen)
        return Interval(self.answers[chosen] - width, self.answers[chosen] + width)

    def interval_method(self, num_queries: int | None = None) -> str:
        """Say how intervals of that many queries are made: normal, exact Laplace sums, tail bound or simulated."""
        m = self.problem.workload.num_queries if num_queries is None else num_queries
        return self.recovery.interval_method(self.plan, m)

    def answer(self, workload: Workload) -> tuple[RealVector, RealVector]:
        """Return answers and standard deviations of another workload on the same domain, at no further cost."""
        self.recovery.check_covers(workload)
        variances = self.recovery.variances(workload, self.plan)
        return self.recovery.answers(workload, self.measured), np.sqrt(variances)

    def to_frame(
        self,
        library: str | None = None,
        *,
        level: float = LEVEL,
        queries: Workload | None = None,
        simultaneous: bool = False,
    ) -> Any:
        """Return the answers as a frame, one row a query: what it asks, then estimate, stddev, low and high.

        Args:
            library: "pandas", "polars" or "pyarrow"; by default the one that is loaded.
            level: the probability with which low and high hold the true answer between them.
            queries: another workload on the same domain, at no further cost.
            simultaneous: let low and high hold all true answers at once with that probability.

        An attribute has a column of its name, or `age_lo` and `age_hi` where intervals of it are asked for; `table` is
        the name of the table. What a table sums over is empty in its rows, and has no column if all tables do. Queries
        that only have names have one column, `query`.
        """
        return frame(long_columns(self, level, queries, simultaneous), library)

    def table(
        self,
        *attributes: str,
        value: str = "estimate",
        library: str | None = None,
        level: float = LEVEL,
        groups: Any = None,
        where: Any = None,
    ) -> Any:
        """Return one table as people print it: a column for each value of the last attribute, rows for the others.

        Args:
            attributes: their names; of one attribute, all numbers are given side by side.
            value: which number the wide table holds: "estimate", "stddev", "low" or "high".
            library, level: as for `to_frame`.
            groups, where: as for `bf.table`.

        The table need not be among those that were asked for, as long as the strategy measures it; it costs nothing
        more.
        """
        asked = tables.table(*attributes, groups=groups, where=where).on(self.problem.policy.domain)
        return frame(wide_columns(self, asked, attributes, value, level), library, where="release.table")

    def postprocess(self, *steps: str) -> Processed:
        """Return the histogram and answers after "nonnegative", "isotonic" (lines) or "integers", in that order."""
        return postprocess(self, *steps)

    def _some(self, chosen: Int64[np.ndarray, " q"]) -> tuple[RealVector, RealVector]:
        """Return answers and standard deviations of chosen queries."""
        return self.answers[chosen], np.sqrt(self.recovery.variances(self.problem.workload, self.plan, chosen))

    @property
    def discloses(self) -> list[str]:
        """What the policy makes public, in words."""
        return policies.discloses(self.problem.policy)

    def summary(self) -> JsonObject:
        """Return what a reader of the answers must know, as plain values."""
        workload, policy = self.problem.workload, self.problem.policy
        return {
            "workload": workload.title,
            "policy": policy.title,
            "hides": policies.hides(policy),
            "people": policies.people(policy, self.plan.per_person),
            "discloses": self.discloses,
            "num_cells": workload.num_cells,
            "num_queries": workload.num_queries,
            **self.plan.summary(),
        }

    def chosen(self, queries: Sequence[int] | None) -> Int64[np.ndarray, " q"]:
        """Return the numbers of chosen queries, all of them for None; refused when there is no such query."""
        m = self.problem.workload.num_queries
        found = np.arange(m) if queries is None else whole_numbers("release.interval", "queries", queries)
        if found.size and not (found.min() >= 0 and found.max() < m):
            raise fail("release.interval", f"queries of {found.size}", f"queries are 0 to {m - 1}", "Correct them.")
        return found
