"""What Laplace releases lose together, beside oracles that share nothing with the package.

Rows of whole-number noise are enumerated; Laplace noise on a real answer is put on a fine lattice, once rounded up and
once down, and taken from Google's dp-accounting (dependency group `accounting`).
"""

import contextlib
import dataclasses
import json
import math
import sqlite3
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import signal, stats

import hdmm_bf as bf
from hdmm_bf.release import discrete_laplace
from hdmm_bf.release.ledger import Entry, Ledger, Total, composition, losses, storage, within
from hdmm_bf.release.ledger.graphs import Graph, views
from hdmm_bf.release.ledger.laws import Pure, law
from hdmm_bf.release.publish import publish
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, NoiseSum, ProductStrategy
from tests.support.command_line import call
from tests.support.ledgers import change, refused

FINE = 2e-4


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spent.db"


def over(mu, losses_, chances, epsilon):
    """E[delta_mu(epsilon - l)], mu = 0 being no normal noise."""
    rest = epsilon - losses_
    if mu == 0:
        return math.fsum(chances * -np.expm1(np.minimum(rest, 0.0)))
    first, second = stats.norm.logcdf(mu / 2 - rest / mu), rest + stats.norm.logcdf(-mu / 2 - rest / mu)
    return math.fsum(chances * np.exp(first) * -np.expm1(np.minimum(second - first, 0.0)))


# ---------------------------------------------------------------- one release


def rows_of_noise(rows, far=80):
    """Losses and probabilities of independent whole-number Laplace noise, each row moved by a whole number."""
    losses_, chances = np.zeros(1), np.ones(1)
    for shift, scale in rows:
        k = np.arange(-int(far * scale), int(far * scale) + shift + 1)
        own = np.exp(-np.abs(k) / scale) * math.tanh(0.5 / scale)
        loss = (np.abs(k - shift) - np.abs(k)) / scale
        values, place = np.unique(np.round(loss, 12), return_inverse=True)
        own = np.bincount(place.ravel(), own)
        losses_ = np.add.outer(losses_, values).ravel()
        chances = np.multiply.outer(chances, own).ravel()
    return losses_, chances


CASES = [
    ((1, 1.0),),
    ((3, 2.5),),
    ((1, 0.7), (1, 0.7)),
    ((2, 4.0), (5, 9.0), (1, 3.0)),
    ((1, 0.5), (40, 60.0)),
    ((1, 1.0), (1, 2.0), (1, 3.0), (1, 4.0), (2, 7.0)),
    ((300, 400.0),),
]


def steps_of(rows):
    return Pure(sum(shift / scale for shift, scale in rows), max(1 / scale for _, scale in rows))


@pytest.mark.parametrize("rows", CASES)
def test_a_release_of_whole_number_noise_loses_no_more_than_its_law(rows):
    """Quotes laws: that of a pair which is at least as easy to tell apart as the outcomes of a release."""
    known = steps_of(rows)
    pairs = rows_of_noise(rows)
    for share in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        truth = over(0, *pairs, share * known.epsilon)
        found = composition.delta_above(0.0, (known,), share * known.epsilon)
        assert truth * (1 - 1e-9) <= found
        assert found <= composition.delta_above(0.0, (Pure(known.epsilon),), share * known.epsilon) * (1 + 1e-6)


def test_rows_of_small_steps_lose_what_one_real_answer_does():
    """A mixture of 300 steps is within 1 % of Laplace noise on a real answer, and the coin is a third above."""
    known, losses_ = steps_of(CASES[-1]), rows_of_noise(CASES[-1])
    truth = over(0.3, *losses_, 1.1)
    assert truth <= composition.delta_above(0.3, (known,), 1.1) <= 1.01 * truth
    assert composition.delta_above(0.3, (Pure(known.epsilon),), 1.1) > 1.2 * truth


@pytest.mark.parametrize("seed", range(40))
def test_steps_never_lead_above_the_power_that_the_law_allows(seed):
    """The inequality of laws, step by step: h_t(alpha) = min(e^t alpha, 1 - e^-t (1 - alpha)), in any order."""
    rng = np.random.default_rng(seed)
    most = rng.choice([0.01, 0.1, 0.5, 1.5])
    sizes = most * rng.uniform(0, 1, rng.integers(1, 30)) ** rng.choice([0.2, 1.0, 3.0])
    epsilon = sizes.sum()
    alpha = np.geomspace(1e-8, 1.0, 4001)
    power = alpha
    for t in sizes:
        power = np.minimum(np.exp(t) * power, 1 - np.exp(-t) * (1 - power))
    a = 1 / (1 + math.exp(most))
    miss = np.maximum(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha))
    if epsilon > most:
        inner = (alpha >= a * math.exp(most - epsilon)) & (alpha <= a)
        miss = np.where(inner, a * a * math.exp(most - epsilon) / alpha, miss)
    assert np.all(1 - power >= miss - 1e-12)


