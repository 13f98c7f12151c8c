"""Figures: a question as title, labels on the axes, the right cells and numbers in them, and no trace left behind."""

import dataclasses
import importlib.util
import re

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.domain import Domain

mpl = pytest.importorskip("matplotlib")

from hdmm_bf.report import plots  # noqa: E402
from hdmm_bf.report.plots import layouts, worst  # noqa: E402
from hdmm_bf.report.plots.errors import query_sizes  # noqa: E402
from hdmm_bf.report.plots.policies import MOST_CELLS, _drawing, _parts  # noqa: E402
from hdmm_bf.report.plots.strategies import LARGEST_SIDE, _pooled, strategy_heatmap  # noqa: E402
from hdmm_bf.report.plots.trees import banded, walk  # noqa: E402
from hdmm_bf.strategies.records import TreeNorm  # noqa: E402

POLICIES = [
    "line:2",
    "line:16",
    "line:400",
    "threshold:64:4",
    "bounded:2",
    "bounded:20",
    "bounded:300",
    "unbounded:1",
    "unbounded:500",
    "cycle:32",
    "star-tree:30",
    "star-tree:2",
    "h-theta:64:4",
    "empty:1",
    "empty:8",
    "threshold:32x32:1",
    "threshold:1x20:1",
    "threshold:8x8:2",
    "sensitive:2x5x7:1,2",
    "product:line:16,bounded:3",
    "product:line:3000,bounded:40,unbounded:10",
    "product:line:3,line:3,line:3,line:3,line:3",
]


@pytest.fixture(scope="module")
def ranges():
    return bf.fit("all-range:24", "threshold:24:3")


@pytest.fixture(scope="module")
def product():
    return bf.fit("marginals:4x5x6:2", "product:line:4,bounded:5,empty:6", family="sectors")


def title(figure):
    """The title, whose lines are broken where the figure is too narrow."""
    return " ".join(figure.get_suptitle().split())


def assert_labelled(figure):
    axes = [axis for axis in figure.axes if axis.axison]
    assert any(axis.get_xlabel() for axis in axes)
    assert any(axis.get_ylabel() for axis in axes)


@pytest.mark.parametrize("spec", POLICIES)
def test_every_policy_is_drawn_and_asks_a_question(spec):
    figure = plots.policy_graph(bf.policy.parse(spec))
    assert "?" in title(figure)
    assert plots.as_svg(figure, name="p").startswith("<svg")


@pytest.mark.parametrize("spec", [spec for spec in POLICIES if not spec.startswith("product:line:3")])
def test_drawn_edges_are_edges_of_the_policy_and_none_between_drawn_cells_is_left_out(spec):
    for policy in _parts(bf.policy.parse(spec)):
        drawing = _drawing(policy)
        names = np.append(drawing.cells, -1)
        drawn = {tuple(names[edge]) for edge in drawing.edges.tolist()}
        known = set(names.tolist())
        assert drawn == {tuple(edge) for edge in policy.edges.tolist() if set(edge) <= known}
        assert drawing.cells.size <= MOST_CELLS
        assert np.isfinite(drawing.places).all()
        cells = drawing.places[:-1]
        assert np.unique(np.round(cells, 6), axis=0).shape == cells.shape, "two cells in one place"


def test_a_policy_that_is_not_drawn_whole_says_so():
    assert "24 of 400 cells" in title(plots.policy_graph(bf.policy.parse("line:400")))
    assert "of" not in title(plots.policy_graph(bf.policy.parse("line:16"))).split()


def test_springs_put_joined_cells_nearer_than_others():
    edges = bf.policy.parse("cycle:20").edges
    places = layouts.by_springs(20, edges)[:-1]
    joined = np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)
    assert joined.max() < np.linalg.norm(places - places.mean(axis=0), axis=1).min()


def test_the_heat_map_has_labels_and_pools_large_matrices_by_the_largest_entry(ranges):
    figure = plots.strategy_heatmap(ranges)
    assert "?" in title(figure)
    assert_labelled(figure)
    large = np.zeros((2 * LARGEST_SIDE + 1, 10))
    large[-1, 3] = -5.0
    pooled, words = _pooled(large)
    assert pooled.shape == (161, 10)
    assert pooled.min() == -5.0
    assert "3 x 1" in words


def test_strategies_of_blocks_show_their_factors_side_by_side(product):
    figure = plots.strategy_heatmap(product)
    assert [axis.get_title(loc="left") for axis in figure.axes[:3]] == ["attribute 1", "attribute 2", "attribute 3"]
    assert "largest 3 of" in title(figure)
    assert_labelled(figure)


def test_nothing_measured_is_said_in_words():
    figure = plots.strategy_heatmap(bf.fit("identity:4", "empty:4"))
    assert "public" in figure.axes[0].texts[0].get_text()


