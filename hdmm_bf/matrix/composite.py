"""Matrices made of matrices: products over attributes, blocks of rows, weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float64

from hdmm_bf._checks import fits
from hdmm_bf._types import AnyArray, Columns, RealVector, SparseMatrix, SquareMatrix
from hdmm_bf.matrix.matrix import Matrix


@final
@dataclass(frozen=True, eq=False)
class Kronecker(Matrix):
    """M_1 (x) M_2 (x) ... over a row-major product domain."""

    factors: tuple[Matrix, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return math.prod(f.shape[0] for f in self.factors), math.prod(f.shape[1] for f in self.factors)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return math.prod(f.nnz for f in self.factors)

    def _mv(self, vector: Columns) -> Columns:
        return self._apply(vector, [f.mv for f in self.factors], [f.shape[1] for f in self.factors])

    def _rmv(self, vector: Columns) -> Columns:
        return self._apply(vector, [f.rmv for f in self.factors], [f.shape[0] for f in self.factors])

    @staticmethod
    def _apply(vector: Columns, maps: Sequence[object], sizes: Sequence[int]) -> Columns:
        trailing = vector.shape[1:]
        tensor = vector.reshape(*sizes, -1)
        for axis, apply in enumerate(maps):
            front = np.moveaxis(tensor, axis, 0)
            flat = apply(front.reshape(front.shape[0], -1))  # type: ignore[operator]
            tensor = np.moveaxis(flat.reshape(-1, *front.shape[1:]), 0, axis)
        return tensor.reshape(-1, *trailing)

    def _quadratic(self, C: Float64[np.ndarray, "n n b"]) -> Float64[np.ndarray, "m b"]:
        """One factor at a time: its rows meet both sides of C, and what is left is a batch for the others."""
        first, *others = self.factors
        if not others:
            return first._quadratic(C)
        rest, n, depth = Kronecker(tuple(others)), first.shape[1], C.shape[2]
        k = rest.shape[1]
        fits("matrix.quadratic", f"{self}", first.shape[0] * k * k * depth * 8, advice="Use fewer queries.")
        front = C.reshape(n, k, n, k, depth).transpose(0, 2, 1, 3, 4).reshape(n, n, -1)
        front = (front + front.transpose(1, 0, 2)) / 2  # blocks beside the diagonal are not symmetric by themselves
        inner = first._quadratic(front).reshape(-1, k, k, depth).transpose(1, 2, 0, 3)
        answers = rest._quadratic(inner.reshape(k, k, -1)).reshape(-1, first.shape[0], depth)
        return answers.transpose(1, 0, 2).reshape(-1, depth)

    def _weighted_gram(self, weights: Float64[np.ndarray, "m b"]) -> Float64[np.ndarray, "n n b"]:
        """`_quadratic` backwards: the other factors take their rows in, and what is left is a batch for the first."""
        first, *others = self.factors
        if not others:
            return first._weighted_gram(weights)
        rest, (m, n), depth = Kronecker(tuple(others)), first.shape, weights.shape[1]
        k = rest.shape[1]
        fits("matrix.weighted_gram", f"{self}", m * k * k * depth * 8, advice="Use fewer queries.")
        by_rest = weights.reshape(m, -1, depth).transpose(1, 0, 2).reshape(-1, m * depth)
        inner = rest._weighted_gram(by_rest).reshape(k, k, m, depth).transpose(2, 0, 1, 3)
        outer = first._weighted_gram(inner.reshape(m, -1)).reshape(n, n, k, k, depth)
        return outer.transpose(0, 2, 1, 3, 4).reshape(n * k, n * k, depth)

    def _sparse(self) -> SparseMatrix:
        return reduce(lambda a, b: sp.kron(a, b, format="csr"), [f.sparse() for f in self.factors])

    def _gram(self) -> SquareMatrix:
        return reduce(np.kron, [f.gram() for f in self.factors])


def apply_factors(factors: Sequence[AnyArray | None], tensor: AnyArray) -> AnyArray:
    """Return (F_1 (x) ... (x) F_d) applied to a tensor with one axis per factor; None leaves an axis as it is."""
    for axis, factor in enumerate(factors):
        if factor is not None:
            tensor = np.moveaxis(np.tensordot(factor, tensor, axes=(1, axis)), 0, axis)
    return tensor


@final
@dataclass(frozen=True, eq=False)
class Stack(Matrix):
    """Blocks of rows, one above the other: the union of workloads."""

    blocks: tuple[Matrix, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return sum(b.shape[0] for b in self.blocks), self.blocks[0].shape[1]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return sum(b.nnz for b in self.blocks)

    def _mv(self, vector: Columns) -> Columns:
        return np.concatenate([b.mv(vector) for b in self.blocks])

    def _rmv(self, vector: Columns) -> Columns:
        ends = np.cumsum([b.shape[0] for b in self.blocks])
        parts = np.split(vector, ends[:-1])
        first, *rest = (b.rmv(part) for b, part in zip(self.blocks, parts, strict=True))
        return sum(rest, start=first)

    def _quadratic(self, C: Float64[np.ndarray, "n n b"]) -> Float64[np.ndarray, "m b"]:
        return np.concatenate([b._quadratic(C) for b in self.blocks])

    def _weighted_gram(self, weights: Float64[np.ndarray, "m b"]) -> Float64[np.ndarray, "n n b"]:
        parts = np.split(weights, np.cumsum([b.shape[0] for b in self.blocks])[:-1])
        first, *rest = (b._weighted_gram(part) for b, part in zip(self.blocks, parts, strict=True))
        return sum(rest, start=first)

    def _sparse(self) -> SparseMatrix:
        return sp.vstack([b._sparse() for b in self.blocks], format="csr")

    def _gram(self) -> SquareMatrix:
        total = self.blocks[0].gram().copy()
        for block in self.blocks[1:]:
            total += block.gram()
        return total


@final
@dataclass(frozen=True, eq=False)
class Weighted(Matrix):
    """diag(weights) M: queries that matter more or less. One weight keeps the closed-form Gram."""

    weights: RealVector
    inner: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.inner.shape

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.inner.nnz

    def _mv(self, vector: Columns) -> Columns:
        answers = self.inner.mv(vector)
        return np.asarray(self._column(answers) * answers)

    def _rmv(self, vector: Columns) -> Columns:
        return self.inner.rmv(self._column(vector) * vector)

    def _column(self, like: Columns) -> Columns:
        return self.weights.reshape(-1, *(1,) * (like.ndim - 1))

    def _quadratic(self, C: Float64[np.ndarray, "n n b"]) -> Float64[np.ndarray, "m b"]:
        variances = self.inner._quadratic(C)
        return np.asarray(self._column(variances) ** 2 * variances)

    def _weighted_gram(self, weights: Float64[np.ndarray, "m b"]) -> Float64[np.ndarray, "n n b"]:
        return self.inner._weighted_gram(self._column(weights) ** 2 * weights)

    def _sparse(self) -> SparseMatrix:
        rows = np.broadcast_to(self.weights, self.shape[0])
        return sp.csr_array(sp.diags_array(rows) @ self.inner._sparse())

    def _gram(self) -> SquareMatrix:
        if self.weights.size == 1:
            return float(self.weights[0]) ** 2 * self.inner.gram()
        return super()._gram()
