"""Sums of noise by factors: certificate, release and bundle against the definitions, on domains written out."""

import dataclasses
import itertools
import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf.certificate import certify, exact_sensitivity
from hdmm_bf.fit import loading
from hdmm_bf.problem.product import as_product, incidence
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import noise_sums
from hdmm_bf.release.exact import GRID_BITS
from hdmm_bf.release.noise_sums import ExactNoise, enclosed_factors, enclosed_noise
from hdmm_bf.release.row_noise import row_scales
from hdmm_bf.release.whole_numbers import along, enclosed_inverse, from_limbs, limbs
from hdmm_bf.strategies.blocks import noise_block, noise_from_integers
from hdmm_bf.strategies.records import NoiseSum

RNG = np.random.default_rng(5)


def incidence_columns(problem):
    """p_e for every edge of the whole policy, one a column."""
    n = problem.policy.num_cells
    P = np.zeros((n + 1, problem.policy.num_edges))
    for k, (u, v) in enumerate(problem.policy.edges.tolist()):
        P[u, k] += 1
        P[v, k] -= 1  # BOTTOM is -1: the last row
    return P[:n]


def kinds(problem):
    """The attribute along which every edge of the whole policy moves a record."""
    sizes = problem.policy.domain.sizes
    found = []
    for u, v in problem.policy.edges.tolist():
        a, b = np.unravel_index(u, sizes), np.unravel_index(v, sizes)
        found.append([i for i in range(len(sizes)) if a[i] != b[i]])
    assert all(len(own) == 1 for own in found)
    return [own[0] for own in found]


def written_out(fit):
    """For every block: what its noise does to the cells (n x r) and its rows over the edges that it hides (r x e)."""
    product, found = as_product(fit.problem), []
    for block in fit.strategy.blocks:
        G = reduce(np.kron, block.inverses)
        rows = [block.factor(i) for i in range(len(block.integers))]
        if block.edges is not None:  # S P^+ moves as S does along every edge that S^+ S keeps: compare by edges
            rows[block.edges] = block.factor(block.edges)
        found.append((G, rows, np.sqrt(block.full_precisions.ravel()), block.edges))
    return product, found


def moves_of(product, rows, over, attribute):
    """The rows' moves along all edges of an attribute, edges first as the policy numbers them within the product."""
    parts = [R if i != attribute else None for i, R in enumerate(rows)]
    P = incidence(product, attribute).sparse().toarray()
    own = rows[attribute] if over == attribute else rows[attribute] @ P
    return reduce(np.kron, [own if part is None else part for part in parts]), reduce(
        np.kron, [P if i == attribute else np.eye(n) for i, n in enumerate(product.sizes)]
    )


PARTS = policies.from_edges([0, 3], [1, 4], 5)
CASES = {
    "line, bounded, public": ("all-range:4x5x2", "product:line:4,bounded:5,empty:2", "directions"),
    "grid": ("all-range:5x4", "threshold:5x4:1", "directions"),
    "cells": ("identity:4x3", "sensitive:4x3:0,1", "kronecker"),
    "triangles": ("all-range:3x4", "product:bounded:3,line:4", "directions"),
    "cycle": ("prefix:3x4", "product:line:3,cycle:4", "directions"),
    "components": ("all-range:5x3", policies.product(PARTS, policies.bounded(3)), "directions"),
}


@pytest.fixture(scope="module", params=CASES)
def fit(request):
    workload, policy, family = CASES[request.param]
    made = bf.fit(workload, policy, noise="laplace", family=family, max_steps=3)
    assert isinstance(made.strategy, NoiseSum)
    return made


