"""Rows in several tables, and rows that take in the moves of another attribute: losses and errors by definition."""

import itertools

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf.certificate import certify
from hdmm_bf.problem.product import as_product
from hdmm_bf.strategies import registry
from hdmm_bf.strategies.joined_blocks import joined_block
from hdmm_bf.strategies.laplace import layers, sharing, tables, unions
from hdmm_bf.strategies.laplace.directions import Candidates
from hdmm_bf.strategies.laplace.joined import Joined
from hdmm_bf.strategies.records import NoiseSum
from tests.support.joined_blocks import fitted, loss, moves, written_out

CUSTOM = policies.from_edges([0, 1, 1, 3], [1, 2, 3, 4], 5)
PROBLEMS = {
    "line, bounded, public": ("marginals:4x3x2:2", policies.parse("product:line:4,bounded:3,empty:2")),
    "ordinary privacy": ("marginals:4x3x2:2", policies.unbounded((4, 3, 2))),
    "a tree, and one that comes and goes": ("marginals:5x3:1", policies.product(CUSTOM, policies.unbounded(3))),
    "complete attributes": ("marginals:3x4x2:2", policies.parse("sensitive:3x4x2:0,1")),
    "a threshold": ("marginals:6x3:1", policies.product(policies.parse("threshold:6:2"), policies.bounded(3))),
    "a spine of values by themselves": ("marginals:3x2x2:2", policies.parse("product:empty:3,bounded:2,empty:2")),
    "ranges beside tables": (
        bf.workload.union(bf.workload.parse("all-range:8x3"), bf.workload.parse("marginals:8x3:1")),
        policies.parse("product:line:8,bounded:3"),
    ),
}
SEARCHED = ("line, bounded, public", "ranges beside tables", "ordinary privacy")


def problem_of(name):
    return bf.problem(*PROBLEMS[name])


def least_squares(problem, weights, T, S):
    """The sum of all variances of least squares on cells, rows and exact totals, written out."""
    C = np.linalg.inv(np.diag(weights**2) + T.T @ T)
    if len(S):
        C = C - C @ S.T @ np.linalg.solve(S @ C @ S.T, S @ C)
    W = problem.workload.matrix.dense()
    return float(np.trace(W @ C @ W.T))


def in_floats(written):
    unit = 2.0**-written.bits
    return written.weights.astype(float) * unit, written.T.astype(float) * unit, written.S.astype(float)


def check(problem, sketch, error):
    """The loss of a sketch is 1, its error that of least squares, and so it is certified but for the grid."""
    block = joined_block(as_product(problem), sketch)
    written = written_out(problem, block)
    lost = loss(written, list(moves(problem, sketch.hides))) / 2.0**block.bits
    assert lost <= 1 + 2.0**-11 * (2 + len(written.T)), "the grid is all that the loss may exceed 1 by"
    weights, T, S = in_floats(written)
    assert least_squares(problem, weights, T, S) == pytest.approx(error, rel=5e-3)
    return block


@pytest.mark.parametrize("name", PROBLEMS)
def test_layers_lose_at_most_one_and_have_the_error_of_least_squares(name):
    """Quotes steps: every edge of the policy loses at most 1, and the error is that of least squares."""
    problem = problem_of(name)
    product = as_product(problem)
    for draft in itertools.islice(layers.steps(product, seed=3), 2):
        (sketch,) = draft.sketches
        assert sketch.hides == tuple(i for i, edges in enumerate(product.edges) if len(edges))
        block = check(problem, sketch, draft.error)
        derived = certify(NoiseSum((), (), "layers", (block,)), problem, noise="laplace", proof=None)
        assert derived.unit_error == pytest.approx(draft.error, rel=5e-3)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_loss_of_the_search_has_the_slope_that_it_states(name):
    product = as_product(problem_of(name))
    for spine in layers.spines(product):
        search, rng = layers.Layers(product, spine, bump=3), np.random.default_rng(1)
        roots = search.start(rng)
        direction, step = rng.normal(size=roots.size), 1e-6
        _, slope = search.value_and_slope(roots, 30.0, 1e-2)
        ends = [search.value_and_slope(roots + sign * step * direction, 30.0, 1e-2)[0] for sign in (1, -1)]
        assert slope @ direction == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", SEARCHED)
def test_tables_written_out_are_the_layers(name):
    problem = problem_of(name)
    product = as_product(problem)
    *_, draft = itertools.islice(layers.steps(product, seed=3), 12)  # as many as `tables` takes at a time
    rows = tables.written_out(product, draft.sketches[0])
    P = np.array(list(moves(problem, range(len(product.sizes)))), dtype=float).T
    largest = np.abs(rows @ P).sum(axis=0).max()
    assert 1 - 1e-6 < largest <= 1 + 1e-12
    made = next(tables.steps(problem, seed=3))
    assert made.error == pytest.approx(draft.error, rel=1e-5)


def test_marginals_share_what_they_tell():
    """Each table by itself has 48152, and the cells by themselves 118792; the proven bound is 14206."""
    problem = bf.problem("marginals:100x50x2:2", "product:line:100,bounded:50,empty:2")
    product = as_product(problem)
    best = min(itertools.islice(layers.steps(product, seed=0), 12), key=lambda draft: draft.error)
    apart = unions.first(product)
    assert apart.error == pytest.approx(48151.9, rel=1e-4)
    assert best.error < 46200


def test_small_tables_are_measured_together_where_matrices_are_written_out():
    """Identity on the cells, where dense searches ended before, has 1304."""
    fit = bf.fit(
        "marginals:10x6x2:2", "product:line:10,bounded:6,empty:2", noise="laplace", family="tables", max_steps=3
    )
    assert fit.unit_error < 950


