"""Square roots and inverses of positive definite matrices by products alone: Newton and Schulz's iterations.

A factorisation of a matrix that is spread over devices is done on one of them after gathering it; products are not.
With the spectrum of S / s inside (0, 1], the coupled iteration

    Y <- a/2 Y (3 - a^2 Z Y),   Z <- a/2 (3 - a^2 Z Y) Z,    from Y = S / s, Z = 1

ends at the roots of S / s and of its inverse. On the eigenvalues x^2 of Z Y it is x <- a x (3 - a^2 x^2) / 2. Plain
Newton and Schulz, a = 1, lift a small x by 1.5 a step. The best a for an interval [l, 1] equalises the images of its
ends, which lifts by 2.6 (Chen and Chow, 2014); we stop short of that, so that x = 1 is not sent to zero, where it would
drown in rounding.

All functions are for use inside `devices.on_rows` and see one device's rows.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from hdmm_bf.parallel.devices import Array, largest, local_identity, local_product, total

_LONGEST = 1.69
"""Largest a: it sends x = 1 to 0.12 and lifts small x by 2.53."""

_NEAR = 0.5
"""A residual below which plain steps converge at once."""

_SMALL = 1e-7
"""A residual from which one more step ends in rounding, because it is squared."""

_EXACT = 1e-13
"""A residual at which an inverse is as good as it can be."""

MOST_STEPS = 60
"""Steps of the root, enough for condition numbers up to about 1e14 and far more than any below 1e12 takes."""

_MOST_INVERSE_STEPS = 30


_Carry: TypeAlias = tuple[Array, Array, Array, Array, Array]
"""Two matrices that are iterated, two numbers about them, and the number of steps."""


class Root(NamedTuple):
    """S^(1/2) and S^(-1/2) as found, how far S^(-1/2) S S^(-1/2) is from the identity, and what it took."""

    root: Array
    inverse: Array
    trace: Array
    residual: Array
    steps: Array


def square_root(S: Array, floor: Array) -> Root:
    """Return the roots of a positive definite matrix.

    Args:
        S: this device's rows.
        floor: a guess at the smallest eigenvalue against the largest; a wrong one costs steps, not accuracy.

    Guarantees:
        With t = trace and r = residual < 1 of the result, tr S^(1/2) >= t / sqrt(1 + r), and the inverse of S^(-1/2) as
        found has a trace of at most t / (1 - r), however far the iteration came.
    """
    import jax.numpy as jnp
    from jax import lax

    eye = local_identity(*S.shape)
    scale = norm_bound(S)

    def step(carry: _Carry) -> _Carry:
        Y, Z, low, _, count = carry
        T = local_product(Z, Y)
        far = jnp.sqrt(total((T - eye) ** 2))
        a = jnp.where(far < _NEAR, 1.0, jnp.minimum(jnp.sqrt(3 / (1 + low + low * low)), _LONGEST))
        lift = a / 2 * (3 * eye - a * a * T)
        image = [a * t * (3 - a * a * t * t) / 2 for t in (low, 1.0)]
        return local_product(Y, lift), local_product(lift, Z), jnp.minimum(*image), far, count + 1

    def unfinished(carry: _Carry) -> Array:
        *_, far, count = carry
        return (far > _SMALL) & (count < MOST_STEPS)

    start = S / scale, eye, jnp.sqrt(floor), jnp.asarray(jnp.inf), jnp.asarray(0)
    Y, Z, _, _, count = lax.while_loop(unfinished, step, start)
    Y, Z = Y * jnp.sqrt(scale), Z / jnp.sqrt(scale)
    SZ = local_product(S, Z)
    residual = jnp.sqrt(total((local_product(Z, SZ) - eye) ** 2))
    return Root(Y, Z, total(SZ * eye), residual, count)


def inverse(K: Array, start: Array) -> tuple[Array, Array]:
    """Return the inverse of a symmetric matrix near that of a positive definite `start`, and the residual.

    Y <- Y (2 - K Y) squares the residual, eigenvalue by eigenvalue of K times the start, which is shrunk until all are
    below 2. A negative one moves away from 1 forever.

    Guarantees:
        A residual r < 1 shows that K is positive definite, and that tr K^-1 is at most the result's trace / (1 - r).
    """
    import jax.numpy as jnp
    from jax import lax

    eye = local_identity(*K.shape)

    def far_from(KY: Array) -> Array:
        return jnp.sqrt(total((KY - eye) ** 2))

    KY = local_product(K, start)
    reach = jnp.maximum(jnp.sqrt(total(KY * KY)), 1.0)
    shrink = jnp.where(far_from(KY) < 1, 1.0, 1 / reach)

    def step(carry: _Carry) -> _Carry:
        Y, KY, far, _, count = carry
        Y = local_product(Y, 2 * eye - KY)
        KY = local_product(K, Y)
        return Y, KY, far_from(KY), far, count + 1

    def unfinished(carry: _Carry) -> Array:
        *_, far, before, count = carry
        gains = (far > _NEAR) | (far < _NEAR * before)  # rounding is reached when a step no longer halves it
        return (far > _EXACT) & gains & (count < _MOST_INVERSE_STEPS) & jnp.isfinite(far)

    first = start * shrink, KY * shrink, far_from(KY * shrink), jnp.asarray(jnp.inf), jnp.asarray(0)
    Y, _, far, _, _ = lax.while_loop(unfinished, step, first)
    return Y, far


def norm_bound(S: Array) -> Array:
    """Return a number that no eigenvalue of a symmetric matrix exceeds: its Frobenius norm or its largest row sum."""
    import jax.numpy as jnp

    return jnp.minimum(jnp.sqrt(total(S * S)), largest(jnp.abs(S).sum(axis=1)))