def test_every_move_is_taken_up_by_the_noise_of_one_block_at_the_stated_loss(fit):
    """Quotes certify: every edge is hidden by exactly one block; the sensitivity is the largest, rounded up."""
    product, blocks = written_out(fit)
    seen, largest = set(), 0.0
    for (G, rows, weights, over), hides in zip(blocks, fit.strategy.hides, strict=True):
        noisy = np.isfinite(weights)
        for attribute in hides:
            shifts, columns = moves_of(product, rows, over, attribute)
            assert not np.any(shifts[~noisy]), "rows without noise are seen by no edge"
            np.testing.assert_allclose(G[:, noisy] @ shifts[noisy], columns, atol=1e-9)
            largest = max(largest, (weights[noisy, None] * np.abs(shifts[noisy])).sum(axis=0).max())
            seen |= {attribute}
    assert seen == set(kinds(fit.problem))
    assert fit.certificate.sensitivity == pytest.approx(largest, rel=2e-9)
    assert fit.certificate.sensitivity >= largest


def covariance(fit):
    """Of the published cells at unit noise: the sum over blocks, then totals of components known by least squares."""
    _, blocks = written_out(fit)
    total = 0.0
    for G, _, weights, _ in blocks:
        noisy = np.isfinite(weights)
        total = total + (G[:, noisy] / weights[noisy]) @ (G[:, noisy] / weights[noisy]).T
    labels = fit.problem.policy.components.labels[: fit.problem.policy.num_cells]
    C = (labels == np.unique(labels)[:, None]).astype(float)
    return total - total @ C.T @ np.linalg.pinv(C @ total @ C.T, rcond=1e-9, hermitian=True) @ C @ total


def test_the_unit_error_is_that_of_the_sum_with_public_totals(fit):
    W = fit.problem.workload.matrix.dense()
    expected = fit.certificate.sensitivity**2 * np.trace(W @ covariance(fit) @ W.T)
    assert fit.unit_error == pytest.approx(expected, rel=1e-7)
    variances = fit.recovery.unit_variances()
    np.testing.assert_allclose(variances, np.diag(W @ covariance(fit) @ W.T), rtol=1e-6, atol=1e-9)
    boxes = bf.workload.parse(f"random-range:{fit.problem.policy.domain}:20:seed=1")
    plan = bf.plan(fit, epsilon=0.01)  # so little that whole-number noise has the variance of its limit
    rows = boxes.matrix.dense()
    found = fit.recovery.variances(boxes, plan)
    closely = np.diag(rows @ covariance(fit) @ rows.T) * plan.stddev**2
    np.testing.assert_allclose(found, closely, rtol=1e-3, atol=1e-3)


def test_the_loss_of_the_noise_drawn_is_the_claim(fit):
    """Quotes publish: neighbours differ by at most what the plan promises. From the noise scales drawn."""
    plan = bf.plan(fit, epsilon=0.7)
    product = as_product(fit.problem)
    for block, hides in zip(fit.strategy.blocks, fit.strategy.hides, strict=True):
        rows = [factor.astype(float) for factor in block.integers]
        scales = row_scales(block, plan).ravel()
        noisy = scales > 0
        for attribute in hides:
            shifts, _ = moves_of(product, rows, block.edges, attribute)
            assert (np.abs(shifts[noisy]) / scales[noisy, None]).sum(axis=0).max() <= 0.7 * (1 + 1e-12)


def test_releases_have_the_stated_error_and_exact_public_totals(fit):
    """Total squared error against the sum of the stated variances, within five standard errors of the mean."""
    x = RNG.integers(0, 30, fit.problem.policy.num_cells)
    truth = fit.problem.workload.matrix.mv(x)
    outs = [bf.release(fit, x, epsilon=1.0) for _ in range(100)]
    errors = np.array([((out.answers - truth) ** 2).sum() for out in outs])
    stated = float((outs[0].stddev ** 2).sum())
    room = 5 * errors.std(ddof=1) / math.sqrt(errors.size)
    assert abs(errors.mean() - stated) <= room
    assert abs(errors.mean() - 3 * stated) > room, "the control: three times the variance would be seen"
    labels = fit.problem.policy.components.labels[: x.size]
    for label in np.unique(labels):
        assert outs[0].estimate[labels == label].sum() == pytest.approx(x[labels == label].sum(), abs=1e-6)


