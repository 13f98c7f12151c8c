"""Quadratic forms of the vectors of edges and values, by factors: e_u - e_v of an edge, e_v of a value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hdmm_bf._types import AnyArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.duals.weights import Form, Moves


def rows(form: Form, U: RealMatrix) -> RealMatrix:
    """Return what is in U for every vector of a form: the row of a value, or the difference of those of an edge."""
    if not isinstance(form, Moves):
        return U
    u, v = form.ends.T
    return np.asarray(U[u] - U[v])


def squares(form: Form, X: SquareMatrix) -> RealVector:
    """Return p^T X p for every vector of a form."""
    if not isinstance(form, Moves):
        return np.diag(X)
    u, v = form.ends.T
    return np.asarray(X[u, u] - X[u, v] - X[v, u] + X[v, v])


def across(form: Form, X: SquareMatrix, pairs: AnyArray) -> RealVector:
    """Return p^T X q for pairs of vectors of a form."""
    e, f = pairs.T
    if not isinstance(form, Moves):
        return np.asarray(X[e, f])
    (u, v), (s, t) = form.ends[e].T, form.ends[f].T
    return np.asarray(X[u, s] - X[u, t] - X[v, s] + X[v, t])


def num_ends(form: Form) -> int:
    """Return the L1 length of the vectors of a form: an edge has two ends."""
    return 2 if isinstance(form, Moves) else 1


def length(rows: RealMatrix) -> float:
    """Return the largest L1 length of a row."""
    return float(np.abs(rows).sum(axis=1).max(initial=0.0))


def absolute(form: Form, basis: RealMatrix) -> RealMatrix:
    """Return the vectors of a form in a basis, all signs left out."""
    U = np.abs(basis)
    return np.asarray(U[form.ends].sum(axis=1)) if isinstance(form, Moves) else U


def between(form: Form, shares: tuple[float, float], ends: AnyArray | None) -> RealVector:
    """Return p^T (I or J in parts) q for the vectors of a form: one number for p = q, one a pair for others."""
    same, other = shares
    if not isinstance(form, Moves):
        return np.array([same if ends is None else other])
    if ends is None:
        return np.array([2 * (same - other)])
    (u, v), (s, t) = form.ends[ends[0]].T, form.ends[ends[1]].T
    return np.asarray((same - other) * (1.0 * (u == s) - (u == t) - (v == s) + (v == t)))


def forms(X: SquareMatrix, first: list[RealMatrix], second: list[RealMatrix]) -> AnyArray:
    """Return p^T X q, p and q being Kronecker products of one row each of `first` and `second`, in step.

    One attribute is contracted by itself, then all others together.
    """
    if not first:
        return X.reshape(())
    if len(first) == 1:
        return np.asarray(np.einsum("ij,ij->i", first[0] @ X, second[0]))
    rows, sides = [len(own) for own in first], [own.shape[1] for own in first]
    d, front = len(sides), _front(rows, sides)
    others = [j for j in range(d) if j != front]
    own, rest = sides[front], len(X) // sides[front]
    flat = X.reshape(*sides, *sides).transpose(front, d + front, *others, *(d + j for j in others))
    outer = np.einsum("ai,aj->aij", first[front], second[front]).reshape(-1, own * own)
    T = (outer @ flat.reshape(own * own, rest * rest)).reshape(-1, rest, rest)
    P, Q = (_product([each[j] for j in others]) for each in (first, second))
    found = np.einsum("aij,ij->ai", P @ T, Q).reshape([rows[front], *(rows[j] for j in others)])
    return np.moveaxis(found, 0, front)


def _front(rows: Sequence[int], sides: Sequence[int]) -> int:
    """Return the attribute that is contracted first: that of the fewest products of two entries of a row."""
    return min(range(len(rows)), key=lambda i: rows[i] * sides[i] ** 2)


def entries_held(rows: Sequence[int], sides: Sequence[int]) -> int:
    """Return the size of the largest array that `_forms` makes."""
    if len(rows) < 2:
        return math.prod(rows) * math.prod(sides)
    i = _front(rows, sides)
    others, rest = math.prod(rows) // rows[i], math.prod(sides) // sides[i]
    return max(rows[i] * sides[i] ** 2, rows[i] * rest**2, rows[i] * others * rest)


def _product(rows: list[RealMatrix]) -> RealMatrix:
    """Return the Kronecker product."""
    product = np.ones((1, 1))
    for own in rows:
        product = np.kron(product, own)
    return product


def contracted(tensor: AnyArray, vectors: Sequence[RealVector]) -> float:
    """Return sum_J tensor_J prod_i vectors_i[j_i]; along an axis of length one the sum of the vector."""
    for length, vector in zip(tensor.shape, vectors, strict=True):
        tensor = np.tensordot(vector if length > 1 else vector.sum(keepdims=True), tensor, axes=(0, 0))
    return float(tensor)
