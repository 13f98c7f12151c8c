"""The best weights of a given tree, by gradients: shares of a budget where every cell has one, else smooth lengths.

Ordinary differential privacy asks that the path from every cell through its root be no longer than 1, and bounded
privacy that no path between two cells be, for which paths of 1/2 to the root are enough. With every node taking a share
of what its ancestors have left, and the cells all the rest, both hold whatever the shares are: no constraint is left.
Elsewhere the loss is

    log E[z^T V z] + 2 log || lengths of the edges ||_q,      q rising,

over weights that are not negative: cells of a line, for one, end without any.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm_bf._types import AnyArray, IndexArray, RealVector
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.descent import HOPELESS, descend
from hdmm_bf.objectives.tree_plans import checked_tree, edge_paths, tree_plan
from hdmm_bf.objectives.trees_by_hand import SEARCH, Messages
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.transform import Problem


@final
@dataclass(frozen=True)
class Schedule:
    """How long to descend; tuned on chains and hierarchies of 64 to 1024 cells.

    Attributes:
        powers: q of every round with smooth lengths; at 5000 the error is within 1e-3 of what it tends to.
        steps: of the descent in a round.
        rounds: with shares, which need no q; each round chooses its grid anew.
        tolerance: a round ends when a step gains less than this share.
    """

    powers: tuple[float, ...] = (30.0, 150.0, 800.0, 4000.0)
    steps: int = 75
    rounds: int = 2
    tolerance: float = 1e-6


QUICK = Schedule(powers=(100.0,), steps=12, rounds=1, tolerance=1e-4)
FULL = Schedule()
DEEP = Schedule(powers=(300.0, 2000.0, 10000.0, 50000.0), steps=150, rounds=3, tolerance=1e-8)


def cell_budgets(policy: Policy) -> RealVector | None:
    """Return what the path from every cell to above its root may cost, where that is all a policy asks for.

    1 where all edges of a component go to BOTTOM, 1/2 where a component is complete; None for other policies.
    """
    components, edges = policy.components, policy.edges
    to_bottom = edges[:, 1] == BOTTOM
    count = np.bincount(components.labels[edges[:, 0]], minlength=components.count)
    grounded = np.bincount(components.labels[edges[to_bottom, 0]], minlength=components.count)
    complete = (components.ground != BOTTOM) & (count == components.sizes * (components.sizes - 1) // 2)
    star = (components.ground == BOTTOM) & (count == grounded)
    if not np.all(complete | star):
        return None
    return np.asarray(np.where(star, 1.0, 0.5)[components.labels])


def optimised(problem: Problem, parents: AnyArray, weights: AnyArray, schedule: Schedule = FULL) -> RealVector:
    """Return better weights for every node of a tree, from given ones; at a limit those that were reached."""
    budgets = cell_budgets(problem.policy)
    if budgets is not None:
        return Shares(problem, parents, budgets).optimised(np.asarray(weights, dtype=np.float64), schedule)
    return Lengths(problem, parents).optimised(np.asarray(weights, dtype=np.float64), schedule)


@final
class Lengths:
    """Descents with smooth lengths; weights may be tied in groups."""

    def __init__(self, problem: Problem, parents: AnyArray, groups: AnyArray | None = None) -> None:
        self.plan = tree_plan(problem, parents, groups)
        self.paths = edge_paths(problem.policy, parents, groups)
        self.turned = self.paths.T.tocsr()

    def optimised(self, weights: RealVector, schedule: Schedule = FULL) -> RealVector:
        """Return better weights, one for each group, with a longest edge of 1."""
        weights = self._scaled(np.maximum(weights, 0.0))
        for power in schedule.powers:
            if limits.ending():
                break
            grid = SEARCH.of(self.plan, weights)
            if not math.isfinite(grid[0]):
                break
            loss = functools.partial(self._loss, power=power, radius=grid[0], points=grid[1])
            found = descend(loss, weights, steps=schedule.steps, tolerance=schedule.tolerance, nonnegative=True)
            weights = self._scaled(found.parameters)
        return weights

    def _scaled(self, weights: RealVector) -> RealVector:
        return weights / max(float((self.paths @ weights).max(initial=0.0)), 1e-300)

    def _loss(self, weights: AnyArray, power: float, radius: float, points: int) -> tuple[float, AnyArray]:
        """Return the loss and its gradient; it does not change with the scale of the weights."""
        lengths = self.paths @ weights
        top = float(lengths.max(initial=0.0))
        if not top > 0:  # a step so long that no weight is left
            return HOPELESS, np.zeros_like(weights)
        messages = Messages(self.plan, weights / top, radius, points)
        if not 0 < messages.error < math.inf:
            return HOPELESS, np.zeros_like(weights)
        powered = (lengths / top) ** (power - 1)
        norm = float(powered @ lengths) / top
        slope = messages.slope() / messages.error + 2 * (self.turned @ powered) / norm
        return math.log(messages.error) + 2 * math.log(norm) / power, slope / top


@final
class Shares:
    """Descents in shares of what is left, for policies where every cell has a budget.

    w_v = f_v r_v with r_v = r_parent - w_parent, f = 1 at the cells and 1 / (1 + exp(-t)) at all other nodes.
    """

    def __init__(self, problem: Problem, parents: AnyArray, budgets: RealVector) -> None:
        forest = checked_tree(problem.policy, parents)
        self.plan, self.parents, self.n = tree_plan(problem, parents), forest.parents, problem.policy.num_cells
        self.public = forest.public
        self.budget = np.zeros(self.parents.size)  # at the roots
        self.budget[: self.n] = budgets
        depth = np.zeros(self.parents.size, dtype=np.int64)
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                self.budget[parent] = self.budget[node]
        for node in range(self.parents.size - 1, -1, -1):
            parent = self.parents[node]
            depth[node] = 0 if parent < 0 else depth[parent] + 1
        self.depths: list[IndexArray] = [np.flatnonzero(depth == d) for d in range(int(depth.max()) + 1)]

    def optimised(self, weights: RealVector, schedule: Schedule = FULL) -> RealVector:
        """Return better weights for every node."""
        logits = self.logits(weights)
        for _ in range(schedule.rounds):
            if limits.ending():
                break
            radius, points = SEARCH.of(self.plan, self.weights(logits)[0])
            loss = functools.partial(self._loss, radius=radius, points=points)
            found = descend(loss, logits, steps=schedule.steps, tolerance=schedule.tolerance)
            logits = found.parameters
        return self.weights(logits)[0]

    def logits(self, weights: RealVector) -> RealVector:
        """Return the shares, log(f / (1 - f)), that are nearest to given weights."""
        deepest = np.zeros(self.parents.size)  # what the paths below take at most
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                deepest[parent] = max(deepest[parent], deepest[node] + weights[node])
        share = weights / np.maximum(weights + deepest, 1e-300)
        share = np.clip(share, 1e-5, 1 - 1e-5)
        return np.asarray(np.log(share / (1 - share))[self.n :])

    def weights(self, logits: AnyArray) -> tuple[RealVector, RealVector, RealVector]:
        """Return weights, shares and what is left below every node."""
        share = np.ones(self.parents.size)
        share[self.n :] = 1 / (1 + np.exp(-np.clip(logits, -40.0, 40.0)))
        share[self.public] = 0.0
        weights, left = np.empty(share.size), np.empty(share.size)
        for level in self.depths:
            before = self._before(level, left)
            weights[level] = share[level] * before
            left[level] = before - weights[level]
        return weights, share, left

    def _before(self, level: IndexArray, left: RealVector) -> RealVector:
        parents = self.parents[level]
        return np.asarray(np.where(parents >= 0, left[parents], self.budget[level]))

    def _loss(self, logits: AnyArray, radius: float, points: int) -> tuple[float, AnyArray]:
        weights, share, left = self.weights(logits)
        messages = Messages(self.plan, weights, radius, points)
        if not 0 < messages.error < math.inf:
            return HOPELESS, np.zeros_like(logits)
        slope = messages.slope()
        by_left, by_share = np.zeros(share.size), np.zeros(share.size)
        for level in self.depths[::-1]:
            f, before = share[level], self._before(level, left)
            by_share[level] = (slope[level] - by_left[level]) * before
            passed, parents = slope[level] * f + by_left[level] * (1 - f), self.parents[level]
            by_left += np.bincount(parents[parents >= 0], passed[parents >= 0], share.size)
        by_logits = by_share * share * (1 - share)
        return math.log(messages.error), by_logits[self.n :] / messages.error
