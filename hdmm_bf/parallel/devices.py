"""Several devices: a mesh of them, matrices whose rows are spread over it, and the product of two such matrices.

Everything is JAX's own: `shard_map` runs one program on every device, `ppermute` and `psum` move numbers between
them, inside one process or, after `jax.distributed.initialize`, between several. Functions named `local_*` are called
inside such a program and see one device's rows.

A product passes the rows of its right factor around the ring of devices, so that no device ever holds all of a matrix:
a matrix product written without this gathers the right factor everywhere.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from hdmm_bf._checks import fail, positive_int
from hdmm_bf._types import AnyArray
from hdmm_bf.objectives.limits import now

if TYPE_CHECKING:
    from jax import Array as Array
    from jax import Device
    from jax.sharding import Mesh as Mesh
    from jax.sharding import PartitionSpec

    Marks: TypeAlias = PartitionSpec | tuple[PartitionSpec, ...]
else:  # JAX is imported only when it is used
    Array = Device = Mesh = PartitionSpec = Marks = object

ROWS = "rows"
"""Name of the mesh axis."""

MOST_CPU_DEVICES = 64
"""Devices into which a CPU is split at most."""

Results = TypeVar("Results")


def _jax() -> Any:
    """JAX, which takes a second to import; most of what is used of it here has no types."""
    import jax

    return jax


def as_mesh(devices: int | None, mesh: Mesh | None) -> Mesh | None:
    """Return the mesh that `fit` is asked to use, with one axis called `rows`; None if it is asked for none.

    Guarantees:
        The caller's JAX configuration is not changed.
    """
    if devices is None and mesh is None:
        return None
    jax = _jax()
    if mesh is None:
        count = positive_int("fit", "devices", devices, advice="Use the number of devices, for example 4.")
        chosen = _first(count)
    elif devices is not None:
        raise fail("fit", f"devices={devices} and a mesh", "only one of the two can be followed", "Leave one out.")
    else:
        chosen = _of_mesh(mesh)
    if {d.process_index for d in chosen} != set(range(jax.process_count())):
        advice = "Use a mesh of all devices, jax.devices()."
        raise fail("fit", f"a mesh of {len(chosen)} devices", "leaves out a process", advice)
    made: Mesh = jax.sharding.Mesh(np.array(chosen), (ROWS,))
    return made


def _first(count: int) -> list[Device]:
    present = _jax().devices()
    if count > len(present):
        advice = (
            "Ask for fewer. To split a CPU into several devices, set JAX_NUM_CPU_DEVICES before Python starts, or call "
            f'jax.config.update("jax_num_cpu_devices", {count}) before JAX is first used.'
        )
        raise fail("fit", f"devices={count}", f"JAX sees {len(present)} of kind {present[0].platform}", advice)
    return list(present[:count])


def _of_mesh(mesh: Mesh) -> list[Device]:
    advice = "Use jax.sharding.Mesh(jax.devices(), ('rows',)), or devices=N."
    if not isinstance(mesh, _jax().sharding.Mesh):
        raise fail("fit", f"mesh of type {type(mesh).__name__}", "must be a jax.sharding.Mesh", advice)
    if len(mesh.axis_names) != 1:
        raise fail("fit", f"mesh with axes {mesh.axis_names}", "must have one axis", advice)
    return list(mesh.devices.ravel())


def split_cpu(count: int) -> None:
    """Ask JAX, before it starts, to show the CPU as so many devices: for a program that owns the process."""
    jax = _jax()
    with contextlib.suppress(RuntimeError):  # JAX has started: `as_mesh` tells whether there are enough
        if jax.config.jax_num_cpu_devices < count <= MOST_CPU_DEVICES:
            jax.config.update("jax_num_cpu_devices", count)


def spread(array: AnyArray, mesh: Mesh) -> Array:
    """Put an array on the mesh with its first axis cut into equal parts, each process handing over its own."""
    jax = _jax()
    sharding = jax.sharding.NamedSharding(mesh, in_rows())
    held: Array = jax.make_array_from_callback(array.shape, sharding, lambda part: np.ascontiguousarray(array[part]))
    return held


def replicate(array: AnyArray, mesh: Mesh) -> Array:
    """Put a whole array on every device of the mesh."""
    jax = _jax()
    sharding = jax.sharding.NamedSharding(mesh, whole())
    held: Array = jax.make_array_from_callback(array.shape, sharding, lambda _: array)
    return held


def to_host(array: Array | AnyArray) -> AnyArray:
    """Return an array as NumPy's on every process, whether it is spread or not."""
    if isinstance(array, np.ndarray) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def clock(mesh: Mesh | None) -> Callable[[], float]:
    """Return a clock on which all processes of a mesh read the same time, so that a limit stops all at one step."""
    if mesh is None or len({d.process_index for d in mesh.devices.ravel()}) == 1:
        return now
    from jax.experimental import multihost_utils

    def agreed() -> float:
        seconds = np.float32(time.monotonic() - began)
        return float(multihost_utils.broadcast_one_to_all(seconds))

    began = time.monotonic()
    return agreed


