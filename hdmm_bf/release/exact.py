"""Exact arithmetic on the way from data and integer noise to what is published.

Vertex strategies publish A x + noise, all integers: nothing to round. Edge strategies off trees publish
x + P S^+ noise, whose second part is rational. Neighbours shift the noise by a column of S, an integer vector, so the
*exact* sum is as private as the noise; a sum in floating point is not, because its last digits show how it was made.
Hence the exact sum is rounded correctly: it is enclosed so tightly that only one grid point can belong to it, and that
point is published. The grid is shifted by a random fraction, so that no sum stays between two points for ever.

Guarantees:
    `ExactSums.private_sum` returns a function of the exact x + P S^+ noise and of independent random bits, and of
    nothing else.
"""

from __future__ import annotations

import math
import secrets
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int64
from scipy.linalg import solve_triangular, svdvals

from hdmm_bf._checks import fail
from hdmm_bf._linalg import EPS
from hdmm_bf._types import AnyArray, RealVector, SparseMatrix, SquareMatrix
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.noise import LARGEST
from hdmm_bf.strategies.records import EdgeStrategy

GRID_BITS = 20
"""Binary places of what an edge strategy publishes: a millionth of a record."""

SHIFT_BITS = 64
FIRST_BITS, MORE_BITS, MOST_BITS = 96, 64, 2000
"""Binary places of the enclosure: at first, more when that leaves a doubt, and the end of patience."""

_PATIENCE, _NEAR = 24, 2**48
"""Steps that may bring a solution no nearer, as long as it is further off than that: see `_refined`."""

_LIMB = 26
_SPARSE = 0.1
Whole = list[int]


def exact_product(A: Int64[np.ndarray, "r c"], x: Int64[np.ndarray, " c"], *, room: int) -> AnyArray:
    """Return A x exactly: in 64 bits where it, and it plus noise of size `room`, certainly fit, else in any size.

    No counts are refused: where a refusal begins, a strategy made for it would show a count that nobody paid for.
    """
    reach = np.abs(A).astype(np.float64) @ np.abs(x).astype(np.float64)
    if float(reach.max(initial=0.0)) * (1 + 1e-9) + room < LARGEST:
        return np.asarray(A @ x)
    return np.asarray(A.astype(object) @ x.astype(object))


@final
class ExactSums:
    """An edge strategy made ready for exact sums, or refused: nothing here depends on data or noise."""

    def __init__(self, problem: Problem, strategy: EdgeStrategy, triangle: SquareMatrix | None) -> None:
        """Take the R of S = Q R, S over 2^bits; None where S has not full column rank."""
        if triangle is None:
            advice = "Fit the strategy again; edge strategies of the search have full rank."
            seen = "is an edge strategy without full column rank"
            raise fail("release", f"strategy {strategy.family}", seen, advice)
        self._triangle, self._bits = triangle, strategy.bits
        self._floor = _smallest_square(strategy)
        self._S = WholeMatrix(strategy.integers)
        self._P = problem.P

    def private_sum(self, kept: Int64[np.ndarray, " k"], noise: AnyArray) -> RealVector:
        """Return x + P S^+ noise over the kept cells, correctly rounded to a shifted grid."""
        shift = 2 * secrets.randbits(SHIFT_BITS) + 1  # odd: over 2^(65 + GRID_BITS), never on a coarser point
        head, tail = self._P.head, self._P.tail
        degree = int(np.bincount(np.concatenate([head, tail[tail >= 0]])).max(initial=1))
        flow, held = [0] * head.size, 0
        for bits in range(FIRST_BITS, MOST_BITS, MORE_BITS):
            flow, held = [value << (bits - held) for value in flow], bits
            flow, error = self._refined([value << bits for value in noise.tolist()], flow)
            centre = self._flow_sum(kept.tolist(), flow, bits)
            low = rounded_to_grid([c - degree * error for c in centre], bits, shift)
            if low == rounded_to_grid([c + degree * error for c in centre], bits, shift):
                return np.array([math.ldexp(value, -GRID_BITS) for value in low])
        raise fail("release", "noise", "could not be added exactly", "Run the release again; nothing was published.")

    def _refined(self, target: Whole, flow: Whole) -> tuple[Whole, int]:
        """Return z close to S^+ target, and a whole number that bounds the error of every entry.

        Steps z += (S^T S)^-1 S^T (target - S z) with the residual in whole numbers. The error of z is at most
        ||S^T (target - S z)|| / sigma_min(S)^2, whatever floating point did to z.

        A step makes ||S (z - S^+ target)|| smaller by a factor of about n eps kappa, at most 1/4 (`_smallest_square`);
        the bound may lag behind by a factor of kappa < 2^47, and so for 24 steps. Without patience it would hang on the
        noise whether a sum can be enclosed, and what is published would show more than the sum: noise zero always can.
        """
        best: tuple[Whole, int] | None = None
        idle = 0
        while True:
            residual = [t - p for t, p in zip(target, self._S.times(flow), strict=True)]
            gradient = self._S.transposed_times(residual)
            error = math.isqrt(sum(g * g for g in gradient)) // self._floor + 1
            idle = idle + 1 if best is not None and 2 * error > best[1] else 0
            if best is not None and idle and (best[1] <= _NEAR or idle > _PATIENCE):
                return best
            best = (flow, error) if best is None or not idle else best
            flow = [z + step for z, step in zip(flow, self._normal_solve(gradient), strict=True)]

    def _normal_solve(self, gradient: Whole) -> Whole:
        """(S^T S)^-1 gradient to about the precision of floating point, for numbers far beyond its range."""
        shrink = max(0, max(map(int.bit_length, gradient), default=0) - 500)
        right = np.array([float(g >> shrink) for g in gradient])
        half = solve_triangular(self._triangle, right, trans="T", check_finite=False)
        found = solve_triangular(self._triangle, half, check_finite=False)
        return [_scaled(value, shrink - 2 * self._bits) for value in found.tolist()]

    def _flow_sum(self, kept: Whole, flow: Whole, bits: int) -> Whole:
        """Return x + P z over 2^bits, in whole numbers."""
        total = [value << bits for value in kept]
        for head, tail, value in zip(self._P.head.tolist(), self._P.tail.tolist(), flow, strict=True):
            total[head] += value
            if tail >= 0:
                total[tail] -= value
        return total


