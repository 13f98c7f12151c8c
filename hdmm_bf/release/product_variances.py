"""How much of a row's noise queries carry, factor by factor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm_bf._linalg import NOTHING, ROUNDING
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.problem.product import Term
from hdmm_bf.strategies.records import AnyTensor, Block

__all__ = ["carried", "contracted", "cumulative", "maps_of", "paired", "unit_spread"]


def cumulative(inverses: Sequence[RealMatrix]) -> list[RealMatrix]:
    """Cumulative sums over the values, from none to all."""
    return [np.concatenate([np.zeros((1, G.shape[1])), np.cumsum(G, axis=0)]) for G in inverses]


def paired(parts: list[RealMatrix], tensor: AnyTensor) -> RealVector:
    """sum_J tensor_J prod_i parts_i[q, j_i] for every query q."""
    first, *others = parts
    result = np.tensordot(first, tensor, axes=(1, 0))
    for part in others:
        result = np.einsum("qj,qj...->q...", part, result)
    return np.asarray(result)


def unit_spread(block: Block) -> AnyTensor:
    """The variance of every row at sensitivity 1; 0 where there is no noise, or no row."""
    with np.errstate(divide="ignore"):
        spread = np.where(np.isinf(block.precisions), 0.0, 1.0 / block.precisions)
    return np.broadcast_to(np.where(np.isinf(spread), 0.0, spread), block.shape)


def maps_of(term: Term, inverses: Sequence[RealMatrix]) -> list[RealMatrix] | None:
    """W_i G_i for every attribute, or None when the term sees nothing of the block."""
    maps = []
    for factor, G in zip(term.factors, inverses, strict=True):
        mapped = np.asarray(factor.mv(G), dtype=np.float64)
        if float(np.abs(mapped).max()) <= ROUNDING * float(np.abs(G).max()) * factor.shape[1]:
            return None
        maps.append(mapped)
    return maps


def carried(V: SquareMatrix, A: RealMatrix, B: RealMatrix) -> RealVector:
    """Products, in the queries, of what each row of a factor adds by two maps; zero where it is only rounding."""
    sizes = np.einsum("ij,ij->j", A, V @ B)
    room = NOTHING * float(np.abs(V).max()) * len(V) ** 2 * np.abs(A).max(axis=0) * np.abs(B).max(axis=0)
    return np.where(np.abs(sizes) > room, sizes, 0.0)


def contracted(tensor: AnyTensor, vectors: Sequence[RealVector]) -> float:
    """sum_J tensor_J prod_i vectors_i[j_i]."""
    for vector in vectors:
        tensor = np.tensordot(vector, tensor, axes=(0, 0))
    return float(tensor)
