"""Product strategies against brute force: matrices written out, all edges, and the dense search with its bound."""

import itertools
import math
import time
from functools import reduce

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.bounds.products import product_bound
from hdmm_bf.matrix import Identity, Kronecker, Ones
from hdmm_bf.policy import Policy
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import indicators
from hdmm_bf.strategies.gaussian import FAMILIES, fit_product
from hdmm_bf.strategies.gaussian.bases import build, coarser, steps
from hdmm_bf.strategies.gaussian.sketch import centred
from tests.support.instances import product

TIGHT = 1e-5
CUT_OFF = 1e-9
"""Singular values below this share of the largest are zeros of factors that were rounded to 2^-40."""


def written_out(found, bits=40):
    """Rows, precisions and the matrix of the estimate, over the cells, with factors rounded to a grid."""
    rows, precisions, inverses = [], [], []
    for sketch in found.sketches:
        factors = [np.ldexp(np.rint(np.ldexp(factor, bits)), -bits) for factor in sketch.factors]
        rows.append(reduce(np.kron, factors))
        shape = tuple(len(factor) for factor in factors)
        precisions.append(np.broadcast_to(sketch.precisions, shape).ravel())
        inverses.append(reduce(np.kron, [np.linalg.pinv(factor) for factor in factors]))
    return np.concatenate(rows), np.concatenate(precisions), np.concatenate(inverses, axis=1)


def edge_vectors(graph):
    """One row an edge: e_u - e_v, or e_u."""
    unit = np.eye(graph.num_cells + 1)[:, :-1]
    return unit[graph.edges[:, 0]] - unit[graph.edges[:, 1]]


def check_by_brute_force(made, found):
    """Sensitivity 1, the stated error, no bias, exact public rows: from the definitions."""
    R, precisions, G = written_out(found)
    W, P = made.problem.workload.objective.dense(), edge_vectors(made.problem.policy)
    measured, noisy = precisions > 0, np.isfinite(precisions) & (precisions > 0)
    np.testing.assert_allclose(W @ G[:, measured] @ R[measured], W, atol=1e-9 * np.abs(W).max())
    assert np.abs(R[np.isinf(precisions)] @ P.T).max(initial=0.0) < 1e-12
    squared = ((R[noisy] @ P.T) ** 2 * precisions[noisy, None]).sum(axis=0)
    assert squared.max(initial=0.0) == pytest.approx(1.0 if noisy.any() else 0.0, rel=1e-9)
    error = ((W @ G[:, noisy]) ** 2 / precisions[noisy]).sum()
    assert error == pytest.approx(found.error, rel=1e-9)
    A = np.sqrt(precisions[noisy])[:, None] * R[noisy]
    W_D, A_D = made.problem.W_D(), made.problem.grounding.columns(A)
    least_squares = ((W_D @ np.linalg.pinv(A_D, rcond=CUT_OFF)) ** 2).sum()
    assert least_squares <= error * (1 + 1e-9)  # it can only be better


def check_on_a_grid(made, found, bits=16):
    """Rounded factors bring no bias and still measure public rows exactly, whatever the noise is scaled to."""
    R, precisions, G = written_out(found, bits)
    W, P = made.problem.workload.matrix.dense(), edge_vectors(made.problem.policy)
    measured = precisions > 0
    np.testing.assert_allclose(W @ G[:, measured] @ R[measured], W, atol=1e-9 * np.abs(W).max())
    assert not np.any(R[np.isinf(precisions)] @ P.T)
    squared = ((R[measured] @ P.T) ** 2 * np.where(np.isinf(precisions), 0, precisions)[measured, None]).sum(axis=0)
    assert squared.max(initial=1.0) == pytest.approx(1.0, rel=1e-2)


def check_bounds(made, found, optimum):
    """Never above the optimum, and the same when somebody else evaluates the proof."""
    again = product_bound(made, found.proof)
    assert again.lower == pytest.approx(max(found.bound, found.svd or 0.0), rel=1e-12)
    assert found.bound <= optimum.lower * (1 + optimum.gap) * (1 + 1e-9)
    if found.svd is not None:
        assert found.svd == pytest.approx(optimum.svd, rel=1e-5)
        assert found.svd <= optimum.svd * (1 + 1e-9)


