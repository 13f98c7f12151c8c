"""Advice: noises and policies side by side, with the errors that releases will have."""

import json
import math
import sys

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.fit.advice import ALL, Advice

PEOPLE = bf.domain.of(age=bf.domain.whole(20, 23, unit="years"), sex=["F", "M"])
TABLES = bf.table("age") + bf.table("age", "sex", stddev=9)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def advice():
    policy = bf.policies(age="line", sex="bounded")
    beside = {"close": bf.policies(age="threshold 2", sex="public")}
    return bf.advise(TABLES, policy, domain=PEOPLE, beside=beside, objective="largest", max_seconds=6, **BUDGET)


@pytest.fixture(scope="module")
def pure():
    return bf.advise("prefix:6", "unbounded:6", epsilon=0.5, max_seconds=3)


def candidate(advice, policy, noise):
    return next(one for one in advice.candidates if (one.policy, one.noise) == (policy, noise))


def test_the_given_policy_stands_beside_the_users_others_and_ordinary_privacy(advice):
    assert [words.name for words in advice.policies] == ["given", "close", "unbounded", "bounded"]
    given, close, unbounded, bounded = advice.policies
    assert "two ages at most 1 years apart, or any two values of sex" in given.hides
    assert close.discloses == ["the exact number of records for every value of sex"]
    assert unbounded.discloses == []
    assert bounded.discloses == ["the total number of records"]


def test_errors_of_tables_are_those_of_the_matrices(advice):
    """Under a star no cell is given up: an answer has the noise of the strategy times its row of W A^+."""
    one = candidate(advice, "unbounded", "gaussian")
    W = TABLES.on(PEOPLE).matrix.dense()
    deviation = bf.plan(one.fit, **BUDGET).stddev
    each = deviation * np.linalg.norm(W @ np.linalg.pinv(one.fit.strategy.matrix()), axis=1)
    expected = [(ALL, each, None), ("age", each[:4], None), ("age x sex", each[4:], 9.0)]
    for table, (name, stddev, wanted) in zip(one.tables, expected, strict=True):
        assert (table.table, table.num_queries, table.wanted) == (name, stddev.size, wanted)
        assert table.rmse == pytest.approx(math.sqrt(np.mean(stddev**2)), rel=1e-6)
        assert table.worst == pytest.approx(stddev.max(), rel=1e-6)
    assert one.tables[1].rmse != pytest.approx(one.tables[2].rmse, rel=1e-3)  # tables can be told apart


def test_errors_are_what_plan_predicts_of_a_release(advice):
    assert "Errors are those that `plan` predicts of a release of the fits that `candidates` hold." in bf.advise.__doc__
    for one in advice.candidates:
        settled = bf.plan(one.fit, epsilon=1.0, delta=1e-6 if one.noise == "gaussian" else None)
        assert one.tables[0].rmse == settled.rmse
        assert one.tables[0].worst == settled.worst_stddev
        assert one.promise == ("epsilon 1, delta 1e-06" if one.noise == "gaussian" else "epsilon 1")


def test_curves_are_what_plan_says_at_the_same_delta(advice):
    assert "Each is what `plan` says of a release at that epsilon, at the same delta." in Advice.curves.__doc__
    curves = advice.curves([0.5, 2.0])
    assert set(curves) == {(one.policy, one.noise) for one in advice.candidates}
    one = candidate(advice, "given", "gaussian")
    assert curves["given", "gaussian"] == [one.fit.rmse(epsilon=e, delta=1e-6) for e in (0.5, 2.0)]
    assert advice.epsilons == [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]


def test_the_best_comes_first_under_every_policy(advice):
    assert advice.goal == "largest stddev"
    for words in advice.policies:
        own = [one.asked for one in advice.candidates if one.policy == words.name]
        assert own == sorted(own)
        assert advice.best(words.name).asked == own[0]
        assert own[0] == pytest.approx(advice.best(words.name).tables[0].worst)  # its goal is the largest deviation


def test_what_was_not_fitted_is_named(advice, pure):
    for found in (advice, pure):
        fitted = {(one.policy, one.noise) for one in found.candidates}
        missing = {(one.policy, one.noise) for one in found.left_out}
        names = [words.name for words in found.policies]
        assert fitted | missing == {(name, noise) for name in names for noise in ("gaussian", "laplace", "norm")}
        assert not fitted & missing
    assert ("given", "gaussian", "it needs a delta") in pure.left_out


