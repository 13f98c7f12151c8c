"""Several releases together: normal noise exactly, mixtures beside enumerated losses, policies edge by edge."""

import contextlib
import dataclasses
import itertools
import json
import math
import sqlite3
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy
from hdmm_bf._checks import InputError
from hdmm_bf.release.ledger import Entry, Ledger, Total, composition, losses, storage, within
from hdmm_bf.release.ledger.graphs import Graph, views
from hdmm_bf.release.ledger.laws import Pure
from hdmm_bf.release.ledger.losses import left_mu
from hdmm_bf.release.privacy import gaussian_delta, gaussian_epsilon, zcdp_epsilon
from tests.support.command_line import call
from tests.support.ledgers import change, refused

X = np.array([5, 3, 8, 2])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spent.db"


def normal(mu, **others):
    fields = {"at": "now", "data": "people", "policy": "line:4", "noise": "gaussian", "epsilon": None, "delta": None}
    return Entry(**{**fields, "rho": repr(mu * mu / 2), "published": None, "mu": repr(mu), **others})


def pure(epsilon, **others):
    return dataclasses.replace(normal(1.0, **others), noise="laplace", epsilon=repr(epsilon), rho=None, mu=None)


# ---------------------------------------------------------------- one policy


def test_fifty_releases_of_normal_noise_compose_to_the_exact_value(path, gaussian):
    """Fifty times rho 0.01 are mu = 1; zCDP's conversion says 8 % more epsilon."""
    ledger = Ledger(path, epsilon=10.0, delta=1e-6, new=True)
    bf.release(gaussian, X, rho=0.01, account=ledger.account("people"))
    entries = 50 * ledger.entries()
    balance = losses.balance(ledger.total, "people", entries)
    truth = gaussian_epsilon(1.0, 1e-6)
    assert balance.mu == pytest.approx(1.0, rel=1e-12)
    assert balance.epsilon_exact == pytest.approx(truth, rel=1e-9)
    assert balance.epsilon_exact >= truth * (1 - 1e-12)
    assert balance.epsilon_by_rho == pytest.approx(zcdp_epsilon(0.5, 1e-6), rel=1e-6)
    assert balance.epsilon_by_rho > 1.05 * truth
    assert within(Total(repr(truth * (1 + 1e-9)), "1e-06"), entries)
    assert not within(Total(repr(truth * (1 - 1e-9)), "1e-06"), entries)


def test_noise_by_way_of_zcdp_is_not_taken_for_normal_noise(path, gaussian):
    ledger = Ledger(path, epsilon=10.0, delta=1e-6, new=True)
    bf.release(gaussian, X, rho=0.01, account=ledger.account("people"))
    bf.release(gaussian, X, rho=0.01, account=ledger.account("people"), accounting="zcdp")
    first, second = ledger.entries()
    assert (second.mu, second.rho) == (None, "0.01")
    assert float(first.mu) == pytest.approx(math.sqrt(0.02), rel=1e-12)
    assert ledger.balance("people").mu is None


