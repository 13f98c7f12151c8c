"""What a release refuses: counts, levels, queries and errors that cannot be."""

import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import CellStrategy
from tests.support.fits import shipped

COUNT = 987654321
"""A count that no message may show."""


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([COUNT] * 3, "counts of shape"),
        ([[COUNT, 1], [2, 3]], "counts of shape"),
        (COUNT, "counts of shape"),
        ([COUNT, None, 0, 0], "must be whole numbers"),
        ([str(COUNT)] * 4, "must be whole numbers"),
        (np.array([COUNT, 1, 1, 1j]), "must be whole numbers"),
        ([COUNT + 0.5, 0, 0, 0], "not whole"),
        ([COUNT, math.nan, 0, 0], "not whole"),
        ([COUNT, math.inf, 0, 0], "not whole"),
        ([COUNT, -COUNT, 0, 0], "negative or too large"),
        (np.array([COUNT, 2**63, 0, 0], dtype=np.uint64), "negative or too large"),
        ([COUNT * 10**9, 0, 0, 0], "negative or too large"),
    ],
)
def test_bad_counts_are_refused_without_showing_any(laplace, counts, message):
    """Quotes checked_counts: refusals say what is wrong but show no count."""
    with pytest.raises(InputError, match=message) as caught:
        bf.release(laplace, np.array(counts), epsilon=1.0)
    assert str(COUNT) not in str(caught.value)
    assert caught.value.__cause__ is None


def test_totals_that_leave_64_bits_are_refused(on_edges):
    cells = 520
    problem = Problem(workload.from_matrix(np.zeros((1, cells))), policy.empty(cells))
    fit = shipped(problem, CellStrategy(np.zeros((0, cells), dtype=np.int64), 16, "public"))
    with pytest.raises(InputError, match="have a total that does not fit"):
        bf.release(fit, np.full(cells, 2**53), epsilon=1.0)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 2.0, math.nan])
def test_levels_that_are_no_probability_are_refused(laplace, level):
    out = bf.release(laplace, [COUNT, 0, 0, 0], epsilon=1.0)
    with pytest.raises(InputError, match="must be between 0 and 1"):
        out.interval(level)


@pytest.mark.parametrize("queries", [[10], [-1], [0, 99]])
def test_queries_that_do_not_exist_are_refused(laplace, queries):
    out = bf.release(laplace, [COUNT, 0, 0, 0], epsilon=1.0)
    with pytest.raises(InputError, match="release.interval"):
        out.interval(0.95, queries)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rmse": 0.0}, "rmse=0.0"),
        ({"rmse": math.nan}, "rmse=nan"),
        ({"rmse": 1.0, "delta": 1e-6}, "does not go with laplace noise"),
    ],
)
def test_errors_that_no_epsilon_reaches_are_refused(laplace, gaussian, public, asked, message):
    with pytest.raises(InputError, match=message):
        laplace.epsilon_for(**asked)
    with pytest.raises(InputError, match="does not go with gaussian noise"):
        gaussian.epsilon_for(rmse=1.0)
    with pytest.raises(InputError, match="the answers are public"):
        public.epsilon_for(rmse=1.0)


@pytest.mark.parametrize("rmse", [0.1, 3.0])
def test_the_epsilon_for_an_error_gives_that_error(laplace, gaussian, rmse):
    assert laplace.rmse(epsilon=laplace.epsilon_for(rmse=rmse)) == pytest.approx(rmse)
    assert bf.plan(laplace, epsilon=laplace.epsilon_for(rmse=rmse)).rmse == pytest.approx(rmse, rel=1e-4)
    found = gaussian.epsilon_for(rmse=rmse, delta=1e-6)
    assert gaussian.rmse(epsilon=found, delta=1e-6) == pytest.approx(rmse, rel=1e-9)
