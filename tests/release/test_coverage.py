"""Queries that a strategy by factors does not measure are refused: the bias of their answers would go unseen."""

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError

COUNTS = np.random.default_rng(5).integers(0, 100, 60)


@pytest.fixture(scope="module")
def out():
    fit = bf.fit("marginals:3x4x5:1", "sensitive:3x4x5:0,1", family="marginals")
    return bf.release(fit, COUNTS, epsilon=1e4, delta=1e-6)


@pytest.mark.parametrize(
    "spec", ["identity:3x4x5", "all-range:3x4x5", "marginals:3x4x5:2", "random-range:3x4x5:10:seed=1"]
)
def test_a_query_that_is_not_measured_is_refused(spec, out):
    """Quotes check_covered: a workload with a query whose answer would be biased is refused."""
    workload = bf.workload.parse(spec)
    biased = out.recovery.answers(workload, out.measured)
    assert np.abs(biased - workload.matrix.mv(COUNTS)).max() > 10, "noise of this epsilon is far below 1"
    with pytest.raises(InputError, match="asks what the strategy does not measure"):
        out.answer(workload)


def test_ranges_on_a_domain_of_another_shape_are_refused(out):
    with pytest.raises(InputError, match="is on another domain"):
        out.answer(bf.workload.parse("random-range:60:5:seed=1"))


@pytest.mark.parametrize("spec", ["marginals:3x4x5:1", "marginals:3x4x5:0"])
def test_a_query_that_is_measured_is_answered(spec, out):
    workload = bf.workload.parse(spec)
    answers, stddev = out.answer(workload)
    assert stddev.max() < 0.1, "noise of this epsilon is far below 1"
    assert np.all(np.abs(answers - workload.matrix.mv(COUNTS)) <= 7 * stddev + 1e-6)


def test_queries_on_a_domain_beyond_any_histogram_are_checked_with_a_few_records():
    sizes = "x".join(["50"] * 8)
    fit = bf.fit(f"marginals:{sizes}:1", f"sensitive:{sizes}:0,1", family="marginals")
    domain = bf.Domain((50,) * 8)
    records = bf.Records(np.random.default_rng(6).integers(0, 50, size=(30, 8)), domain)
    out = bf.release(fit, records, epsilon=1e4, delta=1e-6)
    answers, stddev = out.answer(bf.workload.parse(f"marginals:{sizes}:1"))
    truth = np.concatenate([records.table([a]) for a in range(8)])
    assert np.all(np.abs(answers - truth) <= 8 * stddev + 1e-6)
    with pytest.raises(InputError, match="asks what the strategy does not measure"):
        out.answer(bf.workload.parse(f"marginals:{sizes}:2"))
