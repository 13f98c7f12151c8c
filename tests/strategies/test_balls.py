"""Searches for distance thresholds over several attributes, against the dense optimum and the definitions."""

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.bounds.products import product_bound
from hdmm_bf.problem.product import as_product
from hdmm_bf.strategies.gaussian import bases, fit_product
from hdmm_bf.strategies.gaussian.proofs import best_proof
from hdmm_bf.strategies.laplace import balls, directions
from hdmm_bf.strategies.laplace.structured import choose_laplace, fit_laplace

SMALL = [("all-range:6x5", "threshold:6x5:2"), ("all-range:5x4x3", "threshold:5x4x3:2")]


def taken_apart(queries, graph):
    product = as_product(bf.problem(queries, graph), balls=True)
    assert product is not None
    return product


@pytest.fixture(scope="module")
def optimum():
    return {pair: bf.fit(*pair, gap=1e-3) for pair in SMALL}


@pytest.mark.parametrize(
    ("queries", "graph"), [*SMALL, ("prefix:5x5", "threshold:5x5:3"), ("identity:4x1x3", "threshold:4x1x3:2")]
)
def test_distances_and_slopes_are_those_of_the_edges_written_out(queries, graph):
    """d_e = p_e^T S diag(M) S^T p_e, its adjoint, and the slope of the loss by finite differences."""
    rng = np.random.default_rng(0)
    product = taken_apart(queries, graph)
    family = bases.build(product)
    flat = bases._start(family, product) + 0.05 * rng.normal(size=family.num_free)
    family.set(flat)
    M = np.where(family.public, 0.0, rng.uniform(0.5, 2.0, family.shape))
    M = (M + M.T) / 2 if family.same else M
    S = np.ones((1, 1))
    for a in family.attributes:
        S = np.kron(S, a.S)
    u, v = product.problem.policy.edges.T
    written = ((S[u] - S[v]) ** 2) @ M.ravel()
    d = np.concatenate([part.ravel() for part in family.moves.distances(M)])
    np.testing.assert_allclose(d, written, rtol=1e-9)
    mu = rng.uniform(size=d.size)
    assert float((family.pull(family.split(mu)) * M).sum()) == pytest.approx(float(mu @ d), rel=1e-9)
    both = np.concatenate([flat, 0.3 * rng.normal(size=M.size)])
    way, step = rng.normal(size=both.size), 1e-6
    _, slope = family.loss(both, 8.0)
    seen = (family.loss(both + step * way, 8.0)[0] - family.loss(both - step * way, 8.0)[0]) / (2 * step)
    assert seen == pytest.approx(float(slope @ way), rel=1e-5)


@pytest.mark.parametrize("pair", SMALL)
def test_bases_come_within_three_percent_of_the_dense_optimum(pair, optimum):
    found = fit_product(taken_apart(*pair))
    assert found.family == "bases"
    assert optimum[pair].bounds.lower * (1 - 1e-9) <= found.error <= 1.03 * optimum[pair].unit_error


@pytest.mark.parametrize("pair", SMALL)
def test_the_bound_by_factors_is_never_above_the_dense_one(pair, optimum):
    product = taken_apart(*pair)
    bound, proof = best_proof(product)
    assert bound is not None
    assert 0.998 * optimum[pair].bounds.lower < bound <= optimum[pair].unit_error
    bounds = product_bound(product, proof)
    assert bounds.lower == bound
    assert bounds.svd == pytest.approx(optimum[pair].bounds.svd, rel=1e-8)


def loss_written_out(product, sketch):
    """The largest L1 move of a sketch's rows over all edges of the policy."""
    A = np.ones((1, 1))
    for factor in sketch.factors:
        A = np.kron(A, factor)
    weights = np.sqrt(np.broadcast_to(sketch.precisions, [len(f) for f in sketch.factors]).ravel())
    u, v = product.problem.policy.edges.T
    noisy = np.isfinite(weights)
    return float(np.abs(weights[noisy, None] * (A[noisy][:, u] - A[noisy][:, v])).sum(axis=0).max())


@pytest.mark.parametrize("pair", SMALL)
def test_every_floor_has_loss_one_at_most_and_the_best_is_taken(pair):
    """Quotes fit_laplace: never worse than any of the paper's and the classical mechanisms in `reached`."""
    product = taken_apart(*pair)
    assert choose_laplace(product) == directions.NAME
    floors = next(balls.drafts(product, seed=0))
    for draft in floors:
        if len(draft.sketches) == 1:  # rows over the cells
            loss = loss_written_out(product, draft.sketches[0])
            assert loss == pytest.approx(1.0, rel=1e-9), draft.name
    found = fit_laplace(product, seed=0, max_steps=3)
    assert found.error <= min(draft.error for draft in floors) * (1 + 1e-12)
    assert found.error == min(found.reached.values())
    assert found.bound is not None
    assert found.error > found.bound


def test_identity_on_the_cells_has_the_error_of_the_dense_floor():
    problem = bf.problem("all-range:4x3", "threshold:4x3:2")
    floors = next(balls.drafts(as_product(problem, balls=True), seed=0))
    identity = next(draft for draft in floors if draft.name == "identity")
    W = problem.workload.matrix.dense()
    sums = W.sum(axis=1)
    assert identity.error == pytest.approx(4 * float((W**2).sum() - (sums**2).sum() / 12))


def test_rows_with_many_different_entries_are_bounded_step_by_step():
    rng = np.random.default_rng(1)
    factors = [rng.normal(size=(200, 7)), rng.normal(size=(200, 6))]
    whole = np.kron(*factors).reshape(40000, 7, 6)
    for offset in ((1, 2), (2, -1), (0, 3)):
        far = np.roll(whole, (-offset[0], -offset[1]), axis=(1, 2))
        rows, columns = slice(0, 7 - offset[0]), slice(max(0, -offset[1]), 6 - max(0, offset[1]))
        truth = float(np.abs(whole - far)[:, rows, columns].sum(axis=0).max())
        assert truth * (1 - 1e-12) <= balls._loss(factors, offset) < 2 * truth


def test_families_for_one_attribute_at_a_time_are_refused():
    product = taken_apart(*SMALL[0])
    for family in ("kronecker", "union"):
        with pytest.raises(ValueError, match="edges that change several attributes at once"):
            fit_laplace(product, seed=0, family=family)
    for family in ("kronecker", "sectors", "marginals"):
        with pytest.raises(ValueError, match="does not fit this workload and policy"):
            fit_product(product, family=family)
