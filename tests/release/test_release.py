"""Releases as they run: the order of things, their errors against what is promised, and what they refuse."""

import dataclasses
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import matrices
from hdmm_bf.release import plan as plans
from hdmm_bf.release import publish as publishing
from hdmm_bf.release.noise import Sampler
from hdmm_bf.release.publish import publish
from hdmm_bf.release.release import Release
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy
from tests.support.fits import shipped

COUNT = 987654321
"""A count that no message may show."""


def no_noise(monkeypatch):
    def draw(self, size, *, callback=None):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(Sampler, "draw", draw)


# ---------------------------------------------------------------- the order of things


def no_data(monkeypatch):
    def read(problem, counts):
        raise AssertionError("the data were read")

    monkeypatch.setattr(matrices, "checked_counts", read)


@pytest.mark.parametrize("wrong", [{}, {"epsilon": -1.0}, {"epsilon": 1.0, "delta": 0.1}, {"rho": 1.0}])
def test_requests_are_settled_before_data_are_read(laplace, monkeypatch, wrong):
    """Quotes release: the plan: the noise is settled and OpenDP's privacy map has confirmed it; no data yet."""
    no_data(monkeypatch)
    with pytest.raises(InputError, match="privacy"):
        bf.release(laplace, [1, 2, 3, 4], **wrong)
    with pytest.raises(AssertionError, match="the data were read"):  # the control: a good request does read them
        bf.release(laplace, [1, 2, 3, 4], epsilon=1.0)


def test_noise_that_its_privacy_map_does_not_confirm_is_refused_before_data_are_read(laplace, monkeypatch):
    weak = Sampler("laplace", 1.0, 1.0001)
    monkeypatch.setattr(plans.samplers, "laplace", lambda sensitivity, epsilon: weak)
    no_data(monkeypatch)
    with pytest.raises(InputError, match="is more than the 1.0 asked for"):
        bf.release(laplace, [1, 2, 3, 4], epsilon=1.0)


def test_the_steps_of_a_release_come_in_the_stated_order(laplace, tmp_path, monkeypatch):
    """Quotes release: the ledger, if there is one, counts the loss as spent; noise is drawn."""
    events = []
    account = bf.Ledger(tmp_path / "ledger.db", epsilon=1.0, new=True).account("data")

    def watched(module, name, label):
        original = getattr(module, name)

        def run(*args, **kwargs):
            events.append(label)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, run)

    watched(publishing, "plan", "plan")
    watched(matrices, "checked_counts", "data")
    watched(matrices, "exact_product", "product")
    watched(type(account.ledger), "spend", "spend")
    watched(Sampler, "draw", "noise")
    bf.release(laplace, [1, 2, 3, 4], epsilon=1.0, account=account)
    assert events == ["plan", "data", "product", "spend", "noise"]


def test_noise_that_fails_leaves_the_loss_spent(laplace, tmp_path, monkeypatch):
    """Quotes Ledger: A release counts from before its noise is drawn."""
    ledger = bf.Ledger(tmp_path / "ledger.db", epsilon=1.0, new=True)
    no_noise(monkeypatch)
    with pytest.raises(AssertionError, match="noise was drawn"):
        bf.release(laplace, [1, 2, 3, 4], epsilon=0.75, account=ledger.account("data"))
    assert [entry.epsilon for entry in ledger.entries()] == ["0.75"]
    with pytest.raises(InputError, match="would exceed the total"):
        bf.release(laplace, [1, 2, 3, 4], epsilon=0.75, account=ledger.account("data"))
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("counts", [[2**53 + 2, 0, 0, 0], [-1, 0, 0, 0], [0.5] * 4, [1, 2]])
def test_data_that_are_refused_cost_nothing_and_draw_nothing(laplace, tmp_path, monkeypatch, counts):
    ledger = bf.Ledger(tmp_path / "ledger.db", epsilon=1.0, new=True)
    no_noise(monkeypatch)
    with pytest.raises(InputError, match="release"):
        bf.release(laplace, np.array(counts), epsilon=0.75, account=ledger.account("data"))
    assert ledger.entries() == []


