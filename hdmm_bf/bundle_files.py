"""Files of bundles: written whole or not at all, read without trusting them.

Checksums, JSON without surprises, archives of plain arrays; nothing is pickled and nothing outside the folder is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np

from hdmm_bf._checks import MAX_BITS, InputError, fail, fits
from hdmm_bf._types import AnyArray
from hdmm_bf.bundle_checks import WRITE_AGAIN, blaming, check_manifest, refuse

SCHEMA = 1
MANIFEST = "manifest.json"

_UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, SyntaxError, RuntimeError, MemoryError),
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
"""What zipfile and NumPy raise on files that are not archives of arrays."""


def check_place(path: str | Path) -> Path:
    """Refuse to replace anything that is not a bundle."""
    target = Path(path)
    if os.path.lexists(target) and not os.path.isfile(target / MANIFEST):
        advice = "Choose another name; only a bundle is ever replaced."
        raise fail("bundle.write", repr(str(target)), "exists and is not a bundle", advice)
    return target


def write_folder(target: Path, manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    """Write a bundle's files, with their checksums in the manifest."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    replace_folder(target, {**files, MANIFEST: json_bytes({"schema": SCHEMA, **manifest, "files": sums})})


def read_folder(path: str | Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest and the files it names, checked byte for byte."""
    folder = Path(path)
    if not os.path.isfile(folder / MANIFEST):
        raise fail("bundle.read", repr(str(folder)), "is not a bundle (no manifest.json)", WRITE_AGAIN)
    manifest = parse_json(folder, MANIFEST, _bytes(folder, MANIFEST))
    if manifest.get("schema") != SCHEMA:
        raise refuse(folder, MANIFEST, f"has schema {manifest.get('schema')!r}, this version reads {SCHEMA}")
    with blaming(folder, MANIFEST):
        check_manifest(manifest)
    return manifest, {name: checked(folder, manifest, name) for name in manifest["files"]}


def replace_folder(target: Path, files: dict[str, bytes]) -> None:
    """Write beside the target, then rename; the old bundle goes away last, or comes back if the new one cannot."""
    mark = f"{os.getpid()}-{os.urandom(4).hex()}"
    fresh, old = (target.with_name(f".{target.name}.{kind}-{mark}") for kind in ("new", "old"))
    try:
        fresh.mkdir(parents=True)
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("bundle.write", repr(str(target)), f"cannot be written ({reason})", "Check it.") from None
    finally:
        if os.path.lexists(old) and not os.path.lexists(target):
            old.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def checked(folder: Path, manifest: dict[str, Any], name: str) -> bytes:
    """Return a file that has the checksum its manifest gives."""
    if not (folder / name).is_file():
        raise refuse(folder, name, "is missing")
    content = _bytes(folder, name)
    if hashlib.sha256(content).hexdigest() != manifest["files"][name]:
        raise refuse(folder, name, "was changed, cut short or taken from another bundle (its sha256 differs)")
    return content


def _bytes(folder: Path, name: str) -> bytes:
    try:
        with blaming(folder, name):
            fits("bundle.read", repr(name), (folder / name).stat().st_size, advice=WRITE_AGAIN)
        return (folder / name).read_bytes()
    except OSError as error:
        raise refuse(folder, name, f"cannot be read ({error.strerror})") from None


def npz(**arrays: AnyArray) -> bytes:
    """Return an archive of arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **cast(dict[str, Any], arrays))
    return buffer.getvalue()


def load_npz(folder: Path, name: str, files: dict[str, bytes]) -> dict[str, AnyArray]:
    """Return the arrays of an archive, none of them objects."""
    try:
        with zipfile.ZipFile(io.BytesIO(files[name])) as archive:
            fits("bundle.read", repr(name), sum(i.file_size for i in archive.infolist()), advice=WRITE_AGAIN)
        with np.load(io.BytesIO(files[name]), allow_pickle=False) as arrays:
            held = {key: arrays[key] for key in arrays.files}
    except _UNREADABLE as error:
        if isinstance(error, InputError):
            raise
        raise refuse(folder, name, "is not a readable .npz file") from None
    if not all(isinstance(array, np.ndarray) for array in held.values()):  # np.load gives other members as bytes
        raise refuse(folder, name, "holds something that is no array")
    return held


def json_bytes(record: dict[str, Any]) -> bytes:
    """Return a record as JSON text."""
    return (json.dumps(record, indent=1) + "\n").encode()


def parse_json(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Return a JSON object without numbers that no float holds."""
    try:
        record = json.loads(content, parse_int=_whole, parse_constant=_no_number, object_pairs_hook=_once)
        json.dumps(record, ensure_ascii=False).encode()  # half a character has no UTF-8
    except UnicodeEncodeError:
        raise refuse(folder, name, "holds half a character (a lone surrogate)") from None
    except InputError as error:
        raise refuse(folder, name, f"is refused: {error}") from None
    except (ValueError, RecursionError):
        raise refuse(folder, name, "is not readable JSON") from None
    if not isinstance(record, dict):
        raise refuse(folder, name, "is not a JSON object")
    return record


def _whole(digits: str) -> int:
    number = int(digits)
    return number if number.bit_length() <= MAX_BITS else _no_number(digits)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: programs differ in which of the two they believe."""
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise fail("json", repr(twice), "stands twice in one object", WRITE_AGAIN)
    return record


def _no_number(text: str) -> Any:
    """Refuse NaN, infinity and whole numbers that no float holds: nothing that is shipped is one."""
    raise ValueError(text)
