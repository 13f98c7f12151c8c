"""Laplace strategies: losses and gradients, floors, families, the portfolio's promises."""

import itertools
import math

import cvxpy as cp
import jax
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._linalg import in_float64
from hdmm_bf.objectives import losses
from hdmm_bf.objectives.minimise import _gradient, _minimise_on_device, minimise
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import registry
from hdmm_bf.strategies.baselines import classical, paper
from hdmm_bf.strategies.drafts import column_norms, draft, edge_gram
from hdmm_bf.strategies.laplace import cell_budgets as budget
from hdmm_bf.strategies.laplace import dictionary, portfolio, vertex
from tests.support import instances

RNG = np.random.default_rng(5)


def problem(W, G):
    return Problem(workload.parse(W) if isinstance(W, str) else W, policy.parse(G) if isinstance(G, str) else G)


def exact_error(made, kind, matrix):
    """sensitivity^2 ||W A^+||_F^2 by pseudo-inverse, from the definition."""
    if kind == "vertex":
        return (
            np.abs(matrix @ made.P.dense()).sum(axis=0).max() ** 2
            * np.linalg.norm(made.W_D() @ np.linalg.pinv(matrix)) ** 2
        )
    return np.abs(matrix).sum(axis=0).max() ** 2 * np.linalg.norm(made.W_G() @ np.linalg.pinv(matrix)) ** 2


# ---------------------------------------------------------------- losses


def loss_cases():
    made = problem("all-range:6", "threshold:6:2")
    V, P, V_G = made.gram, made.P.dense(), edge_gram(made)
    D, _ = budget.with_grounds(made)
    e, n, N = P.shape[1], len(V), len(D)
    return {
        "p-identity": (losses.p_identity, RNG.uniform(0.2, 1, (3, e)), (V_G,)),
        "free": (losses.free, RNG.uniform(0.1, 1, (2, e + 3, e)), (V_G + np.eye(e),)),
        "budget": (losses.signed_rows, RNG.uniform(0.1, 1, (2, 3, N)), (np.full(N, 0.5), V, D)),
        "vertex": (losses.vertex, RNG.normal(size=(n + 2, n)), (V, P, 0.05, 20.0)),
    }


@pytest.mark.parametrize("name", ["p-identity", "free", "budget", "vertex"])
def test_gradients_agree_with_finite_differences(name):
    loss, variables, constants = loss_cases()[name]

    @in_float64
    def value(v):
        return float(jax.jit(loss)(v, *constants))

    @in_float64
    def gradient(v):
        return np.asarray(jax.jit(jax.grad(loss))(v, *constants))

    slope = gradient(variables)
    for index in list(itertools.product(*map(range, variables.shape)))[::5]:
        step = np.zeros_like(variables)
        step[index] = 1e-6
        finite = (value(variables + step) - value(variables - step)) / 2e-6
        assert slope[index] == pytest.approx(finite, rel=1e-4, abs=1e-7)


def test_the_p_identity_loss_is_the_error_of_its_strategy():
    made = problem("all-range:6", "threshold:6:2")
    roots = RNG.uniform(0.2, 1, (3, made.policy.num_edges))
    S = np.vstack([np.eye(made.policy.num_edges), roots**2])
    S = S / S.sum(axis=0)
    value = in_float64(lambda: float(jax.jit(losses.p_identity)(roots, edge_gram(made))))()
    assert math.exp(value) == pytest.approx(exact_error(made, "edge", S), rel=1e-9)
    assert draft(made, "edge", S, norm="L1", origin="").error == pytest.approx(exact_error(made, "edge", S), rel=1e-9)


def test_the_budget_loss_bounds_the_error_of_its_strategy_and_is_exact_on_complete_graphs():
    for G, exact in (("bounded:6", True), ("threshold:6:2", False)):
        made = problem("all-range:6", G)
        D, _ = budget.with_grounds(made)
        split = RNG.uniform(0.1, 1, (2, 3, len(D)))
        given = split, np.full(6, 0.5), made.gram, D
        value = math.exp(in_float64(lambda given=given: float(jax.jit(losses.signed_rows)(*given)))())
        A = np.vstack([np.eye(6), split[0] - split[1]]) / (1 + split.sum(axis=(0, 1))) * 0.5 @ D
        assert np.abs(A @ made.P.dense()).sum(axis=0).max() <= 1 + 1e-12
        assert exact_error(made, "vertex", A) <= value * (1 + 1e-9)
        if exact:
            trace = np.trace(made.gram @ np.linalg.inv(A.T @ A))
            assert value == pytest.approx(trace, rel=1e-9)


