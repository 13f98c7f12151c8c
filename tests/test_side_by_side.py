"""Restarts on several threads: the same results whatever the clock says, and no worse than the floors."""

import threading
import time

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.error import Draft
from hdmm_bf.strategies.side_by_side import default_workers, side_by_side


def numbers(values, pause):
    for value in values:
        time.sleep(pause)
        yield Draft("vertex", np.eye(1), f"after {pause}", float(value))
    while True:
        yield Draft("vertex", np.eye(1), f"after {pause}", 99.0)


@pytest.mark.parametrize("pauses", [(0.0, 0.01), (0.01, 0.0)])
def test_results_come_in_turn_whichever_search_is_faster(pauses):
    """Quotes side_by_side: The sequence depends on the searches alone, not on which of them is faster."""
    steps = side_by_side([numbers([9, 5, 7], pauses[0]), numbers([8, 6, 1], pauses[1])])
    assert [next(steps).error for _ in range(7)] == [9, 8, 5, 5, 5, 1, 1]
    steps.close()


def test_an_error_is_raised_in_its_turn_and_threads_end_when_the_sequence_is_closed():
    """Quotes side_by_side: An error in a search is raised where its step would have been yielded, ..."""

    def failing():
        yield next(numbers([3], 0.0))
        raise ZeroDivisionError

    steps = side_by_side([numbers([9, 5, 7], 0.0), failing()])
    assert [next(steps).error for _ in range(3)] == [9, 3, 3]
    with pytest.raises(ZeroDivisionError):
        next(steps)
    steps = side_by_side([numbers(range(1000), 0.001), numbers(range(1000), 0.001)])
    next(steps)
    steps.close()
    ours = [t for t in threading.enumerate() if t.name == "hdmm_bf restarts"]
    for thread in ours:
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.parametrize("policy", ["threshold:12:3", "unbounded:12", "bounded:12"])
def test_fits_with_workers_give_the_same_bits_twice(policy):
    """Quotes fit: the same inputs, seed and workers give the same strategy on the same machine, bit by bit."""
    first, second = (
        bf.fit("all-range:12", policy, noise="laplace", max_steps=12, workers=2, max_seconds=None) for _ in range(2)
    )
    np.testing.assert_array_equal(first.strategy.integers, second.strategy.integers)
    assert first.options == {"max_steps": 12, "workers": 2}
    floors = [row for row in bf.compare("all-range:12", policy, noise="laplace", max_steps=1)[0] if row.kind != "ours"]
    assert all(first.unit_error <= row.unit_error * (1 + 1e-9) for row in floors)


def test_the_first_of_several_searches_is_the_one_that_runs_alone():
    alone = bf.fit("all-range:12", "unbounded:12", noise="laplace", max_steps=4)
    beside = bf.fit("all-range:12", "unbounded:12", noise="laplace", max_steps=8, workers=2)
    assert beside.unit_error <= alone.unit_error * (1 + 1e-12)


def test_an_interruption_ends_all_searches():
    def stop(point):
        if point.seconds > 0 and point.error < 1e9:
            raise KeyboardInterrupt

    made = bf.fit("all-range:12", "threshold:12:3", noise="laplace", workers=3, callback=stop)
    assert made.status == "interrupted"


@pytest.mark.parametrize(("asked", "most"), [("1", 1), ("2", 2), ("", 4), ("nonsense", 4), ("64", 4)])
def test_workers_are_as_many_as_cores_unless_the_environment_says_fewer(asked, most, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert default_workers() == most


def test_no_workers_are_refused():
    with pytest.raises(bf.InputError, match=r"workers=0.*Use at most as many"):
        bf.fit("identity:4", "line:4", workers=0)
