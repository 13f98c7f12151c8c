"""Policies: which pairs of values must stay indistinguishable.

`parse` reads a spec string or a file; the other names build policies directly, convert them, and say in
words what they hide and disclose.
"""

from hdmm_bf.policy.attributes import Policies, per_attribute, policies
from hdmm_bf.policy.constructors import (
    bounded,
    cycle,
    empty,
    from_edges,
    line,
    product,
    sensitive,
    star_tree,
    threshold,
    unbounded,
    union,
)
from hdmm_bf.policy.files import read
from hdmm_bf.policy.graph import BOTTOM, Components, Policy, breadth_first
from hdmm_bf.policy.interop import from_adjacency, from_networkx, to_networkx
from hdmm_bf.policy.spanners import h_theta, spanning_tree, stretch
from hdmm_bf.policy.spec import parse
from hdmm_bf.policy.words import Example, discloses, examples, fades, hides, people

__all__ = [
    "BOTTOM",
    "Components",
    "Example",
    "Policies",
    "Policy",
    "bounded",
    "breadth_first",
    "cycle",
    "discloses",
    "empty",
    "examples",
    "fades",
    "from_adjacency",
    "from_edges",
    "from_networkx",
    "h_theta",
    "hides",
    "line",
    "parse",
    "people",
    "per_attribute",
    "policies",
    "product",
    "read",
    "sensitive",
    "spanning_tree",
    "star_tree",
    "stretch",
    "threshold",
    "to_networkx",
    "unbounded",
    "union",
]
