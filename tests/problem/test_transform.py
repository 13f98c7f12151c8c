"""Grounding, P_G, W_G and x_G against the definitions, on named and on random policies."""

import numpy as np
import pytest

from hdmm_bf import policy, workload
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.transform import Problem, ground, to_edges
from tests.support import instances, oracles


def problem(p, W=None):
    return Problem(workload.identity(p.domain) if W is None else workload.from_matrix(W), p)


def check_grounding(p):
    rng = np.random.default_rng(p.num_edges)
    x = rng.integers(-5, 2**60, size=p.num_cells)
    g = ground(p)
    again = g.expand(x[g.kept], g.totals(x))
    assert again.dtype == np.int64
    assert again.tolist() == x.tolist()
    W = instances.real_matrices(p.num_cells, seed=p.num_cells)
    made, y = problem(p, W), rng.normal(size=p.num_cells)
    expected = W @ y
    np.testing.assert_allclose(made.W_D() @ y[g.kept] + made.constants(g.totals(y)), expected, atol=1e-12)
    np.testing.assert_allclose(made.answer(y[g.kept]) + made.constants(g.totals(y)), expected, atol=1e-12)
    np.testing.assert_allclose(made.gram, made.W_D().T @ made.W_D(), atol=1e-10)


def check_transform(p):
    W = instances.real_matrices(p.num_cells, seed=1)
    made = problem(p, W)
    P = made.P.dense()
    k = made.grounding.kept.size
    assert P.shape == (k, p.num_edges)
    assert np.linalg.matrix_rank(P) == k if k else P.size == 0
    assert p.is_forest == (P.shape[0] == P.shape[1])
    np.testing.assert_allclose(made.W_G(), made.W_D() @ P, atol=1e-12)
    for column, (u, v) in zip(made.W_G().T, p.edges, strict=True):
        difference = W[:, u] - (0 if v == BOTTOM else W[:, v])
        assert np.allclose(column, difference) or np.allclose(column, -difference)
    x = np.random.default_rng(2).integers(0, 9, size=p.num_cells)
    np.testing.assert_allclose(P @ to_edges(made, x), x[made.grounding.kept], atol=1e-9)


@pytest.mark.parametrize("spec", instances.SMALL_SPECS)
def test_named_policies_ground_and_transform(spec):
    check_grounding(policy.parse(spec))
    check_transform(policy.parse(spec))


@instances.given_policies()
def test_a_histogram_is_its_kept_cells_and_the_public_totals(p):
    """Quotes ground: x = expand(x[kept], totals(x)) for every vector x over the cells, exactly for integers.

    Quotes Problem: W x = answer(x_kept) + constants(totals(x)) for any real W and any x.
    """
    check_grounding(p)


@instances.given_policies()
def test_the_incidence_matrix_has_full_row_rank_and_is_square_on_forests(p):
    """Quotes Problem: P has full row rank; it is square exactly when the policy graph is a forest."""
    check_transform(p)


@instances.given_policies(forest=True, most_cells=9)
def test_edge_vectors_of_forests_are_the_exact_integer_solution(p):
    made = problem(p)
    x = np.random.default_rng(p.num_edges).integers(-(2**55), 2**55, size=p.num_cells)
    flow = to_edges(made, x)
    assert flow.dtype == np.int64
    P = made.P.sparse().toarray().astype(object)
    assert (P @ flow.astype(object)).tolist() == x[made.grounding.kept].tolist()


@instances.given_policies()
def test_edge_vectors_off_forests_are_the_moore_penrose_solution(p):
    made = problem(p)
    x = np.random.default_rng(0).normal(size=p.num_cells)
    expected = np.linalg.pinv(made.P.dense()) @ x[made.grounding.kept]
    np.testing.assert_allclose(to_edges(made, x), expected, atol=1e-9)


def test_long_trees_of_every_shape_give_exact_flows():
    for p in (policy.line(3000), policy.star_tree(3000), policy.h_theta(3000, 7), instances.random_tree(3000, 5)):
        made = problem(p)
        x = np.random.default_rng(1).integers(0, 1000, size=p.num_cells)
        assert np.array_equal(made.P.mv(to_edges(made, x)), x[made.grounding.kept])


def test_the_gram_of_an_implicit_workload_is_grounded_without_its_rows():
    made = Problem(workload.all_range(40), policy.bounded(40))
    W = oracles.all_range_rows((40,))
    W_D = W[:, :39] - W[:, [39]]
    np.testing.assert_allclose(made.gram, W_D.T @ W_D)
    np.testing.assert_allclose(made.W_D(), W_D)