def test_gaussian_releases_are_entered_with_the_rho_that_is_drawn(gaussian, tmp_path):
    ledger = bf.Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6, new=True)
    out = bf.release(gaussian, [1, 2, 3, 4], epsilon=0.5, delta=1e-7, account=ledger.account("data"))
    (entry,) = ledger.entries()
    assert (entry.epsilon, entry.delta, entry.noise) == ("0.5", "1e-07", "gaussian")
    assert float(entry.rho) == out.plan.rho


def test_the_callback_hears_how_much_noise_was_drawn_and_nothing_else(laplace):
    told = []
    bf.release(laplace, [COUNT, 0, 0, 0], epsilon=1.0, callback=told.append)
    assert told == [laplace.strategy.num_rows]


# ---------------------------------------------------------------- what comes out


def test_counts_come_in_every_form_and_are_not_touched(laplace):
    for counts in ([1, 2, 3, 4], (1, 2, 3, 4), np.array([1, 2, 3, 4], np.uint8), np.array([1.0, 2.0, 3.0, 4.0])):
        out = bf.release(laplace, counts, epsilon=1e6)
        assert out.estimate == pytest.approx([1, 2, 3, 4], abs=1e-3)
        assert out.totals.tolist() == [10.0]
    held = np.array([1, 2, 3, 4])
    before = held.copy()
    out = bf.release(laplace, held, epsilon=1.0)
    answers = out.answers.copy()
    assert np.array_equal(held, before)
    held[:] = 77
    assert np.array_equal(out.answers, answers)
    square = bf.fit("all-range:2x2", "threshold:2x2:1", noise="laplace", max_steps=1)
    assert bf.release(square, np.array([[1, 2], [3, 4]]), epsilon=1e6).estimate == pytest.approx([1, 2, 3, 4], abs=1e-3)


def test_public_answers_are_exact_and_need_no_noise(public, monkeypatch):
    no_noise(monkeypatch)
    out = bf.release(public, [COUNT, 0, 2**53, 1], epsilon=1.0)
    assert out.answers.tolist() == [COUNT, 0, 2**53, 1]
    assert out.plan.sampler is None
    assert out.plan.stddev == out.plan.expected_error == out.plan.rmse == 0.0
    assert not out.stddev.any()
    low, high = out.interval(0.95)
    assert np.array_equal(low, out.answers)
    assert np.array_equal(high, out.answers)


def test_isolated_cells_and_component_totals_are_exact_beside_noisy_cells():
    G = policy.from_edges([0, 1, 3], [1, 2, -1], 5)
    for noise, asked in (("laplace", {"epsilon": 0.01}), ("gaussian", {"rho": 1e-4})):
        out = bf.release(bf.fit("identity:5", G, noise=noise, max_steps=1), [1, 2, 3, 4, COUNT], **asked)
        assert out.estimate[4] == COUNT
        assert out.estimate[:3].sum() == pytest.approx(6)
        assert sorted(out.totals.tolist()) == [6, COUNT]
        assert np.all(np.abs(out.estimate[:4] - [1, 2, 3, 4]) > 1e-9)


def test_a_query_is_not_taken_for_public_by_numbers_that_anybody_can_know():
    """It was answered 0, with a deviation of 0: it is orthogonal to three draws of a known generator."""
    query = np.array([[29.0, -3, 60, -17, -1, 34, -32, -28, 5, -29, -15, -16]])
    draws = np.random.default_rng(0)
    assert not any((query @ draws.integers(1, 2**20, size=12)).any() for _ in range(3))
    for options in ({}, {"noise": "laplace", "max_steps": 2}, {"noise": "norm", "max_steps": 1}):
        out = bf.release(
            bf.fit("identity:12", "unbounded:12", **options),
            100 * np.arange(12),
            **({"epsilon": 1.0} if options else {"rho": 0.5}),
        )
        answers, deviations = out.answer(bf.workload.from_matrix(query))
        assert deviations[0] > 30
        assert answers[0] != 0


EXACT = {
    "dense": ("all-range:7", "threshold:7:2", {}),
    "laplace": ("all-range:7", "line:7", {"noise": "laplace", "max_steps": 3}),
    "edges off a tree": ("prefix:7", "cycle:7", {"noise": "laplace", "family": "p-identity", "max_steps": 3}),
    "tables": ("marginals:7x3x2:2", "sensitive:7x3x2:0", {"family": "marginals"}),
    "bases": ("all-range:7x3", "product:line:7,empty:3", {"family": "bases"}),
    "boxes": ("random-range:7x3:200:seed=1", "product:line:7,empty:3", {}),
}


