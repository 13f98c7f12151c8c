"""One bundle: a fitted strategy as a folder of plain files that anybody can check.

`NAME.bf/` holds `manifest.json` (what it is, and the sha256 of every other file), the strategy (`strategy.npz`,
`blocks.npz` for one by factors, `tree.npz` for a tree norm, `grouped_tree.npz` for one within public groups,
`tree_sum.npz` for a sum of them), `policy.npz`, `workload.npz` (unless a spec string says it all), `objective.npz`
(targets and groups, unless it is the total that is small) and `certificate.json`. Nothing is pickled. A bundle is
written beside its place and then renamed, so a killed process leaves the old one or none. What differs between kinds of
strategy is how arrays are encoded and decoded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import NamedTuple, final

from hdmm_bf._types import JsonObject, Proof
from hdmm_bf.bundle import groups, matrices, products
from hdmm_bf.bundle.checks import BLOCKS, GROUPED_TREE, OBJECTIVE, TREE_SUM, blaming
from hdmm_bf.bundle.files import check_place, json_bytes, load_npz, npz, parse_json, read_folder, write_folder
from hdmm_bf.bundle.goals import goal_record, stored_goal, stored_queries
from hdmm_bf.domain import Domain
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import (
    GroupedTree,
    MatrixStrategy,
    NoiseSum,
    ProductStrategy,
    Strategy,
    TreeNorm,
    TreeSum,
)


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """What a bundle holds, checked against its checksums but not yet certified."""

    problem: Problem
    strategy: Strategy
    proof: Proof | None
    certificate: JsonObject
    manifest: JsonObject
    digest: str


class Encoded(NamedTuple):
    """The files of a problem, a strategy and a proof, and what the manifest says of them."""

    files: dict[str, bytes]
    record: JsonObject


@singledispatch
def encode(strategy: object, problem: Problem, proof: Proof | None) -> Encoded:
    """Return the files of a strategy; one implementation per record."""
    raise TypeError(f"no files for {type(strategy).__name__}")


@encode.register(MatrixStrategy)
@encode.register(TreeNorm)
def _(strategy: MatrixStrategy | TreeNorm, problem: Problem, proof: Proof | None) -> Encoded:
    return Encoded(*matrices.encode(strategy, problem, proof))


@encode.register(ProductStrategy)
@encode.register(NoiseSum)
def _(strategy: ProductStrategy | NoiseSum, problem: Problem, proof: Proof | None) -> Encoded:
    return Encoded(*products.encode(strategy, problem, proof))


@encode.register
def _(strategy: GroupedTree, problem: Problem, proof: Proof | None) -> Encoded:
    return Encoded(*groups.encode(strategy, problem))


@encode.register
def _(strategy: TreeSum, problem: Problem, proof: Proof | None) -> Encoded:
    return Encoded(*groups.encode_sum(strategy, problem, proof))


def write(
    path: str | Path,
    *,
    problem: Problem,
    strategy: Strategy,
    proof: Proof | None,
    certificate: JsonObject,
    manifest: JsonObject,
) -> Path:
    """Write a bundle, replacing an older one of the same name only when the new one is complete."""
    target = check_place(path)
    encoded = encode(strategy, problem, proof)
    record = {
        **manifest,
        "domain": domain_record(problem.policy.domain),
        **encoded.record,
        "sensitivity_exact": certificate["sensitivity_exact"],
        "bits": certificate["bits"],
    }
    files = {**encoded.files, "certificate.json": json_bytes(certificate)}
    if problem.goal.kind != "total":
        files[OBJECTIVE] = npz(**goal_record(problem.goal, (proof or {}).get("queries")))
    write_folder(target, record, files)
    return target


def read(path: str | Path, *, expect: str | None = None) -> Contents:
    """Read a bundle whose files are the ones its manifest names, byte for byte, and of the types they should be.

    Guarantees:
        A bundle with a file edited, truncated, missing or taken from another bundle is refused, naming the file.
        A policy or workload called by a spec string is the one of that name. Nothing outside the folder is read.
    """
    folder = Path(path)
    manifest, files, digest = read_folder(path, expect=expect)
    problem, strategy, proof = _decoded(folder, manifest, files)
    if OBJECTIVE in files:
        with blaming(folder, OBJECTIVE):
            arrays = load_npz(folder, OBJECTIVE, files)
            goal = stored_goal(manifest["objective"], arrays, problem.workload, problem.policy)
            problem = replace(problem, goal=goal)
            queries = stored_queries(arrays)
            proof = proof if proof is None or queries is None else {**proof, "queries": queries}
    certificate = parse_json(folder, "certificate.json", files["certificate.json"])
    return Contents(problem, strategy, proof, certificate, manifest, digest)


def _decoded(folder: Path, manifest: JsonObject, files: dict[str, bytes]) -> tuple[Problem, Strategy, Proof | None]:
    if BLOCKS in files:
        return products.decode(folder, manifest, files)
    if GROUPED_TREE in files:
        return groups.decode(folder, manifest, files)
    if TREE_SUM in files:
        return groups.decode_sum(folder, manifest, files)
    return matrices.decode(folder, manifest, files)


def domain_record(domain: Domain) -> JsonObject:
    """Describe a domain for a manifest; infinite edges are texts, for JSON has no such numbers."""
    record: JsonObject = {"sizes": domain.sizes, "names": domain.names, "labels": domain.labels}
    if any(edges is not None for edges in domain.bins):
        plain = [None if e is None else [v if math.isfinite(v) else str(v) for v in e] for e in domain.bins]
        record["bins"] = plain
    if any(unit is not None for unit in domain.units):
        record["units"] = domain.units
    return record
