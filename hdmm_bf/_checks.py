"""Argument checks whose messages teach: what is wrong, the value seen, what to do instead.

Every mistake a user can make raises `InputError`, a `ValueError`; the command line turns it into one
sentence and exit code 2. Anything else that escapes is our own bug and keeps its traceback.
"""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from hdmm_bf._display import plain
from hdmm_bf._types import AnyArray, SparseMatrix

MAX_BYTES = 4 * 2**30
"""Largest single object the package will allocate: 4 GiB."""

MAX_BITS = 1000
"""Whole numbers beyond 2^1000 are refused: no domain is that large, and Python stops printing them at 4300 digits."""

_LONGEST_PART = 400  # characters of a value or a problem that are shown
_SPARSE_BYTES = 16  # one float64 value and one int64 column index
_POINTER_BYTES = 8
OTHER_MARKS = {";": "semicolons", "\t": "tabs"}
_LARGEST_INT64 = np.iinfo(np.int64).max


class InputError(ValueError):
    """A mistake in what the user handed in, said in three parts."""

    __module__ = "hdmm_bf"  # the name that users know it by


def fail(where: str, value: object, problem: str, advice: str) -> InputError:
    """Compose `where(value): problem. advice` as an `InputError` for the caller to raise."""
    return InputError(f"{where}({_one_line(str(value))}): {_one_line(problem)}. {_one_line(advice)}")


def _one_line(text: str) -> str:
    """Escape line breaks and what cannot be seen, and leave out the middle of very long texts."""
    return plain(text, most=_LONGEST_PART)


@contextmanager
def naming(place: str | Path) -> Iterator[None]:
    """Put the place of a mistake, a file or a line of it, before what an `InputError` says."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{_one_line(str(place))}: {error}") from None


def whole_number(where: str, name: str, value: object, *, least: int, advice: str) -> int:
    """Return `value` as an int of at least `least`."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise fail(where, f"{name} of {value.bit_length()} bits", f"is beyond 2^{MAX_BITS}", advice)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise fail(where, f"{name}={value!r}", f"must be a whole number of at least {least}", advice)
    return int(value)


def positive_int(where: str, name: str, value: object, *, advice: str) -> int:
    """Return `value` as an int of at least 1."""
    return whole_number(where, name, value, least=1, advice=advice)


def position(where: str, value: object, length: int, what: str) -> int:
    """Return `value` as an int from 0 to `length` - 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < length:
        raise fail(where, reprlib.repr(value), f"{what} are 0 to {length - 1}", "Correct the number.")
    return int(value)


def listed(where: str, name: str, value: object, *, advice: str) -> tuple[Any, ...]:
    """Return a list or another iterable, but no string, as a tuple."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise fail(where, f"{name}={value!r}", "must be a list", advice)
    return tuple(value)


def written_whole(text: str) -> int | None:
    """Read a whole number written in digits, perhaps with a minus; None for anything else."""
    match = re.fullmatch(r"-?[0-9]+", text.strip())
    return int(match[0]) if match and len(match[0]) <= MAX_BITS // 4 else None


def written_real(text: str) -> float | None:
    """Read a number written in digits; None for anything else, such as Python's `1_000`."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def as_array(where: str, name: str, value: object) -> AnyArray:
    """Return `value` as a NumPy array of whatever type; lists must have rows of one length."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        seen = f"{name}={reprlib.repr(value)}"
        raise fail(where, seen, "is not an array", "Give numbers, in rows of one length.") from None


def numbers(where: str, name: str, value: object) -> AnyArray:
    """Return real numbers as int64 where their type is whole, so that small types cannot overflow, else as float64."""
    array = as_array(where, name, value)
    if array.dtype.kind not in "biuf":
        raise fail(where, f"{name} of type {array.dtype}", "must hold real numbers", "Convert it to float64 first.")
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    if array.dtype == np.uint64 and array.size and array.max() > _LARGEST_INT64:
        raise fail(where, f"{name} with {array.max()}", "must be below 2^63", "Convert it to float64 or correct it.")
    return array.astype(np.int64, copy=False)


def whole_numbers(where: str, name: str, value: object) -> AnyArray:
    """Return whole numbers as an int64 array; an empty list has any type."""
    array = as_array(where, name, value)
    if array.size and array.dtype.kind not in "iu":
        seen = f"{name} of type {array.dtype}, {reprlib.repr(array.ravel().tolist())}"
        raise fail(where, seen, "must be whole numbers", "Convert them to int64 first.")
    return numbers(where, name, array) if array.size else np.zeros(array.shape, dtype=np.int64)


def finite(where: str, name: str, array: AnyArray) -> AnyArray:
    """Return `array` as float64 if every entry is a finite real number."""
    real = numbers(where, name, array).astype(np.float64, copy=False)
    good = np.isfinite(real)
    if not good.all():
        place = tuple(int(i) for i in np.unravel_index(int(np.argmin(good)), real.shape))
        raise fail(
            where,
            f"{name}[{', '.join(map(str, place))}]={real[place]}",
            "must be finite",
            "Remove NaN and infinite entries.",
        )
    return real


