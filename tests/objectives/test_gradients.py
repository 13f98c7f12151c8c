"""Derivatives of every objective and parametrisation by finite differences; jit, vmap, and the caller's precision."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hdmm_bf.objectives import (
    CellBudgets,
    Free,
    LevelWeights,
    PIdentity,
    Split,
    UnitColumns,
    cell_budgets,
    dual_bound,
    product_bases,
    sensitivity,
    total,
    variances,
)
from tests.objectives import cases, oracle

SOME = [cases.SPECS[0], cases.SPECS[1], cases.SPECS[5]]
MARKED = [SOME[0], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SOME[1:])]
PAIRS = pytest.mark.parametrize(("W", "G"), MARKED, ids=cases.names(SOME))
X64 = pytest.mark.parametrize("x64", [True, False], ids=["x64", "x32"])


def agrees(f, parameters, rel=2e-6):
    """The gradient of a number by a pytree, leaf by leaf, against central differences."""
    with jax.enable_x64(True):
        value = jax.jit(f)
        leaves, structure = jax.tree.flatten(parameters)
        leaves = [np.array(leaf, dtype=np.float64) for leaf in leaves]
        slopes = jax.tree.leaves(jax.jit(jax.grad(f))(jax.tree.unflatten(structure, leaves)))
        for place, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):

            def along(moved, place=place):
                own = [moved if i == place else leaf for i, leaf in enumerate(leaves)]
                return float(value(jax.tree.unflatten(structure, own)))

            expected = oracle.slope(along, leaf)
            np.testing.assert_allclose(slope, expected, rtol=rel, atol=rel * max(np.abs(expected).max(), 1e-3))


def objectives(problem):
    """Every objective as a number, by name."""
    found = {"variances": lambda A: variances(problem)(A)[::2].sum()}
    for norm in ("L1", "L2"):
        found[f"sensitivity {norm}"] = sensitivity(problem, norm)
        found[f"smooth sensitivity {norm}"] = sensitivity(problem, norm, smoothing=(0.05, 10.0))
        found[f"total {norm}"] = total(problem, norm=norm)
        found[f"smooth log total {norm}"] = total(problem, norm=norm, smoothing=(0.05, 10.0), log=True)
    return found | {"trace": total(problem, norm=None)}


@PAIRS
def test_gradients_of_objectives_agree_with_finite_differences(W, G):
    problem, _, n, _ = cases.made(W, G)
    for f in objectives(problem).values():
        agrees(f, cases.strategy(n))


@pytest.mark.parametrize(("W", "G"), cases.SPECS, ids=cases.names(cases.SPECS))
def test_the_gradient_of_the_dual_bound_agrees_with_finite_differences(W, G):
    problem, *_ = cases.made(W, G)
    agrees(dual_bound(problem), np.random.default_rng(0).uniform(0.5, 1.5, problem.policy.num_edges))


def levels(n):
    """Rows with three levels: every cell, pairs, all."""
    pairs = np.repeat(np.eye(-(-n // 2)), 2, axis=1)[:, :n]
    matrix = np.vstack([np.eye(n), pairs, np.ones((1, n))])
    return LevelWeights.of(matrix, [np.repeat([0, 1, 2], [n, len(pairs), 1])])


def parametrisations(problem):
    """Every parametrisation over cells with parameters inside its domain, by name."""
    rng = np.random.default_rng(4)
    k = problem.grounding.kept.size
    budgets = cell_budgets(problem, 2)
    N = budgets.budgets.shape[0]
    return {
        "PIdentity 2": (PIdentity(2, k), rng.uniform(0.2, 1, (2, k))),
        "PIdentity 1": (PIdentity(2, k, 1), rng.uniform(0.2, 1, (2, k))),
        "CellBudgets": (budgets, Split(*rng.uniform(0.2, 1, (2, 2, N)))),
        "UnitColumns": (UnitColumns(k + 2, k), Split(*rng.uniform(0.2, 1, (2, k + 2, k)))),
        "Free": (Free(k + 2, k), cases.strategy(k, 9)),
        "LevelWeights": (levels(k), (rng.normal(size=3),)),
    }


NAMES = ["PIdentity 2", "PIdentity 1", "CellBudgets", "UnitColumns", "Free", "LevelWeights"]


@PAIRS
@pytest.mark.parametrize("name", NAMES)
def test_gradients_through_parametrisations_agree_with_finite_differences(W, G, name):
    problem, *_ = cases.made(W, G)
    parametrisation, parameters = parametrisations(problem)[name]
    agrees(total(problem, smoothing=(0.05, 10.0), log=True).of(parametrisation), parameters)
    agrees(sensitivity(problem, "L2", smoothing=(0.05, 10.0)).of(parametrisation), parameters)
    composed = variances(problem, "L1").of(parametrisation)
    agrees(lambda p: composed(p)[::2].sum(), parameters)


@pytest.mark.parametrize(("W", "G"), cases.PRODUCTS[:3], ids=cases.names(cases.PRODUCTS[:3]))
def test_gradients_through_product_bases_agree_with_finite_differences(W, G):
    problem, *_ = cases.made(W, G)
    parametrisation = product_bases(problem)
    start = parametrisation.init(1)
    parameters = start._replace(logs=np.random.default_rng(0).normal(size=start.logs.shape))
    for f in (
        total(problem, norm="L2", over="products", smoothing=(0.0, 8.0), log=True),
        sensitivity(problem, "L2", over="products", smoothing=(0.0, 8.0)),
    ):
        agrees(f.of(parametrisation), parameters)


@X64
def test_vmap_over_strategies_is_a_loop_and_jit_is_eager(x64):
    problem, _, n, edges = cases.made("prefix:8", cases.SPECS[5][1])
    stack = np.stack([cases.strategy(n, seed) for seed in range(4)]).astype(np.float64 if x64 else np.float32)
    weights = np.random.default_rng(0).uniform(0.5, 1, (4, len(edges))).astype(stack.dtype)
    with jax.enable_x64(x64):
        for name, f in objectives(problem).items():
            if name != "variances":  # a sum of the caller's own, in the caller's precision
                same(f, stack, name)
        same(variances(problem, "L2"), stack, "variances")
        same(dual_bound(problem), weights, "dual bound")


def same(f, stack, name):
    loop = np.stack([np.asarray(f(A)) for A in stack])
    assert loop.dtype == np.float64
    compiled = jax.jit(f)
    others = [jax.jit(jax.vmap(f))(stack), [compiled(A) for A in stack]]
    if name == "total L1":
        others.append(jax.vmap(f)(stack))
    for other in others:
        np.testing.assert_allclose(np.asarray(other), loop, rtol=1e-10, err_msg=name)


@X64
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_values_are_float64_and_gradients_of_the_arguments_type_whatever_the_callers_precision(x64, kind):
    """Quotes measures: everything is computed in float64. The caller's flag is left alone."""
    problem, rows, n, edges = cases.made("all-range:7", "threshold:7:2")
    A = cases.strategy(n).astype(kind)
    f = total(problem)
    with warnings.catch_warnings(), jax.enable_x64(x64):
        warnings.simplefilter("error")
        before = dict(jax.config.values)
        value, slope = jax.value_and_grad(f)(jnp.asarray(A))
        assert value.dtype == np.float64
        assert slope.dtype == jnp.asarray(A).dtype
        seen = np.asarray(jnp.asarray(A), dtype=np.float64)
        assert float(value) == pytest.approx(oracle.total(rows, seen, n, edges, "L1"), rel=1e-10)
        for other in (f(A), f(jnp.asarray(A)), jax.jit(f)(A)):
            assert other.dtype == np.float64
        assert float(f(A)) == pytest.approx(oracle.total(rows, A.astype(float), n, edges, "L1"), rel=1e-10)
        assert dict(jax.config.values) == before
    exact = oracle.slope(lambda B: oracle.total(rows, B, n, edges, "L1"), seen)
    np.testing.assert_allclose(slope, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def test_records_are_pytrees_whose_arrays_are_leaves():
    problem, *_ = cases.made("prefix:6", "unbounded:6")
    budgets = cell_budgets(problem, 2)
    again = jax.tree.unflatten(jax.tree.structure(budgets), jax.tree.leaves(budgets))
    assert isinstance(again, CellBudgets)
    assert again.rows == budgets.rows
    assert len(jax.tree.leaves(budgets)) == 2
