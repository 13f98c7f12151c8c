"""Comparisons by a goal: the largest variance of every mechanism, and the noise that serves a goal best."""

import json
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.fit import noises
from hdmm_bf.fit.comparison import compare_with_baselines
from hdmm_bf.fit.noises import asked_of, best_noise, compare_noises
from hdmm_bf.fit.worst import worst_of
from hdmm_bf.release.reconstruction import recovery
from hdmm_bf.strategies import from_draft
from tests.support.command_line import call

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(("policy", "noise"), [("threshold:6:2", "gaussian"), ("cycle:6", "laplace")])
def test_the_largest_variance_of_every_mechanism_is_that_of_its_queries(policy, noise):
    options = {} if noise == "gaussian" else {"max_steps": 2}
    made = bf.fit("all-range:6", policy, noise=noise, **options)
    rows, drafts, _ = compare_with_baselines(made, others=True)
    worst = {row.name: row.worst_variance for row in rows}
    assert len(drafts) > 3
    for draft in drafts:
        v = recovery(from_draft(made.problem, draft), made.problem).unit_variances()
        each = [d for d in drafts if d.origin == draft.origin]
        if draft.error == min(d.error for d in each):
            assert worst[draft.origin] == pytest.approx(draft.error * v.max() / v.sum(), rel=1e-5)
    own = next(row for row in rows if row.name == made.family)
    assert own.worst_variance == pytest.approx(made.worst_variance, rel=1e-5)


def test_with_a_goal_mechanisms_are_in_its_order():
    rows, made = bf.compare("all-range:6", "threshold:6:2", noise="gaussian", objective="largest")
    assert rows[0].name == made.family
    assert rows[0].objective_value == pytest.approx(made.objective_value)
    values = [row.objective_value for row in rows]
    assert values == sorted(values)
    assert all(row.objective_value == pytest.approx(row.worst_variance) for row in rows)


def test_targets_are_what_mechanisms_are_measured_by():
    targets = np.where(np.arange(21) % 2, 1.0, 3.0)
    rows, made = bf.compare("all-range:6", "unbounded:6", noise="gaussian", targets=targets)
    identity = next(row for row in rows if row.name == "identity")
    sizes = made.problem.workload.matrix.dense().sum(axis=1)
    assert identity.objective_value == pytest.approx((sizes / targets**2).max())
    assert identity.worst_variance == pytest.approx(6.0)


def test_the_table_and_its_json_have_the_largest_variance():
    given = ("compare", "-w", "all-range:6", "-g", "unbounded:6")
    record = json.loads(call(*given, "--json").stdout)
    assert next(row for row in record["rows"] if row["name"] == "identity")["worst_variance"] == pytest.approx(6.0)
    head, line = (call(*given).stdout.splitlines()[i] for i in (1, 2))
    assert "worst" in head
    assert line.split()[3] == f"{record['rows'][0]['worst_variance']:.6g}"
    goal = json.loads(call(*given, "--targets", "2", "--json").stdout)
    assert goal["objective"] == "targets"
    assert goal["rows"][0]["objective_value"] >= goal["objective_bound"] * (1 - 1e-6)


def test_what_a_goal_asks_of_the_variances_of_a_release():
    v = np.array([1.0, 4.0, 9.0, 16.0])

    def of(**given):
        return asked_of(bf.problem("identity:4", "unbounded:4", **given), v)

    assert of() == pytest.approx(math.sqrt(7.5))
    assert of(objective="largest") == pytest.approx(4.0)
    assert of(objective="largest", groups=["a", "a", "b", "b"]) == pytest.approx(math.sqrt(12.5))
    assert of(targets=np.array([0.5, 4.0, 4.0, 8.0])) == pytest.approx(2.0)
    assert of(objective=lambda v: v.sum()) == pytest.approx(30.0)


@pytest.fixture
def two_noises(monkeypatch):
    """Tree norms take longer than the rest of this file."""
    monkeypatch.setattr(noises, "_SHARES", {"gaussian": 0.5, "laplace": 1.0})


@pytest.mark.usefixtures("two_noises")
def test_noises_are_ranked_by_what_the_goal_asks(monkeypatch):
    """The order by rmse is turned round, so that only the goal can give the right one; `auto` follows it."""
    real = noises.noise_row
    monkeypatch.setattr(noises, "noise_row", lambda *given: (row := real(*given))._replace(rmse=-row.asked))
    problem = bf.problem("prefix:4", "unbounded:4", targets=2.0)
    rows = compare_noises(problem, **BUDGET, max_steps=1)
    assert [row.asked for row in rows] == sorted(row.asked for row in rows)
    assert [row.rmse for row in rows] != sorted(row.rmse for row in rows)
    for row in rows:
        budget = BUDGET if row.noise == "gaussian" else {"epsilon": 1.0}
        assert row.asked == pytest.approx(row.fit.per_query_stddev(**budget).max() / 2)
        assert row.worst_stddev == pytest.approx(2 * row.asked)
        assert row.fit.objective == "targets"
    best = best_noise(problem, **BUDGET, max_steps=1)
    assert best.noise == rows[0].noise
    assert best.why.startswith("least largest stddev over target at epsilon 1, delta 1e-06")


@pytest.mark.usefixtures("two_noises")
def test_fit_and_compare_pass_the_goal_on():
    made = bf.fit("prefix:4", "unbounded:4", noise="auto", epsilon=1.0, objective="largest", max_steps=1)
    assert made.objective == "largest"
    assert "least largest stddev" in made.why
    given = ("compare", "-w", "prefix:4", "-g", "unbounded:4", "--epsilon", "1", "--targets", "2", "--max-steps", "1")
    assert "by largest stddev over target" in call(*given).stdout


def test_the_worst_queries_are_those_farthest_above_their_targets():
    workload = bf.workload.identity(4)
    found = worst_of(workload, np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 1.0, 6.0, math.nan]))
    assert [(q.query, q.target) for q in found.queries] == [
        (workload.name(i), t) for i, t in ((1, 1.0), (0, 1.0), (2, 6.0))
    ]
    assert (found.binding, found.met, found.asked) == (1, 2, 3)
    plain = worst_of(workload, np.array([1.0, 2.0, 2.0, 0.5]), None, most=2)
    assert [q.stddev for q in plain.queries] == [2.0, 2.0]
    assert (plain.binding, plain.met) == (2, None)
