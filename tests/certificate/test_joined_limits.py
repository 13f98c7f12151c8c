"""Blocks that join attributes with sizes of all kinds: refused in words, or stated and released as they are."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf.certificate import certify
from hdmm_bf.problem.product import as_product
from hdmm_bf.release.joined_noise import JoinedNoise
from hdmm_bf.strategies.joined_blocks import joined_gains
from hdmm_bf.strategies.records import Gains, JoinedBlock, Layer, NoiseSum
from tests.support.joined_blocks import written_out


def block(axes, hides, weights, layers=(), totals=(), bits=0, gain_bits=0):
    """Layers are what each keeps, its rows, and its gains; gains are what they keep and numbers."""
    made = tuple(Layer(keeps, whole(rows), gains(own)) for keeps, rows, own in layers)
    return JoinedBlock(axes, hides, whole(weights), made, gains(totals), bits, gain_bits)


def gains(those):
    return tuple(Gains(keeps, whole(numbers)) for keeps, numbers in those)


def whole(numbers):
    return np.array(numbers, dtype=np.int64)


def fitted(problem, own):
    """A fit of one joined block, by hand."""
    made = NoiseSum((), (), "by hand", (own,))
    found = bf.fit(problem.workload, problem.policy, noise="laplace", max_steps=1)
    return dataclasses.replace(found, strategy=made, certificate=certify(made, problem, noise="laplace", proof=None))


def refused(problem, own, match):
    with pytest.raises(bf.InputError, match=match):
        certify(NoiseSum((), (), "by hand", (own,)), problem, noise="laplace", proof=None)


@pytest.mark.parametrize(
    "layers", [[], [((), np.zeros((0, 4)), [])], [((), [[0] * 4], [])]], ids=["no", "empty", "zero"]
)
def test_a_block_without_rows_and_totals_is_released(layers):
    problem = bf.problem("identity:2x2", policies.parse("product:unbounded:2,empty:2"))
    fit = fitted(problem, block((0, 1), (0,), [1] * 4, layers))
    assert fit.unit_error == pytest.approx(4.0)
    out = bf.release(fit, np.arange(4), epsilon=0.01)
    np.testing.assert_allclose(out.stddev, math.sqrt(2) * 100, rtol=1e-4)


def test_a_layer_that_sums_over_what_is_hidden_loses_nothing_when_records_move_there():
    """Whatever its rows: only where a record comes or goes are they seen."""
    for policy, lost in (("bounded", 2), ("unbounded", 1 + 9)):
        problem = bf.problem("identity:2x3", policies.parse(f"product:empty:2,{policy}:3"))
        own = block((0,), (1,), [1, 1], [((), [[9, -9]], [((), [[0], [0]])])])
        fit = fitted(problem, own)
        assert fit.certificate.sensitivity == lost
        own = block((0,), (1,), [1, 1], [((1,), [[9, -9]], [])])
        assert fitted(problem, own).certificate.sensitivity == (20 if policy == "bounded" else 10)


@pytest.mark.parametrize(
    ("weights", "rows", "numbers"),
    [
        ([1, 1], np.eye(2) * 2**30, np.eye(2) * 2**30),
        ([1, 2**23], np.zeros((0, 2)), np.zeros((2, 0))),
        ([2**20, 2**20], np.eye(2), [[2**50, 0], [0, 1]]),
    ],
    ids=["huge noise that rows take off", "weights far apart", "huge gains"],
)
def test_a_block_whose_variances_drown_in_rounding_is_refused(weights, rows, numbers):
    problem = bf.problem("identity:2x1", policies.parse("product:unbounded:2,empty:1"))
    refused(problem, block((0, 1), (0,), weights, [((), rows, [((), numbers)])], (), 30, 30), "too uneven")


def test_rows_of_several_layers_are_too_uneven_together_or_by_their_sums():
    """No layer by itself is; and gains of totals count as any."""
    problem = bf.problem("identity:2x2", policies.parse("product:bounded:2,empty:2"))
    layers = [((1,), [[2**21, 0]], []), ((), [[2**21, 0]], [])]
    fitted(problem, block((0,), (0,), [1, 1], layers[:1]))
    refused(problem, block((0,), (0,), [1, 1], layers), "too uneven")
    for gain in (2**15, -(2**15), -(2**63)):
        refused(problem, block((0,), (0,), [1, 1], [], [((1,), [[gain], [0]])]), "too uneven")


def test_a_block_of_many_values_may_be_less_uneven():
    """Its covariances are not written out: variances drown where deviations do not."""
    problem = bf.problem("prefix:2x1100", policies.parse("product:unbounded:2,empty:1100"))
    own = block((0, 1), (0,), [1, *[2**15] * 2199])
    refused(problem, own, "too uneven")
    small = bf.problem("prefix:2x1000", policies.parse("product:unbounded:2,empty:1000"))
    assert certify(
        NoiseSum((), (), "by hand", (block((0, 1), (0,), [1, *[2**15] * 1999]),)), small, noise="laplace", proof=None
    )


@pytest.mark.parametrize("seed", range(4))
def test_variances_of_an_uneven_block_are_those_in_fractions(seed):
    """Weights and rows 2^20 apart, gains of least squares on a grid; numbers of the whole formula in fractions."""
    problem, rng = bf.problem("identity:6x2", "product:bounded:6,empty:2"), np.random.default_rng(seed)
    weights = np.rint(2.0 ** rng.uniform(0, 20, 6)).astype(np.int64)
    weights[0] = 1
    rows = np.rint(2.0 ** rng.uniform(0, 18, (4, 6)) * (rng.random((4, 6)) < 0.6))
    plain = block((0,), (0,), weights, [((1,), rows, [])], gain_bits=30)
    ((own,), totals) = joined_gains(as_product(problem), plain)
    made = dataclasses.replace(plain, layers=(dataclasses.replace(plain.layers[0], gains=own),), totals=totals)
    written, identity = (
        written_out(problem, made),
        np.array([[Fraction(int(i == j)) for j in range(12)] for i in range(12)]),
    )
    K, K_S = written.K * Fraction(1, 2**30), written.K_S * Fraction(1, 2**30)
    F = identity - K.dot(written.T) - K_S.dot(written.S)
    columns = F * [1 / Fraction(w) for w in written.weights]
    wanted = [float(sum(v * v for v in row)) for row in np.concatenate([columns, K], axis=1)]
    noise = JoinedNoise(as_product(problem), made)
    (term,) = as_product(problem).terms
    np.testing.assert_allclose(noise.of_term(noise.unit_spreads(), term), wanted, rtol=1e-6)
    derived = certify(NoiseSum((), (), "by hand", (made,)), problem, noise="laplace", proof=None)
    assert derived.unit_error == pytest.approx(derived.sensitivity**2 * sum(wanted), rel=1e-9)


def test_a_block_of_more_values_than_sums_are_exact_for_is_refused():
    problem = bf.problem("marginals:2x200x200:1", policies.parse("product:unbounded:2,empty:200,empty:200"))
    n = 2 * 200 * 200
    refused(problem, block((0, 1, 2), (0,), [1] * n, [((), [[1] * n], [])]), "too large to be run exactly")


def test_a_block_of_more_rows_than_sums_are_exact_for_is_refused():
    problem = bf.problem("identity:2x1", policies.parse("product:unbounded:2,empty:1"))
    for parts in ([2**16 + 1], [2**15, 2**15, 1]):
        layers = [((), np.zeros((p, 2)), [((), np.zeros((2, p)))]) for p in parts]
        refused(problem, block((0, 1), (0,), [1, 1], layers), "too large to be run exactly")


def test_a_block_of_rows_whose_covariances_do_not_fit_in_memory_is_refused():
    problem = bf.problem("identity:2x1", policies.parse("product:unbounded:2,empty:1"))
    rows = np.zeros((2**14, 2))
    refused(problem, block((0, 1), (0,), [1, 1], [((), rows, [((), rows.T)])]), "memory")


def test_a_block_with_more_sectors_than_can_be_looked_at_is_refused():
    """Nine attributes outside that a layer sums over: 2^9 sectors; eight are looked at. One value is no attribute."""
    for count, size in ((8, 2), (9, 2), (20, 1)):
        sizes = "x".join(["2", *[str(size)] * count])
        problem = bf.problem(f"identity:{sizes}", policies.parse("product:unbounded:2" + f",empty:{size}" * count))
        own = block((0,), (0,), [1, 1], [((), [[1, 1]], [((), [[1], [1]])])])
        if count == 9:
            refused(problem, own, "too large to be run exactly")
        else:
            assert certify(NoiseSum((), (), "by hand", (own,)), problem, noise="laplace", proof=None).unit_error > 0


def test_noise_that_does_not_fit_in_memory_is_refused_before_anything_is_drawn():
    """Ten thousand rows of zeros in a table of 700,000 values are kilobytes in a file, and 50 GB of noise."""
    problem = bf.problem("marginals:2x1000x700:1", policies.parse("product:unbounded:2,empty:1000,empty:700"))
    zeros = np.zeros((10_000, 2))
    fit = fitted(problem, block((0,), (0,), [1, 1], [((1, 2), zeros, [((1, 2), zeros.T)])]))
    with pytest.raises(bf.InputError, match="memory"):
        bf.release(fit, np.zeros(1_400_000, dtype=np.int64), epsilon=1.0)


def test_a_layer_that_keeps_a_joined_attribute_is_not_run():
    """What a release is about to use is checked again, also where a fit was put together by hand."""
    problem = bf.problem("identity:2x2", policies.parse("product:unbounded:2,empty:2"))
    good = block((0, 1), (0,), [1] * 4, [((), [[1] * 4], [((), [[0]] * 4)])])
    fit = fitted(problem, good)
    bad = dataclasses.replace(good, layers=(dataclasses.replace(good.layers[0], keeps=(0,)),))
    changed = dataclasses.replace(fit, strategy=NoiseSum((), (), "by hand", (bad,)))
    with pytest.raises(bf.InputError, match="does not fit the domain"):
        bf.release(changed, [1, 2, 3, 4], epsilon=1.0)


def test_totals_of_components_outside_are_stated_as_they_are():
    """A component's total is public; noise for all of them does not know it, and says so in its deviations."""
    policy = policies.product(policies.line(3), policies.from_edges([0, 2], [1, -1], 3))
    problem = bf.problem("identity:3x3", policy)
    fit = fitted(problem, block((0,), (0, 1), [64, 1, 1], []))
    truth = np.zeros(9, dtype=np.int64)
    drawn = np.array([bf.release(fit, truth, epsilon=64.0).answers for _ in range(400)])
    stated = bf.release(fit, truth, epsilon=64.0).stddev
    np.testing.assert_allclose(drawn.std(axis=0), stated, rtol=0.35, atol=1e-6)