@pytest.mark.parametrize("grid", [0.3, 0.01, 1e-3])
@pytest.mark.parametrize("known", [Pure(1.0), Pure(1.0, 0.3), Pure(1.0, 1e-6), Pure(0.77, 0.012)])
def test_a_law_has_probabilities_under_both_neighbours(known, grid):
    """They add up to 1, under the first and, times e^-l, under the second: the pair exists."""
    lowest, chances = law(known, grid)
    losses_ = grid * (lowest + np.arange(chances.size))
    assert chances.min() >= 0
    assert math.fsum(chances) == pytest.approx(1.0, abs=1e-7)
    assert math.fsum(chances * np.exp(-losses_)) == pytest.approx(1.0, abs=1e-7)


# ---------------------------------------------------------------- many releases

MIXTURES = [  # mu of the normal noise, pure losses, epsilon
    (0.5, (0.3,) * 3, 2.0),
    (0.2, (1.0, 0.5, 0.25, 0.07), 2.5),
    (0.3, (0.5,) * 8, 4.0),
    (0.1, (1.0,), 1.2),
    (2.0, (1.5,), 9.0),
    (0.0, (1.0,) * 10, 7.0),
    (0.0, (0.1,) * 100, 4.0),
    (1.0, (0.1,) * 60, 6.0),
    (0.5, (2.0, 0.01, 0.01), 4.0),
]


def real_answers(pures, *, up):
    """The losses of Laplace noise on real answers, on a lattice: mass between two points to the upper or lower one."""
    chances, lowest = np.ones(1), 0
    for e in pures:
        n = round(e / FINE)
        loss = FINE * np.arange(-n, n + 1)
        below = 0.5 * np.exp(-(e - loss) / 2)  # P(loss <= l), and 1 at e, where half of all is
        between = np.diff(below)
        own = np.zeros(2 * n + 1)
        own[0] += below[0]
        own[-1] += 0.5
        own[1:] += between if up else 0.0
        own[:-1] += 0.0 if up else between
        chances, lowest = np.maximum(signal.fftconvolve(chances, own), 0.0), lowest - n
    return FINE * (lowest + np.arange(chances.size)), chances


@pytest.mark.parametrize(("mu", "pures", "epsilon"), MIXTURES)
def test_mixtures_with_laplace_noise_are_within_a_hundredth_of_a_fine_privacy_loss_distribution(mu, pures, epsilon):
    """And never below it."""
    low, high = (over(mu, *real_answers(pures, up=way), epsilon) for way in (False, True))
    found = composition.delta_above(mu, tuple(Pure(e, 1e-7 * e) for e in pures), epsilon)
    assert low <= found <= 1.01 * high
    assert found >= (low + high) / 2 * (1 - 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "pures", "epsilon"), MIXTURES)
def test_mixtures_beside_the_laplace_mechanism_of_dp_accounting(mu, pures, epsilon):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="needs dp-accounting")

    def total(*, pessimistic):
        options = {"pessimistic_estimate": pessimistic, "value_discretization_interval": 1e-4}
        made = None if mu == 0 else pld.from_gaussian_mechanism(1 / mu, use_connect_dots=pessimistic, **options)
        for e, count in Counter(pures).items():
            one = pld.from_laplace_mechanism(1 / e, use_connect_dots=pessimistic, **options)
            many = one.self_compose(count) if count > 1 else one
            made = many if made is None else made.compose(many)
        return made.get_delta_for_epsilon(epsilon)

    found = composition.delta_above(mu, tuple(Pure(e, 1e-7 * e) for e in pures), epsilon)
    assert total(pessimistic=False) <= found == pytest.approx(total(pessimistic=True), rel=0.01)


def test_thousands_of_different_laplace_releases_are_composed_closely():
    """Beside normal approximations of both tails: the sum of 3000 losses, of which mean and variance are known."""
    pures = np.random.default_rng(5).uniform(0.01, 0.05, 3000)
    mean = np.sum(pures - 1 + np.exp(-pures))
    square = np.sum(_second_moment(pures) - (pures - 1 + np.exp(-pures)) ** 2)
    found = composition.delta_above(0.0, tuple(Pure(float(e), 1e-9) for e in pures), float(mean + 3 * square**0.5))
    mu = square**0.5  # mu-GDP has mean mu^2 / 2 and variance mu^2
    beside = over(mu, np.zeros(1), np.ones(1), float(mean + 3 * square**0.5) + mu**2 / 2 - mean)
    assert found == pytest.approx(beside, rel=0.05)


