"""The command `hdmm-bf`, run the way a user runs it: words, one JSON object, or one sentence and exit code 2."""

import json
import subprocess
import sys

import pytest

from tests.support.command_line import assert_one_sentence, call, run
from tests.support.mistakes import only_text

SCREEN = 24


def test_explain_says_in_words_what_is_hidden_and_what_is_public():
    result = run("explain", "line:4")
    assert result.returncode == 0
    assert result.stderr == ""
    assert "line:4: 4 cells, 3 edges, a tree" in result.stdout
    assert "Nobody can tell whether any one record is in a cell or in the cell next to it." in result.stdout
    assert "Public   the total number of records" in result.stdout
    assert "the two are 3 steps apart" in result.stdout


def test_explain_of_ordinary_dp_says_that_nothing_is_public():
    result = call("explain", "unbounded:3")
    assert result.returncode == 0
    assert "Public   nothing; even the number of records is hidden." in result.stdout


@pytest.mark.parametrize("arguments", [("threshold:8:2", "--json"), ("--json", "threshold:8:2")])
def test_json_is_one_object_and_nothing_else(arguments):
    result = run("explain", *arguments)
    assert result.returncode == 0
    assert result.stderr == ""
    facts = json.loads(result.stdout)  # raises on anything before or after the object
    assert isinstance(facts, dict)
    assert facts["policy"] == "threshold:8:2"
    assert facts["num_cells"] == 8
    assert facts["num_edges"] == 7 + 6
    assert facts["num_components"] == 1
    assert facts["is_tree"] is False
    assert facts["discloses"] == ["the total number of records"]
    assert [example["neighbours"] for example in facts["examples"]] == [True, False]


def test_json_holds_the_note_about_merged_edges_of_a_file(tmp_path):
    (tmp_path / "G.csv").write_text("u,v\n0,1\n1,0\n2,_\n")
    result = call("explain", "G.csv", "--json", cwd=tmp_path)
    assert result.returncode == 0
    facts = json.loads(result.stdout)
    assert facts["notes"] == ["1 duplicate edge was merged"]
    assert facts["num_edges"] == 2
    assert facts["discloses"] == ["the number of records in cells 0-1"]


def test_words_name_the_attributes_of_a_product_by_their_place_in_the_domain():
    facts = json.loads(call("explain", "product:threshold:2x3:1,bounded:4", "--json").stdout)
    assert "in attribute a2, which value any one record has" in facts["hides"]


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["fit", "all-range:8", "line:8"], ["(line:8)", "or --workload all-range:64 --policy line:64."]),
        (["explain", "lin:64"], ["'lin:64'", "Did you mean 'line'?"]),
        (["explain", "--json", "lin:64"], ["'lin:64'", "Did you mean 'line'?"]),
        (["explain", "line:0"], ["'0'", "for example 64 or 32x32"]),
        (["explain", "threshold:64:0"], ["threshold=0", "policy.empty(n)"]),
        (["explain", "line:10000000000000"], ["line:10000000000000", "145.5 TB", "smaller domain"]),
        (["explain", "missing.csv"], ["missing.csv", "no such file", "Check the path"]),
        (["explian", "line:64"], ["'explian'", "'explain'"]),
        (["explain", "line:64", "--jsn"], ["--jsn", "--json"]),
        (["--jsn"], ["--jsn"]),
        (["explain"], ["'POLICY'"]),
        (["explain", "line:64", "line:65"], ["line:65"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments, fragments, tmp_path):
    assert_one_sentence(call(*arguments, cwd=tmp_path), *fragments)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broken.json", b"{"),
        ("broken.graphml", b"<graphml"),
        ("latin.csv", b"0,1\n\xe9,2\n"),
        ("empty.csv", b""),
        ("nested.json", b"[" * 200_000),
        ("giant.csv", b"0,999999999999999999\n"),
    ],
    ids=only_text,
)
def test_a_bad_file_is_one_sentence_that_names_it(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert_one_sentence(call("explain", name, cwd=tmp_path), name)


def test_a_line_break_in_a_path_does_not_break_the_sentence(tmp_path):
    assert_one_sentence(run("explain", "two\nlines.csv", cwd=tmp_path), "no such file")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["explain", "--help"]], ids=" ".join)
def test_help_fits_on_a_screen(arguments):
    result = call(*arguments)
    assert result.returncode == 0
    assert result.stderr == ""
    assert "Usage: hdmm-bf" in result.stdout
    assert len(result.stdout.splitlines()) <= SCREEN


def test_the_list_of_commands_cuts_no_sentence_short():
    listed = call().stdout.partition("Commands:")[2]
    assert "doctor" in listed
    assert "..." not in listed


def test_help_of_explain_has_an_example_that_runs():
    lines = call("explain", "--help").stdout.splitlines()
    example = next(line for line in lines if "Example: hdmm-bf " in line)
    assert call(*example.split("hdmm-bf ")[1].split()).returncode == 0


def test_no_command_prints_the_help():
    result = run()
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout == run("--help").stdout


def test_importing_the_command_line_imports_nothing_heavy():
    code = "import sys, hdmm_bf.cli; print(sorted({'jax', 'scipy', 'networkx'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
