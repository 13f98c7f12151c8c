"""The search for the largest variance in its parts: half as many cells, ascent by secants, rounding into two boxes."""

import itertools

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.problem.goal import Goal
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian import coarse, largest
from hdmm_bf.strategies.gaussian.secants import Secants
from hdmm_bf.strategies.gaussian.two_boxes import TwoBoxes
from hdmm_bf.strategies.gaussian.whole import Weights
from hdmm_bf.strategies.search import search
from tests.support import goals
from tests.support.mistakes import _as_users_run_it  # noqa: F401  (checks of types in every step take long)


def asked(queries, graph):
    return Problem(bf.workload.parse(queries), bf.policy.parse(graph), Goal("largest"))


# Half as many cells

LINES = [
    ("all-range:64", "unbounded:64", "all-range:32", "unbounded:32"),
    ("prefix:64", "bounded:64", "prefix:32", "bounded:32"),
    ("all-range:64", "threshold:64:3", "all-range:32", "threshold:32:3"),
    ("prefix:65", "line:65", "prefix:32", "line:32"),
]


@pytest.mark.parametrize(("queries", "graph", "fewer", "smaller"), LINES)
def test_half_of_a_line_is_the_line_of_half_as_many_cells(queries, graph, fewer, smaller):
    half = coarse.halved(coarse.line(asked(queries, graph)))
    assert np.array_equal(half.workload.matrix.dense(), bf.workload.parse(fewer).matrix.dense())
    edges = [{tuple(edge) for edge in policy.edges.tolist()} for policy in (half.policy, bf.policy.parse(smaller))]
    assert edges[0] == edges[1]


@pytest.mark.parametrize(
    ("queries", "graph"),
    [
        ("all-range:32", "unbounded:32"),  # too few cells
        ("all-range:64", "threshold:64:8"),  # half of them would be few reaches
        ("identity:64", "unbounded:64"),
        ("all-range:8x8", "unbounded:8x8"),
        ("all-range:64", "cycle:64"),
    ],
)
def test_what_is_no_line_is_not_halved(queries, graph):
    assert coarse.line(asked(queries, graph)) is None


def test_queries_that_count_differently_are_not_halved():
    heavy = bf.workload.weighted(bf.workload.prefix(64), np.linspace(1, 2, 64))
    assert coarse.line(Problem(heavy, bf.policy.unbounded(64), Goal("largest"))) is None


@pytest.mark.parametrize(("queries", "graph"), [line[:2] for line in LINES])
def test_stretched_weights_are_weights_and_nothing_happens_where_nothing_is_stretched(queries, graph):
    shape = coarse.line(asked(queries, graph))
    half = coarse.intervals(coarse.halved(shape))
    rng = np.random.default_rng(0)
    for few, many in ((half.queries, shape.queries), (half.edges, shape.edges)):
        weights = rng.dirichlet(np.ones(few.length.size))
        stretched = coarse.stretched(weights, few, many, shape.reach)
        assert stretched.shape == many.length.shape
        assert stretched.min() > 0
        assert stretched.sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(coarse.stretched(weights, few, few, shape.reach), weights, rtol=1e-9, atol=1e-9)


def test_near_the_ends_of_a_local_policy_weights_keep_their_cells():
    shape = coarse.line(asked("prefix:64", "threshold:64:2"))
    half = coarse.intervals(coarse.halved(shape))
    weights = np.exp(-np.arange(32) / 4)
    stretched = coarse.stretched(weights / weights.sum(), half.queries, shape.queries, 2)
    np.testing.assert_allclose(stretched[1:10] / stretched[:9], np.exp(-1 / 4), rtol=1e-9)


@pytest.mark.parametrize(("queries", "graph"), [line[:2] for line in LINES[:3]])
def test_where_a_search_starts_is_not_what_it_finds(queries, graph):
    """From half as many cells and from equal weights: no bound of one is above a value of the other, and both end."""
    problem = asked(queries, graph)
    m, e = problem.workload.num_queries, problem.policy.num_edges
    equal = Weights(np.full(m, 1 / m), np.full(e, 1 / e))
    found = [search(largest.steps(problem, gap=2e-3, start=s), gap=2e-3) for s in (None, equal)]
    assert all(one.status == "converged" for one in found)
    assert max(one.bound for one in found) <= min(one.error for one in found) * (1 + 1e-9)


# The ascent


