"""What a policy hides and what it makes public, in sentences a data owner can check.

A component of the graph without BOTTOM keeps its number of records between neighbours, so that number is
public: whoever signs off a policy must have read this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm_bf._display import word
from hdmm_bf._types import IndexArray
from hdmm_bf.policy.attribute_words import pairs_in_words
from hdmm_bf.policy.graph import BOTTOM, Policy, attribute_groups

_MANY = 6
"""Component totals listed one by one before the rest is only counted."""


def hides(policy: Policy) -> str:
    """Say what nobody can learn about one record."""
    if policy.num_edges == 0:
        return "This policy hides nothing."
    pairs = pairs_in_words(policy)
    if pairs is not None:
        return f"Of one record nobody can tell apart {pairs}."
    return f"Nobody can tell {policy.meaning}."


def fades(policy: Policy) -> str:
    """Say how protection weakens along paths, the metric of the paper."""
    if policy.num_edges == 0:
        return "No pair of values is protected."
    return "Two values k steps apart in the graph are protected k times less (k epsilon instead of epsilon)."


def people(policy: Policy, per_person: int | None = None) -> str:
    """Say what is promised to a person, who may have several records.

    Args:
        policy: what is hidden of one record.
        per_person: the most records of one person that the noise is made for; None when it is made for one record.
    """
    if policy.num_edges == 0:
        return "Nothing is promised to anybody."
    if per_person is None:
        return "This is promised of one record; to a person with k records k times less (k epsilon instead of epsilon)."
    many = "the one record of a person" if per_person == 1 else f"all records of one person, at most {per_person},"
    moved = "changes" if per_person == 1 else "change at once"
    more = "one record" if per_person == 1 else f"{per_person} records"
    return f"This holds when {many} {moved} in that way; to somebody with more than {more} less is promised."


def discloses(policy: Policy) -> list[str]:
    """List in words what the policy makes public; empty when nothing is.

    Guarantees:
        The list is empty only if every component of the graph contains BOTTOM.
    """
    if policy.factors is not None and not policy.has_bottom:
        return _product_discloses(policy)
    components = policy.components
    public = components.public
    if public.size == 0:
        return []
    if components.count == 1:
        return ["the total number of records"]
    if public.size == policy.num_cells:
        return [f"the exact count of every one of the {policy.num_cells} cells"]
    listed = [_component_total(policy, int(c)) for c in public[:_MANY]]
    more = public.size - len(listed)
    return listed + ([f"the totals of {more} more groups of cells"] if more else [])


def _product_discloses(policy: Policy) -> list[str]:
    """Components of a Cartesian product are products of the factors' components."""
    kinds = [f.components.count for f in policy.factors or ()]
    names = [" and ".join(map(word, group)) for group in attribute_groups(policy.domain, policy.factors or ())]
    open_ones = [i for i, count in enumerate(kinds) if count > 1]
    if not open_ones:
        return ["the total number of records"]
    factors = policy.factors or ()
    parts = [
        names[i] if kinds[i] == factors[i].num_cells else f"the {kinds[i]} groups of {names[i]}" for i in open_ones
    ]
    if len(open_ones) == len(kinds) and all(f.num_edges == 0 for f in factors):
        return [f"the exact count of every one of the {policy.num_cells} cells"]
    if len(parts) == 1:
        return [f"the exact number of records for every value of {parts[0]}"]
    return [f"the exact number of records for every combination of {', '.join(parts[:-1])} and {parts[-1]}"]


def _component_total(policy: Policy, component: int) -> str:
    cells = np.flatnonzero(policy.components.labels == component)
    if cells.size == 1:
        return f"the exact count of {policy.domain.describe(int(cells[0]))}"
    if policy.domain.num_attributes == 1 and policy.domain.labels[0] is not None:
        known = [policy.domain.describe(int(cell)) for cell in cells[: _MANY + 1]]
        return f"the number of records in {', '.join(known[:_MANY])}" + (", ..." if len(known) > _MANY else "")
    return f"the number of records in cells {_ranges(cells)}"


def _ranges(cells: IndexArray) -> str:
    """Write sorted cell numbers as `0-3, 7, 9-12`."""
    breaks = np.flatnonzero(np.diff(cells) > 1)
    starts, stops = cells[np.r_[0, breaks + 1]], cells[np.r_[breaks, cells.size - 1]]
    parts = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, stops, strict=True)]
    return ", ".join(parts[:_MANY]) + (", ..." if len(parts) > _MANY else "")


@final
@dataclass(frozen=True)
class Example:
    """Two small databases, as counts of the cells that matter, and whether they are neighbours."""

    before: dict[str, int]
    after: dict[str, int]
    neighbours: bool
    sentence: str


def examples(policy: Policy) -> list[Example]:
    """Return a pair of neighbouring databases, and a pair that is not, where the policy has them."""
    pairs = []
    if policy.num_edges:
        u, v = (int(end) for end in policy.edges[policy.num_edges // 2])
        pairs.append(_example(policy, u, v, neighbours=True))
    far = _unprotected_pair(policy)
    if far is not None:
        pairs.append(_example(policy, *far, neighbours=False))
    return pairs


def _example(policy: Policy, u: int, v: int, *, neighbours: bool) -> Example:
    here = policy.domain.describe(u)
    there = None if v == BOTTOM else policy.domain.describe(v)
    change = f"moving one record from {here} to {there}" if there else f"removing one record from {here}"
    before, after = {here: 3}, {here: 2}
    if there:
        before[there], after[there] = 1, 2
    if neighbours:
        sentence = f"{change[0].upper()}{change[1:]} is hidden: the two databases are neighbours."
    else:
        steps = policy.distance(u, v)
        how = f"{int(steps)} steps apart" if np.isfinite(steps) else "not connected, so the change is public"
        sentence = f"{change[0].upper()}{change[1:]} does not give neighbours: the two are {how}."
    return Example(before, after, neighbours, sentence)


def _unprotected_pair(policy: Policy) -> tuple[int, int] | None:
    """Find two cells without an edge, else a cell whose presence is not hidden, else None."""
    n = policy.num_cells
    adjacency = policy.adjacency
    for u in range(min(n, _MANY)):
        near = set(adjacency.indices[adjacency.indptr[u] : adjacency.indptr[u + 1]].tolist())
        free = next((w for w in range(n - 1, u, -1) if w not in near), None)
        if free is not None:
            return u, free
        if n not in near:
            return u, BOTTOM
    return None
