"""Bundles: a fitted strategy as a folder of plain files that anybody can check.

`NAME.bf/` holds `manifest.json` (what it is, and the sha256 of every other file), `strategy.npz`, `policy.npz`,
`workload.npz` (unless a spec string says it all) and `certificate.json`. Nothing is pickled. A bundle is written
beside its place and then renamed, so a killed process leaves the old one or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf._types import RealVector
from hdmm_bf.bundle import checks
from hdmm_bf.bundle.checks import BundleError, blaming
from hdmm_bf.bundle.files import (
    MANIFEST,
    SCHEMA,
    check_place,
    json_bytes,
    load_npz,
    npz,
    parse_json,
    read_folder,
    write_folder,
)
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Dense
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import Strategy

__all__ = ["MANIFEST", "SCHEMA", "BundleError", "Contents", "contents", "read", "write"]


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
    target = check_place(path)
    files = {
        "strategy.npz": npz(
            kind=np.array(strategy.kind),
            family=np.array(strategy.family),
            integers=strategy.integers,
            bits=np.array(strategy.bits),
            weights=weights,
        ),
        "policy.npz": npz(edges=problem.policy.edges),
        "certificate.json": json_bytes(certificate),
    }
    policy = checks.policy_record(problem.policy)
    as_read = checks.stored_policy(policy, problem.policy.domain, problem.policy.edges)
    workload = checks.workload_record(problem.workload)
    if workload["file"]:
        files[checks.WORKLOAD] = _workload_bytes(problem)
    record = {
        **manifest,
        "domain": domain_record(problem.policy.domain),
        "workload": workload,
        "policy": policy,
        "discloses": policies.discloses(as_read),  # in the words of whoever reads it, who knows no factors
        "sensitivity_exact": certificate["sensitivity_exact"],
        "bits": strategy.bits,
    }
    write_folder(target, record, files)
    return target


def read(path: str | Path) -> Contents:
    """Read a bundle whose files are the ones its manifest names, byte for byte, and of the types they should be.

    Guarantees:
        A bundle with a file edited, truncated, missing or taken from another bundle is refused, naming the file.
        A policy or workload called by a spec string is the one of that name. Nothing outside the folder is read.
    """
    manifest, files, _ = read_folder(path)
    return contents(Path(path), manifest, files)


def contents(folder: Path, manifest: dict[str, Any], files: dict[str, bytes]) -> Contents:
    """Return what the files of a bundle with a written-out strategy hold."""
    with blaming(folder, MANIFEST):
        domain = checks.stored_domain(manifest["domain"])
    with blaming(folder, "strategy.npz"):
        strategy, weights = checks.stored_strategy(load_npz(folder, "strategy.npz", files))
    with blaming(folder, "policy.npz"):
        edges = checks.stored_edges(load_npz(folder, "policy.npz", files), domain.num_cells)
    with blaming(folder, MANIFEST):
        policy = checks.stored_policy(manifest["policy"], domain, edges)
    custom = manifest["workload"]["file"]
    with blaming(folder, checks.WORKLOAD if custom else MANIFEST):
        arrays = load_npz(folder, checks.WORKLOAD, files) if custom else {}
        names, weights_of_queries = checks.stored_names(arrays), arrays.pop(checks.WEIGHTS, None)
        matrix = checks.stored_matrix(arrays) if custom else None
        workload = checks.stored_workload(manifest["workload"], matrix, domain, names)
        problem = Problem(checks.reweighted(workload, weights_of_queries), policy)
    certificate = parse_json(folder, "certificate.json", files["certificate.json"])
    return Contents(problem, strategy, weights, certificate, manifest)


def _workload_bytes(problem: Problem) -> bytes:
    matrix, names = problem.workload.matrix, checks.names_record(problem.workload)
    if problem.workload.is_weighted:
        names |= {checks.WEIGHTS: problem.workload.weights()}
    if isinstance(matrix, Dense):
        return npz(W=matrix.array, **names)
    S = matrix.sparse()
    return npz(data=S.data, indices=S.indices, indptr=S.indptr, shape=np.array(S.shape), **names)


def domain_record(domain: Domain) -> dict[str, Any]:
    """Describe a domain for a manifest."""
    return {"sizes": domain.sizes, "names": domain.names, "labels": domain.labels}
