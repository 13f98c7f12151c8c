"""One policy for each attribute of a table, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from hdmm_bf._checks import fail
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.policy.constructors import attribute_domain, empty, product
from hdmm_bf.policy.graph import Policy
from hdmm_bf.policy.interop import from_networkx
from hdmm_bf.policy.spec import is_path, parse, parse_for

PolicyLike: TypeAlias = Any
"""A Policy, words such as "threshold 2", "bounded" or "public", the path of a graph file, or a networkx graph."""

_PUBLIC = "public"
_ADVICE = 'Write it like policies(age="threshold 2", region="bounded", sex="public").'


@final
@dataclass(frozen=True)
class Policies:
    """Policies by attribute, before the attributes are known; `on(domain)` makes the policy."""

    by_attribute: tuple[tuple[str, PolicyLike], ...]

    def on(self, domain: DomainLike) -> Policy:
        """Return the policy on a domain: one attribute of one record changes along an edge of its policy."""
        return per_attribute(domain, dict(self.by_attribute))


def policies(by_attribute: Mapping[str, PolicyLike] | None = None, /, **named: PolicyLike) -> Policies:
    """Say what is hidden of every attribute; attributes left out are public.

    Args:
        by_attribute: by name; for names that Python does not take as keywords.
        named: each a policy, a networkx graph, the path of a graph file whose nodes are the labels of the attribute,
            or words: "public"; "bounded", any value for any other; "line", a value for the next; "threshold 2", a value
            for another at most 2 further; "unbounded", whether the record is there.

    Example:
        >>> import hdmm_bf as bf
        >>> people = bf.domain.of(age=bf.domain.whole(18, 37, unit="years"), region=["north", "south"], sex=["F", "M"])
        >>> policy = bf.policies(age="threshold 2", region="bounded", sex="public").on(people)
        >>> print(bf.policy.hides(policy))
        Of one record nobody can tell apart two ages at most 2 years apart, or any two values of region.
    """
    given = {**(by_attribute or {}), **named}
    if not given:
        raise fail("policies", "no attributes", "hides nothing", _ADVICE)
    return Policies(tuple(given.items()))


def per_attribute(domain: DomainLike, policies: Mapping[str | int, PolicyLike] | Mapping[str, PolicyLike]) -> Policy:
    """Give each attribute a policy of its own; attributes left out are public.

    A policy may be the name of a one-attribute policy ("line", "bounded", "unbounded", "threshold:4", "public"): the
    attribute's size is filled in. It may also be the path of a graph file or a networkx graph.
    """
    cells = as_domain(domain)
    chosen = {cells.attribute(key): value for key, value in policies.items()}
    factors = []
    for i in range(cells.num_attributes):
        own = attribute_domain(cells, i)
        made = policy_of(own, chosen.get(i, _PUBLIC))
        if made.num_cells != own.num_cells:
            raise fail(
                "policy.per_attribute",
                f"{cells.names[i]}: policy on {made.num_cells} cells",
                f"the attribute has {own.num_cells} values",
                "Make the policy for that size.",
            )
        factors.append(made)
    return product(*factors, domain=cells)


def policy_of(own: Domain, wanted: PolicyLike) -> Policy:
    """Return the policy of one attribute from any of the forms that `policies` takes."""
    if isinstance(wanted, Policy):
        return wanted
    if hasattr(wanted, "nodes") and hasattr(wanted, "edges"):
        return from_networkx(wanted, domain=own)
    text = str(wanted)
    if is_path(text):
        return parse(text, domain=own)
    words = ":".join(text.split())
    if words.lower() == _PUBLIC:
        return empty(own)
    return parse(words, domain=own) if words.count(":") > 1 else parse_for(own, words)  # with its size, or without
