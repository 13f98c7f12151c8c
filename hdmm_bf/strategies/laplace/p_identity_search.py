"""The search for the rows of p-identity strategies, at one size and from coarse to fine.

Two searches take turns. One is a race of descents from dense random rows, Theta >= 0 kept by bounds, first in the error
itself: that gives the first answers of large problems. The other goes from coarse to fine: fresh starts on a few dozen
columns, each column then standing for two, rows repeated and local ones added, a descent at every size. Perturbations
of the best follow each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, SquareMatrix
from hdmm_bf.objectives.descent import minimise, minimising, padded, value_and_gradient
from hdmm_bf.strategies.laplace import clusters as grouping

if TYPE_CHECKING:
    from hdmm_bf.objectives.grams import Gram

_PADDING = 8
"""Rows are filled up with zeros, so that one program serves nearly all descents of a size."""

_NEAR = 0.004
"""Distance in the logarithm of the error within which a perturbation is followed to its end."""

NEGLIGIBLE = 1e-3
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
        straight: steps of the parts of a descent from dense rows, which goes on with what it knows of the curvature.
        memory: corrections it keeps; with 15 a step took a third longer, and a run on 1024 prefixes stayed behind.
        lead: steps at a quarter and at half of the columns that lead to their starts.
        runners, runners_if_large: how many of them race; a single one in the first race of a large problem.
        least_gain: the share of the error that a part must gain for the descent to go on.
        races: one after the other on a problem that is not large; how good their ends are is a matter of luck.
        small: columns up to which a problem is not large in this.
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
    straight: tuple[int, ...] = (100, 100, 100, 100, 100, 100, 150, 200, 300, 400, 600, 900, 1300)
    lead: int = 20
    least_gain: float = 1e-5
    runners: int = 8
    races: int = 3
    runners_if_large: int = 3
    memory: int = 8
    small: int = 300
    largest_straight: int = 1500
    perturbations: int = 4


_SCHEDULE = Schedule()


class Level:
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

    def straight(self, roots: RealMatrix, parts: Sequence[int], *, log: bool) -> Iterator[tuple[float, RealMatrix]]:
        """Descend with bounds alone, in the error or in its logarithm; yield where every part ends, remember as above.

        Far from a minimum the error itself leads down faster; which of the two ends lower depends on the problem.
        """
        loss, memory = self.losses[1] if log else self.plain, self.schedule.memory
        start = self._padded(roots) ** 2
        for found in minimising(loss, start, parts=parts, nonnegative=True, tolerance=1e-10, memory=memory):
            value = found.value if log or math.isinf(found.value) else math.log(found.value)
            yield self._kept(value, np.sqrt(np.asarray(found.parameters)))

    def _padded(self, roots: RealMatrix) -> RealMatrix:
        while self._compiling:
            self._compiling.pop().result()
        return padded(roots, multiple=self.most_rows) if self.compiled else roots  # rows of zeros stay zero

    def _kept(self, value: float, rows: RealMatrix) -> tuple[float, RealMatrix]:
        rows = rows[(rows**2).max(axis=1) > NEGLIGIBLE]
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


class Search:
    """Coarse-to-fine descent in the roots of Theta, remembering the best.

    Attributes:
        settled: whether the first race is over.
        idle: whether the last round of all that is tried gained nothing.
    """

    @la.in_float64
    def __init__(self, V: Gram, dense: SquareMatrix, rng: np.random.Generator, schedule: Schedule = _SCHEDULE) -> None:
        self.rng, self.schedule = rng, schedule
        self.settled, self.idle = False, False
        self.levels = [Level(V, schedule, bounded=True)]
        while self.levels[0].n > schedule.coarsest:
            finer = self.levels[0]
            self.levels.insert(0, Level(finer.V.halved(), schedule, bounded=finer.n > schedule.large))
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
            turns = [self._race(finest, first=count == 0), self._pass(count)]
            if finest is self.levels[0]:
                turns.reverse()
            else:  # a pass takes long there
                races = self.schedule.races if finest.n <= self.schedule.small else 1
                more = [self._race(finest, first=False) for _ in range(races - 1)]
                turns[1:1] = [*more, self._perturbations(finest, signed=signed)]
            yield from itertools.chain(*turns, self._perturbations(finest, signed=signed))
            self.idle = count > 0 and finest.value > before - 1e-6
            count += 1

    def _race(self, level: Level, *, first: bool) -> Iterator[tuple[float, RealMatrix]]:
        """Descend from a few random starts, the worse half left out after every part; yield what is best so far.

        Where descents are after a few hundred steps tells how low they end: over 14 for prefixes of 256 cells the rank
        correlation was 0.6 after 100 steps, 0.9 after 200 and 0.98 after 300. One is also left out when it would not be
        the best of its size with another gain like the last. The end is yielded
        whatever it is.
        """
        schedule, n = self.schedule, level.n
        if n > schedule.largest_straight:
            return
        count = schedule.runners if n <= schedule.small else 1 if first else schedule.runners_if_large
        starts = [self._led_start(level) for _ in range(count)]
        running = {k: level.straight(start, schedule.straight, log=k % 4 == 3) for k, start in enumerate(starts)}
        last = dict.fromkeys(running, math.inf)
        value, roots = math.inf, starts[0]
        while running:
            best = level.value
            reached = {k: found for k, runner in running.items() if (found := next(runner, None)) is not None}
            order = sorted(reached, key=lambda k: reached[k][0])
            if order and reached[order[0]][0] < value:
                value, roots = reached[order[0]]
            promising = [k for k in order[: math.ceil(len(order) / 2)] if self._promises(level, reached[k][0], last[k])]
            last = {k: reached[k][0] for k in promising}
            running = {k: running[k] for k in promising}
            self.settled = self.settled or not running
            if value < best or not running:
                yield value, roots**2

    def _promises(self, level: Level, value: float, before: float) -> bool:
        """Whether a descent that came from one loss to another is worth another part."""
        gain = before - value
        return gain > self.schedule.least_gain and value - gain < level.value

    def _led_start(self, level: Level) -> RealMatrix:
        """Dense random rows; on problems that are not large a few steps at a quarter and half of the columns first.

        Of 14 starts on prefixes of 256 cells 8 ended within 0.3 % of the best such rows, and 3 without those steps.
        More steps there, or from an eighth on, ended worse: the rows come to fit the coarse columns.
        """
        schedule, n = self.schedule, level.n
        rows = max(1, round(n / schedule.columns_a_row))
        coarser = [] if n > schedule.small or level.compiled else self.levels[-3:-1]
        sizes = [*(half.n for half in coarser), n]
        Theta: RealMatrix = self.rng.uniform(0, 1, (rows, sizes[0]))
        for half, finer in zip(coarser, sizes[1:], strict=True):
            Theta = minimise(half.plain, Theta, steps=schedule.lead, nonnegative=True).parameters
            Theta = np.repeat(Theta, 2, axis=1)[:, :finer]
        return np.asarray(np.sqrt(Theta))

    def _perturbations(self, level: Level, *, signed: bool) -> Iterator[tuple[float, RealMatrix]]:
        """Perturb the best a few times; every second time signed rows are tried instead, if asked for."""
        for k in range(self.schedule.perturbations):
            if signed and k % 2 == 0:
                yield -math.inf, self._signed()
                continue
            value, roots = self._perturbed(level)
            yield value, roots**2

    def _pass(self, count: int) -> Iterator[tuple[float, RealMatrix]]:
        """From fresh starts on the coarsest level to descents on the finest; the best of the short ones comes first."""
        first, last, schedule = self.levels[0], self.levels[-1], self.schedule
        starts = [self._start(count * schedule.starts + k) for k in range(schedule.starts)]
        ends = [first.descend(starts[0], schedule.long)]
        if first is last:
            yield ends[0][0], ends[0][1] ** 2
        ends += [first.descend(start, schedule.long) for start in starts[1:]]
        beam = _different(ends)[: schedule.beam]
        for level in self.levels[1:]:
            is_large = level.n > schedule.large
            trials_here = max(2, schedule.trials * 256 // level.n)
            each = math.ceil(trials_here / len(beam))
            refined = [self._refined(roots, level) for _, roots in beam for _ in range(each)]
            trials = _different([level.descend(roots, schedule.short) for roots in refined])
            if level is last:
                yield trials[0][0], trials[0][1] ** 2
            best = trials[: 1 if is_large else schedule.beam]
            steps = schedule.last if level is last else schedule.long
            beam = _different([level.descend(roots, steps) for _, roots in best])
        yield beam[0][0], beam[0][1] ** 2

    def _refined(self, roots: RealMatrix, level: Level) -> RealMatrix:
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

    def _perturbed(self, level: Level) -> tuple[float, RealMatrix]:
        """Descend from the best with rows removed, added or shaken; on, where it comes near."""
        best, schedule = level.value, self.schedule
        if level.n <= schedule.small:  # squares and bounds in turn get further, where steps are cheap
            found = level.descend(self._moved(level), 2 * schedule.short)
            return level.descend(found[1], 2 * schedule.long, tolerance=1e-10) if found[0] < best + _NEAR else found
        descent = level.straight(self._moved(level), (2 * schedule.short, 2 * schedule.long), log=True)
        found = next(descent)
        return next(descent, found) if found[0] < best + _NEAR else found

    def _moved(self, level: Level) -> RealMatrix:
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
