"""The workloads people ask for by name; over several attributes they are Kronecker products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from hdmm_bf._checks import fail, fits, positive_int, whole_number
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.matrix import Identity, Kronecker, Matrix, Ones, Stack
from hdmm_bf.workload.boxes import AllRange, Boxes, Prefix
from hdmm_bf.workload.layout import Axis, AxisKind, BoxBlock, Layout, TableBlock
from hdmm_bf.workload.queries import Workload

_BYTES_PER_RANGE = 32  # of one attribute: both ends, as drawn and in order
_BYTES_PER_FACTOR = 128  # of one attribute of one marginal


def identity(domain: DomainLike) -> Workload:
    """Ask for the count of every cell: the histogram."""
    cells = as_domain(domain)
    layout = Layout((_block(cells, ["values"] * cells.num_attributes),))
    return Workload(Identity(cells.num_cells), cells, f"identity:{cells}", cells.describe, layout=layout)


def prefix(domain: DomainLike) -> Workload:
    """Ask for every prefix (every corner box, in several dimensions): the cumulative histogram."""
    cells = as_domain(domain)

    def bounds(axis: int, query: int) -> tuple[int, int]:
        return 0, query

    return _per_axis(cells, "prefix", "prefixes", [Prefix(s) for s in cells.sizes], bounds)


def all_range(domain: DomainLike) -> Workload:
    """Ask for every range (every box, in several dimensions)."""
    cells = as_domain(domain)
    factors = [AllRange(s) for s in cells.sizes]
    return _per_axis(cells, "all-range", "ranges", factors, lambda axis, query: factors[axis].bounds(query))


def _per_axis(
    domain: Domain,
    kind: str,
    asked: AxisKind,
    factors: Sequence[Matrix],
    bounds: Callable[[int, int], tuple[int, int]],
) -> Workload:
    counts = [f.shape[0] for f in factors]

    def name(query: int) -> str:
        numbers = np.unravel_index(query, counts)
        return range_name(domain, [bounds(axis, int(q)) for axis, q in enumerate(numbers)])

    matrix = factors[0] if len(factors) == 1 else Kronecker(tuple(factors))
    return Workload(matrix, domain, f"{kind}:{domain}", name, layout=Layout((_block(domain, [asked] * len(factors)),)))


def _block(domain: Domain, kinds: Sequence[AxisKind]) -> TableBlock:
    """Return the table with these axes, called after the attributes that it does not sum over."""
    named = [name for name, kind in zip(domain.names, kinds, strict=True) if kind != "all"]
    axes = tuple(Axis(kind, size) for kind, size in zip(kinds, domain.sizes, strict=True))
    return TableBlock(" x ".join(named) or "total", axes)


def random_range(domain: DomainLike, count: int, *, seed: int) -> Workload:
    """Ask `count` random ranges: both ends of every attribute are drawn uniformly, then ordered."""
    cells = as_domain(domain)
    cells.check_numbered("workload.random_range")
    positive_int("workload.random_range", "count", count, advice="Ask for at least one query.")
    whole_number("workload.random_range", "seed", seed, least=0, advice="Any seed gives a workload, for example 0.")
    size = count * cells.num_attributes * _BYTES_PER_RANGE
    fits("workload.random_range", f"{count} queries", size, advice="Ask for fewer queries.")
    ends = np.random.default_rng(seed).integers(0, cells.sizes, size=(2, count, cells.num_attributes))
    boxes = Boxes(cells.sizes, ends.min(axis=0), ends.max(axis=0))

    def name(query: int) -> str:
        low, high = boxes.low[query].tolist(), boxes.high[query].tolist()
        return range_name(cells, list(zip(low, high, strict=True)))

    layout = Layout((BoxBlock("random ranges", boxes.low, boxes.high),))
    return Workload(boxes, cells, f"random-range:{cells}:{count}:seed={seed}", name, layout=layout)


def marginals(domain: DomainLike, ways: int | Literal["all"]) -> Workload:
    """Ask for all `ways`-way marginals (tables over that many attributes), or for all 2^d with "all"."""
    cells = as_domain(domain)
    d = cells.num_attributes
    if ways != "all" and not (isinstance(ways, int) and 0 <= ways <= d):
        raise fail("workload.marginals", f"ways={ways!r}", f"must be 0 to {d} or 'all'", "Correct the number.")
    wanted = range(d + 1) if ways == "all" else [ways]
    num_tables = sum(math.comb(d, w) for w in wanted)
    size = num_tables * d * _BYTES_PER_FACTOR
    fits("workload.marginals", f"{num_tables} tables", size, advice="Ask for fewer ways or fewer attributes.")
    tables = [kept for w in wanted for kept in itertools.combinations(range(d), w)]
    blocks = tuple(marginal_matrix(cells, kept) for kept in tables)
    ends = np.cumsum([b.shape[0] for b in blocks])

    def name(query: int) -> str:
        block = int(np.searchsorted(ends, query, side="right"))
        kept = tables[block]
        number = query - int(ends[block]) + blocks[block].shape[0]
        values = np.unravel_index(number, [cells.sizes[a] for a in kept]) if kept else ()
        bounds = [(0, s - 1) for s in cells.sizes]
        for attribute, value in zip(kept, values, strict=True):
            bounds[attribute] = (int(value), int(value))
        return range_name(cells, bounds)

    kinds: list[list[AxisKind]] = [["values" if a in kept else "all" for a in range(d)] for kept in tables]
    layout = Layout(tuple(_block(cells, own) for own in kinds))
    return Workload(Stack(blocks), cells, f"marginals:{cells}:{ways}", name, layout=layout)


def marginal_matrix(domain: Domain, kept: Sequence[int]) -> Kronecker:
    """Return the table over the `kept` attributes: identity on these, totals over the others."""
    return Kronecker(tuple(Identity(s) if a in kept else Ones(s) for a, s in enumerate(domain.sizes)))


def range_name(domain: Domain, bounds: Sequence[tuple[int, int]]) -> str:
    """Name a box: `a0=3..7, a1=2`; attributes that are not restricted are left out, and `total` if none is."""
    parts = []
    for axis, (low, high) in enumerate(bounds):
        if (low, high) == (0, domain.sizes[axis] - 1) and low != high:
            continue
        parts.append(f"{domain.names[axis]}={domain.interval_name(axis, low, high)}")
    return ", ".join(parts) or "total"
