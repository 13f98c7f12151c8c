"""Single arrays and numbers out of a file of a bundle, of the kind that is expected or refused."""

from __future__ import annotations

from hdmm_bf._checks import fail
from hdmm_bf._types import AnyArray
from hdmm_bf.bundle.checks import WRITE_AGAIN


def array(arrays: dict[str, AnyArray], name: str, kind: str, ndim: int) -> AnyArray:
    """Return an array of whole ("i") or real ("f") numbers with so many dimensions."""
    found = arrays.get(name)
    if found is None or found.dtype.kind != kind or found.dtype.itemsize > 8 or found.ndim != ndim:
        problem = f"must be {'whole' if kind == 'i' else 'real'} numbers with {ndim} dimensions"
        raise fail(name, "missing" if found is None else f"of type {found.dtype}", problem, WRITE_AGAIN)
    return found


def whole(name: str, array: AnyArray | None, least: int, most: int) -> int:
    """Return a whole number between two others."""
    if array is None or array.ndim != 0 or array.dtype.kind != "i" or not least <= int(array) <= most:
        raise fail(name, "missing or out of range", f"must be from {least} to {most}", WRITE_AGAIN)
    return int(array)
