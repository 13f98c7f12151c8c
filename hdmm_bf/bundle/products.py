"""Files of strategies by factors: factors, precisions and the proof of the bound instead of a matrix and edge weights.

`blocks.npz` takes the place of `strategy.npz`; `policy.npz` holds one list of edges an attribute, and the distance
threshold where cells at that distance are neighbours too; `workload.npz`, where no spec string says it all, the factors
of every term, by name where they have one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError, fail, finite, fits, whole_numbers
from hdmm_bf._types import AnyArray, EdgeArray, JsonObject, Proof
from hdmm_bf.bundle import checks
from hdmm_bf.bundle.arrays import array, whole
from hdmm_bf.bundle.checks import WORKLOAD, WRITE_AGAIN, blaming
from hdmm_bf.bundle.files import MANIFEST, load_npz, npz
from hdmm_bf.bundle.joined import joined_arrays, stored_joined
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Dense, Identity, Kronecker, Matrix, Ones, Stack, Weighted
from hdmm_bf.policy import Policy
from hdmm_bf.policy.constructors import ball_threshold
from hdmm_bf.problem.product import ProductProblem, Term, incidence, product_terms, product_view
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.blocks import from_integers, noise_from_integers
from hdmm_bf.strategies.records import Block, NoiseSum, ProductStrategy
from hdmm_bf.workload import AllRange, Prefix, Workload
from hdmm_bf.workload.queries import row_weights

BLOCKS = checks.BLOCKS
PROOF = "proof_"
"""What names of arrays of a proof begin with."""

_NAMED: dict[str, Callable[[int], Matrix]] = {
    "identity": Identity,
    "ones": Ones,
    "prefix": Prefix,
    "all-range": AllRange,
}
_MOST_BLOCKS = 2**16
_MOST_BITS = 62
_THRESHOLD = "threshold"


def encode(
    strategy: ProductStrategy | NoiseSum, problem: Problem, proof: Proof | None
) -> tuple[dict[str, bytes], JsonObject]:
    """Return the files of a strategy and its problem, and what the manifest says of them."""
    product = product_view(problem, balls=True)
    files = {
        BLOCKS: npz(**_block_arrays(strategy), **proof_arrays(proof)),
        "policy.npz": npz(**edge_arrays(product.edges, product.threshold)),
    }
    workload = checks.workload_record(problem.workload, "workload")
    if workload["file"]:
        files[WORKLOAD] = npz(**workload_arrays(product))
    policy = policy_record(problem.policy, product.edges, product.threshold)
    as_read = stored_policy(policy, problem.policy.domain, product.edges, product.threshold)
    return files, {"workload": workload, "policy": policy, "discloses": policies.discloses(as_read)}


def decode(
    folder: Path, manifest: JsonObject, files: dict[str, bytes]
) -> tuple[Problem, ProductStrategy | NoiseSum, Proof | None]:
    """Return the problem, the strategy and the proof that the files hold."""
    with blaming(folder, MANIFEST):
        domain = checks.stored_domain(manifest["domain"])
    with blaming(folder, "policy.npz"):
        edges, threshold = stored_edges(load_npz(folder, "policy.npz", files), domain)
        policy = stored_policy(manifest["policy"], domain, edges, threshold)
    custom = manifest["workload"]["file"]
    with blaming(folder, WORKLOAD if custom else MANIFEST):
        arrays = load_npz(folder, WORKLOAD, files) if custom else None
        problem = Problem(stored_workload(manifest["workload"], arrays, domain), policy)
        product = product_view(problem, balls=True)
    with blaming(folder, BLOCKS):
        arrays = load_npz(folder, BLOCKS, files)
        strategy = _stored_strategy(arrays, product)
        proof = stored_proof(arrays)
    return problem, strategy, proof


def _block_arrays(strategy: ProductStrategy | NoiseSum) -> dict[str, AnyArray]:
    arrays: dict[str, AnyArray] = {"family": np.array(strategy.family), "blocks": np.array(len(strategy.blocks))}
    for b, block in enumerate(strategy.blocks):
        arrays[f"b{b}_bits"] = np.array(block.bits, dtype=np.int64)
        arrays[f"b{b}_precisions"] = block.precisions
        if block.terms is not None:
            arrays[f"b{b}_terms"] = np.array(block.terms, dtype=np.int64)
        arrays |= {f"b{b}_f{i}": factor for i, factor in enumerate(block.integers)}
        if isinstance(strategy, NoiseSum):
            arrays[f"b{b}_hides"] = np.array(strategy.hides[b], dtype=np.int64)
            arrays[f"b{b}_over"] = np.array(-1 if block.edges is None else block.edges, dtype=np.int64)
    return arrays | joined_arrays(strategy.joined) if isinstance(strategy, NoiseSum) else arrays


def _stored_strategy(arrays: dict[str, AnyArray], product: ProductProblem) -> ProductStrategy | NoiseSum:
    joined = stored_joined(arrays, product)
    count = whole("blocks", arrays.get("blocks"), 0 if joined else 1, _MOST_BLOCKS)
    family = checks.text("family", arrays.get("family"))
    if "b0_hides" not in arrays and not joined:
        return ProductStrategy(tuple(_stored_block(arrays, b, product) for b in range(count)), family)
    last = len(product.sizes) - 1
    hides = [array(arrays, f"b{b}_hides", "i", 1) for b in range(count)]
    if not all(0 < h.size <= last + 1 and np.all((h >= 0) & (h <= last)) for h in hides):
        raise fail(BLOCKS, "hides", "must be numbers of attributes", WRITE_AGAIN)
    over = [whole(f"b{b}_over", arrays.get(f"b{b}_over"), -1, last) for b in range(count)]
    blocks = tuple(_stored_block(arrays, b, product, over[b]) for b in range(count))
    return NoiseSum(blocks, tuple(tuple(h.tolist()) for h in hides), family, joined)


def _stored_block(arrays: dict[str, AnyArray], b: int, product: ProductProblem, over: int | None = None) -> Block:
    """Return a block; `over` is the attribute whose factor is over edges, -1 for none, None outside sums of noise."""
    sizes = list(product.sizes)
    d = len(sizes)
    if over is not None and over >= 0:
        sizes[over] = len(product.edges[over])
    factors = tuple(array(arrays, f"b{b}_f{i}", "i", 2) for i in range(d))
    bits = array(arrays, f"b{b}_bits", "i", 1)
    precisions = array(arrays, f"b{b}_precisions", "f", d).astype(np.float64)
    shape = tuple(len(factor) for factor in factors)
    good = bits.shape == (d,) and bool(np.all((bits >= 0) & (bits <= _MOST_BITS)))
    good = good and all(f.shape[1] == size and len(f) > 0 for f, size in zip(factors, sizes, strict=True))
    good = good and all(a in (1, b) for a, b in zip(precisions.shape, shape, strict=True))
    good = good and not np.any(np.isnan(precisions)) and bool(np.all(precisions >= 0))
    if not good or not all(map(checks.in_range, factors)):
        raise fail(BLOCKS, f"block {b}", "does not fit the domain", WRITE_AGAIN)
    fits(BLOCKS, f"block {b}", int(np.prod(np.array(shape, dtype=object))) * 8, advice=WRITE_AGAIN)
    integers, places = tuple(f.astype(np.int64) for f in factors), tuple(bits.tolist())
    if over is not None:
        own = None if over < 0 else (over, incidence(product, over))
        return noise_from_integers(integers, places, precisions, own)
    named = f"b{b}_terms"
    terms = tuple(array(arrays, named, "i", 1).tolist()) if named in arrays else None
    return from_integers(integers, places, precisions, terms)


def proof_arrays(proof: Proof | None) -> dict[str, AnyArray]:
    """Return the arrays of a proof, by names of their own."""
    arrays: dict[str, AnyArray] = {}
    for key, value in (proof or {}).items():
        if isinstance(value, list | tuple):  # of arrays of different lengths
            arrays |= {f"{PROOF}{key}@{i}": np.asarray(part) for i, part in enumerate(value)}
        else:
            arrays[f"{PROOF}{key}"] = np.asarray(value)
    return arrays


def stored_proof(arrays: dict[str, AnyArray]) -> Proof | None:
    """Return the proof among the arrays of a file; None where it has none."""
    held = {key.removeprefix(PROOF): value for key, value in arrays.items() if key.startswith(PROOF)}
    proof: Proof = {}
    for name in sorted(held, key=_numbered):
        value = _stored_value(f"{PROOF}{name}", held[name])
        key, part, _ = name.partition("@")
        if part:
            proof.setdefault(key, []).append(value)
        else:
            proof[key] = value
    return proof or None


def _stored_value(name: str, array: AnyArray) -> str | float | AnyArray:
    if array.dtype.kind == "U":
        return checks.text(name, array)
    numbers = finite(BLOCKS, name, array)
    return float(numbers) if numbers.ndim == 0 else numbers


def _numbered(name: str) -> tuple[str, int]:
    """Order the parts of a proof by their numbers."""
    key, _, number = name.partition("@")
    return key, int(number) if number.isdigit() else -1


def policy_record(policy: Policy, edges: tuple[EdgeArray, ...], threshold: int | None = None) -> dict[str, str]:
    """By its spec string if that makes the same factors again, else by words that follow from the factors."""
    try:
        named = checks.named_policy(policy.spec, policy.domain)
    except InputError:
        named = None
    if named is not None and named.spec == policy.spec and _is_same(named, edges, threshold):
        return {"spec": named.spec, "meaning": named.meaning}
    plain = _plain(policy.domain, edges, threshold)
    return {"spec": checks.described(policy.spec, "policy"), "meaning": plain.meaning}


def _is_same(policy: Policy, edges: tuple[EdgeArray, ...], threshold: int | None) -> bool:
    if threshold is not None:
        return ball_threshold(policy) == threshold
    factors = (policy,) if policy.domain.num_attributes == 1 else policy.factors
    return factors is not None and all(np.array_equal(f.edges, e) for f, e in zip(factors, edges, strict=True))


def _plain(domain: Domain, edges: tuple[EdgeArray, ...], threshold: int | None) -> Policy:
    """The product of the factors with their edges in the order of the file, which proofs go by; or the balls."""
    if threshold is not None:
        return policies.threshold(domain, threshold)
    made = [policies.from_edges(e[:, 0], e[:, 1], size) for e, size in zip(edges, domain.sizes, strict=True)]
    own = [Policy(p.domain, p.spec, p.meaning, e) for p, e in zip(made, edges, strict=True)]
    return policies.product(*own, domain=domain)


def edge_arrays(edges: tuple[EdgeArray, ...], threshold: int | None = None) -> dict[str, AnyArray]:
    """Return the arrays of a policy: one list of edges an attribute, and the distance threshold if there is one."""
    arrays: dict[str, AnyArray] = {f"edges{i}": own for i, own in enumerate(edges)}
    return arrays if threshold is None else arrays | {_THRESHOLD: np.array(threshold)}


def stored_edges(arrays: dict[str, AnyArray], domain: Domain) -> tuple[tuple[EdgeArray, ...], int | None]:
    """Return one list of edges an attribute, and the distance threshold if there is one, which must go with them."""
    held = dict(arrays)
    limit = held.pop(_THRESHOLD, None)
    if set(held) != {f"edges{i}" for i in range(domain.num_attributes)}:
        raise fail("policy", f"{len(held)} lists of edges", "must be one for each attribute", WRITE_AGAIN)
    found = []
    for i, size in enumerate(domain.sizes):
        edges = whole_numbers("policy", f"edges{i}", held[f"edges{i}"])
        if edges.ndim != 2 or edges.shape[1] != 2:
            raise fail("policy", f"edges{i} of shape {edges.shape}", "must be pairs", WRITE_AGAIN)
        found.append(checks.ordered_edges(edges, size))
    if limit is None:
        return tuple(found), None
    threshold = whole(_THRESHOLD, limit, 2, sum(domain.sizes))
    if not all(
        np.array_equal(e, policies.threshold(n, threshold).edges) for e, n in zip(found, domain.sizes, strict=True)
    ):
        raise fail("policy", f"threshold {threshold}", "does not go with the edges of the attributes", WRITE_AGAIN)
    return tuple(found), threshold


def stored_policy(
    record: JsonObject, domain: Domain, edges: tuple[EdgeArray, ...], threshold: int | None = None
) -> Policy:
    """Return the policy, which must be the named one if it has a name, and hide what it says it hides."""
    named = checks.named_policy(record["spec"], domain)
    if named is not None and not _is_same(named, edges, threshold):
        raise fail("policy", named.spec, "policy.npz does not hold the edges of that policy", WRITE_AGAIN)
    made = named or _plain(domain, edges, threshold)
    if record["meaning"] != made.meaning:
        problem = f"says that it hides {record['meaning']!r}, and hides {made.meaning!r}"
        raise fail("policy", record["spec"], problem, WRITE_AGAIN)
    return made if named else replace(made, spec=record["spec"])


def _written_terms(product: ProductProblem) -> tuple[Term, ...]:
    terms = product_terms(product.problem.workload.matrix, product.sizes)
    assert terms is not None, "checked by as_product"
    return terms


def workload_arrays(product: ProductProblem) -> dict[str, AnyArray]:
    """Return the factors of a workload, and the weights of its queries."""
    return _term_arrays(product) | _weight_arrays(product)


def _weight_arrays(product: ProductProblem) -> dict[str, AnyArray]:
    """Weights of the queries: one a term, and one a row of the factors that have any."""
    if not product.problem.workload.is_weighted:
        return {}
    pairs = list(zip(product.terms, _written_terms(product), strict=True))
    arrays: dict[str, AnyArray] = {"importance": np.array([term.weight / written.weight for term, written in pairs])}
    for k, (term, written) in enumerate(pairs):
        for i, (factor, plain) in enumerate(zip(term.factors, written.factors, strict=True)):
            if isinstance(factor, Weighted | Stack | Kronecker) and factor is not plain:
                arrays[f"t{k}_w{i}"] = row_weights(factor, plain)
    return arrays


def _term_arrays(product: ProductProblem) -> dict[str, AnyArray]:
    terms = _written_terms(product)
    arrays: dict[str, AnyArray] = {"weights": np.array([term.weight for term in terms])}
    for k, term in enumerate(terms):
        for i, factor in enumerate(term.factors):
            name = next((name for name, kind in _NAMED.items() if type(factor) is kind), None)
            arrays[f"t{k}_f{i}"] = factor.dense() if name is None else np.array(name)
    return arrays


def stored_workload(record: JsonObject, arrays: dict[str, AnyArray] | None, domain: Domain) -> Workload:
    """Return the workload of a spec string, or of the factors in a file."""
    named = checks.named_workload(record, domain)
    if (named is None) != record["file"]:
        raise fail("workload", repr(record["spec"]), "a workload has either a spec string or a file", WRITE_AGAIN)
    if named is not None or arrays is None:
        assert named is not None
        return named
    weights = finite("workload", "weights", arrays.get("weights", np.empty((0, 0))))
    if weights.ndim != 1 or not 0 < weights.size <= _MOST_BLOCKS:
        raise fail("workload", "weights", "must be one for each term", WRITE_AGAIN)
    blocks = tuple(_stored_term(arrays, k, float(w), domain) for k, w in enumerate(weights))
    matrix = blocks[0] if len(blocks) == 1 else Stack(blocks)
    return Workload(matrix, domain, record["spec"], lambda i: f"query {i}", _stored_objective(arrays, blocks))


def _stored_objective(arrays: dict[str, AnyArray], blocks: tuple[Matrix, ...]) -> Matrix | None:
    """Put the weights of the queries on the terms and factors that have any."""
    if "importance" not in arrays:
        return None
    importance = _positive(arrays, "importance", len(blocks))
    heavy = []
    for k, block in enumerate(blocks):
        inner = block.inner if isinstance(block, Weighted) else block
        factors = inner.factors if isinstance(inner, Kronecker) else (inner,)
        names = [f"t{k}_w{i}" for i in range(len(factors))]
        own = tuple(
            Weighted(_positive(arrays, name, factor.shape[0]), factor) if name in arrays else factor
            for name, factor in zip(names, factors, strict=True)
        )
        scale = importance[k] * (block.weights[0] if isinstance(block, Weighted) else 1.0)
        heavy.append(Weighted(np.array([scale]), own[0] if len(own) == 1 else Kronecker(own)))
    return heavy[0] if len(heavy) == 1 else Stack(tuple(heavy))


def _positive(arrays: dict[str, AnyArray], name: str, size: int) -> AnyArray:
    weights = finite("workload", name, array(arrays, name, "f", 1))
    if weights.size not in (1, size) or weights.min() <= 0:
        raise fail("workload", name, "must be positive, one for each", WRITE_AGAIN)
    return np.asarray(np.broadcast_to(weights, size) if name == "importance" else weights)


def _stored_term(arrays: dict[str, AnyArray], k: int, weight: float, domain: Domain) -> Matrix:
    factors = tuple(_stored_factor(arrays, f"t{k}_f{i}", size) for i, size in enumerate(domain.sizes))
    product = factors[0] if len(factors) == 1 else Kronecker(factors)
    return product if weight == 1.0 else Weighted(np.array([weight]), product)


def _stored_factor(arrays: dict[str, AnyArray], name: str, size: int) -> Matrix:
    held = arrays.get(name)
    if held is not None and held.dtype.kind == "U" and held.ndim == 0 and str(held) in _NAMED:
        made: Matrix = _NAMED[str(held)](size)
        return made
    dense = finite("workload", name, array(arrays, name, "f", 2))
    if dense.shape[1] != size or not len(dense):
        raise fail("workload", f"{name} of shape {dense.shape}", f"must have {size} columns", WRITE_AGAIN)
    return Dense(dense)
