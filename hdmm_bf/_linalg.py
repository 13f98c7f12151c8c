"""Every factorisation and its tolerance, and the one place where precision is chosen.

All numbers are float64. JAX defaults to float32, which is unusable here (traces come out negative), and
switching it globally would change the caller's program: `in_float64` switches it for the length of a call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from hdmm_bf._types import RealVector, SparseMatrix

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


def solve_sparse_spd(matrix: SparseMatrix, right: RealVector) -> RealVector:
    """Solve a sparse symmetric positive definite system, such as a grounded graph Laplacian."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    factor = splu(sp.csc_array(matrix).astype(np.float64), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return np.asarray(factor.solve(right))
