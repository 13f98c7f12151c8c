"""Releases of tree norms within public groups: variances, draws, intervals, public totals, refusals."""

import dataclasses
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.fit.certified import certificate
from hdmm_bf.fit.fit import Fit
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.plan import plan
from hdmm_bf.release.tree_noise import TreeSampler
from hdmm_bf.strategies.records import GroupedTree
from tests.support.groups import cells_of_groups, written_out
from tests.support.trees import binary, chain, star

INSTANCES = {
    "a chain": (chain(8, 0.2, 0.1), "product:threshold:8:2,empty:4,empty:2", (0,)),
    "hidden presence": (binary(8, 0.25), "product:empty:3,unbounded:8,empty:2", (1,)),
    "two attributes": (star(12, 0.5), "product:bounded:3,empty:5,bounded:4", (0, 2)),
}
WORKLOADS = {
    "ranges": bf.workload.all_range,
    "tables": lambda sizes: bf.workload.union(bf.workload.identity(sizes), bf.workload.marginals(sizes, 1)),
    "boxes": lambda sizes: bf.workload.random_range(sizes, 200, seed=2),
    "boxes and tables": lambda sizes: bf.workload.union(
        bf.workload.random_range(sizes, 20, seed=2), bf.workload.marginals(sizes, 2)
    ),
    "any matrix": lambda sizes: bf.workload.from_matrix(
        np.random.default_rng(1).normal(size=(7, math.prod(sizes))), domain=sizes
    ),
}


def made(strategy, problem):
    derived = certificate(strategy, problem, noise="norm", proof=None)
    return Fit(
        problem=problem,
        strategy=strategy,
        certificate=derived,
        proof=None,
        requested_gap=1e-3,
        seed=0,
        status="finished",
        seconds=0.0,
    )


def by_groups(name, queries="ranges"):
    tree, spec, axes = INSTANCES[name]
    policy = bf.policy.parse(spec)
    problem = Problem(WORKLOADS[queries](policy.domain.sizes), policy)
    return made(GroupedTree(tree, axes, policy.domain.sizes), problem)


def over_all_cells(fit):
    return made(written_out(fit.strategy), fit.problem)


@pytest.mark.parametrize("queries", WORKLOADS)
@pytest.mark.parametrize("name", INSTANCES)
def test_predictions_are_those_of_one_tree_a_group(name, queries):
    fit = by_groups(name, queries)
    dense = over_all_cells(fit)
    assert fit.worst_variance == pytest.approx(dense.unit_variances().max(), rel=1e-9)
    np.testing.assert_allclose(fit.unit_variances(), dense.unit_variances(), rtol=1e-9, atol=1e-12)
    for epsilon in (0.3, 2.0):
        found, expected = fit.per_query_stddev(epsilon=epsilon), dense.per_query_stddev(epsilon=epsilon)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * expected.max())
        assert fit.rmse(epsilon=epsilon) == pytest.approx(dense.rmse(epsilon=epsilon), rel=1e-8)
        chosen = [3, 0, 5, 3]
        np.testing.assert_allclose(fit.per_query_stddev(epsilon=epsilon, queries=chosen), found[chosen], rtol=1e-12)


@pytest.mark.parametrize("name", INSTANCES)
def test_noise_on_the_cells_has_the_stated_variances_and_groups_are_independent(name):
    """6000 draws: squares within five standard errors; products of cells of two groups too; 10 % less is noticed."""
    fit = by_groups(name, "tables")
    settled, count = bf.plan(fit, epsilon=1.0), 6000
    z = fit.recovery.error_draws(bf.workload.identity(fit.problem.policy.domain.sizes), settled, count)
    stated = fit.recovery.variances(bf.workload.identity(fit.problem.policy.domain.sizes), settled)
    errors = (z**2).std(axis=1) / math.sqrt(count)
    assert np.abs(((z**2).mean(axis=1) - stated) / errors).max() < 5
    assert np.abs((0.81 * (z**2).mean(axis=1) - stated) / errors).max() > 5
    first, second, *_ = cells_of_groups(fit.strategy.sizes, fit.strategy.axes)
    products = z[first] * z[second]
    assert np.abs(products.mean(axis=1) / (products.std(axis=1) / math.sqrt(count))).max() < 5
    within = z[first[0]] * z[first[1]]
    assert abs(within.mean() / (within.std() / math.sqrt(count))) > 5  # the control: within a group they are not
    asked = fit.recovery.error_draws(fit.problem.workload, settled, count)
    total = (asked**2).sum(axis=0)
    assert abs(total.mean() - settled.expected_error) < 5 * total.std() / math.sqrt(count)


def test_public_totals_and_public_answers_are_exact_and_counts_are_whole():
    fit = by_groups("a chain", "tables")
    x = np.random.default_rng(0).integers(0, 9, fit.problem.policy.num_cells)
    out = bf.release(fit, x, epsilon=0.5)
    assert np.array_equal(out.estimate, np.rint(out.estimate))
    for cells in cells_of_groups(fit.strategy.sizes, fit.strategy.axes):
        assert out.estimate[cells].sum() == x[cells].sum()
    assert sorted(out.totals.tolist()) == sorted(
        x[cells].sum() for cells in cells_of_groups(fit.strategy.sizes, fit.strategy.axes)
    )
    exact = fit.problem.workload.matrix.mv(x.astype(float))
    public = out.stddev == 0
    assert public.sum() == 6  # the 1-way marginals of both public attributes
    assert np.array_equal(out.answers[public], exact[public])
    assert np.all(out.answers[~public] != exact[~public]) or np.any(out.answers[~public] != exact[~public])
    answers, stddev = out.answer(bf.workload.parse("marginals:8x4x2:0"))
    assert (answers.tolist(), stddev.tolist()) == ([x.sum()], [0.0])


