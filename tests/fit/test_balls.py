"""Distance thresholds over several attributes from end to end: fit, bundle, verify, release, export."""

import json

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.bundle.files import npz
from hdmm_bf.fit.memory import structured_family
from hdmm_bf.problem.product import as_product
from hdmm_bf.report.export import write_matrix
from hdmm_bf.strategies.records import NoiseSum, ProductStrategy
from tests.support.bundles import forge

QUERIES, POLICY = "all-range:5x4", "threshold:5x4:2"
FAMILIES = {"gaussian": "bases", "laplace": "directions"}
BUDGET = {"gaussian": {"epsilon": 1.0, "delta": 1e-6}, "laplace": {"epsilon": 1.0}}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def fit(request):
    return bf.fit(QUERIES, POLICY, noise=request.param, family=FAMILIES[request.param], max_steps=3)


def test_small_domains_keep_their_dense_search():
    assert bf.fit(QUERIES, POLICY).family == "gaussian"


def test_a_fit_says_who_won_and_what_is_proven(fit):
    assert isinstance(fit.strategy, ProductStrategy if fit.noise == "gaussian" else NoiseSum)
    assert fit.certificate.lower_bound > 0
    assert fit.family in ("bases", *fit.reached)
    assert structured_family(as_product(fit.problem, balls=True), fit.noise) == FAMILIES[fit.noise]


def test_a_time_limit_leaves_the_bound_in_place():
    made = bf.fit(QUERIES, POLICY, family="bases", max_seconds=20.0, max_steps=1)
    assert made.certificate.lower_bound > 0


def test_a_bundle_brings_the_same_policy_and_certificate_back(fit, tmp_path):
    fit.save(tmp_path / "b.bf")
    again = bf.load(tmp_path / "b.bf")
    assert again.certificate == fit.certificate
    assert again.problem.policy.spec == POLICY
    np.testing.assert_array_equal(again.problem.policy.edges, fit.problem.policy.edges)


def test_a_graph_of_the_same_edges_comes_back_with_all_of_them(tmp_path):
    u, v = bf.policy.parse(POLICY).edges.T
    graph = bf.policy.from_edges(u, v, "5x4", spec="the neighbours of a map")
    made = bf.fit(QUERIES, graph, family="bases", max_steps=1)
    made.save(tmp_path / "b.bf")
    again = bf.load(tmp_path / "b.bf").problem.policy
    assert {tuple(e) for e in again.edges.tolist()} == {tuple(e) for e in graph.edges.tolist()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: {k: v for k, v in a.items() if k != "threshold"}, "does not hold the edges of that policy"),
        (lambda a: a | {"threshold": np.array(1)}, "must be from 2 to 9"),
        (lambda a: a | {"threshold": np.array(3)}, "does not go with the edges of the attributes"),
        (lambda a: a | {"edges0": a["edges0"][1:]}, "does not go with the edges of the attributes"),
        (lambda a: a | {"edges2": a["edges0"]}, "must be one for each attribute"),
    ],
)
def test_a_bundle_with_fewer_edges_than_its_policy_is_refused(fit, tmp_path, change, words):
    fit.save(tmp_path / "b.bf")

    def other_edges(path, manifest):
        with np.load(path / "policy.npz") as held:
            arrays = change(dict(held))
        (path / "policy.npz").write_bytes(npz(**arrays))

    forge(tmp_path / "b.bf", other_edges)
    with pytest.raises(ValueError, match=words):
        bf.load(tmp_path / "b.bf")


def test_a_claimed_sensitivity_that_is_too_small_is_caught(fit, tmp_path):
    fit.save(tmp_path / "b.bf")

    def smaller(path, manifest):
        record = json.loads((path / "certificate.json").read_text())
        record["sensitivity_exact"] = str(int(record["sensitivity_exact"]) // 2)
        (path / "certificate.json").write_text(json.dumps(record))

    forge(tmp_path / "b.bf", smaller)
    with pytest.raises(ValueError, match="sensitivity_exact is claimed"):
        bf.load(tmp_path / "b.bf")


def test_releases_have_the_error_that_was_predicted(fit):
    """Mean squared errors of simulated releases; their standard error comes from the draws themselves."""
    x = np.random.default_rng(0).integers(0, 30, size=20)
    truth = np.asarray(fit.problem.workload.matrix.mv(x))
    out = bf.release(fit, x, **BUDGET[fit.noise])
    total = float((out.stddev**2).sum())
    squares = [float(((bf.release(fit, x, **BUDGET[fit.noise]).answers - truth) ** 2).sum()) for _ in range(150)]
    error = np.std(squares) / np.sqrt(len(squares))
    assert abs(np.mean(squares) - total) < 5 * error
    assert abs(np.mean(squares) - 1.5 * total) > 5 * error  # the control fails
    assert out.answers.max() == x.sum()  # the total is public


def test_factors_are_exported_with_the_threshold(fit, tmp_path):
    with np.load(write_matrix(fit, tmp_path / "factors.npz", kind="npz")) as held:
        assert int(held["threshold"]) == 2
        assert [len(held[f"edges{i}"]) for i in range(2)] == [7, 5]


def test_domains_beyond_dense_sizes_are_searched_by_factors():
    for noise, family in FAMILIES.items():
        assert bf.memory_needed("all-range:256x256", "threshold:256x256:3", noise=noise) < 4 * 2**30
        problem = bf.problem("all-range:256x256", "threshold:256x256:3")
        assert structured_family(as_product(problem, balls=True), noise) == family


def test_queries_that_are_no_products_are_refused_in_one_sentence():
    W = np.eye(20)[:, ::-1] + np.arange(20)
    with pytest.raises(ValueError, match="needs a policy and a workload that are products"):
        bf.fit(W, POLICY, domain="5x4", family="bases")