def real_matrix(where: str, name: str, value: object, *, advice: str) -> AnyArray | SparseMatrix:
    """Return a user's matrix as a float64 array, or as float64 CSR if it is scipy.sparse, after checking all of it."""
    import scipy.sparse as sp

    array: SparseMatrix = value if sp.issparse(value) else as_array(where, name, value)
    if array.ndim != 2:
        raise fail(where, f"{array.ndim} dimensions, shape {array.shape}", "must be a matrix", advice)
    if not sp.issparse(array):
        return finite(where, name, array)
    shape = f"{name}, {array.shape[0]} x {array.shape[1]}"
    size = sparse_bytes(array.shape[0], array.nnz)
    fits(where, shape, size, advice="Use fewer rows.")
    try:  # converting a sparse matrix with entries outside its shape writes outside the memory
        if array.format == "coo":
            array = sp.coo_array((array.data, array.coords), shape=array.shape)
        elif array.format in ("csr", "csc", "bsr"):
            array.check_format(full_check=True)
    except ValueError as error:
        raise fail(where, shape, f"its sparse form is damaged ({error})", "Make the matrix again.") from None
    held = sp.csr_array(array)
    return sp.csr_array((finite(where, "entries", held.data), held.indices, held.indptr), shape=held.shape)


def same_cells(where: str, what: str, numbers: Sequence[int]) -> None:
    """Refuse to unite what is not all on the same number of cells."""
    other = next((number for number in numbers if number != numbers[0]), None)
    if other is not None:
        advice = f"Use {where.partition('.')[0]}.product to combine different attributes."
        raise fail(where, f"{numbers[0]} and {other} cells", f"the {what} must be on the same domain", advice)


def sparse_bytes(rows: int, nnz: int) -> int:
    """Return the memory of a CSR matrix."""
    return nnz * _SPARSE_BYTES + rows * _POINTER_BYTES


def fits(where: str, what: str, num_bytes: int, *, advice: str, limit: int = MAX_BYTES) -> None:
    """Refuse an object of more than `limit` bytes before it is allocated, naming its size."""
    if num_bytes > limit:
        raise fail(
            where,
            what,
            f"would need {readable_bytes(num_bytes)} of memory, more than the limit of {readable_bytes(limit)}",
            advice,
        )


def readable_bytes(num_bytes: int) -> str:
    """Write a number of bytes for people, however large: 1536 is '1.5 KB'."""
    units = ["bytes", "KB", "MB", "GB", "TB", "PB", "EB"]
    power = min((max(num_bytes, 1).bit_length() - 1) // 10, len(units) - 1)
    size = Decimal(num_bytes) / 1024**power
    return f"{num_bytes} bytes" if power == 0 else f"{size:.{'1f' if size < 10_000 else '1e'}} {units[power]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the known word closest to a mistyped one, or list them all."""
    words = {name.lower(): name for name in sorted(known)}
    close = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.5)
    return f"Did you mean '{words[close[0]]}'?" if close else f"Known: {', '.join(words.values())}."


def unknown_name(where: str, what: str, text: str, known: Iterable[str], suffixes: Iterable[str]) -> InputError:
    """Answer a spec whose name is none, or a path whose suffix is mistyped."""
    name = text.strip().split(":")[0]
    suffix = Path(name).suffix
    if not suffix[1:2].isalpha():
        return fail(where, repr(text), f"unknown {what} '{name.lower()}'", nearest(name, known))
    missing = "" if os.path.exists(name) else ", and there is no such file"
    return fail(
        where, repr(text), f"looks like a file, of the unknown kind '{suffix}'{missing}", nearest(suffix, suffixes)
    )


MISSING = "Check the path, or use a spec string such as line:64."


def readable_file(where: str, path: str | Path, *, missing: str = MISSING) -> Path:
    """Return `path` if it is a file with something in it."""
    file = Path(path)
    try:
        size = file.stat().st_size if file.is_file() else None
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise fail(where, file, f"cannot be opened ({error.strerror})", "Check the path.") from None
    if size is None:
        raise fail(where, file, "no such file", missing)
    if size == 0:
        raise fail(where, file, "the file is empty", "Write it again; an interrupted export leaves such files.")
    if not os.access(file, os.R_OK):
        raise fail(where, file, "may not be read", "Check the file's permissions.")
    return file


def utf8_text(where: str, path: str | Path, *, missing: str = MISSING) -> str:
    """Read a text file that must be UTF-8, with or without a byte-order mark."""
    file = readable_file(where, path, missing=missing)
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        byte = file.read_bytes()[error.start]
        raise fail(
            where,
            file,
            f"not UTF-8 text (byte 0x{byte:02x} at offset {error.start})",
            "Save the file as UTF-8.",
        ) from None


def csv_rows(where: str, file: Path) -> list[tuple[int, list[str]]]:
    """Read the rows of a CSV file that are not empty, each with the number of its line."""
    reader = csv.reader(io.StringIO(utf8_text(where, file)))
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        place = f"{file}, line {reader.line_num}"
        raise fail(where, place, f"not readable as CSV ({error})", "Write one number a field.") from None
    for line, row in rows[:1]:  # further down a mark may be part of a name
        other = next((mark for mark in OTHER_MARKS if _separates(mark, row)), None)
        if other is not None:
            advice = "Write commas between fields, and points in decimals."
            raise fail(where, f"{file}, line {line}", f"has {OTHER_MARKS[other]} between its fields", advice)
    return rows


def _separates(mark: str, row: list[str]) -> bool:
    """Whether a mark other than a comma stands between the fields of a row: it is in the only one, or beside digits."""
    parts = [part.strip() for entry in row for part in entry.split(mark)]
    numbers_beside = any(re.search(rf"\d\s*{mark}\s*\d", entry) for entry in row)
    return len(parts) > len(row) and (len(row) == 1 or numbers_beside)
