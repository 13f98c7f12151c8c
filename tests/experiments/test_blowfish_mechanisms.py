"""Mechanisms under policies: trees, lines with consistency, grids, cubes, and their privacy by brute force."""

import math

import cvxpy as cp
import numpy as np
import pytest

from experiments.mechanisms.dawa import dawa
from experiments.mechanisms.draws import Seeded
from experiments.mechanisms.grids import cube_noise, cubes, internal_noise, rows_and_columns
from experiments.mechanisms.hierarchy import hierarchical
from experiments.mechanisms.mechanism import Mechanism, Stage, laplace
from experiments.mechanisms.trees import approximated, non_decreasing, run_on_tree, transformed
from experiments.mechanisms.wavelet import privelet
from hdmm_bf import policy, workload
from hdmm_bf.problem.transform import Problem, to_edges
from hdmm_bf.strategies.baselines import paper
from hdmm_bf.strategies.baselines.classical import haar
from tests.support import instances
from tests.support.noises import Played, Recorder, covariance, edge_shifts, mean_of, noise_map, privacy_loss


def exact(counts, epsilon, draw):
    """A mechanism without noise."""
    return np.asarray(counts, dtype=float)


TREES = [policy.line(9), policy.star_tree(7), policy.unbounded(6), policy.h_theta(13, 4), instances.random_tree(12, 3)]


@pytest.mark.parametrize("tree", TREES, ids=lambda p: p.spec)
def test_with_an_exact_mechanism_the_answers_are_those_of_the_workload(tree):
    """Quotes run_on_tree: with an exact mechanism the answers are W x."""
    n = tree.num_cells
    W = workload.from_matrix(instances.real_matrices(n, 1))
    x = np.random.default_rng(0).integers(0, 20, n)
    np.testing.assert_allclose(run_on_tree(exact, Problem(W, tree), x, 1.0, Played([])), W.matrix.mv(x), atol=1e-9)


def test_a_users_mechanism_sees_the_edges_and_its_estimate_is_answered_on_them():
    """W_G times the estimate plus the public constants, with the dense matrices as oracle."""
    tree = policy.h_theta(11, 3)
    made = Problem(workload.all_range(11), tree)
    x = np.arange(11) ** 2
    seen = {}

    def users_own(counts, epsilon, draw):
        seen.update(counts=counts, epsilon=epsilon)
        return np.cos(np.arange(counts.size))

    answers = run_on_tree(users_own, made, x, 0.3, Played([]))
    np.testing.assert_array_equal(seen["counts"], to_edges(made, x))
    assert seen["epsilon"] == 0.3
    constants = made.constants(made.grounding.totals(x))
    np.testing.assert_allclose(answers, made.W_G() @ np.cos(np.arange(10)) + constants)


@pytest.mark.parametrize("tree", TREES, ids=lambda p: p.spec)
@pytest.mark.parametrize("inner", [laplace(), hierarchical()], ids=lambda m: m.name)
def test_neighbours_under_a_tree_are_hidden_with_epsilon(tree, inner):
    """Quotes transformed: (epsilon, policy)-private; the loss of every edge by linear programming."""
    B, scales = noise_map(transformed(inner, tree), tree.num_cells, epsilon=0.5)
    losses = [privacy_loss(B, scales, shift) for shift in edge_shifts(tree)]
    assert max(losses) <= 0.5 * (1 + 1e-9)
    if inner.name == "Laplace":
        assert losses == pytest.approx([0.5] * tree.num_edges)


def test_the_total_is_public_and_stays_exact_without_bottom():
    x = np.random.default_rng(0).integers(0, 9, 64)
    for made in (
        transformed(dawa(), policy.line(64), consistent=True),
        rows_and_columns(policy.threshold("8x8", 1)),
        cubes(policy.threshold("8x8", 4), side=2),
    ):
        assert made(x, 0.1, Seeded(np.random.default_rng(1))).sum() == pytest.approx(x.sum())


