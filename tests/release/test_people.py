"""Promises to people: noise for k moves along edges at once, by brute force over all of them; the ledger; words."""

import contextlib
import dataclasses
import itertools
import json
import math
import sqlite3

import numpy as np
import pytest
from scipy.stats import norm

import hdmm_bf as bf
from hdmm_bf import policy
from hdmm_bf._checks import InputError
from hdmm_bf.release.ledger import Ledger, storage
from hdmm_bf.release.people import checked_per_person
from hdmm_bf.release.row_noise import row_scales
from tests.support.command_line import assert_one_sentence, call
from tests.support.ledgers import change, refused

BOTTOM = -1
X = np.array([3, 1, 4, 1])


def moves(G, most):
    """All changes of counts by at most so many records, each moved along an edge in either direction."""
    steps = [np.zeros(G.num_cells, dtype=np.int64)]
    for u, v in G.edges.tolist():
        step = np.zeros(G.num_cells + 1, dtype=np.int64)  # the last place is no record
        step[u] += 1
        step[v] -= 1
        steps += [step[:-1], -step[:-1]]
    return [sum(chosen) for chosen in itertools.combinations_with_replacement(steps, most)]


FITS = {
    "laplace, line": lambda: bf.certify("all-range:4", "line:4", np.tril(np.ones((3, 4))), noise="laplace"),
    "laplace, unbounded": lambda: bf.certify("prefix:4", "unbounded:4", np.eye(4), noise="laplace"),
    "gaussian, threshold": lambda: bf.fit("all-range:5", "threshold:5:2"),
    "gaussian, unbounded": lambda: bf.fit("prefix:4", "unbounded:4"),
    "norm, threshold": lambda: bf.fit("all-range:5", "threshold:5:2", noise="norm", family="chain", max_steps=1),
    "norm, unbounded": lambda: bf.fit("prefix:4", "unbounded:4", noise="norm", family="hierarchy", max_steps=1),
}


@pytest.fixture(scope="module", params=FITS, ids=str)
def fit(request):
    return FITS[request.param]()


def losses(fit, settled, most):
    """What every change of at most so many records costs: epsilon, or mu, by the noise that will be drawn."""
    found = []
    for change_of in moves(fit.problem.policy, most):
        if fit.noise == "norm":
            sampler, total = settled.sampler, 0.0
            for node, ratio in enumerate(sampler.ratios.tolist()):
                inside = sum(int(change_of[c]) for c in range(sampler.num_cells) if _is_below(sampler.parents, c, node))
                total += 0.0 if inside == 0 else -abs(inside) * math.log(ratio)
            found.append(total)
            continue
        shift = fit.strategy.integers.astype(object) @ change_of.astype(object)
        size = sum(map(abs, shift)) if fit.noise == "laplace" else math.sqrt(sum(s * s for s in shift))
        found.append(size / settled.sampler.scale)
    return found


def _is_below(parents, node, top):
    while node >= 0:
        if node == top:
            return True
        node = parents[node]
    return False


