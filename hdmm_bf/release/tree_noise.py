"""Exact noise of tree norms: whole numbers z with probabilities proportional to prod_v q_v^|z(v)|.

z(v) is the sum of z below node v of a forest whose leaves are the cells. A strategy's weights become ratios q_v, dyadic
numbers, so that no policy edge loses more than epsilon; the sampler's own ratios and the number of its roundings state
the loss again. Sums are drawn from the root down, each split by tables of what is below. Nothing here sees data: noise
is drawn first and added by the caller. `docs/explanation/tree_norm_sampler.md` has the proof.

Guarantees:
    The noise of `tree_sampler(strategy, policy, epsilon)` makes whole counts epsilon-private under the policy, with no
    delta, on a real computer: every vector of whole numbers that can occur has its probability to a factor that
    `slack` bounds, and `slack` is part of `loss`.
"""

from __future__ import annotations

import decimal
import math
import os
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal, final

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fail, fits, positive_int
from hdmm_bf._types import EdgeArray
from hdmm_bf.certificate.trees import check_shape, free_nodes, is_public, longest_edge, roots_of
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.release import tree_tables
from hdmm_bf.release.choice import Source, choose
from hdmm_bf.release.tree_tables import Piece, Plan, Table
from hdmm_bf.release.tree_tail import draw_outside
from hdmm_bf.strategies.records import TreeNorm

TAIL = 100
"""The mass outside the tables is at most 2^-100 of the whole; it is drawn as well, but slowly."""

_LEAST_TAIL = 3
"""With at most 1/8 outside, twice the bound covers what is outside, what is further out, and rounding."""

LEAST_RATIO = 2.0**-64
"""Ratios are not smaller: such noise is zero in all but one of 2^63 draws, and less would be hard to tell from none."""

_ROUNDING = Fraction(1, 2**53 - 1)
"""Bounds |log(1 + d)| for the relative error d of one operation in double precision."""

_RESERVE = 4
"""Roundings that are reserved, over those that are expected before tables exist."""

_MOST_OPERATIONS = 2**43
"""Tables that take more than about half an hour are refused."""

_BLOCK = 2**24
"""Sums held at a time when many vectors are drawn."""

