"""Chains: single cells and all cells up to one, in the policy's order; for lines, thresholds, folded cycles.

A good chain is the same everywhere but near its ends. So two weights are found first, one for the cells and one for the
cuts; then the ends become free, cell by cell, and long lines are made of short ones: their ends are kept and their
middle is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.objectives import limits
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.laplace.stretching import shorter
from hdmm_bf.strategies.norm.drafts import TreeDraft, tree_draft
from hdmm_bf.strategies.norm.shapes import chain, ordered_components, planted
from hdmm_bf.strategies.norm.weights import DEEP, FULL, QUICK, Lengths, optimised
from hdmm_bf.strategies.registry import Family, Turns

NAME = "chain"


@final
@dataclass(frozen=True)
class Ends:
    """How much of a chain is free; measured on threshold 4 over 64 to 1024 cells.

    Attributes:
        reaches: free cells at each end, in multiples of the longest edge; 6 is within 1e-3 of all cells free.
        least: free cells at each end.
        short: cells of the short line that a long one is made of, where that is more than four ends.
    """

    reaches: int = 6
    least: int = 24
    short: int = 128

    def of(self, policy: Policy) -> int:
        """Return the number of free cells at each end."""
        return max(self.least, self.reaches * longest_span(policy))


_ENDS = Ends()


def longest_span(policy: Policy) -> int:
    """Return how many places apart the ends of an edge are at most, in the order of the chain."""
    place = np.empty(policy.num_cells, dtype=np.int64)
    place[np.concatenate(ordered_components(policy)).astype(np.int64)] = np.arange(policy.num_cells)
    inner = policy.edges[policy.edges[:, 1] != BOTTOM]
    return int(np.abs(np.diff(place[inner], axis=1)).max(initial=0))


def applies(problem: Problem) -> bool:
    """Problems whose edges are short along the chain."""
    policy = problem.policy
    if policy.num_cells > 2**13 or policy.num_edges > 40 * policy.num_cells or np.any(policy.edges[:, 1] == BOTTOM):
        return False
    return 2 * longest_span(policy) <= int(policy.components.sizes.max(initial=0))


def steps(problem: Problem, *, seed: int) -> Iterator[TreeDraft]:
    """Yield chains with two weights, with free ends, and with all weights free, as far as the length allows."""
    short = _shortened(problem)
    small = problem if short is None else short
    parents = planted(small.policy, chain)
    weights = _two_weights(small, parents)
    yield _draft(problem, small, parents, weights)
    for schedule in (FULL, DEEP):
        if limits.ending():
            return
        weights = optimised(small, parents, weights, schedule)
        yield _draft(problem, small, parents, weights)
    if short is None or limits.ending():
        return
    parents = planted(problem.policy, chain)
    weights = _stretched(weights, small.policy.num_cells, problem.policy.num_cells)
    groups = _groups(problem.policy, parents)
    tied = Lengths(problem, parents, groups)
    first = np.zeros(int(groups.max()) + 1)
    first[groups[::-1]] = weights[::-1]
    yield tree_draft(problem, parents, tied.optimised(first, QUICK)[groups], origin=NAME)


def _draft(problem: Problem, small: Problem, parents: IndexArray, weights: RealVector) -> TreeDraft:
    if small is problem:
        return tree_draft(problem, parents, weights, origin=NAME)
    weights = _stretched(weights, small.policy.num_cells, problem.policy.num_cells)
    return tree_draft(problem, planted(problem.policy, chain), weights, origin=NAME)


def _shortened(problem: Problem) -> Problem | None:
    """Return a shorter line on which the same chain can be found, or None."""
    cells = max(_ENDS.short, 4 * _ENDS.of(problem.policy))
    return shorter(problem, cells) if problem.policy.num_cells > 1.5 * cells else None


def _two_weights(problem: Problem, parents: IndexArray) -> RealVector:
    """Return the best weights that are equal on all cells and on all cuts; the first and last cell are cuts too."""
    n = problem.policy.num_cells
    groups = (np.arange(parents.size) >= n).astype(np.int64)
    groups[_outer(problem.policy)] = 2
    span = max(1, longest_span(problem.policy))
    first = np.array([0.25, 0.5 / span, 0.4]) if span > 1 else np.array([0.005, 0.99, 0.99])
    return np.asarray(Lengths(problem, parents, groups).optimised(first, QUICK)[groups])


def _outer(policy: Policy) -> list[int]:
    """Return the first and the last cell of every component."""
    return [cell for cells in ordered_components(policy) for cell in (cells[0], cells[-1])]


def _stretched(weights: RealVector, old: int, cells: int) -> RealVector:
    """Return the weights of a longer chain: both ends as they are, the middle cell and cut between them."""
    cuts = cells + weights.size - 1 - 2 * old
    return np.concatenate([_widened(weights[:old], cells), _widened(weights[old:-1], cuts), weights[-1:]])


def _widened(values: RealVector, length: int) -> RealVector:
    half = values.size // 2
    middle = np.full(length - 2 * half, np.median(values[half - half // 2 : half + half // 2 + 1]))
    return np.concatenate([values[:half], middle, values[values.size - half :]])


def _groups(policy: Policy, parents: IndexArray) -> IndexArray:
    """Return groups of weights: the nodes at both ends by themselves, all cells between as one, and all cuts."""
    free = _ENDS.of(policy)

    def grouped(length: int) -> IndexArray:
        return np.minimum(np.arange(length), free) + np.maximum(np.arange(length) - (length - free - 1), 0)

    cell, cut = grouped(policy.num_cells), grouped(parents.size - policy.num_cells)
    return np.concatenate([cell, cell.max() + 1 + cut])


FAMILY = Family(name=NAME, noise="norm", structured=False, search=steps, applies=applies, turns=Turns(look=2, stale=6))
