"""Quantiles of sums of Laplace variables against closed forms and simulation, and the coverage of intervals."""

import math

import numpy as np
import pytest
from scipy import stats

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import intervals, matrices
from hdmm_bf.release.intervals import laplace_bound, laplace_quantiles, normal_quantile
from hdmm_bf.release.publish import publish
from hdmm_bf.strategies.records import CellStrategy
from tests.support.fits import shipped

LEVELS = [0.5, 0.8, 0.95, 0.99, 0.999]
WITHIN = 1e-5
"""What the guarantee of `laplace_quantiles` allows in probability."""


def one_laplace(z):
    """P(|L| <= z)."""
    return 1 - math.exp(-z)


def two_equal(z):
    """P(|L1 + L2| <= z): the density of the sum is (1 + |t|) e^-|t| / 4."""
    return 1 - math.exp(-z) * (2 + z) / 2


def two_unequal(z, a, b):
    """P(|a L1 + b L2| <= z), by partial fractions of 1 / ((1 + a^2 t^2)(1 + b^2 t^2))."""
    share = a**2 / (a**2 - b**2)
    return share * (1 - math.exp(-z / a)) + (1 - share) * (1 - math.exp(-z / b))


@pytest.mark.parametrize("level", LEVELS)
def test_quantiles_have_their_closed_forms(level):
    """Quotes laplace_quantiles: The probability is `level` within 1e-5."""
    rows = np.array([[2.0, 0, 0], [1.0, -1.0, 0], [3.0, 0, 1.0], [1.0, 0.999, 0], [50.0, 0.01, 0], [0, 0, 0]])
    found = laplace_quantiles(rows, level)
    reached = [
        one_laplace(found[0] / 2),
        two_equal(found[1]),
        two_unequal(found[2], 3.0, 1.0),
        two_unequal(found[3], 1.0, 0.999),
        two_unequal(found[4], 50.0, 0.01),
    ]
    assert reached == pytest.approx([level] * 5, abs=WITHIN)
    assert found[5] == 0


@pytest.mark.parametrize("level", LEVELS)
def test_distinct_coefficients_have_their_partial_fractions(level):
    """P(|sum| <= z) = sum_j prod_(i != j) c_j^2 / (c_j^2 - c_i^2) (1 - e^(-z / c_j)), here with five coefficients."""
    c = np.array([1.0, 1.7, 0.4, 2.9, 0.05])
    shares = [np.prod([a**2 / (a**2 - b**2) for b in c if b != a]) for a in c]
    z = float(laplace_quantiles(np.vstack([c, -c[::-1]]), level)[0])
    assert sum(s * (1 - math.exp(-z / a)) for s, a in zip(shares, c, strict=True)) == pytest.approx(level, abs=WITHIN)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [3, 33, 40, 500])
def test_equal_coefficients_are_the_difference_of_two_gamma_variables(count, level):
    """The sum of k Laplace variables is G - G' for gamma variables of shape k: integrated numerically."""
    z = float(laplace_quantiles(np.ones((1, count)), level)[0])
    p = (np.arange(4000) + 0.5) / 4000
    g = stats.gamma.ppf(p, count)
    outside = np.mean(stats.gamma.sf(g + z, count) + stats.gamma.cdf(g - z, count))
    assert 1 - outside == pytest.approx(level, abs=3e-5)  # the midpoint rule itself is good to 2e-5


@pytest.mark.parametrize("level", LEVELS)
def test_many_small_coefficients_are_nearly_normal(level):
    """Excess kurtosis 3 / count: with 20,000 equal ones the quantile is the normal one within 1e-3."""
    found = float(laplace_quantiles(np.full((1, 20_000), 1 / math.sqrt(40_000)), level)[0])
    assert found == pytest.approx(normal_quantile(level), rel=1e-3)
    assert normal_quantile(level) == pytest.approx(stats.norm.isf((1 - level) / 2), rel=1e-12)


@pytest.mark.parametrize(
    "shape",
    ["one leads", "geometric", "thirty-two and a long tail", "two scales"],
)
def test_quantiles_cover_simulated_sums(shape):
    """A share p of N simulated sums has standard error sqrt(p (1 - p) / N); a width 3 % off is the control."""
    rng = np.random.default_rng(2)
    c = {
        "one leads": np.concatenate([[3.0], np.full(60, 0.05)]),
        "geometric": 0.8 ** np.arange(50),
        "thirty-two and a long tail": np.concatenate([np.ones(32), np.full(100, 0.3)]),
        "two scales": np.concatenate([np.full(5, 2.0), np.full(80, 0.4)]),
    }[shape]
    count = 200_000
    sums = np.concatenate([rng.laplace(size=(20_000, c.size)) @ c for _ in range(10)])
    for level in LEVELS:
        z = float(laplace_quantiles(c[None, :], level)[0])
        allowed = 5 * math.sqrt(level * (1 - level) / count)
        assert abs(np.mean(np.abs(sums) <= z) - level) < allowed
        if level < 0.9:
            assert abs(np.mean(np.abs(sums) <= 1.03 * z) - level) > allowed


