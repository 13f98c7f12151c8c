"""Statements: every number is the plan's, what is unknown is a gap, and templates are filled or refused."""

import json
import math
import re

import numpy as np
import pytest
from scipy import stats

import hdmm_bf as bf
from hdmm_bf.release.privacy import guess_probability
from hdmm_bf.report import statement
from hdmm_bf.report.statement import FIELDS
from tests.support.command_line import assert_one_sentence, call

PEOPLE = bf.domain.of(age=bf.domain.whole(20, 29, unit="years"), sex=["F", "M"])
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    tables = bf.table("age", "sex") + bf.prefixes("age")
    made = bf.fit(tables, bf.policies(age="threshold 2", sex="public"), domain=PEOPLE)
    return made.save(tmp_path_factory.mktemp("statement") / "people.bf")


@pytest.fixture(scope="module")
def fit(bundle):
    return bf.load(bundle)


def unbroken(text):
    return " ".join(text.split())


def test_a_statement_says_what_is_hidden_public_promised_and_how_to_check(fit):
    text = unbroken(statement(fit, bundle="people.bf", **BUDGET))
    for words in (
        "Of one record nobody can tell apart two ages at most 2 years apart.",
        "Of each record the data hold age (10 values, 20 to 29, in years), sex (F, M).",
        "30 counts over 20 cells: - age x sex (20) - prefixes of age (10)",
        "The promise is epsilon = 1, delta = 1e-06",
        "a factor of at most 2.72, plus 1e-06",
        "- the exact number of records for every value of sex",
        "not that it is there",
        f"--expect {fit.digest} --dry-run",
        f"hdmm-bf release people.bf --epsilon 1.0 --delta 1e-06 --expect {fit.digest}",
    ):
        assert words in text, words


def test_errors_are_of_the_release(fit):
    text = unbroken(statement(fit, **BUDGET))
    stddev = fit.per_query_stddev(**BUDGET)
    for name, part in (("age x sex", stddev[:20]), ("prefixes of age", stddev[20:])):
        assert f"- {name}: {math.sqrt(np.mean(part**2)):.4g}, the largest {part.max():.4g}" in text
    assert f"root mean squared error of {math.sqrt(np.mean(stddev**2)):.4g}" in text


def test_what_is_not_known_stays_a_gap(fit):
    assert "What is not known stays a gap in square brackets: nothing is made up for it." in statement.__doc__
    blank, filled = (
        statement(fit, **BUDGET, **given)
        for given in ({}, {"unit": "one person", "publisher": "The Office", "reason": "The board decided."})
    )
    assert len(re.findall(r"\[to be filled in: ", blank)) == 3
    assert "[" not in filled
    assert "One record is one person." in unbroken(filled)
    fresh = bf.fit("identity:4", "line:4")
    assert "[save the bundle, load it again" in statement(fresh, **BUDGET)


def test_presence_is_promised_only_where_the_policy_hides_it():
    hidden = statement(bf.fit("identity:4", "unbounded:4"), **BUDGET)
    assert "Nothing becomes known exactly" in hidden
    assert "not that it is there" not in unbroken(hidden)
    assert "whether any one record is in the data at all" in hidden


def test_public_answers_cost_nothing():
    text = unbroken(statement(bf.fit("identity:4", "empty:4"), **BUDGET))
    assert "no loss is spent" in text
    assert "They are exact." in text
    assert "guesses right" not in text


def test_the_share_of_right_guesses_is_that_of_randomised_response():
    """Truth with probability e^epsilon / (1 + e^epsilon): the best guess believes it."""
    for epsilon in (0.1, 1.0, 5.0):
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert guess_probability(epsilon=epsilon) == pytest.approx(truth, rel=1e-12)
    # with delta: also the truth in the open with probability delta, else as before
    delta, truth = 0.05, math.e / (1 + math.e)
    assert guess_probability(epsilon=1.0, delta=delta) == pytest.approx(delta + (1 - delta) * truth, rel=1e-12)


