"""The common form of a mechanism that sees data: (counts, epsilon, draw) -> a noisy estimate of the counts.

What one run spends is written down as stages, each with its share of epsilon; the shares of a mechanism sum to 1,
because its stages look at the same records one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

from experiments.mechanisms.checks import AnyArray, Columns, Number, RealVector, fail, numbers
from experiments.mechanisms.draws import Draw

Estimator: TypeAlias = Callable[[Columns, float, Draw], RealVector]
"""Anything that takes counts, epsilon and a source of noise, and returns one real estimate for each count."""

Counts: TypeAlias = AnyArray | Sequence[Number]
"""A histogram as users hand it in, before it was checked."""


class Stage(NamedTuple):
    """A part of a mechanism that looks at the data, with its share of epsilon."""

    name: str
    share: float


@final
@dataclass(frozen=True, eq=False)
class Mechanism:
    """A named mechanism; call it with counts, epsilon and a draw.

    Attributes:
        name: what figures call it.
        stages: what it spends, in order.
        estimate: the computation, on checked input.
        num_cells: the length of the counts it takes, or None for any.
        caveat: why the stated privacy is not proven, or nothing where it is.

    Guarantees:
        The epsilons of `spends` sum to epsilon.
    """

    name: str
    stages: tuple[Stage, ...]
    estimate: Estimator
    num_cells: int | None = None
    caveat: str = ""

    def __call__(self, counts: Counts, epsilon: float, draw: Draw) -> RealVector:
        """Return a noisy estimate of the counts."""
        vector = checked_counts(self.name, counts, self.num_cells)
        return self.estimate(vector, positive_epsilon(self.name, epsilon), draw)

    def spends(self, epsilon: float) -> dict[str, float]:
        """Return the epsilon of every stage."""
        return {stage.name: stage.share * epsilon for stage in self.stages}


def checked_counts(where: str, counts: Counts, num_cells: int | None) -> Columns:
    """Return counts as a vector of finite numbers, whole ones as int64."""
    vector = numbers(where, "counts", counts)
    if vector.ndim != 1 or vector.size == 0 or num_cells not in (None, vector.size):
        wanted = "one number for each cell" if num_cells is None else f"{num_cells} numbers"
        raise fail(where, f"counts of shape {vector.shape}", f"must be {wanted}", "Ravel the histogram row by row.")
    return vector


def positive_epsilon(where: str, epsilon: float) -> float:
    """Return epsilon if it is a positive number."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf:
        raise fail(where, f"epsilon={epsilon!r}", "must be a positive number", "Use for example 1.0.")
    return float(epsilon)


def laplace() -> Mechanism:
    """Add Laplace noise of scale 1 / epsilon to every count: the histogram of ordinary differential privacy.

    Guarantees:
        epsilon-private between counts that differ by 1 in one cell; every cell has variance 2 / epsilon^2.
    """

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        noisy: RealVector = counts + draw.laplace(1.0 / epsilon, counts.size)
        return noisy

    return Mechanism("Laplace", (Stage("counts", 1.0),), estimate)