def delta(mu, epsilon):
    """Of the Gaussian mechanism, by its two tails."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("records", [1, 2, 3])
def test_no_change_of_one_persons_records_costs_more_than_the_promise(fit, records):
    """Quotes plan: databases that differ by at most k moves along edges are told apart no better than was asked for.

    And no less: "noise is made for k times the sensitivity, which k records of one cell attain". Noise that is made
    for fewer records must fail.
    """
    asked = {"epsilon": 0.8, "delta": 1e-5} if fit.noise == "gaussian" else {"epsilon": 0.8}
    settled = bf.plan(fit, **asked, per_person=records)
    worst = max(losses(fit, settled, records))
    if fit.noise == "gaussian":
        assert delta(worst, 0.8) == pytest.approx(1e-5, rel=1e-9)
        assert settled.mu == pytest.approx(worst, rel=1e-12)
        assert settled.rho == pytest.approx(worst**2 / 2, rel=1e-12)
    else:
        assert worst <= 0.8 * (1 + 1e-12)
        assert worst == pytest.approx(0.8, rel=1e-6)
    less = bf.plan(fit, **asked, per_person=records - 1 or None)
    if records > 1:
        assert max(losses(fit, less, records)) > worst * 1.2


@pytest.mark.parametrize("records", [2, 5])
def test_one_record_is_promised_a_share(fit, records):
    asked = {"rho": 0.4} if fit.noise == "gaussian" else {"epsilon": 0.8}
    settled = bf.plan(fit, **asked, per_person=records)
    alone = max(losses(fit, settled, 1))
    whole = math.sqrt(0.8) if fit.noise == "gaussian" else 0.8
    assert alone == pytest.approx(whole / records, rel=1e-6)


def test_strategies_by_factors_promise_the_same():
    """All pairs of moves along edges of a product, by the scales of the rows."""
    fit = bf.fit("marginals:2x3:1", "product:bounded:2,bounded:3", family="marginals")
    settled = bf.plan(fit, rho=0.3, per_person=2)
    worst = 0.0
    for change_of in moves(fit.problem.policy, 2):
        loss = 0.0
        for block in fit.strategy.blocks:
            whole = block.integers[0]
            for factor in block.integers[1:]:
                whole = np.kron(whole, factor)
            scales = row_scales(block, settled).ravel()
            part = np.abs(whole @ change_of)[scales > 0] / scales[scales > 0]
            loss += float((part**2).sum() / 2)
        worst = max(worst, loss)
    assert worst == pytest.approx(0.3, rel=1e-7)
    assert worst <= 0.3 * (1 + 1e-12)


def test_errors_are_what_a_release_for_people_has(fit):
    """Quotes fit.expected_error: the same as of plan, as are rmse, per_query_stddev and epsilon_for."""
    extra = {"delta": 1e-5} if fit.noise == "gaussian" else {}
    settled = bf.plan(fit, epsilon=0.8, **extra, per_person=3)
    assert fit.rmse(epsilon=0.8, **extra, per_person=3) == settled.rmse
    assert fit.expected_error(epsilon=0.8, **extra, per_person=3) == settled.expected_error
    stddev = fit.per_query_stddev(epsilon=0.8, **extra, per_person=3)
    assert (stddev**2).sum() == pytest.approx(settled.expected_error)
    assert fit.epsilon_for(rmse=settled.rmse, **extra, per_person=3) == pytest.approx(0.8, rel=1e-6)
    assert settled.rmse == pytest.approx(3 * bf.plan(fit, epsilon=0.8, **extra).rmse, rel=0.05)
    if fit.noise != "gaussian":
        assert settled.any_unbiased_rmse == pytest.approx(3 * bf.plan(fit, epsilon=0.8).any_unbiased_rmse)
        assert settled.any_unbiased_rmse < settled.rmse


def test_a_plan_whose_bound_was_raised_is_refused(fit):
    asked = {"rho": 0.4} if fit.noise == "gaussian" else {"epsilon": 0.8}
    settled = bf.plan(fit, **asked, per_person=2)
    from hdmm_bf.release.publish import publish

    publish(settled, fit, np.ones(fit.problem.policy.num_cells, dtype=int))
    raised = dataclasses.replace(settled, per_person=3)
    with pytest.raises(InputError, match="less noise than its promise needs"):
        publish(raised, fit, np.ones(fit.problem.policy.num_cells, dtype=int))


@pytest.mark.parametrize("bound", [0, -1, 2.0, True, "3", 10**7], ids=repr)
def test_a_bound_that_is_none_is_refused(bound):
    refused(lambda: checked_per_person(bound), "per_person", "record")


def test_a_plan_for_nobody_is_refused(gaussian):
    refused(lambda: bf.plan(gaussian, rho=0.1, per_person=0), "per_person=0", "at least 1")


# ---------------------------------------------------------------- words


def test_words_say_whom_the_promise_is_made_to(gaussian):
    assert "one record" in policy.people(policy.line(4))
    assert "at most 3" in policy.people(policy.line(4), 3)
    assert policy.people(policy.line(4), 1).startswith("This holds when the one record of a person changes")
    assert policy.people(policy.empty(4), 3) == "Nothing is promised to anybody."
    settled = bf.plan(gaussian, rho=0.1, per_person=3)
    assert settled.promise == "rho = 0.1 (zCDP), for people with at most 3 records each"
    out = bf.release(gaussian, X, epsilon=1.0, delta=1e-6, per_person=1)
    assert out.plan.promise.endswith("(GDP), for people with at most 1 record each")
    assert out.summary()["per_person"] == 1
    assert out.summary()["people"] == policy.people(gaussian.problem.policy, 1)
    assert policy.people(gaussian.problem.policy, 1) in out._repr_html_()


# ---------------------------------------------------------------- the ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spent.db"


def test_the_ledger_books_what_is_promised_to_a_person(path, gaussian, laplace):
    ledger = Ledger(path, epsilon=2.0, delta=1e-6, new=True)
    account = ledger.account("visits")
    bf.release(gaussian, X, epsilon=0.5, delta=1e-7, per_person=3, account=account)
    bf.release(laplace, X, epsilon=0.25, per_person=2, account=account)
    first, second = ledger.entries()
    mu = float(max(losses(gaussian, bf.plan(gaussian, epsilon=0.5, delta=1e-7, per_person=3), 3)))
    assert float(first.mu) == pytest.approx(mu, rel=1e-12)
    assert (first.per_person, second.per_person, second.epsilon) == (3, 2, "0.25")
    balance = Ledger(path).balance("visits")
    spent = 0.5 + 2 * 0.25  # two steps of the line are an edge of the other
    assert (balance.unit, balance.epsilon) == ("person", spent)
    assert balance.per_person == 2, "what is promised for three records holds for two, not the other way round"


def test_promises_to_records_and_to_people_do_not_add_up(path, gaussian):
    ledger = Ledger(path, epsilon=2.0, delta=1e-6, new=True)
    account = ledger.account("visits")
    bf.release(gaussian, X, rho=0.01, account=account)
    refused(lambda: bf.release(gaussian, X, rho=0.01, per_person=2, account=account), "promised to people")
    other = ledger.account("shops")
    bf.release(gaussian, X + 1, rho=0.01, per_person=2, account=other)
    refused(lambda: bf.release(gaussian, X + 1, rho=0.01, account=other), "promised to one record", "--per-person")
    assert [(b.account, b.num_releases, b.unit) for b in ledger.balances()] == [
        ("visits", 1, "record"),
        ("shops", 1, "person"),
    ]


def test_public_releases_belong_to_both(path, gaussian, public):
    ledger = Ledger(path, rho=1.0, new=True)
    account = ledger.account("visits")
    bf.release(public, X, epsilon=1.0, account=account)
    bf.release(gaussian, X, rho=0.01, per_person=2, account=account)
    bf.release(public, X, epsilon=1.0, account=account)
    assert ledger.balance("visits").unit == "person"
    assert ledger.balance("visits").per_person == 2


@pytest.mark.parametrize("value", [0, -2, "3", 1.5], ids=repr)
def test_a_bound_that_no_release_had_is_refused(path, gaussian, value):
    ledger = Ledger(path, rho=1.0, new=True)
    bf.release(gaussian, X, rho=0.01, per_person=2, account=ledger.account("visits"))
    change(
        path,
        "UPDATE spent SET per_person = CAST(? AS BLOB)" if value == "3" else "UPDATE spent SET per_person = ?",
        value,
    )
    refused(ledger.entries, "holds an entry that no release made")


def test_a_ledger_of_the_third_version_is_taken_over(path):
    """Quotes migrate_later: every entry is kept as it is."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        for statement in storage.THIRD_TABLES.values():
            base.execute(statement)
        base.execute("INSERT INTO stated VALUES ('hdmm_bf ledger 3', ?, '2.0', '1e-06', NULL)", ("ab" * 32,))
        row = ("2025-01-01T00:00:00+00:00", "people", "people", "line:4", "gaussian", "0.02", "0.2", "a.csv")
        columns = "at, account, data, policy, noise, rho, mu, published"
        base.execute(f"INSERT INTO spent ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        base.commit()
    path.chmod(0o600)
    (entry,) = Ledger(path).entries()
    assert (entry.rho, entry.mu, entry.per_person, entry.published) == ("0.02", "0.2", None, "a.csv")
    with contextlib.closing(sqlite3.connect(path)) as base:
        assert storage.schema_of(path, base) == storage.SCHEMA


# ---------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    bf.fit(bf.workload.table("day"), "unbounded", domain=bf.domain.of(day=["mo", "tu", "we"])).save(folder / "days.bf")
    lines = ["who,day"] + [f"p{k % 7},{['mo', 'tu', 'we'][k % 3]}" for k in range(40)]
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    (folder / "counts.csv").write_text("day,count\nmo,5\ntu,6\nwe,7\n")
    return folder


def test_the_command_promises_to_people_and_leaves_records_out(folder):
    much = ("--rho", "1e6", "--json", "--overwrite")
    told = call(
        "release",
        "days.bf",
        "-d",
        "visits.csv",
        "-o",
        "a.csv",
        *much,
        "--per-person",
        "2",
        "--person",
        "who",
        cwd=folder,
    )
    assert told.returncode == 0, told.stderr
    record = json.loads(told.stdout)
    assert (record["per_person"], record["person"]) == (2, "who")
    rows = (folder / "a.csv").read_text().splitlines()
    place = rows[0].split(",").index("estimate")
    assert sum(float(row.split(",")[place]) for row in rows[1:]) == pytest.approx(7 * 2, abs=0.2)
    notes = json.loads((folder / "a.csv-metadata.json").read_text())["notes"][0]
    assert "all records of one person, at most 2" in notes["people"]
    assert "for people with at most 2 records each" in notes["privacy"]
    plain = call("release", "days.bf", "--dry-run", "--rho", "0.1", "--per-person", "2", "--person", "who", cwd=folder)
    assert "  people   This holds when all records of one person" in plain.stdout
    assert "at most 2 of each person in column who" in plain.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--person", "who"), "--person needs --per-person"),
        (("--seed", "3", "--per-person", "2"), "--seed"),
        (("--per-person", "0"), "--per-person"),
        (("--per-person", "2", "--person", "nobody"), "no such column"),
    ],
    ids=str,
)
def test_mistakes_are_one_sentence(folder, arguments, words):
    told = call("release", "days.bf", "-d", "visits.csv", "-o", "c.csv", "--rho", "0.1", *arguments, cwd=folder)
    assert_one_sentence(told, words)
    assert not (folder / "c.csv").exists()


