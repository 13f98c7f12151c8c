"""Every factorisation and its tolerance, and the one place where precision is chosen.

Tolerances that the certificate needs as well stand in `_types`: it shares no code with what it checks.

All numbers are float64. JAX defaults to float32, which is unusable here (traces come out negative), and
switching it globally would change the caller's program: `in_float64` switches it for the length of a call.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import numpy as np
from scipy.linalg import blas, lapack
from threadpoolctl import ThreadpoolController

from hdmm_bf._types import (
    AGREEMENT,
    BOUND_ROUNDING,
    EPS,
    NOTHING,
    ROUNDING,
    SUPPORT_TOLERANCE,
    RealMatrix,
    RealVector,
    SparseMatrix,
    SquareMatrix,
)

__all__ = [
    "AGREEMENT",
    "BOUND_ROUNDING",
    "CHOLESKY_PIVOT",
    "EIGENVALUE_ERROR",
    "EPS",
    "NOTHING",
    "RANK_PIVOT",
    "RANK_TOLERANCE",
    "ROUNDING",
    "SAFE_PIVOT",
    "SUPPORT_TOLERANCE",
    "cholesky",
    "conditioning_gain",
    "eigen",
    "in_float64",
    "inverse",
    "root_sum_lower",
    "solve_sparse_spd",
    "symmetric",
    "threads_for",
    "trace_of_inverse",
]

Args = ParamSpec("Args")
Result = TypeVar("Result")


def in_float64(function: Callable[Args, Result]) -> Callable[Args, Result]:
    """Run a function with JAX in float64 and leave the caller's configuration as it was.

    Guarantees:
        Arrays made inside are float64 whether or not the caller enabled x64; the flag is the same before and after,
        also when the function raises.
    """

    @functools.wraps(function)
    def wrapped(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        import jax

        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


_ONE_THREAD_BELOW = 1500
"""Cells up to which a second thread brings nothing: two copies of BLAS (NumPy's and SciPy's) wait for work by spinning,
each on the other's core. On two cores a fit took, on one thread and on two, 0.12 s and 0.35 s at n = 256, 5.1 s and
5.4 s at n = 1024."""


@contextlib.contextmanager
def threads_for(n: int) -> Iterator[None]:
    """Run small dense problems on one BLAS thread, and leave the caller's setting as it was."""
    if n > _ONE_THREAD_BELOW:
        yield
        return
    with _blas().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def solve_sparse_spd(matrix: SparseMatrix, right: RealVector) -> RealVector:
    """Solve a sparse symmetric positive definite system, such as a grounded graph Laplacian."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    factor = splu(sp.csc_array(matrix).astype(np.float64), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return np.asarray(factor.solve(right))


SAFE_PIVOT = 1e-6
"""Smallest pivot, against the largest, of a Cholesky factor that is trusted to show full rank."""

RANK_TOLERANCE = 4e-16
"""Times n and the largest eigenvalue: eigenvalues below are rounding."""

EIGENVALUE_ERROR = 4 * EPS
"""Times n and the largest eigenvalue: a bound on the error of a computed eigenvalue (Weyl; formation included)."""


CHOLESKY_PIVOT, RANK_PIVOT = 1e-4, 1e-11
"""Smallest pivots, against the largest: below the first QR is used, below the second A counts as rank deficient."""


_MIRROR = 128
"""Columns that are mirrored at a time: ten times faster than masks of the whole matrix at n = 1024."""
_LOWER = np.tri(_MIRROR, dtype=bool)


def symmetric(lower: SquareMatrix) -> SquareMatrix:
    """Return the full symmetric matrix of a lower triangle, whatever stands above it."""
    S = np.array(lower, order="F")
    for start in range(0, len(S), _MIRROR):
        end = min(start + _MIRROR, len(S))
        S[start:end, end:] = S[end:, start:end].T
        block = S[start:end, start:end]
        block[...] = np.where(_LOWER[: end - start, : end - start], block, block.T)
    return S


def cholesky(S: SquareMatrix) -> SquareMatrix | None:
    """Return C, lower triangular with S = C C^T, from the lower triangle of S; None if S is not positive definite."""
    C, info = lapack.dpotrf(np.asfortranarray(S), lower=1, clean=1)
    return None if info else np.asarray(C)


def inverse(S: SquareMatrix) -> SquareMatrix | None:
    """Return the lower triangle of S^-1, or None if S is not numerically positive definite."""
    C = cholesky(S)
    if C is None:
        return None
    Y, info = lapack.dpotri(C, lower=1, overwrite_c=1)
    return None if info else np.asarray(Y)


def eigen(S: SquareMatrix) -> tuple[RealVector, SquareMatrix]:
    """Return eigenvalues, ascending, and eigenvectors from the lower triangle of S."""
    values, vectors, info = lapack.dsyevd(np.asfortranarray(S), lower=1)
    if info:  # divide and conquer gave up, which is rare; QR iteration does not
        values, vectors, info = lapack.dsyev(np.asfortranarray(S), lower=1)
    assert info == 0, "the eigenvalue iteration did not converge"
    return np.asarray(values), np.asarray(vectors)


def root_sum_lower(eigenvalues: RealVector) -> float:
    """Return a number that sum_i sqrt(lambda_i) certainly exceeds, rounding of the eigenvalues included.

    Guarantees:
        By Weyl's inequality each true eigenvalue is at least its computed value minus `EIGENVALUE_ERROR` n lambda_max.
    """
    slack = EIGENVALUE_ERROR * eigenvalues.size * float(np.max(eigenvalues, initial=0.0))
    return float(np.sqrt(np.maximum(eigenvalues - slack, 0.0)).sum())


def trace_of_inverse(A: RealMatrix, V: SquareMatrix) -> float:
    """Return tr(V (A^T A)^-1), infinite if A has not full column rank.

    By Cholesky of A^T A, which squares the condition number, and by QR of A where that would cost digits.
    """
    C = cholesky(A.T @ A)
    if C is None or np.diag(C).min() < CHOLESKY_PIVOT * np.diag(C).max():
        if len(A) < A.shape[1]:
            return math.inf
        C = np.asfortranarray(np.asarray(np.linalg.qr(A, mode="r")).T)
        pivots = np.abs(np.diag(C))
        if pivots.min() <= RANK_PIVOT * pivots.max():
            return math.inf
    half = blas.dtrsm(1.0, C, np.asfortranarray(V), lower=1)
    return float(np.trace(blas.dtrsm(1.0, C, half.T, lower=1)))


def conditioning_gain(Y: SquareMatrix, V: SquareMatrix, C: RealMatrix) -> float:
    """Return what tr(V Y) falls by when the totals C x are known: tr((C Y C^T)^-1 C Y V Y C^T).

    Conditioning turns Y into Y - Y C^T (C Y C^T)^-1 C Y. No factorisation of the size of the domain is needed.
    """
    half = C @ Y
    return float(np.vdot(np.linalg.solve(half @ C.T, half), half @ V))