def test_ranges_under_the_line_have_the_variance_of_two_draws():
    """Transformed + Laplace: 4 / epsilon^2 for inner ranges, 2 / epsilon^2 for those that touch one end, 0 for all."""
    B, scales = noise_map(transformed(laplace(), policy.line(10)), 10, epsilon=0.5)
    W = workload.all_range(10)
    variances = np.diag(W.matrix.dense() @ covariance(B, scales) @ W.matrix.dense().T)
    for i, variance in enumerate(variances):
        low, high = W.matrix.bounds(i)
        assert variance == pytest.approx(2 / 0.25 * ((low > 0) + (high < 9)), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_consistency_is_the_projection_on_non_decreasing_bounded_vectors(seed):
    """Quotes non_decreasing: the least-squares projection, by quadratic programming."""
    rng = np.random.default_rng(seed)
    noisy = np.sort(rng.integers(0, 20, 15)) + rng.laplace(0, 8, 15)
    z = cp.Variable(15)
    cp.Problem(cp.Minimize(cp.sum_squares(z - noisy)), [cp.diff(z) >= 0, z >= 0, z <= 20]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(non_decreasing(noisy, np.array([20])), z.value, atol=1e-4)


def test_consistency_gives_counts_that_are_not_negative_and_less_error_on_sparse_data():
    x = np.zeros(512, dtype=int)
    x[[5, 99, 400]] = [300, 20, 700]
    draw = Seeded(np.random.default_rng(0))
    plain, better = transformed(laplace(), policy.line(512)), transformed(laplace(), policy.line(512), consistent=True)
    assert better(x, 0.1, draw).min() >= 0
    errors = [[np.mean((m(x, 0.1, draw) - x) ** 2) for _ in range(10)] for m in (plain, better)]
    assert np.mean(errors[0]) > 5 * np.mean(errors[1])


@pytest.mark.parametrize("sizes", [(4, 5), (3, 3), (2, 3, 2), (1, 4)])
def test_rows_and_columns_are_the_strategy_of_the_paper(sizes):
    """Quotes rows_and_columns: the noise is that of the strategy, each slab with its own sensitivity."""
    grid = policy.threshold(sizes, 1)
    n = grid.num_cells
    B, scales = noise_map(rows_and_columns(grid), n, epsilon=0.5)
    S = paper.rows_and_columns(grid)
    P = np.stack(list(edge_shifts(grid)), axis=1)
    counts = [f.num_edges * n // f.num_cells for f in grid.factors]
    columns = np.split(np.abs(S).sum(axis=0), np.cumsum(counts)[:-1])
    own = np.concatenate([np.full(c.size, c.max(initial=0.0)) for c in columns])
    noise = P @ np.linalg.inv(S) * own / 0.5
    np.testing.assert_allclose(covariance(B, scales), 2 * noise @ noise.T, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("sizes", [(4, 5), (2, 3, 2), (7,)])
def test_neighbours_on_a_grid_are_hidden_with_epsilon(sizes):
    grid = policy.threshold(sizes, 1)
    B, scales = noise_map(rows_and_columns(grid), grid.num_cells, epsilon=0.5)
    losses = [privacy_loss(B, scales, shift) for shift in edge_shifts(grid)]
    assert 0.2 < max(losses) <= 0.5 * (1 + 1e-9)


CUBES = [((13,), 4, 4), ((5, 6), 4, 2), ((4, 4), 8, 4), ((3, 4, 2), 6, 2), ((6, 6), 2, 1)]


@pytest.mark.parametrize(("sizes", "limit", "side"), CUBES)
def test_neighbours_under_a_threshold_are_hidden_with_epsilon(sizes, limit, side):
    """Quotes cubes: (epsilon, policy)-private; and the spanner's own edges with epsilon / stretch."""
    p = policy.threshold(sizes, limit)
    spanner = policy.h_theta(sizes, side * len(sizes))
    factor = policy.stretch(p, spanner)
    B, scales = noise_map(cubes(p, side=side), p.num_cells, epsilon=0.6)
    step = max(1, p.num_edges // 60)
    assert max(privacy_loss(B, scales, shift) for shift in list(edge_shifts(p))[::step]) <= 0.6 * (1 + 1e-9)
    inner = [privacy_loss(B, scales, shift) for shift in edge_shifts(spanner)]
    assert 0.2 * 0.6 / factor < max(inner) <= 0.6 / factor * (1 + 1e-9)


def layered(sizes, side):
    """The matrix of the internal edges in two dimensions: wavelets over the layers of both attributes."""
    rows, columns = (haar(size) for size in sizes)
    blocks = [np.kron(np.eye(size // side), haar(side)) for size in sizes]
    return [np.kron(blocks[0], columns), np.kron(rows, blocks[1])]


def test_internal_edges_are_combined_by_least_squares():
    """On sizes that are powers of two: the covariance of weighted least squares over both families of layers."""
    sizes, side = (4, 8), 2
    recorder = Recorder()
    internal_noise(sizes, side, 1.0, recorder)
    scales = recorder.scales()
    B = np.stack([internal_noise(sizes, side, 1.0, Played(unit)).ravel() for unit in np.eye(scales.size)], axis=1)
    families = layered(sizes, side)
    for A, (scale, _) in zip(families, recorder.calls, strict=True):
        assert scale == 2 * np.abs(A).sum(axis=0).max()
    A = np.vstack(families) / scales[:, None]
    np.testing.assert_allclose(covariance(B, scales), 2 * np.linalg.inv(A.T @ A), atol=1e-8)


def test_cubes_on_a_line_have_noise_on_groups_and_on_the_path_of_corners():
    noise = cube_noise(policy.line(8).domain, 4, 1.0, Seeded(np.random.default_rng(0)))
    assert noise.sum() == pytest.approx(0, abs=1e-9)
    p = policy.threshold(64, 4)
    B, scales = noise_map(cubes(p, side=4), 64)
    longest = np.zeros(64)
    longest[3:60] = 1  # from corner to corner: four external edges at most, groups cancel
    assert longest @ covariance(B, scales) @ longest < 40 * 2 * 9


def test_subgraph_approximation_divides_epsilon_by_the_computed_stretch():
    """Quotes approximated: the inner mechanism gets epsilon / stretch."""
    p, tree = policy.cycle(7), policy.spanning_tree(policy.cycle(7))
    recorder = Recorder()
    approximated(laplace(), p, tree=tree)(np.ones(7, dtype=int), 1.2, recorder)
    assert recorder.calls == [(pytest.approx(6 / 1.2), 6)]
    B, scales = noise_map(approximated(laplace(), p, tree=tree), 7, epsilon=1.2)
    losses = [privacy_loss(B, scales, shift) for shift in edge_shifts(p)]
    assert max(losses) == pytest.approx(1.2)
    assert sorted(losses)[0] == pytest.approx(0.2)


def test_data_dependent_mechanisms_run_through_trees_with_their_stages():
    made = approximated(dawa(share=0.25), policy.threshold(64, 4), tree=policy.h_theta(64, 4))
    assert made.spends(1.0) == {"partition (stretch 3)": 0.25, "bucket totals (stretch 3)": 0.75}
    assert made.name == "Transformed + DAWA"


def test_the_error_of_transformed_mechanisms_is_the_closed_form():
    x, W = np.arange(16), workload.all_range(16).matrix
    draw = Seeded(np.random.default_rng(0))
    made = transformed(privelet(15), policy.line(16))
    B, scales = noise_map(made, 16, epsilon=0.5)
    expected = float(np.trace(W.dense() @ covariance(B, scales) @ W.dense().T))
    errors = [float(((W.mv(made(x, 0.5, draw)) - W.mv(x)) ** 2).sum()) for _ in range(600)]
    assert mean_of(errors, expected, control=1.4)


def test_a_policy_without_edges_releases_everything_exactly():
    stage = (Stage("all", 1.0),)
    never = Mechanism("never called", stage, lambda counts, epsilon, draw: np.full(counts.size, math.nan))
    x = np.array([4, 5, 6])
    np.testing.assert_array_equal(transformed(never, policy.empty(3))(x, 1.0, Played([])), x)
