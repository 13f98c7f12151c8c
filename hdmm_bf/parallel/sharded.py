"""The Gaussian search's matrices spread over devices: edges and rows apart, products alone, no factorisation.

For weights mu every device holds the rows of L(mu) that belong to its vertices, made from the edges at those vertices
(an edge between two vertices is held at both ends), and its rows of

    S = R L R^T,    Z = S^(-1/2),    X(mu) = R^T Z R,    R B = 1

What the search asks of X, the distances along edges, stands in the rows of the edges' ends. After a move of X by D
inside the range of V the error is tr (Z + B^T D B)^-1, by the iteration for inverses. The host holds vectors over the
edges, R and B, which it factors once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from jaxtyping import Float64

from hdmm_bf import _linalg as la
from hdmm_bf._types import AnyArray, IndexArray, RealMatrix, RealVector
from hdmm_bf.bounds.dense import GramRoot
from hdmm_bf.parallel import devices as dv
from hdmm_bf.parallel import roots
from hdmm_bf.parallel.devices import Array
from hdmm_bf.problem.forms import EdgeForms

_FIRST_FLOOR = 1e-12
"""First guess at the smallest eigenvalue of S against the largest; later ones come from the last S."""

_WORST_RESIDUAL = 1e-5

_Program: TypeAlias = Callable[..., tuple[Array, ...]]


class Spread(NamedTuple):
    """X(mu) on the devices, what it shows, and what a move from it needs."""

    root_sum: float
    trace: float
    X: Array
    d: RealVector
    L: Array
    root: Array
    inverse: Array


class HalfEdges(NamedTuple):
    """The edges at the vertices of every device, padded to one length; every edge is listed at each of its ends.

    Attributes:
        edge: number of the edge, the number of edges where there is none.
        row: its vertex here, counted on its device.
        column: its other end; the vertex itself for edges to the ground.
        inner: 1 for edges between two vertices, 0 for edges to the ground.
        first: where in `edge` every edge stands at its higher end.
    """

    edge: IndexArray
    row: IndexArray
    column: IndexArray
    inner: RealVector
    first: IndexArray


def half_edges(forms: EdgeForms, height: int, parts: int) -> HalfEdges:
    """List the edges at every vertex, device by device, when each has `height` vertices."""
    edge = np.concatenate([forms.inner, forms.grounded, forms.inner])
    row = np.concatenate([forms.high, forms.foot, forms.low])
    column = np.concatenate([forms.low, forms.foot, forms.high])
    owner = row // height
    order = np.argsort(owner, kind="stable")
    held = np.bincount(owner, minlength=parts)
    place = np.arange(order.size) - np.repeat(np.cumsum(held) - held, held) + owner[order] * held.max()
    size = parts * int(held.max())
    listed = np.zeros((3, size), dtype=np.int64)
    listed[0] = forms.num_edges
    listed[:, place] = np.stack([edge, row % height, column])[:, order]
    inner = np.zeros(size)
    inner[place] = (row != column)[order]
    first = np.empty(forms.num_edges, dtype=np.int64)
    ones = order < forms.num_edges
    first[edge[order[ones]]] = place[ones]
    return HalfEdges(listed[0], listed[1], listed[2], inner, first)


@final
class Matrices:
    """R, B and the edges of one problem on a mesh, and the compiled programs over them."""

    def __init__(self, root: GramRoot, forms: EdgeForms, mesh: dv.Mesh, *, gap: float) -> None:
        self.mesh, self.forms, self.rank = mesh, forms, root.rank
        self.worst = min(_WORST_RESIDUAL, gap / 20)
        self.floor = _FIRST_FLOOR
        n, parts = forms.n, mesh.size
        R = _padded(root.R, dv.padding(root.rank, parts), dv.padding(n, parts))
        B = _padded(root.right_inverse(), dv.padding(n, parts), dv.padding(root.rank, parts))
        self.edges = half_edges(forms, R.shape[1] // parts, parts)
        self.constants = self._put(R, R.T, B, B.T)
        self.graph = self._put(self.edges.row, self.edges.column, self.edges.inner)
        self.pads, self.held = self._put(np.arange(len(R)) >= root.rank, self.edges.edge < forms.num_edges)
        self.is_full = root.basis is None
        self.steps = 0

    @la.in_float64
    def _put(self, *arrays: AnyArray) -> tuple[Array, ...]:
        return tuple(dv.spread(a, self.mesh) for a in arrays)

    def _over_edges(self, values: RealVector) -> Array:
        return self._put(np.append(values, 0.0)[self.edges.edge])[0]

    def _from_edges(self, held: Array) -> RealVector:
        return np.asarray(dv.to_host(held)[self.edges.first])

    @la.in_float64
    def at(self, mu: Float64[np.ndarray, " e"]) -> Spread | None:
        """Return X(mu), or None where S is so badly conditioned that its root by products is no good."""
        *numbers, X, d, L, Y, Z = _at(self.mesh)(*self._given(mu))
        trace, residual, floor, steps = (float(number) for number in numbers)
        self.steps = int(steps)
        if not residual < self.worst:
            return None
        self.floor = floor
        return Spread(trace / math.sqrt(1 + residual), trace / (1 - residual), X, self._from_edges(d), L, Y, Z)

    def _given(self, mu: RealVector) -> tuple[Array, ...]:
        R, Rt, _, _ = self.constants
        (floor,) = self._put(np.full(self.mesh.size, self.floor))
        return R, Rt, *self.graph, self.pads, floor, self._over_edges(mu)

    @la.in_float64
    def compiled(self) -> Any:
        """Return the compiled program for X(mu), to see what it holds and does."""
        program: Any = _at(self.mesh)  # jitted: JAX has no public type for it
        return program.lower(*self._given(np.zeros(self.forms.num_edges))).compile()

    @la.in_float64
    def curvature(self, point: Spread) -> RealVector:
        """Return the second derivatives of tr(V X^-1) along the distances."""
        _, _, B, Bt = self.constants
        (held,) = _curvature(self.mesh)(B, Bt, *self.graph, point.L, point.root)
        return self._from_edges(held)

    @la.in_float64
    def moved(self, point: Spread, change: Float64[np.ndarray, " e"]) -> tuple[float, Array]:
        """Move d_e(X) by change_e inside the range of V; return the error and the new X."""
        program = _moved(self.mesh, self.is_full)
        trace, residual, largest, X = program(
            *self.constants,
            *self.graph,
            self.pads,
            self.held,
            self._over_edges(change),
            point.X,
            point.root,
            point.inverse,
        )
        far = float(residual)
        return (float(trace) / (1 - far) * float(largest) if far < self.worst else math.inf), X

    def to_host(self, X: Array) -> RealMatrix:
        """Return a spread X without its padding, for NumPy."""
        return np.asfortranarray(dv.to_host(X)[: self.forms.n, : self.forms.n])


def _padded(A: RealMatrix, rows: int, columns: int) -> RealMatrix:
    return np.pad(A, ((0, rows), (0, columns)))


def local_distances(X: Array, row: Array, column: Array, inner: Array) -> Array:
    """Return d_e(X) for the edges held here."""
    own = dv.local_diagonal(X)
    diagonal = dv.everywhere(own)
    return own[row] + inner * (diagonal[column] - 2 * X[row, column])


def local_laplacian(row: Array, column: Array, inner: Array, weight: Array, height: int, width: int) -> Array:
    """Return this device's rows of L."""
    import jax.numpy as jnp

    L = jnp.zeros((height, width)).at[row, column].add(-inner * weight)
    return L.at[row, dv.local_numbers(height)[row]].add(weight)


