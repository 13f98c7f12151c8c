"""Implicit matrices: what a workload or a policy is made of, without writing it out.

Each kind knows its shape, how to multiply (`mv`, `rmv`), its Gram matrix `M^T M`, and how to become
dense or sparse when that fits in memory. Integer input gives integer output wherever the matrix is
integer, so that counts stay exact. The dense form is the oracle for everything else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int

from hdmm_bf._checks import fail, fits, numbers, position, sparse_bytes
from hdmm_bf._types import Columns, RealMatrix, RealVector, SparseMatrix, SquareMatrix

_TOO_BIG = "Use mv, rmv or gram, which do not write the matrix out, or a smaller domain."
_BYTES = 8


class Matrix(ABC):
    """A real m x n matrix known by what it does."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""

    @property
    @abstractmethod
    def nnz(self) -> int:
        """Number of entries the sparse form stores (an upper bound is allowed)."""

    def mv(self, vector: Columns) -> Columns:
        """Return `M @ vector`, for a vector or for a matrix of columns."""
        m, n = self.shape
        return self._mv(self._columns("matrix.mv", vector, n, m))

    def rmv(self, vector: Columns) -> Columns:
        """Return `M.T @ vector`, for a vector or for a matrix of columns."""
        m, n = self.shape
        return self._rmv(self._columns("matrix.rmv", vector, m, n))

    def _columns(self, where: str, vector: object, length: int, result_length: int) -> Columns:
        """Check a factor and the size of the product; small integer types become int64."""
        columns = numbers(where, "vector", vector)
        if columns.ndim == 0 or len(columns) != length:
            seen = f"vector of shape {columns.shape}"
            raise fail(where, seen, f"{self} needs {length} rows", "Give one number for each.")
        result_bytes = result_length * math.prod(columns.shape[1:]) * _BYTES
        fits(where, f"{self}", result_bytes, advice="Use a smaller domain or fewer queries.")
        return columns

    @abstractmethod
    def _mv(self, vector: Columns) -> Columns:
        """Multiply a checked vector."""

    @abstractmethod
    def _rmv(self, vector: Columns) -> Columns:
        """Multiply a checked vector by the transpose."""

    @abstractmethod
    def _sparse(self) -> SparseMatrix:
        """Return the matrix in CSR form, whatever its size."""

    def _gram(self) -> SquareMatrix:
        S = self.sparse()
        return np.asarray((S.T @ S).toarray(), dtype=np.float64)

    def sparse(self) -> SparseMatrix:
        """Return the matrix in CSR form; refused when its entries would not fit in memory."""
        fits("matrix.sparse", f"{self}", sparse_bytes(self.shape[0], self.nnz), advice=_TOO_BIG)
        return self._sparse()

    def dense(self) -> RealMatrix:
        """Return the matrix as a NumPy array; refused when it would not fit in memory."""
        m, n = self.shape
        fits("matrix.dense", f"{self}", m * n * _BYTES, advice=_TOO_BIG)
        return np.asarray(self._sparse().toarray(), dtype=np.float64)

    def gram(self) -> SquareMatrix:
        """Return `M^T M` as a NumPy array; refused when n x n would not fit in memory."""
        n = self.shape[1]
        fits("matrix.gram", f"{self}", n * n * _BYTES, advice="Use a smaller or a structured domain.")
        return self._gram()

    def row(self, index: int) -> RealVector:
        """Return one row as a dense vector."""
        m = self.shape[0]
        place = position("matrix.row", index, m, "rows")
        fits("matrix.row", f"{self}", m * _BYTES, advice=_TOO_BIG)
        unit = np.zeros(m)
        unit[place] = 1.0
        return np.asarray(self.rmv(unit), dtype=np.float64)

    def __str__(self) -> str:
        m, n = self.shape
        return f"{type(self).__name__} {m} x {n}"


