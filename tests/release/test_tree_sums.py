"""Releases of sums of tree norms: draws against predictions, public totals, intervals, plans, refusals."""

import dataclasses
import math
import sys

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.fit.certified import certificate
from hdmm_bf.fit.fit import Fit
from hdmm_bf.problem.slots import all_values
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.tree_sum_noise import TreeSumSampler, sum_loss
from hdmm_bf.strategies.records import TreePart, TreeSum
from tests.support.tree_sums import spread_of, trees_of
from tests.support.trees import chain, norm

NONE = np.empty((0, 2), dtype=np.int64)
THREE = norm([3, 3, 3, -1], [3, 2, 3, 1])
FOUR = norm([4, 4, 5, 5, 6, 6, -1], [3, 3, 3, 3, 2, 2, 2])


def along(tree, axes, attribute, edges):
    return TreePart(tree, axes, attribute, edges)


LINE, COMPLETE = bf.policy.line, bf.policy.bounded
INSTANCES = {
    "a grid": ("product:line:4,line:3", [along(THREE, (1,), 0, LINE(4).edges), along(FOUR, (0,), 1, LINE(3).edges)]),
    "complete and public": (
        "product:bounded:4,line:3,empty:2",
        [along(THREE, (1,), 0, all_values(COMPLETE(4))), along(FOUR, (0,), 1, LINE(3).edges)],
    ),
    "a tree of its own": (
        "product:threshold:4:2,bounded:3",
        [
            along(chain(4, 0.25, 0.25), (0,), None, NONE),
            along(norm([-1] * 4, [2] * 4), (0,), 1, all_values(COMPLETE(3))),
        ],
    ),
    "presence hidden": (
        "product:unbounded:4,line:3",
        [along(THREE, (1,), 0, bf.policy.unbounded(4).edges), along(FOUR, (0,), 1, LINE(3).edges)],
    ),
}
WORKLOADS = {
    "ranges": bf.workload.all_range,
    "tables": lambda sizes: bf.workload.union(bf.workload.identity(sizes), bf.workload.marginals(sizes, 1)),
    "boxes": lambda sizes: bf.workload.random_range(sizes, 50, seed=2),
    "any matrix": lambda sizes: bf.workload.from_matrix(
        np.random.default_rng(1).normal(size=(7, math.prod(sizes))), domain=sizes
    ),
}


def on_one_grid(parts):
    bits = max(part.tree.bits for part in parts)
    moved = [(part, 2 ** (bits - part.tree.bits) * part.tree.integers) for part in parts]
    return tuple(
        dataclasses.replace(part, tree=dataclasses.replace(part.tree, integers=integers, bits=bits))
        for part, integers in moved
    )


def fitted(name, queries="ranges"):
    spec, parts = INSTANCES[name]
    policy = bf.policy.parse(spec)
    problem = Problem(WORKLOADS[queries](policy.domain.sizes), policy)
    strategy = TreeSum(on_one_grid(parts), policy.domain.sizes, "test")
    return Fit(
        problem=problem,
        strategy=strategy,
        certificate=certificate(strategy, problem, noise="norm", proof=None),
        proof=None,
        requested_gap=1e-3,
        seed=0,
        status="finished",
        seconds=0.0,
    )


def law(weights, parents, cells):
    """The covariance of the leaves of a small forest by summing a box of whole numbers; weights are rates."""
    reach = 36
    axis = np.arange(-reach, reach + 1)
    grids = np.meshgrid(*[axis] * cells, indexing="ij")
    sums = [*grids, *(np.zeros_like(grids[0]) for _ in range(len(parents) - cells))]
    density = np.zeros(grids[0].shape)
    for node, above in enumerate(parents):
        density = density - weights[node] * np.abs(sums[node])
        if above >= 0:
            sums[above] = sums[above] + sums[node]
    p = np.exp(density)
    p /= p.sum()
    return np.array([[float((p * a * b).sum()) for b in grids] for a in grids])


def test_variances_are_those_of_the_law_summed_up_by_hand():
    """A grid of 3 x 3 at epsilon 1: covariances of three slots from a box of 73^3, spread by fractions."""
    spec, line = "product:line:3,line:3", LINE(3).edges
    policy = bf.policy.parse(spec)
    problem = Problem(bf.workload.all_range((3, 3)), policy)
    strategy = TreeSum((along(THREE, (1,), 0, line), along(THREE, (0,), 1, line)), (3, 3), "test")
    fit = dataclasses.replace(fitted("a grid"), problem=problem, strategy=strategy)
    fit = dataclasses.replace(fit, certificate=certificate(strategy, problem, noise="norm", proof=None))
    settled = bf.plan(fit, epsilon=1.0)
    cells = np.zeros((9, 9))
    for part, tree, own in zip(strategy.parts, trees_of(strategy), settled.sampler.parts, strict=True):
        C = law(own.tree.rates, part.tree.parents.tolist(), 3)
        spread = np.array(spread_of(part, policy, (3, 3)), dtype=np.float64)
        whole = np.zeros((spread.shape[1],) * 2)
        for group in part.grouped((3, 3)).cells:
            whole[np.ix_(group, group)] = C
        cells += spread @ whole @ spread.T
        assert tree.num_cells == spread.shape[1]
    W = problem.workload.matrix.dense()
    expected = np.einsum("qi,ij,qj->q", W, cells, W)
    found = fit.recovery.variances(problem.workload, settled)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert settled.expected_error == pytest.approx(expected.sum(), rel=1e-6)


