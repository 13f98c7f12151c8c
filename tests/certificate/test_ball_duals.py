"""Bounds on all edges of a distance threshold above 1, by factors: against nuclear norms, and forgeries."""

import itertools
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import workload
from hdmm_bf._checks import InputError
from hdmm_bf.bounds.products import product_bound, proof_bound
from hdmm_bf.certificate.duals import proven_bounds
from hdmm_bf.problem.product import as_product
from hdmm_bf.strategies.gaussian.ball_weights import ball_proof

TWO = workload.union(workload.all_range("5x4"), workload.weighted(workload.prefix("5x4"), 2.0))
TABLES = workload.union(workload.parse("marginals:4x3x2:2"), workload.weighted(workload.parse("prefix:4x3x2"), 3.0))
SMALL = [
    ("all-range:5x4", "threshold:5x4:2"),
    ("prefix:5x4", "threshold:5x4:3"),
    ("identity:4x1x3", "threshold:4x1x3:2"),
    ("marginals:3x4x2:2", "threshold:3x4x2:2"),
    ("all-range:2x2", "threshold:2x2:9"),
    (TWO, "threshold:5x4:2"),
    (TABLES, "threshold:4x3x2:3"),
]


def taken_apart(queries, graph):
    product = as_product(bf.problem(queries, graph), balls=True)
    assert product is not None
    return product


def ways(product):
    """How far an edge can go along every attribute."""
    reach = [range(min(n, product.threshold + 1)) for n in product.sizes]
    return [way for way in itertools.product(*reach) if 0 < sum(way) <= product.threshold]


def random_proof(product, seed, *, symmetric):
    rng = np.random.default_rng(seed)
    pairs = [rng.uniform(0.1, 1, n - s) for way in ways(product) for n, s in zip(product.sizes, way, strict=True)]
    pairs = [b + b[::-1] for b in pairs] if symmetric else pairs
    return {"kind": "balls", "scales": rng.uniform(0.1, 1, len(ways(product))), "pairs": pairs}


def nuclear(product, proof):
    """||W P diag(sqrt mu)||_*^2 over the sum of mu, for the weight of every single edge of the policy."""
    edges, d = product.problem.policy.edges, len(product.sizes)
    u, v = (np.array(np.unravel_index(ends, product.sizes)).T for ends in edges.T)
    place = {way: k for k, way in enumerate(ways(product))}
    mu = []
    for a, b in zip(u, v, strict=True):
        k, low = place[tuple(np.abs(a - b).tolist())], np.minimum(a, b)
        mu.append(proof["scales"][k] * math.prod(proof["pairs"][k * d + i][low[i]] for i in range(d)))
    P = np.eye(math.prod(product.sizes))
    columns = (P[edges[:, 0]] - P[edges[:, 1]]) * np.sqrt(mu)[:, None]
    W = product.problem.workload.objective.dense()
    return np.linalg.norm(W @ columns.T, "nuc") ** 2 / sum(mu)


@pytest.mark.parametrize(("queries", "graph"), SMALL)
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_bound_is_the_nuclear_norm_of_the_weights_of_all_edges(queries, graph, symmetric):
    """Quotes proven_bounds: no strategy has a smaller unit error than `lower`."""
    product = taken_apart(queries, graph)
    proof = random_proof(product, 0, symmetric=symmetric)
    true, own = nuclear(product, proof), proven_bounds(product, proof)
    lower = max(true, own.svd)
    assert own.lower <= lower * (1 + 1e-12)
    assert own.lower == pytest.approx(lower, rel=1e-8)
    searched = proof_bound(product, proof)
    assert searched is None or searched == pytest.approx(true, rel=1e-8)
    assert searched is not None or not symmetric  # its parts take even and odd vectors to be apart


@pytest.mark.parametrize(("queries", "graph"), SMALL)
def test_equal_weights_on_all_edges_give_the_svd_bound(queries, graph):
    product = taken_apart(queries, graph)
    svd = bf.bounds.svd_bound(product.problem)
    assert proven_bounds(product, None).svd == pytest.approx(svd, rel=1e-8)
    assert product_bound(product).svd == pytest.approx(svd, rel=1e-8)


