"""Parametrisations: from free parameters to strategies, as frozen records with `init(seed)` and `strategy(parameters)`.

    PIdentity     [I; Theta], Theta = roots^power >= 0, every column scaled to L1 norm 1
    CellBudgets   [I; Theta] over all cells and grounds, column v scaled to L1 norm b_v, with b_u + b_v <= 1 on edges
    UnitColumns   any signed matrix, every column scaled to L1 norm 1
    Free          any matrix, as it is
    LevelWeights  fixed rows, one weight per level
    ProductBases  X = S diag(M) S^T, S = S_1 (x) ... (x) S_d, one precision M_J for every product of columns

The package's gradient searches for Laplace noise go through the first four, its weighted hierarchies through
`LevelWeights`. The Gaussian family `bases` is `ProductBases` with gradients of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hdmm_bf._linalg import in_float64
from hdmm_bf._types import IndexArray, RealMatrix, RealVector
from hdmm_bf.objectives.operators import DiagonalAndRows, ProductPrecisions, Rows
from hdmm_bf.objectives.pytrees import Array, pytree
from hdmm_bf.problem.product import product_view
from hdmm_bf.problem.public_totals import has_public_totals, indicators
from hdmm_bf.problem.transform import Problem


@pytree("rows", "columns", "power")
class PIdentity:
    """[I; Theta] with p rows Theta = roots^power, every column scaled to L1 norm 1: what HDMM calls a p-Identity.

    Parameters: roots, p x n. With squares (power 2) any number will do, and rows of zeros stay zero under descent, so
    that rows can be padded; with power 1 minimise with `nonnegative=True`, which gets further near the end.

    Attributes:
        rows: p.
        columns: n, the cells, or the edges for strategies over edges.
        power: 2 or 1.
    """

    rows: int
    columns: int
    power: int = 2

    def init(self, seed: int = 0) -> Array:
        """Return random roots, uniform between 0 and 1."""
        return jnp.asarray(np.random.default_rng(seed).uniform(0, 1, (self.rows, self.columns)))

    def strategy(self, roots: ArrayLike) -> DiagonalAndRows:
        """Return [I; Theta] / (1 + column sums of Theta)."""
        Theta = jnp.asarray(roots) ** self.power
        scale = 1 / (1 + Theta.sum(axis=0))
        return DiagonalAndRows(scale, Theta * scale)


class Split(NamedTuple):
    """The positive and the negative part of signed rows, both nonnegative: their norms are smooth."""

    positive: ArrayLike
    negative: ArrayLike


@pytree("rows")
class CellBudgets:
    """[I; Theta] D with column v scaled to L1 norm b_v: no edge (u, v) with b_u + b_v <= 1 enters the loss.

    D has a row for every kept cell, and one of minus ones per ground: what a ground holds is what its cells do not.
    Then A^T A is a diagonal plus the rows of the grounds and Theta, and nothing of n x n is made.

    Parameters: `Split`, two arrays p x N, N the kept cells and the grounds; minimise with `nonnegative=True`.

    Attributes:
        budgets: b, one per kept cell and ground.
        group: for every kept cell the number of its ground.
        rows: p.
    """

    budgets: Array
    group: Array
    rows: int

    def init(self, seed: int = 0) -> Split:
        """Return random signed rows, uniform between -1 and 1."""
        return split(np.random.default_rng(seed).uniform(-1, 1, (self.rows, self.budgets.shape[0])))

    def strategy(self, parameters: Split) -> DiagonalAndRows:
        """Return [diag(s); s_g times the cells of each ground; Theta scaled] over the kept cells."""
        n = self.group.shape[0]
        positive, negative = jnp.asarray(parameters.positive), jnp.asarray(parameters.negative)
        Theta = positive - negative
        scale = self.budgets / (1 + (positive + negative).sum(axis=0))
        scaled = Theta * scale
        if self.budgets.shape[0] == n:
            return DiagonalAndRows(scale, scaled)
        grounds = jnp.arange(self.budgets.shape[0] - n)
        own = (self.group[None] == grounds[:, None]) * scale[n:, None]
        return DiagonalAndRows(scale[:n], jnp.concatenate([own, scaled[:, :n] - scaled[:, n:][:, self.group]]))


@pytree("rows", "columns")
class UnitColumns:
    """Any signed matrix with every column scaled to L1 norm 1; minimise with `nonnegative=True`.

    Parameters: `Split`, two arrays r x n.
    """

    rows: int
    columns: int

    def init(self, seed: int = 0) -> Split:
        """Return random signed entries."""
        return split(np.random.default_rng(seed).normal(size=(self.rows, self.columns)))

    def strategy(self, parameters: Split) -> Rows:
        """Return (positive - negative) / column sums of both."""
        positive, negative = jnp.asarray(parameters.positive), jnp.asarray(parameters.negative)
        return Rows((positive - negative) / (positive + negative).sum(axis=0))


@pytree("rows", "columns")
class Free:
    """Any matrix, as it is: the parameters are the strategy, r x n."""

    rows: int
    columns: int

    def init(self, seed: int = 0) -> Array:
        """Return the identity and random rows below it."""
        noise = np.random.default_rng(seed).normal(size=(self.rows, self.columns)) / np.sqrt(self.columns)
        return jnp.asarray(np.eye(self.rows, self.columns) + 0.1 * noise)

    def strategy(self, parameters: ArrayLike) -> Rows:
        """Return the parameters."""
        return Rows(jnp.asarray(parameters))


@pytree()
class LevelWeights:
    """Fixed rows, one weight for each level of every attribute: hierarchies.

    Parameters: one array of logarithms per attribute. The weight of a row is the product of those of its levels.

    Attributes:
        matrix: the rows, r x n.
        levels: for every attribute, the level of each of its own rows; r is the product of their numbers.
        counts: one entry per level, for their number.
    """

    matrix: Array
    levels: tuple[Array, ...]
    counts: tuple[Array, ...]

    @staticmethod
    @in_float64
    def of(matrix: RealMatrix, levels: Sequence[IndexArray]) -> LevelWeights:
        """Return the parametrisation of a Kronecker product of rows with levels."""
        counts = tuple(jnp.asarray(np.arange(int(own.max()) + 1)) for own in levels)
        return LevelWeights(jnp.asarray(matrix), tuple(map(jnp.asarray, levels)), counts)

    def init(self, seed: int = 0) -> tuple[Array, ...]:
        """Return equal weights."""
        return tuple(jnp.zeros(count.shape[0]) for count in self.counts)

    def strategy(self, logs: tuple[ArrayLike, ...]) -> Rows:
        """Return the rows times their weights."""
        weights = jnp.ones(1)
        for own, log in zip(self.levels, logs, strict=True):
            weights = jnp.kron(weights, jnp.exp(jnp.asarray(log) - jnp.max(jnp.asarray(log)))[own])
        return Rows(self.matrix * weights[:, None])


class Bases(NamedTuple):
    """The free columns of every attribute's basis, n_i x (n_i - pinned), and the logarithms of the precisions."""

    columns: tuple[ArrayLike, ...]
    logs: ArrayLike


