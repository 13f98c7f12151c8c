"""Strategies as they ship: plain frozen records of integers, so that what was checked is what runs.

What can be done with one is a function with one implementation per record, registered by the layer that owns it: the
certificate registers `exact_sensitivity` and `certify`, the release `reconstruction`, the bundle `encode`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float64, Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import RealMatrix, RealVector

AnyTensor: TypeAlias = Float64[np.ndarray, "..."]
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
        object.__setattr__(self, "integers", _own(self.integers))

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


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Rows that are products of rows.

    Attributes:
        integers: for every attribute the factor times 2^bits, r_i x n_i.
        bits: binary places of every factor.
        precisions: one precision per row, r_1 x ... x r_d: 1 / variance, relative to the noise of the release; infinite
            for public rows. May be given as a tensor that broadcasts to that shape.
        inverses: for every attribute G_i, n_i x r_i: what a measured row adds to the estimate.
        terms: terms of the workload that this block answers alone; None when the blocks complement each other.
        edges: in a `NoiseSum`, the attribute whose factor has a column for every edge of its policy, not for every
            value; None where all columns are values.
    """

    integers: tuple[Int64[np.ndarray, "_ _"], ...]
    bits: tuple[int, ...]
    precisions: AnyTensor
    inverses: tuple[RealMatrix, ...]
    terms: tuple[int, ...] | None = None
    edges: int | None = None

    def __post_init__(self) -> None:
        for array in (*self.integers, self.precisions, *self.inverses):
            array.setflags(write=False)  # what was certified is what runs

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of every factor."""
        return tuple(len(factor) for factor in self.integers)

    @property
    def num_rows(self) -> int:
        """Number of measured rows."""
        return math.prod(self.shape)

    def factor(self, attribute: int) -> RealMatrix:
        """Return R_i."""
        return np.asarray(np.ldexp(self.integers[attribute].astype(np.float64), -self.bits[attribute]))

    def answers(self, term: int) -> bool:
        """Whether a term of the workload is answered, or partly answered, by this block."""
        return self.terms is None or term in self.terms

    @property
    def full_precisions(self) -> AnyTensor:
        """Precisions written out in the block's shape."""
        return np.broadcast_to(self.precisions, self.shape)


@final
@dataclass(frozen=True, eq=False)
class ProductStrategy:
    """An implicit strategy for domains too large to write a matrix over their cells.

    A block measures every product of rows, one from an integer factor of each attribute, each with a precision of its
    own. A row that no edge of the policy sees (a public total) has infinite precision and is measured without noise.

    Attributes:
        blocks: what is measured.
        family: the family that found it.
    """

    blocks: tuple[Block, ...]
    family: str

    kind: ClassVar[Literal["blocks"]] = "blocks"
    column: ClassVar[Literal["cell"]] = "cell"

    def __repr__(self) -> str:
        return f"ProductStrategy({self.family}, {len(self.blocks)} blocks, {self.num_rows} rows)"

    @property
    def num_rows(self) -> int:
        """Number of queries measured."""
        return sum(block.num_rows for block in self.blocks)

    def matrix(self) -> RealMatrix:
        """Return the strategy written out, rows scaled to equal noise, without public rows; refused when too large."""
        n = math.prod(factor.shape[1] for factor in self.blocks[0].integers)
        rows = self.num_rows
        fits("strategy.matrix", f"{rows} x {n}", rows * n * 8, advice="Export the factors instead.")
        parts = []
        for block in self.blocks:
            weights = np.sqrt(block.full_precisions.ravel())
            noisy = np.isfinite(weights)
            dense = reduce(np.kron, [block.factor(i) for i in range(len(block.integers))])
            parts.append(weights[noisy, None] * dense[noisy])
        return np.concatenate(parts)


@final
@dataclass(frozen=True, eq=False)
class Gains:
    """What numbers add to the estimate of every value, on a grid.

    Attributes:
        keeps: the attributes outside the block over whose values the numbers are not summed before they are multiplied,
            ascending; what is added is the same for all values of the others.
        integers: n x p, times 2^gain_bits of the block.
    """

    keeps: tuple[int, ...]
    integers: Int64[np.ndarray, "n p"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "integers", _own(self.integers))


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """Rows of a `JoinedBlock` in one table: on totals over some of the attributes outside the block.

    Attributes:
        keeps: the attributes outside the block whose values the table tells apart, ascending; it sums over the others.
        rows: T times 2^bits of the block, p x n, for every value it keeps; their noise z has the scale of the release.
        gains: what z - T y adds to the estimate, a sum over subsets of what the layer keeps.
    """

    keeps: tuple[int, ...]
    rows: Int64[np.ndarray, "p n"]
    gains: tuple[Gains, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _own(self.rows))


