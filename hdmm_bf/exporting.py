"""Strategies and reconstructions as files for other software, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.io
import scipy.sparse as sp

from hdmm_bf._checks import fail
from hdmm_bf._types import RealMatrix
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
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        advice = "Install it with: pip install 'hdmm-bf[data]'."
        raise fail("export", "format='parquet'", "needs the package pyarrow", advice) from None
    buffer = io.BytesIO()
    pq.write_table(pa.table({f"c{j}": column for j, column in enumerate(matrix.T)}), buffer)
    return buffer.getvalue()


_BYTES = {"npz": _npz, "csv": _csv, "mtx": _mtx, "parquet": _parquet, "json": _json}


def write_file(path: str | Path, content: bytes) -> Path:
    """Write a file beside its place, then rename it: it appears whole or not at all."""
    target = Path(path)
    fresh = target.with_name(f".{target.name}.new-{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        reason = error.strerror or "unknown reason"
        raise fail("export", repr(str(target)), f"cannot be written ({reason})", "Check the folder.") from None
    return target
