"""Messages of a tree's law, in floating point, with a count of the roundings in each.

The law gives z the weight prod_v q_v^|z(v)|, z(v) being the sum below node v. The message m_v(s) adds up the weights of
all that can happen at and below v when z(v) = s: m_v(s) = q_v^|s| c_v(s), c_v the convolution of the children's
messages. All messages are even and log-concave. They are kept for |s| <= reach, and made from what is kept alone, so
that they are the messages of the law *in the box* and nothing is cut off but by the box. Everything is a sum of
products of positive numbers: rounding is relative, and is bounded by counting it.

Equal subtrees share one table: a `Kind` is a subtree up to equality.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fail, fits

_ADVICE = "Use a larger epsilon, or fewer cells."
_BLOCK = 128
"""Entries of a table that are convolved at a time, by products of matrices: the fastest size that was measured."""

_SLOPES = 1 - np.geomspace(1, 1e-6, 48)
"""Where the exponential bound on a sum is tried, as shares of the slowest decay."""

_ONE = -np.log1p(-(_SLOPES**2))
"""Logarithms of the exponential moments of one two-sided exponential there."""

_BIG = 4
"""A message that has fallen to reach-th of a quarter of its allowance leaves no more than that beyond."""

LEAST_ENTRY = 2.0**-400
"""No entry is smaller, so products of two never leave the range where rounding is relative."""


class Kind(NamedTuple):
    """A subtree up to equality: the ratio q at its top, and its children's kinds, -1 where there is none.

    The sum of a pinned kind is zero, and its ratio plays no part.
    """

    ratio: float
    first: int
    second: int
    pinned: bool


class Node(NamedTuple):
    """A node of the binary tree: its kind, its children and the node of the given tree that it is, or -1."""

    kind: int
    first: int
    second: int
    owner: int


class Piece(NamedTuple):
    """A tree that is drawn independently of the others: its nodes, children first, and so the root last."""

    nodes: tuple[Node, ...]


@final
@dataclass(frozen=True)
class Table:
    """A message m(s) for 0 <= s <= reach, divided by 2^exponent.

    `roundings` bounds how many factors between 1 - 2^-53 and 1 + 2^-53, or inverses of such, this node adds between
    the probability of an outcome and the product of the exact ratios.
    """

    values: Float64[np.ndarray, " _"]
    exponent: int
    roundings: int

    @property
    def reach(self) -> int:
        """The largest sum in the box."""
        return self.values.size - 1

    @property
    def both(self) -> Float64[np.ndarray, " _"]:
        """The message from -reach to reach."""
        return np.concatenate([self.values[:0:-1], self.values])


@final
@dataclass(frozen=True)
class Plan:
    """A forest taken apart for drawing.

    A node without weight whose sum nothing below holds either (a *free* node) takes what its siblings leave over:
    they are then independent of their parent's sum, and roots of pieces of their own.

    Attributes:
        kinds: the kinds, children first.
        pieces: the trees to draw.
        free: nodes of the forest that take what their siblings leave, parents first.
        zero: nodes of the forest whose sum is zero without a draw.
    """

    kinds: tuple[Kind, ...]
    pieces: tuple[Piece, ...]
    free: tuple[int, ...]
    zero: tuple[int, ...]

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes of the binary trees."""
        return sum(len(piece.nodes) for piece in self.pieces)

    def roundings(self, counts: Iterable[int]) -> int:
        """Add up over all nodes what `counts` gives for their kinds."""
        uses = Counter(node.kind for piece in self.pieces for node in piece.nodes)
        return sum(uses[kind] * count for kind, count in enumerate(counts))

    def allowance(self, tail: int) -> float:
        """Return the share of the mass beyond its box that each node may leave: together at most 2^-tail."""
        return math.ldexp(1.0, -tail - self.num_nodes.bit_length())


