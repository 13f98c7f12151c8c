"""`fit --objective`, `fit --targets` and `[objective]` of a problem file, as a user runs them."""

import json

import numpy as np
import pytest

import hdmm_bf as bf
from tests.support.command_line import assert_one_sentence, call

FIT = ("fit", "-w", "prefix:4", "-g", "unbounded:4")
NAMES = ["a0=0", "a0=0..1", "a0=0..2", "total"]
KEYS = ("objective", "objective_value", "objective_bound", "worst_variance")


def reached(*arguments, cwd=None):
    result = call(*arguments, "--json", cwd=cwd)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def same_goal(record, **asked):
    """The command reached what `bf.fit` reaches."""
    made = bf.fit("prefix:4", "unbounded:4", **asked)
    assert {name: record[name] for name in KEYS} == {name: getattr(made, name) for name in KEYS}


def test_the_largest_variance_and_its_bundle(tmp_path):
    record = reached(*FIT, "--objective", "largest", "--out", "a.bf", cwd=tmp_path)
    same_goal(record, objective="largest")
    again = reached("verify", "a.bf", cwd=tmp_path)
    assert again["verified"] is True
    assert {name: again[name] for name in KEYS} == {name: record[name] for name in KEYS}
    words = call(*FIT, "--objective", "largest", cwd=tmp_path).stdout
    assert "largest" in words


def test_the_total_has_the_fields_of_the_contract():
    record = reached(*FIT)
    assert record["objective"] == "total"
    assert (record["objective_value"], record["objective_bound"]) == (record["unit_error"], record["lower_bound"])


def test_one_number_is_a_target_for_all():
    same_goal(reached(*FIT, "--targets", "5"), targets=5)
    same_goal(reached(*FIT, "--targets", "5", "--objective", "targets"), targets=5)


FILES = {
    "in order": ("c.csv", "1\n2\n\n4\n"),
    "in order, with a header": ("c.csv", "stddev\n1\n2\n\n4\n"),
    "by name": ("c.csv", "a0=0,1\ntotal,4\na0=0..1,2\n"),
    "by name, with a header and empty lines": ("c.csv", "query,stddev\na0=0,1\n\na0=0..2,\ntotal,4\na0=0..1,2\n"),
    "after a byte-order mark": ("c.csv", "\ufeff1\n2\nnan\n4\n"),
}


@pytest.mark.parametrize("name", FILES)
def test_targets_are_read_from_files(name, tmp_path):
    assert bf.workload.prefix(4).names() == NAMES
    file, text = FILES[name]
    (tmp_path / file).write_text(text)
    same_goal(reached(*FIT, "--targets", file, cwd=tmp_path), targets=[1, 2, np.nan, 4])


def test_targets_are_read_from_arrays(tmp_path):
    np.save(tmp_path / "c.npy", np.array([1, 2, 3, 4]))
    same_goal(reached(*FIT, "--targets", "c.npy", cwd=tmp_path), targets=[1, 2, 3, 4])