def check(queries, graph, expected, ratio, **options):
    made = product(queries, graph)
    optimum = bf.bound(made.problem.workload, made.problem.policy, gap=TIGHT)
    found = fit_product(made, gap=TIGHT, **options)
    assert found.family == expected
    assert found.why
    check_by_brute_force(made, found)
    check_on_a_grid(made, found)
    check_bounds(made, found, optimum)
    assert optimum.lower * (1 - 1e-9) <= found.error <= optimum.lower * ratio
    return found


def two_parts(n):
    """A line on the first cells, and apart from it two last cells, joined."""
    inner = policy.line(n - 2).edges
    u, v = np.vstack([inner, [[n - 2, n - 1]]]).T
    return policy.from_edges(u, v, n)


def half_hidden(n):
    """A line with BOTTOM on one end, and apart from it two last cells, joined."""
    u, v = np.vstack([two_parts(n).edges, [[0, -1]]]).T
    return policy.from_edges(u, v, n)


def test_centred_rows_and_ones_split_the_identity():
    for n in (1, 2, 5, 16):
        R = centred(n)
        assert not np.any(R @ np.ones(n))
        np.testing.assert_allclose(R.T @ R / n**2, np.eye(n) - 1 / n, atol=1e-15)


@pytest.mark.parametrize(
    ("queries", "graph"),
    [
        ("marginals:3x4x2:2", "sensitive:3x4x2:0,2"),
        ("marginals:3x4x2:1", "sensitive:3x4x2:0"),
        ("marginals:5x3x4:2", "sensitive:5x3x4:0,1,2"),
        ("marginals:3x1x4:2", "sensitive:3x1x4:0,1"),
        ("marginals:3x4x3:all", "unbounded:3x4x3"),
        ("marginals:2x3x4:2", "product:empty:2,bounded:3,unbounded:4"),
        ("identity:4x3", "sensitive:4x3:1"),
        ("identity:5", "bounded:5"),
    ],
)
def test_tables_under_invariant_policies_reach_the_optimum(queries, graph):
    found = check(queries, graph, "marginals", 1 + TIGHT)
    assert found.gap < 1e-9


def test_weighted_unions_of_tables_reach_the_optimum():
    heavy = workload.weighted(workload.marginals("4x3x2", 1), 5.0)
    both = workload.union(heavy, workload.marginals("4x3x2", 2))
    check(both, "sensitive:4x3x2:0,1", "marginals", 1 + TIGHT)


def test_a_gram_matrix_written_out_counts_as_a_table_if_it_is_invariant():
    with_total = workload.from_matrix(np.vstack([np.eye(4), np.ones((1, 4))]))
    check(workload.product(with_total, workload.identity(3)), "sensitive:4x3:0,1", "marginals", 1 + TIGHT)


def test_unbounded_marginals_equal_the_svd_bound():
    found = fit_product(product("marginals:5x4x3x2:2", "unbounded:5x4x3x2"))
    assert found.error == pytest.approx(found.svd, rel=1e-9)


def test_fourteen_attributes_are_solved_to_a_millionth():
    sizes = "85x9x100x16x7x15x6x5x2x100x100x99x42x2"
    made = product(f"marginals:{sizes}:2", f"sensitive:{sizes}:0,3,9")
    found = fit_product(made)
    assert math.prod(made.sizes) > 1e17
    assert found.gap <= 1e-6
    assert product_bound(made, found.proof).lower == found.bound
    assert all(np.all(s.precisions > 0) for s in found.sketches)


@pytest.mark.parametrize(
    ("queries", "graph", "family"),
    [
        ("marginals:6x3x4:2", "product:line:6,bounded:3,empty:4", None),
        ("marginals:5x4x3:2", "product:line:5,unbounded:4,bounded:3", None),
        ("marginals:4x5x3:all", "product:bounded:4,line:5,bounded:3", None),
        ("marginals:3x4x2:2", "sensitive:3x4x2:0,2", "sectors"),
        ("marginals:3x4x2:2", "unbounded:3x4x2", "sectors"),
    ],
)
def test_one_arbitrary_attribute_reaches_the_optimum(queries, graph, family):
    check(queries, graph, "sectors", 1 + 3 * TIGHT, family=family)


