"""Attributes in parts that never meet: vectors between which neither queries nor edge weights have an entry.

Three cases, seen from the matrices alone. Where all Gram matrices are a I + b J and all weights are even, or one is a
Laplacian, the ones vector and every eigenvector of the Laplacian are a part of one dimension; equal ones are counted.
Where everything stays the same read backwards, even and odd vectors are parts. Else the attribute is one part.

What is taken to be symmetric and is so up to rounding is lowered by what it lacks, V >= V_symmetric - ||difference||.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import orth

from hdmm_bf._types import EPS, NOTHING, ROUNDING, AnyArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.duals.roots import lowered
from hdmm_bf.certificate.duals.weights import Form, Moves, Pairs, Values
from hdmm_bf.matrix import Identity, Matrix, Ones
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import indicators


class Part(NamedTuple):
    """Some of an attribute's vectors, several times over.

    Attributes:
        counts: how often each occurs.
        grams: the Gram matrix of every different factor.
        forms: the weights of every summand, one matrix for each of the counts.
        still: for each of the counts, a basis of the vectors that no edge moves.
        basis: these vectors, where they are written out.
        shares: where they are the ones vector, or all contrasts, what projecting on them leaves of a value, and of any
            other.
    """

    counts: RealVector
    grams: tuple[SquareMatrix, ...]
    forms: tuple[AnyArray, ...]
    still: tuple[RealMatrix, ...]
    basis: RealMatrix | None = None
    shares: tuple[float, float] = (math.nan, math.nan)

    @property
    def side(self) -> int:
        """Number of dimensions."""
        return len(self.grams[0])


class Attribute(NamedTuple):
    """An attribute's parts, and which Gram matrix each term has."""

    parts: tuple[Part, ...]
    numbers: tuple[int, ...]

    @property
    def is_scalar(self) -> bool:
        """Whether all parts have one dimension."""
        return all(part.side == 1 for part in self.parts)


def in_parts(product: ProductProblem, i: int, forms: list[Form], *, by_vectors: bool = False) -> Attribute:
    """Split an attribute; `forms` are its weights in every summand.

    `by_vectors`: parts of one dimension only where they are the ones vector and all contrasts.
    """
    factors: dict[object, int] = {}
    numbers: list[int] = []
    different: list[Matrix] = []
    for term in product.terms:
        factor = term.factors[i]
        key = (type(factor), factor.shape) if isinstance(factor, Identity | Ones) else id(factor)
        if key not in factors:
            factors[key] = len(different)
            different.append(factor)
        numbers.append(factors[key])
    parts = None if by_vectors and not _evenly_moved(forms) else _one_by_one(different, forms)
    return Attribute(tuple(parts or _written(product, i, different, forms)), tuple(numbers))


def _evenly_moved(forms: list[Form]) -> bool:
    return all(form.is_complete for form in forms if isinstance(form, Moves))


def _one_by_one(factors: list[Matrix], forms: list[Form]) -> list[Part] | None:
    n = factors[0].shape[1]
    pairs = [_contrasts_and_ones(factor) for factor in factors]
    known = [pair for pair in pairs if pair is not None]
    moves = [form for form in forms if isinstance(form, Moves)]
    even = all(np.ptp(form.weights) == 0 for form in forms if isinstance(form, Values))
    if len(known) < len(pairs) or not even or len(moves) > 1 or any(isinstance(form, Pairs) for form in forms):
        return None
    spectrum, times = _spectrum(moves, n)

    def part(k: int, moved: RealVector, times: RealVector) -> Part:
        shares = (1 / n, 1 / n) if k == 1 else (1 - 1 / n, -1 / n)
        own = [moved if isinstance(form, Moves) else np.full(moved.size, form.weights[0]) for form in forms]
        still = [np.ones((1, 1)) if value == 0 else np.ones((1, 0)) for value in moved.tolist()]
        grams = tuple(np.full((1, 1), pair[k]) for pair in known)
        return Part(times, grams, tuple(w.reshape(-1, 1, 1) for w in own), tuple(still), shares=shares)

    ones = part(1, np.zeros(1), np.ones(1))
    return [ones, part(0, spectrum, times)] if n > 1 else [ones]


def _spectrum(moves: list[Moves], n: int) -> tuple[RealVector, RealVector]:
    """Eigenvalues off the ones vector and how often they occur."""
    if not moves or n == 1:
        return np.zeros(1), np.array([n - 1.0])
    if moves[0].is_complete:
        return np.array([n * float(moves[0].weights[0])]), np.array([n - 1.0])
    return lowered(np.linalg.eigvalsh(moves[0].matrix()))[1:], np.ones(n - 1)


def _contrasts_and_ones(factor: Matrix) -> tuple[float, float] | None:
    """Eigenvalues of a I + b J, off and on the ones vector; None where the Gram matrix is no such."""
    n = factor.shape[1]
    if isinstance(factor, Identity):
        return 1.0, 1.0
    if isinstance(factor, Ones):
        return 0.0, float(n)
    V = factor.gram()
    b = float(V[0, -1]) if n > 1 else 0.0
    a = float(V[0, 0]) - b
    rest = V - (a * np.eye(n) + b)
    if np.abs(rest).max() > ROUNDING * np.abs(V).max():
        return None
    lack = float(np.linalg.norm(rest))
    return max(a - lack, 0.0), max(a + n * b - lack, 0.0)


def _written(product: ProductProblem, i: int, factors: list[Matrix], forms: list[Form]) -> list[Part]:
    n = product.sizes[i]
    grams, weights = [factor.gram() for factor in factors], [form.matrix() for form in forms]
    still = indicators(product.edges[i], n).T
    folds = n > 1 and all(_same_backwards(V, NOTHING) for V in grams)
    folds = folds and all(_same_backwards(M, 4 * n * EPS) for M in weights)
    bases = _even_and_odd(n) if folds else [np.eye(n)]
    return [
        Part(
            np.ones(1),
            tuple(_seen(V, U, folded=folds) for V in grams),
            tuple((U.T @ M @ U)[None] for M in weights),
            (orth(U.T @ still, rcond=NOTHING) if still.size else np.zeros((U.shape[1], 0)),),
            U,
        )
        for U in bases
    ]


def _same_backwards(M: SquareMatrix, room: float) -> bool:
    return bool(np.abs(M - M[::-1, ::-1]).max() <= room * np.abs(M).max())


def _seen(V: SquareMatrix, U: RealMatrix, *, folded: bool) -> SquareMatrix:
    if not folded:
        return V
    half = (V - V[::-1, ::-1]) / 2
    lack = float(np.linalg.norm(half))
    return np.asarray(U.T @ (V - half) @ U - lack * np.eye(U.shape[1]))


def _even_and_odd(n: int) -> list[RealMatrix]:
    """Orthonormal bases, from the identity and itself read backwards."""
    eye, h = np.eye(n), n // 2
    pairs = [(eye[:, :h] + sign * eye[:, ::-1][:, :h]) / np.sqrt(2) for sign in (1, -1)]
    return [np.hstack([pairs[0], eye[:, h : n - h]]), pairs[1]]