@pytest.mark.parametrize(
    ("queries", "graph", "share"),
    [
        ("all-range:6x5", "threshold:6x5:2", 0.999),
        ("all-range:12x12", "threshold:12x12:3", 0.998),
        ("all-range:5x4x3", "threshold:5x4x3:2", 0.998),
        ("identity:9x8", "threshold:9x8:3", 0.998),
        ("prefix:12x12", "threshold:12x12:2", 0.99),
        ("marginals:4x4x4:2", "threshold:4x4x4:2", 0.998),
        ("prefix:30x30", "threshold:30x30:2", 0.98),
    ],
)
def test_searched_weights_come_near_the_dense_bound_and_never_above(queries, graph, share):
    product = taken_apart(queries, graph)
    proof = ball_proof(product)
    dense = bf.bound(queries, graph, gap=1e-3)
    own = proven_bounds(product, proof)
    assert share * dense.lower <= own.lower <= dense.lower * (1 + dense.gap) * (1 + 1e-9)
    assert own.lower == pytest.approx(proof_bound(product, proof), rel=1e-9)


def test_where_all_is_public_there_is_nothing_to_prove():
    product = taken_apart("marginals:3x4:0", "threshold:3x4:2")
    assert ball_proof(product) is None
    assert proven_bounds(product, None)[:2] == (0.0, 0.0)


def test_parts_that_are_too_large_are_not_written_out():
    product = taken_apart("all-range:80x80", "threshold:80x80:2")
    assert ball_proof(product) is None
    assert product_bound(product).svd is None
    assert proven_bounds(product, None)[:2] == (None, None)


def forged(proof):
    """Ways in which the arrays can be wrong."""
    scales, pairs = proof["scales"], proof["pairs"]
    for wrong in (-1e-3, math.nan, math.inf):
        yield {**proof, "scales": np.append(wrong, scales[1:])}
        yield {**proof, "pairs": [np.append(wrong, pairs[0][1:]), *pairs[1:]]}
    yield {**proof, "scales": scales[:-1]}
    yield {**proof, "scales": np.zeros_like(scales)}
    yield {**proof, "scales": 1j * scales}
    yield {**proof, "pairs": pairs[:-1]}
    yield {**proof, "pairs": [*pairs, pairs[-1]]}
    yield {**proof, "pairs": [pairs[0][:-1], *pairs[1:]]}
    yield {**proof, "pairs": [np.zeros_like(b) for b in pairs]}
    yield {**proof, "pairs": pairs[0]}
    yield {key: value for key, value in proof.items() if key != "scales"}
    yield {key: value for key, value in proof.items() if key != "pairs"}


def test_forged_weights_are_refused():
    """Quotes proven_bounds: weights that are negative, not finite or of another number than the edges are refused."""
    product = taken_apart(*SMALL[0])
    for wrong in forged(random_proof(product, 1, symmetric=True)):
        with pytest.raises(InputError, match="certificate"):
            proven_bounds(product, wrong)


def test_a_product_policy_has_no_balls():
    proof = random_proof(taken_apart("all-range:5x4", "threshold:5x4:2"), 0, symmetric=True)
    straight = taken_apart("all-range:5x4", "threshold:5x4:1")
    with pytest.raises(InputError, match="distance threshold above 1"):
        proven_bounds(straight, proof)
    assert proof_bound(straight, proof) is None


@pytest.mark.parametrize("seed", range(20))
def test_other_weights_prove_what_they_prove(seed):
    """Quotes proven_bounds: all others prove what they prove, never more than the best."""
    product, rng = taken_apart("all-range:4x4", "threshold:4x4:2"), np.random.default_rng(seed)
    proof = random_proof(product, seed, symmetric=False)
    crooked = {**proof, "pairs": [rng.exponential(size=b.size) ** 4 for b in proof["pairs"]]}
    tight = bf.bound(product.problem.workload, product.problem.policy, gap=1e-6).lower
    assert proven_bounds(product, crooked).lower <= tight * (1 + 1e-5)