def plan(parents: Int64[np.ndarray, " N"], ratios: Float64[np.ndarray, " N"], fixed: Int64[np.ndarray, " f"]) -> Plan:
    """Take a forest apart into binary trees that are drawn independently; refused where its law is improper."""
    up, nodes = parents.tolist(), parents.size
    children: list[list[int]] = [[] for _ in range(nodes)]
    free = [False] * nodes
    pinned = set(fixed.tolist())
    for node, parent in enumerate(up):
        loose = sum(free[child] for child in children[node])
        free[node] = bool(ratios[node] == 1 and (not children[node] or loose))
        if loose > 1 or (parent < 0 and free[node] and node not in pinned):
            problem = "have no weight that holds them: the noise would have no bounds"
            raise fail("noise", f"sets below node {node}", problem, "Give every cell but one of a set a weight.")
        if parent >= 0:
            children[parent].append(node)
    cut = [any(free[child] for child in below) for below in children]
    zero = {node for node in pinned if cut[node] or not children[node]}
    builder = _Builder()
    for node in range(nodes):
        if not free[node] and node not in zero:
            held = [] if cut[node] else children[node]
            builder.add(node, float(ratios[node]), held, pinned=node in pinned)
    roots = [node for node in builder.place if up[node] < 0 or cut[up[node]]]
    taking = [node for node in range(nodes - 1, -1, -1) if free[node] and up[node] >= 0]
    return Plan(tuple(builder.kinds), tuple(map(builder.piece, roots)), tuple(taking), tuple(sorted(zero)))


class _Builder:
    """Makes nodes with more than two children binary, by nodes of ratio 1, and numbers the kinds."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.numbers: dict[Kind, int] = {}
        self.nodes: list[Node] = []
        self.place: dict[int, int] = {}

    def add(self, owner: int, ratio: float, children: list[int], *, pinned: bool) -> None:
        """Add a node of the forest above its children, of which all sets come first and then cells one by one."""
        own = sorted((self.place[child] for child in children), key=lambda node: self.nodes[node].kind)
        queue = [node for node in own if not self._is_leaf(node)]
        leaves = [node for node in own if self._is_leaf(node)]
        while len(queue) > 2 or (len(queue) == 2 and leaves):
            queue = [*queue[2:], self._node(-1, Kind(1.0, queue[0], queue[1], False))]
        queue += leaves
        while len(queue) > 2:
            queue = [self._node(-1, Kind(1.0, queue[0], queue[1], False)), *queue[2:]]
        first, second = [*queue, -1, -1][:2]
        self.place[owner] = self._node(owner, Kind(1.0 if pinned else ratio, first, second, pinned))

    def _is_leaf(self, node: int) -> bool:
        return self.nodes[node].first < 0

    def _node(self, owner: int, shape: Kind) -> int:
        """Add a node, given as a kind with nodes in the place of its children's kinds."""
        first, second = (-1 if node < 0 else self.nodes[node].kind for node in shape[1:3])
        kind = Kind(shape.ratio, first, second, shape.pinned)
        if kind not in self.numbers:
            self.numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        self.nodes.append(Node(self.numbers[kind], shape.first, shape.second, owner))
        return len(self.nodes) - 1

    def piece(self, root: int) -> Piece:
        """Collect the tree below a node of the forest, and number its nodes anew."""
        stack, seen = [self.place[root]], []
        while stack:
            node = stack.pop()
            seen.append(node)
            stack += [child for child in self.nodes[node][1:3] if child >= 0]
        new = {node: number for number, node in enumerate(sorted(seen))} | {-1: -1}
        old = (self.nodes[node] for node in sorted(seen))
        return Piece(tuple(Node(node.kind, new[node.first], new[node.second], node.owner) for node in old))


def predicted(kinds: tuple[Kind, ...], allowance: float) -> list[int]:
    """Estimate the reach of every kind, without tables: what memory, time and the reserve for rounding are taken from.

    A message is taken for a two-sided exponential that falls to the allowance at its reach, and sums of such by the
    exponential (Chernoff) bound. Nothing about privacy hangs on it: `messages` finds the reach by the messages.
    """
    reaches: list[int] = []
    growths: list[_Growth] = []
    for kind in kinds:
        if kind.first < 0:
            reach = _leaf_powers(kind.ratio, allowance)[0]
            growth = _Growth(-math.log(kind.ratio), _ONE)
        else:
            below = [child for child in (kind.first, kind.second) if child >= 0]
            most = sum(reaches[child] for child in below)
            needed = math.log(_BIG / allowance) + math.log1p(most)
            growth = _together([growths[child] for child in below])
            with np.errstate(divide="ignore"):
                found = np.min((needed + growth.logs) / (_SLOPES * growth.decay - math.log(kind.ratio)))
            reach = 0 if kind.pinned else min(math.ceil(found) + 2, most)
            if kind.ratio < 1:
                growth = _Growth(needed / (reach + 1), _ONE)
        reaches.append(reach)
        growths.append(growth)
    return reaches


