"""What the policy of one attribute hides, in the words of that attribute: its name, its unit, its labels.

The kind of policy is told from its edges, not from what it calls itself.
"""

from __future__ import annotations

import re

import numpy as np

from hdmm_bf._checks import written_whole
from hdmm_bf._display import word
from hdmm_bf._types import EdgeArray
from hdmm_bf.domain import Domain
from hdmm_bf.policy.graph import BOTTOM, Policy

_PLAIN = re.compile(r"[a-z]+")
_MOST_EDGES = 2_000_000


def pairs_in_words(policy: Policy) -> str | None:
    """Say which values nobody can tell apart: `two ages at most 2 years apart, or any two values of region`.

    None where attributes have no names of their own, where the presence of a record is hidden, or where edges join
    values of several attributes: then the meaning of the policy says it.
    """
    found = attribute_edges(policy) if policy.domain.has_own_names else None
    if found is None or any(np.any(edges[:, 1] == BOTTOM) for edges in found):
        return None
    said = [_pairs(policy.domain.only(i), edges) for i, edges in enumerate(found) if len(edges)]
    return ", or ".join(said) or None


def attribute_edges(policy: Policy) -> list[EdgeArray] | None:
    """Return the edges between the values of every attribute, where a record changes one attribute at a time.

    None where the policy is no such product: an edge changes several attributes, or is there for some values of the
    others alone. Edges that are written out are looked at; more of them than `_MOST_EDGES` are not.
    """
    sizes, factors = policy.domain.sizes, policy.factors
    if len(sizes) == 1:
        return [policy.edges]
    if factors is not None and len(factors) == len(sizes):
        return [factor.edges for factor in factors]
    if policy.num_edges > _MOST_EDGES or policy.has_bottom:
        return None
    ends = [np.stack(np.unravel_index(policy.edges[:, k], sizes), axis=1) for k in (0, 1)]
    changes = ends[0] != ends[1]
    if np.any(changes.sum(axis=1) != 1):
        return None
    found = []
    for i, size in enumerate(sizes):
        own = np.stack([end[changes[:, i], i] for end in ends], axis=1)
        pairs, counts = np.unique(np.sort(own, axis=1), axis=0, return_counts=True)
        if np.any(counts != policy.num_cells // size):
            return None
        found.append(pairs.reshape(-1, 2).astype(np.int64))
    return found


def _pairs(domain: Domain, edges: EdgeArray) -> str:
    n, many = domain.num_cells, _many(domain)
    if len(edges) == n * (n - 1) // 2:
        return f"any two {many}"
    steps = np.abs(edges[:, 0] - edges[:, 1])
    limit = int(steps.max())
    if len(edges) == limit * n - limit * (limit + 1) // 2:  # as many as there are pairs of values so close
        return _close(domain, many, limit)
    u, v = (domain.value_name(0, int(end)) for end in edges[0])
    pairs = f"{len(edges)} pairs of" if len(edges) > 1 else "the pair of"
    return f"{pairs} {many} such as {word(u)} and {word(v)}"


def _close(domain: Domain, many: str, limit: int) -> str:
    edges, labels, unit = domain.bins[0], domain.labels[0], domain.units[0]
    if edges is not None:
        widths = np.diff(edges)
        whole = np.isfinite(widths).all() and np.ptp(widths) <= 1e-9 * widths.max()
        what = f"intervals of {widths[0]:g}{f' {word(unit)}' if unit else ''}" if whole else "intervals"
        return f"two {many} in {what} at most {limit} interval{'s' if limit > 1 else ''} apart"
    in_order = labels is None or _is_run(labels)
    if unit and in_order:
        return f"two {many} at most {limit} {word(unit)} apart"
    return f"two {many} at most {limit} step{'s' if limit > 1 else ''} apart"


def _is_run(labels: tuple[str, ...]) -> bool:
    """Whether labels are whole numbers that follow one another."""
    numbers = [written_whole(label) for label in labels]
    return all(b is not None and a is not None and b == a + 1 for a, b in zip(numbers, numbers[1:], strict=False))


def _many(domain: Domain) -> str:
    """Return the plural of an attribute that has a unit, so that its name is a quantity; else `values of ...`."""
    name = domain.names[0]
    if domain.units[0] is None or not _PLAIN.fullmatch(name):
        return f"values of {word(name)}"
    if re.search(r"[^aeiou]y$", name):
        return f"{name[:-1]}ies"
    return f"{name}es" if re.search(r"(s|x|z|ch|sh)$", name) else f"{name}s"
