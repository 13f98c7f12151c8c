"""Edge strategies of forests over the cells, and strategies of long lines from short ones."""

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.strategies import rounding
from hdmm_bf.strategies.laplace import stretching
from tests.support.instances import given_policies, random_tree

RNG = np.random.default_rng(0)


@given_policies(forest=True)
def test_over_cells_is_the_edge_strategy_times_the_inverse_of_the_edges(G):
    """Quotes over_cells: A = S P^-1 over the kept cells of a forest, exactly."""
    if not G.num_edges:
        return
    problem = bf.Problem(bf.workload.identity(G.num_cells), G)
    S = RNG.integers(-(2**40), 2**40, size=(3, G.num_edges))
    A = rounding.over_cells(problem, S)
    P = problem.P.dense().astype(np.int64)
    assert A.dtype == np.int64
    np.testing.assert_array_equal(A @ P, S)


def test_over_cells_serves_long_trees():
    problem = bf.Problem(bf.workload.prefix(400), random_tree(400, 3))
    S = RNG.integers(-9, 9, size=(2, 399))
    A = rounding.over_cells(problem, S)
    np.testing.assert_array_equal(A @ problem.P.dense().astype(np.int64), S)


@pytest.mark.parametrize("reach", [1, 2, 4])
@pytest.mark.parametrize(("old", "cells"), [(48, 60), (48, 120), (60, 144)])
def test_a_stretched_strategy_has_full_rank(reach, old, cells):
    """Of steps at every cell and wider ones, as searches find them: rows that are local in their differences."""
    steps = np.tril(np.ones((old, old)))[:-1]
    bumps = np.array([(np.abs(np.arange(old) - c) <= 3 * reach).astype(float) for c in range(0, old, 4)])
    A = np.vstack([steps, 0.3 * bumps])
    A = A[:, :-1] - A[:, -1:]
    found = stretching.stretched(A, cells)
    assert found.shape[1] == cells - 1
    assert np.linalg.matrix_rank(found) == cells - 1


@pytest.mark.slow
def test_a_fitted_strategy_of_a_short_line_is_stretched_to_one_of_full_rank_and_like_error():
    short = bf.problem("all-range:48", "threshold:48:2")
    long = bf.problem("all-range:72", "threshold:72:2")
    made = bf.fit(short.workload, short.policy, noise="laplace", max_steps=3, family="vertex")
    A = short.grounding.columns(made.strategy.matrix())
    found = stretching.stretched(A, 72)
    assert np.linalg.matrix_rank(found) == 71
    errors = [float(bf.objectives.total(p)(B)) / p.policy.num_cells**3 for p, B in ((short, A), (long, found))]
    assert errors[1] <= 1.5 * errors[0], "all ranges: the error grows like the cube of the line"


def test_a_line_is_made_shorter_with_the_same_queries_and_reach():
    found = stretching.shorter(bf.problem("all-range:100", "threshold:100:3"), 40)
    np.testing.assert_array_equal(found.policy.edges, bf.policy.threshold(40, 3).edges)
    W = bf.workload.all_range(40).matrix.dense()
    np.testing.assert_allclose(found.workload.gram, W.T @ W)
    assert stretching.short_length(500, 200) % 12 == 500 % 12
    assert 200 <= stretching.short_length(500, 200) < 212


@pytest.mark.parametrize(
    ("W", "G", "cells"),
    [
        ("all-range:40", "unbounded:40", 20),
        ("all-range:40", "cycle:40", 20),
        ("all-range:40", "empty:40", 20),
        ("all-range:40", "bounded:40", 20),
        ("all-range:8x5", "threshold:8x5:1", 20),
        ("all-range:40", "threshold:40:3", 40),
        ("all-range:40", "threshold:40:3", 50),
        ("all-range:40", "threshold:40:10", 20),
        (np.random.default_rng(1).normal(size=(5, 40)), "threshold:40:3", 20),
    ],
)
def test_where_a_shorter_line_has_no_meaning_there_is_none(W, G, cells):
    """Quotes shorter: or None where that has no meaning."""
    assert stretching.shorter(bf.problem(W, G), cells) is None
