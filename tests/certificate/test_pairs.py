"""What a certificate derives from pairs of edges: the definition, rounded down; forged pairs are refused in words."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.bundle import BundleError
from hdmm_bf.certificate import certify, pairs
from hdmm_bf.certificate.pairs import block_values, pairs_bound, value
from hdmm_bf.fit import loading
from hdmm_bf.problem.inputs import problem
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import CellStrategy
from tests.support import oracles
from tests.support import pairs as oracle
from tests.support.bundles import forge

RNG = np.random.default_rng(0)
ENDS, SHARES = np.array([[0, 1], [2, 3]]), np.array([0.25, 0.125])
CYCLE = Problem(workload.from_matrix(oracles.all_range_rows((5,))), policy.parse("cycle:5"))
IDENTITY = CellStrategy(np.eye(5, dtype=np.int64), 0, "identity")


def proof(ends=ENDS, shares=SHARES, weights=None):
    return {"kind": "edges", "weights": np.ones(5) if weights is None else weights, "partners": ends, "shares": shares}


def bound(made, weights, ends, shares):
    return pairs_bound(made, made.gram, weights, {"partners": ends, "shares": shares})


def of_pair(K):
    least, most = np.sort(np.diag(K))
    return float(value(*(np.array(number) for number in (least, abs(K[0, 1]), most))))


# The numbers


def test_the_value_of_a_pair_is_that_of_parts_and_no_vectors_reach_less():
    halves = [RNG.normal(size=(2, 2)) * [[1.0], [RNG.choice([1.0, 0.1])]] for _ in range(60)]
    close = [np.array([[1.0, b], [b, 1.0]]) for b in np.linspace(0.955, 1, 46)]
    for K in [half.T @ half for half in halves] + close:
        assert of_pair(K) == pytest.approx(oracle.value(K), rel=1e-9)
        assert of_pair(K) <= oracle.least(K) * (1 + 1e-9)


def test_a_pair_proves_no_less_than_its_edges_by_themselves():
    d, f = np.exp(RNG.normal(size=(2, 300)))
    f[:100] = d[:100]
    c = RNG.uniform(-1, 1, size=300) * np.sqrt(d * f)
    found = block_values(d, c, f)
    assert np.all(found >= d**2 + f**2)
    squares = [np.linalg.matrix_power(np.array([[p, q], [q, r]]), 2) for p, q, r in zip(d, c, f, strict=True)]
    assert all(found[i] <= oracle.least(K, points=101) * (1 + 1e-9) for i, K in enumerate(squares))
    assert np.any(found > 1.5 * (d**2 + f**2))


@pytest.mark.parametrize("spec", ["line:5", "cycle:5", "bounded:4", "unbounded:4", "threshold:5:2", "two parts"])
def test_the_bound_is_that_of_the_definition_rounded_down(spec):
    p = policy.from_edges([0, 1, 3, 4, 3, 5], [1, 2, 4, 5, 5, -1], 6) if spec == "two parts" else policy.parse(spec)
    for _ in range(4):
        W = RNG.normal(size=(RNG.integers(2, 9), p.num_cells))
        made = Problem(workload.from_matrix(W), p)
        weights = RNG.random(p.num_edges) * (RNG.random(p.num_edges) < 0.8) + 1e-3
        mu = weights / weights.sum()
        ends, shares = oracle.random_pairs(mu, RNG)
        expected = oracle.paired(oracle.changes(W, p.edges), mu, ends, shares)
        assert expected * (1 - 1e-6) <= bound(made, weights, ends, shares) <= expected


def test_whole_numbers_have_the_bound_in_closed_form():
    """The identity times w_i under ordinary privacy: C is diagonal, so every proof proves sum w_i^2, and not more."""
    w = np.array([1.0, 2.0, 30.0, 400.0])
    made = Problem(workload.from_matrix(np.diag(w)), policy.parse("unbounded:4"))
    for _ in range(10):
        weights = RNG.random(4) + 1e-3
        ends, shares = oracle.random_pairs(weights / weights.sum(), RNG)
        assert (1 - 1e-8) * (w**2).sum() <= bound(made, weights, ends, shares) <= (w**2).sum()


def test_where_nothing_changes_the_bound_is_zero():
    nothing = np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    assert bound(Problem(workload.identity(3), policy.parse("empty:3")), np.zeros(0), *nothing) == 0
    blind = Problem(workload.from_matrix(np.ones((1, 3))), policy.parse("line:3"))
    assert bound(blind, np.ones(2), np.array([[0, 1]]), np.array([0.5])) == 0


def test_queries_that_few_edges_change_are_bounded_by_these():
    """Rank one, and edges that no query sees beside those that it does: a single query of sensitivity 3."""
    made = Problem(workload.from_matrix(np.array([[1.0, 1, 3, 0]])), policy.parse("line:4"))
    WG = oracle.changes(np.array([[1.0, 1, 3, 0]]), made.policy.edges)
    best = np.abs(WG).max() ** 2
    for weights in (np.ones(3), np.array([0.01, 0.01, 1.0]), np.array([1.0, 1.0, 0.1])):
        for ends in itertools.permutations(range(3), 2):
            share = (weights / weights.sum())[list(ends)].min()
            assert 0 < bound(made, weights, np.array([ends]), np.array([share])) <= best


def test_the_certificate_holds_both_bounds():
    plain = certify(IDENTITY, CYCLE, noise="laplace", proof={"kind": "edges", "weights": np.ones(5)})
    own = certify(IDENTITY, CYCLE, noise="laplace", proof=proof(np.array([[0, 1], [2, 3]]), np.array([0.2, 0.2])))
    assert plain.matrix_bound is None
    assert own.matrix_bound == plain.lower_bound
    expected = oracle.paired(
        oracle.changes(oracles.all_range_rows((5,)), CYCLE.policy.edges), np.full(5, 0.2), [[0, 1], [2, 3]], [0.2, 0.2]
    )
    assert own.lower_bound == pytest.approx(max(expected, plain.lower_bound), rel=1e-7)
    assert own.gap == pytest.approx(own.unit_error / own.lower_bound - 1)
    assert own.objective_bound == own.lower_bound


def test_pairs_that_prove_less_than_the_dual_bound_do_no_harm():
    """Weights on an edge that answers hardly change: the SVD bound is more, and stands."""
    weights = np.array([1e-6, 1, 1e-6, 1e-6, 1e-6])
    own = certify(IDENTITY, CYCLE, noise="laplace", proof=proof(shares=np.zeros(2), weights=weights))
    assert own.lower_bound == own.matrix_bound == own.svd_bound


# What is refused

TOO_MUCH = np.array([0.2 + 1e-6, 0.0])


@pytest.mark.parametrize(
    ("ends", "shares", "message"),
    [
        (None, SHARES, r"partners of shape \(\), shares of shape \(2,\).*must be pairs of edges and a number each"),
        (ENDS, None, r"partners of shape \(2, 2\), shares of shape \(\).*must be pairs of edges"),
        (ENDS[0], SHARES, r"partners of shape \(2,\)"),
        (ENDS.T[:, :1], SHARES, r"partners of shape \(2, 1\)"),
        (np.zeros((2, 3), dtype=int), SHARES, r"partners of shape \(2, 3\)"),
        (ENDS, SHARES[:1], r"shares of shape \(1,\)"),
        (ENDS, SHARES[:, None], r"shares of shape \(2, 1\)"),
        (ENDS.astype(float), SHARES, "must be pairs of edges"),
        (ENDS.astype(bool), SHARES, "must be pairs of edges"),
        (ENDS.astype(str), SHARES, "must be pairs of edges"),
        (ENDS, np.array([0, 0]), "must be pairs of edges and a number each"),
        (ENDS, SHARES.astype(complex), "must be pairs of edges and a number each"),
        (ENDS, SHARES.astype(str), "must be pairs of edges and a number each"),
        (ENDS - 1, SHARES, r"partners.*must be two of the 5 edges each"),
        (ENDS + 2, SHARES, r"partners.*must be two of the 5 edges each"),
        (np.array([[0, 0], [2, 3]]), SHARES / 9, r"partners.*must be two of the 5 edges each"),
        (ENDS, np.array([0.1, np.nan]), r"shares.*must be finite and not negative"),
        (ENDS, np.array([0.1, np.inf]), r"shares.*must be finite and not negative"),
        (ENDS, np.array([0.1, -np.inf]), r"shares.*must be finite and not negative"),
        (ENDS, np.array([0.1, -1e-300]), r"shares.*must be finite and not negative"),
        (ENDS, TOO_MUCH, r"shares.*take 1e-06 more than the weight of an edge"),
        (np.array([[0, 1], [0, 2]]), np.array([0.1, 0.1 + 1e-8]), r"shares.*take 9.8e-09 more than the weight"),
        (np.array([[0, 1], [2, 0], [0, 1]]), np.full(3, 0.07), "more than the weight of an edge"),
        (ENDS, np.array([1e308, 1e308]), "more than the weight of an edge"),
    ],
)
def test_forged_pairs_are_refused_in_words(ends, shares, message):
    given = {key: array for key, array in proof(ends, shares).items() if array is not None}
    with pytest.raises(InputError, match=message):
        certify(IDENTITY, CYCLE, noise="laplace", proof=given)


def test_pairs_prove_nothing_for_gaussian_noise():
    with pytest.raises(InputError, match="partners for gaussian noise.*they are of Laplace noise"):
        certify(IDENTITY, CYCLE, noise="gaussian", proof=proof(shares=np.zeros(2)))
    with pytest.raises(InputError, match="partners for gaussian noise"):
        certify(IDENTITY, CYCLE, noise="gaussian", proof={"kind": "edges", "weights": np.ones(5), "shares": SHARES})


def test_shares_are_of_weights_as_they_are_scaled_to_sum_one():
    """Shares of 0.2 are all of five equal weights, whatever their sum."""
    full = proof(ENDS, np.array([0.2, 0.2]))
    for scale in (1e-3, 1.0, 1e3):
        own = certify(IDENTITY, CYCLE, noise="laplace", proof=full | {"weights": np.full(5, scale)})
        assert own.lower_bound == pytest.approx(certify(IDENTITY, CYCLE, noise="laplace", proof=full).lower_bound)
    with pytest.raises(InputError, match="more than the weight of an edge"):
        certify(IDENTITY, CYCLE, noise="laplace", proof=proof(ENDS, np.array([0.21, 0.2]), np.full(5, 1e3)))


UNSEEN = [[0.0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 0]], ([0, 1, 1, 2], [2, 2, 3, 3])
ONE_QUERY = [[1.0, 0, 1, 1, 0]], ([0, 1, 1, 2, 2, 3], [1, -1, 3, 3, 4, -1])
TWO_EDGES = [[1.0, 0, 1, 0, 0], [1, 1, 1, 0, 1]], ([0, 0], [2, 4])


@pytest.mark.parametrize(
    ("rows", "ends", "weights", "known"),
    [
        (*UNSEEN, [1.0, 1e-12, 1e-9, 1e-6], 8.0),
        (*UNSEEN, [1.0, 1e-20, 1e-17, 1e-14], 8.0),
        (*UNSEEN, [1.0, 2e-307, 2e-304, 2e-301], 8.0),
        (*ONE_QUERY, [1e-300, 1e-300, 1e-300, 1.0, 1e-300, 1e-300], 1.0),
        (*TWO_EDGES, [1.0, 7e-14], 1.0),
    ],
)
def test_weights_on_an_edge_that_no_query_sees_prove_nothing_that_is_not_so(rows, ends, weights, known):
    """Quotes pairs_bound: no strategy has less error, whatever the proof says; one of the known error is known."""
    W = np.array(rows)
    made = Problem(workload.from_matrix(W), policy.from_edges(*ends, W.shape[1]))
    assert not np.any(oracle.changes(W, made.policy.edges)[:, np.argmax(weights)])
    assert bound(made, np.array(weights), np.array([[0, 1]]), np.zeros(1)) <= known * (1 + 1e-9)


def test_the_known_errors_are_reached():
    """8: noise for every edge by itself, M = W_G. 1: noise on the one query that is seen, which edges change by one."""
    for (rows, ends), known in ((UNSEEN, 8), (ONE_QUERY, 1), (TWO_EDGES, 1)):
        WG = oracle.changes(np.array(rows), np.array(ends).T)
        seen = WG[np.any(WG != 0, axis=1)]
        assert known == pytest.approx(
            np.linalg.norm(WG) ** 2 if known == 8 else len(seen) * np.abs(seen).sum(axis=0).max() ** 2
        )


def test_edges_without_weight_have_none_to_share():
    """One query of sensitivity 1e5: its optimum is 1e10. Shares of 1e-9 of edges without weight prove 20 times that."""
    made = Problem(workload.from_matrix(np.array([[1.0, 1e5, 1e5]])), policy.parse("unbounded:3"))
    try:
        found = bound(made, np.array([1.0, 0, 0]), np.array([[1, 2]]), np.array([1e-9]))
    except InputError:  # as good
        return
    assert found <= 1e10 * (1 + 1e-9)


def test_no_pairs_at_all_are_pairs():
    nobody = np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    mu = np.full(5, 0.2)
    expected = oracle.paired(oracle.changes(oracles.all_range_rows((5,)), CYCLE.policy.edges), mu, *nobody)
    assert bound(CYCLE, np.ones(5), *nobody) == pytest.approx(expected, rel=1e-7)


# Bundles


@pytest.fixture(scope="module")
def fit():
    return bf.certify("all-range:5", "cycle:5", np.eye(5), noise="laplace")


def stored(**changes):
    """Replace arrays of the strategy's file; None removes one, a function is applied to what is there."""

    def change(path, _):
        with np.load(path / "strategy.npz") as archive:
            held = dict(archive)
        for key, new in changes.items():
            held[key] = new(held[key]) if callable(new) else new
        np.savez(path / "strategy.npz", **{key: array for key, array in held.items() if array is not None})

    return change