@pytest.mark.parametrize("queries", WORKLOADS)
@pytest.mark.parametrize("name", INSTANCES)
def test_draws_have_the_stated_variances(name, queries):
    """4000 draws: squares within five standard errors; 20 % less noise is noticed."""
    fit = fitted(name, queries)
    settled, count = bf.plan(fit, epsilon=1.0), 4000
    stated = fit.recovery.variances(fit.problem.workload, settled)
    errors = fit.recovery.error_draws(fit.problem.workload, settled, count)
    seen = stated > 0
    assert np.abs(errors[~seen]).max(initial=0.0) < 1e-9
    squares = errors[seen] ** 2
    off = squares.std(axis=1) / math.sqrt(count)
    assert np.abs((squares.mean(axis=1) - stated[seen]) / off).max() < 5
    assert np.abs((0.64 * squares.mean(axis=1) - stated[seen]) / off).max() > 5
    assert settled.expected_error == pytest.approx(stated.sum(), rel=1e-9)
    some = [2, 0, 5, 2]
    np.testing.assert_allclose(fit.per_query_stddev(epsilon=1.0, queries=some), np.sqrt(stated[some]), rtol=1e-12)


@pytest.mark.parametrize("name", INSTANCES)
def test_small_epsilon_tends_to_the_unit_error(name):
    fit = fitted(name)
    small = bf.plan(fit, epsilon=0.02)
    assert small.expected_error * 0.02**2 / 2 == pytest.approx(fit.unit_error, rel=2e-3)
    assert fit.unit_variances().sum() == pytest.approx(fit.unit_error, rel=1e-6)


def test_public_totals_and_public_answers_are_exact():
    fit = fitted("complete and public", "tables")
    x = np.random.default_rng(0).integers(0, 9, 24)
    out = bf.release(fit, x, epsilon=0.5)
    whole = 4 * out.estimate  # noise on every value of the first attribute, less a quarter of its total
    np.testing.assert_allclose(whole, np.rint(whole), atol=1e-9)
    assert out.totals.tolist() == x.reshape(12, 2).sum(axis=0).tolist()
    public = out.stddev == 0
    assert public.sum() == 2  # the marginal of the public attribute
    assert np.array_equal(out.answers[public], fit.problem.workload.matrix.mv(x.astype(float))[public])
    answers, stddev = out.answer(bf.workload.parse("marginals:4x3x2:0"))
    assert (answers.tolist(), stddev.tolist()) == ([x.sum()], [0.0])


def test_noise_on_a_grid_is_whole_and_keeps_the_number_of_records():
    fit = fitted("a grid")
    out = bf.release(fit, np.full((4, 3), 5), epsilon=0.5)
    assert np.array_equal(out.estimate, np.rint(out.estimate))
    assert out.estimate.sum() == 60


def test_intervals_cover_as_often_as_they_say():
    fit = fitted("presence hidden")
    out = bf.release(fit, np.zeros(12, dtype=int), epsilon=1.0)
    chosen = np.arange(0, fit.problem.workload.num_queries, 5)
    low, high = out.interval(0.9, chosen.tolist())
    draws = np.abs(fit.recovery.error_draws(fit.problem.workload, out.plan, 4000)[chosen])
    inside = (draws <= ((high - low) / 2)[:, None]).mean(axis=1)
    assert inside.min() > 0.9 - 5 * math.sqrt(0.09 / 4000)


def test_post_processing_weighs_cells_by_their_covariance():
    """The precision is the inverse of the covariance of the cells, from draws of the noise; totals are kept."""
    fit = fitted("a grid")
    settled, count = bf.plan(fit, epsilon=0.1), 20_000
    z = fit.recovery.error_draws(bf.workload.identity((4, 3)), settled, count)
    stated = np.linalg.inv(fit.recovery.precision()) * 2 / 0.1**2
    kept = fit.problem.grounding.kept
    drawn = np.cov(z[kept])
    off = np.sqrt((np.outer(np.diag(stated), np.diag(stated)) + stated**2) * 6 / count)  # tails heavier than normal
    assert (np.abs(drawn - stated) / off).max() < 5
    out = bf.release(fit, np.full(12, 2), epsilon=0.5).postprocess("nonnegative", "integers")
    assert out.estimate.min() >= 0
    assert round(out.estimate.sum()) == 24


