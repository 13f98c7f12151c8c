"""A Gram matrix that is spread over a mesh by its rows: the objectives are those of `objectives`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from hdmm_bf import _linalg as la
from hdmm_bf._types import SquareMatrix
from hdmm_bf.objectives.grams import Gram
from hdmm_bf.objectives.pytrees import pytree
from hdmm_bf.parallel.devices import Mesh, everywhere, in_rows, mapped, padding, replicate, spread, whole

_BLOCK = 16
"""Rows of V that are multiplied at once."""


@pytree("mesh", "n")
class SpreadGram(Gram):
    """V on a mesh, in rows, with its diagonal on every device: what p-identity needs of it, and no more."""

    in_rows_: jax.Array
    on_diagonal: jax.Array
    mesh: Mesh
    n: int

    def quadratic(self, Y: Float[Array, "p e"]) -> jax.Array:
        """Return tr(Y V Y^T)."""
        return _energy(self.mesh)(Y, self.in_rows_)

    def diagonal(self) -> jax.Array:
        """Return V_ii."""
        return self.on_diagonal

    def halved(self) -> Gram:
        """Return every second row and column, on the mesh."""
        written = np.asarray(self.in_rows_)[: self.n]
        return spread_gram(written[::2, ::2], self.mesh)


@la.in_float64
def spread_gram(V: SquareMatrix, mesh: Mesh) -> SpreadGram:
    """Return V in rows on the mesh."""
    rows = np.pad(V, ((0, padding(len(V), _BLOCK * mesh.size)), (0, 0)))
    return SpreadGram(spread(rows, mesh), replicate(np.diag(V).copy(), mesh), mesh, len(V))


@functools.cache
def _energy(mesh: Mesh) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the function A, V -> tr(A V A^T), whose derivative 2 A V is the product it makes anyway.

    Every device multiplies its rows of V in blocks of one size, so that the number of devices does not change a bit of
    the result: descents of hundreds of steps would magnify the least difference.
    """

    def program(At: Float[Array, "e p"], V: Float[Array, "rows e"]) -> jax.Array:
        blocks = V.reshape(-1, _BLOCK, V.shape[1])
        own = lax.map(lambda rows: rows @ At, blocks).reshape(-1, At.shape[1])
        return jnp.asarray(everywhere(own))

    rows_of_product = mapped(mesh, program, (whole(), in_rows()), whole())

    def product(A: Float[Array, "p e"], V: Float[Array, "padded e"]) -> jax.Array:
        return jnp.asarray(rows_of_product(A.T, V)[: A.shape[1]].T)

    @jax.custom_vjp
    def energy(A: Float[Array, "p e"], V: Float[Array, "padded e"]) -> jax.Array:
        return (product(A, V) * A).sum()

    def forward(A: Float[Array, "p e"], V: Float[Array, "padded e"]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        AV = product(A, V)
        return (AV * A).sum(), (AV, V)

    def backward(saved: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, jax.Array]:
        AV, V = saved
        return 2 * slope * AV, jnp.zeros_like(V)

    energy.defvjp(forward, backward)
    return energy