def test_a_bundle_keeps_its_pairs(fit, tmp_path):
    loaded = bf.load(fit.save(tmp_path / "x.bf"))
    for key in ("partners", "shares"):
        assert np.array_equal(loaded.proof[key], fit.proof[key])
    assert loaded.bounds.lower == fit.bounds.lower > loaded.matrix_bound == fit.matrix_bound


def test_shares_cut_in_a_bundle_prove_less_and_are_found_out(fit, tmp_path):
    path = fit.save(tmp_path / "x.bf")
    forge(path, stored(shares=lambda shares: shares / 2))
    loaded, found = loading.check(path)
    assert fit.matrix_bound * (1 - 1e-9) <= loaded.bounds.lower < fit.bounds.lower
    assert any("certificate.json: lower_bound is claimed" in item for item in found)
    with pytest.raises(BundleError, match="lower_bound"):
        bf.load(path)


def test_pairs_taken_out_of_a_bundle_leave_the_dual_bound_and_are_found_out(fit, tmp_path):
    path = fit.save(tmp_path / "x.bf")
    forge(path, stored(shares=None, partners=None))
    loaded, found = loading.check(path)
    assert loaded.bounds.lower == pytest.approx(fit.matrix_bound, rel=1e-12)
    assert any("lower_bound is claimed" in item for item in found)


