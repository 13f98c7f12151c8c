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
from scipy.optimize import minimize

from hdmm_bf._types import Norm, RealMatrix, RealVector
from hdmm_bf.error import Draft, draft, edge_columns, trace_of_inverse
from hdmm_bf.transform import Problem

_LARGEST_ROWS = 20000
"""Hierarchies with more rows than this are left out: Kronecker products grow fast."""


def floors(problem: Problem, norm: Norm) -> Iterator[Draft]:
    """Yield every classical mechanism that fits the domain."""
    sizes = problem.policy.domain.sizes
    yield _vertex(problem, np.eye(problem.policy.num_cells), norm, "identity")
    yield _vertex(problem, _product([haar(s) for s in sizes]), norm, "wavelet (Privelet)")
    for name, branching in _branchings(max(sizes)):
        levels = [hierarchy(s, branching) for s in sizes]
        if math.prod(sum(len(level) for level in axis) for axis in levels) > _LARGEST_ROWS:
            continue
        yield _vertex(problem, _product([np.vstack(axis) for axis in levels]), norm, name)
        yield _weighted(problem, levels, norm, f"{name}, weights optimised")


def _branchings(size: int) -> list[tuple[str, int]]:
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


def _weighted(problem: Problem, levels: list[list[RealMatrix]], norm: Norm, origin: str) -> Draft:
    """Choose one weight a level (and attribute) for least error under the policy, by a derivative-free search."""
    axes = [np.concatenate([np.full(len(level), i) for i, level in enumerate(axis)]) for axis in levels]
    counts = [len(axis) for axis in levels]
    full = problem.grounding.columns(_product([np.vstack(axis) for axis in levels]))
    magnitudes = np.abs(edge_columns(problem, full)) ** (1 if norm == "L1" else 2)

    def scales(logs: RealVector) -> RealVector:
        parts = np.split(np.exp(np.clip(logs - logs.max(), -8.0, 0.0)), np.cumsum(counts)[:-1])
        return np.asarray(reduce(np.kron, [part[axis] for part, axis in zip(parts, axes, strict=True)]))

    def loss(logs: RealVector) -> float:
        weights = scales(logs)
        error = trace_of_inverse(full * weights[:, None], problem.gram)
        largest = (weights @ magnitudes).max() ** 2 if norm == "L1" else (weights**2 @ magnitudes).max()
        return math.log(float(largest)) + (math.log(error) if 0 < error < math.inf else 1e3)

    start = np.zeros(sum(counts))
    found = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 60 * start.size, "fatol": 1e-7})
    weights = scales(found.x)
    return draft(problem, "vertex", full * weights[:, None], norm=norm, origin=origin)