@pytree()
class ProductBases:
    """X = S diag(M) S^T with one basis per attribute, not orthogonal, and one precision per product of columns.

    For Gaussian noise and `total(problem, norm="L2", over="products")`. Parameters: `Bases`.

    Attributes:
        pinned: for every attribute the first columns of its basis, n_i x p_i: indicators of public components.
        public: which products of columns are public totals.
    """

    pinned: tuple[Array, ...]
    public: Array

    def init(self, seed: int = 0) -> Bases:
        """Return the identity and a little noise on every attribute, with precisions 1."""
        rng = np.random.default_rng(seed)
        columns = []
        for fixed in self.pinned:
            n = len(fixed)
            free = np.setdiff1d(np.arange(n), np.argmax(np.asarray(fixed), axis=0))  # one cell less per component
            columns.append(jnp.asarray((np.eye(n) + 0.1 * rng.normal(size=(n, n)) / np.sqrt(n))[:, free]))
        return Bases(tuple(columns), jnp.zeros(self.public.shape))

    def strategy(self, parameters: Bases) -> ProductPrecisions:
        """Return the precisions exp(logs) on the products of all columns, pinned ones first."""
        columns = map(jnp.asarray, parameters.columns)
        bases = tuple(jnp.concatenate(both, axis=1) for both in zip(self.pinned, columns, strict=True))
        return ProductPrecisions(bases, jnp.exp(jnp.asarray(parameters.logs)), self.public)


@in_float64
def product_bases(problem: Problem) -> ProductBases:
    """Return product bases for a problem with product structure; public totals are pinned where presence is public."""
    product = product_view(problem)
    some = has_public_totals(product)
    sides = zip(product.edges, product.sizes, strict=True)
    pinned = [indicators(e, n) if some else np.zeros((0, n)) for e, n in sides]
    public = np.zeros(product.sizes, dtype=bool)
    public[tuple(slice(0, len(rows)) for rows in pinned)] = some
    return ProductBases(tuple(jnp.asarray(rows.T) for rows in pinned), jnp.asarray(public))


@in_float64
def split(Theta: Any) -> Split:
    """Return the positive and the negative part of signed rows."""
    return Split(jnp.maximum(jnp.asarray(Theta), 0.0), jnp.maximum(-jnp.asarray(Theta), 0.0))


@in_float64
def ungrounded(columns: int, rows: int) -> CellBudgets:
    """Return cell budgets 1 for columns without grounds: [I; Theta], Theta signed, with columns of L1 norm 1."""
    return CellBudgets(jnp.ones(columns), jnp.zeros(columns, jnp.int64), rows)


@in_float64
def cell_budgets(problem: Problem, rows: int, budgets: RealVector | None = None) -> CellBudgets:
    """Return cell budgets for a problem; one half each, where nothing else is said."""
    group, grounds = problem.ground_groups
    b = np.full(group.size + grounds, 0.5) if budgets is None else budgets
    return CellBudgets(jnp.asarray(b, jnp.float64), jnp.asarray(group), rows)
