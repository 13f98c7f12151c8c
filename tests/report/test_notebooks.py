"""What notebooks show: short, escaped, with the numbers of the object."""

import html.parser

import numpy as np
import pytest

import hdmm_bf as bf

EVIL = "<script>alert(1)</script>&\"'"


class Reader(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.open, self.words = [], []
        self.feed(page)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        assert tag in {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def shown(thing):
    return " ".join(Reader(thing._repr_html_()).words)


@pytest.fixture(scope="module")
def fit():
    return bf.fit("all-range:16", "threshold:16:3")


def test_a_fit_shows_error_bound_and_what_is_public(fit):
    words = shown(fit)
    assert f"{fit.unit_error:.6g}" in words
    assert f"{fit.bounds.lower:.6g}" in words
    assert "the total number of records" in words
    assert fit.sentence in words


def test_a_fit_without_error_or_bound_says_so(fit):
    assert "all answers are public" in shown(bf.fit("identity:4", "empty:4"))
    structured = bf.fit("marginals:2x3x4:2", "product:line:2,bounded:3,empty:4", family="sectors")
    assert "family sectors" in shown(structured)


def test_a_policy_shows_what_it_hides_and_what_is_public():
    assert "at distance at most 3" in shown(bf.policy.parse("threshold:16:3"))
    assert "not even the number of records" in shown(bf.policy.parse("unbounded:4"))
    assert "2x3" in shown(bf.policy.parse("unbounded:2x3"))


def test_a_workload_shows_its_first_queries_and_its_last():
    words = shown(bf.workload.parse("all-range:16"))
    assert bf.workload.parse("all-range:16").name(135) in words
    assert "136" in words
    assert "query 134" not in words
    assert len(shown(bf.workload.parse("all-range:" + "x".join(["1000"] * 9)))) < 500  # too many to number


@pytest.mark.parametrize("family", [None, "sectors"])
def test_a_release_shows_its_promise_and_first_answers(family):
    made = bf.fit("marginals:2x3x4:2", "product:line:2,bounded:3,empty:4", family=family)
    out = bf.release(made, np.arange(24), epsilon=1.0, delta=1e-6)
    words = shown(out)
    assert "epsilon = 1, delta = 1e-06" in words
    assert f"{out.answers[4]:.6g}" in words
    assert f"{out.stddev[4]:.4g}" in words
    assert f"{made.problem.workload.num_queries - 5} more" in words


def test_names_from_files_are_escaped(fit):
    named = bf.workload.from_matrix(np.eye(3), names=[EVIL, "b", "c"], spec=EVIL)
    inside = EVIL.replace('"', r"\"")  # in quotes that it cannot close
    assert inside in shown(named)  # the reader refuses unknown elements, so it came as words
    assert inside in shown(bf.fit(named, "line:3"))


def test_reprs_are_one_line(fit):
    out = bf.release(fit, np.arange(16), epsilon=1.0, delta=1e-6)
    for thing in (fit, out, fit.problem.policy, fit.problem.workload, fit.strategy):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 160


def test_a_plan_shows_its_promise_and_its_error(fit):
    settled = bf.plan(fit, epsilon=20.0, delta=1e-6)
    words = shown(settled)
    for said in (settled.promise, "Gaussian noise", f"{settled.rmse:.4g}", f"{settled.worst_stddev:.4g}"):
        assert said in words
    assert settled.warnings[0] in words
    assert "every answer is public" in shown(bf.plan(bf.fit("identity:4", "empty:4"), epsilon=1.0, delta=1e-6))


def test_a_ledger_shows_what_was_spent_and_what_is_left(fit, tmp_path):
    book = bf.Ledger(tmp_path / "spent.db", epsilon=2.0, delta=1e-5, new=True)
    assert "epsilon = 2" in shown(book)
    bf.release(fit, np.arange(16), epsilon=1.0, delta=1e-6, account=book.account("people"))
    (balance,) = book.balances()
    words = shown(book)
    for said in ("people", "epsilon 1", balance.left, "threshold:16:3", f"{balance.epsilon_exact:.6g}"):
        assert said in words


def test_a_comparison_shows_its_rows_and_is_a_frame(fit):
    made = bf.compare("all-range:6", "line:6", noise="gaussian")
    rows, own = made
    assert rows is made.rows
    assert own is made.fit
    words = shown(made)
    for row in rows:
        assert row.name in words
        assert f"{row.unit_error:.6g}" in words
    frame = made.to_frame("pandas")
    assert frame["name"].tolist() == [row.name for row in rows]
    assert frame["unit_error"].tolist() == [row.unit_error for row in rows]


def test_advice_shows_every_candidate():
    made = bf.advise("identity:4", "line:4", epsilon=1.0, delta=1e-6, max_seconds=1e-3)
    words = shown(made)
    assert f"{made.best().tables[0].rmse:.4g}" in words
    assert "whether any one record is in the data at all" in words
