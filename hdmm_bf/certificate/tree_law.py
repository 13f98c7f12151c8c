"""The law of tree-norm noise in floating point: variances of the sets, covariances of the cells.

Whole-number noise z has probabilities proportional to exp(-sum_v a_v |z(v)|), a_v the rate of node v. With messages
from the leaves up, and back down,

    m_v(s) = exp(-a_v |s|) c_v(s),   c_v = m_1 * m_2 (convolution over the children),   m(s) = exp(-a |s|) at a leaf
    o_1(s) = sum_t m_2(t) exp(-a_v |s + t|) o_v(s + t)        what the rest of the tree weighs, given z(child 1) = s

the sum of a set has the law m_v o_v, and E[z_i z_j] follows from conditional means E[z_i | z(v) = s] carried up to
where i and j meet. Direct sums; of long tables, which weights of very different sizes ask for, by FFT, whose error is
relative to the largest entry: enough for moments, and no sampler draws from these. It shares no code with the search.
As the step of the rates goes to zero the noise, scaled, tends to a density; what is wanted there is extrapolated in the
square of the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Bool, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import AnyArray, RealMatrix, RealVector, SquareMatrix

TAIL = 36.0
EDGE = 1e-15
"""Sums are tabulated as far as e^-36 by the slowest decay, and further until every set's law has fallen by this share
at the end: laws are log-concave, so what lies beyond is less."""

MOST_SUMS = 2**15
"""Sums on either side of zero that tables may have."""

_LONG = 2**11
"""Sums on either side of zero beyond which tables are convolved by FFT."""

_FLOOR = 4e-16
"""Share of the largest entry below which what an FFT gives is rounding."""

_STEP, _LARGEST_STEP, _LEVELS = 0.5, 1.25, 4
"""First step in units of the largest rate, the same in units of the longest edge, and how many steps, each by sqrt(2)
smaller: chains, lines and hierarchies were within 1e-7 of what more steps gave."""


@final
@dataclass(frozen=True, eq=False)
class BinaryTree:
    """A forest in which every node but the leaves has two children; helper nodes have no weight.

    Attributes:
        children: for every node its two children, or (-1, -1) for leaves; children come first.
        node: for every node of the original forest its place here.
        roots: places of the roots.
    """

    children: Int64[np.ndarray, "M 2"]
    node: Int64[np.ndarray, " N"]
    roots: Int64[np.ndarray, " R"]


def binary(parents: Int64[np.ndarray, " N"]) -> BinaryTree:
    """Merge the children of every node two at a time, leaves one after the other; an only child is its parent."""
    below: list[list[int]] = [[] for _ in range(parents.size)]
    children: list[tuple[int, int]] = []
    place = np.zeros(parents.size, dtype=np.int64)
    roots = []
    for v, parent in enumerate(parents.tolist()):
        own = below[v]
        if not own:
            children.append((-1, -1))
            current = len(children) - 1
        else:
            current = own[0]
            for other in own[1:]:
                children.append((current, other))
                current = len(children) - 1
            if len(own) == 1:  # a node of its own, so that its weight has a place
                children.append((own[0], -1))
                current = len(children) - 1
        place[v] = current
        if parent >= 0:
            below[parent].append(current)
        else:
            roots.append(current)
    return BinaryTree(np.array(children, dtype=np.int64).reshape(-1, 2), place, np.array(roots, dtype=np.int64))


@final
@dataclass(frozen=True, eq=False)
class TreeLaw:
    """Whole-number noise with given rates.

    Attributes:
        parents: the forest.
        rates: a_v, one per node.
        fixed: which roots have sum zero, one entry per node.
        cells: number of leaves.
    """

    parents: Int64[np.ndarray, " N"]
    rates: RealVector
    fixed: Bool[np.ndarray, " N"]
    cells: int

    @cached_property
    def tree(self) -> BinaryTree:
        """The forest, two children at a time."""
        return binary(self.parents)

    @cached_property
    def _rates(self) -> RealVector:
        rates = np.zeros(len(self.tree.children))
        rates[self.tree.node] = self.rates
        return rates

    def _first_reach(self) -> int:
        """Sums on either side of zero, by the least cost of a unit that goes up through a set and down elsewhere."""
        children, a = self.tree.children.tolist(), self._rates
        down = np.zeros(len(children))
        for v, (one, two) in enumerate(children):
            below = [down[c] for c in (one, two) if c >= 0]
            down[v] = a[v] + (min(below) if below else 0.0)
        up = np.full(len(children), math.inf)
        up[self.tree.roots] = np.where(self.fixed[self.parents < 0], math.inf, 0.0)
        for v in range(len(children) - 1, -1, -1):
            one, two = children[v]
            if one >= 0:
                up[one] = min(a[v] + up[v], down[two] if two >= 0 else math.inf)
            if two >= 0:
                up[two] = min(a[v] + up[v], down[one])
        cost = float((down + up).min())
        return math.ceil((TAIL + math.log(len(children))) / cost) + 4 if cost > 0 else MOST_SUMS + 1

    @property
    def reach(self) -> int:
        """Sums on either side of zero that are tabulated."""
        return self._messages[0][0].size // 2

    @property
    def _sums(self) -> RealVector:
        return _sums(self.reach)

    def _factor(self, v: int, size: int) -> RealVector:
        return np.asarray(np.exp(-self._rates[v] * np.abs(_sums(size // 2))))

    @cached_property
    def _messages(self) -> tuple[list[RealVector], list[RealVector]]:
        """The messages m_v, each scaled to sum 1, and o_v; over so many sums that no law is cut off."""
        reach = self._first_reach()
        while True:
            if reach > MOST_SUMS:
                shown = f"sums up to {reach:.3g}"
                raise fail("tree norm", shown, "are too many to tabulate", "Use a larger epsilon, or larger weights.")
            m, o = self._tabulated(reach)
            laws = (mine * rest for mine, rest in zip(m, o, strict=True))
            if all(law[0] <= EDGE * law.max() for law in laws):
                return m, o
            reach = math.ceil(1.4 * reach)

    def _tabulated(self, reach: int) -> tuple[list[RealVector], list[RealVector]]:
        children = self.tree.children.tolist()
        nodes, size = len(children), 2 * reach + 1
        fits("tree norm", f"{nodes} sets", 3 * nodes * size * 8, advice="Use a larger epsilon, or fewer cells.")
        m: list[RealVector] = []
        for v, (one, two) in enumerate(children):
            c = np.ones(1) if one < 0 else m[one] if two < 0 else self._convolved(m[one], two, m)
            own = self._factor(v, size) * c
            m.append(own / own.sum())
        o: list[RealVector] = [np.empty(0)] * nodes
        for root, is_fixed in zip(self.tree.roots.tolist(), self.fixed[self.parents < 0].tolist(), strict=True):
            o[root] = (_sums(reach) == 0).astype(np.float64) if is_fixed else np.ones(size)
        for v in range(nodes - 1, -1, -1):
            one, two = children[v]
            if one < 0:
                continue
            g = self._factor(v, size) * o[v]
            for child, other in ((one, two), (two, one)):
                if child >= 0:
                    rest = g if other < 0 else self._convolved(g, other, m)
                    o[child] = rest / rest.max()
        return m, o

    def _is_leaf(self, v: int) -> bool:
        return bool(self.tree.children[v, 0] < 0)

    def _convolved(self, rows: AnyArray, v: int, m: list[RealVector]) -> AnyArray:
        """Convolve rows with the message of a node; at a leaf by a recursion from either side."""
        reach = rows.shape[-1] // 2
        if self._is_leaf(v):
            from scipy.signal import lfilter

            q = math.exp(-self._rates[v])
            if q < 1:
                there = lfilter([1.0], [1.0, -q], rows, axis=-1)
                back = lfilter([1.0], [1.0, -q], rows[..., ::-1], axis=-1)[..., ::-1]
                return np.asarray((there + back - rows) * m[v][reach])
            return np.asarray(np.broadcast_to(rows.sum(axis=-1, keepdims=True) * m[v][reach], rows.shape))
        if reach > _LONG:
            return by_fft(rows, m[v])
        if rows.ndim == 1:
            return np.asarray(np.convolve(rows, m[v])[reach:-reach])
        return np.asarray(rows @ self._toeplitz(m[v]))

    def _toeplitz(self, message: RealVector) -> SquareMatrix:
        """M[s, t] = m(t - s): an even message, zero beyond the table."""
        size = message.size
        padded = np.concatenate([np.zeros(size), message, np.zeros(size)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, size)
        return np.asarray(windows[size + size // 2 - np.arange(size)])

    def node_variances(self) -> RealVector:
        """Return the variance of z(v) for every node of the forest."""
        m, o = self._messages
        laws = [m[place] * o[place] for place in self.tree.node.tolist()]
        return np.array([float(law @ self._sums**2 / law.sum()) for law in laws])

    def covariance(self) -> SquareMatrix:
        """Return the covariance of the cells, n x n."""
        m, o = self._messages
        n = self.cells
        fits("tree norm", f"covariance of {n} cells", n * n * 8, advice="Use a workload of sets of the tree.")
        C, s = np.zeros((n, n)), self._sums
        C[np.arange(n), np.arange(n)] = self.node_variances()[:n]
        leaf = {place: cell for cell, place in enumerate(self.tree.node[:n].tolist())}
        means: dict[int, tuple[list[int], RealMatrix]] = {}
        roots = set(self.tree.roots.tolist())
        for v, (one, two) in enumerate(self.tree.children.tolist()):
            if one < 0:
                means[v] = [leaf[v]], s[None].copy()
                continue
            if two < 0:
                means[v] = means.pop(one)
                continue
            (first, mu), (second, nu) = means.pop(one), means.pop(two)
            g = self._factor(v, s.size) * o[v]
            block = self._met(mu * m[one], nu * m[two], g) / float(
                m[one] @ self._hankel_times(g, m[two][:, None])[:, 0]
            )
            C[np.ix_(first, second)] = block
            C[np.ix_(second, first)] = block.T
            if v not in roots:
                c = self._convolved(m[one], two, m)
                c = np.where(c > 0, c, 1.0)
                carried = [self._convolved(mu * m[one], two, m) / c, self._convolved(nu * m[two], one, m) / c]
                means[v] = first + second, np.concatenate(carried)
        return C

    def _met(self, one: RealMatrix, two: RealMatrix, g: RealVector) -> RealMatrix:
        """sum_{s,t} one(s) two(t) g(s + t) for all rows."""
        if len(one) < len(two):
            return self._met(two, one, g).T
        return np.asarray(one @ self._hankel_times(g, two.T))

    def _hankel_times(self, g: RealVector, columns: RealMatrix) -> RealMatrix:
        """sum_t g(s + t) columns(t)."""
        size = g.size
        if size // 2 > _LONG:
            return np.asarray(by_fft(columns.T[:, ::-1], g).T)
        padded = np.concatenate([np.zeros(size // 2), g, np.zeros(size // 2)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, size)  # windows[s, t] = g(s + t)
        return np.asarray(windows @ columns)


def by_fft(rows: AnyArray, message: RealVector) -> AnyArray:
    """Convolve rows with a message by FFT; one row is a message too, and has no entries that are rounding alone."""
    from scipy.signal import fftconvolve

    found = fftconvolve(rows, np.broadcast_to(message, (*rows.shape[:-1], message.size)), mode="same", axes=-1)
    return np.asarray(np.where(found > _FLOOR * found.max(), found, 0.0) if rows.ndim == 1 else found)


def _sums(reach: int) -> RealVector:
    return np.arange(-reach, reach + 1).astype(np.float64)


def limit(rates: RealVector, value: Callable[[float], RealVector]) -> RealVector:
    """Return the limit of step^2 value(step), value being of the law with rates step * rates, as the step goes to 0.

    The rates are for a longest edge of 1. The scaled value is a series in the square of the step, and is extrapolated
    from a fixed number of steps, so that whoever derives it again gets the same.
    """
    step = min(_STEP / float(rates.max(initial=1e-300)), _LARGEST_STEP)
    table: list[RealVector] = []
    for level in range(_LEVELS):
        h = step * 2.0 ** (-level / 2)
        row = [h**2 * value(h)]
        for k, above in enumerate(table):  # Neville's scheme in h^2, which halves from row to row
            row.append(row[-1] + (row[-1] - above) / (2.0 ** (k + 1) - 1))
        table = row
    return np.asarray(table[-1])
