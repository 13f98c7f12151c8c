"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from hdmm_bf._checks import fail, nearest
from hdmm_bf.report.export.csvw import metadata_file
from hdmm_bf.report.export.excel import check_excel


def parquet_bytes(columns: Mapping[str, object], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a Parquet file of named columns, with notes in its schema."""
    _check_parquet()
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(dict(columns)).replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


def _check_parquet() -> None:
    if importlib.util.find_spec("pyarrow") is None:
        advice = "Install it with: pip install 'hdmm-bf[data]'."
        raise fail("export", "format 'parquet'", "needs the package pyarrow", advice)


def check_target(path: str | Path, suffixes: tuple[str, ...]) -> Path:
    """Refuse a file that could not be written, before work or privacy is spent on it."""
    target = Path(path)
    if target.suffix.lower() not in suffixes:
        problem = f"unknown kind of file '{target.suffix}'"
        raise fail("export", repr(str(target)), problem, nearest(target.suffix, suffixes))
    if target.suffix.lower() == ".parquet":
        _check_parquet()
    if target.suffix.lower() == ".xlsx":
        check_excel()
    for file in filter(None, (target, metadata_file(target))):
        obstacle = _obstacle(file)
        if obstacle is not None:
            raise fail("export", repr(str(file)), obstacle, "Choose another name.")
    return target


def check_apart(targets: Iterable[str | Path | None], inputs: Iterable[str | Path | None]) -> None:
    """Refuse to write over, into, or around what is read, and to write two things to one place.

    Names that are no files, such as spec strings, are apart from everything.
    """
    written = [Path(target) for target in targets if target is not None]
    read = [Path(name) for name in inputs if name is not None and _exists(name)]
    for i, target in enumerate(written):
        for other in (*read, *written[:i]):
            if _is_within(target, other) or _is_within(other, target):
                what = "is, or is in the same place as, what is read or written too"
                raise fail("output", repr(str(target)), f"{what}: {str(other)!r}", "Choose another name.")


def _exists(name: str | Path) -> bool:
    try:
        return os.path.exists(name)
    except (OSError, ValueError):  # a NUL, or a name that is too long
        return False


def _is_within(inner: Path, outer: Path) -> bool:
    """Whether a path is another or lies in it, whatever links and cases they are written with."""
    places = [Path(os.path.realpath(path)) for path in (inner, outer)]
    if places[1] in (places[0], *places[0].parents):
        return True
    if not _exists(outer):
        return False
    return any(_exists(place) and os.path.samefile(place, outer) for place in (places[0], *places[0].parents))


def _obstacle(target: Path) -> str | None:
    try:
        if target.is_dir():
            return "is a folder"
        writable = target.parent.is_dir() and os.access(target.parent, os.W_OK) and "\0" not in target.name
    except OSError as error:  # a name that is too long
        return f"cannot be written ({error.strerror})"
    return None if writable else "is in a folder that cannot be written"


def write_file(path: str | Path, content: bytes) -> Path:
    """Write a file beside its place, then rename it: it appears whole or not at all."""
    target = Path(path)
    fresh = target.with_name(f".new-{os.getpid()}-{os.urandom(4).hex()}")  # short: the target's name may be the longest
    try:
        fresh.write_bytes(content)
        fresh.replace(target)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise fail("export", repr(str(target)), f"cannot be written ({reason})", "Check the folder.") from None
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
    return target
