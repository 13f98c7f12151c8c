"""Shapes of the arrays that flow through the package.

Letters, as in the mathematics: n cells, k kept cells after grounding, m queries, e policy edges,
r strategy rows. The names below say what an array means; jaxtyping checks the shapes in the tests.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float64, Int, Shaped

Noise: TypeAlias = Literal["gaussian", "laplace", "norm"]
"""What is drawn: on the rows of a strategy, normal or Laplace; or on the cells, by the norm of a tree."""

AnyNoise: TypeAlias = Noise | Literal["auto"]
"""A noise, or the one that serves a budget best."""

Norm: TypeAlias = Literal["L1", "L2"]
Effort: TypeAlias = Literal["quick", "normal", "thorough"]

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

JsonObject: TypeAlias = dict[str, Any]
"""A record as JSON and TOML hold it: what is read is checked before it is used."""

Proof: TypeAlias = dict[str, Any]
"""What proves a lower bound: its kind, numbers, arrays and lists of arrays; `bounds` evaluates it."""

EPS = float(np.finfo(np.float64).eps)
"""Distance of 1 from the next float."""

NOTHING = 1e-13
"""Share of the largest entry below which what is left of a difference of such entries is rounding."""

ROUNDING = 1e-12
"""Share by which a sum of positive numbers is moved to the safe side: far more than it can be wrong by."""

AGREEMENT = 1e-9
"""Relative difference at which two derivations of one number no longer agree."""

SUPPORT_TOLERANCE = 1e-8
"""Largest share of a query, or of an answer, that may fall outside the strategy; what rounding leaves is less."""

BOUND_ROUNDING = 1e-7
"""Share by which a number may be on the wrong side of a bound that long sums and square roots went into."""

__all__ = [
    "AGREEMENT",
    "BOUND_ROUNDING",
    "EPS",
    "NOTHING",
    "ROUNDING",
    "SUPPORT_TOLERANCE",
    "AnyArray",
    "AnyNoise",
    "Columns",
    "EdgeArray",
    "Effort",
    "IndexArray",
    "JsonObject",
    "Noise",
    "Norm",
    "Number",
    "Proof",
    "RealMatrix",
    "RealVector",
    "SparseMatrix",
    "SquareMatrix",
]
