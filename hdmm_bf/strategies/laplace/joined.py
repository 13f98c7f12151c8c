"""Rows over several attributes at once, for the moves along one of them: a p-identity over a product.

    A = [I; Theta] with columns scaled to L1 norm b: then a move towards BOTTOM loses b, any other at most 2 b
    unit error = tr(V Y),    Y = (A^T A)^-1 given the totals that the moves leave alone

Products of rows spend the budget of a cell as a product over the attributes. Rows that are boxes, long along one
attribute and short along another, spend it better: 20 % less error for all ranges of 24 x 24 cells. Totals are known
exactly: rows are projected along them (`Totals`). The rows that descents end at are bumps side by side, so they start
from such bumps, in a race of shapes, and go on from the best, shaken, with random boxes; then it is shaken again.
Attributes whose queries hardly overlap are left out, where every value then has noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, final

import numpy as np
import scipy.sparse as sp

from hdmm_bf import _linalg as la
from hdmm_bf._types import AnyArray, RealMatrix, RealVector, SparseMatrix
from hdmm_bf.matrix import Kronecker, Stack, Weighted
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.descent import descending
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch

if TYPE_CHECKING:
    from hdmm_bf.objectives.by_hand import Acting

_OVERLAP = 3.0
"""Sum of the entries of V over that of its diagonal from which on an attribute is joined: 1 for counts, 1.5 for all
ranges of two values."""

_MEMORY = 10
_HELD = 56
"""Corrections that a descent remembers, and numbers for every entry of its rows that a search holds at once."""


@final
@dataclass(frozen=True)
class Schedule:
    """How much is tried; tuned on all ranges of 24 x 20 to 100 x 50 cells.

    Attributes:
        most_cells: values of the joined attributes together.
        cells_a_bump: values for each bump of the starts that race.
        longer: how much longer they are along the other attributes than along the hidden one.
        bump: their height.
        cells_a_row: for every start from random boxes, values for each of its rows.
        parts: steps of the parts of a descent.
        height: of the boxes to start from.
        rough: of what is added everywhere.
        least_gain: share of the error that a part must gain for the descent to go on.
        shake: standard deviation of the logarithms of entries by which the best is shaken.
        shaken: of what is then added everywhere.
        worth: share of the error that a shake must gain for another one.
    """

    most_cells: int = 8192
    cells_a_bump: tuple[int, ...] = (24, 50)
    longer: tuple[float, ...] = (1.0, 4.0, 12.0)
    bump: float = 0.3
    cells_a_row: tuple[int, ...] = (24,)
    fewest_rows: int = 8
    parts: tuple[int, ...] = (20,) * 20
    height: float = 0.1
    rough: float = 0.003
    least_gain: float = 2e-4
    shake: float = 0.5
    shaken: float = 0.01
    worth: float = 2e-4


_SCHEDULE = Schedule()


def joined_axes(product: ProductProblem, attribute: int, schedule: Schedule = _SCHEDULE) -> tuple[int, ...]:
    """Return the attributes to join for the moves along one of them; it alone where there is nothing to gain."""
    overlaps = {}
    for i, n in enumerate(product.sizes):
        V = np.zeros((n, n))
        for term in product.terms:
            others = [float(np.trace(g)) for k, g in enumerate(term.grams) if k != i]
            V += term.weight**2 * math.prod(others) * term.grams[i]
        overlaps[i] = float(np.abs(V).sum() / np.trace(V)) if np.trace(V) > 0 else 0.0
    wanted = sorted((i for i in overlaps if i != attribute and overlaps[i] >= _OVERLAP), key=lambda i: -overlaps[i])
    chosen, cells = [attribute], product.sizes[attribute]
    for i in wanted:
        if cells * product.sizes[i] <= schedule.most_cells:
            chosen.append(i)
            cells *= product.sizes[i]
    return tuple(sorted(chosen))


def most_entries(product: ProductProblem, schedule: Schedule = _SCHEDULE) -> int:
    """Return how many numbers the largest search of joined rows holds at once, predicted; 0 where none is made."""
    found = [0]
    for attribute, edges in enumerate(product.edges):
        axes = joined_axes(product, attribute, schedule) if len(edges) else ()
        n = math.prod(product.sizes[i] for i in axes)
        if len(axes) > 1 and n <= schedule.most_cells:
            found.append(_HELD * n * max(schedule.fewest_rows, n // min(schedule.cells_a_row + schedule.cells_a_bump)))
    return max(found)


@final
class Totals:
    """Disjoint sets of values whose sums are known, S x = 0, and what that tells about V."""

    def __init__(self, S: SparseMatrix, V: Acting) -> None:
        self.S = S
        i, j = (S.T @ S).nonzero()
        self._within = sp.csr_array((V.entries(i, j), (i, j)), shape=(S.shape[1],) * 2)

    def directions(self, c: RealVector) -> RealVector:
        """Return for every value its entry in the unit vector along 1 / c over its set; zero where nothing is known."""
        if not self.S.shape[0]:
            return np.zeros_like(c)
        sizes = self.S.T @ np.sqrt(self.S @ c**-2)
        return np.asarray(np.divide(1 / c, sizes, out=np.zeros_like(c), where=sizes > 0))

    def projected(self, rows: RealMatrix, u: RealVector) -> RealMatrix:
        """Return rows without what they have along the unit vectors u: rows Pi."""
        if not self.S.shape[0]:
            return rows
        return np.asarray(rows - (self.S.T @ (self.S @ (rows * u).T)).T * u)

    def known(self, c: RealVector, u: RealVector) -> RealVector:
        """Return the diagonal of V' - Pi V' Pi for V' = V / c c^T."""
        through = (self._within @ (u / c)) / c
        return np.asarray(2 * u * through - u**2 * (self.S.T @ (self.S @ (u * through))))


