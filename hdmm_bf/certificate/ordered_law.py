"""Errors of prefixes and ranges on trees of intervals, without covariances of all pairs.

Such workloads have V_ij = sum_t f_t(i) g_t(j) for i < j. With messages from the leaves up, as in `tree_law`,

    x_f(s) = m(s) E[sum_i f_i z_i | z(v) = s]      for every f and g,
    q(s)   = m(s) E[z^T V z of the cells below v | z(v) = s]

a merge of a, left of b, has (with convolutions)

    m = m_a * m_b,    x = x_a * m_b + m_a * x_b,    q = q_a * m_b + m_a * q_b + 2 sum_t x_fa * x_gb

n of them instead of n^2 covariances. Nothing here is shared with the search.
"""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy import fft

from hdmm_bf._types import AnyArray, RealVector
from hdmm_bf.matrix import Identity, Matrix, Ones, Stack, Weighted
from hdmm_bf.workload.boxes import AllRange, Prefix


class Ordered(NamedTuple):
    """A quadratic form z^T V z over cells in order.

    Attributes:
        left, right: f_t and g_t, T x n: V_ij = sum_t f_t(i) g_t(j) for i < j.
        own: V_ii.
    """

    left: Float64[np.ndarray, "T n"]
    right: Float64[np.ndarray, "T n"]
    own: Float64[np.ndarray, " n"]


@singledispatch
def ordered(matrix: Matrix) -> Ordered | None:
    """Return V = W^T W of a workload over cells in order; None where it is not known to have that form."""
    return None


@ordered.register
def _(matrix: AllRange) -> Ordered | None:
    i = np.arange(matrix.n, dtype=np.float64)
    return Ordered((i + 1)[None], (matrix.n - i)[None], (i + 1) * (matrix.n - i))


@ordered.register
def _(matrix: Prefix) -> Ordered | None:
    i = np.arange(matrix.n, dtype=np.float64)
    return Ordered(np.ones((1, matrix.n)), (matrix.n - i)[None], matrix.n - i)


@ordered.register
def _(matrix: Identity) -> Ordered | None:
    return Ordered(np.zeros((0, matrix.n)), np.zeros((0, matrix.n)), np.ones(matrix.n))


@ordered.register
def _(matrix: Ones) -> Ordered | None:
    return Ordered(np.ones((1, matrix.n)), np.ones((1, matrix.n)), np.ones(matrix.n))


@ordered.register
def _(matrix: Weighted) -> Ordered | None:
    inner = ordered(matrix.inner) if matrix.weights.size == 1 else None
    if inner is None:
        return None
    square = float(matrix.weights[0]) ** 2
    return Ordered(square * inner.left, inner.right, square * inner.own)


@ordered.register
def _(matrix: Stack) -> Ordered | None:
    parts = [ordered(block) for block in matrix.blocks]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    left, right = (np.vstack([part[k] for part in known]) for k in (0, 1))
    return Ordered(left, right, np.sum([part.own for part in known], axis=0))


def children_in_order(parents: Int64[np.ndarray, " N"], cells: int) -> list[list[int]] | None:
    """Return the children of every node, from left to right; None where a set is no interval of cells."""
    first = np.append(np.arange(cells), np.full(parents.size - cells, cells))
    last, count = np.where(first < cells, first, -1), (first < cells).astype(np.int64)
    children: list[list[int]] = [[] for _ in range(parents.size)]
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            children[parent].append(node)
            first[parent], last[parent] = min(first[parent], first[node]), max(last[parent], last[node])
            count[parent] += count[node]
    if np.any(last - first + 1 != count):
        return None
    for own in children:
        own.sort(key=first.__getitem__)
    return children


def expected_form(
    form: Ordered, children: list[list[int]], rates: RealVector, fixed: Bool[np.ndarray, " N"], reach: int
) -> float:
    """Return E[z^T V z] of whole-number noise with the given rates, from tables of sums up to `reach`."""
    s = np.arange(-reach, reach + 1).astype(np.float64)
    is_child = np.zeros(len(children), dtype=bool)
    is_child[[child for own in children for child in own]] = True
    rows: dict[int, AnyArray] = {}  # m, x_f, x_g, q
    total = 0.0
    for node, own in enumerate(children):
        parts = [rows.pop(child) for child in own]
        found = parts[0] if own else _cell(form, node, s)
        for part in parts[1:]:
            found = _merged(found, part, len(form.left))
        found = found * np.exp(-rates[node] * np.abs(s))
        found = found / found[0].sum()
        if is_child[node]:
            rows[node] = found
        elif fixed[node]:
            total += float(found[-1, reach] / found[0, reach])
        else:
            total += float(found[-1].sum())
    return total


def _cell(form: Ordered, cell: int, s: RealVector) -> AnyArray:
    linear = np.concatenate([form.left[:, cell], form.right[:, cell]])
    return np.vstack([np.ones(s.size), linear[:, None] * s, form.own[cell] * s**2])


def _merged(a: AnyArray, b: AnyArray, terms: int) -> AnyArray:
    """Merge a, left of b; what wraps around in the FFT falls beyond the tables."""
    reach = a.shape[1] // 2
    length = fft.next_fast_len(3 * reach + 2, real=True)
    p, q = (fft.rfft(rows, length, axis=1) for rows in (a, b))
    both = p * q[0] + p[0] * q
    both[0] = p[0] * q[0]
    both[-1] += 2 * (p[1 : 1 + terms] * q[1 + terms : 1 + 2 * terms]).sum(axis=0)
    whole = fft.irfft(both, length, axis=1)
    places = (np.arange(-reach, reach + 1) + 2 * reach) % length
    return np.asarray(whole[:, places])
