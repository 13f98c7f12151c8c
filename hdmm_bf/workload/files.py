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
    file = readable_file("workload.read", path)
    suffix = file.suffix.lower()
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".mtx": _read_mtx}
    if suffix not in readers:
        raise fail("workload.read", file, f"unknown kind of file '{suffix}'", nearest(suffix, SUFFIXES))
    try:
        matrix = readers[suffix](file)
    except InputError:
        raise
    except (*_EXPLAINED, *_DAMAGED, tokenize.TokenError, zlib.error) as error:
        said = str(error).strip() if isinstance(error, _EXPLAINED) else ""
        reason = said.splitlines()[0] if said else "its contents are damaged"
        raise fail("workload.read", file, f"not readable as {suffix[1:]} ({reason})", "Write the file again.") from None
    with naming(file):
        return from_matrix(matrix, spec=str(file))


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


def _read_csv(file: Path) -> RealMatrix:
    rows = csv_rows("workload.read", file)
    if rows and all(written_real(entry) is None for entry in rows[0][1]):
        rows = rows[1:]
    if not rows:
        raise fail("workload.read", file, "the file has no queries", "Write one query a line, one number a cell.")
    width = len(rows[0][1])
    fits("workload.read", str(file), len(rows) * width * 8, advice=_SMALLER)
    matrix = np.empty((len(rows), width))
    for i, (number, row) in enumerate(rows):
        if len(row) != width:
            raise fail(
                "workload.read",
                f"{file}, line {number}",
                f"has {len(row)} columns, the lines before have {width}",
                "Give every query one number for each cell.",
            )
        for j, entry in enumerate(row):
            value = written_real(entry)
            if value is None:
                place = f"{file}, line {number}, column {j + 1}: {entry!r}"
                raise fail("workload.read", place, "is not a number", "Write 0 for cells a query leaves out.")
            matrix[i, j] = value
    return matrix