class _Growth(NamedTuple):
    """Bound on the logarithm of the exponential moments of a message, at the slopes _SLOPES times its decay."""

    decay: float
    logs: Float64[np.ndarray, " _"]


def _together(parts: list[_Growth]) -> _Growth:
    """Add up the logarithms for an independent sum, whose decay is that of the slowest part."""
    decay = min(part.decay for part in parts)
    logs = [np.interp(_SLOPES * (decay / part.decay), _SLOPES, part.logs) for part in parts]
    return _Growth(decay, np.sum(logs, axis=0))


def work(kinds: tuple[Kind, ...], reaches: list[int]) -> tuple[int, int]:
    """Return the bytes of the tables and the operations that make them, at these reaches."""
    operations = 0
    for kind, reach in zip(kinds, reaches, strict=True):
        if kind.second >= 0:
            one, other = reaches[kind.first], reaches[kind.second]
            leaf = kinds[kind.second].first < 0
            operations += (
                2 * other.bit_length() * (one + reach) if leaf else 2 * (reach + 1) * (2 * min(one, other) + 1)
            )
    return 8 * sum(reach + 1 for reach in reaches), operations + 2 * sum(reaches)


def roundings(kinds: tuple[Kind, ...], reaches: list[int]) -> list[int]:
    """Bound, for every kind, how many roundings it adds between its outcomes' probabilities and the exact law.

    They are those of the powers of its ratio, of the two products with its message as a factor, and of the quotient of
    its convolution by the exact sum of the weights that are drawn from when its sum is split.
    """
    counts = []
    for kind, reach in zip(kinds, reaches, strict=True):
        powers, products, quotient = (reach if kind.ratio < 1 else 0), 2, 0
        if kind.second >= 0 and kinds[kind.second].first < 0:
            leaf = reaches[kind.second]  # once in the recursion, and once in the table whose products are drawn from
            quotient = (leaf + leaf.bit_length() + 3) + (leaf + 1)
        elif kind.second >= 0:
            quotient = (2 * min(reaches[kind.first], reaches[kind.second]) + 1) + 1
        counts.append(powers + products + quotient)
    return counts


def messages(kinds: tuple[Kind, ...], allowance: float, expected: list[int]) -> list[Table]:
    """Compute the tables of all kinds, each as far as it needs to reach; refused where they do not fit.

    Guarantees:
        The mass outside the box is at most the number of nodes times `allowance` of the whole. Entries have the
        relative error of at most the roundings counted in the subtree.
    """
    tables: list[Table] = []
    used = 0
    for kind, guess in zip(kinds, expected, strict=True):
        if kind.first < 0:
            values = _powers(kind.ratio, _leaf_powers(kind.ratio, allowance)[0])
            exponent = 0
        else:
            values, exponent = _message(kind, kinds, tables, guess, allowance)
        used += values.nbytes
        fits("noise", "tables of the tree", used, advice=_ADVICE)
        tables.append(Table(values, exponent, 0))
    counts = roundings(kinds, [table.reach for table in tables])
    return [Table(table.values, table.exponent, count) for table, count in zip(tables, counts, strict=True)]


