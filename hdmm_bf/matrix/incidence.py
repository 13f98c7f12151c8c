"""The incidence matrix of a graph: one column an edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int

from hdmm_bf._types import Columns, SparseMatrix
from hdmm_bf.matrix.matrix import Matrix


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
