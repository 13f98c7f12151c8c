"""The one minimiser: L-BFGS by default, any optax method on request.

Losses are differentiated by JAX and compiled once for each shape, or have their gradient written out (`by_hand`).
L-BFGS itself runs on the host where the arrays live in main memory: optax's, compiled, took five to fifteen times as
long there for the same descent. On an accelerator optax's keeps the iteration on the device.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from hdmm_bf._checks import fail, positive_int
from hdmm_bf._linalg import in_float64, threads_for
from hdmm_bf._types import AnyArray, Number
from hdmm_bf.objectives import limits

if TYPE_CHECKING:
    import optax

Parameters: TypeAlias = Any
"""A pytree of arrays: an array, a NamedTuple of arrays, ..."""

Loss: TypeAlias = Callable[[Any], Any]
"""A JAX function of parameters, returning a number; records of `hdmm_bf.objectives` among them."""

_MEMORY = 15
"""Corrections that L-BFGS keeps."""

_ARMIJO, _WOLFE, _TRIALS = 1e-4, 0.9, 20
"""Share of the first slope that a step must gain, share that may be left at its end, and lengths that are tried."""

_FLAT = 1e-9
"""Largest entry of a gradient that counts as zero."""

HOPELESS = 1e10
"""The value of a loss where it cannot be evaluated."""


class Minimum(NamedTuple):
    """Where a descent ended.

    Attributes:
        value: the least loss met.
        parameters: where, like the start.
        steps: iterations taken.
        converged: whether the descent stopped by itself, because a step gained too little.
    """

    value: float
    parameters: Parameters
    steps: int
    converged: bool


@in_float64
def minimise(
    loss: Loss,
    start: Parameters,
    *,
    steps: Number = 1000,
    method: str | optax.GradientTransformation = "lbfgs",
    nonnegative: bool = False,
    tolerance: float = 1e-10,
) -> Minimum:
    """Descend from a start; return the least loss met and where.

    Args:
        loss: a JAX function of the parameters, for example `total(problem, log=True).of(PIdentity(p, n))`.
        start: the parameters to start from, a pytree of arrays.
        steps: iterations at most.
        method: "lbfgs", or any optax `GradientTransformation`, such as `optax.adam(1e-2)`.
        nonnegative: keep every parameter at or above zero.
        tolerance: L-BFGS stops when a step gains less than this share.

    Guarantees:
        The result is never worse than the start. At a time limit or an interruption the descent ends where it is; where
        it has not begun, the loss returned is infinite.

    Example:
        >>> from hdmm_bf.objectives import minimise
        >>> found = minimise(lambda t: ((t - 3.0) ** 2).sum(), np.zeros(2))
        >>> found.parameters.round(6)
        array([3., 3.])
    """
    import jax

    count = positive_int("objectives.minimise", "steps", steps, advice="Use for example steps=1000.")
    if isinstance(method, str) and method != "lbfgs":
        advice = 'Use "lbfgs", or a method of optax such as optax.adam(1e-2).'
        raise fail("objectives.minimise", f"method={method!r}", "is not known", advice)
    if limits.ending():
        return Minimum(math.inf, start, 0, False)
    if not isinstance(method, str):
        return _by_optax(loss, start, method, count, nonnegative)
    if jax.default_backend() != "cpu" and not nonnegative:
        import optax

        return _by_optax(loss, start, optax.lbfgs(memory_size=_MEMORY), count, nonnegative)
    value_and_slope, flat, unflattened = _flattened(loss, start)
    with threads_for(1):  # of BLAS; XLA's own threads and OpenBLAS's would spin on each other's cores
        found = descend(value_and_slope, flat, steps=count, nonnegative=nonnegative, tolerance=tolerance)
    return found._replace(parameters=unflattened(found.parameters))


def minimising(
    loss: Loss,
    start: Parameters,
    *,
    parts: Iterable[int],
    nonnegative: bool = False,
    tolerance: float = 1e-10,
    memory: int = _MEMORY,
) -> Iterator[Minimum]:
    """Descend by L-BFGS as `minimise` does, on the host; yield where every part ends, as many steps on.

    Guarantees:
        The descent is the same as one without parts: the corrections are carried on. At a limit it ends where it is.
    """
    if limits.ending():
        yield Minimum(math.inf, start, 0, False)
        return
    value_and_slope, flat, unflattened = _flattened(loss, start)
    running = descending(
        value_and_slope, flat, parts=parts, nonnegative=nonnegative, tolerance=tolerance, memory=memory
    )
    while True:
        with threads_for(1):  # the caller has its own number between two parts
            found = next(running, None)
        if found is None:
            return
        yield found._replace(parameters=unflattened(found.parameters))


def _flattened(
    loss: Loss, start: Parameters
) -> tuple[Callable[[AnyArray], tuple[float, AnyArray]], AnyArray, Callable[[AnyArray], Parameters]]:
    """Return the loss and its gradient at a vector, the start as one, and the way from a vector to parameters."""
    import jax

    from hdmm_bf.objectives.by_hand import evaluation

    leaves, structure = jax.tree.flatten(start)
    shapes = [np.shape(leaf) for leaf in leaves]
    cuts = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def unflattened(flat: AnyArray) -> Parameters:
        if len(shapes) == 1:
            return jax.tree.unflatten(structure, [flat.reshape(shapes[0])])
        parts = [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True)]
        return jax.tree.unflatten(structure, parts)

    written = evaluation(loss)

    def value_and_slope(flat: AnyArray) -> tuple[float, AnyArray]:
        parameters = unflattened(flat)
        value, slope = value_and_gradient(loss, parameters) if written is None else written(parameters)
        if not np.isfinite(value):  # a step so long that a factorisation failed: the line search turns back
            return HOPELESS, np.zeros_like(flat)
        own = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(slope)]
        return float(value), own[0] if len(own) == 1 else np.concatenate(own)

    flat = np.concatenate([np.ravel(np.asarray(leaf, dtype=np.float64)) for leaf in leaves])
    return value_and_slope, flat, unflattened


@in_float64
def value_and_gradient(loss: Loss, parameters: Parameters) -> tuple[Any, Parameters]:
    """Return a loss and its gradient in float64, compiled once for each shape."""
    import jax

    if jax.tree_util.treedef_is_leaf(jax.tree_util.tree_structure(loss)):
        return _of_function(loss)(parameters)  # type: ignore[no-any-return]
    return _of_record()(loss, parameters)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=64)
def _of_function(loss: Loss) -> Callable[..., Any]:
    import jax

    return jax.jit(jax.value_and_grad(loss))


@functools.cache
def _of_record() -> Callable[..., Any]:
    """A record is an argument of the program, so that one of the same shapes compiles nothing."""
    import jax

    return jax.jit(lambda loss, parameters: jax.value_and_grad(lambda p: loss(p))(parameters))


def descend(
    value_and_slope: Callable[[AnyArray], tuple[float, AnyArray]],
    start: AnyArray,
    *,
    steps: int,
    nonnegative: bool = False,
    tolerance: float = 1e-10,
    memory: int = _MEMORY,
) -> Minimum:
    """Descend by L-BFGS for a loss that brings its own gradient; at a limit it ends where it is.

    Nocedal and Wright, Numerical Optimization, 2nd ed., Algorithm 7.4. With bounds, variables at zero that want to go
    below are left out of the step, and the others are cut off at zero (Bertsekas, 1982). SciPy's L-BFGS-B did the same
    descents at 74 000 parameters in twice the time, two thirds of it outside the loss.

    Args:
        value_and_slope: the loss and its gradient at a vector.
        start: where to begin.
        steps: at most.
        nonnegative: keep every variable at or above zero.
        tolerance: stop when a step gains less than this share, of 1 at the least.
        memory: corrections that are kept.
    """
    *_, found = descending(
        value_and_slope, start, parts=(steps,), nonnegative=nonnegative, tolerance=tolerance, memory=memory
    )
    return found


def descending(
    value_and_slope: Callable[[AnyArray], tuple[float, AnyArray]],
    start: AnyArray,
    *,
    parts: Iterable[int],
    nonnegative: bool,
    tolerance: float,
    memory: int,
) -> Iterator[Minimum]:
    """Yield where `descend` is after every part, each a number of further steps; the last is where it ended."""
    x = np.array(start, dtype=np.float64)
    if nonnegative:
        np.maximum(x, 0.0, out=x)
    f, g = value_and_slope(x)
    pairs: deque[tuple[AnyArray, AnyArray, float]] = deque(maxlen=memory)
    taken, converged = 0, False
    ends = itertools.accumulate(parts)
    end = next(ends, 0)
    while not limits.ending():
        if taken >= end:
            later = next(ends, None)
            if later is None:
                break
            yield Minimum(f, x, taken, False)
            end = later
            continue
        free = (x > 0) | (g < 0) if nonnegative else None
        slope = g if free is None else g * free
        if float(np.abs(slope).max(initial=0.0)) <= _FLAT:
            converged = True
            break
        direction = _inverse_hessian_times(slope, pairs)
        np.negative(direction, out=direction)
        if free is not None:
            direction *= free
        along = float(slope @ direction)
        if not along < 0:  # rounding, or another set of free variables, has spoilt the corrections
            pairs.clear()
            direction, along = -slope, -float(slope @ slope)
        first = 1.0 if pairs else min(1.0, 1.0 / float(np.abs(slope).sum()))
        moved = _line_search(value_and_slope, x, f, g, direction, along, first, nonnegative=nonnegative)
        if moved is None:
            converged = not pairs
            if converged:
                break
            pairs.clear()
            continue
        new_x, new_f, new_g = moved
        step, change = new_x - x, new_g - g
        curvature = float(step @ change)
        if curvature > 1e-10 * float(step @ step):
            pairs.append((step, change, 1.0 / curvature))
        gain = f - new_f
        x, f, g, taken = new_x, new_f, new_g, taken + 1
        if gain <= tolerance * max(abs(f), 1.0):
            converged = True
            break
    yield Minimum(f, x, taken, converged)


def _inverse_hessian_times(g: AnyArray, pairs: Sequence[tuple[AnyArray, AnyArray, float]]) -> AnyArray:
    """The two-loop recursion, in place: fresh arrays of this size cost more than the sums."""
    from scipy.linalg.blas import daxpy

    q, weights = g.copy(), []
    for step, change, rho in reversed(pairs):
        weight = rho * float(step @ q)
        weights.append(weight)
        daxpy(change, q, a=-weight)
    if pairs:
        step, change, rho = pairs[-1]
        q *= 1.0 / (rho * float(change @ change))
    for (step, change, rho), weight in zip(pairs, reversed(weights), strict=True):
        daxpy(step, q, a=weight - rho * float(change @ q))
    return q


def _line_search(
    value_and_slope: Callable[[AnyArray], tuple[float, AnyArray]],
    here: AnyArray,
    f: float,
    g: AnyArray,
    direction: AnyArray,
    along: float,
    length: float,
    *,
    nonnegative: bool,
) -> tuple[AnyArray, float, AnyArray] | None:
    """Return a point that gains enough (Armijo), with its value and slope; None if there is none.

    The step is doubled while the slope along it stays steep (Wolfe); with bounds, along what they have left of it.
    """
    best: tuple[AnyArray, float, AnyArray] | None = None
    low, high = 0.0, math.inf
    for _ in range(_TRIALS):
        new_x = here + length * direction
        if nonnegative:
            np.maximum(new_x, 0.0, out=new_x)
        promised = float(g @ (new_x - here)) if nonnegative else length * along
        new_f, new_g = value_and_slope(new_x)
        if not new_f <= f + _ARMIJO * promised:
            if best is not None:
                return best
            high = length
            bend = 2 * (new_f - f - along * length)
            guess = -along * length**2 / bend if bend > 0 else 0.0
            length = min(max(guess, 0.1 * length), 0.5 * length)
            continue
        if best is None or new_f < best[1]:
            best = new_x, new_f, new_g
        left = float(new_g @ (new_x - here)) / length if nonnegative else float(new_g @ direction)
        if left >= _WOLFE * along:
            return best
        low = length
        length = 2 * length if math.isinf(high) else (low + high) / 2
    return best


def padded(rows: AnyArray, *, multiple: int = 8) -> AnyArray:
    """Add rows of zeros up to a multiple, so that few shapes are ever compiled."""
    missing = multiple if len(rows) == 0 else -len(rows) % multiple
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]))])


def _by_optax(
    loss: Loss, start: Parameters, method: optax.GradientTransformation, steps: int, nonnegative: bool
) -> Minimum:
    """Descend by a method of optax, one compiled update per iteration; methods with a line search get the loss."""
    import jax
    import jax.numpy as jnp
    import optax

    extended = optax.with_extra_args_support(method)

    @jax.jit
    def update(parameters: Any, state: Any) -> tuple[Any, Any, Any]:
        value, slope = jax.value_and_grad(loss)(parameters)
        change, state = extended.update(slope, state, parameters, value=value, grad=slope, value_fn=loss)
        moved = optax.apply_updates(parameters, change)
        return jax.tree.map(lambda leaf: jnp.maximum(leaf, 0.0), moved) if nonnegative else moved, state, value

    parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start)
    state = extended.init(parameters)
    best, least, taken = parameters, math.inf, 0
    for _ in range(steps):
        if limits.ending():
            break
        before = parameters
        parameters, state, value = update(parameters, state)
        taken += 1
        if float(value) < least:
            least, best = float(value), before
    last = float(jax.jit(loss)(parameters))
    if last < least:
        least, best = last, parameters
    return Minimum(least, jax.tree.map(np.asarray, best), taken, False)