@pytest.mark.parametrize("part", [two_parts, half_hidden])
def test_sectors_know_what_is_public_in_parts(part):
    ranges = workload.product(workload.all_range(6), workload.marginals(3, "all"))
    tables = workload.union(ranges, workload.product(workload.prefix(6), workload.identity(3)))
    check(tables, policy.product(part(6), policy.bounded(3)), "sectors", 1 + 3 * TIGHT)
    check(tables, policy.product(part(6), policy.empty(3)), "sectors", 1 + 3 * TIGHT)


def test_sectors_keep_light_queries():
    light = workload.product(workload.all_range(5), workload.identity(3))
    heavy = workload.weighted(workload.marginals("5x3", 0), 1e5)
    found = check(workload.union(heavy, light), "product:line:5,bounded:3", "sectors", 1 + 3 * TIGHT)
    alone = fit_product(product(light, "product:line:5,bounded:3"), gap=TIGHT)
    assert found.error == pytest.approx(alone.error, rel=1e-4)  # the total is public


def test_sixteen_by_eight_by_four_is_optimal():
    made = product("marginals:16x8x4:2", "product:line:16,bounded:8,empty:4")
    found = fit_product(made, gap=1e-4)
    assert found.family == "sectors"
    assert found.error <= found.bound * 1.0002
    check_by_brute_force(made, found)


@pytest.mark.parametrize(
    ("queries", "graph"),
    [
        ("all-range:6x5", "unbounded:6x5"),
        ("all-range:6x5", "product:line:6,empty:5"),
        ("prefix:4x3x2", "unbounded:4x3x2"),
        ("all-range:7", "threshold:7:2"),
    ],
)
def test_products_with_edges_on_one_attribute_reach_the_optimum(queries, graph):
    check(queries, graph, "kronecker", 1 + TIGHT)


@pytest.mark.parametrize("part", [two_parts, half_hidden])
def test_kronecker_knows_what_is_public_in_parts(part):
    check("all-range:6x3", policy.product(part(6), policy.empty(3)), "kronecker", 1 + TIGHT)


def test_unbounded_ranges_on_64_by_64_reach_the_known_ratio():
    found = fit_product(product("all-range:64x64", "unbounded:64x64"), gap=1e-5)
    assert found.family == "kronecker"
    assert found.error <= found.svd * 1.0445
    assert found.gap <= 1e-5


@pytest.mark.parametrize(
    ("queries", "graph", "ratio"),
    [
        ("all-range:7x5", "threshold:7x5:1", 1.01),
        ("prefix:6x4", "threshold:6x4:1", 1.04),
        ("all-range:5x4", "product:line:5,unbounded:4", 1.01),
        ("marginals:4x4x3:2", "product:line:4,line:4,bounded:3", 1.01),
        ("all-range:3x4x3", "threshold:3x4x3:1", 1.03),
    ],
)
def test_bases_come_close_to_the_optimum(queries, graph, ratio):
    check(queries, graph, "bases", ratio)


def test_bases_come_close_for_several_terms_under_ordinary_privacy():
    both = workload.union(workload.all_range("5x4"), workload.weighted(workload.prefix("5x4"), 2.0))
    check(both, "unbounded:5x4", "bases", 1.02)


@pytest.mark.parametrize("part", [two_parts, half_hidden])
def test_bases_know_what_is_public_in_parts(part):
    check("all-range:5x4", policy.product(part(5), policy.line(4)), "bases", 1.06)


def test_bases_reach_exact_optima_of_the_other_families():
    check("all-range:4x4", "unbounded:4x4", "bases", 1.002, family="bases")
    check("marginals:4x3x2:2", "product:line:4,bounded:3,empty:2", "bases", 1.01, family="bases")


def test_twelve_by_twelve_ranges_are_within_a_hundredth():
    check("all-range:12x12", "threshold:12x12:1", "bases", 1.01)


def gradient_error(made, seed=0):
    """Relative error of a directional derivative by central differences."""
    rng = np.random.default_rng(seed)
    family = build(made)
    z = rng.standard_normal(family.num_free + math.prod(family.shape))
    direction, step = rng.standard_normal(z.size), 1e-6
    slope = family.loss(z, 5.0)[1] @ direction
    ahead, behind = (family.loss(z + s * direction, 5.0)[0] for s in (step, -step))
    return abs((ahead - behind) / (2 * step) - slope) / abs(slope)


