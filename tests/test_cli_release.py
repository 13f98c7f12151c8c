"""`release` and `ledger` as a user runs them: one object, one sentence, nothing spent on a mistake."""

import contextlib
import csv
import io
import json
import os
import shutil
import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import cli
from hdmm_bf.mechanisms.ledger import Ledger
from tests.test_cli import assert_one_sentence, run

SECRET = 987654321
COUNTS = [SECRET, 1, 4, 1, 5, 9]
GAUSSIAN = ("--epsilon", "1", "--delta", "1e-6")
BOOK = ("--ledger", "spent.db", "--total", "2,1e-5")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    bf.fit("all-range:6", "line:6").save(folder / "g.bf")
    bf.fit("all-range:6", "line:6", noise="laplace", max_steps=2).save(folder / "l.bf")
    bf.fit("identity:6", "cycle:6").save(folder / "c.bf")
    bf.fit("identity:6", "empty:6").save(folder / "public.bf")
    np.save(folder / "x.npy", COUNTS)
    (folder / "x.csv").write_text(",".join(map(str, COUNTS)))
    (folder / "bad.csv").write_text("1,2,3")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "work")


def call(*arguments, cwd):
    """Run `hdmm-bf` inside this process."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["hdmm-bf", *map(str, arguments)])
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with argv, contextlib.chdir(cwd), streams[0], streams[1], pytest.raises(SystemExit) as ended:
        cli.main()
    return SimpleNamespace(returncode=ended.value.code, stdout=out.getvalue(), stderr=err.getvalue())


def release(folder, *arguments, bundle="g.bf", data="x.csv", out="a.csv", privacy=GAUSSIAN):
    return call("release", bundle, "--data", data, "--out", out, *privacy, *arguments, cwd=folder)


def answers(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def test_release_from_data_to_answers_in_a_process_of_its_own(folder):
    arguments = ("release", "g.bf", "--data", "x.npy", "--out", "a.csv", *GAUSSIAN, *BOOK, "--json")
    result = run(*arguments, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    record = json.loads(result.stdout)  # raises on anything before or after the object
    assert (record["files"], record["ledger"], record["level"]) == (["a.csv"], "spent.db", 0.95)
    assert (record["epsilon"], record["delta"], record["policy"]) == (1.0, 1e-6, "line:6")
    rows = answers(folder / "a.csv")
    assert len(rows) == 21
    truth = bf.workload.all_range(6).matrix.mv(np.array(COUNTS))
    for row, value in zip(rows, truth, strict=True):
        assert abs(float(row["answer"]) - value) <= 8 * float(row["stddev"]) + 1e-6 * value
        assert float(row["low"]) <= float(row["answer"]) <= float(row["high"])
    listed = run("ledger", "spent.db", "--json", cwd=folder)
    (entry,) = json.loads(listed.stdout)["entries"]
    assert entry["data"] == bf.fingerprint(np.array(COUNTS))
    assert (entry["epsilon"], entry["delta"], entry["published"]) == ("1.0", "1e-06", "a.csv")


def test_words_say_the_promise_the_error_and_what_is_public(folder):
    result = release(folder, "--estimate", "cells.json", "--postprocess", "nonnegative, integers", out="a.parquet")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "all-range:6 under line:6, 21 queries" in result.stdout
    assert "epsilon = 1, delta = 1e-06, by rho = " in result.stdout
    assert "the total number of records" in result.stdout
    assert "Wrote a.parquet, cells.json" in result.stdout
    assert str(SECRET) not in result.stdout
    cells = json.loads((folder / "cells.json").read_text())
    assert sum(cells["processed"]) == sum(COUNTS), "the public total stays"
    assert min(cells["processed"]) >= 0


@pytest.mark.parametrize("privacy", [("--rho", "0.5"), GAUSSIAN])
def test_both_ways_to_state_the_privacy_of_gaussian_noise(folder, privacy):
    assert release(folder, privacy=privacy).returncode == 0


def test_answers_that_are_all_public_need_no_noise(folder):
    result = release(folder, bundle="public.bf")
    assert result.returncode == 0, result.stderr
    assert [float(row["answer"]) for row in answers(folder / "a.csv")] == COUNTS


def test_dry_run_reads_no_data_and_spends_nothing(folder):
    arguments = ("release", "g.bf", "--dry-run", "--data", "no such file.csv", "--out", "a.csv", *BOOK, *GAUSSIAN)
    before = sorted(os.listdir(folder))
    words = call(*arguments, cwd=folder)
    assert words.returncode == 0
    assert words.stdout.endswith("Nothing was read or spent.\n")
    record = json.loads(call(*arguments, "--json", cwd=folder).stdout)
    assert record["rmse"] > 0
    assert "files" not in record
    assert sorted(os.listdir(folder)) == before
    assert call("release", "l.bf", "--dry-run", "--epsilon", "1", cwd=folder).returncode == 0


LAPLACE = {"bundle": "l.bf", "privacy": ("--epsilon", "1")}
SETTLED = {  # mistakes that are found before data are read
    "no epsilon": ((), {"privacy": ()}, "Gaussian noise takes epsilon and delta, or rho"),
    "no delta": ((), {"privacy": ("--epsilon", "1")}, "Gaussian noise takes epsilon and delta, or rho"),
    "laplace, no epsilon": ((), {**LAPLACE, "privacy": ()}, "Laplace noise takes epsilon alone"),
    "laplace with delta": (("--delta", "1e-6"), LAPLACE, "Laplace noise takes epsilon alone"),
    "laplace with rho": ((), {**LAPLACE, "privacy": ("--rho", "1")}, "Laplace noise takes epsilon alone"),
    "epsilon and rho": (("--rho", "1"), {}, "Gaussian noise takes epsilon and delta, or rho"),
    "epsilon zero": ((), {**LAPLACE, "privacy": ("--epsilon", "0")}, "epsilon=0.0"),
    "epsilon nan": ((), {**LAPLACE, "privacy": ("--epsilon", "nan")}, "epsilon=nan"),
    "epsilon infinite": ((), {**LAPLACE, "privacy": ("--epsilon", "inf")}, "epsilon=inf"),
    "epsilon tiny": ((), {**LAPLACE, "privacy": ("--epsilon", "1e-300")}, "epsilon=1e-300"),
    "epsilon a word": ((), {**LAPLACE, "privacy": ("--epsilon", "one")}, "'one' is not a valid float"),
    "delta one": ((), {"privacy": ("--epsilon", "1", "--delta", "1")}, "delta=1.0"),
    "no bundle": ((), {"bundle": "no.bf"}, "is not a bundle"),
    "no such option": (("--epsilom", "1"), {}, "--epsilom"),
    "suffix": ((), {"out": "a.cvs"}, "Did you mean '.csv'?"),
    "no suffix": ((), {"out": "a"}, "unknown kind of file"),
    "folder": ((), {"out": "no/such/a.csv"}, "is in a folder that cannot be written"),
    "long name": ((), {"out": "x" * 300 + ".csv"}, "File name too long"),
    "estimate": (("--estimate", "cells.txt"), {}, "unknown kind of file '.txt'"),
    "estimate twice": (("--estimate", "./a.csv"), {}, "must be different files"),
    "over the data": ((), {"data": "x.csv", "out": "x.csv"}, "must be different files"),
    "over the ledger": (("--ledger", "a.csv", "--total", "1"), {}, "must be different files"),
    "level": (("--level", "1.5"), {}, "level"),
    "level nan": (("--level", "nan"), {}, "level"),
    "step": (("--postprocess", "nonegative"), {}, "Did you mean 'nonnegative'?"),
    "empty step": (("--postprocess", "integers,"), {}, "is no step"),
    "step for lines": (("--postprocess", "isotonic"), {"bundle": "c.bf"}, "cycle:6 is no line"),
    "total alone": (("--total", "1"), {}, "--total and --data-id need --ledger FILE"),
    "name alone": (("--data-id", "people"), {}, "--total and --data-id need --ledger FILE"),
    "total a word": (("--ledger", "spent.db", "--total", "lots"), {}, "'lots' is no total"),
    "total of three": (("--ledger", "spent.db", "--total", "1,2,3"), {}, "'1,2,3' is no total"),
    "total of two rhos": (("--ledger", "spent.db", "--total", "rho=1,2"), {}, "'rho=1,2' is no total"),
}
READ = {  # mistakes in the data or the ledger
    "no data": ((), {"data": "no.csv"}, "no such file"),
    "data suffix": ((), {"data": "g.bf/manifest.json"}, "unknown kind of file '.json'"),
    "bad data": (BOOK, {"data": "bad.csv"}, "holds 3 numbers"),
    "total negative": (("--ledger", "spent.db", "--total", "-1"), {}, "epsilon=-1.0"),
    "total nan": (("--ledger", "spent.db", "--total", "nan"), {}, "epsilon=nan"),
    "no total": (("--ledger", "spent.db"), {}, "no total was stated"),
    "ledger a folder": (("--ledger", "g.bf", "--total", "1"), {}, "what is read or written too"),
    "ledger no ledger": (("--ledger", "x.npy", "--total", "1"), {}, "is not usable"),
    "nameless": ((*BOOK, "--data-id", ""), {}, "needs a name"),
}


@pytest.mark.parametrize("name", SETTLED)
def test_a_mistake_in_the_settings_is_one_sentence_before_data_are_read(name, folder, monkeypatch):
    arguments, options, words = SETTLED[name]
    monkeypatch.setattr("hdmm_bf.mechanisms.counts.read_counts", lambda *_: pytest.fail("data were read"))
    assert_nothing_happens(folder, arguments, options, words)


@pytest.mark.parametrize("name", READ)
def test_a_mistake_in_the_data_is_one_sentence_and_shows_no_count(name, folder):
    arguments, options, words = READ[name]
    made = {"spent.db"} if name == "nameless" else set()
    assert_nothing_happens(folder, arguments, options, words, made)


def assert_nothing_happens(folder, arguments, options, words, may_be_made=frozenset()):
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    result = release(folder, *arguments, **options)
    assert_one_sentence(result, words)
    assert str(SECRET) not in result.stderr
    after = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert {file: content for file, content in after.items() if file.name not in may_be_made} == before


def test_data_and_out_are_needed_unless_it_is_a_dry_run(folder):
    for arguments in (("--data", "x.csv"), ("--out", "a.csv"), ()):
        result = call("release", "g.bf", *arguments, *GAUSSIAN, cwd=folder)
        assert_one_sentence(result, "release needs --data FILE and --out FILE, or --dry-run.")


def test_a_mistake_is_one_sentence_in_a_process_of_its_own(folder):
    result = run("release", "g.bf", "--data", "x.csv", "--out", "a.cvs", *GAUSSIAN, "--json", cwd=folder)
    assert_one_sentence(result, "Did you mean '.csv'?")


def test_a_dry_run_finds_the_same_mistakes(folder):
    for arguments, words in ((("--postprocess", "integer"), "'integers'"), (("--out", "a.cvs"), "'.csv'")):
        assert_one_sentence(call("release", "g.bf", "--dry-run", *GAUSSIAN, *arguments, cwd=folder), words)


def test_a_budget_is_kept_and_a_refusal_writes_nothing(folder):
    book = ("--ledger", "spent.db", "--total", "2")
    for number in range(2):
        assert release(folder, *book, **LAPLACE, out=f"{number}.csv").returncode == 0
    result = release(folder, *book, "--estimate", "c.csv", **LAPLACE, out="2.csv")
    assert_one_sentence(result, "2 releases before", "would exceed the total of epsilon = 2.0 for these data")
    assert not (folder / "2.csv").exists()
    assert not (folder / "c.csv").exists()
    assert len(Ledger(folder / "spent.db").entries()) == 2
    assert release(folder, *book, "--data-id", "other", **LAPLACE, out="3.csv").returncode == 0
    assert_one_sentence(release(folder, "--ledger", "spent.db", "--total", "9", **LAPLACE), "cannot be raised")


def test_a_disk_that_fills_up_after_the_entry_is_one_sentence_and_counts_as_spent(folder, monkeypatch):
    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    assert_one_sentence(release(folder, *BOOK), "No space left on device")
    monkeypatch.undo()
    (entry,) = Ledger(folder / "spent.db").entries()
    assert entry.published is None
    listed = call("ledger", "spent.db", cwd=folder)
    assert "not known to be published" in listed.stdout


def test_ledger_lists_what_was_spent_on_which_data(folder):
    release(folder, *BOOK, "--data-id", "people 2020")
    release(folder, "--ledger", "spent.db", out="b.csv", **LAPLACE)
    release(folder, "--ledger", "spent.db", "--data-id", "rho", privacy=("--rho", "0.001"), out="c.json")
    result = call("ledger", "spent.db", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    head, first, second, third = result.stdout.splitlines()
    assert head == "spent.db: epsilon = 2.0, delta = 1e-05 for each set of data, 3 releases"
    assert "people 2020  line:6  epsilon 1.0, delta 1e-06  a.csv" in first
    assert second.endswith("...  line:6  epsilon 1.0  b.csv")
    assert "rho 0.001  c.json" in third
    record = json.loads(call("ledger", "spent.db", "--json", cwd=folder).stdout)
    assert record["total"] == {"epsilon": "2.0", "delta": "1e-05", "rho": None}
    assert len(record["entries"]) == 3


@pytest.mark.parametrize(("name", "words"), [("no.db", "does not exist"), ("g.bf", "opened"), ("x.npy", "not usable")])
def test_ledger_of_something_else_is_one_sentence(name, words, folder):
    before = sorted(os.listdir(folder))
    assert_one_sentence(call("ledger", name, cwd=folder), words)
    assert sorted(os.listdir(folder)) == before


def test_a_touched_ledger_is_one_sentence(folder):
    from tests.test_ledger import change

    release(folder, *BOOK)
    change(folder / "spent.db", "UPDATE spent SET epsilon = '-1'")
    assert_one_sentence(call("ledger", "spent.db", cwd=folder), "holds an entry that no release made")
    assert_one_sentence(release(folder, *BOOK, out="b.csv"), "holds an entry that no release made")
    assert not (folder / "b.csv").exists()


def test_help_fits_on_a_screen_and_its_example_runs(folder):
    for command in ("release", "ledger"):
        text = run(command, "--help").stdout
        assert len(text.splitlines()) <= 32
        assert "Example: hdmm-bf" in text
    shutil.copytree(folder / "g.bf", folder / "ranges.bf")
    shutil.copy(folder / "x.csv", folder / "counts.csv")
    example = " ".join(run("release", "--help").stdout.split("Example: hdmm-bf ")[1].split())
    assert call(*example.split(), cwd=folder).returncode == 0
    assert (folder / "answers.csv").is_file()
