"""What the families of product strategies hand over: rows by their factors, a precision a row, and the proof."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from hdmm_bf._types import Proof, RealMatrix, RealVector
from hdmm_bf.strategies.search import Status


class Sketch(NamedTuple):
    """Rows R_1 (x) ... (x) R_d, measured with independent noise of variance 1 / precision at sensitivity 1.

    Attributes:
        factors: R_i, r_i x n_i.
        precisions: broadcasts to (r_1, ..., r_d); infinite for public rows, 0 for rows that are not measured because no
            query sees them.
        terms: terms of the workload that are answered from these rows alone; None for rows that complement others.
        hides: for noise that is added up (`records.NoiseSum`), the attributes whose edges it hides; None for rows that
            are measured.
        over: the attribute whose factor is over the edges of its policy, or None.
    """

    factors: tuple[RealMatrix, ...]
    precisions: Float64[np.ndarray, ...]
    terms: tuple[int, ...] | None = None
    hides: tuple[int, ...] | None = None
    over: int | None = None


class JoinedSketch(NamedTuple):
    """Noise that hides moves by rows on several tables at once (`records.JoinedBlock`), at a loss of 1.

    Attributes:
        axes: the joined attributes, ascending.
        hides: those whose edges are hidden, ascending.
        weights: of the noise of every value of the joined attributes.
        layers: for every table the attributes outside that it keeps, and its rows, p x n.
    """

    axes: tuple[int, ...]
    hides: tuple[int, ...]
    weights: RealVector
    layers: tuple[tuple[tuple[int, ...], RealMatrix], ...]


class Found(NamedTuple):
    """The best strategy of a family, scaled to sensitivity 1.

    The estimate is the sum over the sketches of (pinv R_1 (x) ... (x) pinv R_d) y. Rows of different sketches are
    orthogonal, because on some attribute one has centred rows and the other the ones; together they span every
    query.

    Attributes:
        sketches: what is measured.
        error: unit error.
        bound: proven lower bound on the unit error of any strategy, or None.
        svd: the paper's SVD bound, or None where it cannot be evaluated.
        family: marginals, sectors, kronecker or bases.
        proof: weights from which `product_bounds.product_bound` evaluates the bound again, or None.
        why: why this family, in a sentence.
        status: how the search ended.
        reached: errors of other strategies that were looked at, by name.
    """

    sketches: tuple[Sketch | JoinedSketch, ...]
    error: float
    bound: float | None
    svd: float | None
    family: str
    proof: Proof | None
    why: str
    status: Status
    reached: dict[str, float] = {}

    @property
    def gap(self) -> float:
        """Proven relative distance to the optimum."""
        if self.error == 0:
            return 0.0
        return self.error / self.bound - 1 if self.bound else math.inf


def centred(n: int) -> RealMatrix:
    """Return n I - J: integer rows, each a value against all, whose Gram matrix is n^2 (I - J / n).

    They are one more than are independent, and all of one size: one scale of noise serves them, and pinv gives back
    every value against the mean.
    """
    return n * np.eye(n) - 1.0


class Rows(NamedTuple):
    """Rows over one attribute, each with a precision."""

    matrix: RealMatrix
    precisions: RealVector


def with_totals(totals: RealMatrix, rows: RealMatrix) -> Rows:
    """Return public totals, measured exactly, above rows of precision 1; rows are scaled to largest entry 1.

    In one sketch the totals and the rows stay complementary after rounding, orthogonal or not.
    """
    heights = np.abs(rows).max(axis=1, initial=0.0)
    precisions = np.concatenate([np.full(len(totals), np.inf), heights**2])
    return Rows(np.concatenate([totals, rows / heights[:, None]]), precisions)


def invariant_sketch(
    sizes: tuple[int, ...], T: tuple[int, ...], scale: float, own: dict[int, Rows] | None = None
) -> Sketch:
    """Return rows whose Gram matrix is scale prod n_i times that of `own` (x) Pi_T's factor on the other attributes.

    Centred rows on the attributes in T, one row of ones on the others; the product of sizes is over all but `own`.
    """
    given = own or {}
    factors = []
    precisions = np.full((1,) * len(sizes), scale)
    for i, n in enumerate(sizes):
        along = [-1 if axis == i else 1 for axis in range(len(sizes))]
        if i in given:
            factors.append(given[i].matrix)
            precisions = precisions * given[i].precisions.reshape(along)
        elif i in T:
            factors.append(centred(n))
            precisions = precisions / n
        else:
            factors.append(np.ones((1, n)))
    return Sketch(tuple(factors), precisions)