def on_rows(
    mesh: Mesh, program: Callable[..., tuple[Array, ...]], *, replicated: int = 0, spread: int = 1
) -> Callable[..., tuple[Array, ...]]:
    """Compile a program for one device's rows; it returns so many replicated results, then so many spread ones."""
    out = (whole(),) * replicated + (in_rows(),) * spread
    return mapped(mesh, program, in_rows(), out)


def mapped(mesh: Mesh, program: Callable[..., Results], given: Marks, returned: Marks) -> Callable[..., Results]:
    """Compile a program for one device; `given` and `returned` say what is whole and what is in rows."""
    jax = _jax()
    return jax.jit(jax.shard_map(program, mesh=mesh, in_specs=given, out_specs=returned, check_vma=False))  # type: ignore[no-any-return]


def in_rows() -> PartitionSpec:
    """Return the mark of an array whose first axis is spread."""
    mark: PartitionSpec = _jax().sharding.PartitionSpec(ROWS)
    return mark


def whole() -> PartitionSpec:
    """Return the mark of an array that is whole on every device."""
    mark: PartitionSpec = _jax().sharding.PartitionSpec()
    return mark


def padding(size: int, parts: int) -> int:
    """Return how much is missing to a multiple of `parts`."""
    return -size % parts


def local_product(A: Array, B: Array) -> Array:
    """Return this device's rows of A B, the rows of B passing around the ring."""
    lax = _jax().lax
    height, here = B.shape[0], lax.axis_index(ROWS)
    parts = A.shape[1] // height
    if parts == 1:
        return A @ B
    ring = [((i + 1) % parts, i) for i in range(parts)]

    def term(step: int | Array, held: Array) -> Array:
        start = ((here + step) % parts) * height
        columns: Array = lax.dynamic_slice_in_dim(A, start, height, axis=1)
        return columns @ held

    def turn(step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        sum_, held = carry
        return sum_ + term(step, held), lax.ppermute(held, ROWS, ring)

    first = term(0, B), lax.ppermute(B, ROWS, ring)
    sum_, held = lax.fori_loop(1, parts - 1, turn, first)
    last: Array = sum_ + term(parts - 1, held)
    return last


def local_numbers(height: int) -> Array:
    """Return the numbers, in the whole matrix, of the rows that this device holds."""
    jax = _jax()
    numbers: Array = jax.lax.axis_index(ROWS) * height + jax.numpy.arange(height)
    return numbers


def local_identity(height: int, width: int) -> Array:
    """Return this device's rows of the identity."""
    import jax.numpy as jnp

    return (local_numbers(height)[:, None] == jnp.arange(width)).astype(jnp.float64)


def local_diagonal(A: Array) -> Array:
    """Return this device's part of the diagonal."""
    import jax.numpy as jnp

    return jnp.take_along_axis(A, local_numbers(A.shape[0])[:, None], axis=1)[:, 0]


def total(values: Array) -> Array:
    """Sum over all entries on all devices."""
    summed: Array = _jax().lax.psum(values.sum(), ROWS)
    return summed


def largest(values: Array) -> Array:
    """Return the largest entry on all devices."""
    found: Array = _jax().lax.pmax(values.max(), ROWS)
    return found


def everywhere(part: Array) -> Array:
    """Return the whole vector of which every device holds a part."""
    gathered: Array = _jax().lax.all_gather(part, ROWS, tiled=True)
    return gathered
