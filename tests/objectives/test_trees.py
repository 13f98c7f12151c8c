"""Expected errors of tree norms against sums over all vectors, direct messages and closed forms; gradients; lengths."""

import itertools

import jax
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import InputError
from hdmm_bf.objectives import trees
from hdmm_bf.objectives.tree_plans import Children, checked_tree, edge_paths, tree_plan
from hdmm_bf.objectives.trees_by_hand import FINE, SEARCH, Messages, expected_error, fine_error, reach

CHAIN = np.array([5, 5, 6, 7, 8, 6, 7, 8, -1])  # five cells
MIXED = np.array([6, 6, 6, 7, 7, 8, 8, 8, -1])  # six cells: three, two and one
FOREST = np.array([4, 4, 5, 5, -1, -1])  # four cells, two trees


def below(parents, n):
    sets = np.eye(len(parents), n)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sets[parent] += sets[node]
    return sets


def by_integration(parents, weights, V, public):
    """Return E[z^T V z] / 2 from a lattice of all z, errors of order h^2 taken out."""
    n = len(V)
    sets = below(parents, n)

    def on_lattice(h, count):
        axis = h * np.arange(-count, count + 1)
        free = n - 1 if public else n
        grid = np.stack(np.meshgrid(*[axis] * free, indexing="ij"), axis=-1).reshape(-1, free)
        z = np.hstack([grid, -grid.sum(axis=1, keepdims=True)]) if public else grid
        density = np.exp(-np.abs(z @ sets.T) @ weights)
        return float(density @ np.einsum("ki,ij,kj->k", z, V, z) / density.sum() / 2)

    coarse, fine = on_lattice(0.4, 30), on_lattice(0.2, 60)
    return (4 * fine - coarse) / 3


@pytest.mark.parametrize(
    ("workload", "policy", "parents", "public"),
    [
        ("all-range:3", "bounded:3", [3, 3, 4, 4, -1], True),
        ("prefix:3", "bounded:3", [3, 3, 3, -1], True),
        ("prefix:3", "unbounded:3", [3, 3, 4, 4, -1], False),
        ("all-range:3", "unbounded:3", [3, 3, -1, -1], False),
    ],
)
def test_the_error_is_that_of_a_sum_over_all_vectors(workload, policy, parents, public):
    problem = bf.problem(workload, policy)
    weights = np.linspace(0.9, 1.4, len(parents))
    weights[-1] = 0.0 if public else weights[-1]
    V = problem.workload.objective.gram()
    expected = by_integration(parents, weights, V, public)
    assert fine_error(tree_plan(problem, np.array(parents)), weights) == pytest.approx(expected, rel=1e-3)


def direct(problem, parents, weights, h, count):
    """Return E[z^T V z] / 2 on the lattice h Z by convolutions written out, one for every pair of cells."""
    n, N = problem.policy.num_cells, len(parents)
    forest = checked_tree(problem.policy, parents)
    s = h * np.arange(-count, count + 1)
    children = Children(forest.parents, n).of
    V = problem.workload.objective.gram()

    def root_moment(inserted):
        """Sum over roots and states of the product over inserted cells of z."""
        message = {}
        for node in range(N):
            if node < n:
                own = np.ones_like(s) if node not in inserted else s ** inserted[node]
                own = own * (s == 0) if forest.public[node] else own
            else:
                own = message[children[node][0]]
                for child in children[node][1:]:
                    own = np.convolve(own, message[child])[count : 3 * count + 1]
            weight = 0.0 if forest.public[node] else weights[node]
            message[node] = own * np.exp(-weight * np.abs(s))
        total = 1.0
        for node in np.flatnonzero(forest.parents < 0):
            total *= message[node][count] if forest.public[node] else message[node].sum()
        return total

    Z = root_moment({})
    pairs = itertools.product(range(n), repeat=2)
    return sum(V[i, j] * root_moment({i: 2} if i == j else {i: 1, j: 1}) / Z for i, j in pairs) / 2


CASES = [
    ("all-range:5", "threshold:5:2", CHAIN),
    ("prefix:5", "line:5", CHAIN),
    ("all-range:6", "unbounded:6", MIXED),
    ("identity:6", "bounded:6", MIXED),
    ("prefix:4", "unbounded:4", FOREST),
]


@pytest.mark.parametrize(("workload", "policy", "parents"), CASES)
def test_fine_errors_are_those_of_direct_convolutions(workload, policy, parents):
    problem = bf.problem(workload, policy)
    weights = np.random.default_rng(1).uniform(0.6, 1.2, len(parents))
    steps = [direct(problem, parents, weights, h, round(24 / h)) for h in (0.4, 0.2, 0.1)]
    twice = [(4 * fine - coarse) / 3 for coarse, fine in itertools.pairwise(steps)]  # errors of order h^2 out
    expected = (16 * twice[1] - twice[0]) / 15
    plan = tree_plan(problem, parents)
    assert fine_error(plan, weights) == pytest.approx(expected, rel=2e-5)
    assert expected_error(plan, weights) == pytest.approx(expected, rel=3e-3)


