"""Files of strategies that are written out: integers, edge weights, the policy's edges, the workload's matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf.bundle import checks
from hdmm_bf.bundle.checks import blaming
from hdmm_bf.bundle.files import MANIFEST, load_npz, npz
from hdmm_bf.matrix import Dense
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import MatrixStrategy


def encode(
    strategy: MatrixStrategy, problem: Problem, proof: dict[str, Any] | None
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a strategy and its problem, and what the manifest says of them."""
    assert proof is not None, "edge weights prove the bound of a strategy that is written out"
    files = {
        "strategy.npz": npz(
            kind=np.array(strategy.kind),
            family=np.array(strategy.family),
            integers=strategy.integers,
            bits=np.array(strategy.bits),
            weights=proof["weights"],
        ),
        "policy.npz": npz(edges=problem.policy.edges),
    }
    policy = checks.policy_record(problem.policy)
    as_read = checks.stored_policy(policy, problem.policy.domain, problem.policy.edges)
    workload = checks.workload_record(problem.workload)
    if workload["file"]:
        files[checks.WORKLOAD] = _workload_bytes(problem)
    # what is public is told in the words of whoever reads it, who knows no factors
    return files, {"workload": workload, "policy": policy, "discloses": policies.discloses(as_read)}


def decode(
    folder: Path, manifest: dict[str, Any], files: dict[str, bytes]
) -> tuple[Problem, MatrixStrategy, dict[str, Any]]:
    """Return the problem, the strategy and the proof that the files hold."""
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
        names, importance = checks.stored_names(arrays), arrays.pop(checks.WEIGHTS, None)
        matrix = checks.stored_matrix(arrays) if custom else None
        workload = checks.stored_workload(manifest["workload"], matrix, domain, names)
        problem = Problem(checks.reweighted(workload, importance), policy)
    return problem, strategy, {"kind": "edges", "weights": weights}


def _workload_bytes(problem: Problem) -> bytes:
    matrix, names = problem.workload.matrix, checks.names_record(problem.workload)
    if problem.workload.is_weighted:
        names |= {checks.WEIGHTS: problem.workload.weights()}
    if isinstance(matrix, Dense):
        return npz(W=matrix.array, **names)
    S = matrix.sparse()
    return npz(data=S.data, indices=S.indices, indptr=S.indptr, shape=np.array(S.shape), **names)