def test_draws_of_errors_have_the_stated_variances(fit):
    """Draws behind simultaneous intervals: variances of every query, within five standard errors of a variance."""
    plan, draws = bf.plan(fit, epsilon=1.0), 3000
    errors = fit.recovery.error_draws(fit.problem.workload, plan, draws)
    stated = fit.per_query_stddev(epsilon=1.0) ** 2
    public = stated == 0
    assert not np.any(errors[public])
    off = (errors[~public] ** 2).mean(axis=1) / stated[~public] - 1
    assert np.abs(off).max() < 5 * math.sqrt(5 / draws)  # Laplace noise: the fourth moment is at most 6 variances^2
    assert np.abs((1.3 * errors[~public] ** 2).mean(axis=1) / stated[~public] - 1).max() > 5 * math.sqrt(5 / draws)


def test_post_processing_is_refused_with_a_sentence(fit):
    counts = np.ones(fit.problem.policy.num_cells, dtype=np.int64)
    with pytest.raises(bf.InputError, match="adds up noise on the cells"):
        bf.release(fit, counts, epsilon=1.0).postprocess("nonnegative")


def test_bundles_come_back_bit_by_bit(fit, tmp_path):
    loaded = bf.load(fit.save(tmp_path / "sum.bf"))
    assert loading.check(tmp_path / "sum.bf")[1] == []
    assert (loaded.unit_error, loaded.strategy.hides) == (fit.unit_error, fit.strategy.hides)
    for old, new in zip(fit.strategy.blocks, loaded.strategy.blocks, strict=True):
        assert old.edges == new.edges
        assert all(np.array_equal(a, b) for a, b in zip(old.integers, new.integers, strict=True))
        assert np.array_equal(old.precisions, new.precisions)


def test_bounds_are_below_the_dense_tight_bound(fit):
    tight = bf.bound(fit.problem.workload, fit.problem.policy, gap=1e-4)
    assert 0 < fit.matrix_bound <= tight.lower * (1 + 2e-4)


# ---------------------------------------------------------------- what is refused


def grid_fit():
    return bf.fit("all-range:4x3", "threshold:4x3:1", noise="laplace", family="directions", max_steps=1)


@pytest.mark.parametrize("hides", [((0,), (0,)), ((0, 1), (0,)), ((0,), ()), ((0,), (2,))])
def test_a_strategy_that_leaves_moves_open_is_refused(hides):
    made = grid_fit()
    with pytest.raises(bf.InputError, match="hide"):
        certify(dataclasses.replace(made.strategy, hides=hides), made.problem, noise="laplace", proof=None)


def test_swapped_blocks_are_refused_or_have_another_sensitivity():
    made = grid_fit()
    swapped = dataclasses.replace(made.strategy, hides=made.strategy.hides[::-1])
    with pytest.raises(bf.InputError, match="row without noise"):
        certify(swapped, made.problem, noise="laplace", proof=None)


def test_a_factor_without_full_column_rank_is_refused():
    made = grid_fit()
    thin = noise_block((np.ones((1, 4)), np.eye(3)), np.ones((1, 1)))
    with pytest.raises(bf.InputError, match="full column rank"):
        certify(NoiseSum((thin,), ((0, 1),), "bad"), made.problem, noise="laplace", proof=None)


def test_moves_that_no_block_hides_are_refused_when_the_sensitivity_is_derived_again():
    """Quotes publish: the sensitivity is derived once more, from this; a certificate of other blocks does not help."""
    problem = Problem(bf.workload.parse("identity:4x3"), bf.policy.parse("threshold:4x3:1"))
    cells = noise_block((np.eye(4), np.eye(3)), np.ones((1, 1)))
    assert exact_sensitivity(NoiseSum((cells,), ((0, 1),), "good"), problem, "laplace") == 2 << 30
    with pytest.raises(bf.InputError, match="hidden by no block"):
        exact_sensitivity(NoiseSum((cells,), ((0,),), "bad"), problem, "laplace")


