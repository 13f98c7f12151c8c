"""Classical mechanisms of ordinary differential privacy, as vertex strategies over all cells in their order.

Identity, hierarchies of intervals (with equal and with optimised level weights, and with HB's branching factor),
and the Haar wavelet (Privelet). Over several attributes they are Kronecker products. Under a policy they are
measured with that policy's sensitivity, and the public totals are used, because the columns are grounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import Norm, RealMatrix
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.descent import minimise
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft

WEIGHTED = ", weights optimised"

_SMOOTHING, _STEPS = (1e-9, 200.0), 40
"""Of the sensitivity while weights are chosen, nearly the largest; and steps of the descent."""

_LARGEST_ROWS = 20000
"""Hierarchies with more rows than this are left out: Kronecker products grow fast."""


def floors(problem: Problem, norm: Norm) -> Iterator[Draft]:
    """Yield every classical mechanism that fits the domain; those with optimised weights last."""
    sizes = problem.policy.domain.sizes
    yield _vertex(problem, np.eye(problem.policy.num_cells), norm, "identity")
    yield _vertex(problem, _product([haar(s) for s in sizes]), norm, "wavelet (Privelet)")
    hierarchies = [(name, [hierarchy(s, branching) for s in sizes]) for name, branching in branchings(max(sizes))]
    small = [(name, axes) for name, axes in hierarchies if math.prod(sum(map(len, a)) for a in axes) <= _LARGEST_ROWS]
    for name, axes in small:
        yield _vertex(problem, _product([np.vstack(axis) for axis in axes]), norm, name)
    for name, axes in small:
        if not limits.ending():
            yield _weighted(problem, axes, norm, f"{name}{WEIGHTED}")


def branchings(size: int) -> list[tuple[str, int]]:
    """Binary, and HB's choice: the branching b that minimises (b - 1) h^3 with h = ceil(log_b size)."""
    if size < 3:
        return []

    def cost(b: int) -> int:
        return (b - 1) * math.ceil(math.log(size) / math.log(b) - 1e-9) ** 3

    best = min(range(2, size + 1), key=cost)
    return [("hierarchy of 2", 2)] + ([(f"HB, hierarchy of {best}", best)] if best != 2 else [])


def _vertex(problem: Problem, matrix: RealMatrix, norm: Norm, origin: str) -> Draft:
    return draft(problem, "vertex", problem.grounding.columns(matrix), norm=norm, origin=origin)


def _product(factors: list[RealMatrix]) -> RealMatrix:
    return np.asarray(reduce(np.kron, factors), dtype=np.float64)


def haar(size: int) -> RealMatrix:
    """Return the Haar wavelet on `size` cells with Privelet's weights: the total, then every halving."""
    rows = [np.ones(size)]

    def split(start: int, stop: int) -> None:
        if stop - start < 2:
            return
        middle = (start + stop + 1) // 2
        row = np.zeros(size)
        row[start:middle], row[middle:stop] = 1.0, -1.0
        rows.append(row)
        split(start, middle)
        split(middle, stop)

    split(0, size)
    return np.array(rows)


def hierarchy(size: int, branching: int) -> list[RealMatrix]:
    """Return the levels of a tree of intervals, from single cells up to the total."""
    levels, width = [], 1
    while True:
        count = math.ceil(size / width)
        levels.append((np.arange(size) // width == np.arange(count)[:, None]).astype(np.float64))
        if count == 1:
            return levels
        width *= branching


@la.in_float64
def _weighted(problem: Problem, levels: list[list[RealMatrix]], norm: Norm, origin: str) -> Draft:
    """Choose one weight per level (and attribute) for least error under the policy, by descent from equal ones."""
    from hdmm_bf.objectives.measures import total
    from hdmm_bf.objectives.parametrisations import LevelWeights

    axes = [np.repeat(np.arange(len(axis)), [len(level) for level in axis]) for axis in levels]
    full = problem.grounding.columns(_product([np.vstack(axis) for axis in levels]))
    weighted = LevelWeights.of(full, axes)
    loss = total(problem, norm=norm, smoothing=_SMOOTHING, log=True).of(weighted)
    found = minimise(loss, weighted.init(), steps=_STEPS, tolerance=1e-7).parameters
    return draft(problem, "vertex", np.asarray(weighted.strategy(found).dense()), norm=norm, origin=origin)
