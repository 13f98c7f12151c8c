"""`hdmm-bf plan`: the error of a release, or the smallest budget for an error, before anything is read or spent."""

import json
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.cli.show import asked as asked_words
from tests.support.command_line import assert_one_sentence, call

GAUSSIAN = ("--epsilon", "1", "--delta", "1e-6")
FIELDS = {"rmse", "worst_stddev", "any_unbiased_rmse", "epsilon", "delta", "rho", "worst"}


def planned(folder, *arguments):
    result = call("plan", *arguments, "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def targets():
    return 2.0 + np.arange(21) % 4


@pytest.fixture(scope="module")
def asked(made, targets):
    bf.fit("all-range:6", "unbounded:6", targets=targets, gap=0.05).save(made / "asked.bf")
    return made


def test_the_worst_ten_queries_are_named_with_the_standard_deviations_of_a_release(made):
    record = planned(made, "g.bf", *GAUSSIAN)
    fit = bf.load(made / "g.bf")
    stddev = fit.per_query_stddev(epsilon=1.0, delta=1e-6)
    names = fit.problem.workload.names()
    assert record.keys() >= FIELDS
    assert [row["stddev"] for row in record["worst"]] == pytest.approx(np.sort(stddev)[::-1][:10])
    for row in record["worst"]:
        assert row["stddev"] == pytest.approx(stddev[names.index(row["query"])])
        assert row["target"] is None
    assert record["worst_stddev"] == pytest.approx(stddev.max())
    assert record["rmse"] == pytest.approx(math.sqrt(np.mean(stddev**2)), rel=1e-6)
    assert (record["epsilon"], record["delta"], record["any_unbiased_rmse"]) == (1.0, 1e-6, None)


def test_the_number_of_queries_is_told_once():
    assert asked_words("all-range:4", "line:4", 10) == "all-range:4 under line:4, 10 queries"
    assert asked_words('tables "age", 10 queries', "line:4", 10) == 'tables "age", 10 queries under line:4'
    assert asked_words('tables "age", 10 queries', "line:4", 3).endswith("under line:4, 3 queries")


def test_rho_knows_what_no_unbiased_mechanism_is_below(made):
    record = planned(made, "g.bf", "--rho", "0.1")
    assert 0 < record["any_unbiased_rmse"] < record["rmse"]
    assert (record["epsilon"], record["rho"]) == (None, 0.1)


@pytest.mark.parametrize("bundle", ["g.bf", "l.bf", "m.bf"])
def test_the_smallest_epsilon_for_a_largest_error_is_that(made, bundle):
    delta = [] if bundle == "l.bf" else ["--delta", "1e-6"]
    record = planned(made, bundle, "--largest", "5", *delta)
    assert record["worst_stddev"] == pytest.approx(5.0, rel=1e-6)
    assert record["worst"][0]["target"] == 5.0
    assert record["targets_met"] == record["targets_asked"] > 0
    less = planned(made, bundle, "--epsilon", str(0.99 * record["epsilon"]), *delta)
    assert less["worst_stddev"] > 5.0


def test_a_wanted_rmse_is_met(made):
    assert planned(made, "g.bf", "--rmse", "3", "--delta", "1e-6")["rmse"] == pytest.approx(3.0, rel=1e-6)


def test_targets_of_the_bundle_are_taken_when_nothing_is_asked(asked, targets):
    record = planned(asked, "asked.bf", "--delta", "1e-6")
    fit = bf.load(asked / "asked.bf")
    assert record["epsilon"] == pytest.approx(fit.epsilon_for(stddev=targets, delta=1e-6))
    share = fit.per_query_stddev(epsilon=record["epsilon"], delta=1e-6) / targets
    assert [row["stddev"] / row["target"] for row in record["worst"]] == pytest.approx(np.sort(share)[::-1][:10])
    assert record["binding"] == np.sum(share >= 0.999 * share.max())
    assert record["targets_met"] == 21


def test_targets_from_a_file_by_name_ask_of_the_named_alone(asked, tmp_path):
    names = bf.load(asked / "asked.bf").problem.workload.names()
    (tmp_path / "c.csv").write_text(f"{names[3]},4\n")
    record = planned(asked, "asked.bf", "--targets", str(tmp_path / "c.csv"), "--delta", "1e-6")
    (only,) = record["worst"]
    assert (only["query"], only["target"]) == (names[3], 4.0)
    assert only["stddev"] == pytest.approx(4.0, rel=1e-6)


def test_people_read_an_epsilon_that_is_not_too_small_and_the_queries_that_bind(asked):
    exact = planned(asked, "asked.bf", "--delta", "1e-6")["epsilon"]
    lines = call("plan", "asked.bf", "--delta", "1e-6", cwd=asked).stdout.splitlines()
    shown = float(next(line for line in lines if line.startswith("  epsilon")).split()[1].rstrip(","))
    assert exact <= shown <= exact * (1 + 1e-5)
    assert any("bind" in line for line in lines)
    assert len(lines) <= 20


def test_public_answers_need_no_budget_and_are_exact(made):
    assert "Every answer is exact." in call("plan", "public.bf", *GAUSSIAN, cwd=made).stdout
    assert_one_sentence(call("plan", "public.bf", "--largest", "5", "--delta", "1e-6", cwd=made), "public answers")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("g.bf",), "plan needs --epsilon or --rho"),
        (("g.bf", "--epsilon", "1", "--rmse", "3"), "different questions"),
        (("g.bf", "--rmse", "3", "--largest", "3"), "different questions"),
        (("g.bf", "--largest", "5"), "Give delta for Gaussian noise"),
        (("l.bf", "--largest", "5", "--delta", "1e-6"), "does not go with laplace noise"),
        (("g.bf", "--largest", "-5", "--delta", "1e-6"), "positive standard deviation"),
        (("g.bf", "--rmse", "0", "--delta", "1e-6"), "positive number"),
        (("g.bf", "--targets", "no.csv", "--delta", "1e-6"), "Check the path, or give one number for all queries."),
        (("g.bf", "--epsilon", "1"), "Gaussian noise takes epsilon and delta"),
        (("nothing.bf", "--epsilon", "1"), "there is no such folder"),
    ],
)
def test_mistakes_are_one_sentence(made, arguments, words):
    assert_one_sentence(call("plan", *arguments, cwd=made), words)


def test_help_fits_on_a_screen_and_is_listed():
    text = call("plan", "--help").stdout
    assert "Example: hdmm-bf plan" in text
    assert len(text.splitlines()) <= 32
    assert "  plan " in call("--help").stdout