@pytest.mark.parametrize("places", [24, 27, 30, 40])
def test_a_factor_with_which_only_some_noise_could_be_added_is_refused_whatever_the_noise(places):
    """Its inverse cannot be refined: noise zero would be added, and show the counts, and all other be refused."""
    size = 2**places
    R = np.array([[size, size - 1], [-size, -size - 1]])  # a move costs 2, whatever the size
    problem = Problem(bf.workload.parse("identity:2x2"), bf.policy.parse("product:line:2,empty:2"))
    block = noise_from_integers((R, np.eye(2, dtype=np.int64)), (0, 0), np.ones((1, 1)), None)
    assert certify(NoiseSum((block,), ((0,),), "bad"), problem, noise="laplace", proof=None).sensitivity == 2
    with pytest.raises(bf.InputError, match="too close to singular"):
        ExactNoise(as_product(problem), NoiseSum((block,), ((0,),), "bad"))


def test_gaussian_noise_is_refused():
    made = grid_fit()
    with pytest.raises(bf.InputError, match="noise"):
        certify(made.strategy, made.problem, noise="gaussian", proof=None)


def test_there_is_no_one_matrix():
    with pytest.raises(bf.InputError, match="no one matrix"):
        grid_fit().strategy.matrix()


# ---------------------------------------------------------------- whole numbers


def exact_inverse(R):
    """(R^T R)^-1 R^T in fractions, by elimination."""
    n = R.shape[1]
    N = [[Fraction(int(v)) for v in row] for row in R.T @ R]
    right = [[Fraction(int(v)) for v in row] for row in R.T]
    for i in range(n):
        pivot = next(k for k in range(i, n) if N[k][i] != 0)
        N[i], N[pivot], right[i], right[pivot] = N[pivot], N[i], right[pivot], right[i]
        scale = N[i][i]
        N[i], right[i] = [v / scale for v in N[i]], [v / scale for v in right[i]]
        for k in range(n):
            if k != i:
                f = N[k][i]
                N[k] = [a - f * b for a, b in zip(N[k], N[i], strict=True)]
                right[k] = [a - f * b for a, b in zip(right[k], right[i], strict=True)]
    return right


CENTRED = [[1, 1, 1], [3, -1, -1], [-1, 3, -1], [-1, -1, 3]]