def test_layers_are_refused_where_nothing_can_be_the_spine():
    with pytest.raises(ValueError, match="needs an attribute of at most"):
        bf.fit("all-range:600x600", "product:line:600,line:600", noise="laplace", family="layers")
    with pytest.raises(ValueError, match="needs a product policy"):
        bf.fit("all-range:3x3", "threshold:3x3:2", noise="laplace", family="tables")
    family = registry.family("laplace", "layers")
    assert not family.applies(as_product(bf.problem("marginals:600x600:1", "product:line:600,line:600")))


# ---------------------------------------------------------------- rows that take in the moves of another attribute

SHARED = {
    "line and bounded": ("all-range:5x4x2", "product:line:5,bounded:4,empty:2", 1),
    "bounded and line": ("all-range:4x5", "product:bounded:4,line:5", 0),
    "two bounded": ("all-range:4x3", "product:bounded:4,bounded:3", 0),
    "an attribute between": ("all-range:4x3x4", "product:line:4,empty:3,bounded:4", 2),
    "another first": ("all-range:3x4x4", "product:empty:3,line:4,bounded:4", 2),
    "comes and goes": ("all-range:5x4", "product:unbounded:5,bounded:4", 1),
}


@pytest.mark.parametrize("height", [0.5, 5.0, 1e6], ids=["even", "high", "weights below the grid"])
@pytest.mark.parametrize("name", SHARED)
def test_moves_that_are_taken_in_lose_at_most_one(name, height):
    """Quotes with_another: Every edge of both attributes loses at most 1; and the error is that of least squares."""
    workload, policy, attribute = SHARED[name]
    problem = bf.problem(workload, policy)
    product = as_product(problem)
    axes = tuple(i for i, n in enumerate(product.sizes) if n > 2)
    search = Joined(product, attribute, axes)
    n = int(np.prod([product.sizes[i] for i in axes]))
    alone = search.sketch(np.vstack([np.full(n, height), height * np.random.default_rng(2).random(n)]))
    found = list(sharing.with_another(search, alone))
    assert found or height > 1
    for sketch, error in found:
        assert set(alone.hides) < set(sketch.hides)
        block = joined_block(product, sketch)
        written = written_out(problem, block)
        weights, T, S = in_floats(written)
        lost = loss(written, list(moves(problem, sketch.hides))) / 2.0**block.bits
        assert lost <= 1 + 2.0**-11 * (2 + len(T))
        assert least_squares(problem, weights, T, S) == pytest.approx(error, rel=5e-3)


def test_totals_that_come_and_go_tell_nothing():
    """Who leaves changes the totals as well, so rows on them would lose more than is left."""
    search = Joined(as_product(bf.problem("all-range:4x5", "product:unbounded:4,line:5")), 0, (0, 1))
    assert list(sharing.with_another(search, search.sketch(np.full((1, 20), 5.0)))) == []


@pytest.mark.parametrize("first", ["bounded", "unbounded"])
def test_joined_rows_are_never_worse_than_known_mechanisms(first):
    """Cells whose noise is a million times that of the answers once made an error below zero."""
    fit = bf.fit("all-range:12x12", f"product:{first}:12,line:12", noise="laplace", family="directions", max_steps=40)
    assert 0 < fit.unit_error <= (1 + 2e-3) * min(fit.reached.values())


def test_the_cheapest_blocks_hide_every_attribute_once():
    product = as_product(bf.problem("all-range:12x10x2", "product:line:12,bounded:10,empty:2"))
    candidates = Candidates(product)
    before = candidates.best()
    search = Joined(product, 1, (0, 1))
    alone = search.sketch(np.full((1, 120), 0.5))
    for sketch, error in sharing.with_another(search, alone):
        candidates.offer(1, sketch, error)
    assert [sketch.hides for sketch in before.sketches] == [(0,), (1,)]
    shared = candidates.joined[0, 1]
    candidates.joined[0, 1] = shared[0], 0.5 * before.error
    best = candidates.best()
    assert [sketch.hides for sketch in best.sketches] == [(0, 1)]
    assert candidates.is_taken_in(0)
    assert not candidates.is_taken_in(1)
    candidates.joined[0, 1] = shared[0], 2 * before.error
    assert candidates.best().error == before.error


def test_blocks_that_take_moves_in_are_released_with_the_stated_error():
    """Five standard errors; a prediction of half the error is far outside of them. Public totals are kept."""
    problem = bf.problem("all-range:8x6x2", "product:line:8,bounded:6,empty:2")
    search = Joined(as_product(problem), 1, (0, 1))
    ((sketch, _),) = sharing.with_another(search, search.sketch(np.full((1, 48), 0.5)))
    fit = fitted(problem, joined_block(as_product(problem), sketch))
    counts = np.random.default_rng(4).poisson(5.0, 96)
    truth = fit.problem.workload.matrix.mv(counts.astype(float))
    found = np.array([np.mean((bf.release(fit, counts, epsilon=1.0).answers - truth) ** 2) for _ in range(150)])
    spread, stated = found.std(ddof=1) / np.sqrt(found.size), bf.plan(fit, epsilon=1.0).rmse ** 2
    assert abs(found.mean() - stated) < 5 * spread
    assert abs(found.mean() - stated / 2) > 5 * spread
    totals = bf.release(fit, counts, epsilon=1.0).estimate.reshape(48, 2).sum(axis=0)
    np.testing.assert_allclose(totals, counts.reshape(48, 2).sum(axis=0), atol=1e-9)
