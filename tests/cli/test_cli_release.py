"""`release` and `ledger` as a user runs them: one object, one sentence, nothing spent on a mistake."""

import csv
import json
import os
import shutil

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.release.ledger import Ledger
from tests.support.command_line import assert_one_sentence, call, run

SECRET = 987654321
COUNTS = [SECRET, 1, 4, 1, 5, 9]
GAUSSIAN = ("--epsilon", "1", "--delta", "1e-6")
AGAIN = ("--ledger", "spent.db", "--data-id", "people")
NEW = (*AGAIN, "--new-ledger", "--total")
BOOK = (*NEW, "2,1e-5")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    bf.fit("all-range:6", "line:6").save(folder / "g.bf")
    bf.fit("all-range:6", "line:6", noise="laplace", max_steps=2).save(folder / "l.bf")
    bf.fit("identity:6", "cycle:6").save(folder / "c.bf")
    bf.fit("identity:6", "empty:6").save(folder / "public.bf")
    bf.fit("prefix:6", "line:6").save(folder / "p.bf")
    bf.fit("marginals:2x3:1", "unbounded:2x3", family="marginals").save(folder / "m.bf")
    bf.fit("marginals:2x3:1", "unbounded:2x3", noise="laplace", family="union", max_steps=2).save(folder / "t.bf")
    np.save(folder / "x.npy", COUNTS)
    (folder / "x.csv").write_text(",".join(map(str, COUNTS)))
    (folder / "bad.csv").write_text("1,2,3")
    (folder / "old.csv").write_text("paid for")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "work")


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
    assert entry["data"] == "people"
    assert (record["account"], record["new_account"]) == ("people", True)
    assert json.loads(listed.stdout)["accounts"][0]["left_rho"] == record["left"]["rho"] > 0
    assert "fingerprint" not in listed.stdout
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


PURE = {"privacy": ("--epsilon", "1")}
LAPLACE = {"bundle": "l.bf", **PURE}
NO_TOTALS = (
    "lots",
    "1,2,3",
    "rho=1,2",
    "1_0",
    " 1",
    "nan",
    "1e400",
    "0x10",
    "\uff11",
    "-1",
    "0",
    "1,",
    "",
    "inf",
    "rho=",
)


@pytest.mark.parametrize(
    ("bundle", "privacy", "words"),
    [
        ("g.bf", ("--epsilon", "1", "--delta", "0.5"), ["delta = 0.5 is a weak promise"]),
        ("g.bf", ("--epsilon", "50", "--delta", "0.01"), ["delta = 0.01 is", "epsilon = 50 is a weak promise"]),
        ("g.bf", ("--rho", "20"), ["rho = 20 is a weak promise"]),
        ("l.bf", ("--epsilon", "11"), ["epsilon = 11 is a weak promise: the odds of any guess"]),
        ("l.bf", ("--epsilon", "10"), []),
        ("g.bf", ("--epsilon", "10", "--delta", "1e-3"), []),
    ],
)
def test_parameters_that_promise_little_are_told(folder, bundle, privacy, words):
    for arguments in (("--dry-run",), ("--data", "x.csv", "--out", "a.csv", "--overwrite")):
        told = call("release", bundle, *privacy, *arguments, cwd=folder)
        assert told.returncode == 0
        lines = [line for line in told.stderr.splitlines() if line.startswith("hdmm-bf: warning: ")]
        assert len(lines) == len(words)
        assert all(any(word in line for line in lines) for word in words)
        record = json.loads(call("release", bundle, *privacy, *arguments, "--json", cwd=folder).stdout)
        assert len(record["warnings"]) == len(words)


