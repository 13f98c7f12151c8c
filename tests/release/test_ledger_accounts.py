"""Accounts: one for each set of data, whatever it is called; what was spent from each, and what is left."""

import contextlib
import itertools
import os
import re
import sqlite3
import stat
import time

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.data.tables import Histogram
from hdmm_bf.release.ledger import Entry, Ledger, account_name, fingerprint, names, storage, within
from hdmm_bf.release.ledger.names import digest
from tests.support.ledgers import best_epsilon, change, pay, refused
from tests.support.mistakes import _as_users_run_it  # noqa: F401

JANUARY, FEBRUARY = np.array([3, 1, 4]), np.array([3, 2, 5])
SALT = bytes(32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spent.db"


@pytest.fixture
def ledger(path):
    return Ledger(path, epsilon=1.0, new=True)


def spend(account, data, epsilon=0.5):
    return account.spend("laplace", epsilon=epsilon, delta=None, rho=None, policy="line:3", data=data)


# Names


@pytest.mark.parametrize("name", ["Census 2020", " census  2020 ", "CENSUS\u00a02020", "\uff43\uff45\uff4esus 2020"])
def test_every_spelling_of_a_name_is_one_account(name, ledger):
    """Quotes account_name: case, compatible characters and white space make no difference."""
    pay(ledger, 1.0, data="census 2020")
    assert account_name(name) == "census 2020"
    refused(lambda: pay(ledger, 0.5, data=name), "would exceed", "Left: nothing")
    assert len(ledger.entries(name)) == 1
    assert ledger.balance(name).num_releases == 1


@pytest.mark.parametrize("hidden", ["\u200b", "\u00ad", "\u2060", "\ufe0f", "\u3164", "\u2800", "\u034f", "\x00", "\t"])
def test_a_name_with_invisible_characters_is_refused(hidden, ledger):
    """Quotes account_name: a name with characters that cannot be seen is refused."""
    for name in (f"cen{hidden}sus", f"census{hidden}", hidden):
        refused(lambda name=name: ledger.account(name), "invisible characters")


def test_names_are_written_in_one_way_once_and_for_all():
    for name in ("Stra\u00dfe", "\u0130stanbul", "\u03a3\u03c2", "\u1fb3", "\ufb03 \u212b"):
        assert account_name(account_name(name)) == account_name(name)
    assert account_name("STRASSE") == account_name("Stra\u00dfe")


# The same data under two names, and a name whose data changed


def test_data_that_are_known_are_refused_under_another_name(ledger):
    """Quotes Ledger: data that are known under another name are refused unless the account says so."""
    spend(ledger.account("census"), JANUARY)
    refused(lambda: spend(ledger.account("census 2"), JANUARY), "under the name 'census'", "--same-data-as")
    assert len(ledger.entries()) == 1


def test_a_name_whose_data_changed_is_refused_unless_that_is_said(ledger):
    """Data that grow each month under one name: a record of January is also in February, so losses add up."""
    spend(ledger.account("sales"), JANUARY)
    refused(lambda: spend(ledger.account("sales"), FEBRUARY), "are not those of earlier releases", "--data-changed")
    spend(ledger.account("Sales", changed=True), FEBRUARY)
    assert [entry.remark for entry in ledger.entries("sales")] == [None, "the data changed"]
    refused(lambda: spend(ledger.account("sales"), JANUARY), "would exceed")
    refused(lambda: spend(ledger.account("february"), FEBRUARY), "under the name 'sales'")


def test_a_name_that_is_mistyped_opens_no_account_for_changed_data(ledger):
    spend(ledger.account("sales"), JANUARY)
    for said in ({"changed": True}, {"same_data_as": "salse"}, {"distinct_from": "salse"}):
        refused(lambda said=said: ledger.account("salse", **said), "has no account in this ledger", "'sales'")


def test_two_names_of_the_same_data_can_be_made_one_account(ledger):
    spend(ledger.account("census"), JANUARY, 0.5)
    spend(ledger.account("survey"), FEBRUARY, 0.25)
    refused(lambda: spend(ledger.account("survey", same_data_as="census"), JANUARY, 0.5), "2 releases before")
    assert len(ledger.balances()) == 2, "a refusal joins nothing"
    spend(ledger.account("survey", same_data_as="census"), JANUARY, 0.25)
    (balance,) = ledger.balances()
    assert (balance.account, balance.names, balance.epsilon) == ("survey", ("survey", "census"), 1.0)
    for name, data in itertools.product(("census", "survey"), (JANUARY, FEBRUARY)):
        refused(lambda name=name, data=data: spend(ledger.account(name), data, 0.1), "3 releases before")


def test_equal_counts_of_other_records_are_released_when_that_is_said(ledger):
    """Two small wards may both have no case."""
    nobody = np.zeros(3, dtype=np.int64)
    spend(ledger.account("ward 1"), nobody, 1.0)
    spend(ledger.account("ward 2", distinct_from="Ward 1"), nobody, 0.5)
    spend(ledger.account("ward 2"), nobody, 0.5)
    refused(lambda: ledger.account("ward 3", distinct_from="ward 9"), "no account")
    refused(lambda: spend(ledger.account("ward 3", distinct_from="ward 1"), nobody), "under the name 'ward 2'")
    spend(ledger.account("ward 3", distinct_from=["ward 1", "ward 2"]), nobody)
    assert ledger.entries("ward 2")[0].remark == "other records than ward 1"
    assert [balance.epsilon for balance in ledger.balances()] == [1.0, 1.0, 0.5]


def test_to_say_that_data_changed_does_not_hide_that_they_are_known_elsewhere(ledger):
    spend(ledger.account("a"), JANUARY)
    spend(ledger.account("b"), FEBRUARY)
    refused(lambda: spend(ledger.account("b", changed=True), JANUARY), "under the name 'a'")


def test_a_release_is_entered_for_the_data_that_it_reads(ledger):
    """The account need not be told the data, and so cannot be told others."""
    fit = bf.fit("identity:3", "line:3", noise="laplace", max_steps=1)
    bf.release(fit, JANUARY, epsilon=0.25, account=ledger.account("census"))
    with pytest.raises(InputError, match="earlier releases"):
        bf.release(fit, FEBRUARY, epsilon=0.25, account=ledger.account("census"))
    with pytest.raises(InputError, match="under the name 'census'"):
        bf.release(fit, JANUARY, epsilon=0.25, account=ledger.account("other"))
    assert len(ledger.entries()) == 1


# Fingerprints


def test_fingerprints_tell_data_apart_but_not_how_they_are_held():
    """Quotes fingerprint: as a histogram or as records in any order."""
    domain = bf.Domain((2, 3))
    counts = np.array([0, 2, 0, 1, 0, 3])
    rows = np.array([[0, 1], [0, 1], [1, 0], [1, 2], [1, 2], [1, 2]])
    held = [counts, Histogram(counts.reshape(2, 3)), bf.Records(rows, domain), bf.Records(rows[::-1], domain)]
    assert len({fingerprint(data, SALT) for data in held}) == 1
    others = [counts[::-1].copy(), counts + 1, counts[:-1], np.append(counts, 0), bf.Records(rows[1:], domain)]
    assert len({fingerprint(data, SALT) for data in [counts, *others]}) == 6


def test_records_of_a_domain_beyond_any_histogram_have_fingerprints():
    domain = bf.Domain((10**6,) * 4)
    rows = np.array([[5, 6, 7, 8], [1, 2, 3, 4], [5, 6, 7, 8]])
    prints = {fingerprint(bf.Records(part, domain), SALT) for part in (rows, rows[::-1], rows[[2, 0, 1]])}
    assert len(prints) == 1
    assert fingerprint(bf.Records(rows[:2], domain), SALT) not in prints


def test_records_in_parts_hash_like_their_histogram(monkeypatch):
    monkeypatch.setattr(names, "_CHUNK", 4)
    rows = np.random.default_rng(1).integers(0, 11, size=(40, 1))
    assert digest(bf.Records(rows, bf.Domain((11,)))) == digest(np.bincount(rows[:, 0], minlength=11))


def test_a_fingerprint_is_slow_and_differs_from_ledger_to_ledger(tmp_path):
    """Quotes fingerprint: nor the same counts in another ledger. Small histograms cannot be found by quick trials."""
    start = time.perf_counter()
    fingerprint(JANUARY, SALT)
    assert time.perf_counter() - start > 0.01
    prints = set()
    for name in ("one.db", "two.db"):
        pay(Ledger(tmp_path / name, epsilon=1.0, new=True), 0.5, counts=JANUARY)
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as base:
            ((salt,),) = base.execute("SELECT salt FROM stated").fetchall()
            ((stored,),) = base.execute("SELECT fingerprint FROM spent").fetchall()
        assert re.fullmatch("[0-9a-f]{64}", salt)
        assert stored == fingerprint(JANUARY, bytes.fromhex(salt))
        assert digest(JANUARY).encode() not in (tmp_path / name).read_bytes()
        prints.add(stored)
    assert len(prints) == 2


# Who may read the file


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_and_its_journal_are_for_the_owner_only(path):
    before = os.umask(0)
    try:
        ledger = Ledger(path, epsilon=1.0, new=True)
        assert mode(path) == 0o600
        with ledger._open() as base:
            base.execute("UPDATE stated SET epsilon = '0.5'")
            assert {file.name: mode(file) for file in path.parent.iterdir()} == {
                "spent.db": 0o600,
                "spent.db-journal": 0o600,
            }
    finally:
        os.umask(before)


def test_a_file_that_others_may_read_is_closed_to_them(path):
    pay(Ledger(path, epsilon=1.0, new=True), 0.5)
    path.chmod(0o664)
    left_over = path.with_name("spent.db-journal")
    left_over.touch(0o644)
    left_over.chmod(0o644)
    storage._check_private(path)
    assert (mode(path), mode(left_over)) == (0o600, 0o600)
    path.chmod(0o644)
    assert len(Ledger(path).entries()) == 1
    assert mode(path) == 0o600


def test_a_link_a_folder_or_a_pipe_is_no_ledger(path, tmp_path):
    pay(Ledger(path, epsilon=1.0, new=True), 0.5)
    link, dangling, pipe = (tmp_path / name for name in ("link.db", "dangling.db", "pipe.db"))
    link.symlink_to(path)
    dangling.symlink_to(tmp_path / "nowhere.db")
    os.mkfifo(pipe)
    for place, words in ((link, "link"), (dangling, "link"), (pipe, "no ordinary file"), (tmp_path, "folder")):
        for options in ({}, {"epsilon": 1.0}, {"epsilon": 1.0, "new": True}):
            refused(lambda place=place, options=options: Ledger(place, **options), words, "Name the file")
    assert not (tmp_path / "nowhere.db").exists()


@pytest.mark.parametrize("name", ["a b?mode=memory.db", "100%.db", "a#b.db", "\u00e9.db"])
def test_any_name_of_a_file_is_a_file(name, tmp_path):
    pay(Ledger(tmp_path / name, epsilon=1.0, new=True), 1.0)
    assert (tmp_path / name).is_file()
    refused(lambda: pay(Ledger(tmp_path / name), 0.5), "would exceed")


# What is left


@pytest.mark.parametrize(
    ("total", "paid"),
    [
        ({"epsilon": 1.0}, [{"epsilon": 0.1}, {"epsilon": 0.2}]),
        ({"epsilon": 1.0}, [{"epsilon": 1.0}]),
        ({"rho": 0.5}, [{"rho": 0.1}, {"epsilon": 0.3}]),
        ({"epsilon": 2.0, "delta": 1e-5}, [{"epsilon": 1.0, "delta": 1e-6, "rho": 0.02}]),
        ({"epsilon": 2.0, "delta": 1e-5}, [{"rho": 0.03}, {"epsilon": 0.1}]),
        ({"epsilon": 2.0, "delta": 1e-5}, []),
    ],
    ids=str,
)
def test_what_is_left_can_be_spent_and_no_more(total, paid, path):
    """Quotes balance: a next release of what is left is within the total, and one of a thousandth more is not."""
    ledger = Ledger(path, **total, new=True)
    for loss in paid:
        pay(ledger, **loss)
    left = ledger.balance("people")
    before = ledger.entries()

    def fits(noise, **loss):
        numbers = {name: repr(value) for name, value in loss.items()}
        losses = [numbers.get(name) for name in ("epsilon", "delta", "rho")]
        return within(ledger.total, [*before, Entry("", "", "", noise, *losses, None)])

    for noise, name, most in (("laplace", "epsilon", left.left_epsilon), ("gaussian", "rho", left.left_rho)):
        assert most == 0 or fits(noise, **{name: most})
        assert not fits(noise, **{name: max(most * 1.001, 1e-20)})
    if left.left_plain is not None:
        assert fits("gaussian", epsilon=left.left_plain[0], delta=left.left_plain[1], rho=1e3)
        assert not fits("gaussian", epsilon=left.left_plain[0] * 1.001, delta=left.left_plain[1], rho=1e3)
        assert not fits("gaussian", epsilon=left.left_plain[0], delta=left.left_plain[1] * 1.001, rho=1e3)


def test_sums_are_those_of_the_entries(path):
    ledger = Ledger(path, epsilon=2.0, delta=1e-5, new=True)
    for _ in range(3):
        pay(ledger, 0.1, delta=1e-7, rho=0.001)
    pay(ledger, 0.2)
    balance = ledger.balance("people")
    assert (balance.num_releases, balance.epsilon, balance.delta, balance.rho) == (4, 0.5, 3e-7, 0.023)
    assert balance.epsilon_by_rho == pytest.approx(best_epsilon(0.023, 1e-5), rel=1e-6)
    pay(ledger, rho=0.001)
    balance = ledger.balance("people")
    assert (balance.epsilon, balance.delta, balance.rho) == (None, None, 0.024)


def left_in_words(ledger):
    with pytest.raises(InputError) as caught:
        pay(ledger, 9.9)
    number = r"(\d\S*)"
    plain = rf"(?: or epsilon = {number} with delta = {number})?"
    form = rf"Left: epsilon = {number} of Laplace or tree-norm noise; rho = {number}{plain} of Gaussian noise\."
    return [None if text is None else float(text) for text in re.search(form, str(caught.value)).groups()]


def test_a_refusal_says_what_is_left_and_that_much_is_accepted(path):
    ledger = Ledger(path, epsilon=2.0, delta=1e-5, new=True)
    pay(ledger, 0.1)
    epsilon, rho, plain, delta = left_in_words(ledger)
    assert (plain, delta) == (1.9, 1e-5)
    assert 1.9 < epsilon < 1.9001, "what exceeds 2 together has a probability below delta"
    with pytest.raises(InputError):
        pay(ledger, rho=rho * 1.001)
    pay(ledger, rho=rho / 2)
    _, rest, *plain = left_in_words(ledger)
    assert (rest, plain) == (pytest.approx(rho / 2, rel=1e-5), [None, None])
    pay(ledger, rho=rest)


# What is public


@pytest.mark.parametrize("large", [False, True], ids=["dense", "blocks"])
def test_a_release_that_is_all_public_is_entered_at_no_cost(large, ledger):
    if large:
        fit = bf.fit("marginals:3x2:1", "product:empty:3,empty:2", family="marginals")
    else:
        fit = bf.fit("identity:6", "empty:6")
    counts = np.arange(6)
    bf.release(fit, counts, epsilon=9.0, delta=0.5, account=ledger.account("public register"))
    (entry,) = ledger.entries()
    assert (entry.noise, entry.epsilon, entry.delta, entry.rho) == ("public", None, None, None)
    balance = ledger.balance("public register")
    assert (balance.num_releases, balance.epsilon, balance.rho, balance.left_epsilon) == (1, 0.0, 0.0, 1.0)
    pay(ledger, 1.0, data="public register", counts=counts)
    bf.release(fit, counts, epsilon=9.0, delta=0.5, account=ledger.account("public register"))
    assert len(ledger.entries()) == 3


# Ledgers of the first version


def first_version(path, *entries, epsilon="1.0"):
    with contextlib.closing(sqlite3.connect(path)) as base:
        for statement in storage.OLD_TABLES.values():
            base.execute(statement)
        base.execute("INSERT INTO stated VALUES ('hdmm_bf ledger 1', ?, NULL, NULL)", (epsilon,))
        for data, loss in entries:
            values = ("2024-01-01T00:00:00+00:00", data, "line:3", "laplace", loss, "a.csv")
            base.execute("INSERT INTO spent (at, data, policy, noise, epsilon, published) VALUES (?,?,?,?,?,?)", values)
        base.commit()
    path.chmod(0o644)


def test_a_ledger_of_the_first_version_is_taken_over_with_all_that_was_spent(path):
    """Quotes migrate: every entry is kept with its loss. No plain hash of data stays in the file."""
    plain = f"sha256:{digest(JANUARY)}"
    first_version(path, ("census", "0.5"), ("Census", "0.25"), (plain, "0.5"), ("cen\u200bsus", "0.125"), ("x", "1.0"))
    ledger = Ledger(path)
    assert [(entry.data, entry.epsilon, entry.published) for entry in ledger.entries()] == [
        ("census", "0.5", "a.csv"),
        ("census", "0.25", "a.csv"),
        ("unnamed 1", "0.5", "a.csv"),
        ("census", "0.125", "a.csv"),
        ("x", "1.0", "a.csv"),
    ]
    assert digest(JANUARY).encode() not in path.read_bytes()
    assert mode(path) == 0o600
    refused(lambda: spend(ledger.account("census"), FEBRUARY, 0.25), "3 releases before", "epsilon = 0.125")
    refused(lambda: spend(ledger.account("census"), JANUARY, 0.125), "under the name 'unnamed 1'")
    refused(lambda: spend(ledger.account("census", same_data_as="unnamed 1"), JANUARY, 0.125), "4 releases before")
    spend(ledger.account("unnamed 1"), JANUARY, 0.5)
    assert len(Ledger(path).entries()) == 6


def test_names_that_are_one_now_may_have_spent_more_than_the_total(path):
    first_version(path, ("census", "1.0"), ("CENSUS", "1.0"), ("\u200b", "0.5"))
    ledger = Ledger(path, epsilon=1.0)
    balance = ledger.balance("census")
    assert (balance.epsilon, balance.left_epsilon, balance.left) == (2.0, 0.0, "nothing")
    assert ledger.balance("unnamed 1").epsilon == 0.5
    refused(lambda: spend(ledger.account("census"), JANUARY, 0.1), "would exceed", "Left: nothing")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE spent SET epsilon = '-1'",
        "UPDATE spent SET data = x'00ff'",
        "UPDATE stated SET epsilon = 'much'",
        "UPDATE stated SET schema = 'hdmm_bf ledger 2'",
        "CREATE TRIGGER forget AFTER INSERT ON spent BEGIN DELETE FROM spent; END",
    ],
)
def test_a_touched_ledger_of_the_first_version_is_refused_and_left_alone(statement, path):
    first_version(path, ("census", "0.5"))
    change(path, statement)
    whole = path.read_bytes()
    refused(lambda: Ledger(path), "spent.db")
    assert path.read_bytes() == whole


def test_counts_are_in_no_refusal(ledger):
    secret = np.array([987654321, 123456789])
    spend(ledger.account("a"), secret)
    for name, data, said in (("b", secret, {}), ("a", secret + 1, {}), ("a", secret, {"distinct_from": "a"})):
        with pytest.raises(InputError) as caught:
            spend(ledger.account(name, **said), data, 9.0)
        assert not re.search(r"98765432|12345678", str(caught.value))
