"""Files that appear whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdmm_bf._checks import fail, nearest


def parquet_bytes(columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a Parquet file of named columns, with notes in its schema."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        advice = "Install it with: pip install 'hdmm-bf[data]'."
        raise fail("export", "format 'parquet'", "needs the package pyarrow", advice) from None
    buffer = io.BytesIO()
    pq.write_table(pa.table(dict(columns)).replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


def check_target(path: str | Path, suffixes: tuple[str, ...]) -> Path:
    """Refuse a file that could not be written, before work or privacy is spent on it."""
    target = Path(path)
    if target.suffix.lower() not in suffixes:
        problem = f"unknown kind of file '{target.suffix}'"
        raise fail("export", repr(str(target)), problem, nearest(target.suffix, suffixes))
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        problem = "is a folder" if target.is_dir() else "is in a folder that cannot be written"
        raise fail("export", repr(str(target)), problem, "Choose another name.")
    return target


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
