"""Ledgers that were edited, cut, or never were one: refused in words, and left alone."""

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest

from hdmm_bf.release.ledger import Ledger, storage
from tests.support.ledgers import change, nobody, pay, refused
from tests.support.mistakes import THREE_PARTS, _as_users_run_it  # noqa: F401


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spent.db"


NUMBERS = [
    "nan",
    "-1",
    "1e999",
    "inf",
    "0",
    "much",
    "",
    "1",
    "0.50",
    " 0.5",
    "1e99999999",
    "1_0",
    7,
    0.5,
    b"\xff",
    b"0.5",
]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("column", ["epsilon", "delta", "rho"])
def test_a_number_that_no_ledger_wrote_is_refused(column, number, path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6, new=True)
    pay(ledger, 0.5, delta=1e-7, rho=0.03)
    change(path, f"UPDATE spent SET {column} = CAST(? AS BLOB)", number)
    for act in (ledger.entries, lambda: pay(ledger, 0.1), lambda: ledger.entries("people")):
        refused(act, "holds an entry that no release made", "Restore the file from a copy")
    change(path, "DELETE FROM spent")
    change(path, f"UPDATE stated SET {column} = CAST(? AS BLOB)", number)
    refused(lambda: Ledger(path), "holds an entry that no release made")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE spent SET noise = 'none'",
        "UPDATE spent SET noise = 'gaussian'",
        "UPDATE spent SET epsilon = NULL",
        "UPDATE spent SET delta = '1e-06'",
        "UPDATE spent SET policy = x'00ff'",
        "UPDATE spent SET published = x'00ff'",
        "UPDATE spent SET at = CAST(x'ff' AS TEXT)",
        "UPDATE stated SET epsilon = NULL",
        "UPDATE stated SET rho = '1.0'",
        "UPDATE stated SET delta = '1.5'",
        "UPDATE stated SET schema = 'hdmm_bf ledger 6'",
        "DELETE FROM stated",
        "INSERT INTO stated SELECT * FROM stated",
        "DROP TABLE stated",
        "DROP TABLE spent",
        "ALTER TABLE spent DROP COLUMN rho",
        "UPDATE spent SET fingerprint = 'no hash'",
        "UPDATE spent SET account = x'00ff'",
        "UPDATE spent SET remark = x'00ff'",
        "UPDATE spent SET noise = 'public'",
        "INSERT INTO spent SELECT 9, at, 'other', data, fingerprint, policy, noise, epsilon, delta, rho, remark, "
        "published, mu, digest, per_person, step FROM spent",
        "UPDATE spent SET mu = '0.1'",
        "UPDATE spent SET digest = 'no hash'",
        "UPDATE stated SET salt = ''",
        "UPDATE stated SET salt = x'00'",
        "CREATE TRIGGER forget AFTER INSERT ON spent BEGIN DELETE FROM spent; END",
        "CREATE VIEW seen AS SELECT * FROM spent",
        "CREATE INDEX quick ON spent (data)",
        "CREATE TABLE more (number TEXT)",
    ],
)
def test_a_touched_ledger_is_refused(statement, path):
    pay(Ledger(path, epsilon=1.0, new=True), 0.5)
    change(path, statement)
    refused(lambda: Ledger(path).entries(), "spent.db")


@pytest.mark.parametrize("content", [b"garbage" * 100, b"x", bytes(5000), b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_alone(content, path):
    path.write_bytes(content)
    for total in ({}, {"epsilon": 1.0}, {"epsilon": 1.0, "new": True}):
        refused(lambda total=total: Ledger(path, **total), "spent.db")
    assert path.read_bytes() == content


def test_a_cut_ledger_is_refused(path):
    pay(Ledger(path, epsilon=1.0, new=True), 0.5)
    whole = path.read_bytes()
    for size in range(16, len(whole), 151):
        path.write_bytes(whole[:size])
        refused(lambda: pay(Ledger(path, epsilon=1.0), 0.5), "spent.db")


def test_another_database_is_refused_and_left_alone(path):
    change(path, "CREATE TABLE stated (wishes TEXT)")
    whole = path.read_bytes()
    refused(lambda: Ledger(path, epsilon=1.0), "spent.db", "Use a file that a ledger made")
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "name", ["", "no/such/folder/spent.db", "x" * 300, "a\0b"], ids=["folder", "no", "long", "nul"]
)
def test_a_path_that_cannot_be_a_ledger_is_refused(name, tmp_path):
    refused(lambda: Ledger(tmp_path / name, epsilon=1.0, new=True), "ledger(")
    refused(lambda: Ledger(tmp_path / name), "ledger(")
    assert list(tmp_path.iterdir()) == []


def test_memory_is_a_file_like_every_other(tmp_path, monkeypatch):
    """A database in memory would forget what was spent."""
    monkeypatch.chdir(tmp_path)
    pay(Ledger(":memory:", epsilon=1.0, new=True), 1.0)
    refused(lambda: pay(Ledger(":memory:"), 1.0))
    assert (tmp_path / ":memory:").is_file()


def test_a_ledger_stays_where_it_was_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("spent.db", epsilon=1.0, new=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    pay(ledger, 1.0)
    assert list(Path().iterdir()) == []
    refused(lambda: pay(Ledger("../spent.db"), 1.0))


@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="needs POSIX users")
def test_a_folder_or_file_that_cannot_be_written_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spent.db"
        pay(Ledger(path, epsilon=1.0, new=True), 0.5)
        Path(folder).chmod(0o555)
        with nobody():
            refused(lambda: Ledger(path.with_name("new.db"), epsilon=1.0, new=True), "new.db", "cannot be written")
            refused(lambda: pay(Ledger(path), 0.1), "spent.db")
        path.chmod(0o444)
        with nobody():
            refused(lambda: pay(Ledger(path), 0.1), "spent.db", "may be read or written by others")
        Path(folder).chmod(0o755)
        assert [file.name for file in Path(folder).iterdir()] == ["spent.db"]
        assert len(Ledger(path).entries()) == 1


def test_a_ledger_that_another_process_holds_is_waited_for_and_then_refused(path, monkeypatch):
    ledger = Ledger(path, epsilon=1.0, new=True)
    monkeypatch.setattr(storage, "PATIENCE", 0.1)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused(lambda: pay(ledger, 0.5), "locked")
    pay(ledger, 0.5)
