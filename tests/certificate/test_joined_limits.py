"""Blocks that join attributes with sizes of all kinds: refused in words, or stated and released as they are."""

import dataclasses
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf.certificate import certify
from hdmm_bf.strategies.records import JoinedBlock, NoiseSum


def block(axes, hides, weights, rows, gains, bits=0, gain_bits=0):
    n = len(weights)
    whole = [np.array(part, dtype=np.int64) for part in (weights, rows, gains)]
    return JoinedBlock(axes, hides, whole[0], whole[1].reshape(len(rows), n), bits, whole[2], gain_bits)


def fitted(problem, own):
    """A fit of one joined block, by hand."""
    made = NoiseSum((), (), "by hand", (own,))
    found = bf.fit(problem.workload, problem.policy, noise="laplace", max_steps=1)
    return dataclasses.replace(found, strategy=made, certificate=certify(made, problem, noise="laplace", proof=None))


def refused(problem, own, match):
    with pytest.raises(bf.InputError, match=match):
        certify(NoiseSum((), (), "by hand", (own,)), problem, noise="laplace", proof=None)


def test_a_block_without_rows_and_totals_is_released():
    problem = bf.problem("identity:2x2", policies.parse("product:unbounded:2,empty:2"))
    fit = fitted(problem, block((0, 1), 0, [1] * 4, [], np.zeros((4, 0))))
    assert fit.unit_error == pytest.approx(4.0)
    out = bf.release(fit, np.arange(4), epsilon=0.01)
    np.testing.assert_allclose(out.stddev, math.sqrt(2) * 100, rtol=1e-4)


def test_what_the_first_value_of_a_component_gains_changes_nothing():
    """Q takes it off again: N_2 = y_2 - 77/256 (y_1 + y_2) and N_1 = -N_2, with or without; identity sees both."""
    problem = bf.problem("identity:2x1", policies.parse("product:line:2,empty:1"))
    wanted = 4 * ((77 / 256) ** 2 + (179 / 256) ** 2)
    for gain in (0, 2**22):
        own = block((0, 1), 0, [2**24] * 2, [[2**38 - 2**25] * 2], [[gain, 0], [0, 77]], gain_bits=8)
        fit = fitted(problem, own)
        assert fit.unit_error == pytest.approx(2 * wanted)
        out = bf.release(fit, np.array([3, 4]), epsilon=1.0)
        discrete = 2 * math.exp(-0.5) / math.expm1(-0.5) ** 2  # of whole numbers at scale 2, instead of 8
        np.testing.assert_allclose(out.stddev, math.sqrt(discrete * wanted / 4), rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "rows", "gains"),
    [
        ([1, 1], np.eye(2) * 2**30, np.eye(2) * 2**30),
        ([1, 2**20], np.zeros((0, 2)), np.zeros((2, 0))),
        ([2**20, 2**20], np.eye(2), [[2**50, 0], [0, 1]]),
    ],
    ids=["huge noise that rows take off", "weights far apart", "huge gains"],
)
def test_a_block_whose_variances_drown_in_rounding_is_refused(weights, rows, gains):
    problem = bf.problem("identity:2x1", policies.parse("product:unbounded:2,empty:1"))
    refused(problem, block((0, 1), 0, weights, rows, gains, 30, 30), "too uneven")


def test_a_block_of_more_values_than_sums_are_exact_for_is_refused():
    problem = bf.problem("marginals:2x200x200:1", policies.parse("product:unbounded:2,empty:200,empty:200"))
    n = 2 * 200 * 200
    refused(problem, block((0, 1, 2), 0, [1] * n, [[1] * n], np.zeros((n, 1))), "too large to be run exactly")


def test_a_block_of_more_rows_than_sums_are_exact_for_is_refused():
    problem = bf.problem("identity:2x1", policies.parse("product:unbounded:2,empty:1"))
    rows = np.zeros((2**16 + 1, 2))
    refused(problem, block((0, 1), 0, [1, 1], rows, rows.T), "too large to be run exactly")


def test_a_block_of_rows_whose_covariances_do_not_fit_in_memory_is_refused():
    problem = bf.problem("identity:2x1", policies.parse("product:unbounded:2,empty:1"))
    rows = np.zeros((2**14, 2))
    refused(problem, block((0, 1), 0, [1, 1], rows, rows.T), "memory")
