"""Laplace strategies by their factors: grids of edges, Kronecker products, unions, rows over the cells of a product."""

import itertools
import math
from functools import reduce

import jax
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._linalg import conditioning_gain, in_float64, trace_of_inverse
from hdmm_bf.objectives import PIdentity
from hdmm_bf.objectives import total as total_error
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import draft
from hdmm_bf.strategies.laplace import cells as cells_laplace
from hdmm_bf.strategies.laplace import grid as grids
from hdmm_bf.strategies.laplace import kronecker as products_laplace
from hdmm_bf.strategies.laplace import portfolio
from hdmm_bf.strategies.laplace import unions as unions_laplace

RNG = np.random.default_rng(11)


def problem(W, G):
    return Problem(workload.parse(W) if isinstance(W, str) else W, policy.parse(G) if isinstance(G, str) else G)


def take_apart(W, G):
    product = as_product(problem(W, G))
    assert product is not None
    return product


def total(n):
    return workload.from_matrix(np.ones((1, n)))


def dense(blocks):
    return np.vstack([reduce(np.kron, block.factors) for block in blocks])


def noisy(block):
    """Which rows of a block carry noise: those of public totals do not."""
    attribute, count = block.public
    parts = [np.arange(len(f)) >= (count if k == attribute else 0) for k, f in enumerate(block.factors)]
    return reduce(np.kron, parts).astype(bool)


def best(drafts, steps=None):
    """The best of the first drafts of a family, or of all."""
    return min(itertools.islice(drafts, steps), key=lambda draft: draft.error)


def moved(A, edges):
    """L1 sensitivity, by the definition, over an explicit list of edges."""
    ends = np.hstack([A, np.zeros((len(A), 1))])
    return max((np.abs(ends[:, u] - ends[:, v]).sum() for u, v in edges.tolist()), default=0.0)


# ---------------------------------------------------------------- grids


TREE = policy.product(policy.star_tree(3), policy.line(4))
TURNED = policy.product(policy.from_edges([3, 3, 2], [0, 1, 3], 4), policy.line(3))


@pytest.mark.parametrize(
    "G", ["threshold:4x5:1", "threshold:3x3x2:1", TREE, TURNED, "product:line:1,line:4"], ids=lambda g: str(g)
)
def test_a_grid_strategy_has_unit_columns_and_the_error_of_its_definition(G):
    """The sum over directions of products of one-attribute errors, against W_G S^+ written out."""
    made = problem(
        workload.weighted(workload.all_range(policy.parse(G).domain if isinstance(G, str) else G.domain), 2), G
    )
    found = list(itertools.islice(grids.steps(made, seed=0), 3))[-1]
    assert found.kind == "edge"
    np.testing.assert_allclose(np.abs(found.matrix).sum(axis=0), 1)
    by_definition = np.linalg.norm(made.W_G() @ np.linalg.pinv(found.matrix)) ** 2
    assert found.error == pytest.approx(by_definition, rel=1e-8)
    assert draft(made, "edge", found.matrix, norm="L1", origin="").error == pytest.approx(found.error, rel=1e-8)


def test_grids_are_products_of_trees_under_one_product_of_workloads():
    two = workload.union(workload.all_range((4, 4)), workload.identity((4, 4)))
    assert grids.parts(problem("all-range:4x4", "threshold:4x4:1")) is not None
    for W, G in (
        (two, "threshold:4x4:1"),
        ("all-range:4x4", "threshold:4x4:2"),
        ("all-range:4x4", "product:line:4,bounded:4"),
        ("all-range:4x4", "unbounded:4x4"),
        ("all-range:16", "line:16"),
    ):
        assert grids.parts(problem(W, G)) is None
        assert list(grids.steps(problem(W, G), seed=0)) == []


def test_the_grid_family_is_refused_where_there_is_no_grid():
    with pytest.raises(bf.InputError, match="product of trees"):
        bf.fit("all-range:8", "cycle:8", noise="laplace", family="grid")


def test_large_grids_are_left_to_the_grid_family():
    assert portfolio.applicable(problem("all-range:24x24", "threshold:24x24:1"), None) == [grids.FAMILY]
    assert portfolio.applicable(problem("all-range:4x4", "threshold:4x4:1"), None)[0] == grids.FAMILY


def test_wavelets_and_identity_give_way_to_hats_on_grids_of_24():
    """Below identity on the edges by the factor of the star of 24; identity stays best at 16."""
    made = problem("all-range:24x24", "threshold:24x24:1")
    identity = 2 * 23 * 24 * sum((j + 1) * (24 - j) for j in range(24))
    found = list(itertools.islice(grids.steps(made, seed=0), 8))[-1]
    assert found.error <= 0.96 * identity


