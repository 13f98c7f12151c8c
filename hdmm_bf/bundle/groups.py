"""Files of tree norms within public groups: the tree of one group, and the policy by its attributes.

`grouped_tree.npz` takes the place of `tree.npz`, and says which attributes the tree is on and how large all are;
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
from hdmm_bf.bundle.arrays import array
from hdmm_bf.bundle.checks import GROUPED_TREE, WORKLOAD, WRITE_AGAIN, blaming
from hdmm_bf.bundle.files import MANIFEST, load_npz, npz
from hdmm_bf.domain import Domain
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import GroupedTree

_FACTORS = "t0_f0"
"""An array that only files of factors hold."""


def encode(strategy: GroupedTree, problem: Problem) -> tuple[dict[str, bytes], JsonObject]:
    """Return the files of a strategy and its problem, and what the manifest says of them."""
    tree, policy = strategy.tree, problem.policy
    assert policy.factors is not None, "groups are of a product"
    edges = tuple(factor.edges for factor in policy.factors)
    files = {
        GROUPED_TREE: npz(
            parents=tree.parents,
            integers=tree.integers,
            bits=np.array(tree.bits),
            family=np.array(tree.family),
            axes=np.array(strategy.axes, dtype=np.int64),
            sizes=np.array(strategy.sizes, dtype=np.int64),
        ),
        "policy.npz": npz(**products.edge_arrays(edges)),
    }
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
        problem = Problem(stored(manifest["workload"], arrays, domain), policy)
    with blaming(folder, GROUPED_TREE):
        strategy = _stored(load_npz(folder, GROUPED_TREE, files), domain)
    return problem, strategy, None


def _stored(arrays: dict[str, AnyArray], domain: Domain) -> GroupedTree:
    """Return the strategy, on the domain that the manifest describes."""
    checks.exactly(arrays, {"parents", "integers", "bits", "family", "axes", "sizes"})
    axes, sizes = (tuple(array(arrays, name, "i", 1).tolist()) for name in ("axes", "sizes"))
    if sizes != domain.sizes:
        raise fail("sizes", "x".join(map(str, sizes)), f"the domain is {domain}", WRITE_AGAIN)
    if not axes or list(axes) != sorted(set(axes)) or axes[0] < 0 or axes[-1] >= len(sizes):
        raise fail("axes", axes, "must be numbers of attributes, ascending", WRITE_AGAIN)
    return GroupedTree(checks.tree_of(arrays), axes, sizes)