BAD_FILES = {
    "empty": ("", "the file is empty"),
    "three columns": ("a0=0,1,2\n", "has no one or two columns"),
    "ragged": ("1\na0=0,2\n", "has no one or two columns"),
    "unknown query": ("a0=0,1\ntotl,2\n", "Did you mean 'total'?"),
    "a query twice": ("a0=0,1\na0=0,2\n", "has two lines"),
    "no number": ("1\nx\n3\n4\n", "line 2, 'x'): is not a number"),
    "no number by name": ("a0=0,1\ntotal,x\n", "line 2, 'x'): is not a number"),
    "infinite": ("1\n2\n3\ninf\n", "is not a number"),
    "too few": ("1\n2\n3\n", "3 targets): there are 4 queries"),
    "too many": ("1\n2\n3\n4\n5\n", "5 targets): there are 4 queries"),
    "negative": ("1\n-2\n3\n4\n", "target -2 of query 1"),
    "header alone": ("query,stddev\n", "are all missing"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_of_targets_are_refused_in_one_sentence(name, tmp_path):
    text, seen = BAD_FILES[name]
    (tmp_path / "c.csv").write_text(text)
    assert_one_sentence(call(*FIT, "--targets", "c.csv", cwd=tmp_path), seen)


@pytest.mark.parametrize(
    ("array", "seen"),
    [(np.array(["a", "b"]), "must hold real numbers"), (np.ones(3), "3 targets"), (np.ones(4) * 1j, "real numbers")],
    ids=["words", "too few", "complex"],
)
def test_bad_arrays_of_targets_are_refused_in_one_sentence(array, seen, tmp_path):
    np.save(tmp_path / "c.npy", array)
    assert_one_sentence(call(*FIT, "--targets", "c.npy", cwd=tmp_path), seen)


def test_an_array_that_was_cut_off_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "c.npy").write_bytes(b"")
    assert_one_sentence(call(*FIT, "--targets", "c.npy", cwd=tmp_path), "c.npy", "could not be read")


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        (("--targets", "0"), "must be a positive standard deviation"),
        (("--targets", "-1"), "target -1"),
        (("--targets", "nan"), "are all missing"),
        (("--targets", "inf"), "target inf"),
        (("--targets", "no.csv"), "no such file"),
        (("--targets", "no.npy"), "no.npy"),
        (("--targets", ""), "targets"),
        (("--objective", "largest", "--targets", "1"), "objective='largest' with targets"),
        (("--objective", "targets"), "needs targets"),
        (("--objective", "larges"), "largest"),
        (("--objective", "own"), "own"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes_are_refused_in_one_sentence(arguments, seen):
    assert_one_sentence(call(*FIT, *arguments), seen)


def test_a_target_for_a_public_query_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "c.csv").write_text("1\n1\n1\n1\n")
    asked = ("fit", "-w", "prefix:4", "-g", "bounded:4", "--targets", "c.csv")
    assert_one_sentence(call(*asked, cwd=tmp_path), "a target for query 3 (total)")


# Problem files

PROBLEM = '[policy]\nspec = "unbounded:4"\n[workload]\nspec = "prefix:4"\n[objective]\n'


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('kind = "largest"', {"objective": "largest"}),
        ("stddev = 5", {"targets": 5}),
        ("stddev = [1, 2, nan, 4]", {"targets": [1, 2, np.nan, 4]}),
        ('targets = "c.csv"', {"targets": [1, 2, np.nan, 4]}),
        ('kind = "largest"\ngroups = ["a", "a", "b", "b"]', {"objective": "largest", "groups": list("aabb")}),
        (
            'stddev = { a = 1, b = 2 }\ngroups = ["a", "a", "b", "b"]',
            {"targets": {"a": 1, "b": 2}, "groups": list("aabb")},
        ),
    ],
)
def test_a_problem_file_says_what_is_to_be_small(text, asked, tmp_path):
    (tmp_path / "c.csv").write_text("1\n2\n\n4\n")
    (tmp_path / "p.toml").write_text(PROBLEM + text)
    same_goal(reached("fit", tmp_path / "p.toml"), **asked)


def test_flags_go_before_the_problem_file(tmp_path):
    (tmp_path / "p.toml").write_text(PROBLEM + "stddev = [1, 2, 3, 4]")
    same_goal(reached("fit", tmp_path / "p.toml", "--objective", "largest"), objective="largest")
    same_goal(reached("fit", tmp_path / "p.toml", "--targets", "2"), targets=2)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('kind = "larges"', "kind = 'larges'"),
        ("stddev = 0", "must be"),
        ("stddev = -1", "must be"),
        ("stddev = [1, 2]", "2 targets"),
        ('stddev = "five"', "stddev"),
        ('stddev = 5\ntargets = "c.csv"', "are two lists of targets"),
        ('targets = "no.csv"', "no such file"),
        ('kind = "targets"', "needs targets"),
        ('kind = "largest"\nstddev = 5', "objective='largest' with targets"),
        ('kind = "largest"\ngroups = ["a"]', "groups of 1 queries"),
        ('groups = ["a", "a", "b", "b"]', "the total needs none"),
        ("stddev = { a = 1 }", "targets by group"),
        ("goal = 5", "goal = 5"),
    ],
)
def test_mistakes_in_a_problem_file_are_refused_in_one_sentence(text, seen, tmp_path):
    (tmp_path / "p.toml").write_text(PROBLEM + text)
    assert_one_sentence(call("fit", tmp_path / "p.toml"), seen)
