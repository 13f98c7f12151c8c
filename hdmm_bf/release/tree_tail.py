"""What lies outside the tables of a tree's law, drawn exactly.

Tables end somewhere, and noise that ends somewhere is not private. The symbol "outside" is drawn with a probability
that is certainly too large, and here it is decided what it stands for: an outcome in a wider box, something wider
still, or nothing, and then all is drawn again. Every outcome so keeps its probability. With the tables as they are this
happens once in 2^99 draws and may take hours; tests make it frequent. Numbers are decimals of 60 digits, which know
no underflow, and their rounding is far below one rounding of the tables.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import AnyArray
from hdmm_bf.release.choice import Source, choose_fraction
from hdmm_bf.release.tree_tables import Kind, Piece

_DIGITS = 60
_ROUNDING = Fraction(5, 10**_DIGITS)
"""Largest relative error of one operation with decimals."""

_CONTEXT = decimal.Context(prec=_DIGITS, rounding=decimal.ROUND_HALF_EVEN, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
_NONE = Decimal(0)


class Wide(NamedTuple):
    """Messages in the wider box, of outcomes without (`within`) and with (`beyond`) a node outside the inner one.

    Both are lists over s from -reach to reach; `inner` is the reach of the inner box.
    """

    within: AnyArray
    beyond: AnyArray
    inner: int
    reach: int

    def weight(self, state: int, s: int) -> Decimal:
        """Return the message of a state at s, zero outside the box."""
        values = self.beyond if state else self.within
        reach = len(values) // 2
        return values[s + reach] if abs(s) <= reach else _NONE


def draw_outside(
    kinds: Sequence[Kind],
    piece: Piece,
    reaches: Sequence[int],
    exponent: int,
    outside: Fraction,
    tail: int,
    source: Source,
) -> list[int] | None:
    """Decide what the symbol "outside" stands for: the sums of all nodes of a piece, or None to draw again.

    Args:
        kinds: the kinds of the nodes.
        piece: the tree.
        reaches: for every kind, the box that the symbol is outside of.
        exponent: the root's table is in units of 2^exponent.
        outside: the weight of the symbol, in these units: at least that of everything outside.
        tail: 2^-tail bounds the share of the whole that is outside.
        source: random bytes.

    Guarantees:
        Given the symbol, every outcome outside the box has the probability of its weight, in these units, over
        `outside`, but for a factor closer to 1 than one rounding in double precision.
    """
    used = sorted({node.kind for node in piece.nodes})
    inner = {kind: reaches[kind] for kind in used}
    with decimal.localcontext(_CONTEXT):
        while True:
            tail *= 2  # the square of the share: less than a quarter, which leaves room for what is drawn here
            share = Fraction(1, 2**tail * 2 ** len(piece.nodes).bit_length())
            wide: dict[int, Wide] = {}
            for kind in used:
                wide[kind] = _widen(kinds[kind], wide, inner[kind], share)
            longest = max(own.reach for own in wide.values())
            assert len(piece.nodes) * (4 * longest + 10) * _ROUNDING < Fraction(1, 2**54), "the box is too wide"
            root = wide[piece.nodes[-1].kind]
            unit = Fraction(2) ** -exponent
            here = unit * _total(root.beyond)
            further = unit * 2 * Fraction(1, 2**tail) * (_total(root.within) + _total(root.beyond))
            assert here + further <= outside, "the bound on the tail is too small"
            found = choose_fraction([here, further, outside - here - further], source)
            if found == 0:
                return _descend(piece, wide, source)
            if found == 2:
                return None
            inner, outside = {kind: own.reach for kind, own in wide.items()}, further


def _widen(kind: Kind, wide: dict[int, Wide], inner: int, share: Fraction) -> Wide:
    """Compute both messages of a kind from those of its children; the box leaves no more than `share` outside."""
    below = [wide[child] for child in (kind.first, kind.second) if child >= 0]
    if not below:
        within = _geometric(kind.ratio, inner, share)
        beyond = np.full(len(within), _NONE)
    else:
        within, beyond = _combined(below)
    most = len(within) // 2
    if kind.pinned:
        return Wide(within[most : most + 1], beyond[most : most + 1], 0, 0)
    if below:
        powers = _powers(kind.ratio, most)
        within, beyond = within * powers, beyond * powers
    return _boxed(within, beyond, inner, max(inner, _reach((within + beyond)[most:], share)))


def _combined(below: list[Wide]) -> tuple[AnyArray, AnyArray]:
    """Convolve the messages of one or two children: nothing is outside if neither has something outside."""
    most = sum(own.reach for own in below)
    if len(below) == 1:
        return _centred(below[0].within, most), below[0].beyond
    one, other = below
    pairs = [(one.beyond, other.within), (one.within, other.beyond), (one.beyond, other.beyond)]
    mixed, swapped, both = (_centred(np.convolve(*pair), most) for pair in pairs)
    return _centred(np.convolve(one.within, other.within), most), mixed + swapped + both


def _boxed(within: AnyArray, beyond: AnyArray, inner: int, reach: int) -> Wide:
    """Move what has its sum outside the inner box from one message to the other, and cut both at their boxes."""
    beyond, most = beyond.copy(), len(within) // 2
    beyond[: most - inner] = beyond[: most - inner] + within[: most - inner]
    beyond[most + inner + 1 :] = beyond[most + inner + 1 :] + within[most + inner + 1 :]
    return Wide(within[most - inner : most + inner + 1], beyond[most - reach : most + reach + 1], inner, reach)


def _centred(values: AnyArray, reach: int) -> AnyArray:
    """Put zeros around a message, so that it goes from -reach to reach."""
    room = np.full(reach - len(values) // 2, _NONE)
    return np.concatenate([room, values, room])


def _powers(ratio: float, reach: int) -> AnyArray:
    """Return q^|s| for s from -reach to reach."""
    half = [Decimal(1)]
    for _ in range(reach):
        half.append(half[-1] * Decimal(ratio))
    return np.array(half[:0:-1] + half, dtype=object)


def _geometric(ratio: float, inner: int, share: Fraction) -> AnyArray:
    """Return q^|s| as far as a cell's message must be known to find its reach."""
    most, power = max(1, inner), Decimal(ratio) ** max(1, inner)
    while 4 * (most + 1) * Fraction(power) > share:
        most, power = 2 * most, power * power
    return _powers(ratio, most + 1)