@final
class Joined:
    """The error of rows over joined attributes, and its gradient."""

    @la.in_float64
    def __init__(self, product: ProductProblem, attribute: int, axes: tuple[int, ...]) -> None:
        from hdmm_bf.objectives import by_hand, grams

        self.product, self.attribute, self.axes = product, attribute, axes
        self.shape = tuple(product.sizes[i] for i in axes)
        parts = []
        for term in product.terms:
            apart = math.prod(float(np.trace(V)) for i, V in enumerate(term.grams) if i not in axes)
            weight = np.array([term.weight * math.sqrt(apart)])
            parts.append(Weighted(weight, Kronecker(tuple(term.factors[i] for i in axes))))
        V = by_hand.acting(grams.gram_of(Stack(tuple(parts))))
        assert V is not None, "queries over attributes act in NumPy"
        self.V: Acting = V
        every = np.arange(math.prod(self.shape))
        self.diagonal = np.asarray(V.entries(every, every), dtype=np.float64)
        self.totals = Totals(kept_totals(product, axes, (attribute,))[0], V)
        edges = product.edges[attribute]
        self.ends = 1 if np.all(edges[:, 1] == BOTTOM) else 2
        """Cells that an edge changes at most."""

    def error(self, Theta: RealMatrix) -> tuple[float, RealMatrix]:
        """Return the unit error at a loss of 1 and its gradient; infinite where it cannot be had.

        With x c for x the strategy is [I; Theta], V is V / c c^T, and x c is known to lie where Pi projects to:

            t = tr(V Pi) - tr(U V U^T),    U = C^-1 Theta Pi,  C C^T = I + Theta Pi Theta^T
            dt/dTheta = 2 C^-T (U V U^T U - U V Pi)
        """
        from hdmm_bf.objectives.by_hand import inverse_root

        c = 1 / (self.ends * (1 + Theta.sum(axis=0)))
        u = self.totals.directions(c)
        told = self.totals.projected(Theta, u)
        inner = told @ told.T
        inner.flat[:: len(inner) + 1] += 1
        C_inverse = inverse_root(inner)
        if C_inverse is None:  # a step of a line search that is far too long
            return math.inf, np.zeros_like(Theta)
        U = C_inverse @ told
        Y = self.totals.projected(self.V.rows(U / c) / c, u)
        H = Y @ U.T
        own = self.diagonal / c**2 - self.totals.known(c, u)
        t = float(own.sum() - np.trace(H))
        if not 0 < t < math.inf:
            return math.inf, np.zeros_like(Theta)
        slope: RealMatrix = 2 * (C_inverse.T @ (H @ U - Y))
        left = own - np.einsum("ki,ki->i", U, Y) - np.einsum("ki,ki->i", Theta - told, slope) / 2
        return t, slope + 2 * self.ends * c * left

    def value_and_slope(self, flat: AnyArray) -> tuple[float, AnyArray]:
        """Return the logarithm of the error, for descents."""
        t, slope = self.error(flat.reshape(-1, self.diagonal.size))
        return (math.log(t), slope.ravel() / t) if math.isfinite(t) else (1e30, np.zeros_like(flat))

    def sketch(self, Theta: RealMatrix) -> JoinedSketch:
        """Return the rows at a loss of at most 1."""
        c = 1 / (self.ends * (1 + Theta.sum(axis=0)))
        outside = tuple(i for i in range(len(self.product.sizes)) if i not in self.axes)
        return JoinedSketch(self.axes, (self.attribute,), c, ((outside, Theta * c),))