def test_errors_are_drawn_against_the_size_of_ranges(ranges):
    figure = plots.error_per_query(ranges, others={"costs $1$": np.full(300, 50.0)})
    axis = figure.axes[0]
    assert axis.get_xlabel() == "cells in the query"
    assert "records" in axis.get_ylabel()
    mean = next(line for line in axis.lines if line.get_label() == "this strategy, mean")
    sizes = np.array([hi - lo + 1 for lo in range(24) for hi in range(lo, 24)])
    stddev = ranges.per_query_stddev(rho=bf.plan(ranges, epsilon=1.0, delta=1e-6).rho)  # what a release has
    expected = [stddev[sizes == size].mean() for size in range(1, 24)]
    np.testing.assert_allclose(mean.get_ydata()[:-1], expected)
    plots.as_svg(figure, name="e")  # the dollars are not read as a formula


@pytest.mark.parametrize("spec", ["identity:6", "marginals:2x3:1"])
def test_other_queries_are_drawn_by_their_number(spec):
    cells = spec.split(":")[1]
    figure = plots.error_per_query(bf.fit(spec, f"unbounded:{cells}"))
    assert figure.axes[0].get_xlabel() == "number of the query"


@pytest.mark.parametrize("spec", ["prefix:7", "all-range:7", "random-range:4x5:30:seed=1", "all-range:3x4"])
def test_sizes_of_queries_are_sums_of_rows(spec):
    matrix = bf.workload.parse(spec).matrix
    chosen = np.arange(1, matrix.shape[0], 2)
    np.testing.assert_array_equal(query_sizes(matrix, chosen), matrix.dense().sum(axis=1)[chosen])


def test_many_queries_are_sampled_and_too_many_refused_in_three_parts(ranges, product, monkeypatch):
    monkeypatch.setattr("hdmm_bf.report.plots.errors._SAMPLE", 40)
    figure = plots.error_per_query(ranges)
    assert re.search(r"; [34]\d of 300 queries", title(figure))
    monkeypatch.setattr("hdmm_bf.report.plots.errors._MOST_OF_BLOCKS", 73)
    with pytest.raises(bf.InputError, match="74 queries.*too many to draw"):
        plots.error_per_query(product)


def test_convergence_shows_error_above_bound_and_needs_steps(ranges, tmp_path):
    figure = plots.convergence(ranges)
    assert "?" in title(figure)
    assert_labelled(figure)
    error, bound = figure.axes[0].lines
    assert (error.get_ydata() >= bound.get_ydata()).all()
    again = plots.convergence(bf.load(ranges.save(tmp_path / "r.bf")))
    np.testing.assert_array_equal(again.axes[0].lines[0].get_ydata(), error.get_ydata())
    with pytest.raises(bf.InputError, match="needs two steps at least"):
        plots.convergence(bf.fit("identity:4", "empty:4"))


def test_a_search_that_does_not_know_its_bound_is_drawn_with_the_proven_one(ranges):
    blind = dataclasses.replace(ranges, trace=tuple(dataclasses.replace(p, bound=0.0) for p in ranges.trace))
    error, bound = plots.convergence(blind).axes[0].lines
    assert len(error.get_ydata()) == len(ranges.trace)
    assert set(bound.get_ydata()) == {ranges.bounds.lower}


def test_a_laplace_search_is_drawn_with_the_bound_for_its_noise():
    made = bf.fit("all-range:3x3", "threshold:3x3:1", noise="laplace", max_steps=4)
    _, bound = plots.convergence(made).axes[0].lines
    assert set(bound.get_ydata()) == {made.bounds.lower}
    assert made.bounds.lower > made.matrix_bound


def test_missing_matplotlib_is_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(bf.InputError, match=r"pip install 'hdmm-bf\[plot\]'"):
        plots.policy_graph(bf.policy.parse("line:4"))


def test_drawing_leaves_the_settings_of_matplotlib_alone_and_opens_no_window(ranges):
    before = dict(mpl.rcParams)
    plots.as_svg(plots.error_per_query(ranges), name="e")
    assert dict(mpl.rcParams) == before
    pyplot = importlib.import_module("matplotlib.pyplot")
    assert pyplot.get_fignums() == []


def test_an_svg_is_the_same_twice_and_its_identifiers_carry_the_name(ranges):
    first, second = (plots.as_svg(plots.strategy_heatmap(ranges), name="map") for _ in range(2))
    assert first == second
    assert ' id="map-' in first
    for foreign in ("http", "<!--", "xmlns", "<metadata", "<?xml"):
        assert foreign not in first


