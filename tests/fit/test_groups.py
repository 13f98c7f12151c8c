"""Fits of tree norms within public groups: from the search to bundles, forged ones among them."""

import json

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.bundle import BundleError
from hdmm_bf.bundle.files import npz
from hdmm_bf.certificate import certify
from hdmm_bf.fit.loading import check
from hdmm_bf.strategies.norm.groups import grouped_axes
from hdmm_bf.strategies.records import GroupedTree, TreeNorm, TreeSum
from tests.support.bundles import forge

LARGE = "all-range:40x60x2", "product:threshold:40:3,empty:60,empty:2"


@pytest.fixture(scope="module")
def large():
    return bf.fit(*LARGE, noise="norm", family="chain", max_steps=2)


@pytest.fixture
def saved(large, tmp_path):
    return large.save(tmp_path / "groups.bf")


def test_domains_beyond_all_cells_together_are_fitted_by_groups(large):
    """The error is that of one line, times how often all groups are counted: tr V_60 tr V_2 of the ranges."""
    line = certify(large.strategy.tree, bf.problem("all-range:40", "threshold:40:3"), noise="norm", proof=None)
    counted = sum((i + 1) * (60 - i) for i in range(60)) * (2 + 2)
    assert isinstance(large.strategy, GroupedTree)
    assert large.strategy.num_groups == 120
    assert large.unit_error == pytest.approx(counted * line.unit_error, rel=1e-9)
    assert large.num_rows == 120 * large.strategy.tree.num_rows
    assert 0 < large.matrix_bound < large.unit_error
    assert large.summary()["lower_bound"] is None


def test_groups_that_are_alike_have_the_error_of_a_search_over_all_cells():
    """Fewer unknowns, so it is no worse; a tree of its own for every group has nothing to gain."""
    problem = "all-range:24x3", "product:line:24,empty:3"
    by_groups = bf.fit(*problem, noise="norm", family="chain", max_steps=4)
    assert by_groups.unit_error == pytest.approx(10 * 24 * 23, rel=1e-6)  # 24 * 23 of one line, tr V_3 = 10


def test_small_domains_and_goals_are_searched_over_all_cells():
    few = {"noise": "norm", "family": "chain", "max_steps": 1}
    assert isinstance(bf.fit("all-range:6x2", "product:line:6,empty:2", **few).strategy, TreeNorm)
    goal = bf.problem("all-range:40x60x2", LARGE[1], objective="largest")
    assert grouped_axes(goal) is None


@pytest.mark.parametrize(
    ("workload", "policy", "axes"),
    [
        ("all-range:40x4", "product:line:40,empty:4", (0,)),
        ("marginals:5x40x4:2", "sensitive:5x40x4:0,1", (0, 1)),
        ("all-range:40x4", "product:unbounded:40,empty:4", None),  # sets may hold cells of two groups
        ("random-range:40x4:50:seed=1", "product:line:40,empty:4", None),  # groups are not asked for alike
        ("random-range:400x40:50:seed=1", "product:line:400,empty:40", (0,)),
        ("all-range:400x40", "product:unbounded:400,empty:40", (0,)),
        ("identity:80x60", "product:unbounded:80,empty:60", None),  # queries that are nested sets
        ("identity:300x60", "product:unbounded:300,empty:60", (0,)),
        ("all-range:40x4", "threshold:40x4:1", None),
    ],
)
def test_groups_are_used_where_they_are_alike_or_the_domain_is_large(workload, policy, axes):
    assert grouped_axes(bf.problem(workload, policy)) == axes


@pytest.mark.parametrize(
    ("workload", "policy", "words"),
    [
        ("all-range:80x60", "threshold:80x60:2", "need public attributes or queries that are nested sets"),
        ("all-range:200x100", "threshold:200x100:2", "searched for without public attributes"),
    ],
)
def test_large_domains_that_are_no_products_are_refused_in_a_sentence(workload, policy, words):
    with pytest.raises(InputError, match=words):
        bf.fit(workload, policy, noise="norm")


def test_queries_of_public_groups_alone_need_no_noise():
    domain = (100, 50)
    public = bf.workload.union(bf.workload.parse("marginals:100x50:0"), bf.workload.parse("marginals:100x50:0"))
    fit = bf.fit(public, bf.policy.product(bf.policy.line(100), bf.policy.empty(50)), noise="norm")
    assert (fit.status, fit.unit_error, fit.strategy.sizes) == ("exact", 0.0, domain)
    x = np.arange(5000)
    assert bf.release(fit, x, epsilon=1.0).answers.tolist() == [x.sum()] * 2


@pytest.mark.parametrize("workload", ["random-range:20x210:50:seed=1", "table"])
def test_queries_that_are_no_products_survive_the_round_trip(workload, tmp_path):
    policy = "product:line:20,empty:210"
    if workload == "table":
        rows = np.zeros((3, 4200))
        rows[0, :7], rows[1, 100:3000:210], rows[2, 4000:] = 1.0, 2.0, 1.0
        workload = bf.workload.weighted(bf.workload.from_matrix(rows, domain=(20, 210)), [1.0, 2.0, 3.0])
    fit = bf.fit(workload, policy, noise="norm", max_steps=1)
    loaded, found = check(fit.save(tmp_path / "b.bf"))
    assert found == []
    assert loaded.unit_error == pytest.approx(fit.unit_error, rel=1e-12)
    np.testing.assert_allclose(loaded.unit_variances(), fit.unit_variances(), rtol=1e-12)