def boxes(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> RealMatrix:
    """Return indicators of random boxes, of any width from two values on along every attribute."""
    found = np.zeros((count, *shape))
    for row in found:
        widths = [int(rng.integers(min(2, n), n + 1)) for n in shape]
        starts = [int(rng.integers(0, n - width + 1)) for n, width in zip(shape, widths, strict=True)]
        row[tuple(slice(s, s + width) for s, width in zip(starts, widths, strict=True))] = 1.0
    return found.reshape(count, -1)


def bumps(shape: tuple[int, ...], widths: RealVector) -> RealMatrix:
    """Return bumps of about the given widths side by side, each row of them shifted by half a bump against the next."""
    counts = [max(1, round(n / width)) for n, width in zip(shape, widths.tolist(), strict=True)]
    found = []
    for place in np.ndindex(counts[0] + 1, *counts[1:]):
        shift = 0.5 if sum(place[1:]) % 2 else 0.0
        if place[0] == counts[0] and not shift:
            continue
        middles = [place[0] + 0.5 - shift, *(k + 0.5 for k in place[1:])]
        along = [
            np.maximum(0.0, 1 - np.abs((np.arange(n) + 0.5) * count / n - middle))
            for n, count, middle in zip(shape, counts, middles, strict=True)
        ]
        found.append(reduce(np.multiply.outer, along).ravel())
    return np.array(found)


def steps(
    product: ProductProblem, attribute: int, *, seed: int, schedule: Schedule = _SCHEDULE
) -> Iterator[tuple[JoinedSketch, float]]:
    """Yield rows for the moves along one attribute and their error, better and better, from one start after the other.

    Guarantees:
        Every edge of the attribute loses at most 1.
    """
    axes = joined_axes(product, attribute, schedule)
    n = math.prod(product.sizes[i] for i in axes)
    if len(axes) < 2 or n > schedule.most_cells:
        return
    rng, problem = np.random.default_rng(seed), Joined(product, attribute, axes)
    best, least = np.zeros((1, n)), math.inf
    for Theta, error in _tried(problem, rng, schedule):
        if error < least:
            best, least = Theta, error
            yield problem.sketch(Theta), error
    before = math.inf
    while least < before * (1 - schedule.worth) and not limits.ending():
        before = least
        for Theta, error in _followed(problem, _shaken(best, rng, schedule), schedule):
            if error < least:
                best, least = Theta, error
                yield problem.sketch(Theta), error


def _shaken(Theta: RealMatrix, rng: np.random.Generator, schedule: Schedule) -> RealMatrix:
    """Return rows near some: every entry times a random number, and a little more everywhere."""
    return Theta * np.exp(rng.normal(0, schedule.shake, Theta.shape)) + schedule.shaken * rng.random(Theta.shape)


def _tried(problem: Joined, rng: np.random.Generator, schedule: Schedule) -> Iterator[tuple[RealMatrix, float]]:
    """Yield where descents are: a race of bumps, the worse half left out after a part; then the best, with boxes."""
    n = problem.diagonal.size
    raced = [B + schedule.rough * rng.random(B.shape) for B in _shapes(problem, schedule)]
    while len(raced) > 1:  # one descent at a time: what each remembers of its steps takes more than its rows
        parts = (next(_descent(problem, start, schedule), None) for start in raced)
        reached = sorted((found for found in parts if found is not None), key=lambda found: found[1])
        yield from reached[:1]
        raced = [Theta for Theta, _ in reached[: len(reached) // 2]]
    best = np.empty((0, n))
    for Theta in raced:
        for best, error in _followed(problem, Theta, schedule):
            yield best, error
    for cells in schedule.cells_a_row:
        count = max(schedule.fewest_rows, n // cells - len(best))
        more = schedule.height * boxes(rng, count, problem.shape) + schedule.rough * rng.random((count, n))
        yield from _followed(problem, np.vstack([_shaken(best, rng, schedule), more]), schedule)


def _shapes(problem: Joined, schedule: Schedule) -> list[RealMatrix]:
    """Bumps of several sizes and shapes, without those that have one bump in all, or more than one for two values."""
    d, place = len(problem.shape), problem.axes.index(problem.attribute)
    found = {}
    for cells in schedule.cells_a_bump:
        for ratio in schedule.longer:
            short = (cells / ratio ** (d - 1)) ** (1 / d)
            widths = np.where(np.arange(d) == place, short, ratio * short)
            B = schedule.bump * bumps(problem.shape, widths)
            if 1 < len(B) <= problem.diagonal.size // 2:
                found[tuple(round(n / w) for n, w in zip(problem.shape, widths.tolist(), strict=True))] = B
    return list(found.values())


def _followed(problem: Joined, start: RealMatrix, schedule: Schedule) -> Iterator[tuple[RealMatrix, float]]:
    """Descend while a part gains enough."""
    last = math.inf
    for found in _descent(problem, start, schedule):
        yield found
        if limits.ending() or found[1] > last * (1 - schedule.least_gain):
            return
        last = found[1]


def _descent(problem: Joined, start: RealMatrix, schedule: Schedule) -> Iterator[tuple[RealMatrix, float]]:
    """Descend in the roots of Theta; yield Theta and its error after every part."""

    def value_and_slope(flat: RealVector) -> tuple[float, RealVector]:
        value, slope = problem.value_and_slope(flat**2)
        return value, 2 * flat * slope

    parts = descending(
        value_and_slope, np.sqrt(start.ravel()), parts=schedule.parts, nonnegative=False, tolerance=1e-9, memory=_MEMORY
    )
    while True:
        with la.threads_for(1):
            found = next(parts, None)
        if found is None:
            return
        Theta = found.parameters.reshape(start.shape) ** 2
        yield Theta, math.exp(found.value)
