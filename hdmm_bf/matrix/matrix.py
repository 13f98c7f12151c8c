"""Implicit matrices: what a workload or a policy is made of, without writing it out.

Each kind knows its shape, how to multiply (`mv`, `rmv`), its Gram matrix `M^T M`, and how to become
dense or sparse when that fits in memory. Integer input gives integer output wherever the matrix is
integer, so that counts stay exact. The dense form is the oracle for everything else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float64

from hdmm_bf._checks import fail, fits, numbers, position, sparse_bytes
from hdmm_bf._types import Columns, RealMatrix, RealVector, SparseMatrix, SquareMatrix

_TOO_BIG = "Use mv, rmv or gram, which do not write the matrix out, or a smaller domain."
_BYTES = 8
_BLOCK_ENTRIES = 2**23


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

    def quadratic(self, C: SquareMatrix) -> RealVector:
        """Return the diagonal of `M C M^T` for a symmetric C: variances of M x when x has the covariance C."""
        m, n = self.shape
        if C.shape != (n, n):
            raise fail("matrix.quadratic", f"C of shape {C.shape}", f"must be {n} x {n}", "Give one row for each cell.")
        fits("matrix.quadratic", f"{self}", m * _BYTES, advice="Use fewer queries.")
        return self._quadratic(C[:, :, None])[:, 0]

    def _quadratic(self, C: Float64[np.ndarray, "n n b"]) -> Float64[np.ndarray, "m b"]:
        """Diagonals for a batch of matrices, from blocks of rows; kinds with a closed form have their own."""
        S = self.sparse()
        (m, n), depth = self.shape, C.shape[2]
        step = max(1, _BLOCK_ENTRIES // (n * depth))
        found = [np.empty((0, depth))]
        for start in range(0, m, step):
            rows = np.asarray(S[start : start + step].toarray(), dtype=np.float64)
            carried = (rows @ C.reshape(n, n * depth)).reshape(len(rows), n, depth)
            found.append(np.einsum("qnb,qn->qb", carried, rows))
        return np.concatenate(found)

    def from_quadratic(self, variances: RealVector) -> SquareMatrix | None:
        """Return a symmetric C with `quadratic(C) = variances`, or None: only some kinds have a closed form for it.

        Guarantees:
            Where C is returned, quadratic(C) is what was asked for, up to rounding.
        """
        m, _ = self.shape
        if variances.shape != (m,):
            advice = "Give one for each row."
            raise fail("matrix.from_quadratic", f"{variances.size} variances", f"there are {m} rows", advice)
        return self._from_quadratic(variances)

    def _from_quadratic(self, variances: RealVector) -> SquareMatrix | None:
        return None

    def weighted_gram(self, weights: RealVector) -> SquareMatrix:
        """Return `M^T diag(weights) M`, weights of any sign, one per row; the adjoint of `quadratic`."""
        m, n = self.shape
        if weights.shape != (m,):
            advice = "Give one weight for each row."
            raise fail("matrix.weighted_gram", f"{weights.size} weights", f"there are {m} rows", advice)
        fits("matrix.weighted_gram", f"{self}", n * n * _BYTES, advice="Use a smaller or a structured domain.")
        return self._weighted_gram(weights[:, None])[:, :, 0]

    def _weighted_gram(self, weights: Float64[np.ndarray, "m b"]) -> Float64[np.ndarray, "n n b"]:
        """Gram matrices for a batch of weights, from the rows; kinds with a closed form have their own."""
        S = sp.csr_array(self.sparse())
        grams = [(S.T @ (sp.diags_array(column) @ S)).toarray() for column in weights.T]
        return np.stack(grams, axis=2).astype(np.float64)

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

    def _quadratic(self, C: Float64[np.ndarray, "n n b"]) -> Float64[np.ndarray, "m b"]:
        if C.shape[2] > 1:
            return super()._quadratic(C)
        return np.asarray(np.einsum("qn,qn->q", self.array @ C[:, :, 0], self.array)[:, None])

    def _weighted_gram(self, weights: Float64[np.ndarray, "m b"]) -> Float64[np.ndarray, "n n b"]:
        return np.stack([self.array.T @ (column[:, None] * self.array) for column in weights.T], axis=2)

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

    def _quadratic(self, C: Float64[np.ndarray, "n n b"]) -> Float64[np.ndarray, "n b"]:
        return np.asarray(np.einsum("iib->ib", C).copy())

    def _from_quadratic(self, variances: RealVector) -> SquareMatrix:
        return np.diag(variances)

    def _weighted_gram(self, weights: Float64[np.ndarray, "n b"]) -> Float64[np.ndarray, "n n b"]:
        gram = np.zeros((self.n, self.n, weights.shape[1]))
        gram[np.diag_indices(self.n)] = weights
        return gram

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

    def _quadratic(self, C: Float64[np.ndarray, "n n b"]) -> Float64[np.ndarray, "1 b"]:
        return np.asarray(C.sum(axis=(0, 1))[None])

    def _weighted_gram(self, weights: Float64[np.ndarray, "1 b"]) -> Float64[np.ndarray, "n n b"]:
        return np.broadcast_to(weights, (self.n, self.n, weights.shape[1])).copy()

    def _sparse(self) -> SparseMatrix:
        return sp.csr_array(np.ones((1, self.n)))

    def _gram(self) -> SquareMatrix:
        return np.ones((self.n, self.n))
