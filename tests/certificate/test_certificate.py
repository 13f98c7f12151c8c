"""The certificate: exact sensitivity, and refusal of everything that is not as claimed."""

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import certify, disagreements, exact_sensitivity
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import CellStrategy
from tests.support import instances


@pytest.fixture(scope="module")
def made():
    return bf.fit("all-range:12", "threshold:12:3")


def derive(made, **changes):
    given = {"integers": made.strategy.integers, "bits": made.strategy.bits, "weights": made.weights, **changes}
    strategy = CellStrategy(given["integers"], given["bits"], "test")
    return certify(strategy, made.problem, noise="gaussian", proof={"kind": "edges", "weights": given["weights"]})


def exact_by_definition(integers, p, noise):
    """Largest L1 norm, or squared L2 norm, over the edges, in Python integers."""
    best = 0
    for u, v in p.edges.tolist():
        difference = [int(row[u]) - (0 if v == -1 else int(row[v])) for row in integers]
        best = max(best, sum(map(abs, difference)) if noise == "laplace" else sum(t * t for t in difference))
    return best


@instances.given_policies()
def test_the_sensitivity_of_integers_is_exact(p):
    """Quotes certify: `sensitivity_exact` is exact."""
    made = Problem(workload.identity(p.domain), p)
    rng = np.random.default_rng(p.num_edges)
    for top in (3, 2**30, 2**51):
        integers = rng.integers(-top, top, size=(4, p.num_cells))
        integers[:, rng.integers(p.num_cells)] = integers[:, rng.integers(p.num_cells)]  # ties
        for noise in ("laplace", "gaussian"):
            assert exact_sensitivity(CellStrategy(integers, 0, "test"), made, noise) == exact_by_definition(
                integers, p, noise
            )


def test_the_exact_sensitivity_tells_neighbours_of_one_unit_apart():
    """Two edges whose squared norms differ by 1 in 10^24: floating point cannot tell, the certificate does."""
    big = 2**40
    integers = np.array([[big, 0, 0, big], [0, 1, 0, 0]], dtype=np.int64)
    p = policy.from_edges([0, 1], [-1, 3], 4)
    made = Problem(workload.identity(4), p)
    assert exact_sensitivity(CellStrategy(integers, 0, "test"), made, "gaussian") == big * big + 1


def test_a_certificate_is_derived_from_the_integers_alone(made):
    again = derive(made)
    assert again == made.certificate
    A = made.strategy.matrix()
    P = made.problem.P.dense()
    A_D, W_D = A[:, :11] - A[:, [11]], made.problem.W_D()
    sensitivity = np.linalg.norm(A_D @ P, axis=0).max()
    assert again.sensitivity == pytest.approx(sensitivity, rel=1e-14)
    assert again.unit_error == pytest.approx(sensitivity**2 * np.linalg.norm(W_D @ np.linalg.pinv(A_D)) ** 2, rel=1e-10)
    singular = np.linalg.svd(made.problem.W_G(), compute_uv=False)
    assert again.svd_bound == pytest.approx(singular.sum() ** 2 / made.problem.policy.num_edges, rel=1e-10)
    weighted = made.problem.W_G() * np.sqrt(made.weights)
    assert again.lower_bound == pytest.approx(np.linalg.norm(weighted, "nuc") ** 2, rel=1e-10)
    assert Fraction(again.sensitivity) ** 2 * 4**again.bits == pytest.approx(again.sensitivity_exact, rel=1e-14)


def test_a_scaled_strategy_disagrees_with_its_claims(made):
    scaled = derive(made, integers=2 * made.strategy.integers)
    assert scaled.unit_error == pytest.approx(made.unit_error)
    found = " ".join(disagreements(made.certificate.as_dict(), scaled))
    assert "sensitivity_exact is claimed" in found
    assert "sensitivity is claimed" in found


def test_a_single_changed_integer_disagrees(made):
    integers = made.strategy.integers.copy()
    integers[0, 0] += 1 << (made.strategy.bits - 4)
    assert disagreements(made.certificate.as_dict(), derive(made, integers=integers))


