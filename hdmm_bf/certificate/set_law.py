"""Variances of the sets of a tree norm, equal subtrees once: what queries that are sets of the tree need.

The messages are those of `tree_law`. A set's message depends on the subtree below it alone, so equal subtrees have one;
k equal children are merged by doubling, in about log k convolutions. Children of one node with equal subtrees can be
exchanged, so they have one law. 10^4 cells that are all alike take as long as a dozen that are not.
Tables that are not short are convolved by FFT, with errors relative to the largest entry. All messages are even and
log-concave, with that entry at sum 0, so an error of 1e-16 there changes a variance by about 1e-13 of it.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import RealVector
from hdmm_bf.certificate.tree_law import EDGE, MOST_SUMS, TAIL, by_fft

_SHORT = 2**7
"""Sums on either side of zero up to which tables are convolved directly."""

_WIDE = 9.0
"""Standard deviations of the widest sum, as if it were normal, that the first tables hold."""


def set_variances(parents: Int64[np.ndarray, " N"], rates: RealVector, fixed: Bool[np.ndarray, " N"]) -> RealVector:
    """Return the variance of z(v) for every node of a forest, whole-number noise with the given rates.

    Args:
        parents: for every node its parent, a later node, or -1.
        rates: a_v, one for each node.
        fixed: which roots have sum zero.

    Guarantees:
        Equal to `TreeLaw.node_variances` within 1e-9 of it.
    """
    return _checked(parents, rates, fixed)[0]


def proper_reach(parents: Int64[np.ndarray, " N"], rates: RealVector, fixed: Bool[np.ndarray, " N"]) -> int:
    """Return sums on either side of zero over which the law of no set is cut off."""
    return _checked(parents, rates, fixed)[1]


def _checked(
    parents: Int64[np.ndarray, " N"], rates: RealVector, fixed: Bool[np.ndarray, " N"]
) -> tuple[RealVector, int]:
    slots = Slots(parents, rates)
    kinds = _kinds(parents, slots, fixed)
    reach = _first_reach(parents, rates, fixed)
    while True:
        if reach > MOST_SUMS:
            shown = f"sums up to {reach:.3g}"
            raise fail("tree norm", shown, "are too many to tabulate", "Use a larger epsilon, or larger weights.")
        found = _variances(slots.all, kinds, reach)
        if found is not None:
            return found[kinds.of], reach
        reach = math.ceil(1.4 * reach)


class Slot(NamedTuple):
    """The message of a set, or of some of the children of one.

    Attributes:
        one, two: slots of its parts; -1 for none.
        rate: of the set itself; 0 for some of the children.
        is_set: whether it is one.
    """

    one: int
    two: int
    rate: float
    is_set: bool


@final
class Slots:
    """Messages that are needed, equal ones once.

    Attributes:
        all: parts come first.
        of: for every node its slot.
    """

    def __init__(self, parents: Int64[np.ndarray, " N"], rates: RealVector) -> None:
        self.all: list[Slot] = []
        self._known: dict[Slot, int] = {}
        below: list[Counter[int]] = [Counter() for _ in range(parents.size)]
        self.of = np.empty(parents.size, dtype=np.int64)
        for node, (parent, rate) in enumerate(zip(parents.tolist(), rates.tolist(), strict=True)):
            self.of[node] = self._whole(below[node], rate)
            if parent >= 0:
                below[parent][int(self.of[node])] += 1

    def _slot(self, one: int, two: int, rate: float = 0.0, is_set: bool = False) -> int:
        slot = Slot(one, two, rate, is_set)
        if slot not in self._known:
            self._known[slot] = len(self.all)
            self.all.append(slot)
        return self._known[slot]

    def _whole(self, below: Counter[int], rate: float) -> int:
        """Return the slot of a set with so many children of every slot."""
        parts = [part for slot, count in sorted(below.items()) for part in self._doubled(slot, count)]
        while len(parts) > 2:
            parts = [self._slot(parts[0], parts[1]), *parts[2:]]
        one, two = (parts + [-1, -1])[:2]
        return self._slot(one, two, rate, True)

    def _doubled(self, slot: int, count: int) -> list[int]:
        """Return slots that add up to `count` equal ones: one for every binary digit 1."""
        found = []
        while count:
            if count % 2:
                found.append(slot)
            count //= 2
            slot = self._slot(slot, slot) if count else slot
        return found


class Kinds(NamedTuple):
    """Nodes that have one law: roots of one slot, and children of nodes of one kind that have one slot.

    Attributes:
        of: for every node its kind.
        slot: for every kind; parents come first.
        below: for every kind, the kind of the children of each slot.
        fixed: for every kind, whether it is a root of sum zero; None for others.
    """

    of: Int64[np.ndarray, " N"]
    slot: list[int]
    below: list[dict[int, int]]
    fixed: list[bool | None]


def _kinds(parents: Int64[np.ndarray, " N"], slots: Slots, fixed: Bool[np.ndarray, " N"]) -> Kinds:
    known: dict[tuple[int, int, bool], int] = {}
    kinds = Kinds(np.empty(parents.size, dtype=np.int64), [], [], [])
    for node in range(parents.size - 1, -1, -1):
        parent, slot = int(parents[node]), int(slots.of[node])
        above = int(kinds.of[parent]) if parent >= 0 else -1
        key = (above, slot, bool(fixed[node]))
        if key not in known:
            known[key] = len(kinds.slot)
            kinds.slot.append(slot)
            kinds.below.append({})
            kinds.fixed.append(bool(fixed[node]) if parent < 0 else None)
            if parent >= 0:
                kinds.below[above][slot] = known[key]
        kinds.of[node] = known[key]
    return kinds


def _first_reach(parents: Int64[np.ndarray, " N"], rates: RealVector, fixed: Bool[np.ndarray, " N"]) -> int:
    """Return sums on either side of zero: by the cheapest way of a unit through a set, and as if all were normal.

    A unit goes down to a cell below the set, and up through a root or down to a cell elsewhere. A rate a stands for
    variance 2 / a^2.
    """
    nodes = parents.size
    least, second, spread = np.full(nodes + 1, math.inf), np.full(nodes + 1, math.inf), np.zeros(nodes + 1)
    down, precision = np.empty(nodes), np.empty(nodes)
    for v, above in enumerate(parents.tolist()):
        is_cell = spread[v] == 0
        down[v] = rates[v] + (0.0 if is_cell else least[v])
        precision[v] = rates[v] ** 2 / 2 + (0.0 if is_cell else 1 / spread[v])
        spread[above] += 1 / max(precision[v], 1e-300)
        least[above], second[above] = (
            (down[v], least[above]) if down[v] < least[above] else (least[above], min(second[above], down[v]))
        )
    up, outside = np.zeros(nodes), np.zeros(nodes)
    for v in range(nodes - 1, -1, -1):
        above = int(parents[v])
        if above < 0:
            up[v], outside[v] = (math.inf, math.inf) if fixed[v] else (0.0, 0.0)
            continue
        elsewhere = second[above] if down[v] == least[above] else least[above]
        up[v] = min(elsewhere, rates[above] + up[above])
        rest = outside[above] + rates[above] ** 2 / 2
        others = spread[above] - 1 / max(precision[v], 1e-300)
        outside[v] = 1 / max(others + (1 / rest if rest > 0 else math.inf), 1e-300)
    cost, held = float((down + up).min()), float((precision + outside).min())
    if not (cost > 0 and held > 0):
        return MOST_SUMS + 1
    half = spread[:nodes] / 4 + 1 / (precision + outside)  # half of the children of a set
    return math.ceil(max((TAIL + math.log(nodes)) / cost, _WIDE * math.sqrt(float(half.max())))) + 4


@final
class _Tables:
    """The messages of all slots over sums up to `reach` on either side of zero, each scaled to sum 1."""

    def __init__(self, slots: list[Slot], reach: int) -> None:
        self.slots, self.reach = slots, reach
        fits("tree norm", f"{len(slots)} sets", 16 * len(slots) * (2 * reach + 1), advice="Use a larger epsilon.")
        self.sums = np.arange(-reach, reach + 1).astype(np.float64)
        self.m: list[RealVector] = []
        for slot in slots:
            c = np.ones(1) if slot.one < 0 else self.met(self.m[slot.one], slot.two)
            message = self.factor(slot) * c
            self.m.append(message / message.sum())

    def factor(self, slot: Slot) -> RealVector:
        """exp(-a |s|)."""
        return np.asarray(np.exp(-slot.rate * np.abs(self.sums)))

    def met(self, table: RealVector, slot: int) -> RealVector:
        """Convolve a table with the message of a slot; with that of none it stays what it is."""
        if slot < 0:
            return table
        if self.reach > _SHORT:
            return np.asarray(by_fft(table, self.m[slot]))
        return np.asarray(np.convolve(table, self.m[slot])[self.reach : -self.reach])

    def law(self, slot: int, outside: RealVector) -> RealVector:
        """Return the law of a sum, not scaled; empty where the tables cut it off."""
        law = self.m[slot] * outside
        return law if law[0] <= EDGE * law.max() else np.empty(0)

    def below(self, whole: int, outside: RealVector) -> dict[int, RealVector]:
        """Return what the rest of the tree weighs, given the sum of a child, for every slot of a child of a set.

        Empty where the tables cut a sum of some of the children off.
        """
        found: dict[int, RealVector] = {}
        stack = self._parts(whole, outside)
        while stack:
            part, rest = stack.pop()
            if part in found:
                continue  # one of equal children
            found[part] = rest
            if self.law(part, rest).size == 0:
                return {}
            if not self.slots[part].is_set:
                stack.extend(self._parts(part, rest))
        return found

    def _parts(self, whole: int, outside: RealVector) -> list[tuple[int, RealVector]]:
        slot = self.slots[whole]
        g = self.factor(slot) * outside
        sides = {(slot.one, slot.two), (slot.two, slot.one)}
        met = [(part, self.met(g, other)) for part, other in sides if part >= 0]
        return [(part, rest / rest.max()) for part, rest in met]


def _variances(slots: list[Slot], kinds: Kinds, reach: int) -> RealVector | None:
    """Return the variance of every kind, or None where a law is cut off by the tables."""
    tables = _Tables(slots, reach)
    sums, found = tables.sums, np.empty(len(kinds.slot))
    stack: list[tuple[int, RealVector]] = []
    for kind, is_fixed in enumerate(kinds.fixed):
        if is_fixed is not None:
            stack.append((kind, (sums == 0).astype(np.float64) if is_fixed else np.ones(sums.size)))
    while stack:
        kind, outside = stack.pop()
        law = tables.law(kinds.slot[kind], outside)
        if law.size == 0:
            return None
        found[kind] = float(law @ sums**2 / law.sum())
        if kinds.below[kind]:
            rests = tables.below(kinds.slot[kind], outside)
            if not rests:
                return None
            stack.extend((child, rests[slot]) for slot, child in kinds.below[kind].items())
    return found
