"""The policies people ask for by name, built as integer arrays.

Every function takes a domain (a `Domain`, a number of cells, sizes, or a string such as "32x32").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hdmm_bf._checks import fail, positive_int, same_cells, whole_numbers
from hdmm_bf._display import word
from hdmm_bf._types import AnyArray, EdgeArray, IndexArray
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.policy.graph import BOTTOM, Policy, attribute_groups, check_edges_fit

_THRESHOLD_ADVICE = "For a policy with no protected pairs use policy.empty(n)."


def unbounded(domain: DomainLike) -> Policy:
    """Hide the presence of any record: ordinary (unbounded) differential privacy, a star around BOTTOM."""
    cells = as_domain(domain)
    spec, meaning = f"unbounded:{cells}", "whether any one record is in the data at all"
    if cells.num_attributes > 1:
        first, *others = (attribute_domain(cells, i) for i in range(cells.num_attributes))
        return Policy(cells, spec, meaning, factors=(unbounded(first), *map(empty, others)))
    check_edges_fit(spec, cells.num_cells)
    edges = np.stack([np.arange(cells.num_cells), np.full(cells.num_cells, BOTTOM)], axis=1)
    return Policy(cells, spec, meaning, edges)


def bounded(domain: DomainLike) -> Policy:
    """Hide the value of any record, the number of records being known: the complete graph."""
    cells = as_domain(domain)
    n = cells.num_cells
    spec = f"bounded:{cells}"
    check_edges_fit(spec, n * (n - 1) // 2)
    edges = np.empty((n * (n - 1) // 2, 2), dtype=np.int64)
    start = 0
    for u in range(n):
        row = edges[start : start + n - 1 - u]
        row[:, 0] = u
        row[:, 1] = np.arange(u + 1, n)
        start += len(row)
    return Policy(cells, spec, "which value any one record has", edges)


def line(domain: DomainLike) -> Policy:
    """Hide whether a record is in a cell or in the next one: a path through the values of one attribute in order."""
    cells = as_domain(domain)
    _check_in_a_row("line", cells)
    n = cells.num_cells
    spec = f"line:{cells}"
    check_edges_fit(spec, n - 1)
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    return Policy(cells, spec, "whether any one record is in a cell or in the cell next to it", edges)


def cycle(domain: DomainLike) -> Policy:
    """Hide whether a record is in a cell or in the next one, the last being next to the first, for one attribute."""
    cells = as_domain(domain)
    _check_in_a_row("cycle", cells)
    n = cells.num_cells
    if n < 3:
        raise fail("policy.cycle", f"n={n}", "a cycle needs at least 3 cells", "Use policy.line(n).")
    spec = f"cycle:{cells}"
    check_edges_fit(spec, n)
    closing = np.array([[0, n - 1]])
    meaning = "whether any one record is in a cell or in the cell next to it, around the circle"
    return Policy(cells, spec, meaning, np.concatenate([line(cells).edges, closing]))


def _check_in_a_row(name: str, cells: Domain) -> None:
    """Refuse tables: next to the last value of a row is not the first of the next row."""
    if sum(size > 1 for size in cells.sizes) < 2:
        return
    each = "product:" + ",".join(f"{name}:{size}" for size in cells.sizes)
    same = f", which is threshold:{cells}:1" if name == "line" else ""
    problem = f"the cells of a table with {cells.num_attributes} attributes are not in a row"
    own = f'[policy] attribute.{cells.names[0]} = "{name}" (policy.per_attribute)'
    advice = f"Use {each}{same}, or, for one attribute alone, {own}."
    raise fail(f"policy.{name}", cells, problem, advice)


def star_tree(domain: DomainLike) -> Policy:
    """Hide whether a record is in cell 0 (the hub) or in any other cell; the number of records is known."""
    cells = as_domain(domain)
    spec = f"star-tree:{cells}"
    check_edges_fit(spec, cells.num_cells)
    others = np.arange(1, cells.num_cells)
    meaning = "whether any one record is in cell 0 or in another cell"
    return Policy(cells, spec, meaning, np.stack([np.zeros_like(others), others], axis=1))


def empty(domain: DomainLike) -> Policy:
    """Hide nothing: no edges, every count is public."""
    cells = as_domain(domain)
    meaning = "nothing: the policy has no protected pair"
    return Policy(cells, f"empty:{cells}", meaning, np.empty((0, 2), dtype=np.int64))


def threshold(domain: DomainLike, threshold: int) -> Policy:
    """Hide whether a record is in a cell or in another at L1 distance at most `threshold`."""
    cells = as_domain(domain)
    limit = positive_int("policy.threshold", "threshold", threshold, advice=_THRESHOLD_ADVICE)
    spec = f"threshold:{cells}:{limit}"
    meaning = f"whether any one record is in a cell or in another at distance at most {limit}"
    if limit == 1 and cells.num_attributes > 1:
        lines = tuple(line(attribute_domain(cells, i)) for i in range(cells.num_attributes))
        return Policy(cells, spec, meaning, factors=lines)
    return Policy(cells, spec, meaning, _threshold_edges(cells, limit, spec))


def _threshold_edges(domain: Domain, limit: int, spec: str) -> EdgeArray:
    """One block of edges (cell, cell + offset) for each offset of L1 length 1 to `limit`, half of them."""
    check_edges_fit(spec, _num_straight_edges(domain, limit))  # before anything of that length is made
    check_edges_fit(spec, _num_threshold_edges(domain.sizes, limit))
    edges = np.empty((_num_threshold_edges(domain.sizes, limit), 2), dtype=np.int64)
    cells = np.arange(domain.num_cells).reshape(domain.sizes)
    start = 0
    for offset in offsets(domain.sizes, limit):
        near, far = offset_windows(domain.sizes, offset)
        count = cells[near].size
        edges[start : start + count, 0] = cells[near].ravel()
        edges[start : start + count, 1] = cells[far].ravel()
        start += count
    return edges


def ball_threshold(policy: Policy) -> int | None:
    """Return t where neighbours are exactly the cells at L1 distance 1 to t, over several attributes; else None.

    Edges are never repeated: if none is longer than t, and there are as many as there are such pairs, they are all.
    """
    if policy.stored is None or policy.domain.num_attributes == 1 or policy.num_edges == 0 or policy.has_bottom:
        return None
    ends = np.stack(np.unravel_index(policy.stored, policy.domain.sizes))
    limit = int(np.abs(ends[..., 1] - ends[..., 0]).sum(axis=0).max())
    return limit if policy.num_edges == _num_threshold_edges(policy.domain.sizes, limit) else None


def offsets(sizes: tuple[int, ...], limit: int) -> Iterator[tuple[int, ...]]:
    """Yield the offsets of L1 length 1 to `limit` that fit in a domain, one of every pair o, -o."""
    zero = (0,) * len(sizes)
    return (offset for offset in _offsets(sizes, limit) if offset > zero)


def offset_windows(sizes: tuple[int, ...], offset: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where the cells a are for which a + offset is a cell, and where the cells a + offset are."""
    near = tuple(slice(max(0, -o), s - max(0, o)) for s, o in zip(sizes, offset, strict=True))
    far = tuple(slice(max(0, o), s - max(0, -o)) for s, o in zip(sizes, offset, strict=True))
    return near, far


