"""Implicit matrices: what a workload or a policy is made of, without writing it out."""

from hdmm_bf.matrix.composite import Kronecker, Stack, Weighted, apply_factors
from hdmm_bf.matrix.incidence import Incidence
from hdmm_bf.matrix.matrix import Dense, Identity, Matrix, Ones, Sparse

__all__ = [
    "Dense",
    "Identity",
    "Incidence",
    "Kronecker",
    "Matrix",
    "Ones",
    "Sparse",
    "Stack",
    "Weighted",
    "apply_factors",
]
