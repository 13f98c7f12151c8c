"""Grids whose sides differ: coarser levels with equal sides, the proven bound beside the optimum, time limits."""

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.problem.product import as_product
from hdmm_bf.strategies.gaussian import bases
from hdmm_bf.strategies.gaussian.proofs import best_proof
from hdmm_bf.strategies.laplace import factors


@pytest.mark.parametrize(("first", "second"), [(16, 8), (8, 16), (16, 16), (20, 6)])
def test_sides_may_be_equal_on_a_coarser_level_alone(monkeypatch, first, second):
    """Attributes that differ keep bases of their own on every level."""
    monkeypatch.setattr(bases, "_COARSE_SIDE", 8)
    problem = bf.problem(f"prefix:{first}x{second}", f"product:line:{first},line:{second}")
    *_, last = bases.steps(as_product(problem), bound=0.0)
    assert last.error < 1.1 * bf.bound(problem.workload, problem.policy).lower


@pytest.mark.parametrize("sides", [(24, 8), (8, 24), (20, 20), (40, 6)])
def test_the_bound_by_factors_is_near_the_optimum_of_prefixes(sides):
    """The dense bound is tight. Searched one number after the other the weights had 0.983 of it."""
    spec = "x".join(map(str, sides))
    dense = bf.bound(f"prefix:{spec}", f"threshold:{spec}:1", gap=1e-4)
    bound, _ = best_proof(as_product(bf.problem(f"prefix:{spec}", f"threshold:{spec}:1")))
    assert 0.994 * dense.lower < bound <= dense.lower * (1 + 2e-4)


def test_a_time_limit_too_short_for_matrices_is_kept_by_factors():
    """Certifying 2900 x 2900 matrices takes most of the limit; without one matrices are searched."""
    hurried = bf.fit("prefix:58x50", "threshold:58x50:1", max_seconds=60.0)
    assert hurried.family == "bases"
    assert hurried.unit_error < 1.06 * hurried.bounds.lower
    assert bf.fit("prefix:12x10", "threshold:12x10:1", max_seconds=4.0).family == "gaussian"


@pytest.mark.parametrize("seed", range(20))
def test_the_reach_of_rows_is_the_largest_over_all_edges(monkeypatch, seed):
    """Quotes reach: edges are left out only where none can be larger; here they are looked at one by one."""
    monkeypatch.setattr(factors, "_PORTION", 1)
    rng = np.random.default_rng(seed)
    rows, n = int(rng.integers(1, 12)), int(rng.integers(2, 15))
    A = rng.integers(-3, 4, (rows, n)) * rng.choice([1.0, 0.5, 100.0], (rows, 1))
    tail = rng.integers(-1, n, 40)
    edges = np.stack([rng.integers(0, n, 40), tail], axis=1)
    edges = edges[edges[:, 0] != edges[:, 1]]
    ends = [A[:, u] - (0 if v < 0 else A[:, v]) for u, v in edges.tolist()]
    assert factors.reach(A, edges) == pytest.approx(max(np.abs(end).sum() for end in ends), rel=1e-12)
