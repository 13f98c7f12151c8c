"""Workloads and policies in every form users hold them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._checks import fail
from hdmm_bf.policy import Policy
from hdmm_bf.problem.goal import Function, Groups, Targets, goal
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload import Workload


def problem(
    workload: object,
    policy: object,
    *,
    objective: str | Function = "total",
    targets: Targets | None = None,
    groups: Groups | None = None,
) -> Problem:
    """Return a workload under a policy, as bounds, objectives and strategies work on it.

    Args:
        workload: a `Workload`, a spec such as "all-range:64", the path of a file, or any real matrix.
        policy: a `Policy`, a spec such as "threshold:64:4", the path of a file, or a networkx graph.
        objective: what is to be small; this and the rest as for `fit`.
        targets: standard deviations of the queries.
        groups: the group of every query.

    Example:
        >>> import hdmm_bf as bf
        >>> bf.problem("all-range:64", "threshold:64:4").P.shape
        (63, 246)
    """
    queries, graph = as_workload(workload), as_policy(policy)
    plain = Problem(queries, graph)  # refuses what is on two domains
    if objective == "total" and targets is None and groups is None:
        return plain
    return replace(plain, goal=goal(queries, graph, objective=objective, targets=targets, groups=groups))


def as_workload(value: object) -> Workload:
    """Accept a Workload, a spec string or path, or any matrix."""
    if isinstance(value, Workload):
        return value
    return workloads.parse(str(value)) if isinstance(value, str | Path) else workloads.from_matrix(value)


def as_policy(value: object) -> Policy:
    """Accept a Policy, a spec string or path, or a networkx graph."""
    if isinstance(value, Policy):
        return value
    if isinstance(value, str | Path):
        return policies.parse(str(value))
    if hasattr(value, "nodes") and hasattr(value, "edges"):
        return policies.from_networkx(value)
    advice = "Pass a Policy, a spec string, a path or a networkx graph."
    raise fail("problem", f"policy of type {type(value).__name__}", "is not a policy", advice)
