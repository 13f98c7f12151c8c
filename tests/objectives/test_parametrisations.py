"""Parametrisations: what holds of their strategies whatever the parameters, and formulas written by hand elsewhere."""

import jax
import numpy as np
import pytest

from hdmm_bf.objectives import (
    Bases,
    Free,
    LevelWeights,
    PIdentity,
    Split,
    UnitColumns,
    cell_budgets,
    product_bases,
    sensitivity,
    total,
)
from hdmm_bf.problem.product import product_view
from hdmm_bf.strategies.gaussian import bases as by_hand
from tests.objectives import cases, oracle

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _in_float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("power", [1, 2])
def test_p_identities_have_columns_of_norm_one(power):
    made = PIdentity(3, 7, power)
    for roots in (np.asarray(made.init(5)), 100 * RNG.uniform(size=(3, 7)), np.zeros((3, 7))):
        A = np.asarray(made.strategy(roots).dense())
        np.testing.assert_allclose(np.abs(A).sum(axis=0), 1, rtol=1e-14)
        expected = np.vstack([np.eye(7), roots**power])
        np.testing.assert_allclose(A, expected / expected.sum(axis=0), rtol=1e-13)


def test_squares_may_have_any_sign():
    made = PIdentity(2, 5)
    roots = RNG.normal(size=(2, 5))
    np.testing.assert_array_equal(made.strategy(roots).dense(), made.strategy(-roots).dense())


@pytest.mark.parametrize(("W", "G"), cases.SPECS, ids=cases.names(cases.SPECS))
def test_cell_budgets_have_sensitivity_at_most_one_and_are_the_dense_formula(W, G):
    """Quotes CellBudgets: no edge (u, v) with b_u + b_v <= 1 enters the loss."""
    problem, rows, n, edges = cases.made(W, G)
    group, grounds = problem.ground_groups
    k = group.size
    D = np.vstack([np.eye(k), -1.0 * (np.arange(grounds)[:, None] == group)])
    plain = np.full(k + grounds, 0.5)
    tilted = np.where(np.arange(k + grounds) < k, 0.3, 0.7) if np.all(problem.P.tail < 0) else plain
    for b in (plain, tilted):
        made = cell_budgets(problem, 3, b)
        for parameters in (made.init(1), Split(*RNG.uniform(0, 2, (2, 3, k + grounds)))):
            positive, negative = (np.asarray(part) for part in parameters)
            written = np.vstack([np.eye(k + grounds), positive - negative])
            written = written * b / (1 + (positive + negative).sum(axis=0)) @ D
            strategy = made.strategy(parameters)
            dense = np.asarray(strategy.dense())
            np.testing.assert_allclose(dense.T @ dense, written.T @ written, atol=1e-14)
            np.testing.assert_allclose(np.abs(dense), np.abs(written), atol=1e-14)
            over_all = np.zeros((len(written), n))
            over_all[:, problem.grounding.kept] = written
            norms = np.abs(over_all @ oracle.moves(n, edges)).sum(axis=0)
            assert norms.max() <= 1 + 1e-12
            assert float(sensitivity(problem)(strategy)) == pytest.approx(norms.max(), rel=1e-12)
            expected = oracle.trace(rows, over_all, oracle.lift(n, edges))
            assert float(total(problem, norm=None)(strategy)) == pytest.approx(expected, rel=1e-9)


def test_unit_columns_have_norm_one_where_no_entry_has_both_signs():
    made = UnitColumns(4, 6)
    parameters = made.init(2)
    A = np.asarray(made.strategy(parameters).dense())
    np.testing.assert_allclose(np.abs(A).sum(axis=0), 1, rtol=1e-14)
    both = Split(*RNG.uniform(0.1, 1, (2, 4, 6)))
    assert np.abs(np.asarray(made.strategy(both).dense())).sum(axis=0).max() <= 1
    np.testing.assert_allclose(
        made.strategy(both).dense(), (both.positive - both.negative) / (both.positive + both.negative).sum(axis=0)
    )


def test_free_strategies_are_the_parameters():
    A = RNG.normal(size=(7, 5))
    np.testing.assert_array_equal(Free(7, 5).strategy(A).dense(), A)
    assert np.linalg.matrix_rank(np.asarray(Free(7, 5).init(0))) == 5


def test_level_weights_multiply_along_the_attributes():
    first, second = np.array([0, 0, 1]), np.array([0, 1])
    matrix = RNG.normal(size=(6, 4))
    made = LevelWeights.of(matrix, [first, second])
    np.testing.assert_array_equal(made.strategy(made.init()).dense(), matrix)
    logs = (np.array([0.3, -1.0]), np.array([-2.0, 0.5]))
    own = [np.exp(log - log.max())[levels] for log, levels in zip(logs, (first, second), strict=True)]
    np.testing.assert_allclose(made.strategy(logs).dense(), np.kron(*own)[:, None] * matrix, rtol=1e-13)


@pytest.mark.parametrize(("W", "G"), cases.PRODUCTS, ids=cases.names(cases.PRODUCTS))
def test_product_bases_have_the_error_of_their_matrix(W, G):
    problem, rows, n, edges = cases.made(W, G)
    made = product_bases(problem)
    start = made.init(0)
    parameters = Bases(start.columns, RNG.normal(size=start.logs.shape))
    strategy = made.strategy(parameters)
    dense = np.asarray(strategy.dense())
    found = float(total(problem, norm="L2", over="products")(strategy))
    assert found == pytest.approx(float(total(problem, norm="L2")(dense)), rel=1e-9)
    assert found == pytest.approx(oracle.total(rows, dense, n, edges, "L2"), rel=1e-9)


UNLIKE = [("prefix:3x4", "threshold:3x4:1"), ("prefix:3x4", "product:unbounded:3,line:4"), cases.PRODUCTS[1]]
"""Attributes that do not read the same backwards and are not alike: the hand-written loss keeps every variable."""


@pytest.mark.parametrize(("W", "G"), UNLIKE, ids=cases.names(UNLIKE))
@pytest.mark.parametrize("power", [8.0, 64.0])
def test_the_hand_written_loss_of_bases_is_that_of_the_public_parts(W, G, power):
    """The log error + log of the p-mean of d; the sensitivity is the square root of d, so q = 2 p."""
    problem, *_ = cases.made(W, G)
    family = by_hand.build(product_view(problem))
    assert not family.same
    assert all(len(a.sizes) == 1 for a in family.attributes)
    made = product_bases(problem)
    start = made.init(4)
    columns = [np.asarray(part) + 0.1 * RNG.normal(size=part.shape) for part in start.columns]
    logs = 0.5 * RNG.normal(size=start.logs.shape)
    both = np.concatenate([part.ravel() for part in (*columns, logs)])
    family.set(both[: family.num_free])
    assert np.all((family.v > 0) | family.public), "precisions of what no query sees are left out by hand"
    value, slope = family.loss(both, power)
    number = sum(part.size for part in family.moves.distances(np.exp(logs)))
    loss = total(problem, norm="L2", over="products", smoothing=(0.0, 2 * power), log=True).of(made)
    found, gradient = jax.value_and_grad(loss)(Bases(tuple(columns), logs))
    assert float(found) - np.log(number) / power == pytest.approx(value, rel=1e-10)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    np.testing.assert_allclose(flat, slope, rtol=1e-10, atol=1e-10 * np.abs(slope).max())
