"""Blocks that join attributes, of any kind: certificate and exact noise against the definitions, written out."""

import dataclasses

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate import certify, exact_sensitivity
from hdmm_bf.certificate.exact import GRID_BITS
from hdmm_bf.certificate.exact.joined import joined_sensitivity
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.release.joined_noise import JoinedNoise
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch
from hdmm_bf.strategies.joined_blocks import joined_block, joined_gains
from tests.support.joined_blocks import (
    PROBLEMS,
    left,
    loss,
    moves,
    problem_of,
    random_block,
    seeded,
    split,
    summed,
    totals_of,
    written_out,
)

SEVERAL = [name for name, case in PROBLEMS.items() if len(set(case.keeps)) > 1]


def drawn(problem, block, rng, written):
    y = rng.integers(-50, 50, len(written.weights))
    return y, rng.integers(-(2**14), 2**14, len(written.T))


@pytest.mark.parametrize("name", PROBLEMS)
def test_kept_totals_are_the_sums_that_no_hidden_move_changes(name):
    """Every move along a hidden attribute has S p = 0, and S has all the totals that its docstring names."""
    problem, block = random_block(name)
    S, kept = kept_totals(as_product(problem), block.axes, block.hides)
    wanted, keeps = totals_of(problem, block.axes, block.hides)
    assert np.array_equal(S.toarray(), wanted.astype(float))
    assert kept == keeps
    written = written_out(problem, block)
    assert not any(np.any(written.S.dot(p)) for p in moves(problem, block.hides))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_sensitivity_is_the_largest_loss_over_all_edges(name):
    """Quotes exact: `joined_sensitivity` is exact."""
    problem, block = random_block(name)
    product, wanted = as_product(problem), loss(written_out(problem, block), moves(problem, block.hides))
    assert joined_sensitivity(product.sizes, product.edges, block) == wanted
    cells = 2 << block.bits if left(problem, block) else 0
    found = exact_sensitivity(summed(problem, block), problem, "laplace")
    assert found == max(wanted, cells) << (GRID_BITS - block.bits)


@pytest.mark.parametrize(
    ("name", "attribute"), [(name, i) for name, case in PROBLEMS.items() if len(case.hides) > 1 for i in case.hides]
)
def test_the_sensitivity_is_exact_along_every_attribute_by_itself(name, attribute):
    """No kind of moves hides behind another that loses more."""
    problem, block = random_block(name)
    product = as_product(problem)
    own = dataclasses.replace(block, hides=(attribute,))
    edges = tuple(e if i == attribute else e[:0] for i, e in enumerate(product.edges))
    wanted = loss(written_out(problem, block), moves(problem, (attribute,)))
    assert joined_sensitivity(product.sizes, edges, own) == wanted


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_move_of_the_noise_is_a_move_of_the_sum_whatever_the_gains(name):
    """Quotes JoinedBlock: y shifted by p and z_l by T_l p is N shifted by p, exactly."""
    problem, block = random_block(name)
    own, written = JoinedNoise(as_product(problem), block), written_out(problem, block)
    y, z = drawn(problem, block, seeded(name), written)
    before, count = own.exact(*split(problem, block, y, z)).ravel(), 0
    for p in moves(problem, block.hides):
        shifted = split(problem, block, y + p, z + written.T.dot(p))
        assert np.array_equal(own.exact(*shifted).ravel() - before, p << own.places)
        count += 1
    assert count, "there are moves"


@pytest.mark.parametrize("name", ["hidden by another", "bounded inside"])
def test_a_change_of_what_is_not_hidden_is_seen_in_the_sum(name):
    """The control of the test above: gains of the totals change what moves that others hide, or nobody, do to N."""
    problem, block = random_block(name)
    own, written = JoinedNoise(as_product(problem), block), written_out(problem, block)
    y, z = drawn(problem, block, seeded(name), written)
    p = 0 * y
    p[[0, -1]] = 1, -1
    before = own.exact(*split(problem, block, y, z)).ravel()
    after = own.exact(*split(problem, block, y + p, z + written.T.dot(p))).ravel()
    assert not np.array_equal(after - before, p.astype(object) << own.places)


