"""Tree norms: noise on the cells by a law on nested sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.strategies.records.owned import owned


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
            object.__setattr__(self, name, owned(getattr(self, name)))

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


@final
@dataclass(frozen=True, eq=False)
class TreePart:
    """Noise of one tree norm, drawn afresh for every slot, that hides the moves along an attribute, or several.

    Along an attribute i, noise flows along the edges of a graph H on its values: a number phi for every edge and every
    combination of values of the other attributes, which moves as many records from one end of the edge to the other
    (see `problem.slots`). A move along attribute i is a path in H, and phi hides one unit in each of its slots. The
    tree is over the values of some of the other attributes; for every edge of H, and every combination of values of
    the remaining attributes, its noise is drawn by itself.

    Without such an attribute, `along` is None, the noise is on the cells, and paths in the tree hide the moves along
    the tree's own attributes.

    Attributes:
        tree: over the values of `axes`, in row-major order.
        axes: the attributes of the tree, ascending.
        along: the attribute whose moves are hidden, not one of `axes`; None for those of `axes`.
        edges: H, one row an edge, BOTTOM being -1 and second; empty where `along` is None.
    """

    tree: TreeNorm
    axes: tuple[int, ...]
    along: int | None
    edges: Int64[np.ndarray, "k 2"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", owned(self.edges))

    @property
    def hides(self) -> tuple[int, ...]:
        """The attributes whose moves are hidden."""
        return self.axes if self.along is None else (self.along,)

    def grouped(self, sizes: tuple[int, ...]) -> GroupedTree:
        """Return the tree with its slots, on a domain of these sizes."""
        slots = tuple(len(self.edges) if i == self.along else n for i, n in enumerate(sizes))
        return GroupedTree(self.tree, self.axes, slots)


@final
@dataclass(frozen=True, eq=False)
class TreeSum:
    """Noise of several tree norms, added up: every attribute with edges has a part that hides the moves along it.

    A move changes one attribute, and the part that hides it takes the move up, whatever the others add. Only the sum
    may be published.

    Attributes:
        parts: what is added up.
        sizes: number of values of every attribute of the domain.
        family: the family that found it.
    """

    parts: tuple[TreePart, ...]
    sizes: tuple[int, ...]
    family: str

    kind: ClassVar[Literal["tree sum"]] = "tree sum"
    column: ClassVar[Literal["cell"]] = "cell"

    def __repr__(self) -> str:
        return f"TreeSum({self.family}, {len(self.parts)} parts, {self.num_rows} sets)"

    @property
    def num_rows(self) -> int:
        """Number of sets of slots with a weight."""
        return sum(part.grouped(self.sizes).num_rows for part in self.parts)

    def matrix(self) -> RealMatrix:
        """Refuse: there is no one matrix whose norm is that of the noise."""
        advice = "Export the trees instead."
        raise fail("strategy.matrix", repr(self), "adds up noise of several trees, and is no one matrix", advice)
