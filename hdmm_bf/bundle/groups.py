"""Files of tree norms by factors: the tree of one group, or of every part of a sum, and the policy by its attributes.

`grouped_tree.npz` takes the place of `tree.npz`, and says which attributes the tree is on and how large all are;
`tree_sum.npz` has the trees of a sum, the graphs along which their noise flows, and the proof of the bound beside them;
`policy.npz` holds one list of edges an attribute; `workload.npz`, where no spec string says it all, the factors of
every term, or the matrix of queries that are no products.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf._checks import fail
from hdmm_bf._types import AnyArray, JsonObject, Proof
from hdmm_bf.bundle import checks, matrices, products
from hdmm_bf.bundle.arrays import array, whole
from hdmm_bf.bundle.checks import GROUPED_TREE, TREE_SUM, WORKLOAD, WRITE_AGAIN, blaming
from hdmm_bf.bundle.files import MANIFEST, load_npz, npz
from hdmm_bf.domain import Domain
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import GroupedTree, TreeNorm, TreePart, TreeSum

_FACTORS = "t0_f0"
"""An array that only files of factors hold."""

_TREE = "parents", "integers", "bits", "family"
_MOST_PARTS = 64


def encode(strategy: GroupedTree, problem: Problem) -> tuple[dict[str, bytes], JsonObject]:
    """Return the files of a strategy and its problem, and what the manifest says of them."""
    tree = npz(
        **_tree_arrays(strategy.tree),
        axes=np.array(strategy.axes, dtype=np.int64),
        sizes=np.array(strategy.sizes, dtype=np.int64),
    )
    return _with_problem({GROUPED_TREE: tree}, problem)


def encode_sum(strategy: TreeSum, problem: Problem, proof: Proof | None) -> tuple[dict[str, bytes], JsonObject]:
    """Return the files of a sum of tree norms and its problem, and what the manifest says of them."""
    arrays: dict[str, AnyArray] = {
        "family": np.array(strategy.family),
        "sizes": np.array(strategy.sizes, dtype=np.int64),
        "parts": np.array(len(strategy.parts)),
    }
    for k, part in enumerate(strategy.parts):
        arrays |= {f"p{k}_{name}": own for name, own in _tree_arrays(part.tree).items()}
        arrays[f"p{k}_axes"] = np.array(part.axes, dtype=np.int64)
        arrays[f"p{k}_along"] = np.array(-1 if part.along is None else part.along)
        arrays[f"p{k}_edges"] = part.edges
    return _with_problem({TREE_SUM: npz(**arrays, **products.proof_arrays(proof))}, problem)


def _tree_arrays(tree: TreeNorm) -> dict[str, AnyArray]:
    bits, family = np.array(tree.bits), np.array(tree.family)
    return {"parents": tree.parents, "integers": tree.integers, "bits": bits, "family": family}


def _with_problem(files: dict[str, bytes], problem: Problem) -> tuple[dict[str, bytes], JsonObject]:
    """Add the files of a problem, and return what the manifest says of it."""
    policy = problem.policy
    assert policy.factors is not None, "groups are of a product"
    edges = tuple(factor.edges for factor in policy.factors)
    files["policy.npz"] = npz(**products.edge_arrays(edges))
    product = as_product(problem)
    workload = checks.workload_record(problem.workload, "matrix" if product is None else "workload")
    if workload["file"]:
        files[WORKLOAD] = (
            matrices.workload_bytes(problem) if product is None else npz(**products.workload_arrays(product))
        )
    record = products.policy_record(policy, edges)
    as_read = products.stored_policy(record, policy.domain, edges)
    return files, {"workload": workload, "policy": record, "discloses": policies.discloses(as_read)}


def decode(folder: Path, manifest: JsonObject, files: dict[str, bytes]) -> tuple[Problem, GroupedTree, Proof | None]:
    """Return the problem and the strategy that the files hold; no proof goes with it."""
    problem = _stored_problem(folder, manifest, files)
    with blaming(folder, GROUPED_TREE):
        strategy = _stored(load_npz(folder, GROUPED_TREE, files), problem.policy.domain)
    return problem, strategy, None


def decode_sum(folder: Path, manifest: JsonObject, files: dict[str, bytes]) -> tuple[Problem, TreeSum, Proof | None]:
    """Return the problem, the sum of tree norms and the proof that the files hold."""
    problem = _stored_problem(folder, manifest, files)
    with blaming(folder, TREE_SUM):
        arrays = load_npz(folder, TREE_SUM, files)
        return problem, _stored_sum(arrays, problem.policy.domain), products.stored_proof(arrays)


def _stored_problem(folder: Path, manifest: JsonObject, files: dict[str, bytes]) -> Problem:
    with blaming(folder, MANIFEST):
        domain = checks.stored_domain(manifest["domain"])
    with blaming(folder, "policy.npz"):
        edges, threshold = products.stored_edges(load_npz(folder, "policy.npz", files), domain)
        if threshold is not None:
            raise fail("policy", f"threshold {threshold}", "has edges that change several attributes", WRITE_AGAIN)
        policy = products.stored_policy(manifest["policy"], domain, edges)
    custom = manifest["workload"]["file"]
    with blaming(folder, WORKLOAD if custom else MANIFEST):
        arrays = load_npz(folder, WORKLOAD, files) if custom else {}
        by_factors = not custom or _FACTORS in arrays
        stored = products.stored_workload if by_factors else matrices.stored_workload
        return Problem(stored(manifest["workload"], arrays, domain), policy)


def _stored(arrays: dict[str, AnyArray], domain: Domain) -> GroupedTree:
    """Return the strategy, on the domain that the manifest describes."""
    checks.exactly(arrays, {*_TREE, "axes", "sizes"})
    sizes = _stored_sizes(arrays, domain)
    return GroupedTree(checks.tree_of(arrays), _stored_axes(arrays, "axes", sizes), sizes)


def _stored_sum(arrays: dict[str, AnyArray], domain: Domain) -> TreeSum:
    """Return the parts, on the domain that the manifest describes."""
    count = whole("parts", arrays.get("parts"), 1, _MOST_PARTS)
    named = {f"p{k}_{name}" for k in range(count) for name in (*_TREE, "axes", "along", "edges")}
    held = {name: own for name, own in arrays.items() if not name.startswith(products.PROOF)}
    checks.exactly(held, {"family", "sizes", "parts", *named})
    sizes = _stored_sizes(arrays, domain)
    parts = []
    for k in range(count):
        tree = checks.tree_of({name: arrays[f"p{k}_{name}"] for name in _TREE})
        along = whole(f"p{k}_along", arrays[f"p{k}_along"], -1, len(sizes) - 1)
        edges = array(arrays, f"p{k}_edges", "i", 2).astype(np.int64)
        if edges.shape[1] != 2:
            raise fail(f"p{k}_edges", f"of shape {edges.shape}", "must be pairs", WRITE_AGAIN)
        axes = _stored_axes(arrays, f"p{k}_axes", sizes)
        parts.append(TreePart(tree, axes, None if along < 0 else along, edges))
    return TreeSum(tuple(parts), sizes, checks.text("family", arrays["family"]))


def _stored_sizes(arrays: dict[str, AnyArray], domain: Domain) -> tuple[int, ...]:
    sizes = tuple(array(arrays, "sizes", "i", 1).tolist())
    if sizes != domain.sizes:
        raise fail("sizes", "x".join(map(str, sizes)), f"the domain is {domain}", WRITE_AGAIN)
    return sizes


def _stored_axes(arrays: dict[str, AnyArray], name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    axes = tuple(array(arrays, name, "i", 1).tolist())
    if not axes or list(axes) != sorted(set(axes)) or axes[0] < 0 or axes[-1] >= len(sizes):
        raise fail(name, axes, "must be numbers of attributes, ascending", WRITE_AGAIN)
    return axes