@pytest.mark.parametrize("name", EXACT)
def test_answers_to_public_queries_are_exact_whole_numbers(name):
    W, G, options = EXACT[name]
    fit = bf.fit(W, G, **options)
    cells = fit.problem.policy.num_cells
    queries = fit.problem.workload
    public = ~np.any(fit.problem.W_G(), axis=1)
    assert public.any()
    assert not public.all()
    for seed in range(4):
        x = np.random.default_rng(seed).integers(0, 10**5, cells)
        out = bf.release(fit, x, **({"epsilon": 1.0} if fit.noise == "laplace" else {"rho": 0.1}))
        truth = queries.matrix.dense() @ x
        assert out.answers[public].tolist() == truth[public].tolist()
        assert not out.stddev[public].any()
        assert np.all(out.stddev[~public] > 0)
        again, deviations = out.answer(queries)
        assert again[public].tolist() == truth[public].tolist()
        assert not deviations[public].any()
        if name in ("dense", "laplace", "boxes"):
            assert out.postprocess("nonnegative").answers[public].tolist() == truth[public].tolist()


def test_large_public_totals_are_exact():
    fit = bf.fit("prefix:4", "line:4")
    x = np.array([2**40, 1, 2, 4])
    for _ in range(8):
        assert bf.release(fit, x, rho=1.0).answers[-1] == 2**40 + 7


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [({"epsilon": 1.0, "delta": 0.5}, "delta = 0.5 is a weak promise"), ({"rho": 30.0}, "rho = 30 is a weak promise")],
)
def test_python_warns_of_parameters_that_promise_little(gaussian, asked, sentence):
    with pytest.warns(UserWarning, match=sentence):
        bf.release(gaussian, [1, 2, 3, 4], **asked)
    assert bf.plan(gaussian, **asked).warnings[0].startswith(sentence)


def test_a_release_says_what_it_is_in_words_and_in_plain_values(laplace, gaussian):
    out = bf.release(laplace, [COUNT, 0, 0, 0], epsilon=0.5)
    assert repr(out) == f"Release(all-range:4 under line:4, epsilon = 0.5, rmse {out.plan.rmse:.6g})"
    assert out.summary()["epsilon"] == 0.5
    assert out.summary()["discloses"] == out.discloses == laplace.discloses
    assert out.plan.epsilon_at(1e-6) == 0.5
    settled = bf.plan(gaussian, epsilon=1.0, delta=1e-6)
    assert settled.promise == f"epsilon = 1, delta = 1e-06, by mu = {settled.mu:.6g} (GDP)"
    by_way = bf.plan(gaussian, epsilon=1.0, delta=1e-6, accounting="zcdp")
    assert by_way.promise == f"epsilon = 1, delta = 1e-06, by rho = {by_way.rho:.6g} (zCDP)"
    assert bf.plan(gaussian, rho=0.25).promise == "rho = 0.25 (zCDP)"


# ---------------------------------------------------------------- errors, by simulation


def star_hierarchy():
    """Laplace noise on a vertex strategy of more rows than cells: the cells, and sums of four."""
    problem = Problem(workload.identity(160), policy.unbounded(160))
    A = np.vstack([np.eye(160), np.kron(np.eye(40), np.ones(4))]).astype(np.int64) << 16
    return shipped(problem, CellStrategy(A, 16, "test"))


def cycle_edges(noise):
    """Identity on the edges of a cycle: an edge strategy off trees."""
    problem = Problem(workload.identity(160), policy.cycle(160))
    S = np.eye(160, dtype=np.int64) << 16
    return shipped(problem, EdgeStrategy(S, 16, "test"), noise)


SIMULATED = {
    "laplace, vertex": (star_hierarchy, {"epsilon": 0.8}, 3.0, 560),
    "laplace, edge": (lambda: cycle_edges("laplace"), {"epsilon": 0.8}, 3.0, 560),
    "gaussian, vertex": (lambda: bf.fit("identity:160", "line:160", max_steps=5), {"rho": 0.1}, 0.0, 300),
    "gaussian, edge": (lambda: cycle_edges("gaussian"), {"epsilon": 1.0, "delta": 1e-6}, 0.0, 300),
}


