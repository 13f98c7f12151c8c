"""Gram matrices of queries that act without being formed, in JAX.

A Gram matrix V = W^T W over n cells is a record with

    rows(Y)          Y V for the rows of Y, p x n
    quadratic(Y)     tr(Y V Y^T), one number
    entries(i, j)    V_ij for arrays of cells
    trace(X)         tr(V X) for a symmetric X

Prefixes and all ranges act by cumulative sums in O(p n), products factor by factor; grounding (D^T V D) and the
policy's edges (P^T V P) are gathers around what they wrap.
"""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import Literal

import jax.numpy as jnp
import numpy as np

from hdmm_bf.matrix import Identity, Kronecker, Matrix, Ones, Stack, Weighted
from hdmm_bf.objectives.pytrees import Array, pytree
from hdmm_bf.problem.product import product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload.boxes import AllRange, Prefix

Over = Literal["cells", "edges", "products"]
"""What the columns of a strategy are: the kept cells, the policy's edges, or all cells by the product's factors."""


_ONE_PRODUCT, _BLOCK = 512, 64
"""Cumulative sums are products with a triangle of ones: one up to the first size, then blocks of the second. XLA's own
takes twice as long to compile with all that is around it."""


def cumulative(Y: Array) -> Array:
    """Return the prefix sums of every row."""
    n = Y.shape[-1]
    if n <= _ONE_PRODUCT:
        return Y @ jnp.tri(n).T
    blocks = jnp.pad(Y, [*[(0, 0)] * (Y.ndim - 1), (0, -n % _BLOCK)]).reshape(*Y.shape[:-1], -1, _BLOCK)
    sums = blocks @ jnp.tri(_BLOCK).T
    before = sums[..., -1] @ jnp.tri(sums.shape[-2], k=-1).T
    return (sums + before[..., None]).reshape(*Y.shape[:-1], -1)[..., :n]


def _from_the_end(Y: Array) -> Array:
    """Return the suffix sums of every row."""
    return jnp.flip(cumulative(jnp.flip(Y, -1)), -1)


class Gram:
    """What every Gram matrix can do; `rows` and `entries` are enough."""

    n: int

    def rows(self, Y: Array) -> Array:
        """Return Y V, p x n."""
        raise NotImplementedError

    def entries(self, i: Array, j: Array) -> Array:
        """Return V_ij for arrays of cells."""
        raise NotImplementedError

    def quadratic(self, Y: Array) -> Array:
        """Return tr(Y V Y^T)."""
        return jnp.sum(self.rows(Y) * Y)

    def diagonal(self) -> Array:
        """Return V_ii for every cell."""
        cells = jnp.arange(self.n)
        return self.entries(cells, cells)

    def trace(self, X: Array) -> Array:
        """Return tr(V X) for a symmetric X."""
        return jnp.trace(self.rows(X))

    def dense(self) -> Array:
        """Return V written out."""
        return self.rows(jnp.eye(self.n))

    def halved(self) -> Gram:
        """Return the same queries over half as many cells: every second cell stands for itself and the next."""
        every = np.arange(0, self.n, 2)
        return DenseGram(self.entries(jnp.asarray(every)[:, None], jnp.asarray(every)[None]))


@pytree()
class DenseGram(Gram):
    """V written out, n x n."""

    V: Array

    @property
    def n(self) -> int:  # type: ignore[override]
        """Number of cells."""
        return int(self.V.shape[-1])

    def rows(self, Y: Array) -> Array:
        """Return Y V."""
        return Y @ self.V

    def entries(self, i: Array, j: Array) -> Array:
        """Return V_ij."""
        return self.V[i, j]

    def trace(self, X: Array) -> Array:
        """Return tr(V X)."""
        return jnp.sum(self.V * X)

    def halved(self) -> Gram:
        """Return every second row and column."""
        return DenseGram(jnp.asarray(np.asarray(self.V)[::2, ::2]))


