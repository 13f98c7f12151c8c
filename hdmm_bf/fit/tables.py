"""Goals by table: one weight for each table of a workload that is a union of products.

With lam on the tables, sum 1, s_t the least scale and |t| the number of queries of table t,

    max_i s_i v_i >= sum_t lam_t s_t mean over i in t of v_i >= the bound on that weighted total

which is evaluated by factors like any other.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import RealVector
from hdmm_bf.matrix import Matrix, Stack, Weighted
from hdmm_bf.problem.transform import Problem


def tables(problem: Problem) -> tuple[Matrix, ...]:
    """Return the tables of a workload, in order."""
    matrix = problem.workload.matrix
    return matrix.blocks if isinstance(matrix, Stack) else (matrix,)


def weighted_tables(problem: Problem, lam: RealVector) -> Problem:
    """Return the total whose bound is the goal's: every table with its share."""
    scales = by_table(problem, problem.goal.scales(problem.workload))
    blocks = [
        Weighted(np.array([math.sqrt(share * float(scale.min()) / scale.size)]), table)
        for share, scale, table in zip(lam, scales, tables(problem), strict=True)
    ]
    heavy = Stack(tuple(blocks)) if isinstance(problem.workload.matrix, Stack) else blocks[0]
    return Problem(replace(problem.workload, times_weights=heavy), problem.policy)


def by_table(problem: Problem, values: RealVector) -> list[RealVector]:
    """Split what is known of every query by the table it is in."""
    return np.split(values, np.cumsum([table.shape[0] for table in tables(problem)])[:-1])


def check_tables(lam: RealVector, problem: Problem) -> None:
    """Refuse weights of tables that prove nothing."""
    count = len(tables(problem))
    if lam.shape != (count,):
        raise fail("certificate", f"{lam.size} weights of tables", f"there are {count} tables", "Give one for each.")
    if not np.all(np.isfinite(lam)) or np.any(lam < 0) or not lam.sum() > 0:
        raise fail("certificate", "weights of tables", "must be finite, not negative and not all zero", "Fit again.")
