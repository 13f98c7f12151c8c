"""Argument checks whose messages teach: what is wrong, the value seen, what to do instead.

Every mistake a user can make raises `InputError`, a `ValueError`; the command line turns it into one
sentence and exit code 2. Anything else that escapes is our own bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hdmm_bf._types import AnyArray

MAX_BYTES = 4 * 2**30
"""Largest single object the package will allocate: 4 GiB."""


class InputError(ValueError):
    """A mistake in what the user handed in, said in three parts."""


def fail(where: str, value: object, problem: str, advice: str) -> InputError:
    """Compose `where(value): problem. advice` as an `InputError` for the caller to raise."""
    return InputError(f"{where}({value}): {problem}. {advice}")


def positive_int(where: str, name: str, value: object, *, advice: str) -> int:
    """Return `value` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise fail(where, f"{name}={value!r}", "must be a whole number of at least 1", advice)
    return int(value)


def finite(where: str, name: str, array: AnyArray) -> AnyArray:
    """Return `array` as float64 if every entry is a finite real number."""
    if array.dtype.kind not in "biuf":
        raise fail(
            where,
            f"{name} of type {array.dtype}",
            "must hold real numbers",
            "Convert it to float64 first.",
        )
    real = array.astype(np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(real.ravel()))
    if bad.size:
        position = tuple(int(i) for i in np.unravel_index(int(bad[0]), real.shape))
        raise fail(
            where,
            f"{name}[{', '.join(map(str, position))}]={real[position]}",
            "must be finite",
            "Remove NaN and infinite entries.",
        )
    return real


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
    """Write a number of bytes for people: 1536 is '1.5 KB'."""
    units = ["bytes", "KB", "MB", "GB", "TB", "PB", "EB"]
    power = min(max(num_bytes, 1).bit_length() // 10, len(units) - 1)
    size = num_bytes / 1024**power
    return f"{num_bytes} bytes" if power == 0 else f"{size:.{'1f' if size < 1e4 else '1e'}} {units[power]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the known word closest to a mistyped one, or list them all."""
    words = sorted(known)
    close = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.5)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(words)}."


def readable_file(where: str, path: str | Path) -> Path:
    """Return `path` if it is a file with something in it."""
    file = Path(path)
    if not file.is_file():
        raise fail(where, file, "no such file", "Check the path, or use a spec string such as line:64.")
    if file.stat().st_size == 0:
        raise fail(where, file, "the file is empty", "Write it again; an interrupted export leaves such files.")
    return file


def utf8_text(where: str, path: str | Path) -> str:
    """Read a text file that must be UTF-8, with or without a byte-order mark."""
    file = readable_file(where, path)
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