@pytest.mark.parametrize("bits", [96, 224])
@pytest.mark.parametrize("R", [np.eye(3), CENTRED, RNG.integers(-(2**20), 2**20, (7, 5))])
def test_inverses_are_enclosed(R, bits):
    """Quotes enclosed_inverse: the error is a proven bound. Against fractions."""
    R = np.asarray(R, dtype=np.int64)
    found, truth = enclosed_inverse(R, bits), exact_inverse(R)
    off = max(abs(Fraction(int(found.matrix[i, j])) - truth[i][j] * 2**bits) for i, j in np.ndindex(found.matrix.shape))
    assert off <= found.error < 2 ** (bits // 2)


def test_errors_of_inverses_do_not_grow_with_the_number_of_bits():
    """Quotes enclosed_inverse, beyond 1000 bits, where numbers leave the range of floats."""
    size = 2**18
    R = np.array([[3 * size, size - 1, 1], [-size, -5 * size - 1, 0], [1, 0, 7]])
    assert enclosed_inverse(R, 1056).error <= 2 * enclosed_inverse(R, 96).error


def test_a_factor_beyond_the_reach_of_exact_products_is_refused():
    with pytest.raises(bf.InputError, match="too large to be run exactly"):
        enclosed_inverse(np.ones((2**16 + 1, 1), dtype=np.int64), 96)


def test_a_matrix_close_to_singular_is_refused():
    with pytest.raises(bf.InputError, match="too close to singular"):
        enclosed_inverse(np.array([[1, 1], [2, 2]], dtype=np.int64), 96)


def test_products_of_whole_numbers_are_exact():
    values = [0, 1, -1, 2**18, -(2**18), 2**62, -(2**62), 3**80, -(7**60)]
    tensor = np.array(values, dtype=object).reshape(3, 3)
    assert np.array_equal(from_limbs(limbs(tensor)), tensor)
    matrix = np.array([[5**40, -3, 0], [1, 2, 3]], dtype=object)
    for axis in (0, 1):
        found = from_limbs(along(limbs(matrix), limbs(tensor), axis))
        assert np.array_equal(found, matrix @ tensor if axis == 0 else tensor @ matrix.T)


def test_the_published_sum_is_the_exact_one_rounded_to_a_shifted_grid(monkeypatch):
    """Quotes private_sum: a function of the exact sum and of random bits. Against fractions, with the shift fixed."""
    made = bf.fit("all-range:3x4", "product:bounded:3,line:4", noise="laplace", family="directions", max_steps=4)
    product, x = as_product(made.problem), RNG.integers(0, 9, (3, 4))
    noise = [RNG.integers(-50, 50, block.shape) for block in made.strategy.blocks]
    noise = [np.where(np.isinf(b.full_precisions), 0, z) for b, z in zip(made.strategy.blocks, noise, strict=True)]
    bits = 2**63 + 12345
    monkeypatch.setattr(noise_sums.secrets, "randbits", lambda _: bits)
    found = ExactNoise(product, made.strategy).private_sum(x, noise)
    exact = [[Fraction(int(v)) for v in row] for row in x]
    for block, z in zip(made.strategy.blocks, noise, strict=True):
        G = [exact_inverse(factor) for factor in block.integers]
        if block.edges is not None:
            P = incidence(product, block.edges).sparse().toarray().astype(object)
            G[block.edges] = (P @ np.array(G[block.edges], dtype=object)).tolist()
        for c, d in itertools.product(range(3), range(4)):
            exact[c][d] += sum(
                G[0][c][j] * G[1][d][k] * int(z[j, k]) for j in range(z.shape[0]) for k in range(z.shape[1]) if z[j, k]
            )
    shift = Fraction(2 * bits + 1, 2**65)
    for c, d in itertools.product(range(3), range(4)):
        assert found[c, d] == math.floor(exact[c][d] * 2**GRID_BITS + shift) / 2**GRID_BITS


def test_the_enclosure_of_noise_holds_the_exact_value():
    made = grid_fit()
    product, block = as_product(made.problem), made.strategy.blocks[0]
    z = RNG.integers(-9, 9, block.shape)
    coarse, error = enclosed_noise(enclosed_factors(product, block, 96), z)
    fine, finer = enclosed_noise(enclosed_factors(product, block, 400), z)
    scale = 2 ** (2 * (400 - 96))
    assert np.all(np.abs(coarse * scale - fine) <= error * scale + finer)


def test_other_queries_are_answered_and_another_domain_is_refused():
    made = grid_fit()
    out = bf.release(made, np.arange(12), epsilon=1.0)
    answers, stddev = out.answer(bf.workload.parse("identity:4x3"))
    assert answers.shape == stddev.shape == (12,)
    with pytest.raises(bf.InputError, match="same domain"):
        out.answer(bf.workload.parse("identity:4x4"))


def test_problems_of_several_parts_are_the_problem_whole():
    """A product policy has the edges of its factors and no others: the oracle of this file and the package agree."""
    made = Problem(bf.workload.parse("identity:3x2"), bf.policy.parse("product:line:3,bounded:2"))
    P = incidence_columns(made)
    first = incidence(as_product(made), 0).sparse().toarray()
    whole = np.hstack([np.kron(first, np.eye(2)), np.kron(np.eye(3), [[1], [-1]])])
    assert {tuple(np.abs(c)) for c in P.T} == {tuple(np.abs(c)) for c in whole.T}


def test_post_processing_is_refused():
    out = bf.release(grid_fit(), np.arange(12), epsilon=1.0)
    with pytest.raises(bf.InputError, match="adds up noise on the cells"):
        out.postprocess("nonnegative")
