"""Losses of Laplace strategies, as JAX functions of their parameters: the logarithm of the unit error.

Throughout, V = W^T W is a Gram matrix of the queries, scaled as the caller likes, and the unit error of a strategy A is

    (largest L1 norm of a column A p_e)^2 * tr(V (A^T A)^-1)

Every parametrisation below but `vertex` has columns of L1 norm 1 by construction, so that only the trace is left.
A loss that cannot be evaluated, because a matrix is not positive definite, is not a number.
"""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float


def p_identity(roots: Float[Array, "p e"], V: Float[Array, "e e"]) -> Float[Array, ""]:
    """Return the log error of [I; Theta] with every column scaled to L1 norm 1.

    With Theta = roots^2, d = 1 + its column sums and G = diag(d) V diag(d),

        log( tr G - tr(G Theta^T (I + Theta Theta^T)^-1 Theta) )

    Args:
        roots: square roots of the rows; rows of zeros stay zero.
        V: the Gram matrix over the edges.
    """
    d, Y = p_identity_inverse(roots)
    G = d[:, None] * V * d
    return jnp.log(jnp.trace(G) - jnp.sum((Y @ G) * Y))


def p_identity_inverse(roots: Float[Array, "p e"]) -> tuple[Float[Array, " e"], Float[Array, "p e"]]:
    """Return the columns' norms d, and Y with Y^T Y = Theta^T (I + Theta Theta^T)^-1 Theta, Theta = roots^2.

    Then (A^T A)^-1 = diag(d) (I - Y^T Y) diag(d) for A = [I; Theta] / d.
    """
    Theta = roots**2
    C = jnp.linalg.cholesky(jnp.eye(len(Theta)) + Theta @ Theta.T)
    return 1 + Theta.sum(axis=0), solve_triangular(C, Theta, lower=True)


def p_identity_on_cells(
    roots: Float[Array, "p ..."], terms: tuple[tuple[Float[Array, "_ _"], ...], ...]
) -> Float[Array, ""]:
    """Return the log error of [I; Theta] over the cells of a product domain, no matrix over the cells being made.

    With Theta = roots^2, C C^T = I + Theta Theta^T, Y = C^-1 Theta diag(d) and V_k = (x)_i V_ki,

        log sum_k ( d^T diag(V_k) d - <Y V_k, Y> )

    Args:
        roots: square roots of the rows, p x n_1 x ... x n_d.
        terms: for every product of queries its Gram matrices, n_i x n_i, one per attribute.
    """
    Theta = roots**2
    p, d = len(Theta), 1 + Theta.sum(axis=0)
    flat = Theta.reshape(p, -1)
    C = jnp.linalg.cholesky(jnp.eye(p) + flat @ flat.T)
    Y = solve_triangular(C, flat, lower=True).reshape(Theta.shape) * d
    error = jnp.zeros(())
    for grams in terms:
        Z = Y
        for axis, V in enumerate(grams, start=1):
            Z = jnp.moveaxis(jnp.tensordot(V, Z, axes=(1, axis)), 0, axis)
        diagonal = reduce(jnp.multiply.outer, [jnp.diag(V) for V in grams])
        error += jnp.sum(d**2 * diagonal) - jnp.sum(Y * Z)
    return jnp.log(error)


def signed_rows(
    split: Float[Array, "2 p N"], budgets: Float[Array, " N"], V: Float[Array, "n n"], D: Float[Array, "N n"]
) -> Float[Array, ""]:
    """Return the log error of A D, A = [I; Theta] with column v scaled to L1 norm budgets[v].

        log tr(V (D^T A^T A D)^-1),     Theta = split[0] - split[1]

    Args:
        split: the positive and the negative parts of the rows, both nonnegative: the norms are smooth in them.
        budgets: the norm of every column.
        V: the Gram matrix over the kept cells.
        D: every vertex, grounds included, over the kept cells.
    """
    Theta = split[0] - split[1]
    scale = budgets / (1 + split.sum(axis=(0, 1)))
    cells = scale[:, None] * D
    rows = Theta @ cells
    return jnp.log(_trace_of_inverse(cells.T @ cells + rows.T @ rows, V))


def free(split: Float[Array, "2 r e"], V: Float[Array, "e e"]) -> Float[Array, ""]:
    """Return the log error of any signed A = split[0] - split[1] with its columns scaled to L1 norm 1.

        log tr(diag(d) V diag(d) (A^T A)^-1),     d the column sums of split[0] + split[1]

    Args:
        split: the positive and the negative parts, both nonnegative: no smoothing is needed.
        V: the Gram matrix over the edges.
    """
    A = split[0] - split[1]
    d = split.sum(axis=(0, 1))
    return jnp.log(_trace_of_inverse(A.T @ A, d[:, None] * V * d))


def vertex(
    A: Float[Array, "r n"], V: Float[Array, "n n"], P: Float[Array, "n e"], eta: Float[Array, ""], q: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the log error of a strategy over the cells, with the smoothed sensitivity; rows of zeros stay zero.

        log tr(V (A^T A)^-1) + 2 log ||h||_q,     h_e = sum_j sqrt((A p_e)_j^2 + eta^2)

    Args:
        A: the strategy.
        V: the Gram matrix over the kept cells.
        P: one column per edge.
        eta: rounding of |.| at zero.
        q: power of the norm over the edges; the largest is the limit.
    """
    h = jnp.sqrt((A @ P) ** 2 + eta**2).sum(axis=0)
    top = jax.lax.stop_gradient(h.max())
    return jnp.log(_trace_of_inverse(A.T @ A, V)) + 2 * jnp.log(top) + 2 / q * jnp.log(((h / top) ** q).sum())


def _trace_of_inverse(X: Float[Array, "n n"], V: Float[Array, "n n"]) -> Float[Array, ""]:
    """tr(V X^-1) by Cholesky."""
    C = jnp.linalg.cholesky(X)
    half = solve_triangular(C, V, lower=True)
    return jnp.trace(solve_triangular(C, half.T, lower=True))
