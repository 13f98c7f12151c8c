"""Vertex strategies under any policy: every entry of A free, the largest column norm of A P smoothed.

    log tr(V (A^T A)^-1) + 2 log || h ||_q,    h_e = sum_j sqrt((A p_e)_j^2 + eta^2)

with eta falling and q rising together. Starts are the identity on all cells together with cuts of the policy graph
(one row for each side of a cut: along the Fiedler order of a component, or between clusters of cells), then
perturbations of the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.objectives.descent import minimise, padded
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft, edge_columns
from hdmm_bf.strategies.laplace import clusters as grouping
from hdmm_bf.strategies.laplace.cell_budgets import with_grounds
from hdmm_bf.strategies.laplace.stretching import short_length, shorter, stretched
from hdmm_bf.strategies.registry import Family, Turns

NAME = "vertex"
LARGEST_CELLS, LARGEST_MOVES = 1200, 2 * 10**7
"""Cells, and rows times edges, up to which a step of a descent takes less than a second."""
SHORT_LINE, LARGEST_LINE = 200, 4200
"""Cells of the line from which longer ones are stretched, and cells of the longest that is written out."""

_PADDING = 16
_GAPS = (6, 8, 5, 12, 4, 7, 16, 3)
"""Cells between two cuts of a start."""
_STARTS = 10
_MOST_DEEP = 3
"""Starts polished deeply before the perturbations begin."""


@final
@dataclass(frozen=True)
class Smoothings:
    """A sequence of sharper and sharper smoothings; tuned on thresholds 2 to 16 of 64 to 512 cells.

    The rounding of |.| at zero adds up over the rows, so it is a share of their number; the power of the norm over the
    edges rises as it falls.

    Attributes:
        start, stop: of eta, times the number of rows.
        levels: how many.
        steps: of the descent at each.
    """

    start: float
    stop: float
    levels: int
    steps: int

    def of(self, rows: int) -> Iterator[tuple[float, float]]:
        """Yield eta and the power."""
        etas = np.geomspace(self.start, self.stop, self.levels) / rows
        powers = np.geomspace(30.0, 8000.0, self.levels)
        yield from zip(etas.tolist(), powers.tolist(), strict=True)


_FRESH = Smoothings(0.15, 2e-3, 6, 120)
_DEEP = Smoothings(0.1, 1e-3, 7, 400)
_AGAIN = Smoothings(0.1, 1e-3, 6, 250)
_AFTER_STRETCH = Smoothings(0.05, 2e-3, 4, 30)

_GAIN = 2e-3
"""Share by which a strategy of the short line must be better than the last one to be stretched as well."""


class _Polish:
    """Descend from a strategy through a sequence of smoothings."""

    def __init__(self, problem: Problem) -> None:
        from hdmm_bf.objectives.measures import total

        self.problem = problem
        self.total = total(problem, log=True)

    def __call__(self, A: RealMatrix, smoothings: Smoothings) -> Draft:
        from hdmm_bf.objectives.parametrisations import Free

        best = current = self._draft(A)
        A = padded(current.matrix, multiple=_PADDING)
        for eta, power in smoothings.of(len(A)):
            loss = self.total.smoothed(eta, power).of(Free(*A.shape))
            A = np.asarray(minimise(loss, A, steps=smoothings.steps, tolerance=1e-9).parameters)
            current = self._draft(A)
            A = current.matrix
            best = min(best, current, key=lambda d: d.error)
        rows = np.abs(edge_columns(self.problem, best.matrix)).max(axis=1) > 1e-4
        return min(best, self._draft(best.matrix[rows]), key=lambda d: d.error)

    def _draft(self, A: RealMatrix) -> Draft:
        return draft(self.problem, "vertex", A, norm="L1", origin=NAME)


POLISH = Turns(look=1, stale=1)
"""One polish of the best strategy of the other families."""


def applies(problem: Problem) -> bool:
    """Whether the problem is small enough for steps that factor a matrix over its cells, or a long line."""
    cells = problem.grounding.kept.size
    return is_small(problem) or (cells <= LARGEST_LINE and shorter(problem, SHORT_LINE) is not None)


def is_small(problem: Problem) -> bool:
    """Whether descents can be afforded: strategies have about 1.3 rows per kept cell."""
    cells = problem.grounding.kept.size
    return cells <= LARGEST_CELLS and 1.3 * cells * problem.policy.num_edges <= LARGEST_MOVES


def polish(problem: Problem, found: Draft) -> Draft:
    """Continue another family's vertex strategy with every entry free; never worse than it."""
    better = _Polish(problem)(found.matrix, _AGAIN)
    return better._replace(origin=f"{found.origin}, polished") if better.error < found.error else found


