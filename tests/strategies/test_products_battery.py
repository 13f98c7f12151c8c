"""Products of attributes against the definitions: closed forms by factors, floors, bounds, on random instances.

Oracles write the domain out: what a mechanism adds to the cells is a matrix, public totals are known by least squares,
and the least error of any strategy is the dense dual bound.
"""

import itertools
import math
from functools import reduce

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.bounds.products import proof_bound
from hdmm_bf.fit import loading
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.structured import fit_structured
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.baselines import classical, paper
from hdmm_bf.strategies.gaussian.folded_weights import folded_proof
from hdmm_bf.strategies.laplace import directions, unions

TIGHT = 1e-4


def taken_apart(W, G):
    W = workload.parse(W) if isinstance(W, str) else W
    G = policy.parse(G) if isinstance(G, str) else G
    product = as_product(Problem(W, G))
    assert product is not None
    return product


def dense_floors(problem, norm="L1"):
    """The dense search's own floors, by name, but for weights that are optimised and trees that cut across factors."""
    found = {}
    count = 2 + len(classical.branchings(max(problem.policy.domain.sizes)))  # weights are optimised after these
    plain = itertools.islice(classical.floors(problem, norm), count)
    for draft in itertools.chain(plain, paper.floors(problem, norm)):
        if "tree" not in draft.origin and "theta" not in draft.origin:
            found[draft.origin] = min(draft.error, found.get(draft.origin, math.inf))
    return found


def noise_at_cells(product, A):
    """Unit error of rows A over all cells, by the definition: largest L1 move, least squares given public totals."""
    edges, n = product.problem.policy.edges, A.shape[1]
    columns = np.hstack([A, np.zeros((len(A), 1))])
    loss = max(np.abs(columns[:, u] - columns[:, v]).sum() for u, v in edges.tolist())
    labels = product.problem.policy.components.labels
    open_ones = {labels[u] for u, v in edges.tolist() if v < 0}  # records come and go there: no public total
    own = [label for label in np.unique(labels[:n]) if label not in open_ones]
    C = (labels[:n] == np.array(own)[:, None]).astype(float)
    Y = np.linalg.inv(A.T @ A)
    if len(C):
        Y = Y - Y @ C.T @ np.linalg.inv(C @ Y @ C.T) @ C @ Y
    W = product.problem.workload.objective.dense()
    return loss**2 * np.trace(W @ Y @ W.T)


FLOORS = [
    ("all-range:4x5x2", "product:line:4,bounded:5,empty:2"),
    ("all-range:5x4", "threshold:5x4:1"),
    ("prefix:4x3", "sensitive:4x3:0,1"),
    ("marginals:3x4x2:2", "product:line:3,bounded:4,empty:2"),
    ("all-range:3x4", "unbounded:3x4"),
]


@pytest.mark.parametrize(("W", "G"), FLOORS)
def test_floors_by_factors_are_those_of_the_dense_search(W, G):
    product = taken_apart(W, G)
    found = {draft.name: draft.error for draft in directions.floors(product, directions.Candidates(product))}
    written = dense_floors(product.problem)
    shared = set(found) & set(written)
    single = sum(len(edges) > 0 for edges in product.edges) == 1
    assert single or {"identity", "wavelet (Privelet)", "identity on edges"} <= shared
    for name in shared - {directions.GRID}:
        assert found[name] == pytest.approx(written[name], rel=1e-8), name
    if directions.GRID in shared:  # here every direction has a scale of its own, there all have the largest
        assert found[directions.GRID] <= written[directions.GRID] * (1 + 1e-8)
    kron = reduce(np.kron, [classical.haar(n) for n in product.sizes])
    if "wavelet (Privelet)" in found:
        assert found["wavelet (Privelet)"] == pytest.approx(noise_at_cells(product, kron), rel=1e-8)


FACTORS = ("identity", "total", "ranges", "prefixes", "dense")
POLICIES = ("line", "bounded", "cycle", "star", "empty", "threshold", "parts")


def random_factor(rng, n):
    kind = FACTORS[rng.integers(len(FACTORS))]
    made = {
        "identity": lambda: workload.identity(n),
        "total": lambda: workload.from_matrix(np.ones((1, n))),
        "ranges": lambda: workload.all_range(n),
        "prefixes": lambda: workload.prefix(n),
        "dense": lambda: workload.from_matrix(rng.integers(-2, 3, size=(n + 1, n)).astype(float)),
    }
    return made[kind]()


def random_policy(rng, n):
    kind = POLICIES[rng.integers(len(POLICIES))]
    made = {
        "line": lambda: policy.line(n),
        "bounded": lambda: policy.bounded(n),
        "cycle": lambda: policy.cycle(n),
        "star": lambda: policy.star_tree(n),
        "empty": lambda: policy.empty(n),
        "threshold": lambda: policy.threshold(n, 2),
        "parts": lambda: policy.from_edges([0], [1], n),
    }
    return made[kind]()


