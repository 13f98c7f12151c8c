"""Time limits by a clock that the test turns: what is searched, what is left over, what the status says."""

import itertools
import math
import signal
import time

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.fit import cells, memory, reserve
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.objectives.descent import descend, minimise
from hdmm_bf.problem import inputs
from hdmm_bf.problem.product import as_product, product_view
from hdmm_bf.strategies import Progress, limits, search
from hdmm_bf.strategies.drafts import draft
from hdmm_bf.strategies.gaussian import bases
from hdmm_bf.strategies.gaussian.choose import short_proof
from hdmm_bf.strategies.laplace import p_identity, portfolio
from hdmm_bf.strategies.records import BY_FACTORS


class Turned:
    """A clock that a test turns, or that goes on by itself at every look."""

    def __init__(self, tick=0.0):
        self.time, self.tick = 0.0, tick

    def __call__(self):
        self.time += self.tick
        return self.time


@pytest.fixture
def clock(monkeypatch):
    turned = Turned()
    monkeypatch.setattr(limits, "clock", turned)
    return turned


def steps(clock, seconds, count=100):
    for k in range(count):
        clock.time += seconds
        yield Progress(2.0 + 1 / (k + 1), 1.0, k, None)


def test_a_limit_around_a_search_counts_like_its_own(clock):
    with limits.limited(4.5):
        found = search(steps(clock, 1.0), gap=1e-3)
    assert (found.status, len(found.trace), clock.time) == ("time limit", 5, 5.0)


def test_limits_nest_and_the_earlier_one_counts(clock):
    with limits.limited(10.0), limits.limited(20.0):
        assert limits.time_left() == 10.0
        with limits.limited(3.0):
            assert limits.time_left() == 3.0
        clock.time = 10.0
        assert limits.ending()
    assert limits.time_left() == math.inf
    assert not limits.ending()


def test_a_whole_step_is_not_begun_when_it_would_end_after_the_limit(clock):
    found = search(steps(clock, 2.0), gap=1e-3, max_seconds=7.0, whole_steps=True)
    assert (found.status, clock.time) == ("time limit", 6.0)


def test_a_family_that_ends_because_time_is_up_did_not_finish(clock):
    """Quotes search: A limit of time or steps, or an interruption, is the status unless the gap was reached."""

    def ends_itself():
        for step in steps(clock, 1.0):
            yield step
            if limits.time_left() < 0.5:
                clock.time += 1.0
                return

    with limits.limited(3.2):
        assert search(ends_itself(), gap=1e-3).status == "time limit"
    assert search(iter(list(steps(clock, 0.0, count=2))), gap=1e-3).status == "finished"


def test_a_descent_ends_at_the_limit_and_does_not_begin_after_it(clock):
    """Quotes minimise: At a time limit or an interruption the descent ends where it is."""
    seen = []

    def bowl(flat):
        clock.time += 1.0
        seen.append(flat)
        return float(flat @ (flat * np.arange(1, 51))), 2 * flat * np.arange(1, 51)

    with limits.limited(6.0):
        value = descend(bowl, np.ones(50), steps=100).value
        assert 5 <= len(seen) <= 10
        assert value < 1275
        unmoved = minimise(lambda roots: 0.0, np.ones(3), steps=5)
    assert (unmoved.value, unmoved.steps, unmoved.converged) == (math.inf, 0, False)
    np.testing.assert_array_equal(unmoved.parameters, np.ones(3))


def computed(floors):
    """The first, whatever the time, then the others while there is time."""
    drafts = [floors.first(), *floors]
    assert floors.drafts == drafts
    assert floors.next() is None
    return drafts


def test_floors_that_do_not_fit_the_limit_are_left_out_and_those_reached_are_no_better(clock):
    problem = inputs.problem("all-range:16", "threshold:16:2")
    every = portfolio.Table()
    drafts = computed(portfolio.Floors(problem, every, "L1"))
    clock.tick = 0.1
    with limits.limited(clock.time + 0.35):
        table = portfolio.Table()
        some = computed(portfolio.Floors(problem, table, "L1"))
    assert 1 <= len(some) < len(drafts)
    assert table.errors.items() < every.errors.items()
    with limits.limited(clock.time - 1):
        assert len(computed(portfolio.Floors(problem, portfolio.Table(), "L1"))) == 1


