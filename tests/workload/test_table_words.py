"""Tables in a line of words, as `release --queries` takes them."""

import csv

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.problem.inputs import as_queries
from hdmm_bf.workload.table_words import is_words, parse_words
from tests.support.command_line import assert_one_sentence, call

PEOPLE = bf.domain.of({"age": 4, "home region": ["north", "south"]})
BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("table age", bf.table("age")),
        ("table age 'home region'; total", bf.table("age", "home region") + bf.total()),
        ("total; table age", bf.total() + bf.table("age")),
        ("ranges age by 'home region';", bf.ranges("age", by="home region")),
        ('prefixes age;table "home region"', bf.prefixes("age") + bf.table("home region")),
    ],
)
def test_words_are_the_tables_that_they_say(text, expected):
    assert is_words(text)
    made = as_queries(text, PEOPLE)
    assert np.array_equal(made.matrix.dense(), expected.on(PEOPLE).matrix.dense())
    assert [made.query(i) for i in range(made.num_queries)] == [
        expected.on(PEOPLE).query(i) for i in range(made.num_queries)
    ]


@pytest.mark.parametrize("text", ["identity:8", "table.csv", "counts age", "total.csv", "all-range:4x2", "", "total:4"])
def test_specs_and_paths_are_no_words(text):
    assert not is_words(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("table age; rangs age", ["'rangs'", "is none of table, ranges, prefixes, total"]),
        ("tabel age", ["'tabel'", "Write it like 'table age region;"]),
        ("tables age", ["'tables'", "is none of table"]),
        ("table 'age", ["quote that is not closed"]),
        ("total age", ["total age", "has no attributes"]),
        ("ranges age region", ["ranges age region", "one attribute, by others"]),
        ("table", ["must be names of attributes"]),
        ("table income", ["income", "age, home region"]),
    ],
)
def test_a_mistake_says_what_to_write(text, words):
    assert is_words(text), "or a release would take it for a spec"
    with pytest.raises(bf.InputError) as refused:
        parse_words(text).on(PEOPLE)
    for word in words:
        assert word in str(refused.value)


def test_a_release_answers_tables_in_words(tmp_path):
    fit = bf.fit(bf.table("age", "home region"), bf.policies(age="line"), domain=PEOPLE)
    fit.save(tmp_path / "p.bf")
    np.save(tmp_path / "x.npy", np.arange(8))
    given = ("release", "p.bf", "--data", "x.npy", *BUDGET, "--queries", "table 'home region'; ranges age")
    told = call(*given, "--out", "out.csv", cwd=tmp_path)
    assert told.returncode == 0
    assert 'answers  tables "home region; ranges of age", 12 queries, instead' in told.stdout
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["table"] for row in rows] == ["home region"] * 2 + ["ranges of age"] * 10
    assert float(rows[0]["estimate"]) == 0 + 2 + 4 + 6  # what is not in the policy is public
    assert_one_sentence(call(*given[:-1], "table income", "--out", "b.csv", cwd=tmp_path), "income")
    assert not (tmp_path / "b.csv").exists()