def noise_to_answers(fit):
    """W A^+ over the kept cells, or W P S^+, by pseudo-inverse."""
    problem, A = fit.problem, np.ldexp(fit.strategy.integers.astype(float), -fit.strategy.bits)
    W = problem.workload.matrix.dense()
    kept, anchor = problem.grounding.kept, problem.grounding.anchor
    D = np.eye(W.shape[1])[:, kept]
    for column, cell in enumerate(anchor):
        if cell >= 0:
            D[cell, column] = -1.0
    if fit.strategy.kind == "vertex":
        return W @ D @ np.linalg.pinv(A @ D)
    return W @ D @ problem.P.dense() @ np.linalg.pinv(A)


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_errors_are_those_of_the_plan(name):
    """Mean and total squared error of N releases within five standard errors, and 5 % beyond them as the control.

    With B = W A^+, noise of variance s^2 and excess kurtosis c (Laplace 3, Gaussian 0), the error T = ||B k||^2 has
    mean s^2 ||B||_F^2 and variance s^4 (2 ||B^T B||_F^2 + c sum_j (B^T B)_jj^2).
    """
    make, asked, kurtosis, releases_made = SIMULATED[name]
    fit = make()
    settled = bf.plan(fit, **asked)
    x = np.random.default_rng(0).integers(0, 100, fit.problem.policy.num_cells)
    truth = fit.problem.workload.matrix.mv(x)
    errors = np.array([publish(settled, fit, x).answers - truth for _ in range(releases_made)])

    B = noise_to_answers(fit)
    M, variance = B.T @ B, settled.stddev**2
    assert settled.expected_error == pytest.approx(variance * np.trace(M), rel=1e-6)
    spread = variance * math.sqrt(2 * (M**2).sum() + kurtosis * (np.diag(M) ** 2).sum())
    standard_error = spread / math.sqrt(releases_made)
    total = (errors**2).sum(axis=1).mean()
    assert abs(total - settled.expected_error) < 5 * standard_error
    assert 0.05 * settled.expected_error > 6 * standard_error  # so that a formula wrong by 5 % is seen
    for wrong in (0.95, 1.05):
        assert abs(total - wrong * settled.expected_error) > standard_error

    stddev = publish(settled, fit, x).stddev
    assert stddev == pytest.approx(np.sqrt(variance * (B**2).sum(axis=1)), rel=1e-6)
    assert np.all(np.abs(errors.mean(axis=0)) < 5 * stddev / math.sqrt(releases_made))
    assert not np.all(np.abs(errors.mean(axis=0) + 0.5 * stddev) < 5 * stddev / math.sqrt(releases_made))
    relative = math.sqrt((2 + kurtosis) / releases_made)  # of a variance, at most
    assert np.all(np.abs((errors**2).mean(axis=0) / stddev**2 - 1) < 5 * relative)


# ---------------------------------------------------------------- what was checked is what runs


def test_certified_integers_cannot_be_changed(laplace):
    with pytest.raises(ValueError, match="read-only"):
        laplace.strategy.integers[0, 0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        laplace.strategy.bits = 3


def test_a_release_holds_no_data(laplace):
    """Quotes Release: Everything in it may be published. Its fields are the problem, the plan, and released numbers."""
    names = {field.name for field in dataclasses.fields(Release)}
    assert names == {"problem", "plan", "measured", "recovery"}
    assert bf.release(laplace, [1, 2, 3, 4], epsilon=1.0).measured._fields == ("estimate", "totals")


def test_answers_of_other_queries_are_given_where_the_strategy_measures_them():
    W = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, -1]])
    fit = bf.fit(W, "line:6")
    assert fit.strategy.num_rows < 5, "the strategy cannot tell all cells apart"
    out = bf.release(fit, np.arange(6), epsilon=1.0, delta=1e-6)
    for weights in (np.eye(4), np.array([[0.0, 1.0, 2.0, 0.0], [1.0, 0.0, -1.0, 3.0]])):
        answers, stddev = out.answer(bf.workload.from_matrix(weights @ W))
        np.testing.assert_allclose(answers, weights @ out.answers, atol=1e-9)
        assert stddev.shape == answers.shape
    with pytest.raises(bf.InputError, match="asks what the strategy does not measure"):
        out.answer(bf.workload.parse("identity:6"))
    with pytest.raises(bf.InputError, match="is on another domain"):
        out.answer(bf.workload.parse("identity:5"))