class _AnySize(Gram):
    """Queries that are the same over any number of cells."""

    def halved(self) -> Gram:
        """Return the same queries over half as many cells."""
        return type(self)(-(-self.n // 2))  # type: ignore[call-arg]


@pytree("n")
class RangesGram(_AnySize):
    """All ranges: with S the prefix sums of y and S_0 = 0, y^T V y = (n + 1) sum_i (S_i - mean S)^2."""

    n: int

    def rows(self, Y: Array) -> Array:
        """Return Y V by cumulative sums, forth and back."""
        S = cumulative(Y)
        centred = (self.n + 1) * S - S.sum(axis=-1, keepdims=True)
        return _from_the_end(centred)

    def quadratic(self, Y: Array) -> Array:
        """Return tr(Y V Y^T), without the cancellation of two large sums."""
        S = cumulative(Y)
        mean = S.sum(axis=-1, keepdims=True) / (self.n + 1)
        return (self.n + 1) * (jnp.sum((S - mean) ** 2) + jnp.sum(mean**2))

    def entries(self, i: Array, j: Array) -> Array:
        """Return (min(i, j) + 1)(n - max(i, j))."""
        return ((jnp.minimum(i, j) + 1) * (self.n - jnp.maximum(i, j))).astype(jnp.float64)


@pytree("n")
class PrefixGram(_AnySize):
    """Prefixes: y^T V y is the sum of the squared prefix sums of y."""

    n: int

    def rows(self, Y: Array) -> Array:
        """Return Y V by cumulative sums, forth and back."""
        return _from_the_end(cumulative(Y))

    def quadratic(self, Y: Array) -> Array:
        """Return tr(Y V Y^T)."""
        return jnp.sum(cumulative(Y) ** 2)

    def entries(self, i: Array, j: Array) -> Array:
        """Return n - max(i, j)."""
        return (self.n - jnp.maximum(i, j)).astype(jnp.float64)


@pytree("n")
class IdentityGram(_AnySize):
    """One query a cell."""

    n: int

    def rows(self, Y: Array) -> Array:
        """Return Y."""
        return Y

    def entries(self, i: Array, j: Array) -> Array:
        """Return whether i = j."""
        return (i == j).astype(jnp.float64)


@pytree("n")
class OnesGram(_AnySize):
    """The total alone."""

    n: int

    def rows(self, Y: Array) -> Array:
        """Return the sum of each row, everywhere."""
        return jnp.broadcast_to(Y.sum(axis=-1, keepdims=True), Y.shape)

    def entries(self, i: Array, j: Array) -> Array:
        """Return 1."""
        return jnp.ones(jnp.broadcast_shapes(i.shape, j.shape))


def _sum(parts: list[Array]) -> Array:
    return sum(parts[1:], start=parts[0])


@pytree()
class SumGram(Gram):
    """sum_t weight_t V_t: unions of workloads, and workloads with a weight for each part."""

    parts: tuple[Gram, ...]
    weights: Array

    @property
    def n(self) -> int:  # type: ignore[override]
        """Number of cells."""
        return self.parts[0].n

    def rows(self, Y: Array) -> Array:
        """Return the weighted sum of the parts' rows."""
        return _sum([w * part.rows(Y) for w, part in zip(self.weights, self.parts, strict=True)])

    def halved(self) -> Gram:
        """Return the sum of the parts over half as many cells."""
        return SumGram(tuple(part.halved() for part in self.parts), self.weights)

    def quadratic(self, Y: Array) -> Array:
        """Return the weighted sum of the parts' forms."""
        return _sum([w * part.quadratic(Y) for w, part in zip(self.weights, self.parts, strict=True)])

    def entries(self, i: Array, j: Array) -> Array:
        """Return the weighted sum of the parts' entries."""
        return _sum([w * part.entries(i, j) for w, part in zip(self.weights, self.parts, strict=True)])


@pytree()
class KroneckerGram(Gram):
    """V_1 (x) V_2 (x) ... over a row-major product domain."""

    factors: tuple[Gram, ...]

    @property
    def n(self) -> int:  # type: ignore[override]
        """Number of cells."""
        return int(np.prod([factor.n for factor in self.factors]))

    def rows(self, Y: Array) -> Array:
        """Apply one factor after the other, each along its axis."""
        sizes = [factor.n for factor in self.factors]
        tensor = Y.reshape(*Y.shape[:-1], *sizes)
        for axis, factor in enumerate(self.factors, start=Y.ndim - 1):
            tensor = jnp.moveaxis(factor.rows(jnp.moveaxis(tensor, axis, -1)), -1, axis)
        return tensor.reshape(Y.shape)

    def entries(self, i: Array, j: Array) -> Array:
        """Return the product of the factors' entries."""
        found = jnp.ones(())
        for factor in reversed(self.factors):
            found = found * factor.entries(i % factor.n, j % factor.n)
            i, j = i // factor.n, j // factor.n
        return found


@pytree("n")
class DifferencesGram(Gram):
    """M^T V M for columns of M that are e_head - e_tail: a policy's edges, or cells minus the cell given up for them.

    A tail of -1 stands for nothing. Applying it is a scatter to the cells, V, and a gather back.
    """

    inner: Gram
    head: Array
    tail: Array
    n: int

    def rows(self, Y: Array) -> Array:
        """Return Y M^T V M."""
        cells = jnp.zeros((*Y.shape[:-1], self.inner.n + 1))
        cells = cells.at[..., self.head].add(Y).at[..., self.tail].add(-Y)
        seen = self.inner.rows(cells[..., :-1])
        seen = jnp.concatenate([seen, jnp.zeros((*seen.shape[:-1], 1))], axis=-1)
        return seen[..., self.head] - seen[..., self.tail]

    def entries(self, i: Array, j: Array) -> Array:
        """Return V at the four pairs of ends."""

        def at(a: Array, b: Array) -> Array:
            there = (a >= 0) & (b >= 0)
            return jnp.where(there, self.inner.entries(jnp.maximum(a, 0), jnp.maximum(b, 0)), 0.0)

        h, t = self.head, self.tail
        return at(h[i], h[j]) - at(h[i], t[j]) - at(t[i], h[j]) + at(t[i], t[j])


@singledispatch
def gram_of(matrix: Matrix) -> Gram:
    """Return the Gram matrix of an implicit matrix, acting without being formed where the matrix has a closed form."""
    return DenseGram(jnp.asarray(matrix.gram()))


@gram_of.register
def _(matrix: AllRange) -> Gram:
    return RangesGram(matrix.n)


@gram_of.register
def _(matrix: Prefix) -> Gram:
    return PrefixGram(matrix.n)


@gram_of.register
def _(matrix: Identity) -> Gram:
    return IdentityGram(matrix.n)


@gram_of.register
def _(matrix: Ones) -> Gram:
    return OnesGram(matrix.n)


@gram_of.register
def _(matrix: Kronecker) -> Gram:
    return KroneckerGram(tuple(gram_of(factor) for factor in matrix.factors))


@gram_of.register
def _(matrix: Weighted) -> Gram:
    if matrix.weights.size == 1:
        return SumGram((gram_of(matrix.inner),), jnp.asarray(matrix.weights**2))
    return DenseGram(jnp.asarray(matrix.gram()))


@gram_of.register
def _(matrix: Stack) -> Gram:
    parts = tuple(gram_of(block) for block in matrix.blocks)
    if all(isinstance(part, DenseGram) for part in parts):
        return DenseGram(reduce(jnp.add, [part.dense() for part in parts]))
    return SumGram(parts, jnp.ones(len(parts)))


def product_terms(V: Gram) -> list[tuple[Array, tuple[Gram, ...]]]:
    """Return a sum of Kronecker products as weights and factors."""
    assert isinstance(V, SumGram), "made by `problem_gram` over products"
    return [(w, part.factors) for w, part in zip(V.weights, V.parts, strict=True) if isinstance(part, KroneckerGram)]


def problem_gram(problem: Problem, over: Over = "cells") -> Gram:
    """Return V of a problem: over the kept cells, D^T W^T W D, or over the policy's edges, P^T D^T W^T W D P.

    Custom workloads are squared after grounding, which keeps light queries beside heavy public ones.
    """
    if over == "products":
        product = product_view(problem)
        factors = [tuple(gram_of(factor) for factor in term.factors) for term in product.terms]
        weights = jnp.asarray([term.weight**2 for term in product.terms])
        return SumGram(tuple(KroneckerGram(own) for own in factors), weights)
    V, grounding = gram_of(problem.workload.objective), problem.grounding
    if isinstance(V, DenseGram):
        V = DenseGram(jnp.asarray(problem.gram))
    elif grounding.given_up.size:
        V = DifferencesGram(V, jnp.asarray(grounding.kept), jnp.asarray(grounding.anchor), grounding.kept.size)
    if over == "cells":
        return V
    P = problem.P
    if np.array_equal(P.head, np.arange(P.num_vertices)) and np.all(P.tail < 0):
        return V  # a star: the edges are the cells
    return DifferencesGram(V, jnp.asarray(P.head), jnp.asarray(P.tail), P.head.size)
