"""Ctrl-C at any time: what was found is kept and named, nothing is half-written, and scripts can tell."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import hdmm_bf as bf
from hdmm_bf.bundle import bundle
from hdmm_bf.cli import app
from hdmm_bf.fit import certified, dense, loading
from hdmm_bf.strategies import Progress, limits, search

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SEARCHES = {
    "gaussian": ["-w", "all-range:400", "-g", "bounded:400", "--gap", "1e-13"],
    "laplace": ["-w", "all-range:24", "-g", "threshold:24:3", "--noise", "laplace", "--workers", "1"],
    "workers": ["-w", "all-range:24", "-g", "threshold:24:3", "--noise", "laplace", "--workers", "2"],
    "bases": ["-w", "all-range:40x40", "-g", "threshold:40x40:1", "--family", "bases", "--gap", "1e-9"],
    "kronecker": ["-w", "all-range:40x40", "-g", "threshold:40x40:1", "--noise", "laplace", "--family", "kronecker"],
}


@pytest.fixture(autouse=True)
def default_handler():
    """A suite that runs in the background ignores Ctrl-C; the command of a user does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(arguments, seconds, folder, signals=1):
    """Run a command, press Ctrl-C after some seconds, and return how it ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hdmm_bf", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
    )
    for _ in range(signals):
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


def check_end(code, stdout, stderr, folder):
    """Exit 130; a bundle that verifies and is named, or a sentence and no file."""
    assert code == 130, stderr
    if stdout:
        assert json.loads(stdout)["bundle"] == "kept.bf"
        assert [path.name for path in folder.iterdir()] == ["kept.bf"]
        assert loading.check(folder / "kept.bf")[1] == []
    else:
        assert "hdmm-bf: interrupted before the result was complete." in stderr
        assert "Traceback" not in stderr
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", SEARCHES)
def test_control_c_at_a_random_time_exits_with_130_and_keeps_what_there_is(name, tmp_path):
    seconds = random.Random(name).uniform(0.4, 5.0)
    arguments = ["fit", *SEARCHES[name], "--json", "--out", "kept.bf"]
    check_end(*interrupted(arguments, seconds, tmp_path), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", SEARCHES)
def test_control_c_at_many_random_times_exits_with_130_and_keeps_what_there_is(name, seed, tmp_path):
    seconds = random.Random(f"{name} {seed}").uniform(0.2, 9.0)
    arguments = ["fit", *SEARCHES[name], "--json", "--out", "kept.bf"]
    check_end(*interrupted(arguments, seconds, tmp_path), tmp_path)


@pytest.mark.slow
def test_a_second_control_c_ends_at_once_and_leaves_nothing_half_written(tmp_path):
    for seconds in (0.5, 1.0, 2.0):
        code, _, stderr = interrupted(["fit", *SEARCHES["workers"], "--out", "kept.bf"], seconds, tmp_path, signals=2)
        assert code == 130, stderr
        assert {path.name for path in tmp_path.iterdir()} <= {"kept.bf"}


def press():
    os.kill(os.getpid(), signal.SIGINT)


def pressing(function):
    """Press Ctrl-C when a function is called, then call it."""

    def wrapped(*arguments, **options):
        press()
        return function(*arguments, **options)

    return wrapped


@pytest.mark.parametrize(
    ("module", "name", "given"),
    [
        (certified, "certify", ["-w", "prefix:16", "-g", "threshold:16:2"]),
        (certified, "certify", ["-w", "prefix:8", "-g", "line:8", "--noise", "laplace", "--max-steps", "3"]),
        (certified, "certify", ["-w", "all-range:4x4", "-g", "threshold:4x4:1", "--family", "bases"]),
        (certified, "certify", ["-w", "marginals:3x4:1", "-g", "sensitive:3x4:0", "--family", "marginals"]),
        (bundle, "write_folder", ["-w", "prefix:16", "-g", "threshold:16:2", "-o", "named.bf"]),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_control_c_after_the_search_keeps_the_strategy(module, name, given, as_json, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original = getattr(module, name)
    monkeypatch.setattr(module, name, pressing(original))
    result = CliRunner().invoke(app, ["fit", *given, *(["--json"] if as_json else [])])
    monkeypatch.setattr(module, name, original)  # a bundle is certified by the same function when it is read
    assert result.exit_code == 130, result.output
    out = "named.bf" if "-o" in given else "interrupted.bf"
    if as_json:
        assert json.loads(result.output)["bundle"] == out
    else:
        assert f"Interrupted: the best strategy so far is kept in {out}" in result.output
    assert bf.load(out).status in ("converged", "finished", "iteration limit"), "the search had come to its end"


def test_control_c_before_there_is_a_result_raises(monkeypatch):
    monkeypatch.setattr(dense, "is_public", pressing(dense.is_public))
    with pytest.raises(KeyboardInterrupt):
        bf.fit("prefix:8", "line:8")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_control_c_is_noted_and_the_second_raised():
    """Quotes noting_interruptions: The handler of the caller is put back."""

    def steps():
        for k in range(5):
            if k == 2:
                press()
            yield Progress(3.0 - k / 10, 1.0, k, None)

    with limits.noting_interruptions() as pressed:
        found = search(steps(), gap=1e-3)
        assert (found.status, found.best, pressed.noted) == ("interrupted", 2, True)
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_caller_is_left_alone():
    """Quotes noting_interruptions: It is replaced only in the main thread, and only if it is Python's own."""
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    with limits.noting_interruptions() as pressed:
        press()
    assert (seen, pressed.noted) == ([1], False)