def test_a_bundle_of_other_pairs_that_says_what_they_prove_is_read(fit, tmp_path):
    less = {**fit.proof, "shares": fit.proof["shares"] / 2}
    own = certify(fit.strategy, fit.problem, noise="laplace", proof=less)
    loaded = bf.load(replace(fit, proof=less, certificate=own).save(tmp_path / "x.bf"))
    assert loaded.bounds.lower == own.lower_bound < fit.bounds.lower


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": lambda shares: shares * 2}, "more than the weight of an edge"),
        ({"shares": lambda shares: -shares}, "must be finite and not negative"),
        ({"shares": lambda shares: shares * np.nan}, "must be finite and not negative"),
        ({"shares": lambda shares: shares[1:]}, "must be pairs of edges and a number each"),
        ({"shares": lambda shares: shares[:, None]}, "shares"),
        ({"shares": lambda shares: shares.astype(int)}, "shares"),
        ({"shares": lambda shares: shares.astype(str)}, "shares"),
        ({"shares": None}, "partners"),
        ({"partners": None}, "shares"),
        ({"partners": lambda ends: ends.astype(float)}, "partners"),
        ({"partners": lambda ends: ends.ravel()}, "partners"),
        ({"partners": lambda ends: ends + 5}, "must be two of the 5 edges each"),
        ({"partners": lambda ends: ends - 5}, "must be two of the 5 edges each"),
        ({"partners": lambda ends: ends[:, [0, 0]]}, "must be two of the 5 edges each"),
        ({"partners": lambda ends: ends.astype(np.uint64) + np.uint64(2**63)}, "must be two of the 5 edges each"),
        ({"weights": lambda weights: np.roll(weights**9, 2)}, "more than the weight of an edge|lower_bound"),
    ],
)
def test_a_bundle_with_forged_pairs_is_refused(fit, tmp_path, changes, message):
    path = fit.save(tmp_path / "x.bf")
    forge(path, stored(**changes))
    with pytest.raises(BundleError, match=message):
        bf.load(path)


