"""Bundles: a fitted strategy as a folder of plain files that anybody can check.

`NAME.bf/` holds `manifest.json` (what it is, and the sha256 of every other file), `strategy.npz`, `policy.npz`,
`workload.npz` (unless a spec string says it all) and `certificate.json`. Nothing is pickled. A bundle is written
beside its place and then renamed, so a killed process leaves the old one or none.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import scipy.sparse as sp

from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._checks import InputError, fail, fits
from hdmm_bf._types import AnyArray, RealVector
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Dense
from hdmm_bf.strategies import Strategy
from hdmm_bf.transform import Problem

SCHEMA = 1
MANIFEST = "manifest.json"
_WRITE_AGAIN = "Write the bundle again with `hdmm-bf fit ... --out`."


class BundleError(InputError):
    """A bundle that cannot be trusted: edited, truncated, mixed or not one."""


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
    if target.exists() and not (target / MANIFEST).is_file():
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
    implicit = _parsed(workloads.parse, problem.workload.spec) is not None
    if not implicit:
        files["workload.npz"] = _workload_bytes(problem)
    full = {
        "schema": SCHEMA,
        **manifest,
        "domain": _domain_record(problem.policy.domain),
        "workload": {"spec": problem.workload.spec, "file": not implicit},
        "policy": {"spec": problem.policy.spec, "meaning": problem.policy.meaning},
        "sensitivity_exact": certificate["sensitivity_exact"],
        "bits": strategy.bits,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    _replace(target, {**files, MANIFEST: _json(full)})
    return target


def _replace(target: Path, files: dict[str, bytes]) -> None:
    """Write beside the target, then rename; the old bundle goes away last."""
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
        raise fail("bundle.write", repr(str(target)), f"cannot be written ({error.strerror})", "Check it.") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def read(path: str | Path) -> Contents:
    """Read a bundle whose files are the ones its manifest names, byte for byte.

    Guarantees:
        A bundle with a file edited, truncated, missing or taken from another bundle is refused, naming the file.
    """
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise fail("bundle.read", repr(str(folder)), "is not a bundle (no manifest.json)", _WRITE_AGAIN)
    manifest = _read_json(folder, MANIFEST)
    if manifest.get("schema") != SCHEMA:
        problem = f"has schema {manifest.get('schema')!r}, this version reads {SCHEMA}"
        raise _refuse(folder, MANIFEST, problem)
    try:
        return _contents(folder, manifest, {name: _checked(folder, manifest, name) for name in manifest["files"]})
    except (KeyError, TypeError, AttributeError) as error:
        raise _refuse(folder, MANIFEST, f"is not as this program writes it ({error})") from None


def _contents(folder: Path, manifest: dict[str, Any], files: dict[str, bytes]) -> Contents:
    arrays = _load_npz(folder, "strategy.npz", files)
    edges = _load_npz(folder, "policy.npz", files)["edges"]
    labels = tuple(None if v is None else tuple(v) for v in manifest["domain"]["labels"])
    domain = Domain(tuple(manifest["domain"]["sizes"]), tuple(manifest["domain"]["names"]), labels)
    policy = policies.Policy(domain, manifest["policy"]["spec"], manifest["policy"]["meaning"], edges)
    named = _parsed(policies.parse, policy.spec)
    if named is not None and not (named.num_edges == len(edges) and np.array_equal(named.edges, edges)):
        raise _refuse(folder, "policy.npz", f"does not hold the edges of {policy.spec}")
    if manifest["workload"]["file"]:
        matrix = _load_workload(_load_npz(folder, "workload.npz", files))
        workload = workloads.from_matrix(matrix, domain=domain, spec=manifest["workload"]["spec"])
    else:
        workload = workloads.parse(manifest["workload"]["spec"])
    strategy = Strategy(
        str(arrays["kind"]),  # type: ignore[arg-type]
        arrays["integers"],
        int(arrays["bits"]),
        str(arrays["family"]),
    )
    certificate = _parse_json(folder, "certificate.json", files["certificate.json"])
    return Contents(Problem(workload, policy), strategy, arrays["weights"], certificate, manifest)


def _checked(folder: Path, manifest: dict[str, Any], name: str) -> bytes:
    if Path(name).name != name or not (folder / name).is_file():
        raise _refuse(folder, name, "is missing")
    size = (folder / name).stat().st_size
    fits("bundle.read", f"{name!r}", size, advice=_WRITE_AGAIN)
    content = (folder / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != manifest["files"][name]:
        raise _refuse(folder, name, "was changed, cut short or taken from another bundle (its sha256 differs)")
    return content


def _refuse(folder: Path, name: str, problem: str) -> BundleError:
    return BundleError(f"bundle.read({str(folder)!r}): {name} {problem}. {_WRITE_AGAIN}")


def _npz(**arrays: AnyArray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **cast(dict[str, Any], arrays))
    return buffer.getvalue()


def _load_npz(folder: Path, name: str, files: dict[str, bytes]) -> dict[str, AnyArray]:
    try:
        with zipfile.ZipFile(io.BytesIO(files[name])) as archive:
            fits("bundle.read", repr(name), sum(i.file_size for i in archive.infolist()), advice=_WRITE_AGAIN)
        with np.load(io.BytesIO(files[name]), allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise _refuse(folder, name, "is not a readable .npz file") from None


def _json(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, indent=1) + "\n").encode()


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    return _parse_json(folder, name, (folder / name).read_bytes())


def _parse_json(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        raise _refuse(folder, name, "is not readable JSON") from None
    if not isinstance(record, dict):
        raise _refuse(folder, name, "is not a JSON object")
    return record


def _workload_bytes(problem: Problem) -> bytes:
    matrix = problem.workload.matrix
    if isinstance(matrix, Dense):
        return _npz(W=matrix.array)
    S = matrix.sparse()
    return _npz(data=S.data, indices=S.indices, indptr=S.indptr, shape=np.array(S.shape))


def _load_workload(arrays: dict[str, AnyArray]) -> Any:
    if "W" in arrays:
        return arrays["W"]
    return sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist()))


def _domain_record(domain: Domain) -> dict[str, Any]:
    return {"sizes": domain.sizes, "names": domain.names, "labels": domain.labels}


def _parsed(parse: Any, spec: str) -> Any:
    """Return what a spec string names, or None if it is no spec string (a path, or a description)."""
    name = spec.partition(":")[0]
    if ":" not in spec or not name.replace("-", "").isalpha():
        return None
    try:
        return parse(spec)
    except InputError:
        return None
