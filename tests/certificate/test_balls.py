"""Sensitivities under distance thresholds over several attributes, against fractions over every edge."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import certify, exact_sensitivity
from hdmm_bf.certificate.exact import GRID_BITS, INTEGER_LIMIT, ball_sensitivity, row_weight
from hdmm_bf.problem.product import product_view
from hdmm_bf.strategies.baselines.classical import haar, hierarchy
from hdmm_bf.strategies.blocks import from_factors, from_integers, noise_block
from hdmm_bf.strategies.records import NoiseSum, ProductStrategy

DOMAINS = [("3x2", 2), ("4x3", 3), ("2x2x2", 2), ("3x1x2", 2)]


def problem_on(sizes, limit):
    return bf.problem(f"identity:{sizes}", f"threshold:{sizes}:{limit}")


def moved(problem, block, noise):
    """The loss of every edge in one block, row by row, in fractions."""
    sizes, found = problem.policy.domain.sizes, []
    for u, v in problem.policy.edges.tolist():
        loss = Fraction(0)
        for J in np.ndindex(*block.shape):
            precision = float(block.full_precisions[J])
            if precision in (0.0, math.inf):
                continue
            ends = []
            for cell in (u, v):
                places = np.unravel_index(cell, sizes)
                entries = zip(block.integers, block.bits, J, places, strict=True)
                ends.append(math.prod((Fraction(int(R[j, c]), 2**b) for R, b, j, c in entries), start=Fraction(1)))
            level = Fraction(precision) if noise == "gaussian" else Fraction(row_weight(precision))
            loss += level * abs(ends[0] - ends[1]) ** (2 if noise == "gaussian" else 1)
        found.append(loss)
    return np.array(found, dtype=object)


def brute(problem, blocks, noise):
    largest = max(sum(moved(problem, block, noise) for block in blocks))
    return math.ceil(largest * 2 ** ((2 if noise == "gaussian" else 1) * GRID_BITS))


def derived(problem, blocks, noise):
    product = product_view(problem, balls=True)
    return ball_sensitivity(product, blocks, [tuple(range(len(product.sizes)))] * len(blocks), noise)


@pytest.mark.parametrize("seed", range(12))
def test_for_normal_noise_the_sensitivity_is_exact_for_factors_of_every_size(seed):
    """Quotes certificate_exact: exact up to its last binary place for normal noise."""
    rng = np.random.default_rng(seed)
    problem = problem_on(*DOMAINS[seed % len(DOMAINS)])
    sizes, blocks = problem.policy.domain.sizes, []
    for _ in range(int(rng.integers(1, 3))):
        size = int(rng.choice([3, 2**20, INTEGER_LIMIT]))
        rows = [int(rng.integers(1, 4)) for _ in sizes]
        factors = tuple(rng.integers(-size + 1, size, (r, n)) for r, n in zip(rows, sizes, strict=True))
        precisions = 10.0 ** rng.uniform(-60, 60, rows)
        precisions[rng.random(rows) < 0.2] = 0.0
        blocks.append(from_integers(factors, tuple(int(b) for b in rng.integers(0, 20, len(sizes))), precisions))
    assert derived(problem, blocks, "gaussian") == brute(problem, blocks, "gaussian")


@pytest.mark.parametrize("seed", range(8))
def test_for_laplace_noise_it_is_never_below_the_loss_of_any_edge(seed):
    rng = np.random.default_rng(seed)
    problem = problem_on(*DOMAINS[seed % len(DOMAINS)])
    sizes = problem.policy.domain.sizes
    factors = tuple(rng.integers(-9, 9, (int(rng.integers(1, 4)), n)) for n in sizes)
    tensor = 10.0 ** rng.uniform(-3, 3, [len(f) for f in factors])
    for precisions in (tensor, tensor.ravel()[:1].reshape([1] * len(sizes))):
        block = from_integers(factors, (3,) * len(sizes), precisions)
        truth = brute(problem, [block], "laplace")
        assert truth <= derived(problem, [block], "laplace")
        assert derived(problem, [block, block], "laplace") >= brute(problem, [block, block], "laplace")


@pytest.mark.parametrize("rows", [np.eye, haar, lambda n: np.vstack(hierarchy(n, 2))])
def test_rows_of_few_different_entries_are_counted_out_exactly(rows):
    for sizes, limit in DOMAINS:
        problem = problem_on(sizes, limit)
        factors = [rows(n) if n > 1 else np.eye(1) for n in problem.policy.domain.sizes]
        block = from_factors(factors, np.full((1,) * len(factors), 0.37))
        assert derived(problem, [block], "laplace") == brute(problem, [block], "laplace")


def test_two_cells_of_the_identity_change_whatever_the_offset():
    problem = problem_on("4x3", 3)
    block = from_factors([np.eye(4), np.eye(3)], np.ones((1, 1)))
    assert derived(problem, [block], "laplace") == 2 * 2**GRID_BITS
    assert derived(problem, [block], "gaussian") == 2 * 4**GRID_BITS


def test_blocks_that_are_added_up_lose_together_by_an_edge_that_changes_both_attributes():
    """A move by (1, 2) is one by (1, 0), which the first block takes up, and one by (0, 2) for the second."""
    problem = problem_on("4x3", 3)
    prefix = [np.tril(np.ones((n, n)))[:-1] for n in (4, 3)]
    totals = [np.vstack([np.ones((1, n)), rows]) for n, rows in zip((4, 3), prefix, strict=True)]
    public = [np.array([math.inf, *([1.0] * (n - 1))]) for n in (4, 3)]
    blocks = (
        noise_block((totals[0], np.eye(3)), public[0][:, None]),
        noise_block((np.eye(4), totals[1]), public[1][None, :]),
    )
    strategy = NoiseSum(blocks, ((0,), (1,)), "by hand")
    assert exact_sensitivity(strategy, problem, "laplace") == 3 * 2**GRID_BITS
    heavier = dataclasses.replace(blocks[1], precisions=4 * blocks[1].precisions)
    strategy = NoiseSum((blocks[0], heavier), ((0,), (1,)), "by hand")
    assert exact_sensitivity(strategy, problem, "laplace") == max(3, 1 + 2 * 2) * 2**GRID_BITS


def test_the_sensitivity_counts_edges_that_change_two_attributes():
    """Under the part of the policy that changes one attribute at a time the same rows lose less."""
    ball, straight = problem_on("3x2", 2), bf.problem("identity:3x2", "product:threshold:3:2,threshold:2:2")
    first = from_factors([np.array([[0.0, 1.0, 2.0]]), np.ones((1, 2))], np.ones((1, 1)))
    second = from_factors([np.ones((1, 3)), np.array([[0.0, 1.0]])], np.full((1, 1), 9.0))
    strategy = ProductStrategy((first, second), "by hand")
    for noise, along, across in (("gaussian", 9 * 4**GRID_BITS, 10 * 4**GRID_BITS), ("laplace", 3 << 30, 4 << 30)):
        assert exact_sensitivity(strategy, straight, noise) == along
        assert exact_sensitivity(strategy, ball, noise) == across == brute(ball, strategy.blocks, noise)


def test_a_row_without_noise_that_an_edge_sees_is_refused():
    problem = problem_on("3x2", 2)
    factors = [np.vstack([np.ones((1, 3)), np.eye(3)[:2]]), np.vstack([np.ones((1, 2)), np.eye(2)[:1]])]
    precisions = np.ones((3, 2))
    precisions[0, 0] = math.inf
    good = ProductStrategy((from_factors(factors, precisions),), "by hand")
    assert certify(good, problem, noise="gaussian", proof=None).sensitivity > 0
    for seen in itertools.islice(np.ndindex(3, 2), 1, None):
        forged = precisions.copy()
        forged[seen] = math.inf
        with pytest.raises(InputError, match="is seen by an edge of the policy"):
            certify(ProductStrategy((from_factors(factors, forged),), "f"), problem, noise="gaussian", proof=None)
