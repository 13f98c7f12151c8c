"""Shapes of the arrays that flow through the package.

Letters, as in the mathematics: n cells, k kept cells after grounding, m queries, e policy edges,
r strategy rows. The names below say what an array means; jaxtyping checks the shapes in the tests.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float, Int

Noise: TypeAlias = Literal["gaussian", "laplace"]
Norm: TypeAlias = Literal["L1", "L2"]

EdgeArray: TypeAlias = Int[np.ndarray, "e 2"]
IndexArray: TypeAlias = Int[np.ndarray, " k"]
RealVector: TypeAlias = Float[np.ndarray, " n"]
RealMatrix: TypeAlias = Float[np.ndarray, "m n"]
SquareMatrix: TypeAlias = Float[np.ndarray, "n n"]

# A vector, or a matrix whose columns are vectors: what a linear map is applied to. Integers stay integers.
Columns: TypeAlias = np.ndarray[Any, Any]
SparseMatrix: TypeAlias = Any  # scipy.sparse ships no types

__all__ = [
    "Columns",
    "EdgeArray",
    "IndexArray",
    "Noise",
    "Norm",
    "RealMatrix",
    "RealVector",
    "SparseMatrix",
    "SquareMatrix",
]
