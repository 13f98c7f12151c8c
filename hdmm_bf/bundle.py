"""Bundles: a fitted strategy as a folder of plain files that anybody can check.

`NAME.bf/` holds `manifest.json` (what it is, and the sha256 of every other file), `strategy.npz`, `policy.npz`,
`workload.npz` (unless a spec string says it all) and `certificate.json`. Nothing is pickled. A bundle is written
beside its place and then renamed, so a killed process leaves the old one or none.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import numpy as np

from hdmm_bf import bundle_checks as checks
from hdmm_bf._checks import MAX_BITS, InputError, fail, fits
from hdmm_bf._types import AnyArray, RealVector
from hdmm_bf.bundle_checks import WRITE_AGAIN, BundleError, blaming, refuse
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Dense
from hdmm_bf.strategies import Strategy
from hdmm_bf.transform import Problem

__all__ = ["MANIFEST", "SCHEMA", "BundleError", "Contents", "read", "write"]

SCHEMA = 1
MANIFEST = "manifest.json"

_UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, SyntaxError, RuntimeError, MemoryError),
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
"""What zipfile and NumPy raise on files that are not archives of arrays."""


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """What a bundle holds, checked against its checksums but not yet certified."""

    problem: Problem
    strategy: Strategy
    weights: RealVector
    certificate: dict[str, Any]
    manifest: dict[str, Any]


def write(
    path: str | Path,
    *,
    problem: Problem,
    strategy: Strategy,
    weights: RealVector,
    certificate: dict[str, Any],
    manifest: dict[str, Any],
) -> Path:
    """Write a bundle, replacing an older one of the same name only when the new one is complete."""
    target = Path(path)
    if os.path.lexists(target) and not os.path.isfile(target / MANIFEST):
        advice = "Choose another name; only a bundle is ever replaced."
        raise fail("bundle.write", repr(str(target)), "exists and is not a bundle", advice)
    files = {
        "strategy.npz": _npz(
            kind=np.array(strategy.kind),
            family=np.array(strategy.family),
            integers=strategy.integers,
            bits=np.array(strategy.bits),
            weights=weights,
        ),
        "policy.npz": _npz(edges=problem.policy.edges),
        "certificate.json": _json(certificate),
    }
    workload = checks.workload_record(problem.workload)
    if workload["file"]:
        files[checks.WORKLOAD] = _workload_bytes(problem)
    full = {
        "schema": SCHEMA,
        **manifest,
        "domain": _domain_record(problem.policy.domain),
        "workload": workload,
        "policy": checks.policy_record(problem.policy),
        "sensitivity_exact": certificate["sensitivity_exact"],
        "bits": strategy.bits,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    _replace(target, {**files, MANIFEST: _json(full)})
    return target


def _replace(target: Path, files: dict[str, bytes]) -> None:
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


def read(path: str | Path) -> Contents:
    """Read a bundle whose files are the ones its manifest names, byte for byte, and of the types they should be.

    Guarantees:
        A bundle with a file edited, truncated, missing or taken from another bundle is refused, naming the file.
        A policy or workload called by a spec string is the one of that name. Nothing outside the folder is read.
    """
    folder = Path(path)
    if not os.path.isfile(folder / MANIFEST):
        raise fail("bundle.read", repr(str(folder)), "is not a bundle (no manifest.json)", WRITE_AGAIN)
    manifest = _parse_json(folder, MANIFEST, _bytes(folder, MANIFEST))
    if manifest.get("schema") != SCHEMA:
        raise refuse(folder, MANIFEST, f"has schema {manifest.get('schema')!r}, this version reads {SCHEMA}")
    with blaming(folder, MANIFEST):
        checks.check_manifest(manifest)
    return _contents(folder, manifest, {name: _checked(folder, manifest, name) for name in manifest["files"]})


def _contents(folder: Path, manifest: dict[str, Any], files: dict[str, bytes]) -> Contents:
    with blaming(folder, MANIFEST):
        domain = checks.stored_domain(manifest["domain"])
    with blaming(folder, "strategy.npz"):
        strategy, weights = checks.stored_strategy(_load_npz(folder, "strategy.npz", files))
    with blaming(folder, "policy.npz"):
        edges = checks.stored_edges(_load_npz(folder, "policy.npz", files), domain.num_cells)
    with blaming(folder, MANIFEST):
        policy = checks.stored_policy(manifest["policy"], domain, edges)
    custom = manifest["workload"]["file"]
    with blaming(folder, checks.WORKLOAD if custom else MANIFEST):
        matrix = checks.stored_matrix(_load_npz(folder, checks.WORKLOAD, files)) if custom else None
        problem = Problem(checks.stored_workload(manifest["workload"], matrix, domain), policy)
    certificate = _parse_json(folder, "certificate.json", files["certificate.json"])
    return Contents(problem, strategy, weights, certificate, manifest)


def _checked(folder: Path, manifest: dict[str, Any], name: str) -> bytes:
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


def _npz(**arrays: AnyArray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **cast(dict[str, Any], arrays))
    return buffer.getvalue()


def _load_npz(folder: Path, name: str, files: dict[str, bytes]) -> dict[str, AnyArray]:
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


def _json(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, indent=1) + "\n").encode()


def _parse_json(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    try:
        record = json.loads(content, parse_int=_whole, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise refuse(folder, name, "is not readable JSON") from None
    if not isinstance(record, dict):
        raise refuse(folder, name, "is not a JSON object")
    return record


def _whole(digits: str) -> int:
    number = int(digits)
    return number if number.bit_length() <= MAX_BITS else _no_number(digits)


def _no_number(text: str) -> Any:
    """Refuse NaN, infinity and whole numbers that no float holds: nothing that is shipped is one."""
    raise ValueError(text)


def _workload_bytes(problem: Problem) -> bytes:
    matrix = problem.workload.matrix
    if isinstance(matrix, Dense):
        return _npz(W=matrix.array)
    S = matrix.sparse()
    return _npz(data=S.data, indices=S.indices, indptr=S.indptr, shape=np.array(S.shape))


def _domain_record(domain: Domain) -> dict[str, Any]:
    return {"sizes": domain.sizes, "names": domain.names, "labels": domain.labels}