@pytest.mark.parametrize(
    "policy",
    [
        "bounded:10",
        pytest.param("threshold:10:2", marks=pytest.mark.slow),
        pytest.param("unbounded:10", marks=pytest.mark.slow),
    ],
)
def test_a_limited_fit_is_no_worse_than_the_floors_it_lists(policy, clock):
    """Quotes fit: Laplace fits are never worse than any of the paper's and the classical mechanisms in `reached`."""
    clock.tick = 1e-3
    for limit in (0.01, 0.3, 3.0):
        made = bf.fit("all-range:10", policy, noise="laplace", max_seconds=limit, workers=1, effort="thorough")
        assert made.status == "time limit"
        assert made.reached
        assert made.unit_error <= min(made.reached.values()) * (1 + 1e-6)


def test_a_start_is_kept_however_short_the_time(clock):
    """Quotes fit: A Laplace fit is never worse than its start."""
    before = bf.fit("all-range:8", "threshold:8:2", noise="laplace", max_steps=10)
    clock.tick = 1e-3
    after = bf.fit("all-range:8", "threshold:8:2", noise="laplace", max_seconds=1e-3, start=before)
    one = bf.fit("all-range:8", "threshold:8:2", noise="laplace", max_steps=1, start=before)
    assert max(after.unit_error, one.unit_error) <= before.unit_error * (1 + 1e-6)


def test_the_search_leaves_the_predicted_time_of_the_certificate_over():
    asked = FitOptions(max_seconds=10.0, origin=100.0)
    assert asked.until(2.5) == 107.5
    assert asked.until(30.0) == 105.0, "where the certificate alone takes longer, the search gets half"
    assert FitOptions(origin=1.0).until(5.0) == math.inf
    with limits.counting_from(7.0):
        assert FitOptions(max_seconds=10.0).until(2.5) == 14.5, "a command counts from its call"


def test_the_predicted_time_of_a_certificate_grows_with_the_cube_of_its_matrix(monkeypatch):
    monkeypatch.setattr(reserve, "pace", lambda: 1e-9)
    small, large = (inputs.problem(f"prefix:{n}", f"line:{n}") for n in (400, 800))
    ratio = (reserve.dense_seconds(large, "gaussian") - 0.15) / (reserve.dense_seconds(small, "gaussian") - 0.15)
    assert ratio == pytest.approx(8, rel=0.02)
    alone = [reserve.dense_seconds(small, noise) for noise in ("gaussian", "laplace")]
    k, e = small.grounding.kept.size, small.policy.num_edges
    pairs = 1.2e-9 * (8 * k**3 + 1.5 * k**2 * e + 200 * e**2)
    assert alone[1] - alone[0] == pytest.approx(pairs), "sums along the tree, but for pairs of edges"
    grid = inputs.problem("prefix:400", "threshold:400:2")
    assert reserve.dense_seconds(grid, "laplace") > reserve.dense_seconds(grid, "gaussian") + pairs


def test_the_time_of_pairs_by_factors_grows_with_the_cubes_of_what_is_written_out(monkeypatch):
    monkeypatch.setattr(reserve, "pace", lambda: 1e-9)
    expected = {"all-range:20x10": 2 * 2 * (10 * 5) ** 3, "all-range:40x10": 2 * 2 * (20 * 5) ** 3}
    for spec, cubes in expected.items():
        sizes = spec.split(":")[1].split("x")
        product = product_view(inputs.problem(spec, f"product:line:{sizes[0]},line:{sizes[1]}"))
        own = sum(int(n) ** 3 for n in sizes)
        found = reserve.pairing_seconds(product, short_proof(product))
        assert found == pytest.approx(1.2e-9 * 8 * (cubes + own))
    assert reserve.pairing_seconds(product, None) == 0.0
    balls = product_view(inputs.problem("all-range:6x6", "threshold:6x6:2"), balls=True)
    assert reserve.pairing_seconds(balls, short_proof(balls)) == 0.0