def random_form(n, seed):
    W = np.random.default_rng(seed).normal(size=(n + 2, n))
    return bf.workload.from_matrix(W)


@pytest.mark.parametrize("parents", [MIXED, np.array([6, 7, 6, 7, 8, 8, 9, 9, 9, -1])])
def test_any_workload_and_sets_that_are_no_intervals_agree_with_direct_convolutions(parents):
    problem = bf.problem(random_form(6, 0), "bounded:6")
    weights = np.random.default_rng(2).uniform(0.6, 1.2, len(parents))
    steps = [direct(problem, parents, weights, h, round(20 / h)) for h in (0.4, 0.2)]
    assert fine_error(tree_plan(problem, parents), weights) == pytest.approx((4 * steps[1] - steps[0]) / 3, rel=1e-3)


def test_intervals_and_any_other_sets_take_two_ways_to_the_same_error():
    short, dense = bf.problem("all-range:6", "unbounded:6"), bf.workload.all_range(6).matrix.dense()
    long = bf.problem(bf.workload.from_matrix(dense), "unbounded:6")
    weights = np.random.default_rng(3).uniform(0.3, 1.0, len(MIXED))
    few, many = tree_plan(short, MIXED), tree_plan(long, MIXED)
    assert (few.linear.shape[1], many.linear.shape[1]) == (1, 6)
    assert expected_error(few, weights) == pytest.approx(expected_error(many, weights), rel=1e-12)


def test_independent_cells_have_laplace_noise_and_public_counts_none():
    problem = bf.problem("identity:3", bf.policy.from_edges([0, 1], [bf.policy.BOTTOM] * 2, 3))
    plan = tree_plan(problem, np.array([-1, -1, -1]))
    assert fine_error(plan, np.array([0.5, 2.0, 7.0])) == pytest.approx(1 / 0.25 + 1 / 4, rel=1e-5)


def test_a_line_without_weights_on_its_inner_cells_is_the_laplace_mechanism_on_its_edges():
    n = 8
    problem = bf.problem(f"all-range:{n}", f"line:{n}")
    parents = np.array([8, 8, 9, 10, 11, 12, 13, 13, 9, 10, 11, 12, 13, -1])
    weights = np.array([1.0, *[0.0] * 6, *[1.0] * 6, 0.0])
    W_G = problem.W_G()
    assert fine_error(tree_plan(problem, parents), weights) == pytest.approx((W_G**2).sum(), rel=1e-5)