@pytest.mark.slow
def test_the_grid_of_32_is_fitted_released_and_below_identity_on_edges():
    made = bf.fit("all-range:32x32", "threshold:32x32:1", noise="laplace")
    assert made.unit_error / made.matrix_bound <= 3.684
    assert made.unit_error < 0.9 * made.reached["identity on edges"]
    answers = bf.release(made, RNG.poisson(5.0, 1024), epsilon=1.0).answers
    assert np.all(np.isfinite(answers))


@pytest.mark.parametrize("G", ["threshold:4x5:1", "unbounded:4x5", "bounded:20", "sensitive:4x5:1", "empty:20"])
def test_the_trace_after_grounding_needs_no_factorisation_of_the_domain(G):
    made = problem(workload.all_range(policy.parse(G).domain), G)
    A = RNG.normal(size=(23, 20))
    Y, V = np.linalg.inv(A.T @ A), made.workload.gram
    totals = (made.grounding.group == np.arange(made.grounding.given_up.size)[:, None]).astype(float)
    found = float(np.vdot(V, Y)) - conditioning_gain(Y, V, totals)
    if made.grounding.kept.size:
        assert found == pytest.approx(trace_of_inverse(made.grounding.columns(A), made.gram), rel=1e-8)
    else:
        assert found == pytest.approx(0, abs=1e-6)


# ---------------------------------------------------------------- Kronecker strategies


KRONECKER = [
    ("all-range:4x5", "unbounded:4x5"),
    ("all-range:4x3", "threshold:4x3:1"),
    ("prefix:4x4", "product:line:4,bounded:4"),
    ("all-range:4x3", "sensitive:4x3:0,1"),
    ("all-range:4x3", "sensitive:4x3:1"),
]


@pytest.mark.parametrize(("W", "G"), KRONECKER)
def test_a_kronecker_strategy_has_the_sensitivity_and_error_it_says_and_beats_identity(W, G):
    """Quotes search: sensitivity at most 1, the unit error it says, never worse than the identity."""
    product = take_apart(W, G)
    made = product.problem
    found = best(products_laplace.search(product, seed=0), steps=60)
    A = dense([found])
    assert moved(A, made.policy.edges) == pytest.approx(1, rel=1e-9)
    rows = made.workload.matrix.dense()
    assert found.error == pytest.approx(np.linalg.norm(rows @ np.linalg.pinv(A)) ** 2, rel=1e-7)
    identity = np.eye(made.policy.num_cells)
    assert found.error <= moved(identity, made.policy.edges) ** 2 * np.trace(made.workload.gram) * (1 + 1e-9)
    fall = products_laplace.known_totals(product, product.terms[0], found.factors)
    grounded = trace_of_inverse(made.grounding.columns(A), made.gram)
    assert found.error - fall == pytest.approx(grounded, rel=1e-7)


def test_a_smaller_reach_is_found_at_a_price_that_pays_for_the_product():
    """Grid of 4 x 4: identity has reach 2; every attribute at a smaller reach gives the product less error."""
    W, edges = workload.all_range(4).matrix, policy.line(4).edges
    attribute = products_laplace.Attribute(W, edges, seed=0)
    identity = attribute.best(2.0)
    assert attribute.best(1.1) is None
    attribute.approach(1.0)
    near = attribute.best(1.1)  # the columns may end a little below their limit, so the reach a little above
    assert near is not None
    assert identity is not None
    assert near.reach == pytest.approx(moved(near.matrix, edges))
    assert np.abs(near.matrix).sum(axis=0).max() == pytest.approx(1)
    assert near.error == pytest.approx(trace_of_inverse(near.matrix, W.gram()), rel=1e-9)
    assert near.reach**2 * near.error**2 < identity.reach**2 * identity.error**2


def test_reaches_are_the_sensitivities_along_the_edges_of_each_attribute():
    product = take_apart("all-range:3x4", "product:bounded:3,line:4")
    factors = [RNG.normal(size=(4, 3)), RNG.normal(size=(5, 4))]
    edges, split = product.problem.policy.edges, 3 * 4
    A = np.kron(*factors)
    by_hand = [moved(A, edges[:split]), moved(A, edges[split:])]
    np.testing.assert_allclose(products_laplace.reaches(product, factors), by_hand)


def test_one_query_is_its_own_best_strategy():
    np.testing.assert_allclose(products_laplace.rank_one(np.outer([1, -2, 0], [1, -2, 0.0])), [[-1, 2, 0]])
    assert products_laplace.rank_one(np.eye(3)) is None
    product = take_apart(workload.product(total(4), total(3)), "unbounded:4x3")
    assert next(products_laplace.search(product, seed=0)).error == pytest.approx(1)


