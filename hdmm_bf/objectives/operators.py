"""Strategies as differentiable operators: what the objectives ask of a strategy, whatever it is made of.

An operator A (r rows, one column per cell or edge) answers

    trace(V)              tr(V (A^T A)^-1) for a Gram matrix V
    norms(edges, ...)     ||A p_e|| for every edge, its L1 or L2 norm
    dense()               A written out, r x n

`Rows` is any matrix; `DiagonalAndRows` is [diag(s); B] with few rows B, where nothing of size n x n is made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from hdmm_bf._types import IndexArray, Norm, RealVector
from hdmm_bf.objectives.grams import Gram, Over, product_terms
from hdmm_bf.objectives.pytrees import Array, pytree
from hdmm_bf.problem.product import product_view
from hdmm_bf.problem.transform import Problem

UNSUPPORTED = 1e250
"""The trace where A^T A has no inverse: large, finite, and with gradient zero."""

_MOST_PADDING = 4
"""Times the edges: up to this the edges at each cell are kept in a table, and derivatives are gathered from it."""


@runtime_checkable
class Operator(Protocol):
    """What an objective needs of a strategy."""

    @property
    def n(self) -> int:
        """Number of columns."""

    def trace(self, V: Gram) -> Array:
        """Return tr(V (A^T A)^-1), or `UNSUPPORTED`."""

    def norms(self, edges: Edges, norm: Norm, eta: Array | float) -> Array:
        """Return ||A p_e|| for every edge; for L1, |t| is sqrt(t^2 + eta^2)."""

    def dense(self) -> Array:
        """Return A written out."""


@pytree()
class Edges:
    """The columns p_e = e_head - e_tail, a tail of -1 standing for BOTTOM; for strategies over edges, no columns.

    Attributes:
        head, tail: one cell each per edge.
        table: for every cell the numbers of its edges, padded with e; empty where cells differ too much in degree.
        signs: +1 where the cell is the head, -1 where it is the tail, 0 on padding.
        scale: None, or what the norm of every A p_e counts times.
    """

    head: Array
    tail: Array
    table: Array
    signs: Array
    scale: Array | None = None

    def differences(self, columns: Array) -> Array:
        """Return A p_e, one row per edge, from the columns of A, one row per cell."""
        return _gathered(replace(self, scale=None), columns)

    def scaled(self, norms: Array) -> Array:
        """Return norms times the scale."""
        return norms if self.scale is None else self.scale * norms


@jax.custom_vjp
def _gathered(edges: Edges, columns: Array) -> Array:
    ended = jnp.concatenate([columns, jnp.zeros((1, *columns.shape[1:]))])
    return ended[edges.head] - ended[edges.tail]


def _scattered(edges: Edges, slopes: Array) -> Array:
    """The transpose: at every cell the slopes of its edges, gathered; a scatter is several times slower on CPUs."""
    n = edges.table.shape[0]
    if edges.table.size == 0:
        found = jnp.zeros((n + 1, *slopes.shape[1:])).at[edges.head].add(slopes)
        return found.at[edges.tail].add(-slopes)[:n]
    ended = jnp.concatenate([slopes, jnp.zeros((1, *slopes.shape[1:]))])
    found = jnp.zeros((n, *slopes.shape[1:]))
    for k in range(edges.table.shape[1]):
        found = found + edges.signs[:, k, None] * ended[edges.table[:, k]]
    return found


def _forward(edges: Edges, columns: Array) -> tuple[Array, Edges]:
    return _gathered(edges, columns), edges


def _back(edges: Edges, slopes: Array) -> tuple[Any, Array]:
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, jax.dtypes.float0), edges), _scattered(edges, slopes)


_gathered.defvjp(_forward, _back)


def problem_edges(problem: Problem, over: Over = "cells") -> Edges | ProductEdges | None:
    """Return the policy's edges over the kept cells; None for strategies over the edges, whose columns are theirs."""
    if over == "edges":
        return None
    if over == "products":
        product = product_view(problem)
        return ProductEdges(
            tuple(edges_of(e[:, 0], e[:, 1], n) for e, n in zip(product.edges, product.sizes, strict=True))
        )
    return edges_of(problem.P.head, problem.P.tail, problem.P.num_vertices)


