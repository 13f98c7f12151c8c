"""Searches in several processes: nothing of one's own search is lost, results in turn do not depend on the clock."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.parallel import workers as module
from hdmm_bf.parallel.workers import default_workers, side_by_side
from hdmm_bf.problem import inputs
from hdmm_bf.strategies.laplace import portfolio

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def problem():
    return inputs.problem("all-range:32", "unbounded:32")


@pytest.fixture(scope="module")
def floor(problem):
    return min(portfolio.Floors(problem, portfolio.Table(), "L1"), key=lambda draft: draft.error)


def drafts(problem, floor, seed, steps):
    found = portfolio.searched(problem, seed=seed, family=None, best=floor)
    return [next(found) for _ in range(steps)]


def job(problem, floor, seed):
    return portfolio.job(problem, seed=seed, family=None, best=floor, effort="normal")


@pytest.mark.slow
def test_in_turn_the_sequence_is_ones_own_and_the_better_ones_of_others(problem, floor):
    """Quotes side_by_side: In turn, the sequence depends on the searches alone, not on the clock."""
    own, other = drafts(problem, floor, 0, 6), drafts(problem, floor, 7, 6)
    expected, best = [], floor.error
    for mine, theirs in zip(own, other, strict=True):
        expected.append(mine.error)
        if theirs.error < best:
            best = theirs.error
            expected.append(best)
    both = side_by_side(iter(own), [job(problem, floor, 7)], in_turn=True)
    found = [next(both).error for _ in expected]
    both.close()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(expected) > 6, "the other search contributes"


def test_ones_own_steps_are_all_there_and_processes_end_with_the_sequence(problem, floor, monkeypatch):
    """Quotes side_by_side: The steps of this process's own search are all there, in their order."""
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(module.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    own = drafts(problem, floor, 0, 8)
    both = side_by_side(iter(own), [job(problem, floor, 7), job(problem, floor, 8)], in_turn=False)
    found = [next(both) for _ in range(8)]
    mine = [draft for draft in found if any(draft is other for other in own)]
    assert [id(draft) for draft in mine] == [id(draft) for draft in own[: len(mine)]]
    both.close()
    assert [process.poll() is not None for process in started] == [True, True]


def test_a_process_that_dies_is_told_and_does_not_stop_the_search(problem, floor, monkeypatch):
    monkeypatch.setattr(module, "_COMMAND", "raise SystemExit(3)")
    own = drafts(problem, floor, 0, 3)
    both = side_by_side(iter(own), [job(problem, floor, 7)], in_turn=True)
    with pytest.warns(RuntimeWarning, match="ended before its time"):
        assert [draft.error for draft in both] == [draft.error for draft in own]


@pytest.mark.parametrize("policy", ["threshold:12:3", "bounded:12"])
def test_fits_with_workers_give_the_same_bits_twice(policy):
    """Quotes fit: the same inputs, seed and workers give the same strategy on the same machine, bit by bit."""
    first, second = (bf.fit("all-range:12", policy, noise="laplace", max_steps=6, workers=2) for _ in range(2))
    np.testing.assert_array_equal(first.strategy.integers, second.strategy.integers)
    assert first.options == {"max_steps": 6, "workers": 2}
    floors = [row for row in bf.compare("all-range:12", policy, noise="laplace", max_steps=1)[0] if row.kind != "ours"]
    assert all(first.unit_error <= row.unit_error * (1 + 1e-9) for row in floors)


@pytest.mark.slow
def test_more_workers_are_never_worse_step_by_step():
    alone = bf.fit("all-range:12", "unbounded:12", noise="laplace", max_steps=4)
    beside = bf.fit("all-range:12", "unbounded:12", noise="laplace", max_steps=12, workers=3)
    assert beside.unit_error <= alone.unit_error * (1 + 1e-12)


def test_an_interruption_ends_all_searches():
    def stop(point):
        if point.seconds > 0:
            raise KeyboardInterrupt

    made = bf.fit("all-range:12", "threshold:12:3", noise="laplace", workers=3, callback=stop)
    assert made.status == "interrupted"


def test_a_script_without_a_guard_can_use_workers(tmp_path):
    script = tmp_path / "script.py"
    call = "bf.fit('all-range:12', 'unbounded:12', noise='laplace', max_seconds=4, workers=2)"
    script.write_text(f"import hdmm_bf as bf\nprint('once')\nmade = {call}\nprint(made.status)\n")
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[0] == "once"
    assert run.stdout.count("once") == 1
    assert run.stderr == ""


@pytest.mark.parametrize(("asked", "most"), [("1", 1), ("2", 2), ("", 4), ("nonsense", 4), ("64", 4)])
def test_workers_are_as_many_as_cores_unless_the_environment_says_fewer(asked, most, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert default_workers() == most


def test_no_workers_are_refused():
    with pytest.raises(bf.InputError, match=r"workers=0.*Use at most as many"):
        bf.fit("identity:4", "line:4", workers=0)