def test_counts_have_no_people_to_choose_among(folder):
    asked = ("-o", "c.csv", "--rho", "0.1", "--per-person", "2")
    told = call("release", "days.bf", "-d", "counts.csv", *asked, "--person", "who", cwd=folder)
    assert_one_sentence(told, "the file holds counts, for which there is no person")
    assert call("release", "days.bf", "-d", "counts.csv", *asked, cwd=folder).returncode == 0


def test_plans_and_explanations_speak_of_people(folder):
    told = json.loads(call("plan", "days.bf", "--rho", "0.1", "--per-person", "3", "--json", cwd=folder).stdout)
    alone = json.loads(call("plan", "days.bf", "--rho", "0.1", "--json", cwd=folder).stdout)
    assert told["rmse"] == pytest.approx(3 * alone["rmse"], rel=1e-3)
    asked = ("plan", "days.bf", "--largest", "5", "--delta", "1e-6")
    few, many = (json.loads(call(*asked, *more, "--json", cwd=folder).stdout) for more in ((), ("--per-person", "3")))
    assert many["epsilon"] > few["epsilon"]
    assert many["worst_stddev"] == pytest.approx(few["worst_stddev"], rel=1e-3)
    assert "at most 3" in call("explain", "line:4", "--per-person", "3").stdout
