"""Tree norms before they are shipped: parents, weights scaled to a longest policy edge of 1, and the unit error."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import AnyArray, IndexArray, RealVector, SparseMatrix
from hdmm_bf.objectives.tree_plans import checked_tree, edge_paths, tree_plan
from hdmm_bf.objectives.trees_by_hand import fine_error
from hdmm_bf.problem.transform import Problem

_NEGLIGIBLE = 0.01
"""Share of the median weight of sets at which a set is left out: it changed no error by more than 1e-4 of it."""

_DIGITS = 12
"""Digits to which weights count as equal, where the longest edge is 1."""


class TreeDraft(NamedTuple):
    """A tree norm in floating point.

    Attributes:
        parents: for every node its parent, a later node, or -1; the cells are the first nodes.
        weights: for every node; zero at the root of a component whose total is public. The longest policy edge is 1.
        error: unit error, epsilon^2 E[z^T V z] / 2 as epsilon tends to zero, to about 1e-5 of it.
        origin: the family that found it.
    """

    parents: IndexArray
    weights: RealVector
    error: float
    origin: str


def tree_draft(problem: Problem, parents: AnyArray, weights: AnyArray, *, origin: str) -> TreeDraft:
    """Leave sets without weight out, stretch weights as far as the policy allows, and compute the unit error.

    Weights that are infinite or hold nothing give an infinite error.
    """
    parents, weights = np.asarray(parents, dtype=np.int64), np.asarray(weights, dtype=np.float64)
    if not np.all(np.isfinite(weights)):
        return TreeDraft(parents, weights, math.inf, origin)
    weights = np.where(checked_tree(problem.policy, parents).public, 0.0, weights)
    weights = tightened(edge_paths(problem.policy, parents), weights)
    parents, weights = without_negligible(problem, parents, weights)
    paths = edge_paths(problem.policy, parents)
    weights = tightened(paths, weights)
    values, groups = np.unique(weights.round(_DIGITS), return_inverse=True)  # equal subtrees are computed once
    return TreeDraft(parents, weights, fine_error(tree_plan(problem, parents, groups), values), origin)


def tightened(paths: SparseMatrix, weights: RealVector) -> RealVector:
    """Return weights scaled to a longest edge of 1, and then as much larger as each can be by itself.

    Dividing every weight by the longest edge through it leaves no edge longer than 1:
    sum_v w_v / max_{e through v} l_e <= l_e / l_e. More weight is never more error.
    """
    lengths = paths @ weights
    top = float(lengths.max(initial=0.0))
    if not top > 0:
        return weights
    columns = paths.tocsc()
    through = np.full(weights.size, top)
    used = np.diff(columns.indptr) > 0
    longest = np.maximum.reduceat(lengths[columns.indices], columns.indptr[:-1][used])
    through[used] = np.maximum(longest, 1e-12 * top)
    return np.asarray(weights / through)


def without_negligible(problem: Problem, parents: IndexArray, weights: RealVector) -> tuple[IndexArray, RealVector]:
    """Leave inner nodes of negligible weight out: their children go to their parent, or become roots."""
    n, public = problem.policy.num_cells, checked_tree(problem.policy, parents).public
    inner = (np.arange(parents.size) >= n) & ~public
    gone = inner & (weights <= _NEGLIGIBLE * (np.median(weights[inner]) if np.any(inner) else 0.0))
    if not np.any(gone):
        return parents, weights
    above = parents.copy()
    for node in range(parents.size - 1, -1, -1):  # ancestors first: theirs are final
        if above[node] >= 0 and gone[above[node]]:
            above[node] = above[above[node]]
    number = np.append(np.cumsum(~gone) - 1, -1)
    return np.asarray(number[above[~gone]]), weights[~gone]
