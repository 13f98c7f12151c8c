"""What pairs of edges prove for Laplace strategies, from the definitions: dense, slow, without a line of the package.

W_G has a column W (e_u - e_v) for every edge, and all that is needed follows from it: for a symmetric N with
N (W_G D W_G^T) N <= 1 in the Loewner order, X = W^T N W has X L X <= W^T W, and C = P^T X P is W_G^T N W_G.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

BOTTOM = -1
TIED = 0.962


def changes(W, edges):
    """W_G: what one record that moves along an edge changes in the answers."""
    full = np.hstack([W, np.zeros((len(W), 1))])  # the last column is that of BOTTOM, -1
    u, v = np.array(edges).T
    return full[:, u] - full[:, v]


def entries(WG, mu):
    """C = W_G^T (W_G D W_G^T)^(-1/2) W_G, on the range."""
    values, U = np.linalg.eigh((WG * mu) @ WG.T)
    kept = values > 1e-11 * values[-1]
    half = (U[:, kept] / values[kept] ** 0.25).T @ WG
    return half.T @ half


def least(K, points=201):
    """The infimum of tr(K Y^-1) over two vectors of L1 length 1 with two entries each, on a grid: hardly too large."""
    (a, b), (_, c) = K
    x, y = np.meshgrid(*[np.linspace(0, 1, points)] * 2)
    d, e = x**2 + (1 - x) ** 2, y**2 + (1 - y) ** 2
    found = np.inf
    for r in ((1 - x) * (1 - y) + x * y, np.abs((1 - x) * (1 - y) - x * y), x * y):  # two rows in common, or one
        det = d * e - r**2
        good = det > 1e-9
        found = min(found, ((a * e + c * d - 2 * abs(b) * r)[good] / det[good]).min())
    return float(found)


def apart(K):
    """K as a sum of matrices whose values are known, with these."""
    (a, b), (_, c) = K
    low, high, sign = min(a, c), max(a, c), np.sign(b)
    rest = (np.diag([high - low, 0.0] if a > c else [0.0, high - low]), high - low)
    if abs(b) <= TIED * low:
        return [(K, a + c)]
    if abs(b) > low:  # [[1, s], [s, s^2]], turned so that the larger entry is where it is in K
        own = np.array([[b * b / high, b], [b, high]])
        flat = own if c >= a else own[::-1, ::-1]
        return [(flat, high), (K - flat, 0.0)]
    even = (low - abs(b)) / (1 - TIED)
    parts = [(even * np.array([[1, sign * TIED], [sign * TIED, 1]]), 2 * even)]
    return [*parts, ((low - even) * np.array([[1, sign], [sign, 1]]), low - even), rest]


def single(K):
    """K as one query, whose value is its larger sensitivity squared, and a diagonal matrix."""
    (a, b), (_, c) = K
    first = int(a >= c)  # the row of the smaller entry comes last
    high, low = max(a, c), min(a, c)
    own = np.array([[high, b], [b, b * b / high]])
    left = np.diag([0.0, low - b * b / high])
    return [(own if first else own[::-1, ::-1], high), (left if first else left[::-1, ::-1], low - b * b / high)]


def value(K):
    """The value that parts prove; they are not negative and their sum is K. The better of two ways to take K apart."""
    found = []
    for parts in (apart(K), single(K)):
        assert np.allclose(sum(part for part, _ in parts), K, atol=1e-9 * np.abs(K).max())
        assert all(np.linalg.eigvalsh(part)[0] >= -1e-9 * np.abs(K).max() for part, _ in parts)
        found.append(sum(number for _, number in parts))
    return max(found)


def paired(WG, mu, ends, shares, C=None):
    """The bound of weights and pairs, and of the entries that belong to the weights or of others."""
    C, left, total = entries(WG, mu) if C is None else C, mu.copy(), 0.0
    for (e, f), share in zip(ends, shares, strict=True):
        block = C[np.ix_([e, f], [e, f])]
        total += share * max(value(block @ block), C[e, e] ** 2 + C[f, f] ** 2)
        left[[e, f]] -= share
    assert left.min() >= -1e-9 * mu.max()
    return total + float(left @ np.diag(C) ** 2)


def random_pairs(mu, rng, tries=8):
    """Pairs that no search would choose, each with some of what is left of both its edges."""
    left, ends, shares = mu.copy(), np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    for _ in range(tries if mu.size > 1 else 0):
        e, f = rng.choice(mu.size, 2, replace=False)
        share = min(left[e], left[f]) * rng.choice([1.0, rng.random()])
        left[[e, f]] -= share
        ends, shares = np.vstack([ends, [[e, f]]]), np.append(shares, share)
    return ends, shares


def random_rows(edges, rng, extra=2):
    """S with columns of L1 length at most 1, of full column rank: a strategy over the edges, some rows nearly alone."""
    S = rng.normal(size=(edges + extra, edges)) * (rng.random((edges + extra, edges)) < 0.6)
    S[:edges] += rng.choice([0.3, 3.0]) * np.eye(edges)
    return S / np.abs(S).sum(axis=0) * rng.choice([1.0, rng.uniform(0.5, 1)], size=edges)


def smallest_error(WG, rng, starts=4):
    """The least ||M||^2 that descent finds over W_G = M S, columns of S of L1 length 1, with up to twice as many rows.

    Shorter columns are never better: the rest of the length in a row of its own makes S^T S larger. Entries of S are
    z |z| over the sum of squares, smooth wherever signs change.
    """
    V, e, best = WG.T @ WG, WG.shape[1], np.inf

    def loss(z, rows):
        Z = z.reshape(rows, e)
        lengths = (Z * Z).sum(axis=0)
        S = Z * np.abs(Z) / lengths
        Y = S.T @ S + 1e-13 * np.eye(e)
        half = np.linalg.solve(Y, V)
        G = -2 * S @ np.linalg.solve(Y, half.T)
        return np.trace(half), ((2 * np.abs(Z) * G - 2 * Z * (G * S).sum(axis=0)) / lengths).ravel()

    for start in range(starts):
        rows = int(rng.integers(e, 2 * e + 1))
        Z = rng.normal(size=(rows, e))
        Z[:e] += 3 * np.eye(e) * (start % 2)
        found = minimize(loss, Z.ravel(), (rows,), jac=True, method="L-BFGS-B", options={"maxiter": 300})
        Z = found.x.reshape(rows, e)
        S = Z * np.abs(Z) / (Z * Z).sum(axis=0)
        M = WG @ np.linalg.pinv(S)
        if np.allclose(M @ S, WG, atol=1e-8 * np.abs(WG).max()):
            best = min(best, np.linalg.norm(M) ** 2)
    return best
