"""The incidence matrix of a graph: one column an edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int

from hdmm_bf._types import Columns, RealMatrix, SparseMatrix
from hdmm_bf.matrix.matrix import Matrix


@final
@dataclass(frozen=True, eq=False)
class Incidence(Matrix):
    """P: one column per edge, +1 at `head`, -1 at `tail`; a tail of -1 is the ground and leaves no entry."""

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

    def differences(self, rows: RealMatrix) -> RealMatrix:
        """Return A P for a matrix A over the vertices, r x n, without forming P: its columns are A_head - A_tail."""
        with_ground = np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)  # the ground is -1: the last column
        return np.asarray(with_ground[:, self.head] - with_ground[:, self.tail])

    def _sparse(self) -> SparseMatrix:
        edges = np.arange(self.head.size)
        inner = np.flatnonzero(self.tail >= 0)
        rows = np.concatenate([self.head, self.tail[inner]])
        columns = np.concatenate([edges, inner])
        signs = np.repeat(np.array([1, -1], dtype=np.int64), [edges.size, inner.size])
        return sp.csr_array((signs, (rows, columns)), shape=self.shape)