def test_a_workload_that_no_edge_moves_costs_nothing():
    product = take_apart(workload.product(total(4), workload.identity(3)), "sensitive:4x3:0")
    assert next(products_laplace.search(product, seed=0)).error == 0


# ---------------------------------------------------------------- unions


def test_a_block_for_each_term_has_the_error_and_sensitivity_it_says():
    W = workload.union(workload.all_range((3, 4)), workload.weighted(workload.prefix((3, 4)), 2))
    for G in ("unbounded:3x4", "sensitive:3x4:0,1"):
        product = take_apart(W, G)
        found = best(unions_laplace.steps(product, seed=0), steps=60)
        assert moved(dense(found.blocks), product.problem.policy.edges) <= 1 + 1e-9
        errors = [
            product.terms[k].weight ** 2
            * np.linalg.norm(
                reduce(np.kron, [f.dense() for f in product.terms[k].factors]) @ np.linalg.pinv(dense([block]))
            )
            ** 2
            for block, ks in zip(found.blocks, found.answers, strict=True)
            for k in ks
        ]
        assert found.error == pytest.approx(sum(errors), rel=1e-7)


TABLES = [
    ("marginals:2x5x3:1", "unbounded:2x5x3"),
    ("marginals:4x5x3:2", "unbounded:4x5x3"),
    ("marginals:2x2x2x2:2", "sensitive:2x2x2x2:0"),
    ("marginals:4x3x2:all", "sensitive:4x3x2:0,1"),
    ("marginals:5x4x2:2", "product:line:5,bounded:4,empty:2"),
]


@pytest.mark.parametrize(("W", "G"), TABLES)
def test_tables_are_answered_at_the_error_they_say_and_never_worse_than_identity(W, G):
    product = take_apart(W, G)
    made = product.problem
    found = unions_laplace.first(product)
    assert sorted(k for ks in found.answers for k in ks) == list(range(len(product.terms)))
    assert moved(dense(found.blocks), made.policy.edges) == pytest.approx(1, rel=1e-6)
    error = 0.0
    for block, ks in zip(found.blocks, found.answers, strict=True):
        A = dense([block])
        if moved(A, made.policy.edges) > 0:
            rows = [reduce(np.kron, [f.dense() for f in product.terms[k].factors]) for k in ks]
            error += sum(np.linalg.norm((R @ np.linalg.pinv(A))[:, noisy(block)]) ** 2 for R in rows)
            assert all(np.allclose(R @ np.linalg.pinv(A) @ A, R) for R in rows)
    assert found.error == pytest.approx(error, rel=1e-7)
    identity = moved(np.eye(made.policy.num_cells), made.policy.edges) ** 2 * np.trace(made.workload.gram)
    assert found.error <= identity * (1 + 1e-9)


def test_budgets_are_divided_by_cube_roots_and_by_what_each_block_moves():
    errors = np.array([1.0, 8.0, 27.0])
    np.testing.assert_allclose(unions_laplace.shares(errors, np.ones((3, 1))), np.array([1, 2, 3]) / 6)
    apart = unions_laplace.shares(errors, np.eye(3))  # each block meets its own edges: all get everything
    np.testing.assert_allclose(apart, 1, rtol=1e-4)
    np.testing.assert_allclose(unions_laplace.shares(np.array([5.0]), np.zeros((1, 2))), 1)


def test_budgets_of_several_kinds_of_edges_agree_with_convex_optimisation():
    cp = pytest.importorskip("cvxpy")
    errors, moves = RNG.uniform(1, 20, 5), RNG.uniform(0, 2, (5, 3)) * (RNG.uniform(size=(5, 3)) < 0.7) + 0.01
    b = cp.Variable(5, pos=True)
    best = cp.Problem(cp.Minimize(cp.sum(cp.multiply(errors, cp.power(b, -2)))), [moves.T @ b <= 1]).solve()
    found = unions_laplace.shares(errors, moves)
    assert (found @ moves).max() <= 1 + 1e-12
    assert (errors / found**2).sum() == pytest.approx(best, rel=1e-4)


# ---------------------------------------------------------------- p-identity over the cells of a product


def cells_problem():
    return take_apart(workload.union(workload.all_range((3, 4)), workload.identity((3, 4))), "unbounded:3x4")


def test_the_implicit_error_and_loss_are_those_of_the_strategy_written_out():
    product = cells_problem()
    roots = RNG.uniform(0, 1, (3, 3, 4))
    Theta = (roots**2).reshape(3, -1)
    A = cells_laplace.matrix(Theta)
    np.testing.assert_allclose(np.abs(A).sum(axis=0), 1)
    truth = np.linalg.norm(product.problem.workload.matrix.dense() @ np.linalg.pinv(A)) ** 2
    assert cells_laplace.unit_error(product, Theta) == pytest.approx(truth, rel=1e-9)
    loss = on_cells(product, 3)
    assert math.exp(float(loss(roots.reshape(3, -1)))) == pytest.approx(truth, rel=1e-9)