def test_a_list_of_cells_that_leaves_some_out_is_released_only_when_they_are_said_to_be_empty(folder):
    (folder / "some.csv").write_text("cell,count\n0,5\n")
    refused = release(folder, data="some.csv")
    assert_one_sentence(refused, "has no line for cell 1 and 4 more", "--missing zero")
    assert not (folder / "a.csv").exists()
    assert release(folder, "--missing", "zero", data="some.csv").returncode == 0
    total = next(row for row in answers(folder / "a.csv") if row["query"] == "total")
    assert total["answer"] == "5.0"


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
    "no bundle": ((), {"bundle": "no.bf"}, "there is no such folder"),
    "no such option": (("--epsilom", "1"), {}, "--epsilom"),
    "suffix": ((), {"out": "a.cvs"}, "Did you mean '.csv'?"),
    "no suffix": ((), {"out": "a"}, "unknown kind of file"),
    "folder": ((), {"out": "no/such/a.csv"}, "is in a folder that cannot be written"),
    "long name": ((), {"out": "x" * 300 + ".csv"}, "File name too long"),
    "estimate": (("--estimate", "cells.txt"), {}, "unknown kind of file '.txt'"),
    "estimate twice": (("--estimate", "./a.csv"), {}, "must be different files"),
    "over the data": ((), {"data": "x.csv", "out": "x.csv"}, "must be different files"),
    "over the ledger": (("--ledger", "a.csv", "--data-id", "x"), {}, "must be different files"),
    "nowhere": ((), {"out": ""}, "unknown kind of file"),
    "estimate nowhere": (("--estimate", ""), {}, "unknown kind of file"),
    "over answers": ((), {"out": "old.csv"}, "add --overwrite"),
    "over an estimate": (("--estimate", "old.csv"), {}, "add --overwrite"),
    "queries elsewhere": (("--queries", "prefix:7"), {}, "is on another domain"),
    "queries of no kind": (("--queries", "prefx:6"), {}, "Did you mean 'prefix'?"),
    "queries unseen": (("--queries", "identity:2x3"), {"bundle": "m.bf"}, "asks what the strategy does not measure"),
    "queries of other tables": (("--queries", "prefix:2x3"), {"bundle": "t.bf", **PURE}, "every table of its workload"),
    "estimate of tables": (("--estimate", "c.csv"), {"bundle": "t.bf", **PURE}, "every table of its workload"),
    "steps on blocks": (("--postprocess", "integers"), {"bundle": "m.bf"}, "is for domains that fit a dense strategy"),
    "level in Python": (("--level", "0.9_5"), {}, "is not a valid float"),
    "epsilon in Python": ((), {"privacy": ("--epsilon", "1_0")}, "'1_0' is not a valid float"),
    "epsilon with a space": ((), {"privacy": ("--epsilon", " 1")}, "' 1' is not a valid float"),
    "epsilon wide": ((), {"privacy": ("--epsilon", "\uff11")}, "is not a valid float"),
    "level": (("--level", "1.5"), {}, "level"),
    "level nan": (("--level", "nan"), {}, "level"),
    "step": (("--postprocess", "nonegative"), {}, "Did you mean 'nonnegative'?"),
    "empty step": (("--postprocess", "integers,"), {}, "is no step"),
    "step for lines": (("--postprocess", "isotonic"), {"bundle": "c.bf"}, "cycle:6 is no line"),
    "total alone": (("--total", "1"), {}, "need --ledger FILE"),
    "name alone": (("--data-id", "people"), {}, "need --ledger FILE"),
    "claims alone": (("--data-changed",), {}, "need --ledger FILE"),
    "no name": (("--ledger", "spent.db", "--total", "1", "--new-ledger"), {}, "--ledger needs --data-id NAME"),
    "nameless": (("--ledger", "spent.db", "--data-id", " "), {}, "needs a name"),
    "unseen name": (("--ledger", "spent.db", "--data-id", "a\u200b"), {}, "invisible characters"),
    "no total": ((*AGAIN, "--new-ledger"), {}, "--new-ledger needs --total"),
    "claims about nothing": ((*BOOK, "--same-data-as", "x"), {}, "knows no data yet"),
    **{f"total {text!r}": ((*NEW, text), {}, "is no total; write 1") for text in NO_TOTALS},
    "no ledger": (AGAIN, {}, "does not exist"),
    "no ledger, a total": ((*AGAIN, "--total", "1"), {}, "does not exist"),
    "ledger a folder": (("--ledger", "g.bf", "--data-id", "x", "--total", "1"), {}, "what is read or written too"),
    "new ledger a folder": (
        ("--ledger", "g.bf", "--data-id", "x", "--total", "1", "--new-ledger"),
        {},
        "what is read or written too",
    ),
    "ledger no ledger": (("--ledger", "x.npy", "--data-id", "x"), {}, "is not usable"),
    "new ledger over data": (
        ("--ledger", "x.npy", "--data-id", "x", "--total", "1", "--new-ledger"),
        {},
        "exists already",
    ),
    "ledger in no folder": (("--ledger", "no/l.db", "--data-id", "x", "--total", "1", "--new-ledger"), {}, "cannot be"),
}
READ = {  # mistakes in the data or the ledger
    "no data": ((), {"data": "no.csv"}, "no such file"),
    "data suffix": ((), {"data": "g.bf/manifest.json"}, "unknown kind of file '.json'"),
    "bad data": (BOOK, {"data": "bad.csv"}, "holds 3 numbers"),
}