def test_intervals_cover_as_often_as_they_say():
    fit = by_groups("hidden presence")
    out = bf.release(fit, np.zeros(48, dtype=int), epsilon=1.0)
    chosen = np.arange(0, fit.problem.workload.num_queries, 25)
    low, high = out.interval(0.9, chosen.tolist())
    draws = np.abs(fit.recovery.error_draws(fit.problem.workload, out.plan, 4000)[chosen])
    inside = (draws <= ((high - low) / 2)[:, None]).mean(axis=1)
    assert inside.min() > 0.9 - 5 * math.sqrt(0.09 / 4000)
    assert out.interval_method() == "simulated"
    low, high = out.interval(0.9, chosen.tolist(), simultaneous=True)
    together = (draws <= ((high - low) / 2)[:, None]).all(axis=0).mean()
    assert together > 0.9 - 5 * math.sqrt(0.09 / 4000)


def test_intervals_of_few_queries_are_drawn_from_their_rows_alone():
    fit = by_groups("a chain", "boxes")
    out = bf.release(fit, np.ones(64, dtype=int), epsilon=1.0)
    few, every = out.interval(0.9, [3, 7]), out.interval(0.9)
    assert np.abs((few.high - few.low) - (every.high - every.low)[[3, 7]]).max() <= 4  # other draws
    assert out.interval(0.9, []).low.size == 0


def test_levels_too_high_for_the_draws_have_chebyshevs_intervals():
    fit = by_groups("a chain", "boxes")
    out = bf.release(fit, np.ones(64, dtype=int), epsilon=1.0)
    low, high = out.interval(0.99999, [3])
    assert (high - low)[0] / 2 == pytest.approx(out.stddev[3] / math.sqrt(1e-5), rel=1e-9)


def test_post_processing_keeps_totals_and_is_never_further_off_than_the_noise():
    fit = by_groups("a chain", "tables")
    x = np.random.default_rng(0).integers(0, 3, fit.problem.policy.num_cells)
    out = bf.release(fit, x, epsilon=0.5)
    processed = out.postprocess("nonnegative", "integers")
    assert processed.estimate.min() >= 0
    for cells in cells_of_groups(fit.strategy.sizes, fit.strategy.axes):
        assert round(processed.estimate[cells].sum()) == x[cells].sum()


def test_records_and_histograms_of_any_shape_are_read():
    fit = by_groups("two attributes", "tables")
    x = np.random.default_rng(0).integers(0, 3, (3, 5, 4))
    rows = np.argwhere(x > 0).repeat(x[x > 0], axis=0)
    records = bf.Records(rows, fit.problem.policy.domain)
    settled = bf.plan(fit, epsilon=1.0)
    for data in (x, x.ravel(), records):
        read = fit.recovery.read(data)
        assert np.array_equal(fit.recovery.measure(read, settled), x.ravel())


def test_noise_of_another_tree_or_of_other_groups_is_refused():
    fit, other = by_groups("a chain"), by_groups("hidden presence")
    settled = bf.plan(fit, epsilon=1.0)
    data = fit.recovery.read(np.zeros(64, dtype=int))
    for sampler in (
        bf.plan(other, epsilon=1.0).sampler,
        dataclasses.replace(settled.sampler, axes=None),
        dataclasses.replace(settled.sampler, axes=(1,)),
        dataclasses.replace(settled.sampler, fixed=np.empty(0, dtype=np.int64)),
    ):
        with pytest.raises(InputError, match="noise of another tree"):
            fit.recovery.measure(data, dataclasses.replace(settled, sampler=sampler))
    dense = over_all_cells(fit)
    whole = plan(dense, epsilon=1.0)
    with_axes = dataclasses.replace(whole, sampler=dataclasses.replace(whole.sampler, axes=(0,)))
    with pytest.raises(InputError, match="noise of another tree"):
        dense.recovery.measure(np.zeros(64, dtype=np.int64), with_axes)


def test_a_plan_with_too_little_noise_is_refused():
    fit = by_groups("a chain")
    settled = bf.plan(fit, epsilon=1.0)
    weak = dataclasses.replace(settled, sampler=bf.plan(fit, epsilon=1.01).sampler)
    with pytest.raises(InputError, match="less noise than its promise"):
        weak.check_made_for(fit.certificate, settled.calibrated, settled.bits, fit.problem)
    assert isinstance(settled.sampler, TreeSampler)


def test_promises_to_people_share_epsilon_among_their_records():
    fit = by_groups("a chain")
    one, three = bf.plan(fit, epsilon=1.0), bf.plan(fit, epsilon=3.0, per_person=3)
    np.testing.assert_allclose(one.sampler.ratios, three.sampler.ratios, rtol=1e-12)


def test_other_domains_and_written_out_reconstructions_are_refused():
    fit = by_groups("a chain")
    out = bf.release(fit, np.zeros(64, dtype=int), epsilon=1.0)
    with pytest.raises(InputError, match="is on another domain"):
        out.answer(bf.workload.parse("identity:63"))
    with pytest.raises(InputError, match="is not written out"):
        fit.reconstruction()