def _message(
    kind: Kind, kinds: tuple[Kind, ...], tables: list[Table], guess: int, allowance: float
) -> tuple[Float64[np.ndarray, " _"], int]:
    below = [tables[child] for child in (kind.first, kind.second) if child >= 0]
    most = sum(table.reach for table in below)
    length = 0 if kind.pinned else min(guess, most) + 1
    while True:
        if len(below) == 1:
            sums = np.zeros(length + 1)
            sums[: most + 1] = below[0].values[: length + 1]
        elif kinds[kind.second].first < 0:
            sums = with_geometric(below[0].values, kinds[kind.second].ratio, below[1].reach, length)
        else:
            sums = convolved(below[0].values, below[1].values, length)
        values = sums if kind.pinned else sums * _powers(kind.ratio, length)
        reach = 0 if kind.pinned else _reach(values, allowance)
        if reach >= 0:
            break
        length = min(length + length // 4 + 8, most + 1)
    assert values[reach] >= LEAST_ENTRY * values[0], "a message has fallen too far"
    shift = int(np.frexp(values[0])[1])
    return np.ldexp(values[: reach + 1], -shift), shift + sum(table.exponent for table in below)


def _reach(values: Float64[np.ndarray, " _"], allowance: float) -> int:
    """Return the least T beyond which the message holds no more than its allowance times m(0), or -1.

    By log-concavity m(s + T + 1) / m(s) <= m(T + 1) / m(0) =: r for s >= 0, so the entries beyond T add up to at most
    2 (T + 1) r / (1 - r) times m(0). Half of the allowance is left for rounding.
    """
    far = np.arange(1, values.size)
    small = _BIG * far * values[1:] <= allowance * values[0]
    return int(np.argmax(small)) if small.any() else -1


def _leaf_powers(ratio: float, allowance: float) -> tuple[int, list[float]]:
    """Return the reach of a cell's message, a power of two, and q^1, q^2, q^4, ... up to it.

    Each power has at most its exponent less one roundings.
    """
    reach, powers = 1, [ratio]
    while _BIG * (reach + 1) * powers[-1] > allowance:
        reach, powers = 2 * reach, [*powers, powers[-1] * powers[-1]]
    return reach, powers


def _powers(ratio: float, last: int) -> Float64[np.ndarray, " _"]:
    """Return q^0 to q^last; q^s with at most s roundings."""
    powers = np.full(last + 1, ratio)
    powers[0] = 1.0
    return np.multiply.accumulate(powers)


def with_geometric(
    values: Float64[np.ndarray, " _"], ratio: float, reach: int, length: int
) -> Float64[np.ndarray, " _"]:
    """Convolve an even table with ratio^|k|, |k| <= reach, a power of two; return sums 0 to `length`.

    Windows are doubled: with w(n) = sum of q^k x(n - k) over 0 <= k < h, w(n) + q^h w(n - h) is that over 0 <= k < 2 h.
    Each term has k roundings at most from powers and products, one from each addition and three at the end.
    """
    own = values.size - 1
    table = np.concatenate([values[:0:-1], values])
    window = np.zeros(own + length + 1)
    window[: table.size] = table[: window.size]
    step, power = 1, ratio
    while step < reach:
        window[step:] += power * window[: max(0, window.size - step)]
        step, power = 2 * step, power * power
    sums = window[own:].copy()
    start = max(0, reach - own)
    stop = min(length + 1, reach + own + 1)
    if start < stop:
        sums[start:stop] += power * table[start - reach + own : stop - reach + own]
    short = min(length + 1, own)
    sums[:short] += ratio * window[own - short : own][::-1]
    return sums


def convolved(
    one: Float64[np.ndarray, " _"], other: Float64[np.ndarray, " _"], length: int
) -> Float64[np.ndarray, " _"]:
    """Convolve two even tables by plain sums of products; return sums 0 to `length`.

    Each sum has at most as many terms, and so each term as many roundings, as the shorter table from end to end;
    adding zeros rounds nothing. The sums are put into rows of _BLOCK, c(i _BLOCK + j), and the kernel too: rows i and p
    then meet in matrices that hang on i + p alone.
    """
    short, long = sorted((one, other), key=len)
    near, far = short.size - 1, long.size - 1
    rows, parts = -(-(length + 1) // _BLOCK), -(-(2 * near + 1) // _BLOCK)
    kernel = np.zeros((parts, _BLOCK))
    kernel.ravel()[: 2 * near + 1] = np.concatenate([short[:0:-1], short])
    places = np.abs(np.arange(-near, (rows + parts + 1) * _BLOCK - near))
    line = np.where(places <= far, long[np.minimum(places, far)], 0.0)
    windows = np.lib.stride_tricks.sliding_window_view(line, _BLOCK)
    sums = np.zeros((rows, _BLOCK))
    for both in range(rows + parts - 1):
        begin, end = max(0, both - parts + 1), min(rows, both + 1)
        block = np.ascontiguousarray(windows[both * _BLOCK : (both + 1) * _BLOCK])
        sums[begin:end] += kernel[both - end + 1 : both - begin + 1][::-1] @ block
    return sums.ravel()[: length + 1]