def rounded_to_grid(values: Whole, bits: int, shift: int) -> Whole:
    """Nearest points of the shifted grid below values over 2^bits, named by their number."""
    fraction = shift << (bits - GRID_BITS - SHIFT_BITS - 1)
    return [(value + fraction) >> (bits - GRID_BITS) for value in values]


def _scaled(value: float, power: int) -> int:
    """Round value 2^power to a whole number."""
    mantissa, exponent = math.frexp(value)
    whole, places = int(math.ldexp(mantissa, 53)), exponent - 53 + power
    return whole << places if places >= 0 else (whole + (1 << (-places - 1))) >> -places


def _smallest_square(strategy: EdgeStrategy) -> int:
    """A whole number that sigma_min(S)^2, for the integers S, certainly reaches."""
    S = strategy.integers
    if np.count_nonzero(S, axis=1).max(initial=0) <= 1:  # orthogonal columns, as of identity on edges
        floor = min(sum(int(v) ** 2 for v in column[column != 0]) for column in S.T)
    else:
        values = svdvals(strategy.matrix(), check_finite=False)
        lowest = float(values[-1]) - 8 * EPS * max(S.shape) * float(values[0])
        floor = math.floor(math.ldexp(max(lowest, 0.0) ** 2 * (1 - 1e-9), 2 * strategy.bits))
        floor = floor if 64 * EPS * S.shape[1] * float(values[0]) <= lowest else 0  # every step must help
    if floor < 1:
        raise fail("release", "strategy", "is too close to singular to be run exactly", "Fit the strategy again.")
    return floor


@final
class WholeMatrix:
    """An integer matrix, entries below 2^52, that multiplies whole numbers of any size exactly, in pieces that fit."""

    def __init__(self, matrix: Int64[np.ndarray, "r c"]) -> None:
        high = matrix >> _LIMB
        low = matrix - (high << _LIMB)
        few = np.count_nonzero(matrix) < _SPARSE * matrix.size
        self._pieces = [(sp.csr_array(p) if few else p, places) for p, places in ((low, 0), (high, _LIMB))]

    def times(self, vector: Whole) -> Whole:
        """Return M vector."""
        return _product([(piece, offset) for piece, offset in self._pieces], vector)

    def transposed_times(self, vector: Whole) -> Whole:
        """Return M^T vector."""
        return _product([(piece.T, offset) for piece, offset in self._pieces], vector)


def _product(pieces: list[tuple[AnyArray | SparseMatrix, int]], vector: Whole) -> Whole:
    rows, columns = pieces[0][0].shape
    room = 61 - _LIMB - columns.bit_length()
    total: AnyArray = np.zeros(rows, dtype=object)
    rest, place = list(vector), 0
    while any(rest):
        digits = np.array([value & ((1 << room) - 1) for value in rest], dtype=np.int64)
        rest = [value >> room for value in rest]
        if all(value in (0, -1) for value in rest):  # only signs are left: the last digits hold them
            digits = digits + np.array(rest, dtype=np.int64) * (1 << room)
            rest = []
        for piece, offset in pieces:
            total = total + (piece @ digits).astype(object) * (1 << (place + offset))
        place += room
    return [int(value) for value in total]
