"""Blocks that join attributes: certificate, exact noise, release and bundle against the definitions, written out."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf.certificate import certify, exact_sensitivity
from hdmm_bf.certificate.exact import GRID_BITS
from hdmm_bf.fit import loading
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.release.joined_noise import JoinedNoise, scales
from hdmm_bf.strategies.blocks import joined_block, noise_block
from hdmm_bf.strategies.laplace.joined import Joined, bumps, joined_axes
from hdmm_bf.strategies.records import JoinedBlock, NoiseSum

PARTS = policies.from_edges([0, 1, 3], [1, 2, 4], 5)
PROBLEMS = {
    "unbounded": ("all-range:4x3", policies.unbounded((4, 3)), (0, 1), 0),
    "bounded inside": ("all-range:3x4x2", policies.parse("product:empty:3,bounded:4,empty:2"), (0, 1), 1),
    "bounded, first and last": ("prefix:4x2x3", policies.parse("product:bounded:4,empty:2,empty:3"), (0, 2), 0),
    "components": ("all-range:5x3", policies.product(PARTS, policies.empty(3)), (0, 1), 0),
}


def seeded(name):
    return np.random.default_rng(sum(map(ord, name)))


def totals_of(problem, axes, hides):
    """The sums over components without BOTTOM of the hidden attribute, for every value of the other joined ones."""
    product = as_product(problem)
    shape = [product.sizes[i] for i in axes]
    n, edges = product.sizes[hides], product.edges[hides]
    labels = list(range(n))
    hidden = set()
    for u, v in edges.tolist() * n:
        if v < 0:
            hidden.add(labels[u])
        else:
            old, new = labels[v], labels[u]
            labels = [new if label == old else label for label in labels]
    hidden = {labels[u] for u, v in edges.tolist() if v < 0}
    place = axes.index(hides)
    others = [shape[k] for k in range(len(shape)) if k != place]
    rows = []
    for label in dict.fromkeys(label for label in labels if label not in hidden):
        for at in np.ndindex(*others):
            row = np.zeros(shape)
            for value in range(n):
                if labels[value] == label:
                    row[(*at[:place], value, *at[place:])] = 1.0
            rows.append(row.ravel())
    return np.array(rows).reshape(len(rows), math.prod(shape))


def random_block(name):
    """Any weights, rows and gains: privacy must not hang on their being good."""
    workload, policy, axes, hides = PROBLEMS[name]
    problem, rng = bf.problem(workload, policy), seeded(name)
    n = math.prod(as_product(problem).sizes[i] for i in axes)
    totals = len(totals_of(problem, axes, hides))
    weights, rows = rng.integers(1, 2**10, n), rng.integers(-(2**9), 2**9, (3, n))
    return problem, JoinedBlock(axes, hides, weights, rows, 10, rng.integers(-(2**12), 2**12, (n, 3 + totals)), 12)


def positions(problem, block):
    """For every cell its value among the joined attributes and its value among the others."""
    sizes = as_product(problem).sizes
    at = np.indices(sizes).reshape(len(sizes), -1)
    apart = [i for i in range(len(sizes)) if i not in block.axes]
    inside = np.ravel_multi_index(at[list(block.axes)], [sizes[i] for i in block.axes])
    outside = np.ravel_multi_index(at[apart], [sizes[i] for i in apart]) if apart else np.zeros_like(inside)
    return inside, outside


def moves(problem):
    """p_e for every edge of the whole policy, as lists of cells and signs."""
    for u, v in problem.policy.edges.tolist():
        yield [(u, 1)] + ([(v, -1)] if v >= 0 else [])


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_sensitivity_is_the_largest_loss_over_all_edges(name):
    """Quotes exact: `joined_sensitivity` is exact."""
    problem, block = random_block(name)
    inside, _ = positions(problem, block)
    T, largest = block.rows.astype(object), 0
    for move in moves(problem):
        shift = sum(sign * T[:, inside[cell]] for cell, sign in move)
        largest = max(largest, sum(int(block.weights[inside[cell]]) for cell, _ in move) + np.abs(shift).sum())
    found = exact_sensitivity(NoiseSum((), (), "by hand", (block,)), problem, "laplace")
    assert found == largest << (GRID_BITS - block.bits)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_move_of_the_noise_is_a_move_of_the_sum_whatever_the_gains(name):
    """Quotes JoinedBlock: y shifted by p and z by T p is N shifted by p, exactly."""
    problem, block = random_block(name)
    own, rng = JoinedNoise(as_product(problem), block), seeded(name)
    inside, outside = positions(problem, block)
    others = int(outside.max()) + 1
    y = rng.integers(-50, 50, (block.weights.size, others))
    z = rng.integers(-(2**14), 2**14, (len(block.rows), others))
    before = own.exact(y, z).ravel()
    for move in moves(problem):
        shifted_y, shifted_z, p = y.copy(), z.copy(), np.zeros(before.size, dtype=object)
        for cell, sign in move:
            shifted_y[inside[cell], outside[cell]] += sign
            shifted_z[:, outside[cell]] += sign * block.rows[:, inside[cell]]
            p[cell] += sign
        assert np.array_equal(own.exact(shifted_y, shifted_z).ravel() - before, p << own.places)


@pytest.mark.parametrize("name", PROBLEMS)
def test_exact_noise_is_the_formula_in_fractions_and_keeps_totals(name):
    problem, block = random_block(name)
    own, rng = JoinedNoise(as_product(problem), block), seeded(name)
    inside, outside = positions(problem, block)
    y = rng.integers(-9, 9, (block.weights.size, int(outside.max()) + 1))
    z = rng.integers(-(2**11), 2**11, (len(block.rows), y.shape[1]))
    S = totals_of(problem, block.axes, block.hides).astype(int).astype(object)
    unit, gain = Fraction(1, 2**block.bits), Fraction(1, 2**block.gain_bits)
    told = unit * (z.astype(object) - block.rows.astype(object) @ y.astype(object))
    if len(S):
        told = np.concatenate([told, -(S @ y.astype(object))])
    N = y.astype(object) + gain * (block.gains.astype(object) @ told)
    for row in S:
        N[int(np.flatnonzero(row)[0])] -= row @ N
    exact = own.exact(y, z).ravel()
    assert [Fraction(v, 2**own.places) for v in exact] == [N[i, o] for i, o in zip(inside, outside, strict=True)]
    np.testing.assert_allclose(own.approximate(y, z).ravel(), N[inside, outside].astype(float), rtol=1e-12, atol=1e-9)
    if len(S):
        assert not np.any(S @ N)


def covariance(problem, block, values, rows):
    """Of N over the cells, by its definition."""
    S = totals_of(problem, block.axes, block.hides)
    T, K = block.rows / 2.0**block.bits, block.gains / 2.0**block.gain_bits
    Q = np.eye(block.weights.size)
    for row in S:
        Q[np.flatnonzero(row)[0]] -= row
    F, H = Q @ (np.eye(len(Q)) - K @ np.vstack([T, S])), Q @ K[:, : len(T)]
    C = F @ np.diag(values) @ F.T + rows * H @ H.T
    inside, outside = positions(problem, block)
    return np.where(outside[:, None] == outside, C[np.ix_(inside, inside)], 0.0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_error_and_variances_are_those_of_the_noise_written_out(name):
    problem, block = random_block(name)
    made = NoiseSum((), (), "by hand", (block,))
    C = covariance(problem, block, (block.weights / 2.0**block.bits) ** -2, 1.0)
    W = problem.workload.matrix.dense()
    derived = certify(made, problem, noise="laplace", proof=None)
    assert derived.unit_error == pytest.approx(derived.sensitivity**2 * np.trace(W @ C @ W.T), rel=1e-9)
    own = JoinedNoise(as_product(problem), block)
    spread = own.unit_spread()
    found = np.concatenate([own.of_term(spread, term) for term in as_product(problem).terms])
    np.testing.assert_allclose(found, np.einsum("ij,jk,ik->i", W, C, W), rtol=1e-8, atol=1e-6)
    assert own.total(spread, as_product(problem).terms) == pytest.approx(found.sum(), rel=1e-9)
    boxes = bf.workload.parse(f"random-range:{problem.policy.domain}:20:seed=1")
    rows = boxes.matrix.dense()
    found = own.of_boxes(spread, boxes.matrix, np.arange(20))
    np.testing.assert_allclose(found, np.einsum("ij,jk,ik->i", rows, C, rows), rtol=1e-8, atol=1e-6)


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
    T = np.abs(block.rows).sum(axis=0)
    losses = [1 / Fraction(s) + Fraction(int(t)) / Fraction(found.rows) for s, t in zip(found.values, T, strict=True)]
    assert max(losses) <= Fraction(0.7)
    assert max(losses) > Fraction(0.7) * Fraction(999, 1000)


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


def test_public_totals_are_exact_where_regions_are_bounded():
    problem, _ = random_block("bounded inside")
    product = as_product(problem)
    rng = seeded("public")
    S = totals_of(problem, (0, 1), 1)
    from scipy.sparse import csr_array

    block = joined_block((0, 1), 1, rng.uniform(0.2, 0.5, 12), rng.uniform(0, 0.1, (4, 12)), csr_array(S))
    made = NoiseSum((), (), "by hand", (block,))
    fitted = dataclasses.replace(
        bf.fit(problem.workload, problem.policy, noise="laplace", max_steps=1),
        strategy=made,
        certificate=certify(made, problem, noise="laplace", proof=None),
    )
    counts = rng.poisson(6.0, product.sizes)
    out = bf.release(fitted, counts.ravel(), epsilon=1.0)
    np.testing.assert_allclose(out.estimate.reshape(product.sizes).sum(axis=1), counts.sum(axis=1), atol=1e-9)
    assert np.any(np.abs(out.estimate.reshape(product.sizes) - counts) > 0.01)


def test_gains_on_the_grid_cost_less_than_a_thousandth():
    problem = bf.problem("all-range:6x5", "unbounded:6x5")
    rng = seeded("gains")
    Theta = rng.uniform(0, 0.3, (4, 30))
    search = Joined(as_product(problem), 0, (0, 1))
    sketch = search.sketch(Theta)
    from scipy.sparse import csr_array

    block = joined_block(sketch.axes, 0, sketch.weights, sketch.rows, csr_array((0, 30)))
    derived = certify(NoiseSum((), (), "by hand", (block,)), problem, noise="laplace", proof=None)
    assert derived.unit_error == pytest.approx(search.error(Theta)[0], rel=1e-3)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_loss_of_the_search_is_that_of_least_squares_with_its_derivatives(name):
    problem, block = random_block(name)
    search = Joined(as_product(problem), block.hides, block.axes)
    n, rng = block.weights.size, seeded(name)
    Theta = rng.uniform(0, 0.5, (3, n))
    value, slope = search.error(Theta)
    ends = 1 if all(len(move) == 1 for move in moves(problem)) else 2
    c = 1 / (ends * (1 + Theta.sum(axis=0)))
    A = np.vstack([np.diag(c), Theta * c])
    Y = np.linalg.inv(A.T @ A)
    S = totals_of(problem, block.axes, block.hides)
    if len(S):
        Y = Y - Y @ S.T @ np.linalg.solve(S @ Y @ S.T, S @ Y)
    inside, outside = positions(problem, block)
    W = problem.workload.matrix.dense()
    C = np.where(outside[:, None] == outside, Y[np.ix_(inside, inside)], 0.0)
    assert value == pytest.approx(np.trace(W @ C @ W.T), rel=1e-9)
    direction, step = rng.normal(size=Theta.shape), 1e-5
    secant = (search.error(Theta + step * direction)[0] - search.error(Theta - step * direction)[0]) / (2 * step)
    assert np.vdot(slope, direction) == pytest.approx(secant, rel=1e-5)


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
    (one,), (other,) = fit.strategy.joined, again.strategy.joined
    for name in ("weights", "rows", "gains"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert (one.axes, one.hides, one.bits, one.gain_bits) == (other.axes, other.hides, other.bits, other.gain_bits)
    assert again.unit_error == fit.unit_error


CHANGES = {
    "weights of zero": lambda b: dataclasses.replace(b, weights=0 * b.weights),
    "negative weights": lambda b: dataclasses.replace(b, weights=-b.weights),
    "an attribute that is not there": lambda b: dataclasses.replace(b, axes=(0, 7)),
    "attributes in another order": lambda b: dataclasses.replace(b, axes=(1, 0)),
    "an attribute twice": lambda b: dataclasses.replace(b, axes=(0, 0)),
    "edges of another attribute": lambda b: dataclasses.replace(b, axes=(0,), hides=1),
    "too few weights": lambda b: dataclasses.replace(b, weights=b.weights[:-1]),
    "rows of another length": lambda b: dataclasses.replace(b, rows=b.rows[:, :-1]),
    "too few gains": lambda b: dataclasses.replace(b, gains=b.gains[:, :-1]),
    "too many binary places": lambda b: dataclasses.replace(b, bits=GRID_BITS + 1),
    "gains with too many binary places": lambda b: dataclasses.replace(b, gain_bits=53),
    "rows beyond 64 bits": lambda b: dataclasses.replace(b, rows=np.full_like(b.rows, 2**61)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_block_that_does_not_fit_is_refused(change):
    problem, block = random_block("bounded inside")
    made = NoiseSum((), (), "by hand", (CHANGES[change](block),))
    with pytest.raises(ValueError, match="does not fit the domain|must hide the edges"):
        certify(made, problem, noise="laplace", proof=None)


def test_moves_that_no_block_hides_are_refused():
    problem = bf.problem("all-range:3x4", "product:line:3,bounded:4")
    _, block = random_block("bounded inside")
    with pytest.raises(ValueError, match="hidden by no block"):
        exact_sensitivity(NoiseSum((), (), "by hand", (block,)), problem, "laplace")
    with pytest.raises(ValueError, match="must hide the edges of every attribute once"):
        certify(NoiseSum((), (), "by hand", (block,)), problem, noise="laplace", proof=None)
    own = noise_block([np.eye(3), np.eye(4)], np.ones((1, 1)))
    twice = NoiseSum((own,), ((0, 1),), "by hand", (block,))
    with pytest.raises(ValueError, match="must hide the edges of every attribute once"):
        certify(twice, problem, noise="laplace", proof=None)


def test_edges_that_change_several_attributes_are_not_for_joined_blocks():
    problem = bf.problem("all-range:4x3", "threshold:4x3:2")
    block = JoinedBlock(
        (0, 1),
        0,
        np.ones(12, dtype=np.int64),
        np.zeros((0, 12), dtype=np.int64),
        0,
        np.zeros((12, 3)).astype(np.int64),
        0,
    )
    other = JoinedBlock(
        (0, 1),
        1,
        np.ones(12, dtype=np.int64),
        np.zeros((0, 12), dtype=np.int64),
        0,
        np.zeros((12, 4)).astype(np.int64),
        0,
    )
    with pytest.raises(ValueError, match="change one attribute only"):
        exact_sensitivity(NoiseSum((), (), "by hand", (block, other)), problem, "laplace")


@pytest.mark.parametrize("name", PROBLEMS)
def test_rows_of_the_search_lose_at_most_one_and_stay_near_it_on_the_grid(name):
    """Quotes joined.steps: Every edge of the attribute loses at most 1.

    And joined_block: weights are on a coarser grid than rows, and none is zero, however light.
    """
    problem, block = random_block(name)
    search = Joined(as_product(problem), block.hides, block.axes)
    n, rng = block.weights.size, seeded(name)
    sketch = search.sketch(rng.uniform(0, 0.5, (3, n)))
    inside, _ = positions(problem, block)
    losses = [
        sum(sketch.weights[inside[cell]] for cell, _ in move)
        + np.abs(sum(sign * sketch.rows[:, inside[cell]] for cell, sign in move)).sum()
        for move in moves(problem)
    ]
    assert max(losses) <= 1 + 1e-12
    light = np.where(np.arange(n) == 0, 1e-9, sketch.weights)
    made = joined_block(
        block.axes, block.hides, light, sketch.rows, kept_totals(search.product, block.axes, block.hides)
    )
    assert made.weights.min() >= 1
    assert np.unique(made.weights).size <= 2**12
    assert np.all(made.weights % made.weights.min() == 0), "the lightest has one step of the grid"
    np.testing.assert_allclose(made.weights[1:] / 2.0**made.bits, light[1:], atol=2.0**-13)
    np.testing.assert_allclose(made.rows / 2.0**made.bits, sketch.rows, atol=2.0**-21)
