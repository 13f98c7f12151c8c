"""Bounds of product domains against dense dual bounds, and proofs that are checked."""

import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import workload
from hdmm_bf._checks import InputError
from hdmm_bf.bounds.products import proof_bound
from hdmm_bf.bounds.products.grid import as_grid, grid_bound, profile
from hdmm_bf.bounds.products.typed import best_weights, typed, typed_bound
from tests.support.instances import product


def test_the_grid_bound_is_the_dense_dual_bound_of_its_weights():
    made = product("all-range:7x5", "threshold:7x5:1")
    d = profile(7, 0.7, 0.7), profile(5, 0.5, 0.5)
    w = (1.0, 1.3)
    edges = made.problem.policy.edges
    moved = np.unravel_index(edges[:, 0], made.sizes)
    across = edges[:, 1] - edges[:, 0] > 1  # along the first attribute, which moves slowest
    mu = np.where(across, w[0] * d[1][moved[1]], w[1] * d[0][moved[0]])
    assert grid_bound(as_grid(made), d, w) == pytest.approx(bf.bounds.dual_bound(made.problem, mu), rel=1e-5)
    assert grid_bound(as_grid(made), d, w) <= bf.bounds.dual_bound(made.problem, mu)


@pytest.mark.parametrize("queries", ["all-range:2x3", "prefix:2x2", "all-range:3x3", "prefix:5x8", "all-range:6x2"])
def test_the_grid_bound_is_the_svd_bound_for_equal_weights(queries):
    made = product(queries, f"threshold:{queries.split(':')[1]}:1")
    cells = tuple(np.ones(n) for n in made.sizes)
    assert grid_bound(as_grid(made), cells) == pytest.approx(bf.bounds.svd_bound(made.problem), rel=1e-5)


def test_typed_bounds_of_lines_are_dense_dual_bounds():
    made = product("marginals:5x4x3:2", "product:line:5,line:4,bounded:3")
    types, rng = typed(made), np.random.default_rng(0)
    best = typed_bound(types, best_weights(types))
    for weights in rng.uniform(size=(5, 3)):
        counts = types.edges * math.prod(made.sizes)
        mu = np.repeat(weights / counts, counts.astype(int))
        assert typed_bound(types, weights) == pytest.approx(bf.bounds.dual_bound(made.problem, mu), rel=1e-9)
        assert typed_bound(types, weights) <= best * (1 + 1e-9)


def test_a_sum_of_terms_has_a_kronecker_bound():
    both = workload.union(workload.all_range("5x4"), workload.weighted(workload.prefix("5x4"), 2.0))
    made = product(both, "threshold:5x4:1")
    proof = {"kind": "kronecker", "attribute": 1, "weights": [np.ones(5), np.ones(3)]}
    mu = np.repeat([0.0, 1.0], [4 * 4, 5 * 3])
    assert 0 < proof_bound(made, proof) <= bf.bounds.dual_bound(made.problem, mu)


def test_proofs_are_checked():
    made = product("marginals:3x4:1", "sensitive:3x4:0,1")
    with pytest.raises(InputError, match="is not a kind of proof"):
        proof_bound(made, {"kind": "rumour"})
    for weights in ([1.0], [1.0, -1.0], [1.0, math.nan]):
        with pytest.raises(InputError, match="none negative"):
            proof_bound(made, {"kind": "types", "weights": weights})
    grid = {"kind": "grid", "cells": [np.ones(3), np.ones(4)], "types": [1.0, 1.0]}
    assert proof_bound(product("marginals:3x4:1", "unbounded:3x4"), grid) is None


@pytest.mark.parametrize("n", [5, 12, 20, 24, 31])
def test_profiles_are_symmetric_to_the_last_digit(n):
    for exponent in np.linspace(-0.6, 1.8, 9):
        found = profile(n, exponent, exponent)
        assert np.array_equal(found, found[::-1])