def test_a_bundle_survives_the_round_trip_and_holds_one_tree(large, saved):
    loaded, found = check(saved)
    assert found == []
    assert np.array_equal(loaded.strategy.tree.integers, large.strategy.tree.integers)
    assert (loaded.strategy.axes, loaded.strategy.sizes) == ((0,), (40, 60, 2))
    assert loaded.unit_error == pytest.approx(large.unit_error, rel=1e-12)
    assert sum(file.stat().st_size for file in saved.iterdir()) < 40_000
    out = bf.release(loaded, np.ones(4800, dtype=int), epsilon=1.0)
    assert out.totals.tolist() == [40] * 120


def arrays_of(path, name):
    with np.load(path / name) as held:
        return {key: held[key] for key in held.files}


def rewritten(path, **changes):
    held = arrays_of(path, "grouped_tree.npz") | changes
    (path / "grouped_tree.npz").write_bytes(npz(**{k: v for k, v in held.items() if v is not None}))


def fewer_groups(path, manifest):
    rewritten(path, sizes=np.array([40, 60, 1]))


def fewer_groups_everywhere(path, manifest):
    """Sizes that agree in all files, and the claims of the old ones."""
    rewritten(path, sizes=np.array([40, 30, 2]))
    manifest["domain"]["sizes"] = [40, 30, 2]
    manifest["workload"]["spec"] = "all-range:40x30x2"
    manifest["policy"]["spec"] = "product:threshold:40:3,empty:30,empty:2"
    manifest["policy"]["meaning"] = bf.policy.parse(manifest["policy"]["spec"]).meaning


def other_weights(path, manifest):
    rewritten(path, integers=2 * arrays_of(path, "grouped_tree.npz")["integers"])


def one_heavier_weight(path, manifest):
    integers = arrays_of(path, "grouped_tree.npz")["integers"].copy()
    integers[20] += 2**30
    rewritten(path, integers=integers)


def a_smaller_tree(path, manifest):
    rewritten(path, parents=np.array([3, 3, 3, -1]), integers=np.array([1, 1, 1, 0]))


def a_tree_on_another_attribute(path, manifest):
    rewritten(path, axes=np.array([1]))


def a_tree_on_more_attributes(path, manifest):
    rewritten(path, axes=np.array([0, 2]))


def axes_that_are_none(path, manifest):
    rewritten(path, axes=np.array([3]))


def no_axes(path, manifest):
    rewritten(path, axes=None)


def edges_between_groups(path, manifest):
    held = arrays_of(path, "policy.npz")
    held["edges2"] = np.array([[0, 1]])
    (path / "policy.npz").write_bytes(npz(**held))
    manifest["policy"]["spec"] = "a policy of mine"
    own = [bf.policy.from_edges(*held[f"edges{i}"].T, size) for i, size in enumerate((40, 60, 2))]
    manifest["policy"]["meaning"] = bf.policy.product(*own).meaning


def a_distance_threshold(path, manifest):
    held = arrays_of(path, "policy.npz") | {"threshold": np.array(2)}
    for i, size in enumerate((40, 60, 2)):
        held[f"edges{i}"] = bf.policy.threshold(size, 2).edges
    (path / "policy.npz").write_bytes(npz(**held))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (fewer_groups, "the domain is 40x60x2"),
        (fewer_groups_everywhere, "claimed"),
        (other_weights, "sensitivity_exact is claimed"),
        (one_heavier_weight, "claimed"),
        (a_smaller_tree, "40 cells"),
        (a_tree_on_another_attribute, "tells groups apart"),
        (a_tree_on_more_attributes, "80 cells|no cell|parents"),
        (axes_that_are_none, "must be numbers of attributes"),
        (no_axes, "must be axes"),
        (edges_between_groups, "tells groups apart|discloses"),
        (a_distance_threshold, "change several attributes"),
    ],
)
def test_forged_bundles_are_refused(saved, change, words):
    forge(saved, change)
    with pytest.raises((BundleError, InputError), match=words):
        bf.load(saved)


def test_exports_hold_the_tree_and_where_it_holds(large, tmp_path):
    from hdmm_bf.report.export import write_matrix

    write_matrix(large, tmp_path / "t.npz", kind="npz")
    held = arrays_of(tmp_path, "t.npz")
    assert held["sizes"].tolist() == [40, 60, 2]
    assert held["axes"].tolist() == [0]
    assert np.array_equal(held["parents"], large.strategy.tree.parents)
    with pytest.raises(InputError, match="cannot hold the factors"):
        write_matrix(large, tmp_path / "t.csv", kind="csv")
    with pytest.raises(InputError, match="no written-out reconstruction"):
        write_matrix(large, tmp_path / "t.npz", kind="npz", what="reconstruction")
    small = bf.fit("all-range:9x8", "product:line:9,empty:8", noise="norm", family="chain", max_steps=1)
    write_matrix(small, tmp_path / "small.npz", kind="npz", dense=True)
    A = arrays_of(tmp_path, "small.npz")["strategy"]
    moved = [A[:, u] - A[:, v] for u, v in small.problem.policy.edges.tolist()]
    assert max(np.abs(column).sum() for column in moved) == pytest.approx(small.certificate.sensitivity, rel=1e-12)


def test_plans_and_predictions_of_memory_know_groups(large):
    assert bf.plan(large, epsilon=1.0).rmse == large.rmse(epsilon=1.0)
    assert bf.memory_needed("all-range:1000x300", "product:line:1000,empty:300", noise="norm") < 2**31


@pytest.mark.slow
def test_advice_fits_tree_norms_by_groups():
    problem = "marginals:40x60x2:1", "product:line:40,empty:60,empty:2"
    advice = bf.advise(*problem, epsilon=1.0, max_seconds=20)
    assert any(one.noise == "norm" and isinstance(one.fit.strategy, GroupedTree | TreeSum) for one in advice.candidates)


def test_the_summary_is_plain(large):
    json.dumps(large.summary(), allow_nan=False)