def _num_straight_edges(domain: Domain, limit: int) -> int:
    """Count, exactly, the pairs at distance 1 to `limit` that differ in one attribute only."""
    reach = [min(limit, size - 1) for size in domain.sizes]
    pairs = [r * size - r * (r + 1) // 2 for r, size in zip(reach, domain.sizes, strict=True)]
    return sum(p * (domain.num_cells // size) for p, size in zip(pairs, domain.sizes, strict=True))


def _num_threshold_edges(sizes: tuple[int, ...], limit: int) -> int:
    """Count pairs at distance 1 to `limit`: ordered pairs of one attribute by distance, convolved, halved."""
    by_distance = np.ones(1)
    for size in sizes:
        steps = np.arange(min(limit, size - 1) + 1)
        own = np.where(steps == 0, 1.0, 2.0) * (size - steps)
        by_distance = np.convolve(by_distance, own)[: limit + 1]
    return int(by_distance[1:].sum()) // 2


def _offsets(sizes: tuple[int, ...], limit: int) -> Iterator[tuple[int, ...]]:
    """All offset vectors of L1 length at most `limit` that fit in the domain."""
    if not sizes:
        yield ()
        return
    reach = min(limit, sizes[0] - 1)
    for first in range(-reach, reach + 1):
        for rest in _offsets(sizes[1:], limit - abs(first)):
            yield (first, *rest)


def sensitive(domain: DomainLike, attributes: Sequence[str | int]) -> Policy:
    """Hide the value of each named attribute of any record; the other attributes are public."""
    cells = as_domain(domain)
    chosen = sorted({cells.attribute(a) for a in attributes})
    if not chosen:
        raise fail("policy.sensitive", "attributes=[]", "names no attribute", "Name one, or use policy.empty.")
    own = [attribute_domain(cells, i) for i in range(cells.num_attributes)]
    factors = tuple(bounded(d) if i in chosen else empty(d) for i, d in enumerate(own))
    names = " or ".join(word(cells.names[i]) for i in chosen)
    spec = f"sensitive:{cells}:{','.join(map(str, chosen))}"
    return Policy(cells, spec, f"which value of {names} any one record has", factors=factors)


def product(*policies: Policy, domain: Domain | None = None) -> Policy:
    """Cartesian product: change one attribute at a time, along an edge of that attribute's policy.

    An edge to BOTTOM in one factor hides the presence of a record with that value, whatever its other values.
    """
    if not policies:
        raise fail("policy.product", "no policies", "needs at least one", "Give one for each attribute.")
    cells = domain or Domain(tuple(size for p in policies for size in p.domain.sizes))
    groups = list(zip(attribute_groups(cells, policies), policies, strict=True))
    spec = f"product:{','.join(p.spec for p in policies)}"
    hidden = [f"in {_attributes(names)}, {p.meaning}" for names, p in groups if p.num_edges]
    meaning = "; or ".join(hidden) or "nothing: no attribute has a protected pair"
    whole = [p.factors is None or len(names) != p.domain.num_attributes for names, p in groups]
    factors = tuple(f for w, p in zip(whole, policies, strict=True) for f in ((p,) if w else p.factors or ()))
    made = Policy(cells, spec, meaning, factors=factors)
    if sum(f.has_bottom for f in factors) > 1:  # the same (cell, BOTTOM) comes from several factors
        u, v = made.edges.T
        return Policy(cells, spec, meaning, canonical_edges(u, v, cells.num_cells)[0])
    return made


def _attributes(names: tuple[str, ...]) -> str:
    *others, last = map(word, names)
    return f"attributes {', '.join(others)} and {last}" if others else f"attribute {last}"


def union(*policies: Policy) -> Policy:
    """Protect every pair that any of the policies protects; all must be on the same number of cells."""
    if not policies:
        raise fail("policy.union", "no policies", "needs at least one", "Use policy.empty(n) for none.")
    first = policies[0]
    same_cells("policy.union", "policies", [other.num_cells for other in policies])
    spec = f"union({', '.join(p.spec for p in policies)})"
    check_edges_fit(spec, sum(p.num_edges for p in policies))
    u, v = np.concatenate([p.edges for p in policies]).T
    edges, _ = canonical_edges(u, v, first.num_cells)
    meaning = "; or ".join(dict.fromkeys(p.meaning for p in policies if p.num_edges))
    return Policy(first.domain, spec, meaning or first.meaning, edges)


def from_edges(
    u: Sequence[int] | AnyArray,
    v: Sequence[int] | AnyArray,
    domain: DomainLike,
    *,
    spec: str = "custom graph",
) -> Policy:
    """Make a policy from edge ends; BOTTOM is -1 and may stand on either side. Duplicates are merged and noted."""
    cells = as_domain(domain)
    edges, merged = canonical_edges(u, v, cells.num_cells)
    notes = (f"{merged} duplicate edge{'s were' if merged > 1 else ' was'} merged",) if merged else ()
    meaning = f"on which side of any of the graph's {len(edges)} edges one record is"
    return Policy(cells, spec, meaning, edges, notes=notes)


def canonical_edges(
    u: Sequence[int] | AnyArray,
    v: Sequence[int] | AnyArray,
    num_cells: int,
) -> tuple[EdgeArray, int]:
    """Check edge ends, order each pair (BOTTOM second), sort, merge duplicates; return edges and how many merged."""
    u, v = whole_numbers("policy.edges", "ends", u), whole_numbers("policy.edges", "ends", v)
    if u.shape != v.shape or u.ndim != 1:
        raise fail(
            "policy.edges",
            f"{u.shape} and {v.shape}",
            "ends must be two lists of one length",
            "Pair them up.",
        )
    check_vertices(np.concatenate([u, v]), num_cells)
    loops = u[u == v]
    if loops.size:
        name = "BOTTOM" if loops[0] == BOTTOM else str(loops[0])
        raise fail("policy.edges", f"edge ({name}, {name})", "is a self-loop and hides nothing", "Remove it.")
    low, high = np.minimum(u, v), np.maximum(u, v)
    first, second = np.where(low == BOTTOM, high, low), np.where(low == BOTTOM, BOTTOM, high)
    order = np.lexsort((second, first))
    pairs = np.stack([first[order], second[order]], axis=1)
    new = np.ones(len(pairs), dtype=bool)
    np.any(pairs[1:] != pairs[:-1], axis=1, out=new[1:])
    return pairs[new], u.size - int(new.sum())


def check_vertices(vertices: IndexArray, num_cells: int) -> None:
    """Refuse vertices that are neither cells nor BOTTOM."""
    outside = vertices[(vertices < BOTTOM) | (vertices >= num_cells)]
    if outside.size:
        raise fail(
            "policy.edges",
            f"vertex {outside[0]}",
            f"out of range: the {num_cells} cells are 0 to {num_cells - 1}, BOTTOM is {BOTTOM}",
            "Correct the vertex or enlarge the domain.",
        )


def attribute_domain(domain: Domain, index: int) -> Domain:
    """Return the one-attribute domain of one attribute, with its name, labels, bins and unit."""
    return domain.only(index)