@pytest.mark.parametrize("name", SETTLED)
def test_a_mistake_in_the_settings_is_one_sentence_before_data_are_read(name, folder, monkeypatch):
    arguments, options, words = SETTLED[name]
    monkeypatch.setattr("hdmm_bf.data.counts.read_counts", lambda *_: pytest.fail("data were read"))
    assert_nothing_happens(folder, arguments, options, words)


@pytest.mark.parametrize("name", READ)
def test_a_mistake_in_the_data_is_one_sentence_and_shows_no_count(name, folder):
    arguments, options, words = READ[name]
    assert_nothing_happens(folder, arguments, options, words)


def assert_nothing_happens(folder, arguments, options, words):
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    result = release(folder, *arguments, **options)
    assert_one_sentence(result, words)
    assert str(SECRET) not in result.stderr
    after = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert after == before


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
    assert release(folder, *NEW, "2", **LAPLACE, out="0.csv").returncode == 0
    assert release(folder, *AGAIN, "--total", "2", **LAPLACE, out="1.csv").returncode == 0
    result = release(folder, *AGAIN, "--estimate", "c.csv", **LAPLACE, out="2.csv")
    words = ("2 releases before", "would exceed the total of epsilon = 2.0 for these data", "Left: nothing")
    assert_one_sentence(result, *words)
    assert not (folder / "2.csv").exists()
    assert not (folder / "c.csv").exists()
    assert len(Ledger(folder / "spent.db").entries()) == 2
    assert_one_sentence(release(folder, *AGAIN, "--total", "9", **LAPLACE), "cannot be raised")


def test_the_same_counts_have_one_budget_whatever_they_are_called(folder):
    assert release(folder, *NEW, "1", **LAPLACE, out="0.csv").returncode == 0
    for name in ("People", " people ", "PEOPLE"):
        result = release(folder, "--ledger", "spent.db", "--data-id", name, **LAPLACE)
        assert_one_sentence(result, "would exceed", "Left: nothing")
    other = ("--ledger", "spent.db", "--data-id", "other")
    assert_one_sentence(release(folder, *other, **LAPLACE), "under the name 'people'", "--same-data-as")
    assert_one_sentence(release(folder, *other, "--same-data-as", "people", **LAPLACE), "would exceed")
    result = release(folder, *other, "--distinct-from", "people", **LAPLACE)
    assert result.returncode == 0, result.stderr
    assert "Opened the new account 'other' in spent.db." in result.stdout


def test_data_that_grow_keep_one_account(folder):
    assert release(folder, *NEW, "2", **LAPLACE, out="0.csv").returncode == 0
    (folder / "x.csv").write_text("9,9,9,9,9,9")
    assert_one_sentence(release(folder, *AGAIN, **LAPLACE), "are not those of earlier releases", "--data-changed")
    result = release(folder, *AGAIN, "--data-changed", **LAPLACE, out="1.csv")
    assert result.returncode == 0, result.stderr
    assert "Opened" not in result.stdout
    assert "Left for 'people': nothing." in result.stdout
    assert "the data changed" in call("ledger", "spent.db", cwd=folder).stdout


