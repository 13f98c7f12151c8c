"""The bound for Laplace strategies from edge weights and pairs of edges: code that no search uses.

With X L X <= V, C = P^T X P, and weights mu shared out to pairs {e, f} (t of each) and edges by themselves (what is
left), no strategy of L1 sensitivity 1 has a unit error below

    sum_e left_e C_ee^2 + sum_{e, f} t_ef value(C_ef^2),    C_ef the 2 x 2 block of C.

`value(K)` is what tr(K Y^-1) is not below for the Gram matrix Y of two vectors of L1 length 1. Where the entry off the
diagonal is at most 0.962 of both on it, it is their sum. The value of a sum is at least the sum of the values, so other
matrices are taken apart. Proofs: `docs/explanation/laplace_bound.md`.
"""

from __future__ import annotations

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, EPS, AnyArray, Proof, RealVector, SquareMatrix
from hdmm_bf.certificate.edge_bounds import laplacian, semidefinite_factor
from hdmm_bf.problem.transform import Problem

_FAIR = 0.962
"""Off the diagonal, against the smaller entry on it: up to here two single rows are the best Laplace strategy."""
_CLEAR = 1e6
"""Eigenvalues count if they are so many times what they may be wrong by."""


def pairs_bound(problem: Problem, V: SquareMatrix, weights: RealVector, proof: Proof) -> float:
    """Evaluate the bound of `partners` and `shares` of a proof, rounded down.

    Guarantees:
        No strategy of L1 sensitivity 1 has a smaller unit error, whatever the proof says: shares that are negative or
        more than there is are refused, all others prove what they prove.
    """
    if weights.size == 0 or not np.any(V):
        return 0.0
    mu = weights / weights.sum()
    ends, shares = checked_shares(proof, mu)
    X, room = _metric(problem, V, mu)
    k = len(X)
    X = np.block([[X, np.zeros((k, 1))], [np.zeros((1, k + 1))]])
    head, tail = problem.P.head, problem.P.tail
    squares = X[head, head] + X[tail, tail] - 2 * X[head, tail]
    e, f = ends.T
    across = X[head[e], head[f]] + X[tail[e], tail[f]] - X[head[e], tail[f]] - X[tail[e], head[f]]
    left = np.maximum(mu - taken(ends, shares, mu.size), 0.0)
    total = float(left @ squares**2 + shares @ block_values(squares[e], across, squares[f]))
    return total * (1 - room) * (1 - AGREEMENT)


def checked_shares(proof: Proof, mu: RealVector) -> tuple[AnyArray, RealVector]:
    """Return pairs of edges and their shares; refused unless they are of this policy and leave no weight below zero."""
    ends, shares = np.asarray(proof.get("partners")), np.asarray(proof.get("shares"))
    good = ends.ndim == 2 and ends.shape[1:] == (2,) and ends.dtype.kind in "iu" and shares.shape == ends.shape[:1]
    if not good or shares.dtype.kind != "f":
        seen = f"partners of shape {ends.shape}, shares of shape {shares.shape}"
        raise fail("certificate", seen, "must be pairs of edges and a number each", "Fit again.")
    if ends.size and (ends.min() < 0 or ends.max() >= mu.size or np.any(ends[:, 0] == ends[:, 1])):
        raise fail("certificate", "partners", f"must be two of the {mu.size} edges each", "Fit again.")
    if not np.all(np.isfinite(shares)) or np.any(shares < 0):
        raise fail("certificate", "shares", "must be finite and not negative", "Fit again.")
    over = float((taken(ends, shares, mu.size) - mu).max(initial=0.0))
    if over > AGREEMENT * float(mu.max(initial=0.0)):
        raise fail("certificate", "shares", f"take {over:.2g} more than the weight of an edge", "Fit again.")
    return ends, shares


def taken(ends: AnyArray, shares: RealVector, edges: int) -> RealVector:
    """Return what the pairs take of the weight of every edge."""
    return np.asarray(np.bincount(ends[:, 0], shares, edges) + np.bincount(ends[:, 1], shares, edges))


def block_values(d: AnyArray, c: AnyArray, f: AnyArray) -> AnyArray:
    """Return the values of the squares of [[d, c], [c, f]], or d^2 + f^2, of the edges by themselves, if more."""
    first, off, second = d * d + c * c, np.abs(c * (d + f)), c * c + f * f
    least, most = np.minimum(first, second), np.maximum(first, second)
    return np.asarray(np.maximum(value(least, off, most), d * d + f * f))


def value(least: AnyArray, off: AnyArray, most: AnyArray) -> AnyArray:
    """Return the value of [[least, off], [off, most]], none negative and least <= most.

    diag(0, most - least) has its trace; [[1, 0.962], [0.962, 1]] has 2, [[1, 1], [1, 1]] has 1, and, for s >= 1,
    [[1, s], [s, s^2]] has s^2.
    """
    fair = off <= _FAIR * least
    even = (least - off) / (1 - _FAIR)
    torn = 2 * even + (least - even) + (most - least)
    return np.asarray(np.where(fair, least + most, np.where(off <= least, torn, most)))


def _metric(problem: Problem, V: SquareMatrix, mu: RealVector) -> tuple[SquareMatrix, float]:
    """Return X with X L X <= (1 + room) V: F^T G^(-1/2) F for V = F^T F, G = F L F^T, on its larger eigenvalues."""
    F = semidefinite_factor(V)
    values, U = np.linalg.eigh(F @ laplacian(problem, mu) @ F.T)
    wrong = 4 * EPS * len(values) * float(values.max())
    clear = values > _CLEAR * wrong
    X = (U[:, clear].T @ F) / np.sqrt(np.sqrt(values[clear]))[:, None]
    return np.asarray(X.T @ X), wrong / float(values[clear].min(initial=np.inf))