_ADVICE = "Use a larger epsilon, or fewer cells."
_DECIMALS = decimal.Context(prec=50, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


@final
@dataclass(frozen=True, eq=False)
class TreeSampler:
    """Noise on the cells whose probabilities are proportional to prod_v q_v^|z(v)|, v over the nodes of a forest.

    Attributes:
        parents: for every node its parent, or -1 for a root; cells first, parents after their children.
        ratios: q_v of every node, exactly the dyadic numbers that they are.
        fixed: roots whose sum is zero, because the totals below them are public.
        roundings: how many roundings the tables may make; more are refused.
        loss: epsilon that was calibrated, `slack` included.
        tail: the mass outside the tables is at most 2^-tail.
        axes: attributes on whose values the noise is, to be drawn afresh for every value of the others, which have no
            edges; None where it is on all cells of the domain.
    """

    parents: Int64[np.ndarray, " N"]
    ratios: Float64[np.ndarray, " N"]
    fixed: Int64[np.ndarray, " f"]
    roundings: int
    loss: float
    tail: int = TAIL
    axes: tuple[int, ...] | None = None

    noise: ClassVar[Literal["norm"]] = "norm"

    def __post_init__(self) -> None:
        for name in ("parents", "ratios", "fixed"):
            own = getattr(self, name).copy()
            own.setflags(write=False)  # what was calibrated is what runs
            object.__setattr__(self, name, own)
        if self.ratios.shape != self.parents.shape or not np.all((self.ratios >= LEAST_RATIO) & (self.ratios <= 1)):
            advice = "Calibrate the noise with tree_sampler."  # above 1 nothing here holds, nor is a loss a sum of logs
            raise fail("noise", "ratios", "must be one a node, from 2^-64 to 1", advice)
        if not _LEAST_TAIL <= self.tail <= TAIL:
            raise fail("noise", f"tail={self.tail}", f"must be {_LEAST_TAIL} to {TAIL}", "Leave it out.")

    def __repr__(self) -> str:
        return f"TreeSampler({self.num_cells} cells, {self.parents.size} nodes, loss {self.loss:.6g})"

    @property
    def num_cells(self) -> int:
        """Number of leaves, which come first."""
        inner = self.parents[self.parents >= 0]
        return int(inner.min()) if inner.size else self.parents.size

    @property
    def rates(self) -> Float64[np.ndarray, " N"]:
        """-log q_v of every node: for predictions, not for privacy."""
        return np.asarray(-np.log(self.ratios))

    @property
    def slack(self) -> float:
        """Epsilon that rounding may cost at most, rounded up."""
        return _float_up(_slack(self.roundings))

    @property
    def memory(self) -> int:
        """Bytes that the tables are expected to take, known before they exist."""
        return tree_tables.work(self.plan.kinds, self._expected)[0]

    @property
    def operations(self) -> int:
        """Operations that the tables are expected to take, known before they exist."""
        return tree_tables.work(self.plan.kinds, self._expected)[1]

    @cached_property
    def plan(self) -> Plan:
        """The forest in the pieces that are drawn."""
        return tree_tables.plan(self.parents, self.ratios, self.fixed)

    @cached_property
    def _expected(self) -> list[int]:
        return tree_tables.predicted(self.plan.kinds, self.plan.allowance(self.tail))

    @cached_property
    def tables(self) -> list[Table]:
        """The messages of all kinds of nodes; computed when first asked for."""
        _check_work(self)
        return tree_tables.messages(self.plan.kinds, self.plan.allowance(self.tail), self._expected)

    @property
    def counted(self) -> int:
        """Roundings that the tables made, in all nodes together."""
        return self.plan.roundings(table.roundings for table in self.tables)

    def draw(self, count: int = 1, *, source: Source = os.urandom) -> Int64[np.ndarray, "count n"]:
        """Draw independent vectors of noise; `source` gives random bytes, and is only for tests.

        Guarantees:
            A vector z whose sums below the fixed roots are zero has probability proportional to prod_v q_v^|z(v)|, up
            to a factor between exp(-slack / 2) and exp(slack / 2); any other has probability zero.
        """
        positive_int("noise", "count", count, advice="Draw at least one vector.")
        _check_roundings(self)
        fits("noise", f"{count} vectors", 8 * count * self.num_cells, advice="Draw fewer at a time.")
        block = max(1, _BLOCK // self.parents.size)
        sizes = [min(block, count - start) for start in range(0, count, block)]
        return np.concatenate([self._draw(size, source) for size in sizes])

    def _draw(self, count: int, source: Source) -> Int64[np.ndarray, "count n"]:
        sums = np.zeros((self.parents.size, count), dtype=np.int64)
        taken = np.zeros((self.parents.size, count), dtype=np.int64)  # by children other than a free one
        for piece in self.plan.pieces:
            drawn = _draw_piece(piece, self, count, source)
            for node, values in zip(piece.nodes, drawn, strict=True):
                if node.owner >= 0:
                    sums[node.owner] = values
            root = int(self.parents[piece.nodes[-1].owner])
            if root >= 0:
                taken[root] += drawn[-1]
        for free in self.plan.free:
            parent = int(self.parents[free])
            sums[free] = sums[parent] - taken[parent]
        return np.ascontiguousarray(sums[: self.num_cells].T)


def tree_sampler(strategy: TreeNorm, policy: Policy, epsilon: float) -> TreeSampler:
    """Return the least noise of a tree norm that makes whole counts epsilon-private under the policy.

    Guarantees:
        `loss` is at most epsilon, in exact arithmetic: the sum of enclosed logarithms of the ratios along the longest
        policy edge, and what rounding may cost.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise fail("noise", f"epsilon={epsilon}", "must be positive and finite", "Give for example epsilon=1.")
    parents, integers = strategy.parents, strategy.integers
    check_shape(parents, integers, policy)
    fixed = np.unique(roots_of(parents)[: policy.num_cells][is_public(policy)])
    length, _ = longest_edge(parents, integers, policy.edges)
    spent = Fraction(epsilon)
    ratios = _ratios(integers, length, spent)
    free_nodes(parents, (ratios < 1).astype(np.int64), policy)  # a weight that rounds to none holds nothing
    first = TreeSampler(parents, ratios, fixed, 0, epsilon)
    _check_work(first)
    expected = tree_tables.roundings(first.plan.kinds, first._expected)
    roundings = _RESERVE * first.plan.roundings(expected)
    if 2 * _slack(roundings) > spent:
        raise fail("noise", f"epsilon={epsilon}", f"rounding alone may cost {float(_slack(roundings)):.3g}", _ADVICE)
    excess = _slack(roundings)
    while excess > 0:
        spent -= excess + Fraction(epsilon) / 2**48  # a step that moves the ratios, however small the excess
        ratios = _ratios(integers, length, spent)
        loss = _path_loss(parents, ratios, policy.edges) + _slack(roundings)
        excess = loss - Fraction(epsilon)
    return TreeSampler(parents, ratios, fixed, roundings, _float_up(loss))


def privacy_loss(sampler: TreeSampler, policy_edges: EdgeArray) -> float:
    """Return what noise of a sampler loses at most on any of the edges, from its ratios and the tables it draws with.

    Guarantees:
        For every edge p and every z, P(z) <= exp(loss) P(z + p) and P(z) <= exp(loss) P(z - p). It is infinite where
        an edge changes a total that the sampler keeps, or ends in a cell that it has no noise for.
    """
    if np.max(policy_edges, initial=BOTTOM) >= sampler.num_cells:
        return math.inf
    roots = np.append(roots_of(sampler.parents), BOTTOM)
    ends = roots[np.where(policy_edges == BOTTOM, sampler.parents.size, policy_edges)].reshape(-1, 2)
    apart = ends[:, 0] != ends[:, 1]
    if np.isin(ends[apart], sampler.fixed).any():
        return math.inf
    _check_roundings(sampler)
    return _float_up(_path_loss(sampler.parents, sampler.ratios, policy_edges) + _slack(sampler.counted))


def _check_work(sampler: TreeSampler) -> None:
    """Refuse tables that would not fit or would take too long, before there is one."""
    fits("noise", "tables of the tree", sampler.memory, advice=_ADVICE)
    if sampler.operations > _MOST_OPERATIONS:
        problem = f"would take {float(sampler.operations):.1e} operations, more than {float(_MOST_OPERATIONS):.1e}"
        raise fail("noise", "tables of the tree", problem, _ADVICE)


def _check_roundings(sampler: TreeSampler) -> None:
    """Refuse tables with more roundings than were reserved when the noise was calibrated."""
    if sampler.counted > sampler.roundings:
        problem = f"make {sampler.counted} roundings, more than {sampler.roundings}"
        raise fail("noise", "tables of the tree", problem, "Calibrate the noise again with tree_sampler.")


def _slack(roundings: int) -> Fraction:
    """Bound the logarithm of the quotient of two probabilities that have that many roundings each, and one more.

    The one is for outcomes that `tree_tail` draws.
    """
    return 2 * (roundings + 1) * _ROUNDING


def _ratios(integers: Int64[np.ndarray, " N"], length: int, epsilon: Fraction) -> Float64[np.ndarray, " N"]:
    """Return floats q_v >= exp(-epsilon w_v / length), the next ones up."""
    distinct, places = np.unique(integers, return_inverse=True)
    with decimal.localcontext(_DECIMALS):
        scale = Decimal(epsilon.numerator) / Decimal(epsilon.denominator) / max(1, length)
        least = Decimal(LEAST_RATIO)  # as fractions, much smaller ones would have millions of digits
        found = [_float_up(Fraction(max((-scale * weight).exp(), least))) for weight in distinct.tolist()]
    return np.asarray(np.array(found)[places])


def _path_loss(parents: Int64[np.ndarray, " N"], ratios: Float64[np.ndarray, " N"], edges: EdgeArray) -> Fraction:
    """Bound the sum of -log q_v along the longest edge, with logarithms that are enclosed from above.

    Decimal logarithms are correctly rounded; they are moved up by a relative 1e-40 before they are rounded up to the
    grid of the integers, which is as fine as 64 bits allow.
    """
    distinct, places = np.unique(ratios, return_inverse=True)
    with decimal.localcontext(_DECIMALS):
        logs = [-Decimal(ratio).ln() * (1 + Decimal("1e-40")) for ratio in distinct.tolist()]
        bits = 61 - max(1, math.ceil(max(logs)) * parents.size).bit_length()
        lengths = [math.ceil(Fraction(log) * 2**bits) for log in logs]
    longest, _ = longest_edge(parents, np.array(lengths, dtype=np.int64)[places], edges)
    return Fraction(longest, 2**bits)


def _float_up(number: Fraction) -> float:
    """Return the least float that is at least a number."""
    near = float(number)
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def _draw_piece(piece: Piece, sampler: TreeSampler, count: int, source: Source) -> Int64[np.ndarray, "k count"]:
    """Draw the sums of all nodes of a tree, again and again until every draw stands for something."""
    tables, top = sampler.tables, sampler.tables[piece.nodes[-1].kind]
    sums = np.zeros((len(piece.nodes), count), dtype=np.int64)
    weights = top.both
    outside = math.ldexp(float(weights.sum()), 1 - sampler.tail)  # twice the bound: room for rounding
    pending = np.arange(count)
    while pending.size:
        found = choose(np.append(weights, outside), pending.size, source)
        inside, beyond = pending[found < weights.size], pending[found == weights.size]
        split = np.zeros((len(piece.nodes), inside.size), dtype=np.int64)
        split[-1] = found[found < weights.size] - top.reach
        _split(piece, tables, split, source)
        sums[:, inside] = split
        again = []
        for row in beyond.tolist():
            reaches = [table.reach for table in tables]
            drawn = draw_outside(
                sampler.plan.kinds, piece, reaches, top.exponent, Fraction(outside), sampler.tail, source
            )
            if drawn is None:
                again.append(row)
            else:
                sums[:, row] = drawn
        pending = np.array(again, dtype=np.int64)
    return sums


def _split(piece: Piece, tables: list[Table], sums: Int64[np.ndarray, "k rows"], source: Source) -> None:
    """Split the sums of all nodes, parents first, into those of their children."""
    for place in range(len(piece.nodes) - 1, -1, -1) if sums.size else ():
        node = piece.nodes[place]
        if node.second >= 0:
            first, second = tables[piece.nodes[node.first].kind], tables[piece.nodes[node.second].kind]
            sums[node.first] = _shares(first, second, sums[place], source)
            sums[node.second] = sums[place] - sums[node.first]
        elif node.first >= 0:
            sums[node.first] = sums[place]


def _shares(
    first: Table, second: Table, totals: Int64[np.ndarray, " rows"], source: Source
) -> Int64[np.ndarray, " rows"]:
    """Draw what the first of two children has of each total: k with weight m_1(k) m_2(total - k)."""
    one, other = first.both, second.both
    shares = np.empty_like(totals)
    order = np.argsort(totals, kind="stable")
    values, starts = np.unique(totals[order], return_index=True)
    for total, rows in zip(values.tolist(), np.split(order, starts[1:]), strict=True):
        low, high = max(-first.reach, total - second.reach), min(first.reach, total + second.reach)
        weights = (
            one[low + first.reach : high + first.reach + 1]
            * (
                other[low - total + second.reach : high - total + second.reach + 1]  # the message is even
            )
        )
        shares[rows] = low + choose(weights, rows.size, source)
    return shares