def test_every_set_of_a_tree_is_one_bar_and_no_two_bars_overlap():
    """Sets that are no intervals of cells, too: the cells are walked in the order of the tree."""
    parents = np.array([6, 7, 6, 7, 8, 8, 9, 9, 10, 10, -1])
    strategy = TreeNorm(parents, np.array([1, 1, 1, 1, 1, 1, 3, 2, 2, 1, 1]), 0, "clusters")
    begin, size = walk(strategy)
    assert begin.tolist() == [0, 2, 1, 3, 4, 5, 0, 2, 4, 0, 0]
    bars = banded(begin, size)
    assert bars.names == ["1", "2", "4", "6"]
    boxes = [
        (set(range(b, b + s)), low, low + high)
        for b, s, low, high in zip(begin.tolist(), size.tolist(), bars.bottom, bars.height, strict=True)
    ]
    for k, (cells, low, high) in enumerate(boxes):
        assert not any(cells & other and low < top - 1e-9 and high > at + 1e-9 for other, at, top in boxes[:k])


def test_prefixes_of_a_chain_lie_above_each_other_and_cells_have_their_labels():
    domain = Domain((6,), ("age",), (("0-9", "10-19", "20-29", "30-39", "40-49", "50-"),))
    made = bf.fit(bf.workload.prefix(domain), bf.policy.line(domain), noise="norm", family="chain", effort="quick")
    figure = strategy_heatmap(made)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == list(domain.labels[0])
    assert "cell" in figure.axes[0].get_xlabel()
    layered = banded(np.zeros(3, dtype=np.int64), np.array([5, 6, 7]))
    assert np.all(np.diff(layered.bottom) > 0)


def test_the_worst_query_is_marked_in_a_curve_of_all(ranges):
    figure = plots.worst_queries(ranges)
    assert_labelled(figure)
    assert title(figure).startswith("Which numbers are the worst, and are they good enough?")
    stddev = np.sort(ranges.per_query_stddev(epsilon=1.0, delta=1e-6))[::-1]
    curve, mark, mean = figure.axes[0].lines
    assert mark.get_ydata()[0] == pytest.approx(stddev[0])
    places = curve.get_xdata().astype(int) - 1
    assert curve.get_ydata() == pytest.approx(stddev[places])
    assert mean.get_ydata()[0] == pytest.approx(np.sqrt(np.mean(stddev**2)))


def test_one_target_is_a_line_and_several_are_points_beside_the_diagonal(ranges):
    m = ranges.problem.workload.num_queries
    line = plots.worst_queries(ranges, targets=np.full(m, 7.0)).axes[0].lines[-1]
    assert set(line.get_ydata()) == {7.0}
    targets = np.where(np.arange(m) % 3 == 0, np.nan, np.linspace(4.0, 300.0, m))
    axis = plots.worst_queries(ranges, targets=targets).axes[0]
    diagonal, mark = axis.lines
    assert np.array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    stddev = ranges.per_query_stddev(epsilon=1.0, delta=1e-6)
    worst = np.nanargmax(stddev / targets)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == pytest.approx((targets[worst], stddev[worst]))
    points = np.asarray(axis.collections[0].get_offsets())
    assert len(points) == np.sum(~np.isnan(targets))
    assert sorted(points[:, 0]) == pytest.approx(np.sort(targets[~np.isnan(targets)]))
    assert axis.get_xscale() == "log"


def test_of_many_points_the_worst_are_always_drawn():
    share = np.random.default_rng(1).uniform(0, 1, 5000)
    share[7] = 3.0
    drawn = worst._points(share)
    assert drawn[0] == 7
    assert drawn.size == np.unique(drawn).size == worst._MOST_POINTS
    assert set(np.argsort(-share)[:700]) <= set(drawn)


def test_too_many_queries_for_the_worst_are_refused(ranges, monkeypatch):
    monkeypatch.setattr(worst, "MOST_LOOKED_AT", 10)
    with pytest.raises(ValueError, match="too many to draw"):
        plots.worst_queries(ranges)


def test_advice_is_drawn_with_a_line_for_every_candidate_at_its_errors():
    made = bf.advise("prefix:4", "line:4", epsilon=2.0, delta=1e-6, max_seconds=1e-3)
    figure = bf.plots.advice(made)
    (axis,) = figure.axes
    drawn = [line for line in axis.get_lines() if len(line.get_xdata()) == 7]
    assert len(drawn) == len(made.candidates) == 1
    assert drawn[0].get_xdata().tolist() == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    fit = made.best().fit
    assert drawn[0].get_ydata().tolist() == [fit.rmse(epsilon=e, delta=1e-6) for e in drawn[0].get_xdata()]
    assert drawn[0].get_label() == "given, gaussian"
    assert bf.plots.as_file(figure, "a.png").startswith(b"\x89PNG")
    assert bf.plots.as_file(figure, "a.pdf").startswith(b"%PDF")