def _congruent(left: Array, middle: Array, right: Array) -> Array:
    return dv.local_product(dv.local_product(left, middle), right)


@functools.cache
def _at(mesh: dv.Mesh) -> _Program:
    """Compile mu -> X(mu)."""

    def program(
        R: Array, Rt: Array, row: Array, column: Array, inner: Array, pads: Array, floor: Array, weight: Array,
    ) -> tuple[Array, ...]:  # fmt: skip
        import jax.numpy as jnp

        L = local_laplacian(row, column, inner, weight, *reversed(_local_shape(R, Rt)))
        S = _congruent(R, L, Rt)
        eye = dv.local_identity(*S.shape)
        unit = dv.total(S * eye) / dv.total(~pads)  # a padded row gets a typical eigenvalue of its own
        found = roots.square_root(S + eye * jnp.where(pads, unit, 0.0)[:, None], floor[0])
        trace = found.trace - jnp.sqrt(unit) * dv.total(pads)
        X = _congruent(Rt, found.inverse, R)
        lowest = 1 / (roots.norm_bound(found.inverse) ** 2 * roots.norm_bound(S))
        d = local_distances(X, row, column, inner)
        return trace, found.residual, lowest, found.steps, X, d, L, found.root, found.inverse

    return dv.on_rows(mesh, program, replicated=4, spread=5)


def _local_shape(R: Array, Rt: Array) -> tuple[int, int]:
    """Width and height of this device's rows of a matrix over the vertices."""
    return R.shape[1], Rt.shape[0]


@functools.cache
def _curvature(mesh: dv.Mesh) -> _Program:
    """Compile the second derivatives: see `EdgeForms.curvature`."""

    def program(
        B: Array, Bt: Array, row: Array, column: Array, inner: Array, L: Array, root: Array
    ) -> tuple[Array, ...]:
        Y = _congruent(B, root, Bt)
        own_L, own_Y = dv.local_diagonal(L), dv.local_diagonal(Y)
        diagonal_L, diagonal_Y = dv.everywhere(own_L), dv.everywhere(own_Y)
        sums_L, sums_Y = L.sum(axis=1), Y.sum(axis=1)
        crossed = own_L[row] * diagonal_Y[column] + diagonal_L[column] * own_Y[row]
        between = crossed / 2 + L[row, column] * Y[row, column]
        outer = own_L[row] * dv.total(sums_Y) + dv.total(sums_L) * own_Y[row]
        return (inner * between + (1 - inner) * (outer / 2 + sums_L[row] * sums_Y[row]),)

    return dv.on_rows(mesh, program)


@functools.cache
def _moved(mesh: dv.Mesh, is_full: bool) -> _Program:
    """Compile the move: see `EdgeForms.shift`."""

    def program(
        R: Array, Rt: Array, B: Array, Bt: Array, row: Array, column: Array, inner: Array, pads: Array, held: Array,
        change: Array, X: Array, root: Array, Z: Array,
    ) -> tuple[Array, ...]:  # fmt: skip
        import jax.numpy as jnp

        half = jnp.zeros(len(X)).at[row].add((1 - inner) * change / 2)
        D = jnp.zeros_like(X).at[row, column].add(-inner * change / 2)
        D = D + half[:, None] + dv.everywhere(half)[None, :]
        K = Z + _congruent(Bt, D, B)
        Y, residual = roots.inverse(K, root)
        trace = dv.total(jnp.where(pads, 0.0, dv.local_diagonal(Y)))
        X = X + D if is_full else _congruent(Rt, K, R)
        largest = dv.largest(jnp.where(held, local_distances(X, row, column, inner), 0.0))
        return trace, residual, largest, X

    return dv.on_rows(mesh, program, replicated=3, spread=1)
