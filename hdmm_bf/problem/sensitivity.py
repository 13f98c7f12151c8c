"""How much a matrix of queries can change between two neighbouring databases of a policy.

The sensitivity of A under G is max over edges (u, v) of ||A[:, u] - A[:, v]||, the column of BOTTOM being
zero: the same as the largest column norm of A_G = A P_G. This is `bf.sensitivity`, in floating point, to look at any
matrix with; noise is scaled to the exact sensitivity of the shipped integers, which the certificates derive.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from hdmm_bf._checks import as_array, fail, finite, numbers, real_matrix
from hdmm_bf._types import AnyArray, EdgeArray, Norm, RealVector, SparseMatrix
from hdmm_bf.matrix import Incidence, Matrix
from hdmm_bf.policy import Policy
from hdmm_bf.workload import Workload

_CHUNK_ENTRIES = 2**22
_SAFE_SQUARES = (1e-200, 1e200)


def sensitivity(queries: object, policy: Policy, *, norm: Norm) -> float:
    """Return the L1 or L2 sensitivity of a workload, an implicit matrix, an array or a scipy.sparse matrix.

    Guarantees:
        Equals max ||A x - A x'|| over all neighbouring databases x, x' of the policy; 0 without edges.
    """
    return float(max((norms.max() for norms in _blocks(queries, policy, norm)), default=0.0))


def edge_norms(queries: object, policy: Policy, *, norm: Norm) -> RealVector:
    """Return ||A p_e|| for every edge, in the order of `policy.edges`."""
    return np.concatenate([np.empty(0), *_blocks(queries, policy, norm)])


def _blocks(queries: object, policy: Policy, norm: Norm) -> Iterator[RealVector]:
    if norm not in ("L1", "L2"):
        raise fail("sensitivity", f"norm={norm!r}", "must be 'L1' or 'L2'", "Use L1 for Laplace, L2 for Gaussian.")
    matrix = _as_real(queries)
    rows, columns = matrix.shape
    if columns != policy.num_cells:
        raise fail(
            "sensitivity",
            f"{columns} columns",
            f"the policy {policy.spec} has {policy.num_cells} cells",
            "Give one column for each cell, in row-major order.",
        )
    step = max(1, _CHUNK_ENTRIES // max(rows, columns if isinstance(matrix, Matrix) else 1))
    for start in range(0, policy.num_edges, step):
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, and refused here below
            norms = _column_norms(_differences(matrix, policy.edges[start : start + step]), norm)
        yield finite("sensitivity", f"{norm} norms", norms)


def _as_real(queries: object) -> Matrix | AnyArray | SparseMatrix:
    """Return an implicit matrix, or a checked float64 array or CSR: integers would overflow unseen."""
    if isinstance(queries, Workload | Matrix):
        return queries.matrix if isinstance(queries, Workload) else queries
    given = queries if sp.issparse(queries) else np.atleast_2d(as_array("sensitivity", "A", queries))
    return real_matrix("sensitivity", "A", given, advice="Give one row for each query.")


def _differences(matrix: Matrix | AnyArray | SparseMatrix, edges: EdgeArray) -> AnyArray | SparseMatrix:
    """Return A[:, u] - A[:, v] for a block of edges."""
    u, v = edges.T
    if isinstance(matrix, np.ndarray):
        inner = v >= 0
        block = matrix[:, u]
        block[:, inner] -= matrix[:, v[inner]]
        return block
    ends = Incidence(u, v, matrix.shape[1]).sparse().astype(np.float64)
    if isinstance(matrix, Matrix):
        return numbers("sensitivity", "A P", matrix.mv(ends.toarray()))
    return sp.csc_array(matrix @ ends)


def _column_norms(block: AnyArray | SparseMatrix, norm: Norm) -> RealVector:
    if norm == "L1":
        return np.asarray(abs(block).sum(axis=0), dtype=np.float64).ravel()
    squares = np.asarray((block * block).sum(axis=0), dtype=np.float64).ravel()
    norms: RealVector = np.sqrt(squares)
    doubtful = np.flatnonzero(~((squares > _SAFE_SQUARES[0]) & (squares < _SAFE_SQUARES[1])))
    if doubtful.size:
        norms[doubtful] = _scaled_norms(block[:, doubtful])
    return norms


def _scaled_norms(block: AnyArray | SparseMatrix) -> RealVector:
    """Return L2 norms of columns whose squares may have vanished, which would understate them, or overflowed."""
    sizes = abs(block if isinstance(block, np.ndarray) else block.toarray())
    largest = sizes.max(axis=0, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return np.asarray(scale * np.sqrt(((sizes / scale) ** 2).sum(axis=0)))