def test_plans_are_for_one_strategy():
    fit, other = fitted("a grid"), fitted("presence hidden")
    settled = bf.plan(fit, epsilon=1.0)
    data = fit.recovery.read(np.zeros(12, dtype=int))
    first, second = settled.sampler.parts
    changed = dataclasses.replace
    for sampler in (
        bf.plan(other, epsilon=1.0).sampler,
        TreeSumSampler((first,), 1.0),
        TreeSumSampler((second, first), 1.0),
        TreeSumSampler((changed(first, along=None), second), 1.0),
        TreeSumSampler((changed(first, edges=np.array([[1, 0], [1, 2], [2, 3]])), second), 1.0),
        TreeSumSampler((changed(first, tree=changed(first.tree, axes=None)), second), 1.0),
        first.tree,
    ):
        with pytest.raises(InputError, match="noise of other trees"):
            fit.recovery.measure(data, changed(settled, sampler=sampler))


def test_a_plan_with_too_little_noise_is_refused():
    fit = fitted("a grid")
    settled = bf.plan(fit, epsilon=1.0)
    weak = bf.plan(fit, epsilon=1.01).sampler
    for sampler in (weak, TreeSumSampler((settled.sampler.parts[0], weak.parts[1]), 1.0)):
        less = dataclasses.replace(settled, sampler=sampler)
        with pytest.raises(InputError, match="less noise than its promise"):
            less.check_made_for(fit.certificate, settled.calibrated, settled.bits, fit.problem)


def test_a_move_that_no_part_hides_loses_everything():
    """Quotes tree_sum_noise: it is infinite where no part hides an attribute with edges."""
    fit = fitted("a grid")
    first, second = bf.plan(fit, epsilon=1.0).sampler.parts
    assert sum_loss(TreeSumSampler((first, second), 1.0), fit.problem.policy) <= 1.0
    for part in (first, second):
        assert math.isinf(sum_loss(TreeSumSampler((part,), 1.0), fit.problem.policy))


def test_promises_to_people_share_epsilon_among_their_records():
    fit = fitted("a tree of its own")
    one, three = bf.plan(fit, epsilon=1.0), bf.plan(fit, epsilon=3.0, per_person=3)
    for a, b in zip(one.sampler.parts, three.sampler.parts, strict=True):
        np.testing.assert_allclose(a.tree.ratios, b.tree.ratios, rtol=1e-12)


def test_what_a_sum_has_not_is_refused():
    fit = fitted("a grid")
    out = bf.release(fit, np.zeros(12, dtype=int), epsilon=1.0)
    with pytest.raises(InputError, match="is on another domain"):
        out.answer(bf.workload.parse("identity:11"))
    with pytest.raises(InputError, match="is not written out"):
        fit.reconstruction()
    with pytest.raises(InputError, match="is no one matrix"):
        fit.strategy.matrix()


def test_post_processing_of_many_cells_is_refused():
    fit = bf.fit("identity:60x40", "threshold:60x40:1", noise="norm", family="flows", max_steps=1)
    out = bf.release(fit, np.ones(2400, dtype=int), epsilon=1.0)
    with pytest.raises(InputError, match="up to 2048 of them, and there are 2400"):
        out.postprocess("nonnegative")


def test_noise_that_does_not_fit_in_64_bits_is_added_all_the_same():
    """Public components of many sizes in two attributes: a common denominator of 2^50 and more, at a small epsilon."""
    sizes = (16, 27, 25, 7, 11, 13)
    starts = np.cumsum((0, *sizes[:-1]))
    heads = np.concatenate([start + np.arange(size - 1) for start, size in zip(starts, sizes, strict=True)])
    own = bf.policy.from_edges(heads, heads + 1, sum(sizes))
    other = bf.policy.from_edges([0, 2, 3], [1, 3, 4], 5)
    policy = bf.policy.product(own, other)
    problem = Problem(bf.workload.identity(policy.domain.sizes), policy)
    parts = (
        along(norm([-1] * 5, [8] * 5), (1,), 0, all_values(own)),
        along(norm([-1] * 99, [8] * 99), (0,), 1, all_values(other)),
    )
    strategy = TreeSum(parts, policy.domain.sizes, "test")
    fit = dataclasses.replace(fitted("a grid"), problem=problem, strategy=strategy)
    fit = dataclasses.replace(fit, certificate=certificate(strategy, problem, noise="norm", proof=None))
    x = np.random.default_rng(0).integers(0, 99, 495)
    assert fit.recovery.denominator == math.lcm(16, 27, 25, 7, 11, 13, 2, 3)
    settled = bf.plan(fit, epsilon=1e-3)
    part = fit.recovery.parts[0]
    small = part.draw(settled.sampler.parts[0], 3)
    assert small.dtype == np.int64
    release_module = sys.modules["hdmm_bf.release.tree_sums"]
    kept = release_module._EXACT
    try:
        release_module._EXACT = 1  # all numbers count as too large: Python's own are used
        noise = fit.recovery.noise(settled, 2)
        assert noise.dtype == object
        out = bf.release(fit, x, epsilon=1e-3)
    finally:
        release_module._EXACT = kept
    assert out.totals.tolist() == problem.grounding.totals(x).tolist()
    assert np.all(np.isfinite(out.answers))
