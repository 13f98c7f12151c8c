"""Pairs of edges by factors, against the same weights and pairs written out edge by edge."""

import itertools

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate.duals import metric as metrics
from hdmm_bf.certificate.duals import proven_bounds
from hdmm_bf.certificate.duals.metric import Pairing, metric
from hdmm_bf.certificate.duals.pairs import paired_bound
from hdmm_bf.certificate.duals.weights import Moves, proof_weights
from hdmm_bf.fit.certified import certificate
from hdmm_bf.fit.pairing import paired_proof
from hdmm_bf.problem.product import product_view
from hdmm_bf.strategies.gaussian.choose import short_proof
from tests.support.pairs import paired

CASES = [
    ("marginals:4x3x2:2", "product:line:4,bounded:3,empty:2"),  # parts, two attributes by their contrasts
    ("marginals:4x4x2:2", "product:bounded:4,bounded:4,empty:2"),  # nothing written out
    ("marginals:3x3x2:2", "unbounded:3x3x2"),  # edges to BOTTOM
    ("all-range:5x4", "threshold:5x4:1"),  # parts, even and odd
    ("all-range:4x3x3", "product:line:4,line:3,line:3"),
    ("all-range:3x5x2", "product:line:3,bounded:5,line:2"),  # the last attribute is contracted first
    ("all-range:5x4", "unbounded:5x4"),  # one product
    ("all-range:6x3", "product:line:6,empty:3"),
    ("prefix:5x4", "product:line:5,unbounded:4"),
    ("all-range:6x4", "product:threshold:6:3,cycle:4"),
    ("identity:5x4", "product:bounded:5,bounded:4"),
]


def written(weights):
    """Every edge of every summand as (number of summand, places in its forms), with its vector and its weight."""
    vectors, mu, names = [], [], []
    for s, summand in enumerate(weights):
        rows = []
        for form in summand.forms:
            eye = np.eye(form.n if isinstance(form, Moves) else form.weights.size)
            rows.append([eye[u] - eye[v] for u, v in form.ends] if isinstance(form, Moves) else list(eye))
        for place in itertools.product(*(range(len(r)) for r in rows)):
            p = np.ones(1)
            weight = summand.scale
            for k, j in enumerate(place):
                p = np.kron(p, rows[k][j])
                weight *= summand.forms[k].weights[j]
            vectors.append(p)
            mu.append(weight)
            names.append((s, place))
    return np.array(vectors).T, np.array(mu), {name: at for at, name in enumerate(names)}


def brute(problem, P, mu, names, weights, pairings, C=None):
    """The bound, every pair of every summand written out for all values of the other attributes."""
    pairs, shares = [], []
    for s, pairing in enumerate(pairings):
        if pairing is None:
            continue
        k, forms = pairing.along, weights[s].forms
        others = [range(1) if i == k else range(f.weights.size) for i, f in enumerate(forms)]
        for ends, share in zip(pairing.partners.astype(int).tolist(), pairing.shares.tolist(), strict=True):
            for rest in itertools.product(*others):
                pairs.append([names[s, (*rest[:k], end, *rest[k + 1 :])] for end in ends])
                times = [1.0 if i == k else forms[i].weights[j] for i, j in enumerate(rest)]
                shares.append(share * weights[s].scale * np.prod(times))
    return paired(problem.workload.objective.dense() @ P, mu, pairs, shares, C)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]} {case[1]}")
def case(request):
    problem = bf.problem(*request.param)
    product = product_view(problem)
    proof = paired_proof(product, short_proof(product))
    weights = proof_weights(product, proof)
    return problem, product, proof, weights


def pairings_of(proof, weights):
    return [
        None if k < 0 else Pairing(int(k), np.asarray(e), np.asarray(t))
        for k, e, t, _ in zip(proof["along"], proof["partners"], proof["shares"], weights, strict=True)
    ]


def test_bounds_by_factors_are_those_edge_by_edge(case):
    problem, product, proof, weights = case
    expected = brute(problem, *written(weights), weights, pairings_of(proof, weights))
    assert paired_bound(product, proof) == pytest.approx(expected, rel=2e-5)
    assert paired_bound(product, proof) <= expected * (1 + 1e-9)


def test_any_pairs_along_any_attribute_are_evaluated(case):
    problem, product, _, weights = case
    rng = np.random.default_rng(len(weights))
    found = metric(product, weights)
    for _ in range(4):
        pairings = [random_pairing(rng, summand) for summand in weights]
        expected = brute(problem, *written(weights), weights, pairings)
        assert found.bound(pairings) == pytest.approx(expected, rel=2e-5)


