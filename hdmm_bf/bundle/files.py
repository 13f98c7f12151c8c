"""Files of bundles: written whole or not at all, read without trusting them.

Checksums, JSON without surprises, archives of plain arrays; nothing is pickled and nothing outside the folder is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import NoReturn, cast

import numpy as np

from hdmm_bf._checks import MAX_BITS, InputError, fail, fits
from hdmm_bf._types import AnyArray, JsonObject
from hdmm_bf.bundle.checks import WRITE_AGAIN, blaming, check_manifest, refuse

_LEAST_DIGITS = 16
"""Digits of a digest, 64 bits, below which another bundle with the same start can be searched for."""
SCHEMA = 1
MANIFEST = "manifest.json"
_MEMBER = re.compile(r"[A-Za-z0-9_@-]+\.npy")

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


def write_folder(target: Path, manifest: JsonObject, files: dict[str, bytes]) -> None:
    """Write a bundle's files, with their checksums in the manifest."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    replace_folder(target, {**files, MANIFEST: json_bytes({"schema": SCHEMA, **manifest, "files": sums})})


def read_folder(path: str | Path, *, expect: str | None = None) -> tuple[JsonObject, dict[str, bytes], str]:
    """Return the manifest, the files it names, checked byte for byte, and the digest of the bundle.

    Guarantees:
        The digest is the sha256 of the bytes of `manifest.json`, which holds the sha256 of every other file. No link
        inside the folder is followed. A bundle with another digest than expected is refused before it is looked at.
    """
    folder = Path(path)
    if not os.path.lexists(folder):
        raise fail("bundle.read", repr(str(folder)), "there is no such folder", "Check the path.")
    if not os.path.isfile(folder / MANIFEST):
        raise fail("bundle.read", repr(str(folder)), "is not a bundle (no manifest.json)", WRITE_AGAIN)
    content = _bytes(folder, MANIFEST)
    digest = hashlib.sha256(content).hexdigest()
    _check_digest(folder, digest, expect)
    manifest = parse_json(folder, MANIFEST, content)
    if manifest.get("schema") != SCHEMA:
        raise refuse(folder, MANIFEST, f"has schema {manifest.get('schema')!r}, this version reads {SCHEMA}")
    with blaming(folder, MANIFEST):
        check_manifest(manifest)
    return manifest, {name: checked(folder, manifest, name) for name in manifest["files"]}, digest


def _check_digest(folder: Path, digest: str, expect: str | None) -> None:
    """Refuse another bundle than the one expected; the start of a digest is enough, from 16 digits on."""
    if expect is None:
        return
    wanted = str(expect).strip().lower()
    if not re.fullmatch(rf"[0-9a-f]{{{_LEAST_DIGITS},64}}", wanted):
        advice = "Give what `hdmm-bf verify` or `sha256sum manifest.json` prints."
        raise fail("bundle.read", f"expect={expect!r}", f"must be {_LEAST_DIGITS} to 64 hexadecimal digits", advice)
    if not digest.startswith(wanted):
        advice = "Ask where the bundle came from, or check it with `hdmm-bf verify`."
        raise fail("bundle.read", repr(str(folder)), f"has the digest {digest}, expected was {wanted}", advice)


def replace_folder(target: Path, files: dict[str, bytes]) -> None:
    """Write beside the target, then rename; the old bundle goes away last, or comes back if the new one cannot."""
    if "\0" in str(target):
        raise fail("bundle.write", repr(str(target)), "cannot be written (a path holds no NUL)", "Check it.")
    mark = f"{os.getpid()}-{os.urandom(4).hex()}"
    fresh, old = (target.with_name(f".{target.name}.{kind}-{mark}") for kind in ("new", "old"))
    try:
        fresh.mkdir(parents=True)
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise fail("bundle.write", repr(str(target)), f"cannot be written ({reason})", "Check it.") from None
    finally:
        if os.path.lexists(old) and not os.path.lexists(target):
            old.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def checked(folder: Path, manifest: JsonObject, name: str) -> bytes:
    """Return a file that has the checksum its manifest gives."""
    if not (folder / name).is_file():
        raise refuse(folder, name, "is missing")
    content = _bytes(folder, name)
    if hashlib.sha256(content).hexdigest() != manifest["files"][name]:
        raise refuse(folder, name, "was changed, cut short or taken from another bundle (its sha256 differs)")
    return content


def _bytes(folder: Path, name: str) -> bytes:
    if (folder / name).is_symlink():
        raise refuse(folder, name, "is a link to another file; a bundle holds its own")
    try:
        with blaming(folder, name):
            fits("bundle.read", repr(name), (folder / name).stat().st_size, advice=WRITE_AGAIN)
        return (folder / name).read_bytes()
    except OSError as error:
        raise refuse(folder, name, f"cannot be read ({error.strerror})") from None


def npz(**arrays: AnyArray) -> bytes:
    """Return an archive of arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **cast(JsonObject, arrays))
    return buffer.getvalue()


def load_npz(folder: Path, name: str, files: dict[str, bytes]) -> dict[str, AnyArray]:
    """Return the arrays of an archive, none of them objects."""
    try:
        with zipfile.ZipFile(io.BytesIO(files[name])) as archive:
            _check_members(folder, name, archive.namelist())
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


def _check_members(folder: Path, name: str, members: list[str]) -> None:
    """Refuse arrays that stand twice or are not called as NumPy calls them: programs differ in what they then read."""
    if len(set(members)) < len(members):
        raise refuse(folder, name, f"holds {Counter(members).most_common(1)[0][0]!r} twice")
    odd = next((member for member in members if not _MEMBER.fullmatch(member)), None)
    if odd is not None:
        raise refuse(folder, name, f"holds {odd!r}, which is no name of an array")


def json_bytes(record: JsonObject) -> bytes:
    """Return a record as JSON text."""
    return (json.dumps(record, indent=1) + "\n").encode()


def parse_json(folder: Path, name: str, content: bytes) -> JsonObject:
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


def _once(pairs: list[tuple[str, object]]) -> JsonObject:
    """Refuse a key that stands twice: programs differ in which of the two they believe."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise fail("json", repr(twice), "stands twice in one object", WRITE_AGAIN)
    return record


def _no_number(text: str) -> NoReturn:
    """Refuse NaN, infinity and whole numbers that no float holds: nothing that is shipped is one."""
    raise ValueError(text)
