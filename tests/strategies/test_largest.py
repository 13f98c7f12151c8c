"""The largest variance, targets and own functions against the convex programme, and figures that are known."""

import cvxpy as cp
import numpy as np
import pytest

import hdmm_bf as bf
from tests.support import goals
from tests.support.mistakes import _as_users_run_it  # noqa: F401  (checks of types in every step take long)

KINDS = ("connected", "parts", "bottom")
AGREES = 1e-6


def random_problem(seed):
    """Queries, policy, and both over the cells that stay."""
    rng = np.random.default_rng(seed)
    n, edges = goals.random_edges(rng, KINDS[seed % 3])
    W = goals.random_queries(rng, n)
    return rng, W, bf.policy.from_edges(*np.array(edges).T, n), *goals.grounded(W, edges)


def assert_optimal(made, optimum):
    """The proven bound and the value are both the least value."""
    assert made.objective_value == pytest.approx(optimum, rel=AGREES)
    assert made.objective_bound == pytest.approx(optimum, rel=AGREES)


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_variance_is_that_of_the_semidefinite_programme(seed):
    _, W, G, W_D, P = random_problem(seed)
    made = bf.fit(W, G, objective="largest", gap=1e-7, max_steps=300)
    assert_optimal(made, goals.optimum(W_D, P, lambda v: cp.max(cp.hstack(v))))


@pytest.mark.parametrize("seed", range(6, 10))
def test_targets_are_met_as_well_as_by_the_semidefinite_programme(seed):
    rng, W, G, W_D, P = random_problem(seed)
    c = np.exp(rng.uniform(-1, 1, len(W)))
    made = bf.fit(W, G, targets=c, gap=1e-7, max_steps=300)
    assert_optimal(made, goals.optimum(W_D, P, lambda v: cp.max(cp.hstack(v) / c**2)))


@pytest.mark.parametrize("seed", range(3))
def test_the_worst_group_is_that_of_the_semidefinite_programme(seed):
    _, W, G, W_D, P = random_problem(seed)
    group = np.arange(len(W)) % 3
    made = bf.fit(W, G, objective="largest", groups=group, gap=1e-7, max_steps=300)

    def worst(v):
        v = cp.hstack(v)
        return cp.max(cp.hstack([cp.sum(v[group == g]) / np.sum(group == g) for g in range(3)]))

    assert_optimal(made, goals.optimum(W_D, P, worst))


@pytest.mark.parametrize("seed", range(3))
def test_a_convex_function_of_ones_own_is_as_small_as_in_the_convex_programme(seed):
    rng, W, G, W_D, P = random_problem(seed)
    a = rng.uniform(0.5, 2, len(W))
    made = bf.fit(W, G, objective=lambda v: a @ v**2, gap=1e-7)
    assert made.own.shape == "convex"
    assert made.certified
    assert_optimal(made, goals.optimum(W_D, P, lambda v: a @ cp.square(cp.hstack(v))))


@pytest.mark.parametrize("function", [lambda v: v[0], lambda v: v[0] ** 2], ids=["v0", "v0 squared"])
def test_a_function_that_leaves_queries_out_proves_no_more_than_holds(function):
    """With X = [[1, c], [c, 1]] the first variance is 2 / (1 + c): the least, 1, is approached as c goes to 1."""
    W = np.array([[1.0, 1.0], [1000.0, -1000.0]])
    made = bf.fit(W, "unbounded:2", objective=function, gap=1e-9, max_steps=20)
    assert 0.99 < made.objective_bound <= 1 + 1e-12
    assert made.objective_value >= 1


@pytest.mark.parametrize("seed", [3, 4, 5, 32, 33, 34, 35])
def test_a_step_that_goes_too_far_is_not_repeated_for_ever(seed):
    rng, W, G, *_ = random_problem(seed)
    made = bf.fit(W, G, targets=np.exp(rng.uniform(-1, 1, len(W))), max_steps=100)
    assert made.certified


# Known figures, for sensitivity 1


def random_ranges():
    draw = np.random.RandomState(0)  # the stream of np.random.seed(0)
    W = np.zeros((128, 64))
    for row in W:
        low, high = sorted((draw.randint(64), draw.randint(64)))
        draw.randint(1, 11)
        row[low : high + 1] = 1
    return W


def age_pyramids():
    suffixes = np.triu(np.ones((116, 116)))
    return np.vstack([np.kron(sexes, suffixes) for sexes in ([1, 0], [0, 1], [1, 1])])


def test_ranges_of_64_cells_take_25_steps():
    made = bf.fit("all-range:64", "unbounded:64", objective="largest")
    assert made.certified
    assert len(made.trace) <= 25
    assert made.objective_bound <= 6.1937
    assert made.objective_value == pytest.approx(6.1933, rel=1e-3)


@pytest.mark.parametrize(
    ("queries", "graph", "optimum"),
    [
        ("prefix:64", "unbounded:64", 4.457869),
        ("all-range:64", "threshold:64:4", 4.8339),
        (bf.workload.union(bf.workload.identity(64), bf.workload.prefix(64)), "unbounded:64", 4.459334),
    ],
    ids=["prefix", "threshold", "identity and prefix"],
)
def test_known_largest_variances(queries, graph, optimum):
    made = bf.fit(queries, graph, objective="largest")
    assert made.certified
    assert optimum * (1 - 1e-3) <= made.objective_bound <= optimum * (1 + 1e-5)
    assert optimum * (1 - 1e-5) <= made.objective_value <= optimum * (1 + 1e-3)


@pytest.mark.parametrize(
    ("queries", "gap", "known"), [(random_ranges, 5e-4, 5.541), (age_pyramids, 2e-4, 6.999)], ids=["ranges", "ages"]
)
def test_other_software_is_worse(queries, gap, known):
    W = queries()
    made = bf.fit(W, f"unbounded:{W.shape[1]}", objective="largest", gap=gap)
    assert made.certified
    assert made.worst_variance == made.objective_value <= known
