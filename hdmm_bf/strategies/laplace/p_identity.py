"""p-Identity on the edges: S = [I; Theta] with every column scaled to L1 norm 1.

On forests P_G is square, so this is ordinary differential privacy over the edges and, with every entry polished at
the end, the whole class of strategies. Off forests S is an edge strategy of full column rank, for policies with few
edges. Theta >= 0 is written as a square, or kept by bounds; edges are turned so that the workload's correlations are
mostly positive.

Two searches take turns. One descends straight from dense random rows, Theta >= 0 kept by bounds. The other goes from
coarse to fine: fresh starts on a few dozen columns, each column then standing for two, rows repeated and local ones
added, a descent at every size. Where the columns have no order of their own they are put in that of the workload's
second eigenvector. Perturbations of the best follow, then all of it again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import IndexArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.objectives.descent import minimise, padded, value_and_gradient
from hdmm_bf.parallel.devices import Mesh
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft, edge_gram
from hdmm_bf.strategies.laplace import clusters as grouping
from hdmm_bf.strategies.registry import Family, Turns

if TYPE_CHECKING:
    from hdmm_bf.objectives.grams import Gram

NAME = "p-identity"

LARGEST_EDGES = 1100
MOST_EDGES_A_CELL = 2.5
"""Off forests the family is asked only for graphs with few edges: on denser ones it never won."""

_MIXED = 0.05
"""Share of negative correlation from which signed rows are tried as well."""

_PADDING = 8
"""Rows are filled up with zeros, so that one program serves nearly all descents of a size."""

_LARGEST_POLISH = 300
"""Columns up to which every entry is freed at the end: a descent factors a matrix of that size at every step."""

_NEGLIGIBLE = 1e-3
"""Rows whose largest entry is smaller are left out."""


@final
@dataclass(frozen=True)
class Schedule:
    """How much is tried at which size; tuned on ranges and prefixes of 64 to 1024 cells under unbounded privacy.

    Attributes:
        coarsest: columns at most of the coarsest level.
        starts: fresh starts there in every pass; each takes 0.05 s.
        beam: how many different ends of them are carried on.
        columns_a_row: columns for every row that is kept: at 1024 cells 8 and 24 were worse than 16.
        trials: ways of adding rows that are tried at a finer level, for a short descent each; fewer where it is large.
        short, long, last: steps of a trial, of the descents of the best of them that follow, and of those at full size.
        large: columns from which one of them is enough.
        straight: steps of the parts of a descent from dense rows; the end of each is yielded.
        small: columns up to which they come after the way from coarse to fine, and in one part.
        largest_straight: columns up to which there are any.
        perturbations: of the best, between two passes.
    """

    coarsest: int = 64
    starts: int = 9
    beam: int = 3
    columns_a_row: int = 16
    trials: int = 6
    short: int = 60
    long: int = 200
    last: int = 400
    large: int = 600
    straight: tuple[int, ...] = (100, 150, 250, 500, 1000)
    small: int = 300
    largest_straight: int = 1500
    perturbations: int = 4


_SCHEDULE = Schedule()


def applies(problem: Problem) -> bool:
    """Whether the graph is a forest or has few edges."""
    most = min(LARGEST_EDGES, MOST_EDGES_A_CELL * problem.grounding.kept.size)
    return problem.policy.is_forest or problem.policy.num_edges <= most


def alone(problem: Problem) -> bool:
    """Whether P is square, so that edge strategies are all there is."""
    return problem.policy.is_forest


def steps(problem: Problem, *, seed: int, mesh: Mesh | None = None) -> Iterator[Draft]:
    """Yield the best strategy after every pass or perturbation, forever.

    On a mesh V is spread by its rows. Signed rows and the polish factor a matrix over the edges and stay on one device.
    """
    columns = _columns(problem, mesh)
    best = columns.draft(problem, np.zeros((0, columns.V.n)))
    yield best
    search = _Search(columns.V, columns.dense, np.random.default_rng(seed))
    polished = math.inf
    for value, Theta in search.found(signed=columns.mixed):
        if value < math.log(best.error / columns.scale):  # what Woodbury's formula says is checked by the plain one
            best = min(best, columns.draft(problem, Theta), key=lambda d: d.error)
        yield best
        if search.idle and columns.V.n <= _LARGEST_POLISH and best.error < polished * (1 - la.AGREEMENT):
            best = min(best, free_polish(problem, best), key=lambda d: d.error)
            polished = best.error
            yield best


class Columns(NamedTuple):
    """The columns that are measured, in the order of the search.

    Attributes:
        V: the Gram matrix over them, turned and scaled.
        dense: the same, written out.
        scale: V times this is the problem's.
        order: which column of the problem stands at each place.
        flip: its sign.
        mixed: whether correlations of both signs are left.
    """

    V: Gram
    dense: SquareMatrix
    scale: float
    order: IndexArray
    flip: RealVector
    mixed: bool

    def draft(self, problem: Problem, Theta: RealMatrix) -> Draft:
        """Return [I; Theta] over the problem's edges, its columns scaled; rows that vanished are left out."""
        rows = Theta[np.abs(Theta).max(axis=1, initial=0) > _NEGLIGIBLE]
        own = np.zeros_like(rows)
        own[:, self.order] = rows * self.flip
        S = np.vstack([np.eye(own.shape[1]), own])
        return draft(problem, "edge", S / np.abs(S).sum(axis=0), norm="L1", origin=NAME)


