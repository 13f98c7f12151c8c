"""Post-processing against quadratic programmes, and its promises on random releases."""

import inspect

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from hypothesis import settings

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import postprocess as postprocessing
from hdmm_bf.strategies.records import CellStrategy
from tests.support import oracles
from tests.support.fits import shipped
from tests.support.instances import given_policies, halves

BOTTOM = -1


def public_parts(G):
    """Cells of every component without BOTTOM."""
    parts = nx.connected_components(oracles.graph(G.num_cells, G.edges))
    return [sorted(part) for part in parts if BOTTOM not in part]


def root_of_precision(fit):
    """F with F^T F the inverse covariance of the released cells on its range: the norm of what was measured.

    Over all cells the noise is N = D A^+ k or D P S^+ k; its covariance N N^T has the same pseudo-inverse as precision.
    """
    problem, A = fit.problem, np.ldexp(fit.strategy.integers.astype(float), -fit.strategy.bits)
    kept, anchor = problem.grounding.kept, problem.grounding.anchor
    D = np.eye(problem.policy.num_cells)[:, kept]
    for column, cell in enumerate(anchor):
        if cell >= 0:
            D[cell, column] = -1.0
    carried = D @ (np.linalg.pinv(A @ D) if fit.strategy.kind == "vertex" else problem.P.dense() @ np.linalg.pinv(A))
    values, vectors = np.linalg.eigh(np.linalg.pinv(carried @ carried.T, rcond=1e-12, hermitian=True))
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T


def nearest_histogram(fit, out):
    """The histogram without negative counts and with the public totals that is nearest in that norm, by cvxpy."""
    G = fit.problem.policy
    x = cp.Variable(G.num_cells, nonneg=True)
    totals = {tuple(part): round(out.estimate[part].sum()) for part in public_parts(G)}
    fixed = [cp.sum(x[list(part)]) == total for part, total in totals.items()]
    F = root_of_precision(fit)
    F = F / np.abs(F).max()
    task = cp.Problem(cp.Minimize(cp.sum_squares(F @ (x - out.estimate))), fixed)
    task.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return np.asarray(x.value), F


FITS = {
    "gaussian, line": lambda: bf.fit("all-range:8", "line:8"),
    "gaussian, threshold": lambda: bf.fit("prefix:8", "threshold:8:2"),
    "gaussian, unbounded": lambda: bf.fit("all-range:6", "unbounded:6"),
    "gaussian, two components": lambda: bf.fit("all-range:10", halves(10, 0)),
    "gaussian, isolated cells": lambda: bf.fit("identity:6", policy.from_edges([0, 1, 3], [1, 2, BOTTOM], 6)),
    "laplace, cycle": lambda: bf.fit("all-range:6", "cycle:6", noise="laplace", max_steps=1),
    "laplace, grid": lambda: bf.fit("all-range:3x3", "threshold:3x3:1", noise="laplace", max_steps=1),
}


def sparse_release(fit, seed):
    """A release of few records with much noise, so that many estimates are negative."""
    x = np.random.default_rng(seed).poisson(1.0, fit.problem.policy.num_cells)
    asked = {"epsilon": 0.3} if fit.noise == "laplace" else {"rho": 0.03}
    return bf.release(fit, x, **asked)


@pytest.mark.parametrize("name", FITS)
def test_nonnegative_is_the_nearest_histogram_in_the_norm_of_what_was_measured(name):
    """Quotes postprocess: "nonnegative", in the norm of what was measured, is the nearest such histogram."""
    fit = FITS[name]()
    for seed in range(4):
        out = sparse_release(fit, seed)
        found = out.postprocess("nonnegative")
        want, F = nearest_histogram(fit, out)
        assert found.estimate.min() >= 0
        for part in public_parts(fit.problem.policy):
            assert found.estimate[part].sum() == pytest.approx(out.estimate[part].sum(), abs=1e-9)
        reached = np.linalg.norm(F @ (found.estimate - out.estimate))
        assert reached <= np.linalg.norm(F @ (want - out.estimate)) * (1 + 1e-5) + 1e-6
        assert found.estimate == pytest.approx(want, abs=1e-3 * (1 + np.abs(out.estimate).max()))
        plain = np.maximum(out.estimate, 0)  # the control: cutting off is not nearest, or not feasible
        off = max((abs(plain[p].sum() - out.estimate[p].sum()) for p in public_parts(fit.problem.policy)), default=0)
        assert (
            out.estimate.min() >= 0 or off > 1e-6 or np.linalg.norm(F @ (plain - out.estimate)) >= reached * (1 - 1e-6)
        )


@pytest.mark.parametrize("cells", [64, 128])
def test_nonnegative_converges_for_ill_conditioned_measurements(cells):
    """Prefix sums of a long line: the condition of the norm grows with the square of the number of cells."""
    fit = bf.fit(f"identity:{cells}", f"line:{cells}")
    out = sparse_release(fit, 1)
    want, F = nearest_histogram(fit, out)
    found = out.postprocess("nonnegative").estimate
    assert np.linalg.norm(F @ (found - out.estimate)) <= np.linalg.norm(F @ (want - out.estimate)) * (1 + 1e-4)


