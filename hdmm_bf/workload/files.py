"""Workloads from files: `.npy`, `.npz` (scipy.sparse or one array), `.csv`, `.mtx`. Nothing is unpickled."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from hdmm_bf._checks import InputError, fail, fits, nearest, readable_file, utf8_text
from hdmm_bf._types import RealMatrix
from hdmm_bf.workload.queries import MatrixLike, Workload, from_matrix

SUFFIXES = (".npy", ".npz", ".csv", ".mtx")
_SMALLER = "Use a sparse format (.npz, .mtx) or fewer queries."


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
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise fail("workload.read", file, f"not readable as {suffix[1:]} ({reason})", "Write the file again.") from None
    try:
        return from_matrix(matrix, spec=str(file))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _read_npy(file: Path) -> MatrixLike:
    mapped = np.load(file, mmap_mode="r", allow_pickle=False)  # refuses objects and headers that promise too much
    fits("workload.read", f"{file}, {mapped.shape}", mapped.size * 8, advice=_SMALLER)
    return np.array(mapped)


def _read_npz(file: Path) -> MatrixLike:
    with zipfile.ZipFile(file) as archive:
        fits("workload.read", str(file), sum(i.file_size for i in archive.infolist()), advice=_SMALLER)
    with np.load(file, allow_pickle=False) as arrays:
        names = arrays.files
        if "format" in names and "shape" in names:
            return sp.load_npz(file)
        if len(names) != 1:
            advice = "Save one matrix, or use scipy.sparse.save_npz."
            raise fail("workload.read", file, f"holds {len(names)} arrays ({', '.join(names[:5])})", advice)
        return arrays[names[0]]


def _read_mtx(file: Path) -> MatrixLike:
    matrix = scipy.io.mmread(file, spmatrix=False)
    return sp.csr_array(matrix) if sp.issparse(matrix) else matrix


def _read_csv(file: Path) -> RealMatrix:
    rows = [(i, row) for i, row in enumerate(csv.reader(io.StringIO(utf8_text("workload.read", file))), 1) if row]
    if rows and not any(_is_number(entry) for entry in rows[0][1]):
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
            if not _is_number(entry):
                place = f"{file}, line {number}, column {j + 1}: {entry!r}"
                raise fail("workload.read", place, "is not a number", "Write 0 for cells a query leaves out.")
            matrix[i, j] = float(entry)
    return matrix


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return True
