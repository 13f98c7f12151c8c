"""The one minimiser of smooth losses: L-BFGS.

Losses are JAX functions, differentiated by JAX and compiled once for each shape. L-BFGS itself runs in SciPy where the
arrays live in main memory: optax's, compiled, took five to fifteen times as long there for the same descent. On an
accelerator optax's keeps the iteration on the device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hdmm_bf._linalg import in_float64
from hdmm_bf._types import AnyArray
from hdmm_bf.objectives import limits

Loss: TypeAlias = Callable[..., Any]
"""A JAX function of the variables and of constants, returning a number; JAX is imported only when it is used."""

_MEMORY = 15
"""Corrections that L-BFGS keeps."""

HOPELESS = 1e10
"""The value of a loss where it cannot be evaluated."""


@in_float64
def minimise(
    loss: Loss,
    start: AnyArray,
    *constants: Any,
    max_iterations: int,
    nonnegative: bool = False,
    tolerance: float = 1e-10,
) -> tuple[float, AnyArray]:
    """Descend from a start by L-BFGS; return the least loss met and where.

    Args:
        loss: a JAX function `loss(variables, *constants)`.
        start: the variables to start from, of any shape.
        constants: passed on to the loss.
        max_iterations: iterations at most.
        nonnegative: keep every variable at or above zero.
        tolerance: stop when an iteration gains less than this share.

    Guarantees:
        The result is never worse than the start. At a time limit or an interruption the descent ends where it is; where
        it has not begun, the loss returned is infinite.
    """
    import jax

    if limits.ending():
        return math.inf, start

    if jax.default_backend() != "cpu" and not nonnegative:
        return _minimise_on_device(loss, start, constants, max_iterations)
    gradient = _gradient(loss)
    on_device = tuple(jax.device_put(c) if isinstance(c, np.ndarray) else c for c in constants)

    def value_and_slope(flat: AnyArray) -> tuple[float, AnyArray]:
        value, slope = gradient(flat.reshape(start.shape), *on_device)
        if not np.isfinite(value):  # a step so long that a factorisation failed: the line search turns back
            return HOPELESS, np.zeros_like(flat)
        return float(value), np.asarray(slope).ravel()

    value, flat = descend(
        value_and_slope, start.ravel(), max_iterations=max_iterations, nonnegative=nonnegative, tolerance=tolerance
    )
    return value, flat.reshape(start.shape)


def descend(
    value_and_slope: Callable[[AnyArray], tuple[float, AnyArray]],
    start: AnyArray,
    *,
    max_iterations: int,
    nonnegative: bool = False,
    tolerance: float = 1e-10,
    memory: int = _MEMORY,
) -> tuple[float, AnyArray]:
    """Descend by SciPy's L-BFGS for a loss that brings its own gradient; at a limit it ends where it is."""
    from scipy.optimize import minimize

    def watch(intermediate_result: Any) -> None:
        if limits.ending():
            raise StopIteration

    found = minimize(
        value_and_slope,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * start.size if nonnegative else None,
        callback=watch,
        options={
            "maxiter": max_iterations,
            "maxfun": 2 * max_iterations,
            "maxcor": memory,
            "ftol": tolerance,
            "gtol": 1e-9,
        },
    )
    return float(found.fun), np.asarray(found.x)


def padded(rows: AnyArray) -> AnyArray:
    """Add rows of zeros up to the next power of two, at least 4, so that few shapes are ever compiled."""
    size = 1 << max(2, (len(rows) - 1).bit_length())
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]))])


@functools.cache
def _gradient(loss: Loss) -> Callable[..., Any]:
    import jax

    return jax.jit(jax.value_and_grad(loss))


def _minimise_on_device(
    loss: Loss, start: AnyArray, constants: tuple[Any, ...], max_iterations: int
) -> tuple[float, AnyArray]:
    """Unconstrained descent with optax's L-BFGS and zoom line search, one compiled update an iteration."""
    import jax
    import optax

    method = optax.lbfgs(memory_size=_MEMORY)

    def fixed(variables: Any) -> Any:
        return loss(variables, *constants)

    @jax.jit
    def update(variables: Any, state: Any) -> tuple[Any, Any, Any]:
        value, slope = optax.value_and_grad_from_state(fixed)(variables, state=state)
        change, state = method.update(slope, state, variables, value=value, grad=slope, value_fn=fixed)
        return optax.apply_updates(variables, change), state, value

    variables = jax.numpy.asarray(start)
    state = method.init(variables)
    best: tuple[float, AnyArray] = (math.inf, start)
    for _ in range(max_iterations):
        if limits.ending():
            break
        before = variables
        variables, state, value = update(variables, state)
        if float(value) < best[0]:
            best = (float(value), np.asarray(before))
    return best
