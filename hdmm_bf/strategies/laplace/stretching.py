"""Strategies for long lines from those for shorter ones: under a threshold policy what is good is good everywhere.

A row of a good strategy for ranges or prefixes is a step or a bump: its differences from cell to cell are near one
place. A longer line is cut open in the middle, and the rows whose place is just left of the cut are repeated, shifted,
until the gap is filled. Steps come at equal distances; pieces of a multiple of 12 cells keep 2, 3, 4, 6 and 12.
"""

from __future__ import annotations

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._types import RealMatrix
from hdmm_bf.bounds.products.resizing import resized
from hdmm_bf.problem.transform import Problem

PIECE = 12


def short_length(cells: int, about: int) -> int:
    """Return the length of a shorter line that differs by whole pieces."""
    return about + (cells - about) % PIECE


def shorter(problem: Problem, cells: int) -> Problem | None:
    """Return the same workload and threshold on a shorter line, or None where that has no meaning."""
    policy, old = problem.policy, problem.policy.num_cells
    if policy.domain.num_attributes > 1 or policy.has_bottom or not policy.num_edges or cells >= old:
        return None
    reach = int((policy.edges[:, 1] - policy.edges[:, 0]).max())
    if 2 * reach >= cells or not np.array_equal(policy.edges, policies.threshold(old, reach).edges):
        return None
    matrix = resized(problem.workload.objective, cells)
    return None if matrix is None else Problem(workloads.from_matrix(matrix), policies.threshold(cells, reach))


def stretched(A: RealMatrix, cells: int) -> RealMatrix:
    """Return a strategy over the kept cells of a line of `cells` from one over those of a shorter line.

    The last cell of a line is the one given up, so its column is zero.
    """
    old = A.shape[1] + 1
    steps = np.diff(np.hstack([A, np.zeros((len(A), 1))]), axis=1)
    sizes = steps**2  # squares, because small entries far away must not move the place
    place = (sizes @ np.arange(old - 1)) / np.maximum(sizes.sum(axis=1), 1e-300)
    middle, missing = old // 2, cells - old
    ends = np.append(np.arange(0, missing, PIECE * max(1, old // (4 * PIECE))), missing)
    parts = [_shifted(steps[place < middle], 0, cells)]
    for begin, end in zip(ends[:-1], ends[1:], strict=True):
        repeated = steps[(place >= middle - (end - begin)) & (place < middle)]
        parts.append(_shifted(repeated, int(end), cells))
    parts.append(_shifted(steps[place >= middle], missing, cells))
    return -np.cumsum(np.vstack(parts)[:, ::-1], axis=1)[:, ::-1]


def _shifted(steps: RealMatrix, by: int, cells: int) -> RealMatrix:
    found = np.zeros((len(steps), cells - 1))
    width = min(steps.shape[1], cells - 1 - by)
    found[:, by : by + width] = steps[:, :width]
    return found
