"""Post-processing of releases by factors: whole numbers that agree over all tables, intervals of the whole chain."""

import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.release.privacy import gaussian_sigma
from hdmm_bf.strategies.blocks import from_factors
from hdmm_bf.strategies.records import ProductStrategy
from tests.support.fits import shipped

X = np.array([[0, 0, 9], [1, 0, 30]])


@pytest.fixture(scope="module")
def bounded():
    """All tables of one and two attributes; the total is public."""
    return bf.fit("marginals:2x3:all", "product:bounded:2,bounded:3", family="marginals")


@pytest.fixture(scope="module")
def unbounded():
    return bf.fit("all-range:4x4", "unbounded:4x4", family="kronecker")


# ---------------------------------------------------------------- the grid


def test_rounding_to_the_grid_costs_less_than_a_ten_thousandth():
    """Quotes from_factors: a fine block has at least 10 binary places in all. Whole records cost a share of 1/300."""
    fit = bf.fit("identity:2x3", "unbounded:2x3", family="kronecker")
    ideal = fit.unit_error * gaussian_sigma(1.0, 1e-6) ** 2
    assert bf.plan(fit, epsilon=1.0, delta=1e-6).expected_error == pytest.approx(ideal, rel=1e-6)
    assert all(sum(block.bits) >= 10 for block in fit.strategy.blocks)
    coarse = [
        from_factors([block.factor(i) for i in range(2)], np.array(block.precisions)) for block in fit.strategy.blocks
    ]
    assert all(sum(block.bits) == 0 for block in coarse)
    whole = shipped(fit.problem, ProductStrategy(tuple(coarse), "coarse"), "gaussian")
    assert whole.unit_error == pytest.approx(fit.unit_error, rel=1e-9)
    assert bf.plan(whole, epsilon=1.0, delta=1e-6).expected_error > 1.003 * ideal


# ---------------------------------------------------------------- the steps


def tables(fit, estimate):
    """Every table as a sum of cells, by the definition."""
    cells = estimate.reshape(2, 3)
    return np.concatenate([[cells.sum()], cells.sum(axis=0), cells.sum(axis=1), cells.ravel()])


def test_whole_numbers_agree_over_all_tables(bounded):
    """Quotes postprocess: public component totals stay exact; no negative count; whole numbers. Tables agree."""
    for _ in range(5):
        out = bf.release(bounded, X, epsilon=0.5, delta=1e-6)
        made = out.postprocess("nonnegative", "integers")
        assert np.array_equal(made.estimate, np.rint(made.estimate))
        assert made.estimate.min() >= 0
        assert made.estimate.sum() == X.sum()
        assert sorted(made.answers.tolist()) == pytest.approx(sorted(tables(bounded, made.estimate).tolist()))
        assert "biased" in made.label


def test_the_nearest_histogram_is_found_by_factors(bounded):
    """Quotes postprocess: in the norm of what was measured, the nearest such histogram; optimality conditions hold."""
    out = bf.release(bounded, X, epsilon=0.3, delta=1e-6)
    while out.estimate.min() >= 0:
        out = bf.release(bounded, X, epsilon=0.3, delta=1e-6)
    M = np.zeros((6, 6))
    for block in bounded.strategy.blocks:
        R = np.kron(block.factor(0), block.factor(1))
        weights = block.full_precisions.ravel()
        M += R.T @ (np.where(np.isinf(weights), 0.0, weights)[:, None] * R)
    x = out.postprocess("nonnegative").estimate
    slope = M @ (x - out.estimate)
    price = slope[x > 1e-6].mean()  # of the public total
    room = 1e-4 * np.abs(M).max() * (1 + np.abs(x).max())
    assert np.abs(slope[x > 1e-6] - price).max() < room
    assert slope[x <= 1e-6].min(initial=price) >= price - room


def test_sums_of_small_cells_are_kept(unbounded):
    """A third of a record in every cell: rounding each by itself would leave none."""
    out = bf.release(unbounded, np.zeros(16, dtype=int), rho=1e6)
    from hdmm_bf.release.postprocess import _STEPS

    thirds = _STEPS["integers"](np.full(16, 1 / 3), out)
    assert thirds.sum() == round(16 / 3)
    assert set(thirds.tolist()) == {0.0, 1.0}
    made = bf.release(unbounded, 5 + np.arange(16), rho=1e6).postprocess("nonnegative", "integers")
    assert made.estimate.tolist() == (5 + np.arange(16)).tolist()


def test_steps_that_do_not_apply_are_refused(bounded):
    out = bf.release(bounded, X, rho=1.0)
    with pytest.raises(InputError, match="is no step"):
        out.postprocess("integer")
    with pytest.raises(InputError, match="is no line"):
        out.postprocess("isotonic")


def test_public_totals_that_are_not_measured_are_refused():
    fit = bf.fit("marginals:2x3:1", "product:bounded:2,empty:3", family="marginals")
    out = bf.release(fit, X, rho=1.0)
    assert (
        out.postprocess("nonnegative").estimate.min() >= 0
    )  # the table of the second attribute is public and measured
    assert out.totals.tolist() == X.sum(axis=0).tolist()


# ---------------------------------------------------------------- intervals of the whole chain


def coverage(fit, x, level, count, draws):
    """Mean share of true answers inside the intervals of releases, and inside a quarter of their width."""
    truth, inside, narrow = fit.problem.workload.matrix.mv(x.ravel()), [], []
    for _ in range(count):
        made = bf.release(fit, x, epsilon=1.0, delta=1e-6).postprocess("nonnegative", "integers")
        low, high = made.interval(level, draws=draws)
        inside.append(np.mean((low <= truth) & (truth <= high)))
        narrow.append(np.mean((np.abs(truth - made.answers) <= (high - low) / 8)[high > low]))
    return np.mean(inside), np.mean(narrow)


def test_intervals_of_processed_answers_cover_about_as_often_as_they_say(bounded):
    """Counts far from zero, where only rounding acts: the level holds within five standard errors.

    Answers of one release move together, so a release counts once. A quarter of the width must fail.
    """
    inside, narrow = coverage(bounded, X + 200, 0.8, 40, 40)
    room = 5 * math.sqrt(0.8 * 0.2 / 40)
    assert inside > 0.8 - room
    assert narrow < 0.8 - room


@pytest.mark.slow
def test_intervals_near_zero_are_a_guide(bounded):
    """Quotes Processed.interval: coverage is near the level and not certain. No more than ten points below it here."""
    inside, _ = coverage(bounded, X, 0.8, 60, 100)
    assert inside > 0.8 - 0.1 - 5 * math.sqrt(0.8 * 0.2 / 60)


def test_too_few_draws_are_refused(bounded):
    made = bf.release(bounded, X, rho=1.0).postprocess("integers")
    with pytest.raises(InputError, match="too few"):
        made.interval(0.95, draws=10)
    with pytest.raises(InputError, match="between 0 and 1"):
        made.interval(1.0)


def test_public_totals_that_are_not_measured_are_needed():
    """Quotes check_steps: refuses public totals not measured. Differences of two values tell nothing of the total."""
    differences = bf.workload.product(bf.workload.from_matrix(np.array([[1.0, -1.0]])), bf.workload.identity(3))
    fit = bf.fit(differences, "product:bounded:2,bounded:3", family="marginals")
    out = bf.release(fit, X, epsilon=1.0, delta=1e-6)
    with pytest.raises(InputError, match="needs public totals that are not measured"):
        out.postprocess("nonnegative")