def steps(problem: Problem, *, seed: int) -> Iterator[Draft]:
    """Yield the best strategy after every start, deep polish or perturbation, forever."""
    rng = np.random.default_rng(seed)
    length = short_length(problem.policy.num_cells, SHORT_LINE)
    short = shorter(problem, length) if problem.policy.num_cells > 2 * length else None
    if short is not None:
        yield from _stretched_steps(problem, short, seed=seed)
        return
    polish = _Polish(problem)
    pool: list[tuple[Draft, float]] = []
    best: Draft | None = None
    for count in range(_STARTS):
        rows, gap = _start(problem, rng, count, min(pool, key=lambda t: t[0].error)[1] if pool else 6.0)
        found = polish(rows, _FRESH)
        pool.append((found, gap))
        best = found if best is None or found.error < best.error else best
        yield best
    assert best is not None
    for found, _ in sorted(pool, key=lambda t: t[0].error)[:_MOST_DEEP]:
        deep = polish(found.matrix, _DEEP)
        best = min(best, deep, key=lambda d: d.error)
        yield best
    bumps = _Bumps(problem, rng)
    while True:
        perturbed = bumps.perturb(best.matrix)
        found = polish(perturbed, _AGAIN)
        best = min(best, found, key=lambda d: d.error)
        yield best


def _stretched_steps(problem: Problem, short: Problem, *, seed: int) -> Iterator[Draft]:
    """Yield the best stretched strategy, and what a descent from it reaches, after every step on the short line."""
    polish = _Polish(problem)
    best, least = None, math.inf
    for found in steps(short, seed=seed):
        if best is None or found.error < least * (1 - _GAIN):
            least = found.error
            longer = stretched(found.matrix, problem.policy.num_cells)
            candidate = draft(problem, "vertex", longer, norm="L1", origin=NAME)
            best = candidate if best is None or candidate.error < best.error else best
            yield best
            if is_small(problem):
                best = min(best, polish(longer, _AFTER_STRETCH), key=lambda d: d.error)
        yield best


