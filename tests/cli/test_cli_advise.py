"""`hdmm-bf advise`: one page with noises and policies side by side, the same as JSON and as a picture."""

import json

import pytest

from tests.support.command_line import assert_one_sentence, call

PROBLEM = """\
policy.attribute = {age = "line", sex = "public"}
publish = [{table = "age"}, {table = ["age", "sex"], stddev = 9}]
domain.attribute = [{name = "age", first = 20, last = 22, unit = "years"}, {name = "sex", labels = ["F", "M"]}]
release = {epsilon = 2, delta = 1e-6}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advise")
    (folder / "people.toml").write_text(PROBLEM)
    return folder


@pytest.fixture(scope="module")
def printed(folder):
    given = ("people.toml", "--max-seconds", "2", "--plot", "cost.svg")
    result = call("advise", *given, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_page_has_numbers_for_every_table_policy_and_noise(printed):
    assert printed.startswith('tables "age; age x sex", 9 queries, at epsilon 2, delta 1e-06\n')
    for heading in ("all answers (9 counts)", "age (3 counts)", "age x sex (6 counts, wanted: at most 9)"):
        start = printed.index(heading)
        block = printed[start:].split("\n\n")[0].splitlines()
        assert block[1].split()[:2] == ["policy", "gaussian"]
        assert [line.split()[0] for line in block[2:]] == ["given", "unbounded", "bounded"]
        assert " / " in block[2]


def test_the_page_says_what_is_hidden_public_and_promised(printed):
    assert "Of one record nobody can tell apart two ages at most 1 years apart." in printed
    assert "public  the exact number of records for every value of sex" in printed
    assert "public  nothing, not even the number of records" in printed
    assert "except with a probability of about delta" in printed
    assert "The same epsilon promises different things under different policies" in printed
    assert "Best under the given policy, by largest stddev over target: " in printed


def test_the_picture_is_written_and_named(printed, folder):
    assert printed.endswith("Wrote cost.svg\n")
    assert b"<svg" in (folder / "cost.svg").read_bytes()


def test_json_holds_the_same_and_nothing_else(folder):
    given = ("-w", "identity:4", "-g", "line:4", "--epsilon", "1", "--beside", "threshold:4:2", "--max-seconds", "1")
    record = json.loads(call("advise", *given, "--json", cwd=folder).stdout)
    assert (record["epsilon"], record["delta"], record["plot"]) == (1.0, None, None)
    assert [words["name"] for words in record["policies"]] == ["given", "threshold:4:2", "unbounded", "bounded"]
    assert {one["noise"] for one in record["candidates"]} <= {"laplace", "norm"}
    assert {"policy": "given", "noise": "gaussian", "why": "it needs a delta"} in record["left_out"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-w", "identity:4", "-g", "line:4"], ["advise needs --epsilon"]),
        (["-w", "identity:4", "-g", "line:4", "--epsilon", "0"], ["epsilon"]),
        (["-w", "identity:4", "-g", "line:4", "--epsilon", "1", "--plot", "a.gif"], [".gif", ".svg"]),
        (["-w", "identity:4", "-g", "line:4", "--epsilon", "1", "--max-seconds", "-1"], ["max_seconds=-1", "positive"]),
        (["people.toml", "--plot", "people.toml/a.svg"], ["cannot be written"]),
        (["-w", "identity:4", "-g", "line:4", "--epsilon", "1", "--beside", "line:5"], ["domain", "4"]),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_fitted(folder, arguments, words):
    before = set(folder.iterdir())
    assert_one_sentence(call("advise", *arguments, cwd=folder), *words)
    assert set(folder.iterdir()) == before