def test_the_smoothed_vertex_loss_tends_to_the_exact_error():
    made = problem("all-range:6", "threshold:6:2")
    A = RNG.normal(size=(8, 5))
    value = in_float64(lambda: float(jax.jit(losses.vertex)(A, made.gram, made.P.dense(), 1e-9, 1e7)))()
    assert math.exp(value) == pytest.approx(exact_error(made, "vertex", A), rel=1e-5)
    padded = in_float64(
        lambda: float(jax.jit(losses.vertex)(np.vstack([A, np.zeros((3, 5))]), made.gram, made.P.dense(), 1e-9, 1e7))
    )()
    assert padded == pytest.approx(value, rel=1e-6)


def test_the_minimiser_never_ends_worse_than_it_started():
    """Quotes minimise: The result is never worse than the start."""
    V = edge_gram(problem("all-range:8", "unbounded:8"))
    for _ in range(3):
        roots = RNG.uniform(0, 1, (2, 8))
        before = in_float64(lambda r=roots: float(jax.jit(losses.p_identity)(r, V)))()
        value, found = minimise(losses.p_identity, roots, V, max_iterations=200)
        assert value <= before
        again = in_float64(lambda r=found: float(_gradient(losses.p_identity)(r, V)[0]))()
        assert again == pytest.approx(value, rel=1e-9)


def test_both_engines_descend_to_the_same_minimum_of_a_convex_loss():
    centre = np.linspace(-1, 1, 6)

    def bowl(x, c):
        return ((x - c) ** 2).sum() + ((x - c) ** 4).sum()

    for engine in (lambda: minimise(bowl, np.ones(6), centre, max_iterations=60), lambda: _device(bowl, centre)):
        value, found = engine()
        assert value == pytest.approx(0, abs=1e-9)
        np.testing.assert_allclose(found, centre, atol=1e-4)


def _device(loss, centre):
    return in_float64(_minimise_on_device)(loss, np.ones(6), (centre,), 40)


def test_the_error_of_an_ill_conditioned_strategy_keeps_its_digits():
    """[I; Theta] with a huge row: squaring the condition number would lose half the digits."""
    made = problem("identity:4", "unbounded:4")
    A = np.vstack([1e-6 * np.eye(4), np.ones((1, 4)), np.diag([1, -1, 1, -1.0])])
    A[5:] *= 1e-5
    found = draft(made, "vertex", A, norm="L1", origin="")
    assert found.error == pytest.approx(exact_error(made, "vertex", A), rel=1e-9)
    assert draft(made, "vertex", np.ones((6, 4)), norm="L1", origin="").error == math.inf
    assert draft(made, "vertex", np.eye(4)[:3], norm="L1", origin="").error == math.inf


# ---------------------------------------------------------------- floors


@pytest.mark.parametrize(
    ("W", "G", "name", "ratio"),
    [
        ("all-range:64", "threshold:64:4", "identity on H^theta", 9.35),
        ("all-range:64", "threshold:64:4", "identity on edges", 4.06),
        ("all-range:64", "bounded:64", "identity", 5.118),
        ("all-range:8x8", "threshold:8x8:1", "rows and columns of wavelets", 7.217),
        ("all-range:8x8", "threshold:8x8:1", "identity on edges", 2.316),
        ("all-range:64", "line:64", "identity on edges", 1.011),
    ],
)
def test_the_papers_and_classical_mechanisms_have_their_known_ratios(W, G, name, ratio):
    made = problem(W, G)
    table = portfolio.Table()
    drafts = {d.origin: d for d in portfolio.floors(made, table, "L1")}
    lower = bf.bound(made.workload, made.policy, gap=1e-5).lower
    assert drafts[name].error / lower == pytest.approx(ratio, abs=0.005)
    assert table.errors[name] == drafts[name].error


