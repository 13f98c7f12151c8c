"""One policy for each attribute of a table, by name."""

from __future__ import annotations

from collections.abc import Mapping

from hdmm_bf._checks import fail
from hdmm_bf.domain import DomainLike, as_domain
from hdmm_bf.policy.constructors import attribute_domain, product
from hdmm_bf.policy.graph import Policy
from hdmm_bf.policy.spec import parse_for


def per_attribute(domain: DomainLike, policies: Mapping[str | int, Policy | str]) -> Policy:
    """Give each attribute a policy of its own; attributes left out are public.

    A policy may be the name of a one-attribute policy ("line", "bounded", "unbounded", "threshold:4"):
    the attribute's size is filled in.
    """
    cells = as_domain(domain)
    chosen = {cells.attribute(key): value for key, value in policies.items()}
    factors = []
    for i in range(cells.num_attributes):
        own = attribute_domain(cells, i)
        wanted = chosen.get(i, "empty")
        made = parse_for(own, wanted) if isinstance(wanted, str) else wanted
        if made.num_cells != own.num_cells:
            raise fail(
                "policy.per_attribute",
                f"{cells.names[i]}: policy on {made.num_cells} cells",
                f"the attribute has {own.num_cells} values",
                "Make the policy for that size.",
            )
        factors.append(made)
    return product(*factors, domain=cells)