def _second_moment(e):
    """E[l^2] of Laplace noise on a real answer, by the integral of its density."""
    return (
        e**2 / 2 * (1 + np.exp(-e))
        + (np.exp(-e / 2) / 2) * (2 * (e**2 - 4 * e + 8) * np.exp(e / 2) - 2 * (e**2 + 4 * e + 8) * np.exp(-e / 2)) / 2
    )


# ---------------------------------------------------------------- the ledger


def entry(epsilon, step):
    return Entry("now", "people", "line:4", "laplace", repr(epsilon), None, None, None, step=step)


def test_fifty_laplace_releases_cost_less_than_fifty_of_any_pure_noise():
    total = Total("30.0", "1e-06")
    known, unknown = (losses.balance(total, "people", [entry(0.5, step)] * 50) for step in ("1e-06", None))
    low, high = 1.0, 25.0
    chances = real_answers((0.5,) * 50, up=True)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if over(0, *chances, middle) > 1e-6 else (low, middle)
    assert known.epsilon_exact == pytest.approx(high, rel=1e-3)
    assert (known.epsilon_exact, unknown.epsilon_exact) == (
        pytest.approx(18.75, abs=5e-3),
        pytest.approx(20.3, abs=5e-3),
    )
    assert within(Total(repr(high * 1.001), "1e-06"), [entry(0.5, "1e-06")] * 50)
    assert not within(Total(repr(high * 0.999), "1e-06"), [entry(0.5, "1e-06")] * 50)


def test_what_a_next_laplace_release_could_spend_it_can_and_a_thousandth_more_it_cannot():
    total, before = Total("6.0", "1e-06"), [entry(0.1, "1e-07")] * 100
    left = losses.left_epsilon(total, before, steps=1e6)
    assert within(total, [*before, entry(left, repr(left / 1e6))])
    assert not within(total, [*before, entry(left * 1.001, repr(left / 1e6))])
    assert left > losses.left_epsilon(total, before)


STRATEGIES = [
    ("all-range:8", "line:8", None, CellStrategy),
    ("all-range:5x5", "threshold:5x5:1", None, EdgeStrategy),
    ("all-range:8", "bounded:8", None, CellStrategy),
    ("marginals:100x50x2:2", "product:line:100,bounded:50,empty:2", "union", ProductStrategy),
    ("all-range:12x10x2", "product:line:12,bounded:10,empty:2", "directions", NoiseSum),
]


@pytest.mark.parametrize(("workload", "policy", "family", "kind"), STRATEGIES)
def test_a_release_is_booked_with_the_largest_of_its_steps(path, monkeypatch, workload, policy, family, kind):
    """Quotes Recovery.largest_step: no scale of the noise that is drawn is below one over the step."""
    made = bf.fit(workload, policy, noise="laplace", family=family, max_steps=5)
    assert isinstance(made.strategy, kind)
    ledger = Ledger(path, epsilon=10.0, delta=1e-6, new=True)
    counts = np.zeros(made.problem.workload.num_cells, dtype=int)
    seen, drawn = [], discrete_laplace.draw
    monkeypatch.setattr(discrete_laplace, "draw", lambda scale, count: seen.append(scale) or drawn(scale, count))
    bf.release(made, counts, epsilon=0.5, account=ledger.account("people"))
    (booked,) = ledger.entries()
    assert float(booked.step) == pytest.approx(1 / min(seen), rel=1e-12)
    assert float(booked.step) * min(seen) >= 1 - 1e-15
    assert float(booked.step) < 0.5


def test_tree_norms_and_normal_noise_have_no_steps(path):
    ledger = Ledger(path, epsilon=10.0, delta=1e-6, new=True)
    for noise, loss in (("norm", {"epsilon": 1.0}), ("gaussian", {"rho": 0.01})):
        bf.release(bf.fit("all-range:6", "line:6", noise=noise), [3] * 6, **loss, account=ledger.account("people"))
    assert [one.step for one in ledger.entries()] == [None, None]


def test_policies_of_other_edges_keep_the_steps_of_a_release():
    """Over three edges a release loses three times as much, in steps of the same size."""
    line, wide = (Graph.of(bf.policy.parse(spec)) for spec in ("line:6", "threshold:6:3"))
    graphs = {graph.digest: graph for graph in (line, wide)}
    own = dataclasses.replace(entry(0.1, "0.01"), policy="line:6", digest=line.digest)
    other = dataclasses.replace(entry(0.2, "0.02"), policy="threshold:6:3", digest=wide.digest)
    farthest = max((view[0] for view in views([own, other], graphs)), key=lambda one: Fraction(one.epsilon))
    assert (Fraction(farthest.epsilon), farthest.step) == (Fraction("0.3"), "0.01")


