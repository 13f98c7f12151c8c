"""p-Identity on the edges: S = [I; Theta] with every column scaled to L1 norm 1.

On forests P_G is square, so this is ordinary differential privacy over the edges and, with every entry polished at
the end, the whole class of strategies. Off forests S is an edge strategy of full column rank, for policies with few
edges. Theta >= 0 is written as a square; edges are turned so that the workload's correlations are mostly positive.
Starts are soft clusters of the edges on one to three levels, dense random rows, rows grown on the best;
then perturbations of the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.objectives.minimise import Loss, minimise, padded
from hdmm_bf.parallel.devices import Mesh
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft, edge_gram
from hdmm_bf.strategies.laplace import cell_budgets as budget
from hdmm_bf.strategies.registry import Family, Turns

NAME = "p-identity"

LARGEST_EDGES = 1100
MOST_EDGES_A_CELL = 2.5
"""Off forests the family is asked only for graphs with few edges: on denser ones it never won."""

_STARTS = 24
"""Fresh starts before the perturbations begin."""
_MIXED = 0.05
"""Share of negative correlation from which signed rows are tried as well."""


def applies(problem: Problem) -> bool:
    """Whether the graph is a forest or has few edges."""
    most = min(LARGEST_EDGES, MOST_EDGES_A_CELL * problem.grounding.kept.size)
    return problem.policy.is_forest or problem.policy.num_edges <= most


def alone(problem: Problem) -> bool:
    """Whether P is square, so that edge strategies are all there is."""
    return problem.policy.is_forest


def steps(problem: Problem, *, seed: int, mesh: Mesh | None = None) -> Iterator[Draft]:
    """Yield the best strategy after every start or perturbation, forever.

    On a mesh V is spread by its rows. Signed rows and the polish factor a matrix over the edges and stay on one device.
    """
    rng = np.random.default_rng(seed)
    V_G = edge_gram(problem)
    V_G = V_G / np.mean(np.diag(V_G))
    flip = positive_signs(V_G)
    V = flip[:, None] * V_G * flip
    search = _Search(V, rng, mesh)
    mixed = np.minimum(V, 0).sum() < -_MIXED * np.abs(V).sum()
    best = _finish(problem, flip, np.zeros((0, len(V))))
    polished, count = np.inf, 0
    while True:
        count += 1
        if mixed and count % 2:
            candidate = _finish(problem, flip, search.signed())
        else:
            search.start(count) if count <= _STARTS else search.perturb()
            candidate = _finish(problem, flip, search.roots**2)
        best = min(best, candidate, key=lambda d: d.error)
        yield best
        if count >= _STARTS and count % 8 == 0 and best.error < polished * (1 - 1e-9):
            best = min(best, free_polish(problem, best, V_G), key=lambda d: d.error)
            polished = best.error
            yield best


def _finish(problem: Problem, flip: RealVector, Theta: RealMatrix) -> Draft:
    """Scale the columns of [I; Theta] and drop rows that vanished."""
    rows = Theta[np.abs(Theta).max(axis=1, initial=0) > 1e-3]
    S = np.vstack([np.eye(flip.size), rows]) * flip
    return draft(problem, "edge", S / np.abs(S).sum(axis=0), norm="L1", origin=NAME)


def free_polish(problem: Problem, found: Draft, V_G: SquareMatrix) -> Draft:
    """Let every entry of an edge strategy move; never worse than where it starts."""
    from hdmm_bf.objectives import losses

    A = found.matrix
    split = np.stack([np.maximum(A, 0), np.maximum(-A, 0)])
    _, split = minimise(losses.free, split, V_G, max_iterations=300, nonnegative=True, tolerance=1e-11)
    A = split[0] - split[1]
    return draft(problem, "edge", A / np.abs(A).sum(axis=0), norm="L1", origin=f"{NAME}, all entries free")


def positive_signs(V: SquareMatrix) -> RealVector:
    """Return signs s that make s^T V s large: one-flip ascent from the leading eigenvector."""
    signs = np.where(la.eigen(V)[1][:, -1] >= 0, 1.0, -1.0)
    pull = V @ signs
    for _ in range(20 * len(V)):
        gain = np.diag(V) - signs * pull
        k = int(np.argmax(gain))
        if gain[k] <= 1e-9 * np.diag(V).max():
            break
        signs[k] = -signs[k]
        pull += 2.0 * signs[k] * V[:, k]
    return signs


def _objective(V: SquareMatrix, mesh: Mesh | None) -> tuple[Loss, tuple[Any, ...]]:
    """The loss and its constants, which live on the mesh if there is one."""
    from hdmm_bf.objectives import losses

    if mesh is None:
        return losses.p_identity, (V,)
    from hdmm_bf.parallel import losses as spread

    return spread.p_identity(mesh), spread.gram_on(mesh, V)


class _Search:
    """Multi-start descent in the roots of Theta, remembering the best."""

    def __init__(self, V: SquareMatrix, rng: np.random.Generator, mesh: Mesh | None = None) -> None:
        self.V, self.rng, self.n = V, rng, len(V)
        self.points = budget.embedding(V)
        spread = np.sqrt(np.diag(V))
        spread[spread == 0] = 1.0
        self.near = V / np.outer(spread, spread)
        self.roots, self.value = np.zeros((0, self.n)), float(np.log(np.trace(V)))
        self.short = 150 if self.n > 128 else 400
        self.loss, self.constants = _objective(V, mesh)

    def start(self, count: int) -> None:
        """Descend from fresh rows: grown on the best, dense random, or soft clusters."""
        rng, n = self.rng, self.n
        if count % 4 == 0:
            rows = np.vstack([self.roots, rng.uniform(0, 1, (int(rng.integers(1, 4)), n))])
        elif count % 4 == 1:
            rows = rng.uniform(0, 1, (int(rng.integers(1, 9)), n))
        else:
            most = np.log(max(3, n / 4))
            sizes = np.exp(rng.uniform(np.log(2), most, int(rng.integers(1, 4)))).astype(int)
            rows = np.vstack([self._clusters(int(size)) for size in sorted(set(sizes.tolist()))])
            rows = np.sqrt(rows**2 + rng.choice([0.01, 0.1]) * rng.uniform(0, 1, rows.shape))
        self._descend(rows, patience=0.01)

    def perturb(self) -> None:
        """Descend from the best with rows removed, added or shaken."""
        rng, rows = self.rng, self.roots.copy()
        move = int(rng.integers(4)) if len(rows) else 0
        if move in (1, 2):
            rows = np.delete(rows, rng.choice(len(rows), min(len(rows), int(rng.integers(1, 3))), replace=False), 0)
        if move in (0, 2) or len(rows) == 0:
            rows = np.vstack([rows, *(self._hat() for _ in range(int(rng.integers(1, 4))))])
        if move == 3:
            rows = np.sqrt(rows**2 + rng.choice([0.05, 0.2, 0.5]) * rng.uniform(0, 1, rows.shape) ** 2)
        self._descend(rows, patience=0.004)

    def signed(self) -> RealMatrix:
        """Return signed rows, by the cell-budget loss with one budget an edge."""
        rng = self.rng
        q = int(rng.integers(1, 9))
        rows = rng.uniform(-1, 1, (q, self.n)) if rng.uniform() < 0.5 else rng.normal(size=(q, self.n)) @ self.points
        rows = rows * rng.choice([0.5, 1.0, 2.0]) / np.abs(rows).max(axis=1, keepdims=True)
        return budget.descend(rows, np.ones(self.n), self.V, np.eye(self.n))

    def _descend(self, rows: RealMatrix, *, patience: float) -> None:
        rows = padded(rows)  # rows of zeros stay zero under a square
        value, rows = minimise(self.loss, rows, *self.constants, max_iterations=self.short, tolerance=1e-8)
        if value < self.value + patience:
            value, rows = minimise(self.loss, rows, *self.constants, max_iterations=3 * self.short)
        if value < self.value - 1e-9:
            self.value, self.roots = value, rows[(rows**2).max(axis=1) > 1e-3]

    def _clusters(self, count: int) -> RealMatrix:
        label = budget.clusters(self.points, count, self.rng)
        rows = np.zeros((count, self.n))
        rows[label, np.arange(self.n)] = self.rng.uniform(0.4, 1.0)
        return rows

    def _hat(self) -> RealMatrix:
        rng = self.rng
        width = int(np.exp(rng.uniform(np.log(3), np.log(max(4, self.n / 3)))))
        order = np.argsort(-self.near[rng.integers(self.n)])[:width]
        row = np.zeros(self.n)
        row[order] = rng.uniform(0.3, 1.0) * np.linspace(1, 0.2, order.size)
        return np.sqrt(row)[None]


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=False,
    search=steps,
    applies=applies,
    alone=alone,
    spreads=True,
    turns=Turns(look=12, stale=150),
)