def _reach(half: AnyArray, share: Fraction) -> int:
    """Return the least T beyond which the message holds no more than its share of m(0), as in `tree_tables`."""
    for far in range(1, len(half)):
        if 4 * far * Fraction(half[far]) <= share * Fraction(half[0]):
            return far - 1
    return len(half) - 1


def _total(values: AnyArray) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0))


def _descend(piece: Piece, wide: dict[int, Wide], source: Source) -> list[int]:
    """Draw the root's sum among outcomes outside the inner box, and split it down to the cells."""
    root = len(piece.nodes) - 1
    top = wide[piece.nodes[root].kind]
    sums, states = [0] * len(piece.nodes), [0] * len(piece.nodes)
    states[root] = 1
    sums[root] = choose_fraction([Fraction(value) for value in top.beyond], source) - top.reach
    for place in range(root, -1, -1):
        node, s, state = piece.nodes[place], sums[place], states[place]
        if node.first < 0:
            continue
        outside = abs(s) > wide[node.kind].inner  # then nothing need be outside further down
        if node.second < 0:
            options = [(t, s, 0) for t in (0, 1) if t == state or outside]
            weights = [Fraction(wide[piece.nodes[node.first].kind].weight(t, s)) for t, _, _ in options]
            states[node.first], sums[node.first], _ = options[choose_fraction(weights, source)]
            continue
        first, second = (wide[piece.nodes[child].kind] for child in (node.first, node.second))
        pairs = [(0, 0)] if not state else [(1, 0), (0, 1), (1, 1)] + ([(0, 0)] if outside else [])
        choices = [(t, k) for t in pairs for k in range(-first.reach, first.reach + 1)]
        weights = [Fraction(first.weight(t[0], k)) * Fraction(second.weight(t[1], s - k)) for t, k in choices]
        (states[node.first], states[node.second]), sums[node.first] = choices[choose_fraction(weights, source)]
        sums[node.second] = s - sums[node.first]
    return sums
