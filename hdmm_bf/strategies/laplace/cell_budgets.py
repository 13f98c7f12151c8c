"""Cell budgets: [I; Theta] over all cells, column v scaled to L1 norm b_v with b_u + b_v <= 1 on every edge.

Then ||A p_e||_1 <= b_u + b_v <= 1, so no edge enters the loss: it is smooth and costs the same for dense policies,
where it is the best family. The grounds are cells too; what is public enters through D.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from scipy.cluster.vq import kmeans2
from scipy.sparse import csgraph

from hdmm_bf import _linalg as la
from hdmm_bf._types import IndexArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.objectives.minimise import minimise, padded
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft
from hdmm_bf.strategies.registry import Family, Turns

NAME = "cell-budgets"


def descend(Theta: RealMatrix, budgets: RealVector, V: SquareMatrix, D: RealMatrix) -> RealMatrix:
    """Return the rows that a descent from Theta reaches."""
    from hdmm_bf.objectives import losses

    Theta = padded(Theta)
    split = np.stack([np.maximum(Theta, 0), np.maximum(-Theta, 0)])
    _, split = minimise(losses.signed_rows, split, budgets, V, D, max_iterations=400, nonnegative=True)
    return np.asarray(split[0] - split[1])


def steps(problem: Problem, *, seed: int) -> Iterator[Draft]:
    """Yield the strategy that every start ends at, forever."""
    rng = np.random.default_rng(seed)
    V = problem.gram / np.mean(np.diag(problem.gram))
    D, _ = with_grounds(problem)
    n, N = len(V), len(D)
    plans = [np.full(N, 0.5)]
    if np.all(problem.P.tail < 0):  # a star: the ground needs no budget
        plans.append(np.concatenate([np.ones(n), np.full(N - n, 1e-3)]))
    centred = embedding(D @ V @ D.T)
    count = 0
    while True:
        budgets = plans[count % len(plans)]
        rows = np.zeros((1, N)) if count < len(plans) else descend(_start(centred, rng, count), budgets, V, D)
        A = np.vstack([np.eye(N), rows])
        A = (A / np.abs(A).sum(axis=0) * budgets) @ D
        count += 1
        yield draft(problem, "vertex", A[np.abs(A).max(axis=1) > 1e-9], norm="L1", origin=NAME)


def with_grounds(problem: Problem) -> tuple[RealMatrix, IndexArray]:
    """Return D over the kept cells and one explicit ground a group, and the group of every kept cell.

    Groups are the components that remain when the ground is taken away; D expresses each group's ground as minus the
    sum of its cells, which is what it is, up to a public constant.
    """
    P, n = problem.P, problem.P.num_vertices
    inner = P.tail >= 0
    graph = sp.coo_array((np.ones(inner.sum()), (P.head[inner], P.tail[inner])), shape=(n, n))
    count, label = csgraph.connected_components(graph, directed=False)
    D = np.zeros((n + count, n))
    D[np.arange(n), np.arange(n)] = 1.0
    D[n + label, np.arange(n)] = -1.0
    return D, label


def embedding(V: SquareMatrix) -> RealMatrix:
    """Return V^(1/2): row i is column i of W, rotated, so that near rows are cells with like queries."""
    values, Q = la.eigen(V)
    return np.asarray((Q * np.sqrt(np.maximum(values, 0))) @ Q.T)


def clusters(points: RealMatrix, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return a cluster number forevery point; some clusters may stay empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k-means says so when a cluster is empty, which does no harm here
        return np.asarray(kmeans2(points, count, minit="++", rng=rng, iter=25)[1])


def _start(points: RealMatrix, rng: np.random.Generator, count: int) -> RealMatrix:
    """Rows to start from: random, like queries, or signed clusters of cells."""
    N = len(points)
    q = int(rng.integers(1, 9))
    if count % 3 == 0:
        return np.asarray(rng.uniform(-1, 1, (q, N)) * rng.choice([0.5, 1.0, 2.0]))
    if count % 3 == 1:
        rows = rng.normal(size=(q, N)) @ (points - points.mean(axis=0)).T
        return np.asarray(rows * rng.choice([0.5, 1.0]) / np.abs(rows).max(axis=1, keepdims=True))
    q = int(np.exp(rng.uniform(np.log(2), np.log(max(3, N / 6)))))
    label = clusters(points, q, rng)
    rows = np.zeros((q, N))
    rows[label, np.arange(N)] = rng.uniform(0.3, 1.0) * rng.choice([-1, 1], q)[label]
    return np.asarray(rows + 0.1 * rng.uniform(-1, 1, rows.shape))


FAMILY = Family(name=NAME, noise="laplace", structured=False, search=steps, turns=Turns(look=8, stale=60))