def test_what_has_no_time_left_is_left_out():
    found = bf.advise("identity:5", "line:5", max_seconds=1e-3, **BUDGET)
    assert [(one.policy, one.noise) for one in found.candidates] == [("given", "gaussian")]
    assert {one.why for one in found.left_out} == {"the 0.001 s for all were over before its turn"}


@pytest.mark.parametrize(
    ("given", "names"),
    [("unbounded:4", ["given", "bounded"]), ("bounded:4", ["given", "unbounded"]), ("product:bounded:4", ["given"])],
)
def test_ordinary_privacy_is_not_listed_twice(given, names):
    beside = ["unbounded:4"] if given.startswith("product") else []
    found = bf.advise("identity:4", given, beside=beside, max_seconds=1e-3, **BUDGET)
    assert [words.name for words in found.policies] == [*names, *beside]


def test_a_frame_has_one_row_a_candidate_and_table(advice):
    frame = advice.to_frame("pandas")
    assert list(frame.columns) == ["policy", "noise", "promise", "table", "num_queries", "rmse", "worst", "wanted"]
    assert len(frame) == 3 * len(advice.candidates)
    first = advice.candidates[0]
    assert frame.iloc[1][["policy", "noise", "table"]].tolist() == [first.policy, first.noise, "age"]
    assert frame["rmse"][1] == first.tables[1].rmse


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_seconds": 0}, ["advise(max_seconds=0)", "positive", "60"]),
        ({"epsilon": -1.0}, ["epsilon=-1"]),
        ({"beside": [bf.policy.line(5)]}, ["line:5", "is on 5, the given policy on 4", "same cells"]),
        ({"beside": ["threshold:4:2", "threshold:4:2"]}, ["threshold:4:2", "twice", "another name"]),
    ],
)
def test_a_mistake_is_refused_before_anything_is_fitted(options, words):
    with pytest.raises(bf.InputError) as refused:
        bf.advise("identity:4", "line:4", **{**BUDGET, **options})
    for word in words:
        assert word in str(refused.value)


def test_a_policy_without_candidates_is_refused_by_name(pure):
    with pytest.raises(bf.InputError, match=r"'wide'.*no candidate; there are bounded, given|there are given"):
        pure.best("wide")


def test_a_given_policy_that_no_noise_serves_is_refused_with_the_first_reason(monkeypatch):
    def refuse(*_, noise, **__):
        raise bf.InputError(f"no {noise} strategy fits")

    monkeypatch.setattr(sys.modules["hdmm_bf.fit.advice"], "fit", refuse)
    with pytest.raises(bf.InputError, match="^no gaussian strategy fits$"):
        bf.advise("identity:4", "line:4", **BUDGET)


def test_all_of_it_is_plain_values(advice):
    record = json.loads(json.dumps(advice.summary()))
    assert record["num_queries"] == 12
    assert record["candidates"][0]["tables"][2]["table"] == "age x sex"
    assert record["policies"][2]["title"] == "unbounded:4x2"


def test_what_would_take_too_long_is_left_out_and_named(monkeypatch):
    """Quotes advise: what is not reached is left out and named, and so are tree norms that would take longer."""
    monkeypatch.setattr(sys.modules["hdmm_bf.fit.advice"], "norm_fit_seconds", lambda problem: 61.4)
    advice = bf.advise("prefix:6", "unbounded:6", epsilon=0.5, max_seconds=3)
    assert {one.noise for one in advice.candidates} == {"laplace"}
    told = {one.why for one in advice.left_out if one.noise == "norm"}
    assert told == {"it would take about 61 s, more than is left of 3 s for all"}


def test_a_complete_graph_on_many_cells_is_left_out_and_named():
    advice = bf.advise("marginals:100x50:1", "unbounded:100x50", epsilon=0.5, delta=1e-6, max_seconds=1)
    assert [words.name for words in advice.policies] == ["given"]
    told = {one.why for one in advice.left_out if one.policy == "bounded"}
    assert told == {"5000 cells are more than 4096, up to which all pairs are searched"}
