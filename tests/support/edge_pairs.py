"""An oracle for the bound of Laplace strategies: X, C and the values of pairs, dense, by the words of the page."""

import numpy as np


def polar(V, L):
    """X = V^(1/2) (V^(1/2) L V^(1/2))^(-1/2) V^(1/2), pseudo-inverses where there is no other."""
    values, Q = np.linalg.eigh(V)
    half = (Q * np.sqrt(np.maximum(values, 0))) @ Q.T
    values, Q = np.linalg.eigh(half @ L @ half)
    kept = values > 1e-11 * values[-1]
    return half @ (Q[:, kept] / np.sqrt(values[kept])) @ Q[:, kept].T @ half


def between_edges(W, P, mu):
    """C = P^T X P for the queries W over all cells and the columns P of all edges."""
    moved = np.linalg.svd(P)[0][:, : np.linalg.matrix_rank(P)]
    V = moved @ (moved.T @ W.T @ W @ moved) @ moved.T
    return P.T @ polar(V, (P * mu) @ P.T) @ P


def value(K):
    """What tr(K Y^-1) is not below for two vectors of L1 length 1."""
    a, b, c = K[0, 0], abs(K[0, 1]), K[1, 1]
    low, high = min(a, c), max(a, c)
    if b <= 0.962 * low:
        return a + c
    if b >= low:
        return high
    fair = (low - b) / 0.038  # how much of [[1, 0.962], [0.962, 1]] there is, the rest being [[1, 1], [1, 1]]
    return 2 * fair + (low - fair) + (high - low)


def paired(C, mu, pairs, shares):
    """The bound, pair by pair and edge by edge."""
    left, total = mu.copy(), 0.0
    for (e, f), share in zip(np.asarray(pairs).astype(int).tolist(), np.asarray(shares).tolist(), strict=True):
        block = C[np.ix_([e, f], [e, f])]
        total += share * max(value(block @ block), block[0, 0] ** 2 + block[1, 1] ** 2)
        left[[e, f]] -= share
    assert left.min(initial=0.0) > -1e-9 * mu.max(initial=0.0)
    return total + float(np.maximum(left, 0.0) @ np.diag(C) ** 2)
