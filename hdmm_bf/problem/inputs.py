"""Workloads and policies in every form users hold them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._checks import fail
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.policy import Policies, Policy
from hdmm_bf.problem.goal import Function, Groups, Targets, goal, is_public_query
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload import Tables, Workload
from hdmm_bf.workload.table_words import is_words, parse_words


def problem(
    workload: object,
    policy: object,
    *,
    domain: DomainLike | None = None,
    objective: str | Function = "total",
    targets: Targets | None = None,
    groups: Groups | None = None,
) -> Problem:
    """Return a workload under a policy, as bounds, objectives and strategies work on it.

    Args:
        workload: a `Workload`, `Tables`, a spec such as "all-range:64", the path of a file, or any real matrix.
        policy: a `Policy`, `Policies`, a spec such as "threshold:64:4", the path of a file, or a networkx graph.
        domain: the attributes, for tables, policies by attribute and specs that leave their sizes out; where it is
            left out, that of the other argument.
        objective: what is to be small; this and the rest as for `fit`.
        targets: standard deviations of the queries; by default those that the tables were given.
        groups: the group of every query.

    Example:
        >>> import hdmm_bf as bf
        >>> bf.problem("all-range:64", "threshold:64:4").P.shape
        (63, 246)
    """
    cells = None if domain is None else as_domain(domain)
    if cells is None:  # one of the two may bring it
        cells = next((v.domain for v in (workload, policy) if isinstance(v, Workload | Policy)), None)
        needs = isinstance(workload, Tables) or isinstance(policy, Policies)
        cells = cells if needs else None
    queries, graph = as_workload(workload, domain=cells), as_policy(policy, domain=cells)
    plain = Problem(queries, graph)  # refuses what is on two domains
    if targets is None and objective in ("total", "targets") and queries.has_targets:
        targets = np.where(is_public_query(queries, graph), np.nan, queries.targets)  # a table may hold public ones
    if objective == "total" and targets is None and groups is None:
        return plain
    return replace(plain, goal=goal(queries, graph, objective=objective, targets=targets, groups=groups))


def as_workload(value: object, *, domain: Domain | None = None) -> Workload:
    """Accept a Workload, tables, a spec string or path, or any matrix."""
    if isinstance(value, Workload):
        return value
    if isinstance(value, Tables):
        return value.on(_known(domain, "tables"))
    if isinstance(value, str | Path):
        return workloads.parse(str(value), domain=domain)
    return workloads.from_matrix(value, domain=domain)


def as_queries(text: str, domain: Domain) -> Workload:
    """Read queries on a domain, whose names and labels they get where their sizes are the same.

    Args:
        text: a spec, a path, or tables in words such as "table age region; ranges age by region".
        domain: the cells.
    """
    if is_words(text):
        return parse_words(text).on(domain)
    made = None if domain.has_own_names and ":" not in text else workloads.parse(text)
    return workloads.parse(text, domain=domain) if made is None or made.domain.sizes == domain.sizes else made


def as_policy(value: object, *, domain: Domain | None = None) -> Policy:
    """Accept a Policy, policies by attribute, a spec string or path, or a networkx graph."""
    if isinstance(value, Policy):
        return value
    if isinstance(value, Policies):
        return value.on(_known(domain, "policies by attribute"))
    if isinstance(value, str | Path):
        return policies.parse(str(value), domain=domain)
    if hasattr(value, "nodes") and hasattr(value, "edges"):
        return policies.from_networkx(value, domain=domain)
    advice = "Pass a Policy, a spec string, a path or a networkx graph."
    raise fail("problem", f"policy of type {type(value).__name__}", "is not a policy", advice)


def _known(domain: Domain | None, what: str) -> Domain:
    if domain is None:
        advice = "Give domain=bf.domain.of(age=100, sex=[...]), or call on(domain)."
        raise fail("problem", what, "need a domain that has the attributes", advice)
    return domain
