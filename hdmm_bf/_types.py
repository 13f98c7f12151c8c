"""Shapes of the arrays that flow through the package.

Letters, as in the mathematics: n cells, k kept cells after grounding, m queries, e policy edges,
r strategy rows. The names below say what an array means; jaxtyping checks the shapes in the tests.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float64, Int, Shaped

Noise: TypeAlias = Literal["gaussian", "laplace"]
Norm: TypeAlias = Literal["L1", "L2"]

# Lengths that must agree between arguments get letters where they are used; here they are free.
EdgeArray: TypeAlias = Int[np.ndarray, "_ 2"]
IndexArray: TypeAlias = Int[np.ndarray, " _"]
RealVector: TypeAlias = Float64[np.ndarray, " _"]
RealMatrix: TypeAlias = Float64[np.ndarray, "_ _"]
SquareMatrix: TypeAlias = Float64[np.ndarray, "_ _"]

Number: TypeAlias = int | float
"""A real number as users write it: a type checker must not insist on the decimal point."""

# A vector, or a matrix whose columns are vectors: what a linear map is applied to. Integers stay integers.
Columns: TypeAlias = Shaped[np.ndarray, "..."]
AnyArray: TypeAlias = Shaped[np.ndarray, "..."]  # as handed in by a user, before it was checked
SparseMatrix: TypeAlias = Any  # scipy.sparse ships no types

__all__ = [
    "AnyArray",
    "Columns",
    "EdgeArray",
    "IndexArray",
    "Noise",
    "Norm",
    "Number",
    "RealMatrix",
    "RealVector",
    "SparseMatrix",
    "SquareMatrix",
]