@final
@dataclass(frozen=True, eq=False)
class JoinedBlock:
    """Noise that hides the moves along some attributes by rows that are no products, on several tables at once.

    With noise y on every cell, noise z_l on rows T_l over a table, and S the totals that the moves leave alone,

        N = y + sum_l K_l (z_l - T_l y) - K S y

    is added to the counts. A move p has S p = 0, so y shifted by p and z_l by T_l p is N shifted by p, whatever the
    gains K are: the loss is that of y and z. Everything is whole over a power of two, so sums are exact.

    Rows are over the values of the joined attributes together; the others are kept by a layer, or summed over.

    Attributes:
        axes: the joined attributes, ascending; n is the product of their sizes, values in row-major order.
        hides: the attributes whose edges are hidden, ascending, joined or not.
        weights: of every value, times 2^bits, at least 1: its noise y has the scale of the release over the weight.
        layers: the rows.
        totals: gains of the totals (see `public_totals.kept_totals`), sums over subsets of the attributes they keep.
        bits: binary places of weights and rows.
        gain_bits: binary places of the gains.
    """

    axes: tuple[int, ...]
    hides: tuple[int, ...]
    weights: Int64[np.ndarray, " n"]
    layers: tuple[Layer, ...]
    totals: tuple[Gains, ...]
    bits: int
    gain_bits: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _own(self.weights))

    @property
    def num_rows(self) -> int:
        """Numbers of noise for every value that a layer keeps, and for every value of the attributes outside."""
        return self.weights.size + sum(len(layer.rows) for layer in self.layers)

    def outside(self, count: int) -> tuple[int, ...]:
        """Return the attributes, of so many, that are not joined."""
        return tuple(i for i in range(count) if i not in self.axes)


def _own(array: Int64[np.ndarray, ...]) -> Int64[np.ndarray, ...]:
    """Return a copy that cannot be written to: what was certified is what runs."""
    own = array.copy()
    own.setflags(write=False)
    return own


@final
@dataclass(frozen=True, eq=False)
class NoiseSum:
    """Noise on the cells, by factors: x + sum_b (G_1 (x) ... (x) G_d) noise_b is published, one block a kind of move.

    An edge of the policy moves a record along one attribute; the noise of the block that hides this attribute takes the
    move up, whatever the other blocks add. So no block pays for the moves of others, and each knows what stays the
    same under its own. Only the sum may be published, never the noisy rows of a block.

    Attributes:
        blocks: factors of full column rank and the precision of every row; rows of infinite precision have no noise.
        hides: for every block the attributes whose edges it hides. A block that hides several has one precision, and
            what its noise does to public totals is taken off again.
        family: the family that found it.
        joined: blocks whose rows are no products, added up with the others.
    """

    blocks: tuple[Block, ...]
    hides: tuple[tuple[int, ...], ...]
    family: str
    joined: tuple[JoinedBlock, ...] = ()

    kind: ClassVar[Literal["noise"]] = "noise"
    column: ClassVar[Literal["cell"]] = "cell"

    def __repr__(self) -> str:
        return f"NoiseSum({self.family}, {self.num_blocks} blocks, {self.num_rows} rows)"

    @property
    def num_blocks(self) -> int:
        """Number of blocks, of products of rows and of joined ones."""
        return len(self.blocks) + len(self.joined)

    @property
    def num_rows(self) -> int:
        """Number of rows that carry noise, or would; of joined blocks for one value of the other attributes."""
        return sum(block.num_rows for block in self.blocks) + sum(block.num_rows for block in self.joined)

    def matrix(self) -> RealMatrix:
        """Refuse: there is no one matrix whose noisy answers may be published."""
        advice = "Export the factors instead."
        raise fail("strategy.matrix", repr(self), "is noise for every kind of move, and no one matrix", advice)