def climb(f, slopes, start, steps):
    """Maximise a function of weights with sum 1 from its scaled gradient; return the best value and the weights."""
    ascent = Secants(start, blocks=(slice(None),), lightest=(1e-30,))
    best, at = -np.inf, start
    for _ in range(steps):
        w = ascent.weights()
        if f(w) > best:
            best, at = f(w), w
        d = slopes(w)
        ascent.advance(w, d / (w @ d))
    return best, at


def test_the_ascent_finds_the_maximum_of_a_sum_of_roots():
    """Sum sqrt(a_i w_i) is largest, sqrt(sum a), at w = a / sum a, by the inequality of Cauchy and Schwarz."""
    a = np.array([1.0, 2.0, 5.0, 0.1])
    best, w = climb(lambda w: np.sqrt(a * w).sum(), lambda w: np.sqrt(a / w), np.full(4, 0.25), 12)
    assert best == pytest.approx(np.sqrt(a.sum()), rel=1e-9)
    np.testing.assert_allclose(w, a / a.sum(), rtol=1e-4)


def test_the_ascent_lets_weights_vanish_faster_than_plain_steps_do():
    """A mean b . w is largest where all weight is on the largest b; plain steps w <- w b take 700 to this gap."""
    b = np.array([1.0, 0.99, 0.98, 0.9])
    best, _ = climb(lambda w: b @ w, lambda w: b, np.full(4, 0.25), 60)
    assert 1 - best < 1e-5
    plain = 0.25 * b**60 / (0.25 * b**60).sum()
    assert 1 - b @ plain > 1e-3


# Rounding


@pytest.mark.parametrize(("queries", "graph"), [("all-range:6", "threshold:6:2"), ("prefix:6", "unbounded:6")])
def test_rounding_tells_the_value_of_the_matrix_that_it_returns_and_is_never_worse(queries, graph):
    problem = asked(queries, graph)
    kernel = largest.kernel_of(problem)
    rng = np.random.default_rng(3)
    W, P = goals.grounded(problem.workload.matrix.dense(), problem.policy.edges.tolist())
    boxes = TwoBoxes(kernel, gap=1e-2)
    lam, mu = (rng.dirichlet(np.ones(size)) for size in kernel.counts)
    for _ in range(9):
        found = kernel.at(lam, mu)
        made = boxes.rounded(found, lam, mu, found.root_sum**2)
        assert made.error <= found.v.max() * found.d.max()
        true = goals.variances(W, P, kernel.grounded(made.X)).max()
        assert made.error * kernel.scale == pytest.approx(true, rel=1e-9)
        lam, mu = lam * found.v / (lam @ found.v), mu * found.d / (mu @ found.d)


def test_a_rounded_matrix_is_better_than_every_one_that_was_not():
    problem = asked("all-range:16", "unbounded:16")
    kernel = largest.kernel_of(problem)
    found = [step.found for step in itertools.islice(largest._ascent(kernel, None), 12)]
    plain = [one.v.max() * one.d.max() * kernel.scale for one in found]
    rounded = list(itertools.islice(largest.steps(problem, gap=1e-3), 12))
    assert min(one.error for one in rounded) < min(plain)


# Steps


@pytest.mark.parametrize(
    ("queries", "graph", "steps"),
    [
        ("all-range:64", "unbounded:64", 9),
        ("all-range:64", "threshold:64:4", 28),
        ("prefix:64", "unbounded:64", 8),
        ("prefix:64", "threshold:64:4", 16),
        ("prefix:64", "bounded:64", 10),
    ],
)
def test_lines_of_64_cells_take_few_steps(queries, graph, steps):
    made = bf.fit(queries, graph, objective="largest")
    assert made.certified
    assert len(made.trace) <= steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "graph", "steps", "known"),
    [
        ("all-range:256", "unbounded:256", 9, 9.5536),
        ("all-range:256", "threshold:256:4", 22, 4.9515),
        ("all-range:256", "bounded:256", 20, 16.402),
        ("prefix:256", "unbounded:256", 8, 6.4150),
    ],
)
def test_lines_of_256_cells_take_few_steps(queries, graph, steps, known):
    made = bf.fit(queries, graph, objective="largest")
    assert made.certified
    assert len(made.trace) <= steps
    assert made.objective_bound <= known * (1 + 1e-3)
    assert made.objective_value >= known * (1 - 1e-3)
