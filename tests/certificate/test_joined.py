"""Blocks that join attributes: their search, their grid and releases; `test_layers` has all that is exact."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate import certify
from hdmm_bf.fit import loading
from hdmm_bf.problem.product import as_product
from hdmm_bf.release import joined_noise
from hdmm_bf.release.joined_noise import JoinedNoise, scales
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch
from hdmm_bf.strategies.joined_blocks import joined_block
from hdmm_bf.strategies.laplace.joined import Joined, bumps, joined_axes
from hdmm_bf.strategies.records import Layer, NoiseSum
from tests.support.joined_blocks import components, fitted, moves, parts_of, random_block, seeded, written_out

SEARCHED = ["unbounded", "bounded inside", "bounded, first and last", "components", "hidden by another"]
"""Problems of one joined hidden attribute, and rows that keep all attributes outside: what the search is for."""


@pytest.fixture(scope="module")
def fit():
    made = bf.fit("all-range:16x14", "unbounded:16x14", noise="laplace", family="directions", max_steps=60)
    assert isinstance(made.strategy, NoiseSum)
    assert made.strategy.joined
    return made


def test_every_scale_is_enough_for_the_stated_epsilon(fit):
    """Quotes scales: never less noise than the sensitivity was derived for, in exact arithmetic."""
    (block,) = fit.strategy.joined
    plan = bf.plan(fit, epsilon=0.7)
    found = scales(block, plan)
    T = sum(np.abs(layer.rows).sum(axis=0) for layer in block.layers)
    losses = [1 / Fraction(s) + Fraction(int(t)) / Fraction(found.rows) for s, t in zip(found.values, T, strict=True)]
    assert max(losses) <= Fraction(0.7)
    assert max(losses) > Fraction(0.7) * Fraction(999, 1000)


@pytest.mark.parametrize("name", ["unbounded", "bounded outside", "unbounded outside", "three outside"])
def test_every_row_of_every_layer_is_drawn_at_its_scale(name, monkeypatch):
    """And no two numbers of noise are one and the same draw: in a release there are as many as the formula has."""
    problem, block = random_block(name)
    fit, written = fitted(problem, block), written_out(problem, block)
    plan, drawn = bf.plan(fit, epsilon=0.5), []
    unit = Fraction(plan.row_sampler.scale) * Fraction(2) ** (block.bits - plan.bits)

    def draw(sampler, wanted, callback):
        drawn.append(wanted)
        return np.zeros(wanted.shape, dtype=np.int64)

    monkeypatch.setattr(joined_noise, "draw_rows", draw)
    own = JoinedNoise(as_product(problem), block)
    y, z = own.draw(plan, None, 2)
    assert y.shape[-1] == 2
    assert [part.shape[0] for part in z] == [len(layer.rows) for layer in block.layers]
    assert drawn[0].size == 2 * len(written.weights)
    assert sum(part.size for part in drawn[1:]) == 2 * len(written.T)
    for scale, weight in zip(drawn[0].reshape(block.weights.size, -1), block.weights.tolist(), strict=True):
        assert all(unit <= Fraction(s) * weight <= unit * Fraction(1001, 1000) for s in scale.tolist())
    assert all(unit <= Fraction(s) <= unit * Fraction(1001, 1000) for part in drawn[1:] for s in part.ravel().tolist())


@pytest.mark.parametrize("name", ["unbounded", "unbounded outside"])
def test_releases_of_any_layers_state_the_variances_of_their_whole_numbers(name):
    """Quotes settled_spreads: the covariance of a release, here at so large an epsilon that whole numbers matter."""
    problem, block = random_block(name)
    block = dataclasses.replace(block, weights=2**9 + block.weights)
    fit = fitted(problem, block)
    plan = bf.plan(fit, epsilon=3.0)
    found = scales(block, plan)
    inside = written_out(problem, dataclasses.replace(block, weights=1 + np.arange(block.weights.size)))
    values = np.array([discrete(found.values[int(k) - 1]) for k in inside.weights])
    C = written_out(problem, block).covariance(values, discrete(found.rows) * 4.0**-block.bits)
    W = problem.workload.matrix.dense()
    wanted = np.einsum("ij,jk,ik->i", W, C, W)
    out = bf.release(fit, np.arange(W.shape[1]), epsilon=3.0)
    np.testing.assert_allclose(out.stddev**2, wanted, rtol=1e-9)
    assert plan.rmse**2 == pytest.approx(wanted.mean(), rel=1e-9)


def discrete(scale):
    """The variance of discrete Laplace noise: 2 q / (1 - q)^2 at q = exp(-1 / scale)."""
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


def test_releases_have_the_stated_error(fit):
    """Five standard errors; a prediction of half the error is far outside of them."""
    counts = seeded("counts").poisson(4.0, 224)
    truth = fit.problem.workload.matrix.mv(counts.astype(float))
    found = np.array([np.mean((bf.release(fit, counts, epsilon=1.0).answers - truth) ** 2) for _ in range(150)])
    spread, stated = found.std(ddof=1) / math.sqrt(found.size), bf.plan(fit, epsilon=1.0).rmse ** 2
    assert abs(found.mean() - stated) < 5 * spread
    assert abs(found.mean() - stated / 2) > 5 * spread
    out = bf.release(fit, counts, epsilon=1.0)
    assert np.mean(out.stddev**2) == pytest.approx(stated, rel=1e-9)


@pytest.mark.parametrize(
    "name", ["bounded inside", "two hidden", "two hidden in parts", "bounded outside", "three outside"]
)
def test_public_totals_are_exact_where_regions_are_bounded(name):
    """And what releases state is their error, to five standard errors; half of it is far outside of them."""
    problem, block = random_block(name)
    product, rng, n = as_product(problem), seeded("public"), block.weights.size
    layers = tuple((layer.keeps, rng.uniform(0, 0.1, (4, n))) for layer in block.layers)
    made = joined_block(product, JoinedSketch(block.axes, block.hides, rng.uniform(0.2, 0.5, n), layers))
    fit = fitted(problem, made)
    counts = rng.poisson(6.0, product.sizes).ravel()
    public = public_totals(product)
    assert len(public)
    out = bf.release(fit, counts, epsilon=1.0)
    np.testing.assert_allclose(public @ out.estimate, public @ counts, atol=1e-9)
    assert np.any(np.abs(out.estimate - counts) > 0.01)
    W = problem.workload.matrix.dense()
    errors = [np.mean((bf.release(fit, counts, epsilon=1.0).answers - W @ counts) ** 2) for _ in range(200)]
    stated, spread = bf.plan(fit, epsilon=1.0).rmse ** 2, np.std(errors, ddof=1) / math.sqrt(200)
    assert abs(np.mean(errors) - stated) < 5 * spread
    assert abs(np.mean(errors) - stated / 2) > 5 * spread


def public_totals(product):
    """Sums over products of components without BOTTOM, of all attributes."""
    found = np.ones((1, 1))
    for edges, n in zip(product.edges, product.sizes, strict=True):
        parts = components(edges.tolist(), n)
        found = np.kron(found, np.array([[float(v in part) for v in range(n)] for part in parts]).reshape(-1, n))
    return found


def test_gains_on_the_grid_cost_less_than_a_thousandth():
    problem = bf.problem("all-range:6x5", "unbounded:6x5")
    Theta = seeded("gains").uniform(0, 0.3, (4, 30))
    search = Joined(as_product(problem), 0, (0, 1))
    block = joined_block(search.product, search.sketch(Theta))
    derived = certify(NoiseSum((), (), "by hand", (block,)), problem, noise="laplace", proof=None)
    assert derived.unit_error == pytest.approx(search.error(Theta)[0], rel=1e-3)


@pytest.mark.parametrize("name", SEARCHED)
def test_the_loss_of_the_search_is_that_of_least_squares_with_its_derivatives(name):
    problem, block = random_block(name)
    (attribute,) = block.hides
    search = Joined(as_product(problem), attribute, block.axes)
    n, rng = block.weights.size, seeded(name)
    Theta = rng.uniform(0, 0.5, (3, n))
    value, slope = search.error(Theta)
    ends = 1 if all(abs(p).sum() == 1 for p in moves(problem, block.hides)) else 2
    c = 1 / (ends * (1 + Theta.sum(axis=0)))
    every = tuple(block.outside(len(search.product.sizes)))
    whole, grid = (
        dataclasses.replace(block, layers=(Layer(every, np.ones((1, n), dtype=np.int64), ()),), totals=()),
        2**30,
    )
    written = written_out(problem, dataclasses.replace(whole, weights=np.rint(c * grid).astype(np.int64)))
    T = written_out(problem, with_rows(whole, np.rint(Theta * c * grid).astype(np.int64))).T
    A = np.vstack([np.diag(written.weights.astype(float)), T.astype(float)]) / grid
    Y, S = np.linalg.inv(A.T @ A), written.S.astype(float)
    if len(S):
        Y = Y - Y @ S.T @ np.linalg.solve(S @ Y @ S.T, S @ Y)
    W = problem.workload.matrix.dense()
    assert value == pytest.approx(np.trace(W @ Y @ W.T), rel=1e-7)
    direction, step = rng.normal(size=Theta.shape), 1e-5
    secant = (search.error(Theta + step * direction)[0] - search.error(Theta - step * direction)[0]) / (2 * step)
    assert np.vdot(slope, direction) == pytest.approx(secant, rel=1e-5)


def with_rows(block, rows):
    """The same block with other rows in its one layer."""
    return dataclasses.replace(block, layers=(Layer(block.layers[0].keeps, rows, ()),))


@pytest.mark.parametrize(
    ("shape", "widths"), [((12, 9), (4.0, 3.0)), ((10, 4, 6), (2.5, 4.0, 3.0)), ((7, 5), (9.0, 9.0))]
)
def test_bumps_stand_on_every_value_and_overlap_their_neighbours_only(shape, widths):
    """A hat is at most 1 and two bumps wide along every attribute, so few of them reach a value."""
    found = bumps(shape, np.array(widths)).reshape(-1, *shape)
    assert np.all(found.sum(axis=0) > 0)
    assert found.max() <= 1
    for axis, (n, width) in enumerate(zip(shape, widths, strict=True)):
        own = n / max(1, round(n / width))
        others = tuple(k for k in range(1, len(shape) + 1) if k != axis + 1)
        reached = np.count_nonzero(found.max(axis=others) > 0, axis=1)
        assert reached.max() <= 2 * own + 1


def test_rows_over_several_attributes_beat_products_of_rows(fit):
    """On 16 x 14 cells no product of rows is better than identity on the cells."""
    assert fit.unit_error < 0.91 * min(error for name, error in fit.reached.items() if name != "directions")


def test_attributes_with_queries_that_hardly_overlap_are_not_joined():
    product = as_product(bf.problem("all-range:20x10x2", "product:line:20,bounded:10,empty:2"))
    assert joined_axes(product, 1) == (0, 1)
    assert joined_axes(as_product(bf.problem("identity:20x10", "product:line:20,bounded:10")), 1) == (1,)


def test_a_joined_block_is_saved_and_read_again(fit, tmp_path):
    fit.save(tmp_path / "a.bf")
    again = loading.load(tmp_path / "a.bf")
    assert [parts_of(block) for block in again.strategy.joined] == [parts_of(block) for block in fit.strategy.joined]
    assert again.unit_error == fit.unit_error


@pytest.mark.parametrize("name", SEARCHED)
def test_rows_of_the_search_lose_at_most_one_and_stay_near_it_on_the_grid(name):
    """Quotes joined.steps: Every edge of the attribute loses at most 1.

    And joined_block: weights are on a coarser grid than rows, and none is zero, however light.
    """
    problem, block = random_block(name)
    (attribute,) = block.hides
    search = Joined(as_product(problem), attribute, block.axes)
    n, rng = block.weights.size, seeded(name)
    sketch = search.sketch(rng.uniform(0, 0.5, (3, n)))
    ((keeps, rows),) = sketch.layers
    assert sketch.hides == block.hides
    assert keeps == block.outside(len(search.product.sizes))
    cells = written_out(problem, dataclasses.replace(block, weights=1 + np.arange(n))).weights - 1
    for p in moves(problem, block.hides):
        ends = [(int(cells[k]), int(p[k])) for k in np.flatnonzero(p)]
        shift = sum(sign * rows[:, value] for value, sign in ends)
        assert sum(sketch.weights[value] for value, _ in ends) + np.abs(shift).sum() <= 1 + 1e-12
    light = np.where(np.arange(n) == 0, 1e-9, sketch.weights)
    made = joined_block(search.product, sketch._replace(weights=light))
    assert made.weights.min() >= 1
    assert np.unique(made.weights).size <= 2**12
    assert np.all(made.weights % made.weights.min() == 0), "the lightest has one step of the grid"
    np.testing.assert_allclose(made.weights[1:] / 2.0**made.bits, light[1:], atol=2.0**-13)
    np.testing.assert_allclose(made.layers[0].rows / 2.0**made.bits, rows, atol=2.0**-21)