@la.in_float64
def _columns(problem: Problem, mesh: Mesh | None) -> Columns:
    """V over the edges: acting fast where it has a closed form without negative entries, else written out, turned."""
    import jax.numpy as jnp

    from hdmm_bf.objectives import grams

    dense = edge_gram(problem)
    scale, n = float(np.mean(np.diag(dense))), len(dense)
    dense = dense / scale
    if mesh is None and np.all(dense >= 0):
        V = grams.SumGram((grams.problem_gram(problem, "edges"),), jnp.asarray([1 / scale]))
        return Columns(V, dense, scale, np.arange(n), np.ones(n), False)
    flip = positive_signs(dense)
    dense = flip[:, None] * dense * flip
    order = _seriation(dense)
    dense = dense[np.ix_(order, order)]
    mixed = bool(np.minimum(dense, 0).sum() < -_MIXED * np.abs(dense).sum())
    if mesh is not None:
        from hdmm_bf.parallel.grams import spread_gram

        return Columns(spread_gram(dense, mesh), dense, scale, order, flip[order], mixed)
    return Columns(grams.DenseGram(jnp.asarray(dense)), dense, scale, order, flip[order], mixed)


def _seriation(V: SquareMatrix) -> IndexArray:
    """Put like columns side by side: the order of the Fiedler vector of their correlations, or as they are if good."""
    spread = np.sqrt(np.diag(V))
    spread[spread == 0] = 1.0
    near = np.maximum(V / np.outer(spread, spread), 0.0)
    np.fill_diagonal(near, 0.0)
    laplacian = np.diag(near.sum(axis=0)) - near
    order = np.argsort(la.eigen(laplacian)[1][:, 1], kind="stable") if len(V) > 2 else np.arange(len(V))
    beside = np.arange(len(V) - 1)
    as_is, sorted_ = near[beside, beside + 1].sum(), near[order[:-1], order[1:]].sum()
    return order if sorted_ > 1.05 * as_is else np.arange(len(V))


def free_polish(problem: Problem, best: Draft) -> Draft:
    """Return the strategy that a descent with every entry free reaches from the best."""
    from hdmm_bf.objectives.measures import total
    from hdmm_bf.objectives.parametrisations import UnitColumns, split

    A = best.matrix
    loss = total(problem, norm=None, over="edges", log=True).of(UnitColumns(*A.shape))
    found = minimise(loss, split(A), steps=300, nonnegative=True, tolerance=1e-11).parameters
    A = np.asarray(found.positive) - np.asarray(found.negative)
    return draft(problem, "edge", A / np.abs(A).sum(axis=0), norm="L1", origin=f"{NAME}, all entries free")


