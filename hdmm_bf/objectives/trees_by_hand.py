"""The expected error of tree norms and its gradient written out, in NumPy: what searches on CPUs evaluate.

Messages live on a grid of sums 0, h, ..., M h; m and q are even in s, linear moments odd, so half a line is enough and
their Fourier transforms are real: cosines for even ones, sines for odd ones. Both are products with small fixed
matrices, long enough that a convolution of two messages does not wrap around.

The sum h * sum_k f(k h) g(s - k h) errs by O(h^2) because messages have a kink exp(-w |s|) at 0. Multiplying the value
at 0 by kappa(w h), kappa(t) = 2 / t - 2 / (exp(t) - 1) = 1 - t / 6 + ..., which makes it exact for exp(-w |s|), cancels
the kinks of both factors at once and leaves O(h^4).

The gradient runs through the same merges backwards. Nothing is compiled, so every tree starts at once.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector
from hdmm_bf.objectives.tree_plans import Plan


@final
@dataclass(frozen=True)
class Grid:
    """How finely sums are resolved; relative errors measured on chains and hierarchies of 64 to 1024 cells.

    Attributes:
        tail: how many exponents the probability has fallen by where the grid ends: 18 is 1e-7 of the error.
        spread: standard deviations of the widest sum that it must hold.
        step: times twice the root mean square of the weights: 0.6 is 5e-4 of the error, 0.3 is 4e-5.
        least, most: points.
    """

    tail: float = 18.0
    spread: float = 5.0
    step: float = 0.6
    least: int = 16
    most: int = 512

    def of(self, plan: Plan, weights: RealVector) -> tuple[float, int]:
        """Return the largest sum and the number of points; infinite where the law is improper."""
        radius = reach(plan, weights, self)
        if not math.isfinite(radius):
            return math.inf, self.least
        w = plan.weights(weights)[plan.group >= 0]
        count = math.ceil(2 * radius * math.sqrt(float((w**2).mean())) / self.step / 8) * 8
        return radius, min(max(count, self.least), self.most)


SEARCH = Grid()
FINE = Grid(tail=22.0, spread=6.5, step=0.35, least=24, most=512)


def reach(plan: Plan, weights: RealVector, grid: Grid) -> float:
    """Return the largest sum that the messages must hold.

    A bump of height H costs H times the shortest path from cell to cell (or through a root). Sums of many cells are
    wider than that: their variance is estimated as if all were normal, exp(-w |s|) standing for variance 2 / w^2.
    """
    w = np.maximum(plan.weights(weights), 0.0)
    down, precision, own = w.copy(), w**2 / 2, w**2 / 2
    shortest = math.inf
    for level in plan.levels[1:]:
        a, b = plan.left[level], plan.right[level]
        shortest = min(shortest, float((down[a] + down[b]).min()))
        down[level] += np.minimum(down[a], down[b])
        precision[level] += _in_series(precision[a], precision[b])
    shortest = min(shortest, float(down[plan.roots[~plan.public]].min(initial=math.inf)))
    if not shortest > 0:
        return math.inf
    outside = np.zeros(w.size)
    outside[plan.roots[plan.public]] = math.inf
    for level in plan.levels[:0:-1]:
        above = outside[level] + own[level]
        for side, other in ((plan.left, plan.right), (plan.right, plan.left)):
            outside[side[level]] = _in_series(above, precision[other[level]])
    least = float((precision + outside).min())
    return max(grid.tail / shortest, grid.spread / math.sqrt(least))


def _in_series(p: AnyArray, q: AnyArray) -> AnyArray:
    """Return the precision of a sum of two independent numbers."""
    with np.errstate(divide="ignore"):
        return np.asarray(1 / (1 / p + 1 / q))


class Transforms(NamedTuple):
    """Cosines and sines there and back: (M + 1) x F and F x (M + 1)."""

    even: RealMatrix
    odd: RealMatrix
    even_back: RealMatrix
    odd_back: RealMatrix


@functools.lru_cache(maxsize=32)
def transforms(points: int) -> Transforms:
    """Return the transforms for sums 0 to `points`: period 3 M + 2, so that what wraps around falls beyond M."""
    period = 3 * points + 2
    k, f = np.arange(points + 1), np.arange(period // 2 + 1)
    angles = 2 * np.pi * np.outer(k, f) / period
    sides = np.where(k == 0, 1.0, 2.0)[:, None]
    both = np.where((f == 0) | (2 * f == period), 1.0, 2.0)[:, None] / period
    cosine, sine = np.cos(angles), np.sin(angles)
    back = np.ascontiguousarray(both * cosine.T), np.ascontiguousarray(both * sine.T)
    return Transforms(sides * cosine, 2 * sine, *back)


def kink(t: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return kappa(t) = 2 / t - 2 / (exp(t) - 1) and its derivative."""
    small = t < 1e-3
    safe = np.where(small, 1.0, t)
    grown = np.expm1(np.minimum(safe, 300.0))
    value = np.where(small, 1 - t / 6, 2 / safe - 2 / grown)
    slope = np.where(small, -1 / 6 + 0 * t, -2 / safe**2 + 2 * (grown + 1) / grown**2)
    return value, slope