def prefix_sums(cells):
    """Identity on the edges of a line: the noisy prefix sums, equal noise on each."""
    problem = Problem(workload.all_range(cells), policy.line(cells))
    A = np.tril(np.ones((cells, cells), dtype=np.int64))[:-1] << 16
    return shipped(problem, CellStrategy(A, 16, "test"))


def test_isotonic_is_nonnegative_for_noisy_prefix_sums_on_a_line():
    """Equal noise on the prefix sums: the nearest histogram has the isotonic prefix sums, within 0 and the total."""
    fit = prefix_sums(12)
    changed = 0
    for seed in range(6):
        out = sparse_release(fit, seed)
        isotonic = out.postprocess("isotonic")
        assert isotonic.estimate == pytest.approx(out.postprocess("nonnegative").estimate, abs=1e-4)
        assert isotonic.estimate.min() >= 0
        assert isotonic.estimate.sum() == pytest.approx(out.totals[0])
        changed += out.estimate.min() < 0
    assert changed > 0


def test_isotonic_sums_minimise_the_squared_distance():
    out = sparse_release(prefix_sums(10), 3)
    noisy = np.cumsum(out.estimate)[:-1]
    z = cp.Variable(9)
    cp.Problem(cp.Minimize(cp.sum_squares(z - noisy)), [cp.diff(z) >= 0, z >= 0, z <= out.totals[0]]).solve(
        solver=cp.CLARABEL
    )
    assert np.cumsum(out.postprocess("isotonic").estimate)[:-1] == pytest.approx(z.value, abs=1e-4)


@settings(max_examples=25)
@given_policies(most_cells=6)
def test_steps_keep_public_totals_and_leave_counts(G):
    """Quotes postprocess: Public component totals stay exact. "integers" leaves whole numbers."""
    fit = bf.fit(workload.identity(G.num_cells), G, max_steps=2)
    out = bf.release(fit, np.arange(G.num_cells) % 3, rho=0.02)
    before, answers = out.estimate.copy(), out.answers.copy()
    for steps in (("nonnegative",), ("integers",), ("nonnegative", "integers")):
        made = out.postprocess(*steps)
        for part in public_parts(G):
            assert made.estimate[part].sum() == pytest.approx(sum(cell % 3 for cell in part), abs=1e-9)
        if "nonnegative" in steps:
            assert made.estimate.min(initial=0) >= 0
        if "integers" in steps:
            assert np.array_equal(made.estimate, np.rint(made.estimate))
            start = out.postprocess(*steps[:-1]).estimate
            assert np.abs(made.estimate - start).max(initial=0) <= 1 + 1e-9
            assert all(made.estimate[part].sum() == sum(cell % 3 for cell in part) for part in public_parts(G))
        assert made.answers == pytest.approx(fit.problem.workload.matrix.mv(made.estimate))
        assert made.steps == steps
    assert np.array_equal(out.estimate, before)
    assert np.array_equal(out.answers, answers)


def test_estimates_that_need_nothing_are_left_alone():
    out = bf.release(prefix_sums(4), [50, 60, 70, 80], epsilon=1e6)
    assert np.array_equal(out.postprocess("nonnegative").estimate, out.estimate)
    assert out.postprocess("integers").estimate.tolist() == [50, 60, 70, 80]
    assert out.postprocess().estimate is out.estimate


def test_what_was_processed_says_so():
    out = bf.release(prefix_sums(4), [1, 0, 0, 0], epsilon=1.0)
    made = out.postprocess("isotonic", "integers")
    assert made.steps == ("isotonic", "integers")
    assert made.label == "post-processed (isotonic, integers): biased, no standard deviation applies"


def test_post_processing_never_sees_data():
    """Quotes postprocess: Uses nothing but the release. No function of the module takes anything that holds data."""
    functions = [
        f for _, f in inspect.getmembers(postprocessing, inspect.isfunction) if f.__module__ == postprocessing.__name__
    ]
    assert len(functions) > 5
    parameters = {name for function in functions for name in inspect.signature(function).parameters}
    assert parameters.isdisjoint({"counts", "data", "fit", "noise"})
    assert list(inspect.signature(postprocessing.postprocess).parameters) == ["out", "steps"]
    out = bf.release(prefix_sums(4), [5, 0, 3, 0], epsilon=0.1)
    once, again = out.postprocess("nonnegative"), out.postprocess("nonnegative")
    assert np.array_equal(once.estimate, again.estimate)


@pytest.mark.parametrize(
    ("G", "step", "message"),
    [
        ("line:4", "rounded", "is no step"),
        ("line:4", "isotone", "Did you mean 'isotonic'"),
        ("cycle:4", "isotonic", "is no line"),
        ("unbounded:4", "isotonic", "is no line"),
        ("threshold:2x2:1", "isotonic", "is no line"),
    ],
)
def test_steps_that_do_not_exist_or_do_not_apply_are_refused(G, step, message):
    fit = bf.fit("identity:4", policy.parse(G)) if "x" not in G else bf.fit("identity:2x2", G)
    with pytest.raises(InputError, match=message):
        bf.release(fit, [987654321, 0, 0, 0], rho=1.0).postprocess(step)
