"""Cell budgets: [I; Theta] over all cells, column v scaled to L1 norm b_v with b_u + b_v <= 1 on every edge.

Then ||A p_e||_1 <= b_u + b_v <= 1, so no edge enters the loss: it is smooth and costs the same for dense policies,
where it is the best family. The grounds are cells too; what is public enters through D.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hdmm_bf._types import RealMatrix
from hdmm_bf.objectives.descent import minimise, padded
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft
from hdmm_bf.strategies.laplace import clusters as grouping
from hdmm_bf.strategies.registry import Family, Turns

NAME = "cell-budgets"

_STEPS = 400
_NEGLIGIBLE = 1e-9


def steps(problem: Problem, *, seed: int) -> Iterator[Draft]:
    """Yield the strategy that every start ends at, forever."""
    from hdmm_bf.objectives.measures import total
    from hdmm_bf.objectives.parametrisations import cell_budgets, split

    rng = np.random.default_rng(seed)
    D = with_grounds(problem)
    N, n = D.shape
    plans = [np.full(N, 0.5)]
    if np.all(problem.P.tail < 0):  # a star: the ground needs no budget
        plans.append(np.concatenate([np.ones(n), np.full(N - n, 1e-3)]))
    error = total(problem, norm=None, log=True)
    centred = grouping.embedding(D @ (problem.gram / np.mean(np.diag(problem.gram))) @ D.T)
    count = 0
    while True:
        budgets = plans[count % len(plans)]
        rows = np.zeros((1, N))
        if count >= len(plans):
            rows = padded(_start(centred, rng, count))
            loss = error.of(cell_budgets(problem, len(rows), budgets))
            found = minimise(loss, split(rows), steps=_STEPS, nonnegative=True).parameters
            rows = np.asarray(found.positive) - np.asarray(found.negative)
        A = np.vstack([np.eye(N), rows])
        A = (A / np.abs(A).sum(axis=0) * budgets) @ D
        count += 1
        yield draft(problem, "vertex", A[np.abs(A).max(axis=1) > _NEGLIGIBLE], norm="L1", origin=NAME)


def with_grounds(problem: Problem) -> RealMatrix:
    """Return D over the kept cells and one explicit ground per group, which holds minus the sum of its cells."""
    group, count = problem.ground_groups
    n = group.size
    D = np.zeros((n + count, n))
    D[np.arange(n), np.arange(n)] = 1.0
    D[n + group, np.arange(n)] = -1.0
    return D


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
    label = grouping.clusters(points, q, rng)
    rows = np.zeros((q, N))
    rows[label, np.arange(N)] = rng.uniform(0.3, 1.0) * rng.choice([-1, 1], q)[label]
    return np.asarray(rows + 0.1 * rng.uniform(-1, 1, rows.shape))


FAMILY = Family(name=NAME, noise="laplace", structured=False, search=steps, turns=Turns(look=6, stale=60))
