"""Files of matrices and trees over the cells, with edge weights, the policy's edges and the workload's matrix."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf._types import AnyArray, JsonObject, Proof
from hdmm_bf.bundle import checks
from hdmm_bf.bundle.checks import blaming
from hdmm_bf.bundle.files import MANIFEST, load_npz, npz
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Dense
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import MatrixStrategy, TreeNorm
from hdmm_bf.workload import Workload

_PAIRS = {"partners", "shares"}
"""Arrays of a proof that only strategies for Laplace noise have."""


def encode(
    strategy: MatrixStrategy | TreeNorm, problem: Problem, proof: Proof | None
) -> tuple[dict[str, bytes], JsonObject]:
    """Return the files of a strategy and its problem, and what the manifest says of them."""
    name, arrays = strategy_arrays(strategy)
    weights = np.empty(0) if proof is None else proof["weights"]
    pairs = {key: value for key, value in (proof or {}).items() if key in _PAIRS}
    files = {
        name: npz(**arrays, family=np.array(strategy.family), bits=np.array(strategy.bits), weights=weights, **pairs),
        "policy.npz": npz(edges=problem.policy.edges),
    }
    policy = checks.policy_record(problem.policy)
    as_read = checks.stored_policy(policy, problem.policy.domain, problem.policy.edges)
    workload = checks.workload_record(problem.workload)
    if workload["file"]:
        files[checks.WORKLOAD] = workload_bytes(problem)
    # what is public is told in the words of whoever reads it, who knows no factors
    return files, {"workload": workload, "policy": policy, "discloses": policies.discloses(as_read)}


@singledispatch
def strategy_arrays(strategy: object) -> tuple[str, dict[str, AnyArray]]:
    """Return the file of a strategy, and what it holds beside the family, the grid and the edge weights."""
    raise TypeError(f"no file for {type(strategy).__name__}")


@strategy_arrays.register
def _(strategy: MatrixStrategy) -> tuple[str, dict[str, AnyArray]]:
    return checks.STRATEGY, {"kind": np.array(strategy.kind), "integers": strategy.integers}


@strategy_arrays.register
def _(strategy: TreeNorm) -> tuple[str, dict[str, AnyArray]]:
    return checks.TREE, {"parents": strategy.parents, "integers": strategy.integers}


def decode(
    folder: Path, manifest: JsonObject, files: dict[str, bytes]
) -> tuple[Problem, MatrixStrategy | TreeNorm, Proof | None]:
    """Return the problem, the strategy and the proof that the files hold."""
    with blaming(folder, MANIFEST):
        domain = checks.stored_domain(manifest["domain"])
    strategy: MatrixStrategy | TreeNorm
    pairs: Proof = {}
    if checks.TREE in files:
        with blaming(folder, checks.TREE):
            strategy, weights = checks.stored_tree(load_npz(folder, checks.TREE, files))
    else:
        with blaming(folder, checks.STRATEGY):
            arrays = load_npz(folder, checks.STRATEGY, files)
            pairs = _stored_pairs(arrays)
            strategy, weights = checks.stored_strategy({k: a for k, a in arrays.items() if k not in pairs})
    with blaming(folder, "policy.npz"):
        edges = checks.stored_edges(load_npz(folder, "policy.npz", files), domain.num_cells)
    with blaming(folder, MANIFEST):
        policy = checks.stored_policy(manifest["policy"], domain, edges)
    custom = manifest["workload"]["file"]
    with blaming(folder, checks.WORKLOAD if custom else MANIFEST):
        arrays = load_npz(folder, checks.WORKLOAD, files) if custom else {}
        problem = Problem(stored_workload(manifest["workload"], arrays, domain), policy)
    unproven = checks.TREE in files and weights.size == 0 and len(edges) > 0  # too large for a yardstick
    return problem, strategy, None if unproven else {"kind": "edges", "weights": weights, **pairs}


def _stored_pairs(arrays: dict[str, AnyArray]) -> Proof:
    """Return the pairs of edges that prove a bound for Laplace noise, where a file has any."""
    if not set(arrays) >= _PAIRS:
        return {}
    checks.typed("partners", arrays["partners"], "iu", 2)
    checks.typed("shares", arrays["shares"], "f", 1)
    return {"partners": arrays["partners"].astype(np.int64), "shares": arrays["shares"].astype(np.float64)}


def stored_workload(record: JsonObject, arrays: dict[str, AnyArray], domain: Domain) -> Workload:
    """Return the workload of a spec string, or of the matrix in a file, with the names and weights of its queries."""
    names, importance = checks.stored_names(arrays), arrays.pop(checks.WEIGHTS, None)
    matrix = checks.stored_matrix(arrays) if record["file"] else None
    return checks.reweighted(checks.stored_workload(record, matrix, domain, names), importance)


def workload_bytes(problem: Problem) -> bytes:
    """Return the file of a workload by its matrix."""
    matrix, names = problem.workload.matrix, checks.names_record(problem.workload)
    if problem.workload.is_weighted:
        names |= {checks.WEIGHTS: problem.workload.weights()}
    if isinstance(matrix, Dense):
        return npz(W=matrix.array, **names)
    S = matrix.sparse()
    return npz(data=S.data, indices=S.indices, indptr=S.indptr, shape=np.array(S.shape), **names)