def test_a_strategy_that_does_not_support_the_workload_is_refused(made):
    """Quotes certify: Raises if the strategy does not support the workload."""
    with pytest.raises(InputError, match=r"with 10 rows.*of some query lies outside the strategy's row space.*biased"):
        derive(made, integers=made.strategy.integers[1:])
    with pytest.raises(InputError, match="outside the strategy's row space"):
        derive(made, integers=made.strategy.integers[:0])


def test_a_strategy_with_more_rows_than_cells_or_dependent_rows_is_measured_right(made):
    twice = derive(made, integers=np.vstack([made.strategy.integers, made.strategy.integers]))
    assert twice.unit_error == pytest.approx(made.unit_error, rel=1e-9)
    assert twice.sensitivity == pytest.approx(made.certificate.sensitivity * np.sqrt(2), rel=1e-12)


def test_wrong_bounds_disagree(made):
    for name in ("svd_bound", "lower_bound", "unit_error", "gap"):
        claimed = made.certificate.as_dict()
        claimed[name] = claimed[name] * 1.0001 + 1e-6
        assert any(name in item for item in disagreements(claimed, made.certificate))
    uniform = derive(made, weights=np.ones_like(made.weights))
    assert uniform.lower_bound < made.bounds.lower
    assert any("lower_bound" in item for item in disagreements(made.certificate.as_dict(), uniform))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "9", True])
def test_claims_that_are_not_numbers_disagree(made, value):
    claimed = {**made.certificate.as_dict(), "unit_error": value}
    assert any("unit_error" in item for item in disagreements(claimed, made.certificate))
    del claimed["unit_error"]
    assert any("unit_error is missing" in item for item in disagreements(claimed, made.certificate))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": np.full(30, np.nan)}, "must be finite"),
        ({"weights": np.full(30, -1.0)}, "not negative"),
        ({"weights": np.zeros(30)}, "not all zero"),
        ({"weights": np.ones(4)}, "4 weights.*30 edges"),
        ({"integers": np.zeros((3, 5), dtype=np.int64)}, "3 x 5.*12 cells"),
        ({"integers": np.full((11, 12), 2**53)}, "out of range"),
        ({"bits": -1}, "out of range"),
        ({"integers": np.full((11, 12), np.iinfo(np.int64).min)}, "out of range"),
    ],
)
def test_inputs_out_of_shape_or_range_are_refused(made, change, words):
    with pytest.raises(InputError, match=words):
        derive(made, **change)


def test_the_certificate_shares_no_code_with_the_search():
    """Also held by the layering test: no import of error, bounds or strategies."""
    for name in ("dense", "products", "exact", "certificate"):
        source = Path(sys.modules[f"hdmm_bf.certificate.{name}"].__file__).read_text()
        for other in ("strategies.", "bounds", "problem.forms", "_linalg", "objectives"):
            assert f"hdmm_bf.{other}" not in source.replace("hdmm_bf.strategies.records", "")


@pytest.mark.parametrize("small", [2**13, 2**8, 1])
def test_the_error_of_a_light_query_is_not_understated(small):
    """W = diag(1, 1e-8): a strategy that measures the light cell badly pays for it, to the last digit."""
    W, integers = np.diag([1.0, 1e-8]), np.diag([2**40, small])
    made = Problem(workload.from_matrix(W), policy.unbounded(2))
    derived = certify(
        CellStrategy(integers, 0, "test"),
        made,
        noise="laplace",
        proof={"kind": "edges", "weights": np.array([0.5, 0.5])},
    )
    true = float(2**80) * (1 / 2**80 + 1e-16 / small**2)
    assert derived.unit_error == pytest.approx(true, rel=1e-12)


def test_an_error_below_the_proven_bound_is_a_contradiction(made, monkeypatch):
    monkeypatch.setattr("hdmm_bf.certificate.dense._trace", lambda *arguments, **options: 1e-9)
    with pytest.raises(InputError, match="is below the proven bound.*cannot be trusted"):
        derive(made)


def test_what_is_no_record_of_a_strategy_has_no_certificate(made):
    with pytest.raises(TypeError, match="no certificate for ndarray"):
        certify(made.strategy.matrix(), made.problem, noise="gaussian", proof=made.proof)