def positive_signs(V: SquareMatrix) -> RealVector:
    """Return signs s that make s^T V s large: one-flip ascent from the leading eigenvector."""
    if np.all(V >= 0):
        return np.ones(len(V))
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


class _Level:
    """One size: its Gram matrix and the best roots found at it."""

    def __init__(self, V: Gram, schedule: Schedule, *, bounded: bool) -> None:
        from hdmm_bf.objectives import by_hand, measures, parametrisations

        self.V, self.n, self.schedule = V, V.n, schedule
        self.most_rows = _PADDING * (1 + max(1, self.n // (_PADDING * schedule.columns_a_row)))
        total, parametrisation = measures.total_of(V), parametrisations.PIdentity
        self.losses = {power: total.of(parametrisation(0, self.n, power)) for power in ((2, 1) if bounded else (2,))}
        self.plain = measures.total_of(V, log=False).of(parametrisation(0, self.n, 1))
        self.compiled = by_hand.acting(V) is None
        self.roots, self.value = np.zeros((0, self.n)), math.inf
        self._compiling: list[Future[Any]] = []

    def compile(self, executor: Executor) -> None:
        """Compile the programs of this size in another thread, while smaller ones are searched."""
        rows = np.zeros((self.most_rows, self.n))
        self._compiling = [executor.submit(value_and_gradient, loss, rows) for loss in self.losses.values()]

    def descend(self, roots: RealMatrix, steps: int, tolerance: float = 1e-9) -> tuple[float, RealMatrix]:
        """Descend from roots; remember the end if it is the best of this size.

        Squares make way first; with bounds the descent gets further, where there are many steps to take.
        """
        rounds = [(2, steps)] if 1 not in self.losses or steps < self.schedule.long else _mixed_rounds(steps)
        value, rows = math.inf, self._padded(roots)
        for power, count in rounds:
            found = minimise(
                self.losses[power], rows ** (2 / power), steps=count, tolerance=tolerance, nonnegative=power == 1
            )
            value, rows = found.value, np.abs(np.asarray(found.parameters)) ** (power / 2)
        return self._kept(value, rows)

    def straight(self, roots: RealMatrix, steps: int, *, log: bool) -> tuple[float, RealMatrix]:
        """Descend from dense roots with bounds alone, in the error or in its logarithm; remember as above.

        Far from a minimum the error itself leads down faster; which of the two ends lower depends on the problem.
        """
        loss = self.losses[1] if log else self.plain
        found = minimise(loss, self._padded(roots) ** 2, steps=steps, tolerance=1e-9, nonnegative=True)
        value = found.value if log or math.isinf(found.value) else math.log(found.value)
        return self._kept(value, np.sqrt(np.asarray(found.parameters)))

    def _padded(self, roots: RealMatrix) -> RealMatrix:
        while self._compiling:
            self._compiling.pop().result()
        return padded(roots, multiple=self.most_rows) if self.compiled else roots  # rows of zeros stay zero

    def _kept(self, value: float, rows: RealMatrix) -> tuple[float, RealMatrix]:
        rows = rows[(rows**2).max(axis=1) > _NEGLIGIBLE]
        if value < self.value:
            self.value, self.roots = value, rows
        return value, rows


def _mixed_rounds(steps: int) -> list[tuple[int, int]]:
    """Squares and bounds in turn, the bounds longer."""
    short = steps // 10
    return [(2, short), (1, 3 * short), (2, short), (1, steps - 5 * short)]


def _different(ends: list[tuple[float, RealMatrix]]) -> list[tuple[float, RealMatrix]]:
    """Sort the ends of descents, and keep one of those with the same loss."""
    kept: list[tuple[float, RealMatrix]] = []
    for value, roots in sorted(ends, key=lambda end: end[0]):
        if not kept or value > kept[-1][0] + 1e-4:
            kept.append((value, roots))
    return kept


class _Search:
    """Coarse-to-fine descent in the roots of Theta, remembering the best."""

    @la.in_float64
    def __init__(self, V: Gram, dense: SquareMatrix, rng: np.random.Generator, schedule: Schedule = _SCHEDULE) -> None:
        self.rng, self.schedule, self.idle = rng, schedule, False
        self.levels = [_Level(V, schedule, bounded=True)]
        while self.levels[0].n > schedule.coarsest:
            finer = self.levels[0]
            self.levels.insert(0, _Level(finer.V.halved(), schedule, bounded=finer.n > schedule.large))
        stride = 2 ** (len(self.levels) - 1)
        self.points = grouping.embedding(dense[::stride, ::stride])
        if self.levels[-1].compiled:
            executor = ThreadPoolExecutor(1)
            for level in self.levels[1:]:
                level.compile(executor)
            executor.shutdown(wait=False)

    def found(self, *, signed: bool) -> Iterator[tuple[float, RealMatrix]]:
        """Yield the loss and the rows that every pass and perturbation ends at, forever."""
        count, finest = 0, self.levels[-1]
        while True:
            before = finest.value
            turns = [self._straight(finest), self._pass(count)]
            for value, roots in itertools.chain(*(turns[::-1] if finest.n <= self.schedule.small else turns)):
                yield value, roots**2
            for k in range(self.schedule.perturbations):
                if signed and k % 2 == 0:
                    yield -math.inf, self._signed()
                    continue
                value, roots = self._perturbed(finest)
                yield value, roots**2
            self.idle = count > 0 and finest.value > before - 1e-6
            count += 1

    def _straight(self, level: _Level) -> Iterator[tuple[float, RealMatrix]]:
        """From dense random rows at full size, with bounds: in the logarithm of the error, and in the error itself."""
        schedule, n = self.schedule, level.n
        if n > schedule.largest_straight:
            return
        shape = max(1, round(n / schedule.columns_a_row)), n
        parts = (sum(schedule.straight),) if n <= schedule.small else schedule.straight
        for log in (True, False):
            roots = np.sqrt(self.rng.uniform(0, 1, shape))
            for steps in parts:
                value, roots = level.straight(roots, steps, log=log)
                yield value, roots

    def _pass(self, count: int) -> Iterator[tuple[float, RealMatrix]]:
        """From fresh starts on the coarsest level to descents on the finest; the best of the short ones comes first."""
        first, last, schedule = self.levels[0], self.levels[-1], self.schedule
        starts = [self._start(count * schedule.starts + k) for k in range(schedule.starts)]
        ends = [first.descend(starts[0], schedule.long)]
        if first is last:
            yield ends[0]
        ends += [first.descend(start, schedule.long) for start in starts[1:]]
        beam = _different(ends)[: schedule.beam]
        for level in self.levels[1:]:
            is_large = level.n > schedule.large
            trials_here = max(2, schedule.trials * 256 // level.n)
            each = math.ceil(trials_here / len(beam))
            refined = [self._refined(roots, level) for _, roots in beam for _ in range(each)]
            trials = _different([level.descend(roots, schedule.short) for roots in refined])
            if level is last:
                yield trials[0]
            best = trials[: 1 if is_large else schedule.beam]
            steps = schedule.last if level is last else schedule.long
            beam = _different([level.descend(roots, steps) for _, roots in best])
        yield beam[0]

    def _refined(self, roots: RealMatrix, level: _Level) -> RealMatrix:
        """Every column for two, and rows added around places of their own."""
        rng, roots = self.rng, np.repeat(roots, 2, axis=1)[:, : level.n]
        more = max(1, math.ceil(level.n / self.schedule.columns_a_row) - len(roots))
        return np.vstack([roots, np.sqrt(self._hats(level.n, more, rng.uniform(0.6, 1.6)))])

    def _hats(self, n: int, count: int, width: float) -> RealMatrix:
        """Rows that rise and fall around places spread over the columns, rough and over a little of everything."""
        rng = self.rng
        reach = width * n / count
        middle = (np.arange(count) + rng.uniform(0, 1, count)) * n / count
        hats = np.maximum(0, 1 - np.abs(np.arange(n) - middle[:, None]) / reach)
        rough = rng.uniform(0, 1, hats.shape) if rng.uniform() < 0.5 else 0.5
        return np.asarray(hats * rough + 0.03 * rng.uniform(0, 1, hats.shape))

    def _start(self, count: int) -> RealMatrix:
        """Fresh rows on the coarsest level: dense random ones, soft clusters, hats, or more on the best."""
        rng, level = self.rng, self.levels[0]
        n = level.n
        few = max(1, round(n / self.schedule.columns_a_row))
        kind = count % 4
        if kind == 0:
            return np.asarray(rng.uniform(0, 1, (max(1, few + int(rng.integers(-1, 3))), n)))
        if kind == 1:
            return np.asarray(np.sqrt(self._hats(n, int(rng.integers(1, 2 * few + 2)), rng.uniform(0.6, 2.5))))
        if kind == 2 or not len(level.roots):
            most = math.log(max(3, n / 4))
            sizes = np.exp(rng.uniform(math.log(2), most, int(rng.integers(1, 4)))).astype(int)
            sizes = sizes[np.cumsum(sizes) <= max(level.most_rows, int(sizes[0]))]
            rows = np.vstack([self._clusters(int(size)) for size in sorted(set(sizes.tolist()))])
            return np.asarray(np.sqrt(rows**2 + rng.choice([0.01, 0.1]) * rng.uniform(0, 1, rows.shape)))
        return self._moved(level)

    def _perturbed(self, level: _Level) -> tuple[float, RealMatrix]:
        """Descend from the best with rows removed, added or shaken; on, where it comes near."""
        best = level.value
        value, roots = level.descend(self._moved(level), self.schedule.short * 2)
        if value < best + 0.004:
            value, roots = level.descend(roots, 2 * self.schedule.long, tolerance=1e-10)
        return value, roots

    def _moved(self, level: _Level) -> RealMatrix:
        rng, rows = self.rng, level.roots.copy()
        move = int(rng.integers(4)) if len(rows) else 0
        if move in (1, 2):
            rows = np.delete(rows, rng.choice(len(rows), min(len(rows), int(rng.integers(1, 3))), replace=False), 0)
        if move in (0, 2) or len(rows) == 0:
            rows = np.vstack([rows, *(self._hat(level.n) for _ in range(int(rng.integers(1, 4))))])
        if move == 3:
            rows = np.sqrt(rows**2 + rng.choice([0.05, 0.2, 0.5]) * rng.uniform(0, 1, rows.shape) ** 2)
        return np.asarray(rows)

    def _hat(self, n: int) -> RealMatrix:
        rng = self.rng
        reach = math.exp(rng.uniform(math.log(1.5), math.log(max(2.0, n / 3))))
        hat = np.maximum(0, 1 - np.abs(np.arange(n) - rng.uniform(0, n)) / reach)
        return np.asarray(np.sqrt(rng.uniform(0.3, 1.0) * hat)[None])

    def _clusters(self, count: int) -> RealMatrix:
        label = grouping.clusters(self.points, count, self.rng)
        rows = np.zeros((count, len(self.points)))
        rows[label, np.arange(len(self.points))] = self.rng.uniform(0.4, 1.0)
        return rows

    def _signed(self) -> RealMatrix:
        """Signed rows on the finest level, whatever its size, by cell budgets with one for each column."""
        from hdmm_bf.objectives import parametrisations

        rng, level = self.rng, self.levels[-1]
        q = int(rng.integers(1, 9))
        rows = rng.uniform(-1, 1, (q, level.n))
        rows = padded(rows * rng.choice([0.5, 1.0, 2.0]), multiple=_PADDING)
        loss = level.losses[2].objective.of(parametrisations.ungrounded(level.n, len(rows)))
        found = minimise(loss, parametrisations.split(rows), steps=400, nonnegative=True).parameters
        return np.asarray(found.positive - found.negative)


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=False,
    search=steps,
    applies=applies,
    alone=alone,
    spreads=True,
    turns=Turns(look=9, stale=96),
)
