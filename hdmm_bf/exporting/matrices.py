"""Strategies and reconstructions as files for other software, written whole or not at all."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.io
import scipy.sparse as sp

from hdmm_bf._types import RealMatrix
from hdmm_bf.exporting.files import parquet_bytes, write_file
from hdmm_bf.fitting import Fit

Format: TypeAlias = Literal["npz", "csv", "mtx", "parquet", "json"]
What: TypeAlias = Literal["strategy", "reconstruction"]

_DIGITS = 17
"""Significant digits that bring every float64 back exactly."""


def write_matrix(made: Fit, path: str | Path, *, kind: Format, what: What = "strategy") -> Path:
    """Write the strategy matrix, or W A^+, in the given format.

    Guarantees:
        Every format brings back the same numbers, bit by bit.
    """
    matrix = made.strategy.matrix() if what == "strategy" else made.reconstruction()
    record: dict[str, Any] = {
        what: matrix,
        "kind": made.strategy.kind,
        "edges": made.problem.policy.edges,
        "sensitivity": made.certificate.sensitivity,
    }
    return write_file(path, _BYTES[kind](matrix, record))


def _npz(matrix: RealMatrix, record: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **record)
    return buffer.getvalue()


def _json(matrix: RealMatrix, record: dict[str, Any]) -> bytes:
    plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in record.items()}
    return json.dumps(plain).encode()


def _csv(matrix: RealMatrix, record: dict[str, Any]) -> bytes:
    buffer = io.StringIO()
    np.savetxt(buffer, matrix, fmt=f"%.{_DIGITS}g", delimiter=",")
    return buffer.getvalue().encode()


def _mtx(matrix: RealMatrix, record: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, sp.coo_array(matrix), precision=_DIGITS, symmetry="general")
    return buffer.getvalue()


def _parquet(matrix: RealMatrix, record: dict[str, Any]) -> bytes:
    return parquet_bytes({f"c{j}": column for j, column in enumerate(matrix.T)})


_BYTES = {"npz": _npz, "csv": _csv, "mtx": _mtx, "parquet": _parquet, "json": _json}
