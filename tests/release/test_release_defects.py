"""Defects that the second reader found, each as the test that its repair must pass."""

import contextlib
import warnings

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import analytic, privacy
from hdmm_bf.release import plan as plans
from hdmm_bf.release.publish import publish
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy
from tests.support.fits import shipped

COUNT = 987654321


class Patience:
    """Passes calls on, and ends the test after too many."""

    def __init__(self, function, limit):
        self.function, self.left = function, limit

    def __call__(self, *args, **kwargs):
        self.left -= 1
        assert self.left >= 0, "called without end"
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("delta", [0.5, 0.9, 0.99, 0.999])
def test_large_deltas_are_planned_in_a_few_steps(gaussian, monkeypatch, delta):
    monkeypatch.setattr(plans.samplers, "gaussian", Patience(plans.samplers.gaussian, 100))
    monkeypatch.setattr(analytic, "keeps", Patience(analytic.keeps, 100))
    analytic.sigma_for.cache_clear()
    for accounting in ("analytic", "zcdp"):
        assert bf.plan(gaussian, epsilon=1.0, delta=delta, accounting=accounting).epsilon == 1.0


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-20, 1e-20)])
def test_tiny_parameters_end_in_an_answer_or_in_words(monkeypatch, epsilon, delta):
    monkeypatch.setattr(privacy, "zcdp_delta", Patience(privacy.zcdp_delta, 400))
    with contextlib.suppress(InputError):
        assert privacy.zcdp_rho(epsilon, delta) > 0


def test_rows_of_different_lengths_are_refused_without_showing_a_count(laplace):
    with pytest.raises(InputError) as caught:
        bf.release(laplace, [[COUNT, 2], [3]], epsilon=1.0)
    assert str(COUNT) not in str(caught.value)


def test_half_precision_counts_are_taken_without_a_warning(laplace):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bf.release(laplace, np.ones(4, dtype=np.float16), epsilon=1.0).totals.tolist() == [4.0]


@pytest.mark.parametrize("asked", [{"epsilon": 1e-200}, {"epsilon": 1e200}, {"epsilon": 5e-324}])
def test_extreme_epsilons_are_refused_in_words(laplace, asked):
    with pytest.raises(InputError):
        bf.plan(laplace, **asked)


@pytest.mark.parametrize("epsilon", [1e5, 1e7, 1e8])
def test_an_epsilon_too_large_for_the_conversion_is_refused_in_words(gaussian, epsilon):
    with pytest.raises(InputError):
        bf.plan(gaussian, epsilon=epsilon, delta=1e-6)


def test_a_plan_is_not_carried_out_on_another_strategy(laplace):
    """The noise of a plan is calibrated to one strategy; on ten times that strategy it would lose ten epsilon."""
    tenfold = CellStrategy(10 * laplace.strategy.integers, laplace.strategy.bits, "test")
    other = shipped(laplace.problem, tenfold)
    assert other.certificate.sensitivity_exact == 10 * laplace.certificate.sensitivity_exact
    with pytest.raises((InputError, AssertionError)):
        publish(bf.plan(laplace, epsilon=1.0), other, [1, 2, 3, 4])


def test_strategies_with_columns_for_cells_given_up_answer_without_bias(tmp_path):
    """A bundle may hold such a strategy: identity over all cells of a line, the given-up one included."""
    problem = Problem(workload.identity(3), policy.line(3))
    fit = shipped(problem, CellStrategy(np.eye(3, dtype=np.int64) << 16, 16, "identity"))
    loaded = bf.load(fit.save(tmp_path / "bundle"))
    assert bf.release(loaded, [5, 6, 700], epsilon=1e6).estimate == pytest.approx([5, 6, 700], abs=0.01)


def prefix_sums(cells):
    """Identity on the edges of a line; the isotonic prefix sums are then the exact nearest histogram."""
    problem = Problem(workload.identity(cells), policy.line(cells))
    A = np.tril(np.ones((cells, cells), dtype=np.int64))[:-1] << 16
    return shipped(problem, CellStrategy(A, 16, "test"))


@pytest.mark.parametrize(("cells", "heaviest"), [(64, 10**8), (256, 1), (512, 1)])
def test_nonnegative_is_nearest_also_for_long_lines_and_beside_a_heavy_cell(cells, heaviest):
    """Quotes postprocess: "nonnegative" ..., in the norm of what was measured, is the nearest such histogram."""
    x = np.random.default_rng(1).poisson(1.0, cells)
    x[cells // 2] = heaviest
    out = bf.release(prefix_sums(cells), x, epsilon=0.3)

    def distance(estimate):
        return np.linalg.norm(np.cumsum(estimate - out.estimate)[:-1])

    best = distance(out.postprocess("isotonic").estimate)
    assert distance(out.postprocess("nonnegative").estimate) <= best * (1 + 1e-5)


def test_a_strategy_that_cannot_be_run_exactly_is_refused_before_anything_is_spent(tmp_path):
    """Whether S is too close to singular does not depend on data or noise, so it need not cost a release."""
    S = np.array([[2**48, 2**48 + 1, 0], [2**48, 2**48 - 1, 0], [0, 0, 1]])
    problem = Problem(workload.from_matrix(np.zeros((1, 3))), policy.cycle(3))
    fit = shipped(problem, EdgeStrategy(S, 0, "test"))
    ledger = bf.Ledger(tmp_path / "ledger.db", epsilon=1.0, new=True)
    with pytest.raises(InputError, match="singular|full column rank"):
        bf.release(fit, [1, 2, 3], epsilon=1.0, account=ledger.account("data"))
    assert ledger.entries() == []