@final
@dataclass(frozen=True, eq=False)
class Dense(Matrix):
    """A matrix written out."""

    array: RealMatrix

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        m, n = self.array.shape
        return m, n

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return int(self.array.size)

    def _mv(self, vector: Columns) -> Columns:
        return np.asarray(self.array @ vector)

    def _rmv(self, vector: Columns) -> Columns:
        return np.asarray(self.array.T @ vector)

    def dense(self) -> RealMatrix:
        """Return the array itself."""
        return self.array

    def _sparse(self) -> SparseMatrix:
        return sp.csr_array(self.array)

    def _gram(self) -> SquareMatrix:
        return np.asarray(self.array.T @ self.array)


@final
@dataclass(frozen=True, eq=False)
class Sparse(Matrix):
    """A matrix held as scipy CSR."""

    array: SparseMatrix

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        m, n = self.array.shape
        return int(m), int(n)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.array.nnz)

    def _mv(self, vector: Columns) -> Columns:
        return np.asarray(self.array @ vector)

    def _rmv(self, vector: Columns) -> Columns:
        return np.asarray(self.array.T @ vector)

    def _sparse(self) -> SparseMatrix:
        return self.array


@final
@dataclass(frozen=True)
class Identity(Matrix):
    """The n x n identity."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.n, self.n

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.n

    def _mv(self, vector: Columns) -> Columns:
        return vector

    def _rmv(self, vector: Columns) -> Columns:
        return vector

    def _sparse(self) -> SparseMatrix:
        return sp.eye_array(self.n, format="csr")

    def _gram(self) -> SquareMatrix:
        return np.eye(self.n)


@final
@dataclass(frozen=True)
class Ones(Matrix):
    """The 1 x n row of ones: a total."""

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return 1, self.n

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.n

    def _mv(self, vector: Columns) -> Columns:
        return np.asarray(vector.sum(axis=0, keepdims=True))

    def _rmv(self, vector: Columns) -> Columns:
        return np.repeat(vector, self.n, axis=0)

    def _sparse(self) -> SparseMatrix:
        return sp.csr_array(np.ones((1, self.n)))

    def _gram(self) -> SquareMatrix:
        return np.ones((self.n, self.n))


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

    def _sparse(self) -> SparseMatrix:
        return reduce(lambda a, b: sp.kron(a, b, format="csr"), [f.sparse() for f in self.factors])

    def _gram(self) -> SquareMatrix:
        return reduce(np.kron, [f.gram() for f in self.factors])


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

    def _sparse(self) -> SparseMatrix:
        rows = np.broadcast_to(self.weights, self.shape[0])
        return sp.csr_array(sp.diags_array(rows) @ self.inner._sparse())

    def _gram(self) -> SquareMatrix:
        if self.weights.size == 1:
            return float(self.weights[0]) ** 2 * self.inner.gram()
        return super()._gram()


@final
@dataclass(frozen=True, eq=False)
class Incidence(Matrix):
    """P: one column an edge, +1 at `head`, -1 at `tail`; a tail of -1 is the ground and leaves no entry."""

    head: Int[np.ndarray, " e"]
    tail: Int[np.ndarray, " e"]
    num_vertices: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of vertices and edges."""
        return self.num_vertices, int(self.head.size)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.head.size + np.count_nonzero(self.tail >= 0))

    def _mv(self, vector: Columns) -> Columns:
        return np.asarray(self.sparse() @ vector)

    def _rmv(self, vector: Columns) -> Columns:
        inner = self.tail >= 0
        differences: Columns = vector[self.head].copy()
        differences[inner] -= vector[self.tail[inner]]
        return differences

    def _sparse(self) -> SparseMatrix:
        edges = np.arange(self.head.size)
        inner = np.flatnonzero(self.tail >= 0)
        rows = np.concatenate([self.head, self.tail[inner]])
        columns = np.concatenate([edges, inner])
        signs = np.repeat(np.array([1, -1], dtype=np.int64), [edges.size, inner.size])
        return sp.csr_array((signs, (rows, columns)), shape=self.shape)
