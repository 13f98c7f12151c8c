"""Shapes of the arrays of these mechanisms, and checks of their arguments, on public names of hdmm_bf alone.

A mistake raises `hdmm_bf.InputError` in the package's three parts: what is wrong, the value seen, what to do instead.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float64, Int, Shaped

from hdmm_bf import InputError

IndexArray: TypeAlias = Int[np.ndarray, " _"]
RealVector: TypeAlias = Float64[np.ndarray, " _"]
RealMatrix: TypeAlias = Float64[np.ndarray, "_ _"]
Columns: TypeAlias = Shaped[np.ndarray, "..."]
"""A vector, or a matrix whose columns are vectors; integers stay integers."""

AnyArray: TypeAlias = Shaped[np.ndarray, "..."]
"""An array of any shape, as handed in."""

Number: TypeAlias = int | float

_LARGEST_INT64 = np.iinfo(np.int64).max


def fail(where: str, value: object, problem: str, advice: str) -> InputError:
    """Compose `where(value): problem. advice` for the caller to raise."""
    return InputError(f"{where}({value}): {problem}. {advice}")


def whole_number(where: str, name: str, value: object, *, least: int, advice: str) -> int:
    """Return `value` as an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise fail(where, f"{name}={value!r}", f"must be a whole number of at least {least}", advice)
    return int(value)


def numbers(where: str, name: str, value: Any) -> AnyArray:
    """Return finite real numbers, as int64 where their type is whole and as float64 otherwise."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        seen = f"{name}={reprlib.repr(value)}"
        raise fail(where, seen, "is not an array", "Give numbers, in rows of one length.") from None
    if array.dtype.kind not in "biuf":
        raise fail(where, f"{name} of type {array.dtype}", "must hold real numbers", "Convert it to float64 first.")
    if array.dtype.kind == "f":
        return _finite(where, name, array.astype(np.float64, copy=False))
    if array.dtype == np.uint64 and array.size and array.max() > _LARGEST_INT64:
        raise fail(where, f"{name} with {array.max()}", "must be below 2^63", "Convert it to float64 or correct it.")
    return array.astype(np.int64, copy=False)


def _finite(where: str, name: str, array: AnyArray) -> AnyArray:
    bad = np.argwhere(~np.isfinite(array)).tolist()
    if bad:
        seen = f"{name}{bad[0]}={array[tuple(bad[0])]}"
        raise fail(where, seen, "must be finite", "Remove NaN and infinite entries.")
    return array


def whole_numbers(where: str, name: str, value: Any) -> AnyArray:
    """Return whole numbers as an int64 array; an empty list has any type."""
    array = numbers(where, name, value)
    if array.size and array.dtype.kind != "i":
        seen = f"{name} of type {array.dtype}, {reprlib.repr(array.ravel().tolist())}"
        raise fail(where, seen, "must be whole numbers", "Convert them to int64 first.")
    return array.astype(np.int64, copy=False)


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the known word closest to a mistyped one, or list them all."""
    names = sorted(known)
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(names)}."