def edges_of(head: IndexArray, tail: IndexArray, n: int, scale: RealVector | None = None) -> Edges:
    """Return edges over n cells with, where these are alike in degree, the edges of every cell."""
    times = None if scale is None else jnp.asarray(scale)
    e = head.size
    ends, numbers = np.concatenate([head, tail[tail >= 0]]), np.concatenate([np.arange(e), np.flatnonzero(tail >= 0)])
    order = np.argsort(ends, kind="stable")
    degrees = np.bincount(ends, minlength=n)
    widest = int(degrees.max(initial=0))
    if widest * n > _MOST_PADDING * max(ends.size, 1):
        none = jnp.zeros((n, 0), jnp.int64)
        return Edges(jnp.asarray(head), jnp.asarray(tail), none, none, times)
    place = np.arange(ends.size) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    table, signs = np.full((n, widest), e), np.zeros((n, widest), dtype=np.int64)
    table[ends[order], place] = numbers[order]
    signs[ends[order], place] = np.where(order < e, 1, -1)
    return Edges(jnp.asarray(head), jnp.asarray(tail), jnp.asarray(table), jnp.asarray(signs), times)


@pytree()
class Rows:
    """Any strategy, written out: r x n."""

    A: Array

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.A.shape[-1])

    def trace(self, V: Gram) -> Array:
        """Return tr(V (A^T A)^-1) by Cholesky, with the derivative -X^-1 V X^-1."""
        return trace_of_inverse(V, self.A.T @ self.A)

    def norms(self, edges: Edges | None, norm: Norm, eta: Array | float = 0.0) -> Array:
        """Return the norm of every column A p_e."""
        columns = self.A.T if edges is None else edges.differences(self.A.T)
        found = root((columns**2).sum(axis=1)) if norm == "L2" else smooth_abs(columns, eta).sum(axis=1)
        return found if edges is None else edges.scaled(found)

    def dense(self) -> Array:
        """Return A."""
        return self.A


@pytree()
class DiagonalAndRows:
    """[diag(scale); B]: every cell by itself, scale != 0, and p more rows. Costs O(p^2 n), no matrix of n x n.

    X = diag(scale^2) + B^T B has the inverse diag(scale^-2) - Y^T Y with Y = C^-1 B diag(scale^-2), C C^T = I + R R^T,
    R = B diag(scale^-1). The difference loses digits where a column of R is large: a share of about 2e-16 max R^2.
    """

    scale: Array
    B: Array

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.scale.shape[-1])

    def trace(self, V: Gram) -> Array:
        """Return sum_i V_ii / scale_i^2 - tr(Y V Y^T); `UNSUPPORTED` where a scale is zero, whatever B restores."""
        usable = jnp.all(self.scale != 0)
        scale = jnp.where(usable, self.scale, 1.0)
        R = self.B / scale
        C = jnp.linalg.cholesky(jnp.eye(len(R)) + R @ R.T)
        Y = solve_triangular(C, R, lower=True) / scale
        value = jnp.sum(V.diagonal() / scale**2) - V.quadratic(Y)
        return jnp.where(usable & (value > 0), value, UNSUPPORTED)

    def norms(self, edges: Edges | None, norm: Norm, eta: Array | float = 0.0) -> Array:
        """Return the norm of every column A p_e: the two cells by themselves, and the rows."""
        power = 1 if norm == "L1" else 2
        rows = self.B.T if edges is None else edges.differences(self.B.T)
        body = (smooth_abs(rows, eta) if norm == "L1" else rows**2).sum(axis=1)
        own = jnp.abs(self.scale) ** power
        if edges is not None:
            own = jnp.concatenate([own, jnp.zeros(1)])
            own = own[edges.head] + own[edges.tail]
        found = own + body if norm == "L1" else root(own + body)
        return found if edges is None else edges.scaled(found)

    def dense(self) -> Array:
        """Return [diag(scale); B]."""
        return jnp.concatenate([jnp.diag(self.scale), self.B])


