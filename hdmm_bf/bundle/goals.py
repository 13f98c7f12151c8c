"""Goals other than the total in a bundle: targets, groups, and the weights of queries that prove a bound."""

from __future__ import annotations

from hdmm_bf._types import AnyArray
from hdmm_bf.bundle.checks import exactly, typed
from hdmm_bf.policy import Policy
from hdmm_bf.problem.goal import Goal, Kind
from hdmm_bf.problem.goal import goal as goal_of
from hdmm_bf.workload import Workload


def goal_record(goal: Goal, queries: AnyArray | None) -> dict[str, AnyArray]:
    """Return the arrays of a goal other than the total, with the weights of queries that prove its bound."""
    arrays = {"targets": goal.targets, "groups": goal.groups, "queries": queries}
    return {name: array for name, array in arrays.items() if array is not None}


def stored_goal(kind: Kind, arrays: dict[str, AnyArray], workload: Workload, policy: Policy) -> Goal:
    """Return the goal that a file describes, checked as if it were asked for, without the weights of queries."""
    known = {"targets": {"targets"}, "largest": {"groups"} & set(arrays), "own": set()}[kind]
    exactly({name: array for name, array in arrays.items() if name != "queries"}, known)
    if kind == "own":
        return Goal("own")
    if kind == "largest":
        if "groups" in arrays:
            typed("groups", arrays["groups"], "i", 1)
        return goal_of(workload, policy, objective="largest", groups=arrays.get("groups"))
    typed("targets", arrays["targets"], "f", 1)
    return goal_of(workload, policy, targets=arrays["targets"])


def stored_queries(arrays: dict[str, AnyArray]) -> AnyArray | None:
    """Return the weights of queries that a file holds."""
    queries = arrays.get("queries")
    if queries is not None:
        typed("queries", queries, "f", 1)
    return queries
