"""The definitions of the objectives in plain NumPy, dense, by pseudo-inverse. Shares no code with the package."""

import networkx as nx
import numpy as np

from tests.support import oracles

BOTTOM = -1


def queries(spec):
    """The rows of a workload by its spec."""
    name, sizes, *rest = spec.split(":")
    shape = tuple(int(n) for n in sizes.split("x"))
    if name == "identity":
        return np.eye(int(np.prod(shape)))
    if name == "marginals":
        return np.array(oracles.marginal_rows(shape, int(rest[0])), dtype=float)
    return np.array({"all-range": oracles.all_range_rows, "prefix": oracles.prefix_rows}[name](shape), dtype=float)


def moves(n, edges):
    """What a record does to the histogram along every edge, n x e, turned so that the head is a kept cell."""
    gone = given_up(n, edges)
    found = np.zeros((n, len(edges)))
    for e, (u, v) in enumerate(edges):
        head, tail = (v, u) if u == BOTTOM or u in gone else (u, v)
        found[head, e] += 1
        if tail != BOTTOM:
            found[tail, e] -= 1
    return found


def given_up(n, edges):
    """The last cell of every component whose total is public, with the component."""
    g = oracles.graph(n, edges)
    parts = nx.connected_components(g)
    return {max(part): part for part in parts if BOTTOM not in part}


def lift(n, edges):
    """D, n x k: kept cells by themselves, a cell that is given up as minus the others of its component."""
    gone = given_up(n, edges)
    kept = [cell for cell in range(n) if cell not in gone]
    D = np.eye(n)[:, kept]
    for cell, part in gone.items():
        D[cell, [j for j, other in enumerate(kept) if other in part]] = -1
    return D


def sensitivity(A, n, edges, norm):
    """max_e ||A (e_u - e_v)||."""
    return np.linalg.norm(A @ moves(n, edges), {"L1": 1, "L2": 2}[norm], axis=0).max()


def trace(W, A, D):
    """||W D (A D)^+||_F^2."""
    return np.linalg.norm(W @ D @ np.linalg.pinv(A @ D)) ** 2


def total(W, A, n, edges, norm):
    """Delta(A)^2 tr(V (A^T A)^-1)."""
    return sensitivity(A, n, edges, norm) ** 2 * trace(W, A, lift(n, edges))


def variances(W, A, n, edges, norm):
    """Delta(A)^2 w_q^T (A^T A)^-1 w_q for every query."""
    D = lift(n, edges)
    return sensitivity(A, n, edges, norm) ** 2 * ((W @ D @ np.linalg.pinv(A @ D)) ** 2).sum(axis=1)


def dual_bound(W, n, edges, mu):
    """The squared nuclear norm of W P diag(sqrt mu), over sum mu."""
    return np.linalg.norm(W @ moves(n, edges) * np.sqrt(mu), "nuc") ** 2 / mu.sum()


def slope(f, x, step=1e-6):
    """Central finite differences of a number by every entry of an array."""
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[index] = step
        found[index] = (f(x + moved) - f(x - moved)) / (2 * step)
    return found
