"""What a policy is called where people read it.

A spec string says exactly which pairs are protected, so a policy is called by one only if its edges are the edges that
the spec string makes. Every other name is foreign: it is shown in quotes, with the number of edges beside it.
"""

from __future__ import annotations

import re

import numpy as np

from hdmm_bf import _display
from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import EdgeArray
from hdmm_bf.domain import Domain
from hdmm_bf.policy import constructors
from hdmm_bf.policy.graph import Policy
from hdmm_bf.policy.spec import parse

SPEC = re.compile(r"[A-Za-z-]+:[A-Za-z0-9=,:-]+")
"""What a spec string looks like: no dot and no slash, so that it can never be a path."""

_OWN_WORDS = frozenset({"custom graph", "networkx graph", "adjacency matrix"})
_ADVICE = "Use another name, or a spec string such as line:64."


def title(policy: Policy) -> str:
    """Return the spec string of a policy that is the one of that name, else its name in quotes and its size.

    Guarantees:
        A policy is called by a spec string only if its edges are those that the spec string makes.
    """
    if is_named(policy):
        return policy.spec
    edges = f"{policy.num_edges} edge{'' if policy.num_edges == 1 else 's'}"
    if policy.spec in _OWN_WORDS:
        return f"{policy.spec}, {edges}"
    return f"custom graph {_display.quoted(policy.spec)}, {edges}"


def is_named(policy: Policy) -> bool:
    """Whether the spec string of a policy makes the same edges, in whatever order."""
    if not SPEC.fullmatch(policy.spec):
        return False
    try:
        made = named(policy.spec, policy.domain)
        return made.spec == policy.spec and same_edges(made, policy)
    except InputError:
        return False


def named(spec: str, domain: Domain) -> Policy:
    """Return the policy that a spec string names, on the given domain; no file is ever opened."""
    if not SPEC.fullmatch(spec):
        raise fail("policy", repr(spec), "looks like a spec string and is none", _ADVICE)
    name, _, rest = spec.partition(":")
    try:
        if name.lower() == "product":
            return constructors.product(*map(parse, rest.split(",")), domain=domain)
        made = parse(spec)
    except RecursionError:
        raise fail("policy", repr(spec), "is nested too deeply", _ADVICE) from None
    if made.domain.sizes != domain.sizes:
        raise fail("policy", made.spec, f"is not on the domain {domain}", _ADVICE)
    if name.lower() == "sensitive":  # its meaning calls the attributes by their names
        return constructors.sensitive(domain, [int(a) for a in made.spec.rpartition(":")[2].split(",")])
    return Policy(domain, made.spec, made.meaning, made.stored, made.factors, made.notes)


def same_edges(a: Policy, b: Policy) -> bool:
    """Whether two policies protect the same pairs; large products are compared by their factors."""
    if a.num_cells != b.num_cells or a.num_edges != b.num_edges:
        return False
    if a.factors is not None and b.factors is not None and len(a.factors) == len(b.factors):
        return all(map(same_edges, a.factors, b.factors))
    return a.edges is b.edges or np.array_equal(_sorted(a.edges), _sorted(b.edges))


def _sorted(edges: EdgeArray) -> EdgeArray:
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]
