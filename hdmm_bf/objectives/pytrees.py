"""Frozen records that JAX sees through: arrays are leaves, everything else is part of the program.

A loss that is such a record is compiled once for each shape and passed its numbers, so that another smoothing or
another workload of the same size starts at once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, dataclass_transform

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jax import Array
else:
    Array = Any
    """At run time anything: users pass NumPy arrays, transformations pass tracers, and JAX fills in placeholders."""

__all__ = ["Array", "double", "pytree"]

Args = ParamSpec("Args")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def pytree(*static: str) -> Callable[[Class], Class]:
    """Make a class a frozen dataclass and a pytree; the fields named here are compiled in, all others are leaves."""

    def make(cls: Class) -> Class:
        frozen: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
        names = [field.name for field in dataclasses.fields(frozen)]
        assert set(static) <= set(names), "a static field must exist"
        leaves = tuple(name for name in names if name not in static)

        def flatten(record: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            return tuple(getattr(record, n) for n in leaves), tuple(getattr(record, n) for n in static)

        def unflatten(fixed: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
            record = object.__new__(frozen)  # JAX also fills records with placeholders, which no constructor accepts
            for name, value in zip((*leaves, *static), (*values, *fixed), strict=True):
                object.__setattr__(record, name, value)
            return record

        jax.tree_util.register_pytree_node(frozen, flatten, unflatten)
        return cast(Class, frozen)

    return make


def double(function: Callable[Args, Result]) -> Callable[Args, Result]:
    """Run a function of pytrees in float64, inside other transformations too, whatever the caller's configuration.

    Where the caller's JAX works in float32, derivatives are taken inside as well, and come out in the type of what they
    are derivatives of; numbers that JAX itself has rounded on the way in, as `jax.jit` and `jax.grad` do then, stay so.
    """

    @functools.wraps(function)
    def wrapped(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        assert not kwargs, "objectives take one argument, by position"
        if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
            return function(*_widened(args))  # type: ignore[call-arg]
        with jax.enable_x64(True):
            args = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.core.Tracer) else _widened(leaf), args)
        return _inside(function, args)  # type: ignore[no-any-return]

    return wrapped


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _inside(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with jax.enable_x64(True):
        return function(*_widened(args))


def _forward(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    with jax.enable_x64(True):
        value, pull = jax.vjp(lambda wide: function(*wide), _widened(args))
        return value, (pull, jax.tree.map(lambda leaf: jnp.zeros((), jnp.result_type(leaf)), args))


def _back(function: Callable[..., Any], kept: Any, slope: Any) -> tuple[Any]:
    pull, like = kept
    with jax.enable_x64(True):
        (wide,) = pull(slope)
        return (jax.tree.map(_narrowed, wide, like),)


_inside.defvjp(_forward, _back)


def _widened(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64) if _is_real(leaf) else leaf, tree)


def _narrowed(slope: Any, like: Any) -> Any:
    return slope.astype(like.dtype) if _is_real(like) else slope


def _is_real(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.floating))
