"""Local moves: from a good tree norm to a better tree, the weights found again after every move.

    join        two neighbouring children of a node get a node of their own
    dissolve    the children of a node go to its parent
    shift       the first or last child of a node goes to the neighbour on that side
    lift        the first or last child of a node becomes its neighbour

A move is kept where it lowers the error. Intervals stay intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import final

import numpy as np

from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.tree_plans import Children, checked_tree, tree_plan
from hdmm_bf.objectives.trees_by_hand import expected_error
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.norm.drafts import TreeDraft, tree_draft
from hdmm_bf.strategies.norm.weights import FULL, Schedule, optimised

_AFTER_MOVE = Schedule(powers=(2000.0,), steps=15, rounds=1, tolerance=1e-6)
_MOST_MOVES = 3
"""Moves made at once."""
_TRIES = 12
"""Trees tried for one draft."""
_GAIN = 2e-5
"""Share of the error by which a move must lower it: what two descents differ by."""


@final
class Pruned:
    """A tree under change: children in order, a weight for every node."""

    def __init__(self, problem: Problem, parents: IndexArray, weights: RealVector) -> None:
        self.n = problem.policy.num_cells
        self.children = {node: list(own) for node, own in enumerate(Children(parents, self.n).of) if own}
        self.above = dict(enumerate(parents.tolist()))
        self.weights = dict(enumerate(weights.tolist()))
        self.typical = float(np.median(weights[weights > 0])) if np.any(weights > 0) else 1.0
        self.count = parents.size

    def arrays(self) -> tuple[IndexArray, RealVector]:
        """Return parents and weights, children before their parents."""
        order = list(range(self.n))
        stack = [(root, False) for root, parent in self.above.items() if parent < 0 and root >= self.n]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            else:
                stack.append((node, True))
                stack.extend((child, False) for child in self.children[node] if child >= self.n)
        number = {node: k for k, node in enumerate(order)} | {-1: -1}
        parents = np.array([number[self.above[node]] for node in order])
        return parents, np.array([self.weights[node] for node in order])

    def move(self, rng: np.random.Generator) -> bool:
        """Make a random move; False where it is not possible."""
        inner = sorted(self.children)
        node = inner[int(rng.integers(len(inner)))]
        kind = int(rng.integers(4))
        if kind == 0:
            return self._join(node, int(rng.integers(max(1, len(self.children[node]) - 1))))
        if kind == 1:
            return self._dissolve(node)
        return self._shift(node, bool(rng.integers(2)), lift=kind == 3, into=bool(rng.integers(2)))

    def _join(self, node: int, at: int) -> bool:
        own = self.children[node]
        if len(own) < 3:
            return False
        self._pair(node, at)
        return True

    def _pair(self, node: int, at: int) -> None:
        own = self.children[node]
        new, pair = self.count, own[at : at + 2]
        self.count += 1
        self.children[new], self.above[new], self.weights[new] = pair, node, 0.3 * self.typical
        own[at : at + 2] = [new]
        for child in pair:
            self.above[child] = new

    def _dissolve(self, node: int) -> bool:
        parent = self.above[node]
        if parent < 0:
            return False
        siblings = self.children[parent]
        at = siblings.index(node)
        siblings[at : at + 1] = self.children[node]
        for child in self.children[node]:
            self.above[child] = parent
            self.weights[child] += self.weights[node]
        self._forget(node)
        return True

    def _shift(self, node: int, right: bool, *, lift: bool, into: bool) -> bool:
        parent = self.above[node]
        if parent < 0:
            return False
        siblings = self.children[parent]
        moved = self.children[node].pop(-1 if right else 0)
        at = siblings.index(node) + right
        siblings.insert(at, moved)
        self.above[moved] = parent
        neighbour = at + 1 if right else at - 1
        if not lift and 0 <= neighbour < len(siblings):
            other = siblings[neighbour]
            if into and other in self.children:
                siblings.pop(at)
                self.children[other].insert(0 if right else len(self.children[other]), moved)
                self.above[moved] = other
            else:
                self._pair(parent, min(at, neighbour))
        for shrunk in (node, parent):
            self._replace_single(shrunk)
        return True

    def _replace_single(self, node: int) -> None:
        """Put the only child of a node in its place."""
        if len(self.children[node]) > 1:
            return
        child, parent = self.children[node][0], self.above[node]
        if parent >= 0:
            self.children[parent][self.children[parent].index(node)] = child
        self.above[child] = parent
        self.weights[child] += self.weights[node]
        self._forget(node)

    def _forget(self, node: int) -> None:
        del self.children[node], self.above[node], self.weights[node]


def improved(problem: Problem, best: TreeDraft, *, seed: int) -> Iterator[TreeDraft]:
    """Yield the best tree norm after every dozen of trees tried; forever, until time is up."""
    rng = np.random.default_rng(seed)
    parents, weights = best.parents, best.weights
    public = int(checked_tree(problem.policy, parents).public.sum())
    if not np.any(parents >= 0):
        return
    error = expected_error(tree_plan(problem, parents), weights)
    while not limits.ending():
        moved = False
        for _ in range(_TRIES):
            if limits.ending():
                break
            tree = Pruned(problem, parents, weights)
            made = sum(tree.move(rng) for _ in range(int(rng.integers(1, _MOST_MOVES + 1))))
            if not made:
                continue
            new_parents, new_weights = tree.arrays()
            assert checked_tree(problem.policy, new_parents).public.sum() == public, "a component keeps its tree"
            new_weights = optimised(problem, new_parents, new_weights, _AFTER_MOVE)
            found = expected_error(tree_plan(problem, new_parents), new_weights)
            if found < error * (1 - _GAIN) and math.isfinite(found):
                parents, weights, error, moved = new_parents, new_weights, found, True
        if moved:
            draft = tree_draft(problem, parents, optimised(problem, parents, weights, FULL), origin=best.origin)
            if draft.error < best.error:
                best = draft
            parents, weights = draft.parents, draft.weights
            error = min(error, expected_error(tree_plan(problem, parents), weights))
        yield best
