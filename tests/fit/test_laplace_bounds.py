"""The lower bound of Laplace fits: below all that is found, and not mistaken for that of all noises."""

import math
from dataclasses import replace

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy
from hdmm_bf.certificate import certify
from tests.support import oracles
from tests.support import pairs as oracle

TWO_PARTS = policy.from_edges([0, 1, 2, 3], [1, 2, 0, -1], 4, spec="a triangle, and a cell whose presence is hidden")
SPECS = [
    *("line:4", "cycle:4", "bounded:4", "unbounded:4", "h-theta:4:2", "two parts"),
    *(pytest.param(spec, marks=pytest.mark.slow) for spec in ("star-tree:4", "threshold:4:2")),  # compiled for a second
]


def changed(fit):
    """W_G of a fit."""
    return oracle.changes(fit.problem.workload.matrix.dense(), fit.problem.policy.edges)


@pytest.fixture(scope="module")
def grid():
    return bf.fit("all-range:2x2", "threshold:2x2:1", noise="laplace", max_steps=2)


@pytest.mark.parametrize("spec", SPECS)
def test_no_laplace_strategy_of_a_fit_is_below_the_bound(spec):
    graph = TWO_PARTS if spec == "two parts" else policy.parse(spec)
    fit = bf.fit(oracles.all_range_rows((graph.num_cells,)), graph, noise="laplace", max_steps=2)
    weights = fit.proof["weights"]
    paired = {"partners": np.zeros((0, 2), dtype=np.int64), "shares": np.zeros(0)} | fit.proof
    bound = oracle.paired(changed(fit), weights / weights.sum(), paired["partners"], paired["shares"])
    assert fit.bounds.lower == pytest.approx(max(bound, fit.matrix_bound), rel=1e-7)
    assert fit.matrix_bound <= fit.bounds.lower <= fit.unit_error * (1 + 1e-9)
    assert all(error >= fit.bounds.lower * (1 - 1e-9) for error in fit.reached.values())


def test_on_a_grid_the_bound_for_laplace_noise_is_above_that_for_all_noises(grid):
    assert grid.bounds.lower > 1.1 * grid.matrix_bound
    weights = grid.proof["weights"] / grid.proof["weights"].sum()
    nuclear = np.linalg.norm(changed(grid) * np.sqrt(weights), "nuc") ** 2
    assert grid.matrix_bound == pytest.approx(nuclear, rel=1e-7)
    gaussian_fit = bf.fit("all-range:2x2", "threshold:2x2:1", gap=1e-4)
    assert grid.matrix_bound <= gaussian_fit.unit_error * (1 + 1e-9)
    assert grid.bounds.lower > gaussian_fit.unit_error, "it binds Laplace strategies only"


def test_what_binds_all_unbiased_mechanisms_knows_no_pairs(grid):
    """Quotes any_unbiased_rmse: it must not follow from the bound for Laplace noise."""
    proof = {key: grid.proof[key] for key in ("kind", "weights")}
    alone = certify(grid.strategy, grid.problem, noise="laplace", proof=proof)
    without = replace(grid, proof=proof, certificate=alone)
    assert alone.lower_bound == grid.matrix_bound == without.matrix_bound < grid.bounds.lower
    floors = [bf.plan(fit, epsilon=0.7).any_unbiased_rmse for fit in (grid, without)]
    assert floors[0] == floors[1]
    chi2 = (math.exp(0.7) - 1) ** 2 / math.exp(0.7)
    queries = grid.problem.workload.num_queries
    assert floors[0] == pytest.approx(math.sqrt(grid.matrix_bound / chi2 / queries), rel=1e-9)
