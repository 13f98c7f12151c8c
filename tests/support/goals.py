"""Goals other than the total, written out: random problems, brute force, and the convex programme. No package code."""

from __future__ import annotations

import itertools

import cvxpy as cp
import networkx as nx
import numpy as np

BOTTOM = -1


def random_edges(rng, kind):
    """Number of cells and edges of a policy: "connected" and public, in "parts", or with edges to "bottom"."""
    n = int(rng.integers(4, 8))
    tree = [(int(rng.integers(0, i)), i) for i in range(1, n)]
    more = [pair for pair in itertools.combinations(range(n), 2) if rng.uniform() < 0.3]
    if kind == "parts":  # two components, the second with BOTTOM
        half = n // 2
        inside = [(u, v) for u, v in tree + more if (u < half) == (v < half)]
        paths = [(i, i + 1) for i in range(n - 1) if i + 1 != half]
        return n, sorted({*inside, *paths, (half, BOTTOM)})
    ends = [(u, BOTTOM) for u in range(n) if rng.uniform() < 0.5] or [(0, BOTTOM)]
    return n, sorted({*tree, *more, *(ends if kind == "bottom" else [])})


def random_queries(rng, n):
    """Small whole numbers, some negative, in every direction of the cells; no query is constant."""
    W = rng.integers(-1, 3, size=(n + 3, n)) + np.vstack([2 * np.eye(n), np.zeros((3, n))])
    W[:, 0] += np.ptp(W, axis=1) == 0
    return W


def grounded(W, edges):
    """Queries and edges over the cells that stay when one cell of every component without BOTTOM is given up."""
    m, n = W.shape
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    left, W = list(range(n)), np.array(W, dtype=float)
    for part in nx.connected_components(graph):
        if BOTTOM not in part:
            given_up = max(part)
            for cell in part - {given_up}:
                W[:, cell] -= W[:, given_up]
            left.remove(given_up)
    place = {cell: i for i, cell in enumerate(left)}
    P = np.zeros((len(left), len(edges)))
    for e, (u, v) in enumerate(edges):
        for cell, sign in ((u, 1.0), (v, -1.0)):
            if cell in place:
                P[place[cell], e] = sign
    return W[:, left], P


def variances(W, P, X):
    """Variances of the queries at sensitivity 1 for the precision X of the cells that stay."""
    return np.einsum("ij,ji->i", W, np.linalg.solve(X, W.T)) * max(p @ X @ p for p in P.T)


def random_precision(rng, k):
    """The precision of some strategy."""
    A = rng.standard_normal((k + 1, k)) * np.exp(rng.standard_normal(k))
    return A.T @ A


def optimum(W, P, objective):
    """The least objective(v) by cvxpy, at the X it found; objective takes the list of convex v_i, or numbers."""
    k = len(P)
    X = cp.Variable((k, k), PSD=True)
    v = [cp.matrix_frac(w, X) for w in W]
    found = cp.Problem(cp.Minimize(objective(v)), [cp.trace(np.outer(p, p) @ X) <= 1 for p in P.T])
    found.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    return float(objective(list(variances(W, P, X.value))).value)