def random_product(seed, most, *, star=False):
    """A random product of 2 to 4 attributes, with one at least that has edges, and a union of 1 to 3 products.

    With a star, the presence of a record is hidden through one attribute, the only one that may lead to BOTTOM.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 6, size=int(rng.integers(2, 5)))
    while math.prod(sizes) > most:
        sizes = sizes[:-1] if len(sizes) > 2 else np.maximum(sizes - 1, 3)
    own = [random_policy(rng, int(n)) for n in sizes]
    own[0] = policy.line(int(sizes[0])) if all(p.num_edges == 0 for p in own) else own[0]
    if star:
        k = int(rng.integers(len(own)))
        own[k] = policy.unbounded(int(sizes[k]))
    terms = [
        workload.weighted(workload.product(*(random_factor(rng, int(n)) for n in sizes)), float(rng.integers(1, 4)))
        for _ in range(rng.integers(1, 4))
    ]
    return taken_apart(terms[0] if len(terms) == 1 else workload.union(*terms), policy.product(*own))


def check_random(seed, tmp_path, *, most, steps, star=False):
    product = random_product(seed, most, star=star)
    problem = product.problem
    tight = bf.bound(problem.workload, problem.policy, gap=TIGHT)
    for noise in ("gaussian", "laplace"):
        made = fit_structured(product, FitOptions(noise=noise, max_steps=steps, callback=lambda _: None))
        assert made.matrix_bound <= tight.lower * (1 + 2 * TIGHT) + 1e-9
        assert made.unit_error >= tight.lower * (1 - 1e-6)
        if made.family == "marginals":
            assert made.unit_error <= made.bounds.lower * (1 + 1e-6)
        elif tight.lower > 0:
            assert made.bounds.lower > 0 or noise == "gaussian"
            known = dense_floors(problem, "L1" if noise == "laplace" else "L2")
            shared = known.keys() & made.reached.keys()
            assert noise == "laplace" or shared >= {"identity", "wavelet (Privelet)", "identity on edges"}
            for name in shared:
                assert made.reached[name] <= known[name] * (1 + 1e-7), name
            if noise == "laplace":  # strategies written out, and their bound, have nothing to do with factors
                assert made.bounds.lower <= min(known.values()) * (1 + 1e-9)
                assert tight.laplace <= made.unit_error * (1 + 1e-9)
            bits = [b for block in getattr(made.strategy, "blocks", ()) for b in block.bits if b]
            grid = 1 + 4 * 2.0 ** -min(
                bits, default=12
            )  # 12 places where three factors are no whole numbers, 9 of four
            assert made.unit_error <= min(made.reached.values()) * grid
            assert made.unit_error <= min(known[name] for name in shared) * grid
            assert made.family in made.reached
            if noise == "laplace" and unions.is_closed(product):
                assert made.unit_error <= unions.first(product).error * grid
        loaded = bf.load(made.save(tmp_path / f"{noise}.bf"))
        assert loading.check(tmp_path / f"{noise}.bf")[1] == []
        assert loaded.unit_error == made.unit_error
        x = np.random.default_rng(seed).integers(0, 9, problem.policy.num_cells)
        budget = {"epsilon": 1.0} if noise == "laplace" else {"rho": 0.5}
        assert np.all(np.isfinite(bf.release(loaded, x, **budget).answers))


@pytest.mark.parametrize("seed", range(8))
def test_random_products_are_no_worse_than_their_floors_and_bounded_from_below(seed, tmp_path):
    """Quotes fit_laplace and fit_beside_floors: never worse than any of the mechanisms in `reached`."""
    check_random(seed, tmp_path, most=40, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_more_random_products(seed, tmp_path):
    check_random(seed, tmp_path, most=256, steps=4)


@pytest.mark.parametrize("seed", [300, 301, *(pytest.param(k, marks=pytest.mark.slow) for k in range(302, 320))])
def test_random_products_that_hide_the_presence_of_records(seed, tmp_path):
    check_random(seed, tmp_path, most=40, steps=1, star=True)


def check_random_sum(seed, tmp_path, *, most, steps, star=False):
    """A sum of tree norms: no worse than noise on every edge, not below half the bound, and as a release has it."""
    problem = random_product(seed, most, star=star).problem
    tight = bf.bound(problem.workload, problem.policy, gap=TIGHT)
    made = bf.fit(problem.workload, problem.policy, noise="norm", family="flows", max_steps=steps)
    assert made.unit_error <= dense_floors(problem)["identity on edges"] * (1 + 1e-6)
    assert made.unit_error >= tight.lower / 2 * (1 - 1e-6)
    assert (made.matrix_bound or 0.0) <= tight.lower * (1 + 2 * TIGHT) + 1e-9
    loaded = bf.load(made.save(tmp_path / "sum.bf"))
    assert loading.check(tmp_path / "sum.bf")[1] == []
    x = np.random.default_rng(seed).integers(0, 9, problem.policy.num_cells)
    out = bf.release(loaded, x, epsilon=1.0)
    public = out.stddev == 0
    exact = problem.workload.matrix.mv(x.astype(float))
    np.testing.assert_allclose(out.answers[public], exact[public], rtol=1e-12, atol=1e-9)
    far = np.abs(out.answers - exact)[~public] / out.stddev[~public]
    assert far.max(initial=0.0) < 30  # the tails of sums of Laplace-like noise: exp(-30 sqrt 2)
    draws = loaded.recovery.error_draws(problem.workload, out.plan, 400)
    squares = (draws**2).sum(axis=0)
    assert abs(squares.mean() - out.plan.expected_error) <= 6 * squares.std() / 20 + 1e-9


@pytest.mark.parametrize("seed", range(400, 408))
def test_sums_of_tree_norms_on_random_products(seed, tmp_path):
    check_random_sum(seed, tmp_path, most=40, steps=3)


@pytest.mark.parametrize("seed", [506, *(pytest.param(k, marks=pytest.mark.slow) for k in range(500, 600) if k != 506)])
def test_sums_of_tree_norms_on_more_random_products(seed, tmp_path):
    check_random_sum(seed, tmp_path, most=256, steps=12, star=seed % 5 == 0)


# ---------------------------------------------------------------- the bound in folded parts


BOUNDED = [
    ("all-range:6x6x6", "product:line:6,line:6,line:6", 0.99),
    ("all-range:6x5x2", "product:line:6,bounded:5,empty:2", 0.99),
    ("prefix:7x5", "threshold:7x5:1", 0.97),
    (
        workload.union(workload.all_range((5, 4)), workload.product(workload.identity(5), workload.all_range(4))),
        "product:line:5,bounded:4",
        0.98,
    ),
]


@pytest.mark.parametrize(("W", "G", "share"), BOUNDED)
def test_the_bound_in_folded_parts_is_near_the_best_and_below_it(W, G, share):
    product = taken_apart(W, G)
    proof = folded_proof(product)
    found = proof_bound(product, proof)
    tight = bf.bound(product.problem.workload, product.problem.policy, gap=TIGHT).lower
    assert share * tight <= found <= tight * (1 + 2 * TIGHT)


def test_the_bound_in_folded_parts_is_the_dual_bound_of_its_weights():
    """Quotes folded_bound: f^2 over the sum of the weights, with f the nuclear norm of W P diag(sqrt mu)."""
    product = taken_apart("all-range:4x3x2", "product:line:4,bounded:3,empty:2")
    proof = folded_proof(product)
    (mu0, mu1, _), d, w = proof["edges"], proof["cells"], proof["types"]
    weights = np.concatenate(
        [
            w[0] * reduce(np.multiply.outer, [mu0, d[1], d[2]]).ravel(),
            w[1] * reduce(np.multiply.outer, [d[0], mu1, d[2]]).ravel(),
        ]
    )
    P0, P1 = (policy.parse(spec) for spec in ("line:4", "bounded:3"))
    columns = [incidence_of(P0.edges, 4), incidence_of(P1.edges, 3)]
    P = np.hstack([np.kron(columns[0], np.eye(6)), np.kron(np.kron(np.eye(4), columns[1]), np.eye(2))])
    W = product.problem.workload.matrix.dense()
    nuclear = np.linalg.norm(W @ P * np.sqrt(weights / weights.sum()), "nuc")
    assert proof_bound(product, proof) == pytest.approx(nuclear**2, rel=1e-6)
    assert proof_bound(product, proof) <= nuclear**2


def incidence_of(edges, n):
    P = np.zeros((n, len(edges)))
    for k, (u, v) in enumerate(edges.tolist()):
        P[u, k], P[v, k] = 1, -1
    return P


def test_weights_that_are_not_symmetric_prove_nothing_in_folded_parts():
    product = taken_apart("all-range:4x3x2", "product:line:4,bounded:3,empty:2")
    proof = folded_proof(product)
    crooked = {**proof, "cells": [np.arange(1.0, 5.0), *proof["cells"][1:]]}
    assert proof_bound(product, crooked) is None


@pytest.mark.slow
def test_twenty_cubed_is_proven_within_a_twentieth():
    made = bf.fit("all-range:20x20x20", "product:line:20,line:20,line:20")
    assert made.unit_error <= 1.05 * made.bounds.lower


@pytest.mark.slow
def test_ages_by_region_are_below_every_floor_by_a_half():
    made = bf.fit("all-range:100x50x2", "product:line:100,bounded:50,empty:2", noise="laplace")
    assert made.unit_error <= 1.81e10
    assert made.bounds.lower >= 1.12e9
    assert made.unit_error < 0.5 * made.reached["identity"]