@pytree()
class ProductPrecisions:
    """X = S diag(M) S^T over a product domain, S = S_1 (x) ... (x) S_d square: nothing larger than the domain is made.

        tr(V X^-1) = sum_t sum_J prod_i g_itj_i / M_J,     g_itj = (S_i^-1 V_ti S_i^-T)_jj
        d_e = sum_J M_J A_iej_i prod_{k != i} C_kcj_k       A = (p_e^T S_i)^2, C = S_k^2, for edges of attribute i

    Attributes:
        bases: S_i, n_i x n_i.
        M: the precisions, n_1 x ... x n_d.
        public: which products of columns are public totals: they cost nothing.
    """

    bases: tuple[Array, ...]
    M: Array
    public: Array

    @property
    def n(self) -> int:
        """Number of cells."""
        return int(self.M.size)

    def trace(self, V: Gram) -> Array:
        """Return tr(V X^-1) for a sum of products V."""
        inverses = [jnp.linalg.inv(S) for S in self.bases]
        v = jnp.zeros(())
        for weight, factors in product_terms(V):
            term = weight
            for T, factor in zip(inverses, factors, strict=True):
                term = jnp.multiply.outer(term, jnp.sum(factor.rows(T) * T, axis=1))
            v = v + term
        value = jnp.sum(jnp.where(self.public, 0.0, v) / self.M)
        return jnp.where(jnp.isfinite(value), value, UNSUPPORTED)

    def norms(self, edges: ProductEdges, norm: Norm, eta: Array | float = 0.0) -> Array:
        """Return sqrt(d_e), type by type; precisions are for Gaussian noise, so the norm is L2."""
        cells = [S**2 for S in self.bases]
        found = []
        for i, own in enumerate(edges.attributes):
            if own.head.size:
                d = self.M
                for axis, C in enumerate(cells):
                    factor = own.differences(self.bases[i]) ** 2 if axis == i else C
                    d = jnp.moveaxis(jnp.tensordot(factor, d, axes=(1, axis)), 0, axis)
                found.append(root(d).ravel())
        return jnp.concatenate(found)

    def dense(self) -> Array:
        """Return diag(M)^(1/2) S^T, one row per product of columns."""
        S = jnp.ones((1, 1))
        for basis in self.bases:
            S = jnp.kron(S, basis)
        return jnp.sqrt(self.M.ravel())[:, None] * S.T


@pytree()
class ProductEdges:
    """The edges of every attribute's policy: each moves a record along one attribute, at any cell of the others."""

    attributes: tuple[Edges, ...]


def smooth_abs(t: Array, eta: Array | float) -> Array:
    """Return sqrt(t^2 + eta^2): |t|, rounded at zero."""
    return root(t**2 + eta**2)


def root(t: Array) -> Array:
    """Return the square root, with the derivative 0 at zero."""
    positive = t > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, t, 1.0)), 0.0)


@jax.custom_jvp
def trace_of_inverse(V: Gram, X: Array) -> Array:
    """Return tr(V X^-1) for a positive definite X; `UNSUPPORTED`, with gradient zero, where X is not."""
    definite, inverse = _inverse(X)
    return jnp.where(definite, V.trace(inverse), UNSUPPORTED)


@trace_of_inverse.defjvp
def _(primals: tuple[Gram, Array], tangents: tuple[Any, Array]) -> tuple[Array, Array]:
    """D tr(V X^-1) = tr(dV X^-1) - <X^-1 V X^-1, dX>, with one product of matrices where V acts fast."""
    (V, X), (dV, dX) = primals, tangents
    definite, inverse = _inverse(X)
    value, of_gram = jax.jvp(lambda gram: gram.trace(inverse), (V,), (dV,))
    of_X = jnp.sum((V.rows(inverse) @ inverse) * dX)
    return jnp.where(definite, value, UNSUPPORTED), of_gram - of_X


def _inverse(X: Array) -> tuple[Array, Array]:
    """Whether X is positive definite, and X^-1, zero where it is not."""
    C = jnp.linalg.cholesky(X)
    definite = jnp.all(jnp.isfinite(C))
    half = solve_triangular(jnp.where(definite, C, jnp.eye(len(X))), jnp.eye(len(X)), lower=True)
    return definite, jnp.where(definite, half.T @ half, 0.0)
