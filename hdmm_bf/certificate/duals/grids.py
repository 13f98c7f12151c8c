"""f = tr G^(1/2), rounded down, for two large attributes and one product of queries, from matrices of side n_1 + n_2.

With V_i = F_i^T F_i, A_i = F_i L_i F_i^T and B_i = F_i D_i F_i^T = Q_i diag(b_i) Q_i^T,

    G = w_1 A_1 (x) B_2 + w_2 B_1 (x) A_2.

On lines A_i = a_i I + (few dimensions), Q_i^T A_i Q_i = a_i I + U_i diag(c_i) U_i^T. In the eigenvectors of the B_i,

    G = diag(g) + Z S Z^T,    g_jk = w_1 a_1 b_2k + w_2 a_2 b_1j,
    Z = [U_1 (x) I, I (x) U_2],    S = diag(w_1 c_1 (x) b_2, w_2 b_1 (x) c_2),

and, Z' = Z |S|^(1/2), the determinant of G + s is that of g + s times that of M = sign S + Z'^T (g + s)^-1 Z', up to a
constant. Its logarithmic derivative is tr (G + s)^-1. The root is summed up from such traces, from below:

    sqrt(z) >= (1 - eps) (2 h / pi) sum_k e^{h k} z / (z + e^{2 h k}),     eps = 2 sum_m sech(pi^2 m / h):

Poisson's formula for the sech that this sum samples. Nodes that are left out only lower it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from hdmm_bf._types import EPS, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.duals.parts import Attribute
from hdmm_bf.certificate.edge_bounds import semidefinite_factor

_SPACING = 0.6
"""h: eps is 3e-7."""
_LEFT_OUT = 1e-6
"""Share of the root that nodes left out at either end hold at most, about."""
_SAME = 1e-8
"""Share of the largest eigenvalue within which others are equal to it."""
_MOST_OTHERS = 2
"""Dimensions of A that differ from a I."""


class Side(NamedTuple):
    """One part of one attribute, in the eigenvectors of B: A = a I + U diag(c) U^T, B = diag(b)."""

    a: float
    b: RealVector
    c: RealVector
    U: RealMatrix


def on_grid(split: tuple[Attribute, Attribute], scales: tuple[float, float], weight: float) -> float | None:
    """Return f for parts whose first form is L_i (x) D, second D (x) L_i; None where A_i is not of this form."""
    first = [_side(part.grams[0], part.forms[0][0], part.forms[1][0]) for part in split[0].parts]
    second = [_side(part.grams[0], part.forms[1][0], part.forms[0][0]) for part in split[1].parts]
    sides = [[side for side in own if side is not None] for own in (first, second)]
    if len(sides[0]) < len(first) or len(sides[1]) < len(second):
        return None
    known: dict[tuple[bytes, bytes], float] = {}
    total = 0.0
    for one in sides[0]:
        for two in sides[1]:
            key = _key(one, scales[0]), _key(two, scales[1])
            key = (min(key), max(key))  # exchanged attributes have the same eigenvalues
            if key not in known:
                known[key] = _root_trace(one, two, scales)
            total += known[key]
    return weight * total


def _key(side: Side, scale: float) -> bytes:
    return np.concatenate([[scale, side.a], side.b, side.c, side.U.ravel()]).tobytes()


def _side(V: SquareMatrix, L: SquareMatrix, D: SquareMatrix) -> Side | None:
    F = semidefinite_factor(V)
    b, Q = np.linalg.eigh(F @ D @ F.T)
    values, X = np.linalg.eigh(F @ L @ F.T)
    near = np.abs(values[:, None] - values) <= _SAME * values[-1]
    same = near[np.argmax(near.sum(axis=1))]
    a = float(values[same].min())
    if np.count_nonzero(~same) > _MOST_OTHERS or not b[0] > 0 or not a > _SAME * values[-1]:
        return None
    c = np.maximum(values[~same], 0.0) - a
    return Side(a, b, c, Q.T @ X[:, ~same])


def _root_trace(one: Side, two: Side, scales: tuple[float, float]) -> float:
    """Return tr G^(1/2) for one pair of parts."""
    g = scales[0] * one.a * two.b[None, :] + scales[1] * two.a * one.b[:, None]
    S = np.concatenate(
        [scales[0] * np.multiply.outer(one.c, two.b).ravel(), scales[1] * np.multiply.outer(one.b, two.c).ravel()]
    )
    trace = float(g.sum() + S.sum())  # the columns of U have length 1
    typical = float(np.sqrt(g).sum())
    low = math.floor(math.log(_LEFT_OUT * typical / g.size) / _SPACING)
    high = math.ceil(math.log(trace / (_LEFT_OUT * typical)) / _SPACING)
    eps = 2 * sum(1 / math.cosh(math.pi**2 * m / _SPACING) for m in range(1, 4))
    found = 0.0
    for k in range(low, high + 1):
        s = math.exp(2 * _SPACING * k)
        found += math.exp(_SPACING * k) * max(_share(one, two, g, S, s), 0.0)
    return (1 - eps) * 2 * _SPACING / math.pi * found


def _share(one: Side, two: Side, g: RealMatrix, S: RealVector, s: float) -> float:
    """Tr G (G + s)^-1, less what rounding may have added: -infinity where that is not known."""
    inverse = 1 / (g + s)
    share = float((g * inverse).sum())
    if not S.size:
        return share - g.size * EPS
    root = np.sqrt(np.abs(S))
    M = root[:, None] * _between(one, two, inverse) * root
    M[np.diag_indices(S.size)] += np.sign(S)
    slope = root[:, None] * _between(one, two, inverse**2) * root
    Y, size = _symmetric_inverse(M)
    if Y is None:
        return -math.inf
    share += s * float((Y * slope).sum())
    room = 4 * EPS * S.size * size * s * float(np.abs(Y * slope).sum())
    return share - room - g.size * EPS


def _between(one: Side, two: Side, inverse: RealMatrix) -> SquareMatrix:
    """Z^T diag(inverse) Z; columns of Z are (border of 1, all of 2), then (all of 1, border of 2)."""
    r1, r2, (n1, n2) = one.c.size, two.c.size, inverse.shape
    H = np.zeros((r1 * n2 + n1 * r2,) * 2)
    at = r1 * n2
    k, j = np.arange(n2), np.arange(n1)
    H[:at, :at].reshape(r1, n2, r1, n2)[:, k, :, k] = np.einsum("jp,jq,jk->kpq", one.U, one.U, inverse)
    corner = np.zeros((n1, r2, n1, r2))
    corner[j, :, j, :] = np.einsum("kp,kq,jk->jpq", two.U, two.U, inverse)
    H[at:, at:] = corner.reshape(n1 * r2, n1 * r2)
    cross = np.einsum("jp,kq,jk->pkjq", one.U, two.U, inverse).reshape(at, n1 * r2)
    H[:at, at:] = cross
    H[at:, :at] = cross.T
    return H


def _symmetric_inverse(M: SquareMatrix) -> tuple[SquareMatrix | None, float]:
    """Return the inverse of a symmetric matrix, definite or not, and its condition; None if there is none."""
    norm = float(np.abs(M).sum(axis=0).max())
    factor, pivots, info = lapack.dsytrf(np.asfortranarray(M), lower=1)
    if info:
        return None, math.inf
    Y, info = lapack.dsytri(factor, pivots, lower=1)
    if info:
        return None, math.inf
    Y = np.tril(Y) + np.tril(Y, -1).T
    return Y, norm * float(np.abs(Y).sum(axis=0).max())
