"""Simultaneous intervals: how often releases have every answer inside, by the noise's own law, with controls."""

import json
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.release import simultaneous
from hdmm_bf.release.publish import publish
from hdmm_bf.strategies.records import EdgeStrategy
from tests.support.command_line import call
from tests.support.fits import shipped
from tests.support.ledgers import refused

LEVEL = 0.9


def marginals():
    return bf.fit("marginals:2x3:1", "product:bounded:2,bounded:3", family="marginals")


FITS = {
    "gaussian": (lambda: bf.fit("all-range:6", "threshold:6:2"), {"rho": 0.1}),
    "gaussian by way of zCDP": (lambda: bf.fit("all-range:4", "threshold:4:2"), {"rho": 0.1, "accounting": "zcdp"}),
    "laplace": (
        lambda: bf.certify("all-range:6", "line:6", np.tril(np.ones((5, 6))), noise="laplace"),
        {"epsilon": 1.0},
    ),
    "laplace on edges": (
        lambda: shipped(
            bf.problem("all-range:4", "cycle:4"), EdgeStrategy(np.eye(4, dtype=np.int64) << 16, 16, "test")
        ),
        {"epsilon": 1.0},
    ),
    "norm": (
        lambda: bf.fit("all-range:5", "threshold:5:2", noise="norm", family="chain", max_steps=1),
        {"epsilon": 1.0},
    ),
    "blocks": (marginals, {"rho": 0.1}),
    "bases": (lambda: bf.fit("all-range:3x3", "threshold:3x3:1", family="bases"), {"rho": 0.1}),
    "laplace, sums of noise": (
        lambda: bf.fit("all-range:3x3", "threshold:3x3:1", noise="laplace", family="directions", max_seconds=2.0),
        {"epsilon": 1.0},
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_all_answers_are_inside_as_often_as_the_level_says(name):
    """Quotes Release.interval: with probability `level`, not one misses its true answer.

    The share of N releases that are inside has standard error sqrt(p (1 - p) / N); five are allowed, and above also
    those of the simulation. Intervals of single answers, and simultaneous ones 30 % narrower, must fail.
    """
    make, asked = FITS[name]
    fit, count = make(), 400
    settled = bf.plan(fit, **asked)
    x = 5 * np.arange(fit.problem.policy.num_cells)
    truth = fit.problem.workload.matrix.mv(x)
    first = publish(settled, fit, x)
    low, high = first.interval(LEVEL, simultaneous=True)
    width = (high - low) / 2
    assert simultaneous.method(fit.recovery, truth.size, LEVEL) == "all at once, simulated"
    errors = np.array([np.abs(publish(settled, fit, x).answers - truth) for _ in range(count)])
    room = 5 * math.sqrt(LEVEL * (1 - LEVEL) / count)
    above = 6 * math.sqrt(LEVEL * (1 - LEVEL) / simultaneous.draws_for(fit.recovery, truth.size, LEVEL))

    def share(half):
        return np.all(errors <= half + 1e-9, axis=1).mean()

    lumps = 0.06 if name == "norm" else 0.0  # whole numbers: the largest error has few values
    assert LEVEL - room <= share(width) <= LEVEL + above + room + lumps
    low, high = first.interval(LEVEL)
    assert share((high - low) / 2) < LEVEL - room
    assert share(0.7 * width) < LEVEL - room
    exact = fit.recovery.variances(fit.problem.workload, settled) == 0
    assert np.all(width[exact] == 0)


def test_one_query_alone_is_pointwise():
    fit = FITS["gaussian"][0]()
    out = bf.release(fit, np.arange(6), rho=0.1)
    alone, usual = out.interval(0.95, [7], simultaneous=True), out.interval(0.95, [7])
    assert (alone.high - alone.low)[0] == pytest.approx((usual.high - usual.low)[0], rel=0.06)
    every = out.interval(0.95, simultaneous=True)
    assert np.all((every.high - every.low)[7] > 1.2 * (usual.high - usual.low))


@pytest.mark.parametrize("name", ["gaussian", "laplace", "norm", "blocks"])
def test_too_many_answers_get_the_union_bound_and_say_so(name, monkeypatch):
    """Quotes simultaneous_widths: or the union bound over the intervals of single answers holds."""
    make, asked = FITS[name]
    fit = make()
    out = bf.release(fit, np.arange(fit.problem.policy.num_cells), **asked)
    low, high = out.interval(LEVEL, simultaneous=True)
    monkeypatch.setattr(simultaneous, "_MOST_ENTRIES", 1)
    wide = out.interval(LEVEL, simultaneous=True)
    noisy = high > low
    assert simultaneous.method(fit.recovery, low.size, LEVEL) == "all at once, union bound"
    room = 0.98  # simulated widths are three standard errors above theirs, and few answers are nearly independent
    assert np.all((wide.high - wide.low)[noisy] > room * (high - low)[noisy])
    single = out.interval(LEVEL)
    assert np.all((wide.high - wide.low)[noisy] > 1.1 * (single.high - single.low)[noisy])
    if name == "gaussian":
        from scipy.stats import norm

        z = norm.isf(0.1 / noisy.sum() / 2)
        assert (wide.high - wide.low)[noisy] == pytest.approx(2 * z * out.stddev[noisy])


def test_levels_beyond_the_draws_get_the_union_bound():
    fit = FITS["gaussian"][0]()
    assert simultaneous.draws_for(fit.recovery, 21, 0.99999) == 0
    assert simultaneous.draws_for(fit.recovery, 21, 0.99) > 1000
    refused(lambda: bf.release(fit, np.arange(6), rho=0.1).interval(1.0, simultaneous=True), "between 0 and 1")


def test_public_answers_alone_need_no_width():
    fit = bf.fit("identity:4", "empty:4", noise="laplace")
    low, high = bf.release(fit, np.arange(4), epsilon=1.0).interval(0.9, simultaneous=True)
    assert low.tolist() == high.tolist() == [0, 1, 2, 3]


def test_frames_and_files_can_have_them(tmp_path):
    pytest.importorskip("pandas")
    fit = FITS["gaussian"][0]()
    out = bf.release(fit, np.arange(6), rho=0.1)
    each, together = out.to_frame("pandas"), out.to_frame("pandas", simultaneous=True)
    wide = (each.high - each.low).to_numpy() > 0  # the last prefix is public
    assert wide.sum() == len(each) - 1
    assert np.all((together.high - together.low)[wide] > 1.2 * (each.high - each.low)[wide])
    other = out.to_frame("pandas", queries=bf.workload.parse("prefix:6"), simultaneous=True)
    assert len(other) == 6
    fit.save(tmp_path / "g.bf")
    np.save(tmp_path / "x.npy", np.arange(6))
    told = call(
        "release", "g.bf", "-d", "x.npy", "-o", "a.csv", "--rho", "0.1", "--simultaneous", "--json", cwd=tmp_path
    )
    assert json.loads(told.stdout)["simultaneous"] is True
    notes = json.loads((tmp_path / "a.csv-metadata.json").read_text())["notes"][0]
    assert notes["interval"] == "95 %, all at once, simulated"