@pytest.mark.parametrize(
    ("workload", "policy", "options"),
    [
        ("prefix:32", "bounded:32", {"gap": 1e-12}),
        ("all-range:8", "threshold:8:2", {"noise": "laplace", "workers": 2}),
        ("all-range:6x6", "threshold:6x6:1", {"family": "bases", "gap": 1e-9}),
        ("all-range:6x6", "threshold:6x6:1", {"noise": "laplace", "family": "kronecker"}),
        ("all-range:6x6", "unbounded:6x6", {"noise": "laplace", "family": "cells"}),
    ],
)
def test_an_interrupted_search_says_so(workload, policy, options):
    made = bf.fit(workload, policy, callback=lambda _: None if limits.interrupted() else press(), **options)
    assert made.status == "interrupted"


def test_an_interrupted_kronecker_search_says_so(monkeypatch):
    from hdmm_bf.strategies.gaussian import kronecker

    monkeypatch.setattr(kronecker, "_optimum", pressing(kronecker._optimum))
    limited = {"max_steps": 1, "gap": 1e-12, "family": "kronecker"}
    with limits.noting_interruptions() as pressed:
        limits.keep()
        pressed.handle = lambda *_: setattr(pressed, "noted", True)
        signal.signal(signal.SIGINT, pressed.handle)
        assert bf.fit("all-range:6x5", "unbounded:6x5", **limited).status == "interrupted"


@pytest.mark.parametrize("as_json", [True, False])
def test_bound_and_compare_tell_an_interruption_by_130(as_json, monkeypatch):
    from hdmm_bf.strategies.gaussian import dense as gaussian

    monkeypatch.setattr(gaussian, "rounded", pressing(gaussian.rounded))
    for command, words in (("bound", "proven by then"), ("compare", "reached by then")):
        given = [command, "-w", "prefix:32", "-g", "bounded:32", *(["--json"] if as_json else [])]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 130, result.output
        if as_json:
            assert json.loads(result.output)["lower_bound"] > 0
        else:
            assert words in result.output


def test_an_interrupted_release_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bf.fit("prefix:4", "line:4").save("p.bf")
    (tmp_path / "x.csv").write_text("1\n2\n3\n4\n")
    from hdmm_bf.release import matrices

    monkeypatch.setattr(matrices, "checked_counts", pressing(matrices.checked_counts))
    given = ["release", "p.bf", "-d", "x.csv", "--epsilon", "1", "--delta", "1e-6", "-o", "a.csv"]
    result = CliRunner().invoke(app, given, standalone_mode=False)
    assert isinstance(result.exception, BaseException)
    assert type(result.exception).__name__ in ("Abort", "KeyboardInterrupt")
    assert {path.name for path in tmp_path.iterdir()} == {"p.bf", "x.csv"}
