"""Rows over several attributes at once, for the moves along one of them: a p-identity over a product.

    A = [I; Theta] with columns scaled to L1 norm b: then a move towards BOTTOM loses b, any other at most 2 b
    unit error = tr(V Y),    Y = (A^T A)^-1 given the totals that the moves leave alone

Products of rows spend the budget of a cell as a product over the attributes. Rows that are boxes, long along one
attribute and short along another, spend it better: 20 % less error for all ranges of 24 x 24 cells. Totals enter as
rows of a large weight. Descents start from random boxes; attributes whose queries hardly overlap are left out, where
every value then has noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import AnyArray, RealMatrix, RealVector
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

_KNOWN = 1e3
"""Weight of the rows of known totals, against that of the cells."""

_MEMORY = 10


@final
@dataclass(frozen=True)
class Schedule:
    """How much is tried; tuned on all ranges of 24 x 24 to 100 x 50 cells.

    Attributes:
        most_cells: values of the joined attributes together.
        cells_a_row: for every start, values for each of its rows: fewer rows are found faster, more end lower.
        parts: steps of the parts of a descent.
        height: of the boxes to start from.
        rough: of what is added everywhere.
        least_gain: share of the error that a part must gain for the descent to go on.
    """

    most_cells: int = 8192
    cells_a_row: tuple[int, ...] = (48, 24)
    fewest_rows: int = 8
    parts: tuple[int, ...] = (20,) * 12
    height: float = 0.1
    rough: float = 0.003
    least_gain: float = 5e-4


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
        self.S = kept_totals(product, axes, attribute).toarray()
        edges = product.edges[attribute]
        self.ends = 1 if np.all(edges[:, 1] == BOTTOM) else 2
        """Cells that an edge changes at most."""

    def error(self, Theta: RealMatrix) -> tuple[float, RealMatrix]:
        """Return the unit error at a loss of 1 and its gradient; infinite where it cannot be had."""
        from hdmm_bf.objectives.by_hand import error_and_slopes

        p, c = len(Theta), 1 / (self.ends * (1 + Theta.sum(axis=0)))
        known = _KNOWN * self.S / c
        t, by_scale, by_rows = error_and_slopes(self.V, self.diagonal, c, np.vstack([Theta, known]))
        by_scale = by_scale - np.einsum("ki,ki->i", by_rows[p:], known) / c
        return t, by_rows[:p] - self.ends * by_scale * c**2

    def value_and_slope(self, flat: AnyArray) -> tuple[float, AnyArray]:
        """Return the logarithm of the error, for descents."""
        t, slope = self.error(flat.reshape(-1, self.diagonal.size))
        return (math.log(t), slope.ravel() / t) if math.isfinite(t) else (1e30, np.zeros_like(flat))

    def sketch(self, Theta: RealMatrix) -> JoinedSketch:
        """Return the rows at a loss of at most 1."""
        c = 1 / (self.ends * (1 + Theta.sum(axis=0)))
        return JoinedSketch(self.axes, (self.attribute,), c, Theta * c)


def boxes(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> RealMatrix:
    """Return indicators of random boxes, of any width from two values on along every attribute."""
    found = np.zeros((count, *shape))
    for row in found:
        widths = [int(rng.integers(min(2, n), n + 1)) for n in shape]
        starts = [int(rng.integers(0, n - width + 1)) for n, width in zip(shape, widths, strict=True)]
        row[tuple(slice(s, s + width) for s, width in zip(starts, widths, strict=True))] = 1.0
    return found.reshape(count, -1)


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
    best = math.inf
    for cells in schedule.cells_a_row:
        count = max(schedule.fewest_rows, n // cells)
        start = schedule.height * boxes(rng, count, problem.shape) + schedule.rough * rng.random((count, n))
        last = math.inf
        for found in _descent(problem, np.sqrt(start), schedule):
            if found[1] < best:
                best = found[1]
                yield problem.sketch(found[0]), best
            if limits.ending() or found[1] > last * (1 - schedule.least_gain):
                break
            last = found[1]


def _descent(problem: Joined, roots: RealMatrix, schedule: Schedule) -> Iterator[tuple[RealMatrix, float]]:
    """Descend in the roots of Theta; yield Theta and its error after every part."""

    def value_and_slope(flat: RealVector) -> tuple[float, RealVector]:
        value, slope = problem.value_and_slope(flat**2)
        return value, 2 * flat * slope

    parts = descending(
        value_and_slope, roots.ravel(), parts=schedule.parts, nonnegative=False, tolerance=1e-9, memory=_MEMORY
    )
    while True:
        with la.threads_for(1):
            found = next(parts, None)
        if found is None:
            return
        Theta = found.parameters.reshape(roots.shape) ** 2
        yield Theta, math.exp(found.value)