def random_pairing(rng, summand):
    along = [k for k, form in enumerate(summand.forms) if form.weights.size > 1]
    if not along or rng.random() < 0.2:
        return None
    k = int(rng.choice(along))
    mu = summand.forms[k].weights
    order = rng.permutation(mu.size)
    ends = np.concatenate([order[: 2 * (mu.size // 2)].reshape(-1, 2), rng.permutation(mu.size)[None, :2]])
    shares = rng.random(len(ends)) * mu[ends].min(axis=1) / 2
    return Pairing(k, ends, shares)


def test_pairs_prove_more_than_the_weights_alone(case):
    _, product, proof, _ = case
    found = proven_bounds(product, proof)
    assert found.paired > 1.05 * found.lower
    assert found.paired <= 1.58 * found.lower


def test_no_laplace_strategy_is_below(case):
    """Quotes paired_bound: no strategy of L1 sensitivity 1 has a smaller unit error."""
    problem, product, proof, _ = case
    for family in ("directions", None):
        made = bf.fit(problem.workload, problem.policy, noise="laplace", max_steps=2, family=family)
        assert made.unit_error >= paired_bound(product, proof)


def test_weights_of_any_size_prove_nothing_above_a_strategy(case):
    """Weights over 300 orders of magnitude: what cancels is never taken for a proof."""
    problem, product, proof, _ = case
    known = bf.fit(problem.workload, problem.policy, noise="laplace", family="directions", max_steps=1).unit_error
    rng = np.random.default_rng(5)

    def uneven(values):
        return np.asarray(values) * 10.0 ** rng.choice([0, -4, -9, -14, -30, -300], np.shape(values))

    given = {key for key in ("weights", "cells", "edges", "types") if key in proof}
    for _ in range(12):
        forged = {k: [uneven(v) for v in proof[k]] if isinstance(proof[k], list) else uneven(proof[k]) for k in given}
        weights = proof_weights(product, {**proof, **forged})
        found = metric(product, weights)
        pairings = [random_pairing(rng, summand) for summand in weights]
        assert 0 <= found.bound(pairings) <= known
        assert 0 <= found.bound([None] * len(weights)) <= known


@pytest.mark.parametrize("spec", ["5x4", "4x3x3"])
def test_diagonals_in_a_product_of_bases_prove_no_more(monkeypatch, spec):
    """X L X <= V holds for the X that is used beyond the largest matrices, and its bound is that edge by edge."""
    lines = ",".join(f"line:{n}" for n in spec.split("x"))
    problem = bf.problem(f"all-range:{spec}", f"product:{lines}")
    product = product_view(problem)
    proof = paired_proof(product, short_proof(product))
    weights = proof_weights(product, proof)
    exact = metric(product, weights)
    monkeypatch.setattr(metrics, "_LARGEST", 1)
    large = metric(product, weights)
    assert (type(exact).__name__, type(large).__name__) == ("_Parts", "_Diagonal")
    U = np.ones((1, 1))
    for basis in large.bases:
        U = np.kron(U, basis)
    X = (U * large.h.ravel()) @ U.T
    P, mu, names = written(weights)
    W = problem.workload.objective.dense()
    assert np.linalg.eigvalsh(W.T @ W - X @ ((P * mu) @ P.T) @ X).min() >= -1e-9 * np.trace(W.T @ W)
    pairings = pairings_of(proof, weights)
    assert large.bound(pairings) == pytest.approx(
        brute(problem, P, mu, names, weights, pairings, P.T @ X @ P), rel=1e-8
    )
    alone = [None] * len(weights)
    assert 0.6 * exact.bound(alone) < large.bound(alone) <= exact.bound(alone) * (1 + 1e-4)


def test_the_largest_grids_have_a_bound_for_laplace_noise():
    problem = bf.problem("all-range:60x50", "threshold:60x50:1")
    product = product_view(problem)
    proof = paired_proof(product, short_proof(product))
    found = proven_bounds(product, proof)
    assert found.paired > 1.3 * found.lower


def test_complete_policies_on_many_values_are_paired_by_their_ends():
    """Two million edges, none of which is written out over the values."""
    product = product_view(bf.problem("marginals:2000x700:1", "product:bounded:2000,bounded:700"))
    found = proven_bounds(product, paired_proof(product, short_proof(product)))
    assert found.paired == pytest.approx(1.25 * found.lower, rel=1e-3)


def test_what_does_not_fit_in_memory_is_not_begun(monkeypatch):
    product = product_view(bf.problem("all-range:6x5", "product:bounded:6,line:5"))
    weights = proof_weights(product, short_proof(product))
    assert metric(product, weights) is not None
    monkeypatch.setattr(metrics, "_MOST_ENTRIES", 20)
    assert metric(product, weights) is None


FORGED = {
    "lists of": {"partners": None},
    "attributes": {"along": np.array([7, 0])},
    "with a share each": {"partners": [np.array([[0, 9]]), np.array([[0, 1]])]},
    "two ends": {"partners": [np.array([[1, 1]]), np.array([[0, 1]])]},
    "finite shares": {"shares": [np.array([-0.1]), np.array([0.0])]},
    "take more": {"shares": [np.array([9.0]), np.array([0.0])]},
}


@pytest.mark.parametrize("message", FORGED)
def test_forged_pairs_are_refused(message):
    product = product_view(bf.problem("all-range:4x3", "threshold:4x3:1"))
    proof = short_proof(product)
    pairs = np.array([[0, 1]])
    fine = {"along": np.array([1, 0]), "partners": [pairs, pairs], "shares": [np.array([0.1]), np.array([0.1])]}
    assert paired_bound(product, {**proof, **fine}) > 0
    with pytest.raises(bf.InputError, match=message):
        paired_bound(product, {**proof, **fine, **FORGED[message]})


def test_pairs_prove_nothing_for_gaussian_noise():
    made = bf.fit("all-range:4x3", "threshold:4x3:1", family="bases")
    paired = paired_proof(product_view(made.problem), made.proof)
    assert "along" in paired
    with pytest.raises(bf.InputError, match="prove nothing: they are of Laplace noise"):
        certificate(made.strategy, made.problem, noise="gaussian", proof=paired)


def test_distance_thresholds_above_one_have_no_pairs_by_factors():
    product = product_view(bf.problem("all-range:6x6", "threshold:6x6:2"), balls=True)
    proof = short_proof(product)
    assert paired_proof(product, proof) is proof
