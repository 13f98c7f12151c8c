"""What every release can say: answers, how good they are, what was promised and what is public."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from hdmm_bf import _display
from hdmm_bf import policy as policies
from hdmm_bf._checks import fail, whole_numbers
from hdmm_bf._types import RealVector
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import intervals
from hdmm_bf.release.plan import Plan

_SHOWN = 5
"""Answers that a notebook shows."""

_QUICK = 2**20
"""Queries up to which a notebook shows some answers of a large domain."""


class Interval(NamedTuple):
    """Lower and upper ends, one for each query."""

    low: RealVector
    high: RealVector


@dataclass(frozen=True, eq=False)
class Released(ABC):
    """Private answers. Everything in it may be published.

    Attributes:
        problem: the workload and the policy.
        plan: the noise and the promise.
    """

    problem: Problem
    plan: Plan

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name}, {self.plan.promise}, rmse {self.plan.rmse:.6g})"

    def _repr_html_(self) -> str:
        rows = [
            ("privacy", self.plan.promise),
            ("hidden", policies.hides(self.problem.policy)),
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

    @abstractmethod
    def _some(self, chosen: Int64[np.ndarray, " q"]) -> tuple[RealVector, RealVector]:
        """Return answers and standard deviations of chosen queries."""

    @property
    def discloses(self) -> list[str]:
        """What the policy makes public, in words."""
        return policies.discloses(self.problem.policy)

    def half_width(self, level: float) -> float:
        """Half the width of an interval for any answer, in standard deviations; wide for Laplace noise."""
        return intervals.half_width(self.plan.noise, level)

    def summary(self) -> dict[str, Any]:
        """Return what a reader of the answers must know, as plain values."""
        workload, policy = self.problem.workload, self.problem.policy
        return {
            "workload": workload.title,
            "policy": policy.title,
            "hides": policies.hides(policy),
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
