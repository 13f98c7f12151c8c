"""Lower bounds: singular values, random strategies that may not beat them, gradients, rounding."""

import math

import numpy as np
import pytest

from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf._linalg import EIGENVALUE_ERROR, root_sum_lower
from hdmm_bf.bounds.dense import GramRoot, dual_bound, gram_scale, paper_factor, svd_bound, uniform
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.problem.transform import Problem
from tests.support import instances

PROBLEMS = [("all-range:6", "threshold:6:2"), ("prefix:6", "unbounded:6"), ("identity:6", "cycle:6")]


def problem(W, G):
    return Problem(workload.parse(W), policy.parse(G))


@pytest.mark.parametrize(("W", "G"), PROBLEMS)
def test_svd_bound_is_the_papers_formula(W, G):
    """Appendix: (lambda_1 + ... + lambda_s)^2 / n_G from the singular values of W_G."""
    made = problem(W, G)
    singular = np.linalg.svd(made.W_G(), compute_uv=False)
    assert svd_bound(made) == pytest.approx(singular.sum() ** 2 / made.policy.num_edges, rel=1e-10)


@instances.given_policies()
def test_dual_bound_is_the_squared_nuclear_norm(p):
    W = instances.real_matrices(p.num_cells, seed=5)
    made = Problem(workload.from_matrix(W), p)
    mu = np.random.default_rng(p.num_edges).uniform(size=p.num_edges)
    if not p.num_edges:
        assert dual_bound(made, mu) == 0
        return
    expected = np.linalg.norm(made.W_G() * np.sqrt(mu / mu.sum()), "nuc") ** 2
    assert dual_bound(made, mu) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert dual_bound(made, mu) <= expected * (1 + 1e-12) + 1e-12


@instances.given_policies()
def test_no_random_strategy_beats_any_dual_bound(p):
    """Quotes dual_bound: No strategy of L2 (hence of L1) sensitivity 1 has a smaller unit error."""
    made = Problem(workload.identity(p.domain), p)
    P = made.P.dense()
    if P.size == 0:
        return
    rng = np.random.default_rng(p.num_edges + 10)
    W = made.W_D()
    for _ in range(5):
        A = rng.normal(size=(len(P) + 1, len(P)))
        bound = dual_bound(made, rng.uniform(size=p.num_edges) ** 3)
        error = np.linalg.norm(W @ np.linalg.pinv(A)) ** 2
        for order in (1, 2):
            sensitivity = np.linalg.norm(A @ P, order, axis=0).max()
            assert sensitivity**2 * error >= bound * (1 - 1e-9)


def test_the_bound_is_concave_in_the_weights():
    made = problem("prefix:6", "threshold:6:2")
    rng = np.random.default_rng(0)
    for _ in range(10):
        a, b = rng.dirichlet(np.ones(9)), rng.dirichlet(np.ones(9))
        middle = dual_bound(made, (a + b) / 2)
        assert middle >= (dual_bound(made, a) + dual_bound(made, b)) / 2 - 1e-9


@pytest.mark.parametrize(("W", "G"), [*PROBLEMS, ("all-range:5", "bounded:5")])
def test_distances_are_twice_the_gradient_of_the_root_sum(W, G):
    """d_e(X(mu)) = 2 df/dmu_e, by central differences."""
    made = problem(W, G)
    root, forms = GramRoot(made, gram_scale(made)), edge_forms(made.P)
    mu = np.random.default_rng(1).dirichlet(np.ones(made.policy.num_edges))
    d = forms.distances(root.dual_point(forms.laplacian(mu)).X)
    step = 1e-6
    for e in range(mu.size):
        sides = []
        for sign in (1, -1):
            moved = mu.copy()
            moved[e] += sign * step
            sides.append(root.dual_point(forms.laplacian(moved)).root_sum)
        assert 2 * (sides[0] - sides[1]) / (2 * step) == pytest.approx(d[e], rel=1e-5)


def test_line_has_its_closed_form():
    """On a line all ranges have V_G = (n+1) I - J, so the bound is ((n-2) sqrt(n+1) + sqrt 2)^2 / (n-1)."""
    for n in (2, 3, 16, 64):
        closed = ((n - 2) * math.sqrt(n + 1) + math.sqrt(2)) ** 2 / (n - 1)
        assert svd_bound(problem(f"all-range:{n}", f"line:{n}")) == pytest.approx(closed, rel=1e-11)
        assert svd_bound(problem(f"prefix:{n}", f"line:{n}")) == pytest.approx(n - 1, rel=1e-11)


def test_the_sum_of_roots_is_rounded_down_by_the_error_of_the_eigenvalues():
    """Quotes root_sum_lower: true eigenvalue at least its computed value minus EIGENVALUE_ERROR n lambda_max."""
    values = np.array([0.0, 1e-18, 4.0, 9.0])
    assert root_sum_lower(values) < 5.0
    assert root_sum_lower(values) == pytest.approx(5.0, rel=1e-14)
    rng = np.random.default_rng(3)
    for n in (5, 40, 120):
        Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        true = 10.0 ** rng.uniform(-16, 0, size=n)
        computed = np.linalg.eigvalsh((Q * true) @ Q.T)
        assert np.abs(np.sort(true) - computed).max() <= EIGENVALUE_ERROR * n * true.max()
        assert root_sum_lower(computed) <= np.sqrt(true).sum()


def test_the_papers_factor_has_its_name():
    assert paper_factor(1.0, 0.001) == pytest.approx(2 * math.log(2000))
    for bad in ((0.0, 0.1), (1.0, 0.0), (1.0, 1.0), (-1.0, 0.5)):
        with pytest.raises(InputError, match=r"paper_factor.*needs epsilon > 0.*Correct"):
            paper_factor(*bad)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(3), "3 weights.*5 edges.*one for each"),
        (np.array([1, 1, 1, 1, -1.0]), "weight -1.0.*not be negative"),
        (np.zeros(5), "not be negative, nor all zero"),
        (np.array([1, 1, 1, 1, np.nan]), "must be finite"),
    ],
)
def test_bad_weights_are_refused(weights, words):
    with pytest.raises(InputError, match=words):
        dual_bound(problem("prefix:6", "line:6"), weights)


def test_uniform_weights_sum_to_one():
    assert uniform(7).sum() == pytest.approx(1)
    assert uniform(0).size == 0
