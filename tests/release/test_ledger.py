"""The ledger: exact sums, no overspending by two processes at once, nothing forgotten in a crash, no file trusted."""

import bisect
import contextlib
import math
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.release.ledger import Entry, Ledger, Total, within
from tests.support.ledgers import best_epsilon, pay, refused
from tests.support.mistakes import THREE_PARTS, _as_users_run_it  # noqa: F401


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spent.db"


def test_ten_tenths_fit_into_one_and_an_eleventh_does_not(path):
    """Quotes within: additions are exact."""
    ledger = Ledger(path, epsilon=1.0, new=True)
    for _ in range(10):
        pay(ledger, 0.1)
    refused(lambda: pay(ledger, 1e-300), "10 releases before", "total of epsilon = 1.0")
    plain = 0.0
    for _ in range(10):
        plain += 0.1  # `sum` compensates from Python 3.12 on
    assert plain != 1.0, "floating point would not have known"
    assert len(ledger.entries()) == 10


def test_a_loss_that_floating_point_would_lose_still_counts(path):
    ledger = Ledger(path, epsilon=1.0, new=True)
    pay(ledger, 1.0)
    refused(lambda: pay(ledger, 1e-20), "would exceed")


def test_zcdp_composition_is_accepted_where_plain_addition_is_not(path):
    """Quotes Ledger: their sum, or their sum in zCDP converted to the total's delta, is at most it."""
    delta, total = 1e-6, 3.0
    ledger = Ledger(path, epsilon=total, delta=delta, new=True)
    rho, paid = 0.01, 0
    with contextlib.suppress(InputError):
        while True:
            pay(ledger, 0.5, delta=1e-7, rho=rho)
            paid += 1
    assert paid * 0.5 > total, "plain addition would have stopped"
    assert best_epsilon(paid * rho, delta) <= total < best_epsilon((paid + 1) * rho, delta)


@pytest.mark.slow
def test_zcdp_composition_agrees_with_dp_accounting():
    accounting = pytest.importorskip("dp_accounting")
    sigma, delta = 10.0, 1e-6
    rho = repr(1 / (2 * sigma**2))
    entry = Entry("now", "people", "line:4", "gaussian", None, None, rho, None)
    for number in (1, 30, 400):
        accountant = accounting.rdp.RdpAccountant(1 + 10.0 ** np.arange(-3, 3, 0.005))
        accountant.compose(accounting.GaussianDpEvent(sigma), number)
        epsilon = float(accountant.get_epsilon(delta))
        losses = [entry] * number
        assert within(Total(repr(epsilon * 1.001), repr(delta)), losses)
        assert not within(Total(repr(epsilon * 0.999), repr(delta)), losses)


def test_pure_epsilon_counts_as_half_its_square_in_zcdp(path):
    """Quotes within: Pure epsilon counts as rho = epsilon^2 / 2."""
    ledger = Ledger(path, rho=1.0, new=True)
    for _ in range(8):
        pay(ledger, 0.5)
    refused(lambda: pay(ledger, 1e-9), "total of rho = 1.0")


def test_pure_epsilons_alone_are_as_many_as_their_optimal_composition_allows():
    """Quotes within: alone as the sum of coins that it is; n coins show epsilon k times with binomial probability."""
    entry = Entry("now", "people", "line:4", "laplace", "0.01", None, None, None)
    total = Total("2.0", "1e-06")

    def delta(number):
        k = np.arange(number + 1)
        chances = stats.binom.pmf(k, number, 1 / (1 + math.exp(-0.01)))
        return math.fsum(chances * -np.expm1(np.minimum(2.0 - 0.01 * (2 * k - number), 0.0)))

    most = bisect.bisect_left(range(10_000), True, key=lambda number: not within(total, [entry] * number)) - 1
    assert delta(most) <= 1e-6 < delta(most + 1)
    assert best_epsilon(most * 0.01**2 / 2, 1e-6) > 2, "more than by way of zCDP"


def test_losses_of_both_kinds_of_noise_add_up(path):
    ledger = Ledger(path, rho=0.5, new=True)
    pay(ledger, rho=0.375)
    pay(ledger, 0.5)
    refused(lambda: pay(ledger, rho=1e-12), "2 releases before")


def test_a_gaussian_release_needs_a_delta_in_the_total(path):
    ledger = Ledger(path, epsilon=100.0, new=True)
    refused(lambda: pay(ledger, 0.1, delta=1e-6, rho=0.001), "would exceed")
    pay(ledger, 0.1)


def test_deltas_add_up_too(path):
    ledger = Ledger(path, epsilon=1.0, delta=3e-6, new=True)
    for _ in range(3):
        pay(ledger, 0.3, delta=1e-6, rho=0.03)
    refused(lambda: pay(ledger, 0.3, delta=1e-6, rho=0.03))


@pytest.mark.parametrize("loss", [1e160, 1e300])
def test_a_loss_beyond_all_sense_is_refused_in_words(path, loss):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6, new=True)
    refused(lambda: pay(ledger, loss), "would exceed")
    refused(lambda: pay(ledger, rho=loss), "would exceed")