@pytest.mark.parametrize("name", PROBLEMS)
def test_exact_noise_is_the_formula_in_fractions(name):
    problem, block = random_block(name)
    own, rng = JoinedNoise(as_product(problem), block), seeded(name)
    written = written_out(problem, block)
    y, z = drawn(problem, block, rng, written)
    wanted, exact = written.noise(y, z), own.exact(*split(problem, block, y, z))
    assert exact.shape == as_product(problem).sizes
    assert all(isinstance(value, int) for value in exact.ravel())
    assert all(value == n * 2**own.places for value, n in zip(exact.ravel().tolist(), wanted, strict=True))
    assert own.noise_size == y.size + z.size


@pytest.mark.parametrize("name", ["two hidden", "three outside", "unbounded outside"])
def test_exact_noise_is_the_formula_for_numbers_beyond_64_bits(name):
    problem, block = random_block(name)
    own, written = JoinedNoise(as_product(problem), block), written_out(problem, block)
    y, z = (part.astype(object) * 3**50 for part in drawn(problem, block, seeded(name), written))
    exact = own.exact(*split(problem, block, y, z)).ravel().tolist()
    assert exact == [int(n * 2**own.places) for n in written.noise(y, z)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_approximate_noise_is_the_exact_one_for_every_draw(name):
    problem, block = random_block(name)
    own, rng = JoinedNoise(as_product(problem), block), seeded(name)
    written = written_out(problem, block)
    pairs = [drawn(problem, block, rng, written) for _ in range(3)]
    parts = [split(problem, block, *pair) for pair in pairs]
    y = np.concatenate([part[0] for part in parts], axis=-1)
    z = [np.concatenate(own_z, axis=-1) for own_z in zip(*(part[1] for part in parts), strict=True)]
    wanted = np.stack([written.noise(*pair).astype(float) for pair in pairs], axis=-1)
    found = own.approximate(y, z)
    assert found.shape == (*as_product(problem).sizes, 3)
    np.testing.assert_allclose(found.reshape(-1, 3), wanted, rtol=1e-12, atol=1e-8)


@pytest.mark.parametrize("name", PROBLEMS)
def test_error_and_variances_are_those_of_the_noise_written_out(name):
    problem, block = random_block(name)
    made, C = summed(problem, block), written_out(problem, block).covariance()
    W = problem.workload.matrix.dense()
    derived = certify(made, problem, noise="laplace", proof=None)
    cells = len(made.blocks) * np.vdot(W, W)
    assert derived.unit_error == pytest.approx(derived.sensitivity**2 * (np.trace(W @ C @ W.T) + cells), rel=1e-9)
    own, terms = JoinedNoise(as_product(problem), block), as_product(problem).terms
    spreads = own.unit_spreads()
    found = np.concatenate([own.of_term(spreads, term) for term in terms])
    np.testing.assert_allclose(found, np.einsum("ij,jk,ik->i", W, C, W), rtol=1e-8, atol=1e-6)
    assert own.total(spreads, terms) == pytest.approx(found.sum(), rel=1e-9)
    boxes = bf.workload.parse(f"random-range:{problem.policy.domain}:20:seed=1")
    rows, chosen = boxes.matrix.dense(), np.array([0, 3, 7, 19])
    found = own.of_boxes(spreads, boxes.matrix, np.arange(20))
    np.testing.assert_allclose(found, np.einsum("ij,jk,ik->i", rows, C, rows), rtol=1e-8, atol=1e-6)
    np.testing.assert_allclose(own.of_boxes(spreads, boxes.matrix, chosen), found[chosen], rtol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_variances_of_any_scales_are_those_of_the_noise_written_out(name):
    """Also of queries with signs and weights, which see little of what is even over an attribute."""
    problem, block = random_block(name)
    rng, product = seeded(name), as_product(problem)
    values, rows = rng.uniform(0.5, 4, block.weights.size), 0.3
    own, written = JoinedNoise(product, block), written_out(problem, block)
    numbered = written_out(problem, dataclasses.replace(block, weights=np.arange(block.weights.size)))
    C = written.covariance(values[numbered.weights.astype(int)], rows)
    factors = [rng.normal(size=(2, size)) for size in product.sizes]
    term = dataclasses.replace(product.terms[0], weight=1.5, factors=tuple(map(bf.matrix.Dense, factors)))
    W = np.ones((1, 1))
    for factor in factors:
        W = np.kron(W, factor)
    spreads = own.spreads(values, rows)
    wanted = 1.5**2 * np.einsum("ij,jk,ik->i", W, C, W)
    np.testing.assert_allclose(own.of_term(spreads, term), wanted, rtol=1e-8, atol=1e-9)
    assert own.total(spreads, [term]) == pytest.approx(wanted.sum(), rel=1e-9)


def least_squares(problem, block):
    """The least error of all gains: (A^T A)^-1 for A of weights and rows over all cells, given the totals."""
    written = written_out(problem, block)
    A = np.vstack([np.diag(written.weights.astype(float)), written.T.astype(float)]) / 2.0**block.bits
    Y, S = np.linalg.inv(A.T @ A), written.S.astype(float)
    if len(S):
        Y = Y - Y @ S.T @ np.linalg.solve(S @ Y @ S.T, S @ Y)
    W = problem.workload.matrix.dense()
    return Y, float(np.trace(W @ Y @ W.T))


def error_of(problem, block):
    own = JoinedNoise(as_product(problem), block)
    return own.total(own.unit_spreads(), as_product(problem).terms)


@pytest.mark.parametrize("name", PROBLEMS)
def test_gains_of_least_squares_have_the_least_error_that_rows_allow(name):
    """Quotes joined_block: gains that are best for it."""
    problem, block = random_block(name)
    fine = dataclasses.replace(block, gain_bits=40)
    gains, totals = joined_gains(as_product(problem), fine)
    layers = tuple(dataclasses.replace(layer, gains=g) for layer, g in zip(block.layers, gains, strict=True))
    best = dataclasses.replace(fine, layers=layers, totals=totals)
    Y, least = least_squares(problem, block)
    assert error_of(problem, best) == pytest.approx(least, rel=1e-6)
    assert error_of(problem, block) > least
    written = written_out(problem, best)
    np.testing.assert_allclose(written.covariance(), Y, rtol=1e-5, atol=1e-5 * Y.max())
    assert joined_loss(problem, best) == joined_loss(problem, block)


def joined_loss(problem, block):
    product = as_product(problem)
    return joined_sensitivity(product.sizes, product.edges, block)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_sketch_is_put_on_a_grid_with_gains_of_least_squares(name):
    """Rows of zeros and layers of nothing else are left out; weights are at least one step of the grid."""
    case, problem, rng = PROBLEMS[name], problem_of(name), seeded(name)
    n = random_block(name)[1].weights.size
    layers = [(keeps, rng.uniform(-0.1, 0.1, (3, n)) * [[1], [0], [1]]) for keeps in case.keeps]
    layers.append(((), np.zeros((2, n))))
    sketch = JoinedSketch(case.axes, case.hides, rng.uniform(0.1, 0.5, n), tuple(layers))
    made = joined_block(as_product(problem), sketch)
    assert (made.axes, made.hides) == (case.axes, case.hides)
    assert [layer.keeps for layer in made.layers] == list(case.keeps)
    for layer, (_, rows) in zip(made.layers, layers, strict=False):
        np.testing.assert_allclose(np.ldexp(layer.rows, -made.bits), rows[[0, 2]], atol=2.0**-21)
    np.testing.assert_allclose(np.ldexp(made.weights, -made.bits), sketch.weights, atol=2.0**-13)
    least = least_squares(problem, made)[1]
    assert error_of(problem, made) == pytest.approx(least, rel=1e-6)
    derived = certify(summed(problem, made), problem, noise="laplace", proof=None)
    W = problem.workload.matrix.dense()
    cells = len(left(problem, made)) * np.vdot(W, W)
    assert derived.unit_error == pytest.approx(derived.sensitivity**2 * (least + cells), rel=1e-6)


@pytest.mark.parametrize("name", SEVERAL)
def test_gains_on_more_subsets_than_one_are_needed(name):
    """The control of least squares: the gains on all that a layer keeps, by themselves, are worse."""
    problem, block = random_block(name)
    gains, totals = joined_gains(as_product(problem), block)
    alone = [tuple(g for g in own if g.keeps == layer.keeps) for layer, own in zip(block.layers, gains, strict=True)]
    layers = tuple(dataclasses.replace(layer, gains=g) for layer, g in zip(block.layers, alone, strict=True))
    worse = dataclasses.replace(block, layers=layers, totals=totals, gain_bits=30)
    assert error_of(problem, worse) > 1.0001 * least_squares(problem, block)[1]