def _start(problem: Problem, rng: np.random.Generator, count: int, best_gap: float) -> tuple[RealMatrix, float]:
    """Identity on all cells and cuts, with a gap between cuts from the list or around the best one."""
    kind = ("order", "workload", "order", "graph")[count % 4]
    gap = float(_GAPS[(count // 2) % len(_GAPS)])
    if kind == "order" and count % 8 >= 4:
        gap = best_gap * rng.uniform(0.85, 1.2)
    D = with_grounds(problem)
    if kind == "order":
        cuts = _ordering_cuts(problem, D, gap, rng)
    else:
        count_clusters = int(np.clip(round(len(problem.gram) / gap), 2, len(D)))
        cuts = _cluster_cuts(problem, D, count_clusters, rng, by_workload=kind == "workload")
    return np.vstack([D, cuts]), gap


def _graph(problem: Problem, num_vertices: int, label: RealVector | np.ndarray) -> sp.csr_array:
    """The policy graph with an explicit ground a group."""
    P, n = problem.P, problem.P.num_vertices
    tail = np.where(P.tail >= 0, P.tail, n + label[P.head])
    ones = np.ones(P.head.size)
    half = sp.csr_array((ones, (P.head, tail)), shape=(num_vertices, num_vertices))
    return sp.csr_array(half + half.T)


def _ordering_cuts(problem: Problem, D: RealMatrix, gap: float, rng: np.random.Generator) -> RealMatrix:
    """The first cells along the Fiedler order of every component, every `gap` cells, with a random offset."""
    label, _ = problem.ground_groups
    graph = _graph(problem, len(D), label)
    count, component = csgraph.connected_components(graph, directed=False)
    rows = []
    for c in range(count):
        cells = np.flatnonzero(component == c)
        if cells.size < 3:
            continue
        laplacian = csgraph.laplacian(graph[cells][:, cells]).toarray()
        order = cells[np.argsort(la.eigen(laplacian)[1][:, 1])]
        place = rng.uniform(0.3, 1.0) * gap
        while place < order.size - 0.5:
            row = np.zeros(len(D))
            row[order[: max(1, round(place))]] = 1.0
            rows.append(row)
            place += gap
    return np.asarray(np.array(rows).reshape(-1, len(D)) @ D)


def _cluster_cuts(
    problem: Problem, D: RealMatrix, clusters: int, rng: np.random.Generator, *, by_workload: bool
) -> RealMatrix:
    """Clusters of cells, a spanning tree of the graph between them, and for each tree edge the far side of the cut."""
    group, _ = problem.ground_groups
    graph = _graph(problem, len(D), group)
    if by_workload:
        points = grouping.embedding(D @ problem.gram @ D.T)
        label = grouping.clusters(points / np.abs(points).max(), clusters, rng)
    else:
        label = _voronoi(graph, clusters, rng)
    _, label = np.unique(label, return_inverse=True)
    k = int(label.max()) + 1
    member = sp.csr_array((np.ones(label.size), (label, np.arange(label.size))), shape=(k, label.size))
    links = (member @ graph @ member.T).toarray()
    np.fill_diagonal(links, 0)
    tree = csgraph.minimum_spanning_tree(np.where(links > 0, 1.0 / np.maximum(links, 1e-9), 0))
    tree = tree + tree.T
    rows, done = [], np.zeros(k, dtype=bool)
    for root in np.argsort(-links.sum(axis=1)):
        if done[root]:
            continue
        order, parent = csgraph.breadth_first_order(tree, root, directed=False)
        done[order] = True
        side = np.eye(k)
        for vertex in order[::-1]:
            if parent[vertex] >= 0:
                side[parent[vertex]] += side[vertex]
                rows.append(side[vertex])
    return np.asarray(np.array(rows).reshape(-1, k)[:, label] @ D)


def _voronoi(graph: sp.csr_array, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Graph Voronoi cells around seeds chosen far apart."""
    size = graph.shape[0]
    nearest, label = np.full(size, np.inf), np.zeros(size, dtype=np.int64)
    seed = int(rng.integers(size))
    for c in range(clusters):
        hops = csgraph.dijkstra(graph, unweighted=True, indices=seed)
        label[hops < nearest] = c
        nearest = np.minimum(nearest, hops)
        beyond = nearest[np.isfinite(nearest)].max() + 1
        seed = int(np.argmax(np.where(np.isinf(nearest), beyond, nearest) + rng.uniform(0, 0.5, size)))
    return label


class _Bumps:
    """Perturbations of a strategy: shake entries, drop rows, add rows around a cell."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.D, label = with_grounds(problem), problem.ground_groups[0]
        graph = _graph(problem, len(self.D), label)
        self.near = sp.csr_array((graph + sp.eye_array(len(self.D))) > 0).astype(np.float64)
        self.rng = rng

    def perturb(self, A: RealMatrix) -> RealMatrix:
        """Return a strategy near A."""
        rng = self.rng
        move = int(rng.integers(3))
        if move == 0:
            shaken = rng.uniform(size=A.shape) < 0.2
            return np.asarray(A + rng.choice([0.02, 0.1]) * rng.normal(size=A.shape) * shaken)
        if move == 1:
            A = np.delete(A, rng.choice(len(A), min(len(A) - 1, int(rng.integers(1, 4))), replace=False), 0)
        return np.vstack([A, *(self._bump() for _ in range(int(rng.integers(1, 5))))])

    def _bump(self) -> RealMatrix:
        rng = self.rng
        row = np.zeros(len(self.D))
        row[rng.integers(row.size)] = 1.0
        for _ in range(int(rng.integers(3))):
            row = (self.near @ row > 0).astype(np.float64)
        if rng.uniform() < 0.5:
            row = row * rng.uniform(0, 1, row.size)
        return np.asarray(rng.uniform(0.1, 0.5) * row @ self.D)[None]


FAMILY = Family(
    name=NAME, noise="laplace", structured=False, search=steps, applies=applies, turns=Turns(look=2, stale=25)
)