def test_a_loss_too_small_for_floating_point_is_rounded_up(path):
    """A loss of 2e-200 is also (1e-200, 1e-6)-private: delta pays for it many times over, but not for 1e-5."""
    ledger = Ledger(path, epsilon=1e-200, delta=1e-6, new=True)
    pay(ledger, 2e-200)
    refused(lambda: pay(ledger, 1e-5), "would exceed")


def test_a_refusal_leaves_no_entry_and_room_for_less(path):
    ledger = Ledger(path, epsilon=1.0, new=True)
    refused(lambda: pay(ledger, 1.5), "Nothing was spent or published")
    assert ledger.entries() == []
    pay(ledger, 1.0)
    assert [entry.epsilon for entry in ledger.entries()] == ["1.0"]


def test_different_data_have_their_own_accounts(path):
    ledger = Ledger(path, epsilon=1.0, new=True)
    pay(ledger, 1.0, data="people")
    pay(ledger, 1.0, data="shops")
    refused(lambda: pay(ledger, 1.0, data="people"))
    assert len(ledger.entries("people")) == len(ledger.entries("shops")) == 1
    assert len(ledger.entries()) == 2


def test_an_entry_says_what_was_spent_on_what(path):
    account = Ledger(path, epsilon=1.0, new=True).account("people")
    account.spend("laplace", epsilon=0.25, delta=None, rho=None, policy="line:4", data=[1, 2])
    account.published("answers.csv")
    (entry,) = Ledger(path).entries()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", entry.at)
    assert entry == Entry(entry.at, "people", "line:4", "laplace", "0.25", None, None, "answers.csv")


def test_what_was_published_is_noted_at_its_own_entry(path):
    Ledger(path, epsilon=1.0, new=True)
    first, second = (Ledger(path, epsilon=1.0).account("people") for _ in range(2))
    for account in (first, second):
        account.spend("laplace", epsilon=0.25, delta=None, rho=None, policy="line:4", data=[1, 2])
    first.published("first.csv")
    Ledger(path).account("people").published("nothing was paid here.csv")
    assert [entry.published for entry in Ledger(path).entries()] == ["first.csv", None]


def test_a_total_cannot_be_raised_and_may_be_repeated(path):
    pay(Ledger(path, epsilon=1.0, delta=1e-6, new=True), 0.5)
    for total in ({"epsilon": 2.0, "delta": 1e-6}, {"epsilon": 1.0}, {"rho": 1.0}, {"epsilon": 1.0, "delta": 1e-5}):
        refused(lambda total=total: Ledger(path, **total), "cannot be raised", "epsilon = 1.0, delta = 1e-06")
    assert Ledger(path, epsilon=1.0, delta=1e-6).total == Ledger(path).total == Total("1.0", "1e-06")
    assert len(Ledger(path).entries()) == 1


@pytest.mark.parametrize(
    "total",
    [
        *({"epsilon": value} for value in (0, -1, math.nan, math.inf, "much", [1], "1_0", " 1", "1", True, 10**400)),
        *({"rho": value} for value in (0.0, -0.5)),
        {"delta": 1e-6},
        {"epsilon": 1, "delta": 0},
        {"epsilon": 1, "delta": 1.0},
        {"epsilon": 1, "rho": 1},
        {"rho": 1, "delta": 1e-6},
    ],
    ids=str,
)
@pytest.mark.usefixtures("_as_users_run_it")
def test_a_total_that_is_none_is_refused_and_makes_no_file(total, path):
    refused(lambda: Ledger(path, **total, new=True))
    assert not path.exists()


@pytest.mark.parametrize(
    ("noise", "loss"),
    [
        ("laplace", {"epsilon": None, "delta": None, "rho": None}),
        ("laplace", {"epsilon": 0.1, "delta": 1e-6, "rho": None}),
        ("laplace", {"epsilon": None, "delta": None, "rho": 0.1}),
        ("gaussian", {"epsilon": 0.1, "delta": 1e-6, "rho": None}),
        ("gaussian", {"epsilon": 0.1, "delta": None, "rho": 0.1}),
        ("gaussian", {"epsilon": None, "delta": 1e-6, "rho": 0.1}),
        ("laplace", {"epsilon": math.nan, "delta": None, "rho": None}),
        ("laplace", {"epsilon": -0.1, "delta": None, "rho": None}),
    ],
    ids=str,
)
def test_a_loss_that_cannot_be_counted_is_refused(noise, loss, path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6, new=True)
    refused(lambda: ledger.spend("people", noise, **loss, policy="line:4", data=[1, 2]))
    assert ledger.entries() == []


def test_a_ledger_is_made_on_purpose_only(path):
    """A ledger that was moved away does not come back with nothing spent because somebody states the total again."""
    for total in ({}, {"epsilon": 1.0}):
        refused(lambda total=total: Ledger(path, **total), "does not exist", "bring it back", "--new-ledger")
    refused(lambda: Ledger(path, new=True), "cannot be made without a total")
    assert not path.exists()
    pay(Ledger(path, epsilon=1.0, new=True), 1.0)
    refused(lambda: Ledger(path, epsilon=1.0, new=True), "exists already")
    refused(lambda: pay(Ledger(path, epsilon=1.0), 0.5), "would exceed")
    path.rename(path.with_name("moved.db"))
    refused(lambda: Ledger(path, epsilon=1.0), "does not exist")