@pytest.mark.parametrize("G", ["unbounded:9", "threshold:9:2", "cycle:9", "threshold:3x3:1", "bounded:9"])
def test_every_floor_has_the_error_of_its_definition(G):
    made = problem(workload.all_range(policy.parse(G).domain), G)
    for module in (paper, classical):
        for found in module.floors(made, "L1"):
            assert found.error == pytest.approx(exact_error(made, found.kind, found.matrix), rel=1e-8), found.origin
            assert column_norms(made, found.kind, found.matrix, norm="L1").max() == pytest.approx(1)


def test_the_subgraph_mechanism_is_at_least_as_good_as_its_stretch_promises():
    made = problem("all-range:16", "threshold:16:4")
    spanner = policy.h_theta(16, 4)
    inverse = paper.tree_inverse(spanner)
    tree_error = np.linalg.norm(Problem(made.workload, spanner).W_G()) ** 2
    promised = policy.stretch(made.policy, spanner) ** 2 * tree_error
    assert exact_error(made, "vertex", inverse) <= promised * (1 + 1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_wavelets_and_hierarchies_have_their_shape(size):
    H = classical.haar(size)
    assert H.shape == (size, size)
    assert np.linalg.matrix_rank(H) == size
    np.testing.assert_array_equal(H @ H.T, np.diag(np.diag(H @ H.T)) if size in (1, 2, 8) else H @ H.T)
    levels = classical.hierarchy(size, 2)
    assert len(levels) == 1 + math.ceil(math.log2(size))
    assert all(np.array_equal(level.sum(axis=0), np.ones(size)) for level in levels)


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
    first, second = (bf.fit("all-range:12", "threshold:12:3", noise="laplace", max_steps=40, seed=3) for _ in range(2))
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
    made = bf.fit(W, G, noise="laplace", family=family, max_steps=30, gap=1e-9)
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


# ---------------------------------------------------------------- dictionaries


def test_decompositions_are_the_exact_sensitivity():
    """Quotes decompositions: sum_j w_j |y_je| is the exact L1 sensitivity of the edge, by cvxpy."""
    made = problem("all-range:5", "threshold:5:2")
    P = made.P.dense()
    D = np.hstack([P, np.eye(4)])
    w = RNG.uniform(0.3, 2, size=D.shape[1])
    Y = dictionary.decompositions(made, D, w)
    np.testing.assert_array_equal(D @ Y, P)
    for e in range(P.shape[1]):
        y = cp.Variable(D.shape[1])
        cp.Problem(cp.Minimize(w @ cp.abs(y)), [D @ y == P[:, e]]).solve(solver=cp.CLARABEL)
        assert w @ np.abs(Y[:, e]) == pytest.approx(w @ np.abs(y.value), rel=1e-6)


def test_best_scales_solve_the_convex_problem():
    M, c = RNG.integers(0, 3, size=(6, 9)).astype(float), RNG.uniform(0.5, 3, size=6)
    w = dictionary.best_scales(M, c)
    assert (M.T @ w).max() == pytest.approx(1)
    x = cp.Variable(6, pos=True)
    optimum = cp.Problem(cp.Minimize(c @ cp.power(x, -2)), [M.T @ x <= 1]).solve(solver=cp.CLARABEL)
    assert (c / w**2).sum() == pytest.approx(optimum, rel=1e-4)


def test_alternating_never_gets_worse():
    made = problem("all-range:7", "threshold:7:2")
    errors = [d.error for d in dictionary.steps(made, seed=0)]
    assert errors == sorted(errors, reverse=True)
    identity_on_edges = np.trace(edge_gram(made))
    assert errors[-1] <= identity_on_edges * (1 + 1e-6)


# ---------------------------------------------------------------- accuracy figures that must not regress


@pytest.mark.parametrize(
    ("W", "G", "steps", "at_most"),
    [
        ("all-range:64", "unbounded:64", 75, 2.909),
        ("all-range:64", "bounded:64", 30, 5.118),
        ("all-range:8x8", "threshold:8x8:1", 12, 2.316),
        ("all-range:64", "line:64", 12, 1.011),
    ],
)
def test_known_ratios_are_reached(W, G, steps, at_most):
    made = bf.fit(W, G, noise="laplace", max_steps=steps)
    assert made.unit_error / made.bounds.lower <= at_most + 2e-4


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
    assert made.unit_error / made.bounds.lower <= at_most
