"""Laplace strategies: families, the portfolio's promises, accuracy that must not regress."""

import itertools

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.strategies import registry
from hdmm_bf.strategies.baselines import classical, paper
from hdmm_bf.strategies.laplace import vertex
from tests.support import instances
from tests.support.laplace import exact_error, problem

# ---------------------------------------------------------------- families and portfolio


@pytest.mark.parametrize("family", registry.families("laplace", structured=False), ids=lambda family: family.name)
@pytest.mark.parametrize("G", ["threshold:8:2", "cycle:8", "line:8", "bounded:6"])
def test_every_family_gives_strategies_of_the_error_it_says(family, G):
    made = problem(workload.all_range(policy.parse(G).domain), G)
    for found in itertools.islice(family.search(made, seed=1), 3):
        assert found.error == pytest.approx(exact_error(made, found.kind, found.matrix), rel=1e-6)


def sparse_queries(n, seed):
    rng = np.random.default_rng(seed)
    W = (rng.uniform(size=(n, n)) < 0.3) * rng.integers(-2, 4, size=(n, n))
    return workload.from_matrix(np.vstack([W, np.eye(n)]).astype(float), spec=f"sparse {seed}")


GRAPHS = [instances.random_tree, instances.random_regular, instances.halves, lambda n, seed: policy.threshold(n, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_a_fit_is_never_worse_than_any_floor(seed):
    """Quotes fit: Laplace fits are never worse than any of the paper's and the classical mechanisms."""
    check_against_floors(seed, max_steps=12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_longer_fit_is_never_worse_than_any_floor(seed):
    check_against_floors(seed, max_steps=24)


def check_against_floors(seed, max_steps):
    """Fit one of twelve pairs of a graph and queries, by the seed."""
    n = 10
    G = GRAPHS[seed % 4](n, seed)
    W = sparse_queries(n, seed) if seed % 3 else workload.all_range(n)
    made = bf.fit(W, G, noise="laplace", max_steps=max_steps, seed=seed)
    for module in (paper, classical):
        for found in module.floors(made.problem, "L1"):
            assert made.unit_error <= found.error * (1 + 2e-6), found.origin
    assert made.unit_error >= made.bounds.lower
    kept = made.strategy.matrix()
    matrix = made.problem.grounding.columns(kept) if made.strategy.kind == "vertex" else kept
    assert made.unit_error == pytest.approx(exact_error(made.problem, made.strategy.kind, matrix), rel=1e-7)


def test_the_same_seed_and_steps_give_the_same_bits():
    first, second = (bf.fit("all-range:12", "threshold:12:3", noise="laplace", max_steps=20, seed=3) for _ in range(2))
    assert np.array_equal(first.strategy.integers, second.strategy.integers)
    assert first.reached == second.reached


def test_one_family_can_be_asked_for_and_says_what_it_reached():
    made = bf.fit("all-range:12", "bounded:12", noise="laplace", family="cell-budgets", max_steps=25)
    assert "cell-budgets" in made.reached
    assert "vertex" not in made.reached
    assert made.reached["identity"] >= made.unit_error * (1 - 1e-6)
    assert not made.certified


def test_trees_ship_as_vertex_strategies_and_other_edge_strategies_as_they_are():
    tree = bf.fit("all-range:8", instances.random_tree(8, 2), noise="laplace", max_steps=30)
    assert tree.strategy.kind == "vertex"
    grid = bf.fit("all-range:3x3", "threshold:3x3:1", noise="laplace", max_steps=15)
    assert grid.strategy.kind == "edge"
    assert grid.strategy.matrix().shape[1] == grid.problem.policy.num_edges
    deviations = grid.per_query_stddev(epsilon=1.0)
    assert (deviations**2).sum() == pytest.approx(grid.expected_error(epsilon=1.0), rel=1e-9)
    np.testing.assert_allclose(grid.reconstruction() @ grid.strategy.matrix(), grid.problem.W_G(), atol=1e-9)


def test_edge_strategies_travel_in_bundles(tmp_path):
    grid = bf.fit("all-range:3x3", "threshold:3x3:1", noise="laplace", max_steps=15)
    loaded = bf.load(grid.save(tmp_path / "grid.bf"))
    assert loaded.strategy.kind == "edge"
    assert np.array_equal(loaded.strategy.integers, grid.strategy.integers)
    assert loaded.reached == pytest.approx(dict(grid.reached))


def test_what_an_edge_strategy_publishes_moves_by_one_unit_of_noise():
    """The shift W p_e is W_G S^+ (S_e): the noise moved by a column of S, whose L1 norm is at most the sensitivity."""
    grid = bf.fit("all-range:3x3", "threshold:3x3:1", noise="laplace", max_steps=15)
    S, B = grid.strategy.matrix(), grid.reconstruction()
    W = grid.problem.workload.matrix.dense()
    for e, (u, v) in enumerate(grid.problem.policy.edges):
        shift = B @ S[:, e]
        assert np.allclose(shift, W[:, u] - W[:, v]) or np.allclose(shift, W[:, v] - W[:, u])
        assert np.abs(S[:, e]).sum() <= grid.certificate.sensitivity * (1 + 1e-15)


@pytest.mark.parametrize(
    ("W", "G", "family"),
    [
        (np.eye(8)[:2], "cycle:8", None),
        (np.eye(3), "cycle:3", "vertex"),
        (np.array([[1.0]]), "unbounded:1", None),
        (np.eye(2), "line:2", None),
        (np.eye(6)[:1], "bounded:6", None),
    ],
)
def test_small_and_blind_workloads_run_without_warnings(W, G, family):
    made = bf.fit(W, G, noise="laplace", family=family, max_steps=10, gap=1e-9)
    assert made.unit_error >= made.bounds.lower * (1 - 1e-9)


def test_limits_never_cut_the_floors():
    made = bf.fit("all-range:16", "threshold:16:4", noise="laplace", max_steps=1)
    for module in (paper, classical):
        for found in module.floors(made.problem, "L1"):
            assert made.unit_error <= found.error * (1 + 2e-6)


def test_a_start_is_kept_and_never_got_worse_than():
    first = bf.fit("all-range:10", "bounded:10", noise="laplace", max_steps=12)
    again = bf.fit("all-range:10", "bounded:10", noise="laplace", max_steps=2, start=first)
    assert again.unit_error <= first.unit_error * (1 + 2e-6)
    with pytest.raises(ValueError, match=r"is for another policy.*same policy"):
        bf.fit("all-range:10", "line:10", noise="laplace", start=first)
    with pytest.raises(ValueError, match="must be a fit"):
        bf.fit("all-range:10", "bounded:10", noise="laplace", start=np.ones(45))


def test_another_familys_strategy_is_polished_and_never_worse():
    made = problem("all-range:8", "threshold:8:2")
    for found in classical.floors(made, "L1"):
        better = vertex.polish(made, found)
        assert better.error <= found.error
        assert better.error == pytest.approx(exact_error(made, "vertex", better.matrix), rel=1e-6)


def test_an_interrupted_laplace_search_keeps_the_best_so_far():
    seen = []

    def stop(point):
        seen.append(point)
        if len(seen) == 4:
            raise KeyboardInterrupt

    made = bf.fit("all-range:12", "threshold:12:3", noise="laplace", callback=stop)
    assert made.status == "interrupted"
    assert made.unit_error == pytest.approx(seen[-1].error, rel=1e-5)


# ---------------------------------------------------------------- accuracy figures that must not regress


@pytest.mark.parametrize(
    ("W", "G", "steps", "at_most"),
    [
        ("all-range:64", "unbounded:64", 12, 2.9083),
        pytest.param("all-range:64", "bounded:64", 12, 5.104, marks=pytest.mark.slow),
        pytest.param("all-range:8x8", "threshold:8x8:1", 12, 2.316, marks=pytest.mark.slow),
        ("all-range:64", "line:64", 12, 1.011),
    ],
)
def test_known_ratios_are_reached(W, G, steps, at_most):
    made = bf.fit(W, G, noise="laplace", max_steps=steps)
    assert made.unit_error / made.matrix_bound <= at_most + 2e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("W", "G", "at_most"),
    [
        ("all-range:64", "threshold:64:4", 3.69),
        ("all-range:128", "threshold:128:4", 3.94),
        ("all-range:16x16", "threshold:16x16:1", 3.025),
        ("all-range:256", "unbounded:256", 3.853),
        ("prefix:256", "unbounded:256", 4.215),
    ],
)
def test_known_ratios_are_reached_with_default_options(W, G, at_most):
    made = bf.fit(W, G, noise="laplace")
    assert made.unit_error / made.matrix_bound <= at_most