class _Hats(NamedTuple):
    """Transforms of both children of every merge of a level."""

    even_a: AnyArray
    even_b: AnyArray
    odd_a: AnyArray
    odd_b: AnyArray


@final
class Messages:
    """All messages of a tree norm at given weights, kept for the way back.

    Attributes:
        even: m and q of every slot, with the value at 0 times kappa.
        odd: s m and the linear moments of every slot.
        error: E[z^T V z] / 2 at rate 1.
    """

    def __init__(self, plan: Plan, weights: RealVector, radius: float, points: int) -> None:
        self.plan, self.tables = plan, transforms(points)
        self.h = radius / points
        self.s = self.h * np.arange(points + 1)
        self.w = plan.weights(weights)
        self.kappa, self.kappa_slope = kink(self.w * self.h)
        self.fall = np.exp(-self.w[:, None] * self.s)
        moments = plan.linear.shape[1]
        self.even = np.empty((self.w.size, 2, points + 1))
        self.odd = np.empty((self.w.size, moments + 1, points + 1))
        self.at_zero = np.empty((self.w.size, 2))
        self.scale = np.ones(self.w.size)
        self.hats: list[_Hats] = []
        self._begin(plan.levels[0])
        for level in plan.levels[1:]:
            self._merge(level)
        self.error = self._total() / 2

    def _begin(self, leaves: IndexArray) -> None:
        ones = np.ones((leaves.size, 1, self.s.size))
        self._store(leaves, np.concatenate([ones, 0 * ones], axis=1), self.plan.linear[leaves][:, :, None] * self.s)

    def _store(self, level: IndexArray, even: AnyArray, odd: AnyArray) -> None:
        """Add what the nodes themselves add: charges, weights, and the kink."""
        even[:, 1] += self.plan.charges[level][:, None] * self.s**2 * even[:, 0]
        fall = self.fall[level][:, None]
        self.at_zero[level] = even[:, :, 0]
        even *= fall
        self.odd[level, 0], self.odd[level, 1:] = self.s * even[:, 0], odd * fall
        even[:, :, 0] *= self.kappa[level][:, None]
        self.even[level] = even

    def _merge(self, level: IndexArray) -> None:
        plan, tables = self.plan, self.tables
        a, b = plan.left[level], plan.right[level]
        hats = _Hats(
            self.even[a] @ tables.even, self.even[b] @ tables.even, self.odd[a] @ tables.odd, self.odd[b] @ tables.odd
        )
        self.hats.append(hats)
        even = hats.even_a[:, :1] * hats.even_b
        even[:, 1] += hats.even_a[:, 1] * hats.even_b[:, 0] - 2 * (hats.odd_a * (plan.form @ hats.odd_b)).sum(axis=1)
        odd = hats.odd_a[:, 1:] * hats.even_b[:, :1] + hats.even_a[:, :1] * hats.odd_b[:, 1:]
        even, odd = even @ tables.even_back, odd @ tables.odd_back
        scale = 1 / even[:, 0, 0]  # ratios are all that counts
        even *= scale[:, None, None]
        odd *= scale[:, None, None]
        self.scale[level] = scale
        self._store(level, even, odd)

    def _total(self) -> float:
        """Add E[z^T V z] over the roots: at sum 0 where the total is public, over all sums elsewhere."""
        plan, total = self.plan, 0.0
        for root, public, times in zip(plan.roots.tolist(), plan.public, plan.times, strict=True):
            m, q = self.at_zero[root] if public else self._integral(int(root))
            total += times * q / m
        return float(total)

    def _integral(self, root: int) -> AnyArray:
        return np.asarray(2 * self.even[root].sum(axis=1) - self.even[root, :, 0])

    def slope(self) -> RealVector:
        """Return the derivatives of `error` by the weights."""
        plan = self.plan
        even, odd = np.zeros_like(self.even), np.zeros_like(self.odd)
        at_zero = np.zeros_like(self.at_zero)
        for root, public, times in zip(plan.roots.tolist(), plan.public, plan.times, strict=True):
            m, q = self.at_zero[root] if public else self._integral(int(root))
            by = np.array([-q / m**2, 1 / m]) * times / 2
            if public:
                at_zero[root] = by
            else:
                even[root] += 2 * by[:, None]
                even[root, :, 0] -= by
        found = np.zeros(plan.num_weights + 1)
        shared = np.unique(np.concatenate([plan.left, plan.right])).size < 2 * (self.w.size - plan.levels[0].size) + 1
        for level, hats in zip(plan.levels[:0:-1], self.hats[::-1], strict=True):
            own_even, own_odd = self._unstore(level, even, odd, at_zero, found)
            for slots, into_even, into_odd in self._unmerge(level, hats, own_even, own_odd):
                if shared:
                    np.add.at(even, slots, into_even)
                    np.add.at(odd, slots, into_odd)
                else:
                    even[slots], odd[slots] = into_even, into_odd
        self._unstore(plan.levels[0], even, odd, at_zero, found)
        return found[:-1]

    def _unstore(
        self, level: IndexArray, even: AnyArray, odd: AnyArray, at_zero: AnyArray, found: RealVector
    ) -> tuple[AnyArray, AnyArray]:
        """Go back through `_store`; add the derivatives by the weights to `found`."""
        by_even, by_odd = even[level], odd[level]
        by_even[:, 0] += self.s * by_odd[:, 0]
        kink = (by_even[:, :, 0] * self.at_zero[level]).sum(axis=1) * self.kappa_slope[level] * self.h
        falling = (by_even * self.even[level]).sum(axis=1) + (by_odd[:, 1:] * self.odd[level, 1:]).sum(axis=1)
        np.add.at(found, self.plan.group[level], kink - falling @ self.s)
        by_even[:, :, 0] *= self.kappa[level][:, None]
        fall = self.fall[level][:, None]
        by_even *= fall
        by_even[:, :, 0] += at_zero[level]
        by_even[:, 0] += self.plan.charges[level][:, None] * self.s**2 * by_even[:, 1]
        return by_even, by_odd[:, 1:] * fall

    def _unmerge(
        self, level: IndexArray, hats: _Hats, by_even: AnyArray, by_odd: AnyArray
    ) -> list[tuple[IndexArray, AnyArray, AnyArray]]:
        """Go back through `_merge`: what each child gets."""
        tables, form, scale = self.tables, self.plan.form, self.scale[level][:, None, None]
        even, odd = (scale * by_even) @ tables.even_back.T, (scale * by_odd) @ tables.odd_back.T
        sides = (
            (self.plan.left, hats.even_b, hats.odd_b, form @ hats.odd_b),
            (self.plan.right, hats.even_a, hats.odd_a, form.T @ hats.odd_a),
        )
        found = []
        for slots, other_even, other_odd, met in sides:
            into_even = even[:, 1:] * other_even[:, ::-1]
            into_even[:, 0] += even[:, 0] * other_even[:, 0] + (odd * other_odd[:, 1:]).sum(axis=1)
            into_odd = -2 * even[:, 1:] * met
            into_odd[:, 1:] += odd * other_even[:, :1]
            found.append((slots[level], into_even @ tables.even.T, into_odd @ tables.odd.T))
        return found


def expected_error(plan: Plan, weights: RealVector, *, grid: Grid = SEARCH) -> float:
    """Return E[z^T V z] / 2 at rate 1, infinite where the law is improper."""
    if plan.roots.size == 0:
        return 0.0
    radius, points = grid.of(plan, weights)
    return Messages(plan, weights, radius, points).error if math.isfinite(radius) else math.inf


def fine_error(plan: Plan, weights: RealVector) -> float:
    """Return E[z^T V z] / 2 at rate 1 to about 1e-6: two steps h and h / 2, errors of order h^4 taken out."""
    if plan.roots.size == 0:
        return 0.0
    radius, points = FINE.of(plan, weights)
    if not math.isfinite(radius):
        return math.inf
    coarse, fine = (Messages(plan, weights, radius, count).error for count in (points, 2 * points))
    return (16 * fine - coarse) / 15