@pytest.mark.parametrize("value", ["0", "-1", "inf", "a", 3], ids=repr)
def test_a_step_that_no_release_had_is_refused(path, value):
    ledger = Ledger(path, epsilon=2.0, new=True)
    bf.release(bf.fit("identity:4", "line:4", noise="laplace"), [1] * 4, epsilon=1.0, account=ledger.account("people"))
    change(path, "UPDATE spent SET step = ?", value)
    refused(ledger.entries, "holds an entry that no release made")


def test_only_laplace_noise_has_steps(path):
    ledger = Ledger(path, rho=2.0, new=True)
    loss = {"epsilon": None, "delta": None, "rho": 0.1, "policy": "line:4", "data": np.ones(4, dtype=int)}
    refused(lambda: ledger.spend("people", "gaussian", step=0.1, **loss), "is no loss that can be counted")


def test_a_ledger_of_the_fourth_version_is_taken_over(path):
    """Quotes migrate_later: every entry is kept as it is; it counts as any pure loss."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        for statement in storage.FOURTH_TABLES.values():
            base.execute(statement)
        base.execute("INSERT INTO stated VALUES ('hdmm_bf ledger 4', ?, '2.0', '1e-06', NULL)", ("ab" * 32,))
        row = ("2025-01-01T00:00:00+00:00", "people", "people", "line:4", "laplace", "0.5", "a.csv", 3)
        columns = "at, account, data, policy, noise, epsilon, published, per_person"
        base.execute(f"INSERT INTO spent ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        base.commit()
    path.chmod(0o600)
    (one,) = Ledger(path).entries()
    assert (one.epsilon, one.per_person, one.published, one.step) == ("0.5", 3, "a.csv", None)
    with contextlib.closing(sqlite3.connect(path)) as base:
        assert storage.schema_of(path, base) == storage.SCHEMA


def test_the_command_says_what_a_bundle_could_still_spend_by_its_own_law(path, tmp_path):
    made = bf.fit("all-range:8", "line:8", noise="laplace")
    made.save(tmp_path / "ranges.bf")
    ledger = Ledger(path, epsilon=5.0, delta=1e-3, new=True)
    for _ in range(20):
        bf.release(made, [1] * 8, epsilon=0.3, account=ledger.account("people"))
    told = call("ledger", path.name, "--bundle", "ranges.bf", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    (account,) = json.loads(told.stdout)["accounts"]
    assert account["next"]["epsilon"] > 1.01 * account["left_epsilon"]
    bf.release(made, [1] * 8, epsilon=account["next"]["epsilon"], account=ledger.account("people"))


@pytest.mark.parametrize(
    ("epsilon", "delta", "before"), [(1.0, 1e-6, (0.5,)), (1.0, 1e-9, (0.3, 0.3)), (3.0, 1e-6, (0.5,) * 5)]
)
def test_what_is_left_can_be_spent_by_a_release_whose_steps_are_known(path, epsilon, delta, before):
    """Quotes balance: A next release of what is left is within the total. A coin needs no grid, and steps do."""
    made = bf.fit("all-range:8", "line:8", noise="laplace", max_steps=1)
    account = Ledger(path, epsilon=epsilon, delta=delta, new=True).account("people")
    for loss in before:
        bf.release(made, [1] * 8, epsilon=loss, account=account)
    left = account.ledger.balance("people").left_epsilon
    assert left > 0.9 * (epsilon - sum(before))
    bf.release(made, [1] * 8, epsilon=left, account=account)
    assert len(account.ledger.entries()) == len(before) + 1


def test_losses_of_any_size_are_added_up():
    """Beyond the exponents of floats, and next to nothing."""
    for large in (650.0, 750.0, 950.0):
        spent = losses.balance(Total("3000.0", "1e-06"), "people", [entry(large, repr(large))] * 2)
        assert spent.epsilon_exact == pytest.approx(2 * large, rel=1e-6)
    normal = Entry("now", "people", "line:4", "gaussian", None, None, "5e-321", None, mu="1e-160")
    tiny = [entry(1e-320, None)] * 2
    assert within(Total("1.0", "1e-06"), [*tiny, normal])
    assert losses.balance(Total("1e-25", "1e-06"), "people", [*tiny, normal]).epsilon_exact < 1e-20


def test_normal_noise_is_not_taken_for_laplace_noise():
    """A plan that was changed to draw it is refused: it has no epsilon."""
    made = bf.fit("identity:4", "line:4", noise="laplace")
    settled = bf.plan(made, epsilon=1.0)
    weak = dataclasses.replace(settled.sampler, scale=settled.sampler.scale / 1000, law="rounded")
    refused(
        lambda: publish(dataclasses.replace(settled, sampler=weak), made, [100] * 4),
        "has less noise than its promise needs",
    )
