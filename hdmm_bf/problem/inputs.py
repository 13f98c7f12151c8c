"""Workloads and policies in every form users hold them."""

from __future__ import annotations

from pathlib import Path

from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._checks import fail
from hdmm_bf.policy import Policy
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload import Workload


def problem(workload: object, policy: object) -> Problem:
    """Return a workload under a policy, as bounds, objectives and strategies work on it.

    Args:
        workload: a `Workload`, a spec such as "all-range:64", the path of a file, or any real matrix.
        policy: a `Policy`, a spec such as "threshold:64:4", the path of a file, or a networkx graph.

    Example:
        >>> import hdmm_bf as bf
        >>> bf.problem("all-range:64", "threshold:64:4").P.shape
        (63, 246)
    """
    return Problem(as_workload(workload), as_policy(policy))


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