def test_cells_are_not_written_out_when_their_certificate_takes_longer_than_the_limit(monkeypatch):
    """The certificate of 1225 cells is said to take a minute: factors, whose certificate is quick, are searched."""
    monkeypatch.setitem(memory.DENSE_CELLS, "laplace", 1100)
    monkeypatch.setattr(cells, "dense_seconds", lambda *_: 60.0)
    quick = bf.fit("all-range:35x35", "unbounded:35x35", noise="laplace", max_seconds=1.0)
    assert quick.strategy.kind in BY_FACTORS


@pytest.mark.parametrize(
    ("workload", "policy", "options"),
    [
        ("prefix:64", "bounded:64", {"gap": 1e-12}),
        ("all-range:6x6", "threshold:6x6:1", {"family": "bases", "gap": 1e-9}),
        ("all-range:6x5", "unbounded:6x5", {"family": "kronecker", "gap": 1e-12}),
        ("marginals:9x4:1", "product:line:9,bounded:4", {"family": "sectors", "gap": 1e-12}),
        ("all-range:6x6", "threshold:6x6:1", {"noise": "laplace", "family": "kronecker"}),
        ("all-range:6x6", "unbounded:6x6", {"noise": "laplace", "family": "cells"}),
        ("all-range:8", "threshold:8:2", {"noise": "laplace"}),
    ],
)
@pytest.mark.parametrize(("limit", "status"), [("max_seconds", "time limit"), ("max_steps", "iteration limit")])
def test_a_search_that_a_limit_stopped_says_so(workload, policy, options, limit, status, clock):
    clock.tick = 1e-3
    made = bf.fit(workload, policy, **options, **{limit: 1e-3 if limit == "max_seconds" else 1})
    assert made.status == status
    assert not made.certified


def test_a_coarse_level_that_ran_out_of_time_is_told(clock):
    product = as_product(inputs.problem("all-range:120x120", "threshold:120x120:1"))
    clock.tick = 1e-3
    short = []
    list(itertools.islice(bases.steps(product, bound=0.0, max_seconds=0.05, out_of_time=short), 2))
    assert short == [60, 120] or short == [60]


def test_a_gap_that_the_grid_misses_is_not_called_converged():
    made = bf.fit("prefix:16", "bounded:16", gap=1e-13, max_steps=3000)
    assert made.gap > 1e-13
    assert made.status != "converged"


def test_seconds_count_from_the_call_and_the_handler_of_the_caller_is_put_back(clock):
    clock.tick = 0.5
    before = signal.getsignal(signal.SIGINT)
    made = bf.fit("prefix:4", "line:4")
    assert signal.getsignal(signal.SIGINT) is before
    assert 0 < made.seconds <= clock.time


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "policy", "noise", "seconds"),
    [
        ("all-range:256", "unbounded:256", "laplace", 10.0),
        ("all-range:256", "threshold:256:4", "laplace", 10.0),
        ("all-range:256", "threshold:256:4", "laplace", 30.0),
        ("all-range:1024", "threshold:1024:4", "gaussian", 5.0),
        ("all-range:64x64", "unbounded:64x64", "laplace", 20.0),
        ("all-range:200x200", "threshold:200x200:1", "gaussian", 5.0),
        ("marginals:8x8x8x8x8:2", "sensitive:8x8x8x8x8:0,1", "laplace", 5.0),
    ],
)
def test_a_fit_is_done_within_a_tenth_of_its_limit(workload, policy, noise, seconds):
    started = time.perf_counter()
    bf.fit(workload, policy, noise=noise, max_seconds=seconds)
    assert time.perf_counter() - started <= seconds + max(1.0, 0.1 * seconds)


def test_a_polish_that_begins_after_the_limit_returns_its_start():
    """At a time limit the descent ends where it is: nothing is lost, in float64."""
    problem = bf.problem("all-range:6", "unbounded:6")
    start = draft(problem, "edge", np.eye(6), norm="L1", origin="identity")
    with limits.limited(0.0):
        polished = p_identity.free_polish(problem, start)
    assert polished.matrix.dtype == np.float64
    assert polished.error == start.error
