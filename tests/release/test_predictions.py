"""One prediction of error: what a fit, a plan and a command say before is what a release has."""

import json
import subprocess
import sys

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.release.privacy import noise_variance
from hdmm_bf.strategies.records import EdgeStrategy
from tests.support.fits import shipped

GAUSSIAN = [{"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 0.1, "delta": 1e-9}, {"rho": 0.5}]
LAPLACE = [{"epsilon": 1.0}, {"epsilon": 30.0}]
FITS = {
    "dense": ("all-range:8", "threshold:8:2", {}, GAUSSIAN),
    "dense laplace": ("all-range:8", "line:8", {"noise": "laplace", "max_steps": 8}, LAPLACE),
    "edges off a tree": (
        "prefix:6",
        "threshold:6:2",
        {"noise": "laplace", "family": "p-identity", "max_steps": 4},
        LAPLACE,
    ),
    "tree norm": ("all-range:8", "threshold:8:2", {"noise": "norm", "family": "chain", "max_steps": 1}, LAPLACE),
    "sums of noise": (
        "all-range:3x3",
        "threshold:3x3:1",
        {"noise": "laplace", "family": "directions", "max_seconds": 5.0},
        LAPLACE,
    ),
    "tables": ("marginals:3x2x2:2", "sensitive:3x2x2:0,1", {"family": "marginals"}, GAUSSIAN),
    "bases": ("all-range:4x5", "threshold:4x5:1", {"family": "bases"}, GAUSSIAN),
    "tables laplace": (
        "marginals:3x2x2:1",
        "unbounded:3x2x2",
        {"noise": "laplace", "family": "union", "max_seconds": 5.0},
        LAPLACE,
    ),
}


def normal_edges():
    """Identity on edges off a tree, with Gaussian noise."""
    problem = bf.problem("prefix:6", "threshold:6:2")
    identity = np.eye(problem.policy.num_edges, dtype=np.int64) << 20
    return shipped(problem, EdgeStrategy(identity, 20, "identity on edges"), "gaussian")


@pytest.fixture(scope="module")
def fits():
    made = {name: bf.fit(W, G, **options) for name, (W, G, options, _) in FITS.items()}
    return {**made, "normal edges off a tree": normal_edges()}


BUDGETS = {name: budgets for name, (*_, budgets) in FITS.items()} | {"normal edges off a tree": GAUSSIAN}


@pytest.mark.parametrize("name", BUDGETS)
def test_every_prediction_is_that_of_the_release(fits, name):
    """Quotes Facts.expected_error: The same as of `plan`, as are `rmse`, `per_query_stddev` and `epsilon_for`."""
    fit = fits[name]
    for budget in BUDGETS[name]:
        out = bf.release(fit, np.ones(fit.problem.policy.num_cells, dtype=int), **budget)
        mean = float(np.sqrt(np.mean(out.stddev**2)))
        assert bf.plan(fit, **budget).rmse == pytest.approx(mean, rel=1e-9)
        assert fit.rmse(**budget) == pytest.approx(mean, rel=1e-9)
        assert fit.expected_error(**budget) == pytest.approx(np.sum(out.stddev**2), rel=1e-9)
        np.testing.assert_allclose(fit.per_query_stddev(**budget), out.stddev, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(fit.per_query_stddev(**budget, queries=[2, 0]), out.stddev[[2, 0]], rtol=1e-9)
        if "rho" not in budget:
            found = fit.epsilon_for(rmse=mean, delta=budget.get("delta"))
            assert found == pytest.approx(budget["epsilon"], rel=1e-9)


def test_the_error_is_that_of_the_ideal_gaussian_mechanism(fits):
    """But for the rounding of the noise, on a fine grid; accounting in zCDP costs 7 %."""
    fit = fits["dense"]
    ideal = np.sqrt(fit.unit_error * noise_variance("gaussian", epsilon=1.0, delta=1e-6) / 36)
    assert fit.rmse(epsilon=1.0, delta=1e-6) == pytest.approx(ideal, rel=1e-9)
    assert fit.rmse(epsilon=1.0, delta=1e-6, accounting="zcdp") > 1.05 * ideal


@pytest.mark.parametrize("name", ["dense", "tables", "bases"])
def test_predictions_by_way_of_zcdp_agree_too(fits, name):
    fit, budget = fits[name], {"epsilon": 1.0, "delta": 1e-6, "accounting": "zcdp"}
    out = bf.release(fit, np.ones(fit.problem.policy.num_cells, dtype=int), **budget)
    mean = float(np.sqrt(np.mean(out.stddev**2)))
    assert out.plan.mu is None
    assert fit.rmse(**budget) == pytest.approx(mean, rel=1e-9)
    np.testing.assert_allclose(fit.per_query_stddev(**budget), out.stddev, rtol=1e-9, atol=1e-12)
    assert fit.epsilon_for(rmse=mean, delta=1e-6, accounting="zcdp") == pytest.approx(1.0, rel=1e-9)


def test_fit_with_a_budget_tells_what_the_dry_run_tells(tmp_path):
    (tmp_path / "p.toml").write_text(
        '[policy]\nspec = "threshold:8:2"\n[workload]\nspec = "prefix:8"\n[fit]\nout = "p.bf"\n'
        "[release]\nepsilon = 1.0\ndelta = 1e-6\n"
    )

    def told(*arguments):
        command = [sys.executable, "-m", "hdmm_bf", *arguments, "--json"]
        return json.loads(subprocess.run(command, capture_output=True, cwd=tmp_path, check=True).stdout)["rmse"]

    at_fit = told("fit", "p.toml")
    assert at_fit == pytest.approx(told("release", "p.bf", "--epsilon", "1", "--delta", "1e-6", "--dry-run"), rel=1e-9)