def test_a_gaussian_bundle_with_pairs_is_refused(tmp_path):
    path = bf.fit("all-range:5", "cycle:5").save(tmp_path / "x.bf")
    forge(path, stored(partners=ENDS, shares=np.zeros(2)))
    with pytest.raises(BundleError, match="partners for gaussian noise"):
        bf.load(path)


def test_pairs_bound_the_largest_variance_as_well():
    """It is at least the sum of variances weighted as the proof says: of the same rows times roots of weights."""
    made = problem("all-range:5", "cycle:5", objective="largest")
    lam = RNG.random(15) + 0.1
    WG = oracle.changes(np.sqrt(lam / lam.sum())[:, None] * oracles.all_range_rows((5,)), made.policy.edges)
    full = proof(ENDS, np.array([0.2, 0.2])) | {"queries": lam}
    own = certify(IDENTITY, made, noise="laplace", proof=full)
    paired = oracle.paired(WG, np.full(5, 0.2), ENDS, full["shares"])
    assert np.linalg.norm(WG * np.sqrt(0.2), "nuc") ** 2 < paired
    assert own.objective_bound == pytest.approx(paired, rel=1e-7)
    with pytest.raises(InputError, match="more than the weight of an edge"):
        certify(IDENTITY, made, noise="laplace", proof=full | {"shares": np.array([0.3, 0.1])})


def test_more_pairs_than_can_be_evaluated_are_refused(monkeypatch):
    k, e = CYCLE.grounding.kept.size, CYCLE.policy.num_edges
    monkeypatch.setattr(pairs, "_MOST_WORK", k * k * e - 1)
    with pytest.raises(InputError, match=r"pairs among 5 edges over 4 cells.*take too long to evaluate"):
        bound(CYCLE, np.ones(5), ENDS, SHARES)
