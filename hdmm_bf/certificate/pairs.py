"""The bound for Laplace strategies from edge weights and pairs of edges: code that no search uses.

With X L X <= V, C = P^T X P, and weights mu shared out to pairs {e, f} (t of each) and edges by themselves (what is
left), no strategy of L1 sensitivity 1 has a unit error below

    sum_e left_e C_ee^2 + sum_{e, f} t_ef value(C_ef^2),    C_ef the 2 x 2 block of C.

`value(K)` is what tr(K Y^-1) is not below for the Gram matrix Y of two vectors of L1 length 1. Where the entry off the
diagonal is at most 0.962 of both on it, it is their sum. The value of a sum is at least the sum of the values, so other
matrices are taken apart. Proofs: `docs/explanation/laplace_bound.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, EPS, AnyArray, Proof, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.edge_bounds import semidefinite_factor
from hdmm_bf.problem.transform import Problem

_FAIR = 0.962
"""Off the diagonal, against the smaller entry on it: up to here two single rows are the best Laplace strategy."""
_CLEAR = 1e6
"""Eigenvalues count if they are so many times what they may be wrong by."""
_MOST_ENTRIES, _MOST_WORK = 2**23, 10**12
"""Entries of columns that are held at once; squares of the cells times edges, which are multiplied three times."""


def pairs_bound(problem: Problem, V: SquareMatrix, weights: RealVector, proof: Proof) -> float:
    """Evaluate the bound of `partners` and `shares` of a proof, rounded down.

    Guarantees:
        No strategy of L1 sensitivity 1 has a smaller unit error, whatever the proof says: shares that are negative or
        more than there is are refused, all others prove what they prove.
    """
    if weights.size == 0 or not np.any(V):
        return 0.0
    k, e = problem.grounding.kept.size, problem.policy.num_edges
    if k * k * e > _MOST_WORK:
        shown = f"pairs among {e} edges over {k} cells"
        raise fail("certificate", shown, "take too long to evaluate", "Fit again, which leaves them out.")
    mu = weights / weights.sum()
    ends, shares = checked_shares(proof, mu)
    F = semidefinite_factor(V)
    G = sum((f * mu[own]) @ f.T for own, f in _moved(problem, F, np.flatnonzero(mu)))
    values, U = np.linalg.eigh(G)
    wrong = 4 * EPS * len(values) * float(values.max())
    clear = values > _CLEAR * wrong
    half = U[:, clear].T / np.sqrt(np.sqrt(values[clear]))[:, None]  # X = F^T half^T half F
    squares = np.concatenate([((half @ f) ** 2).sum(axis=0) for _, f in _moved(problem, F, np.arange(mu.size))])
    pairs = zip(_moved(problem, F, ends[:, 0]), _moved(problem, F, ends[:, 1]), strict=True)
    across = np.concatenate([np.zeros(0), *(((half @ f) * (half @ g)).sum(axis=0) for (_, f), (_, g) in pairs)])
    left = np.maximum(mu - taken(ends, shares, mu.size), 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # weights of 1e-300 have squares of 1e300
        total = float(left @ squares**2 + shares @ block_values(squares[ends[:, 0]], across, squares[ends[:, 1]]))
    room = wrong / float(values[clear].min(initial=np.inf))
    return total * (1 - room) * (1 - AGREEMENT) if np.isfinite(total) else 0.0


def _moved(problem: Problem, F: RealMatrix, edges: AnyArray) -> Iterator[tuple[AnyArray, RealMatrix]]:
    """Yield edges, so many at once as fit in memory, with F p_e: differences first, so that what is unseen is 0."""
    size = max(1, _MOST_ENTRIES // max(len(F), 1))
    grounded = np.hstack([F, np.zeros((len(F), 1))])
    for start in range(0, len(edges), size):
        own = edges[start : start + size]
        yield own, grounded[:, problem.P.head[own]] - grounded[:, problem.P.tail[own]]


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
    over = taken(ends, shares, mu.size) - mu * (1 + AGREEMENT)
    if np.any(over > 0):
        raise fail("certificate", "shares", f"take {over.max():.2g} more than the weight of an edge", "Fit again.")
    return ends, shares


def taken(ends: AnyArray, shares: RealVector, edges: int) -> RealVector:
    """Return what the pairs take of the weight of every edge."""
    both = np.bincount(ends[:, 0], shares, edges) + np.bincount(ends[:, 1], shares, edges)
    return both.astype(np.float64)  # of no pairs NumPy makes whole numbers


def block_values(d: AnyArray, c: AnyArray, f: AnyArray) -> AnyArray:
    """Return the values of the squares of [[d, c], [c, f]], or d^2 + f^2, of the edges by themselves, if more."""
    first, off, second = d * d + c * c, np.abs(c * (d + f)), c * c + f * f
    least, most = np.minimum(first, second), np.maximum(first, second)
    return np.asarray(np.maximum(value(least, off, most), d * d + f * f))


def value(least: AnyArray, off: AnyArray, most: AnyArray) -> AnyArray:
    """Return the value of [[least, off], [off, most]], none negative and least <= most.

    A diagonal matrix has its trace; [[1, 0.962], [0.962, 1]] has 2, [[1, 1], [1, 1]] has 1, and, for s >= 1,
    [[1, s], [s, s^2]] has s^2: that is off^2 / most + diag(least - off^2 / most, 0), among others.
    """
    fair = off <= _FAIR * least
    even = (least - off) / (1 - _FAIR)
    torn = 2 * even + (least - even) + (most - least)
    with np.errstate(divide="ignore", invalid="ignore"):
        single = np.where(off <= most, most + least - np.where(most > 0, off**2 / most, 0.0), 0.0)
    return np.asarray(np.maximum(np.where(fair, least + most, np.where(off <= least, torn, 0.0)), single))