def test_the_share_of_right_guesses_is_that_of_two_normal_laws_and_of_what_is_drawn():
    mu = 0.7
    grid = np.linspace(-12, 12, 400_001)
    right = np.trapezoid(np.maximum(stats.norm.pdf(grid), stats.norm.pdf(grid, mu)), grid) / 2
    assert guess_probability(mu=mu) == pytest.approx(right, rel=1e-9)
    pair = stats.norm.pdf(grid), stats.norm.pdf(grid, math.sqrt(2 * 0.1))  # rho = 0.1
    assert guess_probability(rho=0.1) > np.trapezoid(np.maximum(*pair), grid) / 2
    assert guess_probability(rho=100.0) == 1.0
    with pytest.raises(bf.InputError, match="bounds no guess"):
        guess_probability()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_printed_share_is_what_a_guesser_reaches_of_drawn_noise(noise):
    """Pairs of cells with public totals, each with noise of its own: guess the nearer of the two neighbours."""
    pairs, repeats = 60, 8
    first_of_each = np.kron(np.eye(pairs), [[1, 0]])
    fit = bf.certify(f"identity:{pairs}x2", f"product:empty:{pairs},line:2", first_of_each, noise=noise)
    budget = BUDGET if noise == "gaussian" else {"epsilon": 1.0}
    printed = float(re.search(r"guesses right at most ([\d.]+) times", unbroken(statement(fit, **budget)))[1]) / 100
    right = 0
    for first, second in ((5, 4), (4, 5)):
        for _ in range(repeats):
            out = bf.release(fit, np.tile([first, second], pairs), **budget)
            guess = np.where(out.estimate[::2] > 4.5, 5, 4)
            right += int(np.sum(guess == first))
    share, error = right / (2 * pairs * repeats), math.sqrt(0.25 / (2 * pairs * repeats))
    assert share <= printed + 5 * error
    assert share >= printed - 5 * error  # a guesser who flips a coin would be below for Laplace noise
    assert noise == "gaussian" or printed - 5 * error > 0.5


def test_a_template_of_ones_own_is_filled_in(fit):
    made = statement(fit, template="$hidden costs $$5; ${digest}\n", **BUDGET)
    assert made == f"{bf.policy.hides(fit.problem.policy)} costs $5;     {fit.digest}\n"
    assert {"hidden", "public", "promise", "digest", "errors"} <= set(FIELDS)


@pytest.mark.parametrize(("template", "words"), [("$hiden", "Did you mean"), ("costs $5", "dollar")])
def test_a_template_with_a_mistake_is_refused(fit, template, words):
    with pytest.raises(bf.InputError, match=words):
        statement(fit, template=template, **BUDGET)


def test_a_name_from_a_file_cannot_forge_a_line():
    domain = bf.domain.of({"age": ["a\n## What is promised", "b"], "sex": 2})
    text = statement(bf.fit(bf.table("age"), bf.policies(age="line"), domain=domain), **BUDGET)
    assert sum(line.startswith("## What is promised") for line in text.splitlines()) == 1


def test_the_command_writes_the_same_as_the_function(bundle, fit, tmp_path):
    given = ("statement", bundle, "--epsilon", "1", "--delta", "1e-6", "--unit", "one person")
    expected = statement(fit, bundle="people.bf", unit="one person", **BUDGET)
    assert call(*given).stdout == expected
    assert call(*given, "--out", tmp_path / "s.md").stdout == f"Wrote {tmp_path / 's.md'}\n"
    assert (tmp_path / "s.md").read_text() == expected
    record = json.loads(call(*given, "--json").stdout)
    assert (record["statement"], record["digest"]) == (expected, fit.digest)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["Gaussian noise takes epsilon and delta"]),
        (("--epsilon", "1", "--delta", "1e-6", "--out", "s.pdf"), [".pdf", ".md"]),
        (("--epsilon", "1", "--delta", "1e-6", "--template", "none.md"), ["none.md"]),
    ],
)
def test_a_mistake_is_one_sentence(bundle, tmp_path, arguments, words):
    assert_one_sentence(call("statement", bundle, *arguments, cwd=tmp_path), *words)
    assert list(tmp_path.iterdir()) == []