def test_a_ledger_that_was_moved_away_is_not_made_again(folder):
    result = release(folder, *NEW, "1", **LAPLACE, out="0.csv")
    assert "Made the new ledger spent.db." in result.stdout
    (folder / "spent.db").rename(folder / "moved.db")
    assert_one_sentence(release(folder, *AGAIN, "--total", "1", **LAPLACE), "does not exist", "--new-ledger")
    (folder / "moved.db").rename(folder / "spent.db")
    assert_one_sentence(release(folder, *NEW, "1", **LAPLACE), "exists already")


def test_a_release_is_replaced_only_when_that_is_said(folder):
    assert release(folder).returncode == 0
    first = (folder / "a.csv").read_bytes()
    assert_one_sentence(release(folder, *BOOK), "'a.csv'", "paid for")
    assert (folder / "a.csv").read_bytes() == first
    assert not (folder / "spent.db").exists()
    assert release(folder, "--overwrite").returncode == 0
    assert (folder / "a.csv").read_bytes() != first


def test_what_is_public_is_in_the_ledger_at_no_cost(folder):
    assert release(folder, *BOOK, bundle="public.bf").returncode == 0
    assert "public, no cost  a.csv" in call("ledger", "spent.db", cwd=folder).stdout


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
    release(folder, *BOOK)
    release(folder, *AGAIN, out="b.csv", privacy=("--rho", "0.001"))
    other = ("--ledger", "spent.db", "--data-id", "Shops 2020", "--distinct-from", "people")
    release(folder, *other, out="c.json", **LAPLACE)
    result = call("ledger", "spent.db", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    head, *lines = result.stdout.splitlines()
    assert head == "spent.db: epsilon = 2.0, delta = 1e-05 for each set of data, 3 releases"
    people, spent, left, first, second, shops, paid, rest, third = lines
    assert (people, shops) == ("  people: 2 releases", "  shops 2020: 1 release")
    assert spent.startswith("    spent  no plain sum; in zCDP rho 0.0")
    assert spent.endswith("at delta 1e-05")
    assert "people  line:6  epsilon 1.0, delta 1e-06  a.csv" in first
    assert "people  line:6  rho 0.001  b.csv" in second
    assert paid.startswith("    spent  epsilon 1; in zCDP rho 0.5, which is epsilon ")
    assert rest == "    left   epsilon = 1 of Laplace noise; epsilon = 1 with delta = 1e-05 of Gaussian noise"
    assert third.endswith("shops 2020  line:6  epsilon 1.0  c.json  other records than people")
    record = json.loads(call("ledger", "spent.db", "--json", cwd=folder).stdout)
    assert record["total"] == {"epsilon": "2.0", "delta": "1e-05", "rho": None}
    assert len(record["entries"]) == 3
    accounts = {account["account"]: account for account in record["accounts"]}
    assert accounts["shops 2020"]["left_epsilon"] == 1.0
    assert accounts["people"]["epsilon"] is None
    assert 0 < accounts["people"]["left_rho"] < accounts["people"]["epsilon_by_rho"]
    assert f"rho = {accounts['people']['left_rho']:.4g}"[:9] in left


@pytest.mark.parametrize(("name", "words"), [("no.db", "does not exist"), ("g.bf", "folder"), ("x.npy", "not usable")])
def test_ledger_of_something_else_is_one_sentence(name, words, folder):
    before = sorted(os.listdir(folder))
    assert_one_sentence(call("ledger", name, cwd=folder), words)
    assert sorted(os.listdir(folder)) == before


def test_a_touched_ledger_is_one_sentence(folder):
    from tests.support.ledgers import change

    release(folder, *BOOK)
    change(folder / "spent.db", "UPDATE spent SET epsilon = '-1'")
    assert_one_sentence(call("ledger", "spent.db", cwd=folder), "holds an entry that no release made")
    assert_one_sentence(release(folder, *AGAIN, out="b.csv"), "holds an entry that no release made")
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