def test_totals_of_sets_need_no_moments_and_equal_subtrees_are_computed_once():
    sizes = (4, 3, 5)
    n = 60
    sets = [np.kron(np.eye(n // width), np.ones(width)) for width in (1, 5, 15, 60)]
    problem = bf.problem(bf.workload.from_matrix(np.vstack(sets), domain=sizes), bf.policy.unbounded(sizes))
    parents = np.concatenate([60 + np.arange(n) // 5, 72 + np.arange(12) // 3, np.full(4, 76), [-1]])
    groups = np.repeat([0, 1, 2, 3], [60, 12, 4, 1])
    plan = tree_plan(problem, parents, groups)
    assert plan.linear.shape[1] == 0
    assert plan.group.size < 12
    levels = np.array([0.4, 0.3, 0.2, 0.1])
    apart = tree_plan(problem, parents)
    messages = Messages(plan, levels, reach(plan, levels, SEARCH), 40)
    alone = Messages(apart, levels[groups], reach(plan, levels, SEARCH), 40)
    assert messages.error == pytest.approx(alone.error, rel=1e-9)
    assert np.allclose(messages.slope(), np.bincount(groups, alone.slope()), rtol=1e-9)


@pytest.mark.parametrize(("workload", "policy", "parents"), CASES[:4])
def test_gradients_are_those_of_finite_differences(workload, policy, parents):
    plan = tree_plan(bf.problem(workload, policy), parents)
    weights = np.random.default_rng(4).uniform(0.3, 1.0, len(parents))
    radius, points = SEARCH.of(plan, weights)
    slope = Messages(plan, weights, radius, points).slope()
    for node, step in enumerate(1e-5 * np.eye(len(parents))):
        up, down = (Messages(plan, weights + sign * step, radius, points).error for sign in (1, -1))
        assert slope[node] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("workload", "policy", "parents"), [CASES[0], CASES[2]])
def test_jax_and_numpy_agree_in_value_and_gradient(workload, policy, parents):
    problem = bf.problem(workload, policy)
    weights = np.random.default_rng(5).uniform(0.3, 1.0, len(parents))
    plan = tree_plan(problem, parents)
    error = bf.objectives.tree_error(problem, parents)
    written = Messages(plan, weights, reach(plan, weights, SEARCH), error.points)
    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(error))(weights)
    assert float(value) == pytest.approx(written.error, rel=1e-12)
    assert np.allclose(slope, written.slope(), rtol=1e-9)
    again = trees.plan_of(error)
    assert expected_error(again, weights) == expected_error(plan, weights)


def test_the_total_written_out_is_the_one_that_jax_derives_and_does_not_change_with_the_scale():
    problem = bf.problem("all-range:5", "threshold:5:2")
    loss = bf.objectives.tree_total(problem, CHAIN, power=50.0, log=True)
    weights = np.random.default_rng(6).uniform(0.1, 0.3, len(CHAIN))
    value, slope = trees.written_out(loss)(weights)
    with jax.enable_x64(True):
        compiled = jax.jit(jax.value_and_grad(loss))
        expected, derived = compiled(weights)
        twice = float(compiled(2 * weights)[0])
    assert value == pytest.approx(float(expected), rel=1e-4)  # each chooses its grid for its own scale
    assert np.allclose(slope, derived, rtol=1e-2, atol=1e-3)
    assert twice == pytest.approx(float(expected), rel=1e-9)


def test_minimising_the_total_beats_equal_weights():
    problem = bf.problem("all-range:6", "unbounded:6")
    loss = bf.objectives.tree_total(problem, MIXED, power=300.0, log=True)
    start = np.full(len(MIXED), 0.3)
    found = bf.objectives.minimise(loss, start, nonnegative=True, steps=40)
    assert found.value < trees.written_out(loss)(start)[0] - 0.05


def test_lengths_are_those_of_paths():
    problem = bf.problem("identity:5", "threshold:5:2")
    weights = np.arange(1.0, 10.0)
    sets = below(CHAIN, 5)
    lengths = [weights[:-1] @ np.abs(sets[:-1, u] - sets[:-1, v]) for u, v in problem.policy.edges]
    assert float(bf.objectives.tree_length(problem, CHAIN)(weights)) == max(lengths)
    smooth = float(bf.objectives.tree_length(problem, CHAIN, power=200.0)(weights))
    assert max(lengths) <= smooth <= 1.02 * max(lengths)
    assert sorted((edge_paths(problem.policy, CHAIN) @ weights).tolist()) == sorted(set(lengths))


def test_edges_to_bottom_go_up_through_the_root():
    problem = bf.problem("identity:4", "unbounded:4")
    weights = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert float(bf.objectives.tree_length(problem, FOREST)(weights)) == 10.0


@pytest.mark.parametrize(
    ("parents", "words"),
    [
        ([5, 5, 5, 5, 4, -1], "no forest"),
        ([4, 4, 5, 5, -1, -1], "several trees"),
        ([4, 4, 4, 4, -1, -1], "children"),
        ([4, 4, 4, 5, 5, -1, -1][:6] + [-1], "children"),
    ],
)
def test_what_is_no_tree_over_the_cells_is_refused(parents, words):
    with pytest.raises(InputError, match=words):
        bf.objectives.tree_error(bf.problem("identity:4", "bounded:4"), parents)


def test_a_tree_over_two_components_is_refused():
    policy = bf.policy.from_edges([0, 2], [1, 3], 4)
    with pytest.raises(InputError, match="several components"):
        bf.objectives.tree_error(bf.problem("identity:4", policy), [4, 4, 4, 4, -1])


def test_single_children_and_wrong_numbers_of_weights_are_refused():
    problem = bf.problem("identity:2", "unbounded:2")
    with pytest.raises(InputError, match="single child"):
        bf.objectives.tree_error(problem, [2, 2, 3, -1])
    with pytest.raises(InputError, match="do not fit the tree"):
        bf.objectives.tree_error(problem, [2, 2, -1])(np.ones(2))


def test_weights_that_hold_nothing_have_no_finite_error():
    problem = bf.problem("identity:2", "bounded:2")
    weights = np.zeros(3)
    assert fine_error(tree_plan(problem, np.array([2, 2, -1])), weights) == np.inf
    assert float(bf.objectives.tree_error(problem, [2, 2, -1])(weights)) == bf.objectives.UNSUPPORTED


def test_the_grid_holds_sums_of_many_cells():
    n = 200
    problem = bf.problem(f"identity:{n}", f"unbounded:{n}")
    parents, weights = np.append(np.full(n, n), -1), np.append(np.ones(n), 1e-3)
    plan = tree_plan(problem, parents, np.append(np.zeros(n, dtype=int), 1))
    assert reach(plan, np.array([1.0, 1e-3]), FINE) > 6 * np.sqrt(2 * n)
    assert expected_error(plan, weights[[0, -1]]) == pytest.approx(n, rel=3e-3)
