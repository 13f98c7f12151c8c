"""`bound`, `fit`, `compare`, `verify`, `export` as a user runs them."""

import contextlib
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import hdmm_bf as bf
from hdmm_bf._display import percent
from hdmm_bf.cli import app
from hdmm_bf.cli.show import remaining
from hdmm_bf.fit import comparison
from tests.support.command_line import assert_one_sentence, call, run

LAPLACE = ["-w", "all-range:6x6", "-g", "unbounded:6x6", "--noise", "laplace", "--family"]
FIT_FIELDS = [
    *("workload", "policy", "noise", "family", "num_cells", "num_queries", "num_edges", "num_rows", "unit_error"),
    *("sensitivity", "svd_bound", "lower_bound", "ratio_to_svd", "ratio_to_lower", "gap", "certified", "seconds"),
    *("seed", "status", "discloses"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    result = run("fit", "-w", "prefix:9", "-g", "threshold:9:2", "--out", "p.bf", "--json", cwd=path)
    assert result.returncode == 0, result.stderr
    (path / "fit.json").write_text(result.stdout)
    return path


def test_fit_json_has_the_fields_of_the_contract(folder):
    record = json.loads((folder / "fit.json").read_text())
    assert set(FIT_FIELDS) <= set(record)
    assert record["gap"] == pytest.approx(record["unit_error"] / record["lower_bound"] - 1)
    assert record["ratio_to_svd"] == pytest.approx(record["unit_error"] / record["svd_bound"])
    assert record["certified"] is True
    assert record["num_queries"] == record["num_cells"] == 9
    assert record["discloses"] == ["the total number of records"]


def test_verify_derives_the_same_numbers(folder):
    result = run("verify", "p.bf", "--json", cwd=folder)
    assert result.returncode == 0
    record, fitted = json.loads(result.stdout), json.loads((folder / "fit.json").read_text())
    assert record["verified"] is True
    for name in FIT_FIELDS:
        if name != "seconds":
            assert record[name] == fitted[name], name
    words = run("verify", "p.bf", cwd=folder)
    assert "Verified: every claim was derived again." in words.stdout


def test_verify_of_a_touched_bundle_exits_with_one_and_names_the_file(folder, tmp_path):
    call("fit", "-w", "prefix:4", "-g", "line:4", "-o", "x.bf", cwd=tmp_path)
    with (tmp_path / "x.bf" / "strategy.npz").open("ab") as file:
        file.write(b"!")
    result = call("verify", "x.bf", cwd=tmp_path)
    assert result.returncode == 1
    assert "strategy.npz was changed" in result.stderr
    assert "Traceback" not in result.stderr
    record = json.loads(call("verify", "x.bf", "--json", cwd=tmp_path).stdout)
    assert record["verified"] is False
    assert_one_sentence(call("export", "x.bf", "--format", "csv", "-o", "a.csv", cwd=tmp_path), "strategy.npz")
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("kind", ["npz", "csv", "mtx", "parquet", "json"])
def test_export_writes_every_format(folder, kind):
    result = call("export", "p.bf", "--format", kind, "--out", f"s.{kind}", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["file"] == f"s.{kind}"
    assert (folder / f"s.{kind}").stat().st_size > 0


def test_export_of_the_reconstruction(folder):
    call("export", "p.bf", "--format", "npz", "--what", "reconstruction", "--out", "r.npz", cwd=folder)
    assert np.load(folder / "r.npz")["reconstruction"].shape == (9, 8)


def test_bound_needs_no_strategy(folder):
    record = json.loads(call("bound", "-w", "prefix:9", "-g", "threshold:9:2", "--json").stdout)
    fitted = json.loads((folder / "fit.json").read_text())
    assert record["svd_bound"] == pytest.approx(fitted["svd_bound"], rel=1e-9)
    assert record["lower_bound"] == pytest.approx(fitted["lower_bound"], rel=1e-3)
    words = call("bound", "-w", "prefix:9", "-g", "threshold:9:2")
    assert "tight bound" in words.stdout
    assert "SVD bound" in words.stdout


def test_compare_sets_everybody_side_by_side():
    arguments = ("compare", "-w", "all-range:8", "-g", "threshold:8:2", "--noise", "laplace", "--max-steps", "16")
    record = json.loads(call(*arguments, "--json").stdout)
    assert set(record) == {"rows", "svd_bound", "lower_bound", "matrix_bound", "objective", "objective_bound"}
    assert {row["kind"] for row in record["rows"]} == {"paper", "classical", "ours"}
    for row in record["rows"]:
        assert set(row) == {"name", "unit_error", "ratio_to_lower", "kind", "worst_variance", "objective_value"}
        assert row["ratio_to_lower"] == pytest.approx(row["unit_error"] / record["lower_bound"])
    errors = [row["unit_error"] for row in record["rows"]]
    assert errors == sorted(errors)
    words = call(*arguments).stdout
    assert "identity on edges" in words
    assert "proven lower bound" in words


def test_compare_sets_the_noises_side_by_side_at_a_budget():
    """Quotes the page on tree norms: `hdmm-bf compare --epsilon 1` sets the noises side by side."""
    problem = ("-w", "prefix:6", "-g", "threshold:6:2", "--max-steps", "1")
    for more, noises in ((), {"laplace", "norm"}), (("--delta", "1e-6"), {"laplace", "norm", "gaussian"}):
        answer = call("compare", *problem, "--epsilon", "1", *more, "--json")
        assert answer.returncode == 0, answer.stderr
        assert {row["noise"] for row in json.loads(answer.stdout)["rows"]} == noises


def test_a_tree_norm_is_exported_with_its_shape(tmp_path):
    bf.fit("prefix:5", "line:5", noise="norm", max_steps=1).save(tmp_path / "t.bf")
    given = ("export", "t.bf", "--format", "npz", "--out", "t.npz")
    assert "Wrote the reconstruction, 5 x 5, to" in call(*given, "--what", "reconstruction", cwd=tmp_path).stdout
    with np.load(tmp_path / "t.npz") as held:
        assert held["reconstruction"].shape == (5, 5)


def test_laplace_fits_say_which_family_won(tmp_path):
    arguments = ("fit", "-w", "all-range:8", "-g", "bounded:8", "--noise", "laplace", "--max-steps", "20")
    words = call(*arguments, "--out", "l.bf", cwd=tmp_path).stdout
    assert "times the proven bound, by" in words
    assert call("verify", "l.bf", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "-w", "prefx:4", "-g", "line:4"), "Did you mean 'prefix'?"),
        (("fit", "-w", "prefix:4", "-g", "line:5"), "5 cells"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--noise", "gausian"), "Did you mean 'gaussian'?"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--noise", "laplce"), "Did you mean 'laplace'?"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--time-limit", "3"), "Did you mean --max-seconds?"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--family", "vertx"), "Known: bases, gaussian, kronecker"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--family", "basis"), "Did you mean 'bases'?"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--gap", "-1"), "positive"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--family", "vertex"), "Leave the family out"),
        (("fit", "-w", "prefix:4", "-g", "line:4", "--noise", "laplace", "--family", "vertx"), "'vertex'"),
        (("fit", "-w", "prefix:4"), "--policy"),
        (("verify", "nothing.bf"), "there is no such folder. Check the path."),
        (("export", "nothing.bf", "--format", "csv", "--out", "x"), "there is no such folder"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_two(arguments, words, tmp_path):
    assert_one_sentence(call(*arguments, cwd=tmp_path), words)
    assert not list(tmp_path.iterdir())


def test_every_command_has_help_with_an_example_that_fits_on_a_screen():
    for command in ("explain", "bound", "fit", "compare", "verify", "export"):
        text = call(command, "--help").stdout
        assert "Example: hdmm-bf" in text
        assert len(text.splitlines()) <= 32, command


@pytest.mark.slow
def test_control_c_keeps_the_best_strategy_so_far_and_says_where(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "hdmm_bf", "fit", "-w", "all-range:48", "-g", "threshold:48:4"]
        + ["--noise", "laplace", "--out", "stopped.bf"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    time.sleep(14)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "interrupted; this is the best strategy found by then" in stdout
    assert "Interrupted: the best strategy so far is kept in stopped.bf" in stdout
    assert call("verify", "stopped.bf", cwd=tmp_path).returncode == 0


def interrupted_fit(monkeypatch, after):
    """Press Ctrl-C when the search reports a step."""
    from hdmm_bf.fit import run

    def pressed(*arguments, callback, **options):
        steps = []

        def stop(point):
            steps.append(point)
            if len(steps) == after:
                raise KeyboardInterrupt

        return searched(*arguments, callback=stop, **options)

    searched = run.fit
    monkeypatch.setattr(run, "fit", pressed)


@pytest.mark.parametrize("given", [["-w", "prefix:32", "-g", "bounded:32", "--gap", "1e-12"], [*LAPLACE, "cells"]])
def test_an_interrupted_fit_without_a_name_is_kept_under_one_that_is_free(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interrupted.bf").write_text("somebody's file")
    interrupted_fit(monkeypatch, after=2)
    result = CliRunner().invoke(app, ["fit", *given])
    assert result.exit_code == 130
    assert "Interrupted: the best strategy so far is kept in interrupted-2.bf" in result.output
    assert bf.load("interrupted-2.bf").status == "interrupted"
    assert (tmp_path / "interrupted.bf").read_text() == "somebody's file"


def test_a_terminal_shows_error_bound_gap_and_time_left_and_a_pipe_nothing(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hdmm_bf", "fit", "-w", "all-range:32", "-g", "threshold:32:3", "--json"]
    limits = ["--noise", "laplace", "--max-seconds", "4", "--thorough"]  # which nothing finishes by then
    process = subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says "input/output error" when the other end is closed
        while piece := os.read(ours, 65536):
            shown += piece
    stdout, _ = process.communicate(timeout=120)
    os.close(ours)
    words = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\s+", " ", shown.decode())
    assert re.search(r"fit: error [\d.]+, bound [\d.]+, gap \d+ %", re.sub(" +", " ", words)), words
    assert "s left" in words
    assert json.loads(stdout)["status"] == "time limit"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(math.inf, ""), (0.2, "about 0 s left"), (59.0, "about 59 s left"), (600.0, "about 10 min left")],
)
def test_the_time_left_is_said_in_words(seconds, words):
    assert remaining(seconds) == words


@pytest.mark.parametrize(("share", "words"), [(5.7e-4, "0.057 %"), (0.5, "50 %"), (2.686, "269 %")])
def test_shares_are_percentages_without_exponents(share, words):
    assert percent(share) == words


def test_a_comparison_without_a_proven_bound_claims_no_ratio(monkeypatch):

    rows, made = bf.compare("prefix:6", "line:6", noise="gaussian")
    unknown = [row._replace(ratio_to_lower=math.nan) for row in rows]
    monkeypatch.setattr(comparison, "compare", lambda *_, **__: (unknown, made))
    given = ["compare", "-w", "prefix:6", "-g", "line:6"]
    record = json.loads(CliRunner().invoke(app, [*given, "--json"]).output, parse_constant=pytest.fail)
    assert [row["ratio_to_lower"] for row in record["rows"]] == [None] * len(rows)
    assert "nan" not in CliRunner().invoke(app, given).output
    assert math.isnan(comparison._ratio(2.0, 0.0))
    assert (comparison._ratio(0.0, 0.0), comparison._ratio(3.0, 2.0)) == (1.0, 1.5)