@pytest.mark.parametrize(
    ("queries", "graph"),
    [
        ("all-range:6x6", "threshold:6x6:1"),
        ("all-range:5x4", "product:line:5,unbounded:4"),
        ("prefix:3x4x3", "product:line:3,bounded:4,empty:3"),
        ("marginals:3x4x3:2", "threshold:3x4x3:1"),
    ],
)
def test_the_gradient_is_the_derivative(queries, graph):
    assert gradient_error(product(queries, graph)) < 1e-6


def test_coarse_levels_carry_over_to_fine_ones():
    made = product("all-range:100x8", "threshold:100x8:1")
    assert coarser(made).sizes == (50, 8)
    errors = [step.error for step in itertools.islice(steps(made, bound=0.0), 2)]
    direct = product(
        workload.product(workload.from_matrix(workload.all_range(100).matrix.dense()), workload.all_range(8)),
        "threshold:100x8:1",
    )
    assert coarser(direct) is None  # queries written out have no small version
    assert errors[1] <= errors[0] < next(steps(direct, bound=0.0)).error


def test_a_time_limit_still_gives_a_strategy():
    made = product("all-range:8x8", "threshold:8x8:1")
    started = time.perf_counter()
    found = fit_product(made, max_seconds=1e-3)
    assert found.status == "time limit"
    assert time.perf_counter() - started < 30
    check_by_brute_force(made, found)


def test_the_callback_sees_every_step():
    seen = []
    found = fit_product(product("all-range:4x5", "threshold:4x5:1"), callback=seen.append)
    assert seen[-1].error == found.error
    assert all(a.error >= b.error for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize(
    ("queries", "graph"),
    [
        ("all-range:5x4", "empty:5x4"),
        ("marginals:3x4:0", "sensitive:3x4:0,1"),
        ("marginals:3x4x5:1", "product:empty:3,empty:4,empty:5"),
    ],
)
def test_public_answers_need_no_noise(queries, graph):
    graph = policy.per_attribute("5x4", {}) if graph == "empty:5x4" else graph
    made = product(queries, graph)
    for family in (None, "bases"):
        found = fit_product(made, family=family)
        assert (found.error, found.status) == (0.0, "exact")
        check_by_brute_force(made, found)


def test_families_are_chosen_in_order_and_refused_where_they_do_not_fit():
    assert FAMILIES == ("marginals", "kronecker", "sectors", "bases")
    grid = product("all-range:4x4", "threshold:4x4:1")
    for family in ("marginals", "kronecker", "sectors"):
        with pytest.raises(InputError, match="does not fit.*Use family='bases'"):
            fit_product(grid, family=family)
    with pytest.raises(InputError, match="Did you mean 'bases'"):
        fit_product(grid, family="base")


def test_public_totals_are_products_of_component_indicators():
    for part in (two_parts, half_hidden):
        graph = policy.product(part(6), policy.line(3))
        made = product("identity:6x3", graph)
        rows = reduce(np.kron, [indicators(e, n) for e, n in zip(made.edges, made.sizes, strict=True)])
        components = graph.components
        expected = [(components.labels == c).astype(float) for c in components.public]
        assert {tuple(r) for r in rows} == {tuple(r) for r in expected}


def test_terms_and_policies_can_be_given_by_hand():
    graph = policy.product(policy.bounded(3), policy.line(4))
    queries = Kronecker((Identity(3), Ones(4)))
    problem = bf.Problem(workload.from_matrix(queries, domain="3x4"), graph)
    made = ProductProblem(problem, (3, 4), tuple(f.edges for f in graph.factors), (Term(1.0, queries.factors),))
    assert isinstance(graph, Policy)
    check_by_brute_force(made, fit_product(made))


@pytest.mark.slow
def test_twenty_four_by_twenty_four_ranges_are_within_a_hundredth():
    made = product("all-range:24x24", "threshold:24x24:1")
    optimum = bf.bound(made.problem.workload, made.problem.policy, gap=1e-3)
    found = fit_product(made, gap=1e-3)
    check_bounds(made, found, optimum)
    assert found.error <= optimum.lower * 1.012


@pytest.mark.slow
def test_a_thousand_by_a_thousand_ranges_are_within_three_hundredths_of_the_bound():
    found = fit_product(product("all-range:1000x1000", "threshold:1000x1000:1"), gap=1e-3)
    assert found.error <= found.bound * 1.03
