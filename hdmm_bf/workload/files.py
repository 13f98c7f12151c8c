"""Workloads from files: `.npy`, `.npz` (scipy.sparse or one array), `.csv`, `.mtx`. Nothing is unpickled."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import scipy.io
import scipy.sparse as sp

from hdmm_bf._checks import (
    InputError,
    csv_rows,
    fail,
    fits,
    naming,
    nearest,
    readable_file,
    sparse_bytes,
    written_real,
)
from hdmm_bf._types import RealMatrix
from hdmm_bf.workload.queries import MatrixLike, Workload, from_matrix

SUFFIXES = (".npy", ".npz", ".csv", ".mtx")
_SMALLER = "Use a sparse format (.npz, .mtx) or fewer queries."
_MAGIC = b"\x93NUMPY"

_EXPLAINED = (ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError)
"""What the parsers of NumPy and SciPy raise with a reason that helps, and ..."""
_DAMAGED = (LookupError, TypeError, AttributeError, OverflowError, RuntimeError, SyntaxError, MemoryError)
"""... what they raise when the contents surprise them."""


def read(path: str | Path) -> Workload:
    """Read a real m x n matrix, one row a query, as a workload."""
    file, matrix, names = read_matrix(path)
    with naming(file):
        return from_matrix(matrix, names=names, spec=str(file))


def read_matrix(path: str | Path) -> tuple[Path, MatrixLike, list[str] | None]:
    """Read a matrix from a file; also return the path, and the names of its rows where the file has them."""
    file = readable_file("workload.read", path)
    suffix = file.suffix.lower()
    readers = {".npy": _read_npy, ".npz": _read_npz, ".mtx": _read_mtx}
    if suffix not in SUFFIXES:
        raise fail("workload.read", file, f"unknown kind of file '{suffix}'", nearest(suffix, SUFFIXES))
    try:
        read_one = readers.get(suffix)
        matrix, names = _read_csv(file) if read_one is None else (read_one(file), None)
    except InputError:
        raise
    except (*_EXPLAINED, *_DAMAGED, tokenize.TokenError, zlib.error) as error:
        said = str(error).strip() if isinstance(error, _EXPLAINED) else ""
        reason = said.splitlines()[0] if said else "its contents are damaged"
        raise fail("workload.read", file, f"not readable as {suffix[1:]} ({reason})", "Write the file again.") from None
    return file, matrix, names


def _read_npy(file: Path) -> MatrixLike:
    with file.open("rb") as stream:
        check_header("workload.read", file, stream, file.stat().st_size)
    return np.array(np.lib.format.open_memmap(file, mode="r"))


def _read_npz(file: Path) -> MatrixLike:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        fits("workload.read", str(file), sum(i.file_size for i in members), advice=_SMALLER)
        for member in members:
            with archive.open(member) as stream:
                check_header("workload.read", file, stream, member.file_size)
    with np.load(file, allow_pickle=False) as arrays:
        names = arrays.files
        if "format" not in names or "shape" not in names:
            if len(names) != 1:
                advice = "Save one matrix, or use scipy.sparse.save_npz."
                raise fail("workload.read", file, f"holds {len(names)} arrays ({', '.join(names[:5])})", advice)
            return arrays[names[0]]
    return sp.load_npz(file)


def check_header(where: str, file: Path, stream: IO[bytes] | io.BufferedIOBase, num_bytes: int) -> None:
    """Refuse an array that is no array, would not fit as float64, or is longer than its file: none is read."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not start as NumPy files do")
    major = stream.read(2)[0]
    header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, kind = header(stream)
    if kind.hasobject:
        raise ValueError("it holds Python objects, not numbers")
    if math.prod(shape) * kind.itemsize > num_bytes:
        raise ValueError(f"it is too short for an array of shape {shape}")
    fits(where, f"{file}, {shape}", math.prod(shape) * 8, advice=_SMALLER)


def _read_mtx(file: Path) -> MatrixLike:
    rows, columns, entries, layout, _, _ = scipy.io.mminfo(file)
    size = sparse_bytes(rows, 2 * entries) if layout == "coordinate" else rows * columns * 8
    fits("workload.read", f"{file}, {rows} x {columns}", size, advice=_SMALLER)
    matrix = scipy.io.mmread(file, spmatrix=False)
    return sp.csr_array(matrix) if sp.issparse(matrix) else matrix


_HEADS = ("", "query", "name")
"""What stands over a column of names, in a first line whose other entries may be numbers of cells."""


def _read_csv(file: Path) -> tuple[RealMatrix, list[str] | None]:
    """Read one query a line; names of cells in a first line and names of queries in a first column may be there."""
    rows = csv_rows("workload.read", file)
    named = _has_names(rows)
    if rows and _is_header(rows[0][1], named):
        rows = rows[1:]
    if not rows:
        raise fail("workload.read", file, "the file has no queries", "Write one query a line, one number a cell.")
    width = len(rows[0][1])
    fits("workload.read", str(file), len(rows) * width * 8, advice=_SMALLER)
    matrix = np.empty((len(rows), width - named))
    for i, (number, row) in enumerate(rows):
        if len(row) != width:
            raise fail(
                "workload.read",
                f"{file}, line {number}",
                f"has {len(row)} columns, the lines before have {width}",
                "Give every query one number for each cell.",
            )
        for j, entry in enumerate(row[named:]):
            matrix[i, j] = _entry(f"{file}, line {number}, column {j + 1 + named}", entry)
    return matrix, [row[0].strip() for _, row in rows] if named else None


def _has_names(rows: list[tuple[int, list[str]]]) -> bool:
    """Whether the first column holds names of queries: none of it is a number, and something beside it is."""
    words = all(len(row) > 1 and written_real(row[0]) is None for _, row in rows)
    blank = any(not row[0].strip() for _, row in rows[1:])  # a hole, and no name
    return words and not blank and any(written_real(entry) is not None for _, row in rows for entry in row[1:])


def _is_header(row: list[str], named: bool) -> bool:
    texts = all(written_real(entry) is None for entry in row)
    return texts or (named and row[0].strip().lower() in _HEADS)


def _entry(place: str, text: str) -> float:
    value = written_real(text)
    if value is not None:
        return value
    advice = "Write 0 for cells a query leaves out."
    if written_real(text.replace(",", ".", 1)) is not None:
        advice = f"Write a point in decimals: {text.strip().replace(',', '.')}."
    raise fail("workload.read", f"{place}: {text!r}", "is not a number", advice)