@final
@dataclass(frozen=True, eq=False)
class TreeNorm:
    """Noise on the cells themselves: z with probabilities proportional to exp(-epsilon ||z|| / sensitivity).

    The norm is ||z|| = sum_v w_v |z(v)| over the nodes v of rooted trees whose leaves are the cells, z(v) being the sum
    of z over the leaves below v: the earth mover's distance on the weighted trees. Moving a record from cell to cell
    changes it by the length of the path between them, and adding one by the length of the path through the root.

    Attributes:
        parents: for every node its parent, or -1 for a root. The first nodes are the cells, in order; every parent
            comes after its children. All cells of a component whose total is public hang on one root, of weight zero:
            there z sums to zero.
        integers: for every node the weight w_v of its edge upwards, times 2^bits; none is negative.
        bits: binary places of the weights.
        family: the family that found it.
    """

    parents: Int64[np.ndarray, " N"]
    integers: Int64[np.ndarray, " N"]
    bits: int
    family: str

    kind: ClassVar[Literal["tree"]] = "tree"
    column: ClassVar[Literal["cell"]] = "cell"

    def __post_init__(self) -> None:
        for name in ("parents", "integers"):
            object.__setattr__(self, name, _own(getattr(self, name)))

    def __repr__(self) -> str:
        return f"TreeNorm({self.family}, {self.num_cells} cells, {self.num_rows} sets, grid 2^-{self.bits})"

    @property
    def num_cells(self) -> int:
        """Number of leaves: nodes that are nobody's parent and come first."""
        inner = self.parents[self.parents >= 0]
        return int(inner.min()) if inner.size else self.parents.size

    @property
    def num_rows(self) -> int:
        """Number of sets with a weight."""
        return int(np.count_nonzero(self.integers))

    @property
    def weights(self) -> RealVector:
        """The weight of every node."""
        return np.asarray(np.ldexp(self.integers.astype(np.float64), -self.bits))

    def matrix(self) -> RealMatrix:
        """Return A with ||z|| = ||A z||_1, r x n: one row for every set with a weight, which it holds on its cells."""
        n, nodes = self.num_cells, self.parents.size
        fits("strategy.matrix", f"{nodes} x {n}", nodes * n * 8, advice="Export the tree instead.")
        below = np.eye(nodes, n)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                below[parent] += below[node]
        rows = self.integers > 0
        return np.asarray(below[rows] * self.weights[rows, None])


@final
@dataclass(frozen=True, eq=False)
class GroupedTree:
    """Noise of one tree norm, drawn afresh for every public group: for every value of the attributes without edges.

    Attributes:
        tree: over the values of the attributes with edges, in row-major order.
        axes: those attributes, ascending.
        sizes: number of values of every attribute of the domain.
    """

    tree: TreeNorm
    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    kind: ClassVar[Literal["grouped tree"]] = "grouped tree"
    column: ClassVar[Literal["cell"]] = "cell"

    def __repr__(self) -> str:
        return f"GroupedTree({self.tree!r}, {self.num_groups} groups)"

    @property
    def family(self) -> str:
        """The family that found the tree."""
        return self.tree.family

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return math.prod(size for i, size in enumerate(self.sizes) if i not in self.axes)

    @property
    def num_rows(self) -> int:
        """Number of sets with a weight, in all groups together."""
        return self.num_groups * self.tree.num_rows

    @property
    def cells(self) -> Int64[np.ndarray, "g k"]:
        """The cells of every group, in the order of the tree's leaves."""
        cells = np.arange(math.prod(self.sizes)).reshape(self.sizes)
        last = np.moveaxis(cells, self.axes, range(-len(self.axes), 0))
        return np.ascontiguousarray(last.reshape(self.num_groups, -1))

    def matrix(self) -> RealMatrix:
        """Return A with ||z|| = ||A z||_1, the rows of one group after those of another."""
        n, rows = math.prod(self.sizes), self.num_rows
        fits("strategy.matrix", f"{rows} x {n}", rows * n * 8, advice="Export the tree instead.")
        A = np.zeros((self.num_groups, self.tree.num_rows, n))
        own = self.tree.matrix()
        for group, cells in enumerate(self.cells):
            A[group][:, cells] = own
        return A.reshape(rows, n)


Strategy: TypeAlias = MatrixStrategy | ProductStrategy | NoiseSum | TreeNorm | GroupedTree
"""Any strategy that ships: one of the records of this file."""

BY_FACTORS = (ProductStrategy.kind, NoiseSum.kind, GroupedTree.kind)
"""Kinds of strategies that are kept by their factors."""
