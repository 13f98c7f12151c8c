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
from scipy.optimize import OptimizeResult, minimize

from hdmm_bf._types import Norm, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.objectives import limits
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft, edge_columns

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
        if not limits.ending():
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
    """Choose one weight a level (and attribute) for least error under the policy, by a derivative-free search.

    A search that a limit cuts short is no floor: its error is infinite.
    """
    axes = [np.concatenate([np.full(len(level), i) for i, level in enumerate(axis)]) for axis in levels]
    counts = [len(axis) for axis in levels]
    stacked = [np.vstack(axis) for axis in levels]
    full = problem.grounding.columns(_product(stacked))
    totals = _public_totals(problem)
    magnitudes = np.abs(edge_columns(problem, full)) ** (1 if norm == "L1" else 2)

    def scales(logs: RealVector) -> list[RealVector]:
        parts = np.split(np.exp(np.clip(logs - logs.max(), -8.0, 0.0)), np.cumsum(counts)[:-1])
        return [part[axis] for part, axis in zip(parts, axes, strict=True)]

    def loss(logs: RealVector) -> float:
        by_axis = scales(logs)
        weights = reduce(np.kron, by_axis)
        Y = reduce(np.kron, [_gram_inverse(R * w[:, None]) for R, w in zip(stacked, by_axis, strict=True)])
        error = grounded_trace(Y, problem.workload.gram, totals)
        largest = (weights @ magnitudes).max() ** 2 if norm == "L1" else (weights**2 @ magnitudes).max()
        return math.log(float(largest)) + (math.log(error) if 0 < error < math.inf else 1e3)

    def watch(intermediate_result: OptimizeResult) -> None:
        if limits.ending():
            raise StopIteration

    start = np.zeros(sum(counts))
    options = {"maxfev": 60 * start.size, "fatol": 1e-7}
    found = minimize(loss, start, method="Nelder-Mead", options=options, callback=watch)
    if limits.ending():
        return Draft("vertex", full, origin, math.inf)
    weights = reduce(np.kron, scales(found.x))
    return draft(problem, "vertex", full * weights[:, None], norm=norm, origin=origin)


def _public_totals(problem: Problem) -> RealMatrix:
    """Return one row a public total: 1 on the cells of its component."""
    grounding = problem.grounding
    return np.asarray(grounding.group == np.arange(grounding.given_up.size)[:, None], dtype=np.float64)


def _gram_inverse(A: RealMatrix) -> SquareMatrix:
    return np.asarray(np.linalg.inv(A.T @ A))


def grounded_trace(Y: SquareMatrix, V: SquareMatrix, totals: RealMatrix) -> float:
    """Return tr(V (A^T A)^-1) after grounding from Y = (A^T A)^-1 and V = W^T W over all cells.

    Grounding conditions on the public totals C x: Y becomes Y - Y C^T (C Y C^T)^-1 C Y. No factorisation of the size
    of the domain is needed, and Y is a Kronecker product where A is.
    """
    half = totals @ Y
    return float(np.vdot(V, Y) - np.vdot(np.linalg.solve(half @ totals.T, half), half @ V))