def test_where_nothing_is_protected_nothing_is_off():
    """Without edges no noise is drawn, and every answer has a deviation of zero."""
    problem = bf.problem("prefix:2x2", "product:empty:2,empty:2")
    own = block((0,), (0,), [1, 1], [((), [[1, 2]], [((), [[1], [1]])])], [((1,), [[1, 0], [0, 1]])])
    made = NoiseSum((), (), "by hand", (own,))
    found = bf.fit("prefix:2x2", "product:line:2,empty:2", noise="laplace", max_steps=1)
    derived = certify(made, problem, noise="laplace", proof=None)
    out = bf.release(
        dataclasses.replace(found, problem=problem, strategy=made, certificate=derived), [1, 2, 3, 4], epsilon=1.0
    )
    np.testing.assert_array_equal(out.answers, [1, 3, 4, 10])
    np.testing.assert_array_equal(out.stddev, np.zeros(4))


@pytest.mark.parametrize("gain", [0, 1, -30])
def test_releases_have_the_stated_error_whatever_gains_do_to_public_totals(gain):
    """Totals are put right in the end: what that does to the answers is part of the error, or the block is refused."""
    problem = bf.problem("identity:2x2", "product:line:2,line:2")
    own = block((0, 1), (0, 1), [1] * 4, [], [((), [[gain], [1], [1], [1]])])
    try:
        fit = fitted(problem, own)
    except bf.InputError:
        return
    x, epsilon = np.array([3, 4, 5, 6]), 1.0
    outs = [bf.release(fit, x, epsilon=epsilon) for _ in range(400)]
    squares = np.array([(out.answers - x) ** 2 for out in outs])
    spread = squares.std(axis=0, ddof=1) / math.sqrt(len(outs))
    assert np.all(np.abs(squares.mean(axis=0) - outs[0].stddev ** 2) < 5 * spread)
