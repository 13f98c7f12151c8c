"""Strategies that are written out: integers over the cells, or over the edges of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._types import RealMatrix
from hdmm_bf.strategies.records.owned import owned

Kind: TypeAlias = Literal["vertex", "edge"]


@dataclass(frozen=True, eq=False)
class MatrixStrategy:
    """A strategy that is written out: integers over 2^bits.

    Integers times counts are integers, so noise can be added exactly, and the sensitivity is an exact integer (L1) or
    the square root of one (L2), over 2^bits.

    Attributes:
        integers: A times 2^bits, r x c.
        bits: binary places of the grid.
        family: the family that found it.
    """

    integers: Int64[np.ndarray, "r c"]
    bits: int
    family: str

    kind: ClassVar[Kind]
    column: ClassVar[Literal["cell", "edge"]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "integers", owned(self.integers))

    def __repr__(self) -> str:
        rows, columns = self.integers.shape
        return f"{type(self).__name__}({self.family}, {rows} x {columns}, grid 2^-{self.bits})"

    @property
    def num_rows(self) -> int:
        """Number of queries measured."""
        return len(self.integers)

    def matrix(self) -> RealMatrix:
        """Return A: r x n over the cells, with zero columns for cells given up, or r x e over the edges."""
        return np.asarray(np.ldexp(self.integers.astype(np.float64), -self.bits))


@final
@dataclass(frozen=True, eq=False)
class CellStrategy(MatrixStrategy):
    """A matrix over the cells: A x is measured."""

    kind: ClassVar[Kind] = "vertex"
    column: ClassVar[Literal["cell", "edge"]] = "cell"
    __repr__ = MatrixStrategy.__repr__


@final
@dataclass(frozen=True, eq=False)
class EdgeStrategy(MatrixStrategy):
    """A matrix over the edges of a policy that is no forest: only x + P S^+ noise may be published."""

    kind: ClassVar[Kind] = "edge"
    column: ClassVar[Literal["cell", "edge"]] = "edge"
    __repr__ = MatrixStrategy.__repr__