@pytest.mark.parametrize("level", [*LEVELS, 0.01, 0.999999])
def test_the_tail_bound_is_never_narrower_than_the_exact_quantile(level):
    """Quotes laplace_bound: every sum of Laplace variables of variance 1 stays within.

    Also where the sum is one uniform-like or exponential-like variable: the proof needs a log-concave G alone, and an
    exponential |S| that is cut off at z attains it.
    """
    rng = np.random.default_rng(4)
    rows = np.vstack([np.eye(1, 40), np.ones((1, 40)), rng.exponential(size=(20, 40)) ** 3])
    rows /= np.sqrt(2 * (rows**2).sum(axis=1))[:, None]
    assert np.all(laplace_bound(level) >= laplace_quantiles(rows, level))
    z, a = laplace_bound(level), -math.log1p(-level)
    x = np.linspace(0, z, 200_001)
    second_moment = np.trapezoid(2 * x * np.exp(-a * x / z), x)  # of |S| with G(x) = e^(-a x / z) up to z, 0 beyond
    assert second_moment == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan, -1.0])
def test_levels_that_are_no_probability_are_refused(level):
    for quantile in (normal_quantile, laplace_bound, intervals.check_level):
        with pytest.raises(InputError, match="must be between 0 and 1"):
            quantile(level)
    with pytest.raises(InputError, match="must be between 0 and 1"):
        laplace_quantiles(np.ones((1, 1)), level)


# ---------------------------------------------------------------- of releases


def prefix_sums():
    problem = Problem(workload.all_range(6), policy.line(6))
    A = np.tril(np.ones((6, 6), dtype=np.int64))[:5] << 16
    return shipped(problem, CellStrategy(A, 16, "test"))


COVERED = {
    "laplace, vertex": (prefix_sums, {"epsilon": 0.5}),
    "laplace, edge": (lambda: bf.fit("all-range:5", "cycle:5", noise="laplace", max_steps=1), {"epsilon": 0.5}),
    "gaussian": (lambda: bf.fit("all-range:6", "threshold:6:2"), {"rho": 0.1}),
}


@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover_the_truth_as_often_as_they_say(name):
    """Each query's coverage over N releases within five standard errors; intervals of half the width must fail."""
    make, asked = COVERED[name]
    fit, count, level = make(), 600, 0.8
    settled = bf.plan(fit, **asked)
    x = np.arange(fit.problem.policy.num_cells) * 7
    truth = fit.problem.workload.matrix.mv(x)
    low, high = publish(settled, fit, x).interval(level)
    width = (high - low) / 2
    errors = np.array([np.abs(publish(settled, fit, x).answers - truth) for _ in range(count)])
    noisy = width > 1e-9  # the total of a line is public
    allowed = 5 * math.sqrt(level * (1 - level) / count)
    covered = np.mean(errors <= width + 1e-9, axis=0)
    assert np.all(np.abs(covered[noisy] - level) < allowed)
    assert np.all(covered[~noisy] == 1)
    assert np.all(np.mean(errors <= width / 2, axis=0)[noisy] < level - allowed)


def test_chosen_queries_have_the_intervals_they_have_among_all(monkeypatch):
    for make, asked in COVERED.values():
        fit = make()
        out = bf.release(fit, np.arange(fit.problem.policy.num_cells), **asked)
        low, high = out.interval(0.9)
        some = [3, 0, 3]
        chosen = out.interval(0.9, some)
        assert chosen.low == pytest.approx(low[some])
        assert chosen.high == pytest.approx(high[some])
        assert out.interval(0.9, []).low.shape == (0,)


def test_too_many_coefficients_give_the_tail_bound_and_say_so(monkeypatch):
    """Quotes Release.interval: or wider ends from a tail bound; `interval_method` says which."""
    fit = prefix_sums()
    out = bf.release(fit, [1] * 6, epsilon=1.0)
    assert out.interval_method() == "exact Laplace sums"
    exact = out.interval(0.9)
    monkeypatch.setattr(matrices, "_MOST_COEFFICIENTS", 30)
    assert out.interval_method() == "tail bound"
    assert out.interval_method(1) == "exact Laplace sums"
    wide = out.interval(0.9)
    assert np.all(wide.high - wide.low >= exact.high - exact.low)
    assert np.any(wide.high - wide.low > exact.high - exact.low)
    assert (wide.high - wide.low) / 2 == pytest.approx(laplace_bound(0.9) * out.stddev)
    gaussian = bf.release(bf.fit("all-range:6", "line:6"), [1] * 6, rho=0.5)
    assert gaussian.interval_method() == "normal"
    assert gaussian.interval(0.9).high - gaussian.answers == pytest.approx(normal_quantile(0.9) * gaussian.stddev)