def on_cells(product, rows):
    """The loss of the family: V by its factors, the sensitivity 1 by construction."""
    return total_error(product.problem, norm=None, over="products", log=True).of(
        PIdentity(rows, product.problem.policy.num_cells)
    )


def test_the_gradient_of_the_implicit_loss_agrees_with_finite_differences():
    loss = on_cells(cells_problem(), 2)
    roots = RNG.uniform(0.2, 1, (2, 12))
    slope = in_float64(lambda: np.asarray(jax.jit(jax.grad(loss))(roots)))()
    for index in [(0, 0), (1, 11), (0, 6)]:
        step = np.zeros_like(roots)
        step[index] = 1e-6
        finite = (float(loss(roots + step)) - float(loss(roots - step))) / 2e-6
        assert slope[index] == pytest.approx(finite, rel=1e-4, abs=1e-7)


def test_rows_over_the_cells_beat_identity_and_kronecker_on_a_grid_of_16():
    """Both others stay at the identity there: 816^2."""
    product = take_apart("all-range:16x16", "unbounded:16x16")
    found = list(itertools.islice(cells_laplace.steps(product, seed=0), 2))[-1]
    assert found.error == pytest.approx(cells_laplace.unit_error(product, found.Theta), rel=1e-12)
    assert found.error <= 0.9 * 816**2


def test_rows_over_the_cells_are_for_unbounded_privacy_alone():
    assert cells_laplace.applies(cells_problem())
    assert cells_laplace.applies(take_apart("all-range:6", "unbounded:6"))
    for G in ("threshold:4x3:1", "sensitive:4x3:0", "product:unbounded:4,line:3"):
        assert not cells_laplace.applies(take_apart("all-range:4x3", G))


@pytest.mark.slow
def test_all_ranges_of_64_by_64_are_below_the_product_of_factors():
    product = take_apart("all-range:64x64", "unbounded:64x64")
    assert best(products_laplace.search(product, seed=1)).error <= 1.02802e9
    assert best(cells_laplace.steps(product, seed=0)).error <= 0.95e9


@pytest.mark.parametrize(
    ("workload", "policy", "family"),
    [
        ("all-range:6x6", "threshold:6x6:1", "kronecker"),
        ("marginals:2x3x4:2", "sensitive:2x3x4:0,1", "union"),
        ("all-range:6x6", "unbounded:6x6", "cells"),
    ],
)
def test_an_interrupted_structured_search_keeps_what_it_has(workload, policy, family):
    def stop(point):
        raise KeyboardInterrupt

    made = bf.fit(workload, policy, noise="laplace", family=family, callback=stop)
    searched = family != "union"  # tables of counts are divided in closed form
    assert made.status == ("interrupted" if searched else "finished")
    assert len(made.trace) == 1, "the callback was called once"
    assert made.unit_error >= made.bounds.lower > 0


def test_a_structured_search_that_runs_out_of_time_says_so():
    made = bf.fit("all-range:6x6", "threshold:6x6:1", noise="laplace", family="kronecker", max_seconds=1e-3)
    assert made.status == "time limit"
    assert made.trace[-1].left == 0


def test_rows_of_zeros_are_not_shipped():
    """Every entry may go to zero in a descent; a row of zeros has no scale on which it is whole."""
    attribute = products_laplace.Attribute(workload.from_matrix(np.eye(3)).matrix, np.array([[0, 1], [1, 2]]), seed=0)
    point = attribute._point(np.vstack([np.eye(3), np.zeros((1, 3))]))
    assert point.matrix.shape == (3, 3)


def test_a_time_limit_serves_all_attributes_alike():
    order = [
        name for name, _ in zip(products_laplace.in_turn([iter("aaa"), iter("b"), iter("cc")]), range(9), strict=False)
    ]
    assert "".join(order) == "abcaca"


@pytest.mark.parametrize(
    ("W", "G", "steps"),
    [
        ("all-range:12x9", "unbounded:12x9", 6),
        pytest.param("all-range:32x24", "unbounded:32x24", 40, marks=pytest.mark.slow),
        pytest.param("all-range:20x8x2", "product:line:20,bounded:8,empty:2", 40, marks=pytest.mark.slow),
    ],
)
def test_factors_with_more_rows_than_columns_ship_with_the_error_that_was_searched(W, G, steps):
    """Rows scaled one by one made the pseudo-inverse of a tall factor worse than least squares, by 4 to 8 % here."""
    made = bf.fit(W, G, noise="laplace", family="kronecker", max_steps=steps)
    assert made.unit_error == pytest.approx(made.trace[-1].error, rel=1e-3)
