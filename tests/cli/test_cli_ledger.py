"""`release --ledger` and `ledger` as a user runs them: budgets that are kept, and entries that count."""

import json
import os

import pytest

from hdmm_bf.release.ledger import Ledger
from tests.support.command_line import assert_one_sentence, call
from tests.support.releasing import AGAIN, BOOK, LAPLACE, NEW, release


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
    assert spent.startswith("    spent  no plain sum; together epsilon 0.889")
    assert spent.endswith("at delta 1e-05, rho 0.0290145")
    assert "people  line:6  epsilon 1.0, delta 1e-06  a.csv" in first
    assert "people  line:6  rho 0.001  b.csv" in second
    # 1 + log(1 - 1e-5 / 0.5): half of all outcomes of Laplace noise lose all of epsilon
    assert paid == "    spent  epsilon 1; together epsilon 0.99998 at delta 1e-05, rho 0.5"
    assert rest.startswith("    left   epsilon = 1.0000")
    assert rest.endswith(" of Laplace or tree-norm noise; epsilon = 1 with delta = 1e-05 of Gaussian noise")
    assert third.endswith("shops 2020  line:6  epsilon 1.0  c.json  other records than people")
    record = json.loads(call("ledger", "spent.db", "--json", cwd=folder).stdout)
    assert record["total"] == {"epsilon": "2.0", "delta": "1e-05", "rho": None}
    assert len(record["entries"]) == 3
    accounts = {account["account"]: account for account in record["accounts"]}
    assert 1.0 < accounts["shops 2020"]["left_epsilon"] < 1.0001
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