def enumerated(mu, pures, epsilon):
    """E[delta_mu(epsilon - l)] over all outcomes of the coins."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(pures)):
        chance = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, pures, strict=True))
        total += chance * gaussian_delta(1 / mu, epsilon - sum(s * e for s, e in zip(signs, pures, strict=True)))
    return total


MIXTURES = [(0.5, (0.3,) * 3, 2.0), (1.0, (0.1,) * 6, 5.0), (0.2, (1.0, 0.5, 0.25, 0.07), 2.5), (0.3, (0.5,) * 8, 4.0)]


@pytest.mark.parametrize(("mu", "pures", "epsilon"), MIXTURES)
def test_mixtures_lose_what_the_enumeration_of_their_losses_says(mu, pures, epsilon):
    """Never below it, and within 1 %."""
    truth, found = enumerated(mu, pures, epsilon), composition.delta_above(mu, tuple(map(Pure, pures)), epsilon)
    assert truth <= found <= 1.01 * truth


def test_a_ledger_accepts_a_mixture_up_to_its_exact_loss_only(path):
    entries = [normal(0.5), *[pure(0.3)] * 3]
    rest = 1.0
    for delta in (1e-6, 1e-9):
        low, high = 0.5, 9.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if enumerated(0.5, (0.3,) * 3, middle) > delta else (low, middle)
        assert within(Total(repr(high * 1.01), repr(delta)), entries)
        assert not within(Total(repr(high * (1 - 1e-6)), repr(delta)), entries)
        rest = min(rest, high)
    assert rest < 0.9 + gaussian_epsilon(2.0, 1e-6), "better than adding epsilons"


def test_what_is_left_for_normal_noise_can_be_spent_and_no_more():
    for before in ([], [normal(0.1)] * 3, [normal(0.1), pure(0.2)]):
        total = Total("1.0", "1e-06")
        most = left_mu(total, before)
        assert within(total, [*before, normal(most)])
        assert not within(total, [*before, normal(most * 1.001)])
    assert left_mu(Total("1.0", "1e-06"), []) == pytest.approx(0.23670438, rel=1e-6)  # 1 / 4.2246789
    assert left_mu(Total(rho="0.5"), [normal(0.6)]) == pytest.approx(0.8, rel=1e-9)


# ---------------------------------------------------------------- several policies


def by(graph, spec):
    return {"policy": spec, "digest": graph.digest}


def test_edges_cost_their_distance_in_policies_that_lack_them():
    """Every edge of either policy, by brute force with networkx, is covered by a view; the worst one exactly."""
    line, wide = (Graph.of(policy.parse(spec)) for spec in ("line:6", "threshold:6:3"))
    graphs = {graph.digest: graph for graph in (line, wide)}
    seen = views([normal(0.2, **by(line, "line:6")), pure(0.1, **by(wide, "threshold:6:3"))], graphs)
    steps = {(float(Fraction(a.mu)) / 0.2, float(Fraction(b.epsilon)) / 0.1) for a, b in seen}
    chain = nx.path_graph(6)
    brute = {(nx.shortest_path_length(chain, int(u), int(v)), 1) for u, v in wide.edges}
    assert max(brute) in {(round(a), round(b)) for a, b in steps}
    assert all(any(a >= x - 1e-9 and b >= y - 1e-9 for a, b in steps) for x, y in brute)
    assert len(seen) == 1


def test_no_record_is_a_vertex_like_others():
    graph = Graph.of(policy.parse("unbounded:4"))
    pairs = np.array([[0, 1], [-1, 2], [3, -1]])
    assert graph.distances(pairs).tolist() == [2, 1, 1]
    assert Graph.of(policy.from_edges([0], [1], 4)).distances(np.array([[0, 1], [1, 0], [0, 2]])).tolist() == [1, 1, -1]


def test_a_second_policy_is_paid_for_by_its_longest_edge(path):
    """Mu 0.2 on a line is 0.4 for the edges of a threshold of 2: together sqrt(0.16 + 0.04), and not sqrt(0.08)."""
    narrow, wide = bf.fit("all-range:4", "line:4"), bf.fit("all-range:4", "threshold:4:2")
    ledger = Ledger(path, rho=0.1 * (1 + 1e-9), new=True)
    account = ledger.account("people")
    bf.release(narrow, X, rho=0.02, account=account)
    refused(lambda: bf.release(wide, X, rho=0.0201, account=account), "would exceed the total")
    assert ledger.left_mu("people", wide.problem.policy) == pytest.approx(0.2, rel=1e-6)
    bf.release(wide, X, rho=0.02, account=account)
    assert ledger.balance("people").rho == pytest.approx(0.1)
    refused(lambda: bf.release(wide, X, rho=1e-6, account=account), "would exceed the total")


def test_policies_of_which_one_tells_what_the_other_hides_are_refused(path):
    whole, parts = bf.fit("all-range:4", "line:4"), bf.fit("identity:4", policy.from_edges([0, 2], [1, 3], 4))
    ledger = Ledger(path, epsilon=9.0, delta=1e-5, new=True)
    bf.release(whole, X, rho=0.02, account=ledger.account("people"))
    asked = {"rho": 0.02, "account": ledger.account("people")}
    refused(lambda: bf.release(parts, X, **asked), "tells totals that others protect", "1 of their pairs")
    assert len(ledger.entries()) == 1
    bf.release(parts, X, rho=0.02, account=ledger.account("people", common_pairs=True))
    assert ledger.entries()[-1].remark == "only pairs that all policies protect are counted"
    assert ledger.balance("people").rho == pytest.approx(0.04)


def test_graphs_of_the_same_name_and_size_are_told_apart(path):
    """A custom graph is known by its edges, not by its title: the second one is not the first."""
    first, second = (
        policy.from_edges(heads, tails, 4) for heads, tails in (([0, 1, 2], [1, 2, 3]), ([0, 1, 3], [1, 3, 2]))
    )
    assert first.title == second.title
    ledger = Ledger(path, rho=0.1 * (1 + 1e-9), new=True)
    account = ledger.account("people")
    for _ in range(2):
        bf.release(bf.fit("identity:4", first), X, rho=0.01, account=account)
    bf.release(bf.fit("identity:4", second), X, rho=0.01, account=account)
    assert ledger.balance("people").rho == pytest.approx(2 * 0.01 * 4 + 0.01)  # 1 - 3: two steps in the first
    loss = {"epsilon": 0.1, "delta": None, "rho": None, "data": X, "policy": first.title}
    refused(lambda: ledger.spend("people", "laplace", **loss), "graphs are not all known")


def test_policies_whose_graphs_are_not_known_are_refused(path):
    ledger = Ledger(path, epsilon=9.0, new=True)
    loss = {"epsilon": 0.5, "delta": None, "rho": None, "data": X}
    ledger.spend("people", "laplace", **loss, policy="line:4")
    ledger.spend("people", "laplace", **loss, policy="line:4")
    refused(lambda: ledger.spend("people", "laplace", **loss, policy="threshold:4:2"), "graphs are not all known")
    assert len(ledger.entries()) == 2


def test_releases_on_disjoint_data_do_not_add_up(path, gaussian):
    """Quotes ledger: An edge of one domain leaves the records of the other as they are."""
    ledger = Ledger(path, rho=0.1, new=True)
    for town in ("north", "south"):
        bf.release(gaussian, X + len(town) + (town == "north"), rho=0.1, account=ledger.account(town))
    assert [balance.left_rho for balance in ledger.balances()] == [0.0, 0.0]
    A = gaussian.strategy.integers.astype(object)
    both = np.block([[A, np.zeros_like(A)], [np.zeros_like(A), A]])
    sigma = bf.plan(gaussian, rho=0.1).sampler.scale

    def loss(u, v):
        return sum(int(a) ** 2 for a in both[:, u] - both[:, v]) / (2 * sigma**2)

    edges = [(u + start, v + start) for u, v in gaussian.problem.policy.edges.tolist() for start in (0, 4)]
    assert max(loss(u, v) for u, v in edges) == pytest.approx(0.1)
    assert loss(0, 4) > 0.1, "an edge between the domains would lose in both"


# ---------------------------------------------------------------- files


def test_a_ledger_of_the_second_version_is_taken_over(path):
    with contextlib.closing(sqlite3.connect(path)) as base:
        for statement in storage.SECOND_TABLES.values():
            base.execute(statement)
        base.execute("INSERT INTO stated VALUES ('hdmm_bf ledger 2', ?, '2.0', '1e-06', NULL)", ("ab" * 32,))
        row = ("2025-01-01T00:00:00+00:00", "people", "people", "line:4", "gaussian", "0.01", "a.csv")
        columns = "at, account, data, policy, noise, rho, published"
        base.execute(f"INSERT INTO spent ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        base.commit()
    path.chmod(0o600)
    ledger = Ledger(path)
    (entry,) = ledger.entries()
    assert (entry.rho, entry.mu, entry.digest, entry.published) == ("0.01", None, None, "a.csv")
    ledger.spend("people", "gaussian", epsilon=None, delta=None, rho=0.02, mu=0.2, policy="line:4", data=X)
    assert Ledger(path).balance("people").rho == pytest.approx(0.03)


def test_a_touched_graph_is_refused(path, gaussian):
    ledger = Ledger(path, rho=1.0, new=True)
    bf.release(gaussian, X, rho=0.1, account=ledger.account("people"))
    change(path, "UPDATE graphs SET edges = ?", Graph.of(policy.parse("line:3")).written())
    refused(lambda: Ledger(path).balance("people"), "spent.db")


def test_the_command_says_what_a_bundle_could_still_spend(tmp_path, gaussian):
    gaussian.save(tmp_path / "g.bf")
    ledger = Ledger(tmp_path / "spent.db", epsilon=1.0, delta=1e-6, new=True)
    bf.release(gaussian, X, rho=0.01, account=ledger.account("people"))
    told = call("ledger", "spent.db", "--bundle", "g.bf", "--json", cwd=tmp_path)
    (account,) = json.loads(told.stdout)["accounts"]
    rest = account["next"]
    assert rest["mu"] ** 2 + 0.02 == pytest.approx(0.23670438**2, rel=1e-6)
    with pytest.raises(InputError):
        bf.release(gaussian, X, epsilon=rest["epsilon"] * 1.001, delta=1e-6, account=ledger.account("people"))
    bf.release(gaussian, X, epsilon=rest["epsilon"] * 0.999, delta=1e-6, account=ledger.account("people"))
    assert "next   rho" in call("ledger", "spent.db", "--bundle", "g.bf", cwd=tmp_path).stdout


def test_what_is_left_of_a_pure_epsilon_is_what_a_release_under_the_policy_can_spend(path):
    """An edge of threshold:4:2 is up to two steps of the line; a thousandth more than what is left is refused."""
    wide = bf.certify("identity:4", "threshold:4:2", np.eye(4), noise="laplace")
    narrow = bf.certify("identity:4", "line:4", np.eye(4), noise="laplace")
    ledger = Ledger(path, epsilon=1.0, new=True)
    bf.release(wide, X, epsilon=0.4, account=ledger.account("people"))
    assert ledger.left_epsilon("people", wide.problem.policy) == pytest.approx(0.6)
    left = ledger.left_epsilon("people", narrow.problem.policy)
    assert left == pytest.approx(0.3)
    with pytest.raises(InputError):
        bf.release(narrow, X, epsilon=left * 1.001, account=ledger.account("people"))
    bf.release(narrow, X, epsilon=left, account=ledger.account("people"))
