"""Public groups: where one tree, on the attributes with edges, is searched for all groups at once."""

from __future__ import annotations

from hdmm_bf.problem.groups import are_alike, hidden_axes, problem_within
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.norm.queries import tree_of_queries
from hdmm_bf.strategies.norm.shapes import LARGEST_COVARIANCE, LARGEST_SEARCHED

_FEW_CELLS = 64
"""Cells up to which trees are searched for all groups together."""


def grouped_axes(problem: Problem) -> tuple[int, ...] | None:
    """Return the attributes to search a tree on that serves every public group; None to search all cells.

    Where groups are asked for alike, and no set of a tree could hold cells of two, one tree is the best. On domains
    that are too large for all cells together it is what can be had.
    """
    policy = problem.policy
    axes = hidden_axes(policy) if policy.num_cells > _FEW_CELLS and problem.goal.kind == "total" else None
    if axes is None or (not policy.has_bottom and are_alike(problem, axes)):
        return axes
    if policy.num_cells <= LARGEST_COVARIANCE:
        return None
    return axes if policy.num_cells > LARGEST_SEARCHED or tree_of_queries(problem) is None else None


def searched(problem: Problem) -> Problem:
    """Return the problem that trees are searched for: that within a group, where there are groups."""
    axes = grouped_axes(problem)
    return problem if axes is None else problem_within(problem, axes)
