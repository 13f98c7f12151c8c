"""`release` as a user runs it: one object, one sentence, nothing spent on a mistake."""

import json
import os
import shutil

import numpy as np
import pytest

import hdmm_bf as bf
from tests.support.command_line import assert_one_sentence, call, run
from tests.support.releasing import AGAIN, BOOK, COUNTS, GAUSSIAN, LAPLACE, NEW, PURE, SECRET, answers, release


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
    assert "epsilon = 1, delta = 1e-06, by mu = " in result.stdout
    assert "the total number of records" in result.stdout
    assert "Wrote a.parquet, cells.json" in result.stdout
    assert str(SECRET) not in result.stdout
    cells = json.loads((folder / "cells.json").read_text())
    assert sum(cells["processed"]) == sum(COUNTS), "the public total stays"
    assert min(cells["processed"]) >= 0


def test_processed_numbers_get_intervals_of_their_own(folder):
    steps = ("--postprocess", "nonnegative,integers", "--draws", "40")
    result = release(folder, *steps, "--level", "0.9", "--queries", "identity:6")
    assert result.returncode == 0, result.stderr
    rows = answers(folder / "a.csv")
    assert len(rows) == 6
    for row in rows:
        processed, low, high = (float(row[name]) for name in ("processed", "processed_low", "processed_high"))
        assert low <= processed <= high
        assert processed - low == pytest.approx(high - processed)
    notes = json.loads((folder / "a.csv-metadata.json").read_text())["notes"][0]
    assert notes["processed interval"] == "90 % each, by simulation of noise and steps, 40 draws"


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
    "steps on tables": (("--postprocess", "integers"), {"bundle": "t.bf", **PURE}, "every table of its workload"),
    "level in Python": (("--level", "0.9_5"), {}, "is not a valid float"),
    "epsilon in Python": ((), {"privacy": ("--epsilon", "1_0")}, "'1_0' is not a valid float"),
    "epsilon with a space": ((), {"privacy": ("--epsilon", " 1")}, "' 1' is not a valid float"),
    "epsilon wide": ((), {"privacy": ("--epsilon", "\uff11")}, "is not a valid float"),
    "level": (("--level", "1.5"), {}, "level"),
    "level nan": (("--level", "nan"), {}, "level"),
    "step": (("--postprocess", "nonegative"), {}, "Did you mean 'nonnegative'?"),
    "empty step": (("--postprocess", "integers,"), {}, "is no step"),
    "step for lines": (("--postprocess", "isotonic"), {"bundle": "c.bf"}, "cycle:6 is no line"),
    "draws alone": (("--draws", "100"), {}, "it needs --postprocess STEPS"),
    "few draws": (("--draws", "19", "--postprocess", "integers"), {}, "Use at least 20."),
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
    monkeypatch.setattr("hdmm_bf.data.counts.read_counts", lambda *_, **__: pytest.fail("data were read"))
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


def test_accounting_by_way_of_zcdp_is_there_by_name(folder):
    """The same promise with 7 % more error; an accounting that there is none of is refused."""
    plans = [
        json.loads(call("release", "g.bf", *GAUSSIAN, "--dry-run", "--json", *more, cwd=folder).stdout)
        for more in ((), ("--accounting", "zcdp"))
    ]
    assert [plan["accounting"] for plan in plans] == ["analytic", "zcdp"]
    assert (plans[0]["mu"] ** 2 / 2, plans[1]["mu"]) == (pytest.approx(plans[0]["rho"]), None)
    assert 1.07 < plans[1]["rmse"] / plans[0]["rmse"] < 1.08
    assert call("release", "g.bf", *GAUSSIAN, "--dry-run", "--accounting", "rdp", cwd=folder).returncode == 2