def test_an_empty_file_is_no_ledger(path):
    """It may be a ledger that was cut to nothing."""
    path.touch()
    for total in ({}, {"epsilon": 1.0}):
        refused(lambda total=total: Ledger(path, **total), "is empty", "Restore it from a copy")
    refused(lambda: Ledger(path, epsilon=1.0, new=True), "exists already")
    assert path.read_bytes() == b""


def test_a_ledger_that_is_taken_away_or_replaced_while_open_is_refused(path):
    ledger = Ledger(path, epsilon=1.0, new=True)
    pay(ledger, 1.0)
    path.rename(path.with_name("moved.db"))
    refused(lambda: pay(ledger, 0.5), "does not exist")
    assert not path.exists()
    Ledger(path, epsilon=1.0, new=True)
    refused(lambda: pay(ledger, 0.5), "was replaced while it was open")


@pytest.mark.parametrize("name", ["", "two\nlines", "\x1b[2J", "  ", None, 7])
def test_data_need_a_name(path, name):
    refused(lambda: Ledger(path, epsilon=1.0, new=True).account(name), "needs a name")


RACE = """
import multiprocessing, sys
from hdmm_bf._checks import InputError
from hdmm_bf.release.ledger import Ledger

def race(start, paid):
    start.wait()
    try:
        Ledger(sys.argv[1], epsilon=5.0, new=True)
        paid.put("made")
    except InputError as refusal:
        assert "exists already" in str(refusal) or "cannot be made" in str(refusal), refusal
    start.wait()
    account = Ledger(sys.argv[1], epsilon=5.0).account("people")
    for _ in range(3):
        try:
            account.spend("laplace", epsilon=1.0, delta=None, rho=None, policy="line:4", data=[1, 2])
            paid.put(1)
        except InputError as refusal:
            assert "would exceed" in str(refusal), refusal

context = multiprocessing.get_context("fork")
start, paid = context.Barrier(8), context.SimpleQueue()
racers = [context.Process(target=race, args=(start, paid)) for _ in range(8)]
for racer in racers:
    racer.start()
for racer in racers:
    racer.join()
print([racer.exitcode for racer in racers])
while not paid.empty():
    print(paid.get())
"""


def child(code, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def test_eight_processes_at_once_cannot_overspend(path):
    """They race to make the ledger, too."""
    racers = child(RACE, path)
    stdout, stderr = racers.communicate(timeout=100)
    assert stdout.splitlines() == [str([0] * 8), "made", *["1"] * 5], stderr
    assert len(Ledger(path).entries()) == 5


CRASH = """
import os, signal, sys
import numpy as np
import hdmm_bf as bf
from hdmm_bf.release.matrices import MatrixRecovery
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "before the noise":
    MatrixRecovery._noise = die
account = bf.Ledger(sys.argv[2], epsilon=1.0, new=True).account("people")
out = bf.release(bf.load(sys.argv[1]), np.arange(4), epsilon=0.75, account=account)
die()
"""


@pytest.mark.parametrize("moment", ["before the noise", "before the output"])
def test_a_crash_after_the_entry_counts_as_spent(moment, path, tmp_path):
    """Quotes Ledger: a release counts from before its noise is drawn."""
    bundle = bf.fit("identity:4", "line:4", noise="laplace", max_steps=1).save(tmp_path / "x.bf")
    process = child(CRASH, bundle, path, moment)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, stderr
    (entry,) = Ledger(path).entries()
    assert (entry.epsilon, entry.published) == ("0.75", None)
    refused(lambda: pay(Ledger(path), 0.5, counts=np.arange(4)), "1 releases before", "Left: epsilon = 0.25 of Laplace")


def test_a_crash_in_the_middle_of_an_entry_leaves_a_usable_ledger(path):
    pay(Ledger(path, epsilon=1.0, new=True), 0.5)
    code = (
        "import os, signal, sqlite3, sys\n"
        "base = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "base.execute('PRAGMA cache_spill = 1')\n"
        "base.execute('BEGIN IMMEDIATE')\n"
        "base.execute('DELETE FROM spent')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = child(code, path)
    process.communicate(timeout=60)
    assert len(Ledger(path).entries()) == 1
    pay(Ledger(path), 0.5)
    refused(lambda: pay(Ledger(path), 0.1))


def test_a_release_that_is_refused_by_its_data_costs_nothing(path):
    fit = bf.fit("identity:4", "line:4", noise="laplace", max_steps=1)
    account = Ledger(path, epsilon=1.0, new=True).account("people")
    refused(lambda: bf.release(fit, [1, 2, 3, -987654321], epsilon=0.5, account=account))
    refused(lambda: bf.release(fit, [1, 2, 3, 4], epsilon=0.5, delta=1e-6, account=account))
    assert account.ledger.entries() == []
