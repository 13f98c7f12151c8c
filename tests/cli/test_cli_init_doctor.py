"""`hdmm-bf init`, `hdmm-bf doctor` and the completion of the shell, as a user runs them."""

import json
import os
import pty
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hdmm_bf.cli import app
from hdmm_bf.fit.problem_file import read
from tests.support.command_line import assert_one_sentence, call, run

DOCTOR = sys.modules["hdmm_bf.cli.doctor"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments):
    """Run a command in this process, without the time it takes to start another."""
    return CliRunner().invoke(app, arguments, prog_name="hdmm-bf", catch_exceptions=False)


def test_without_flags_and_terminal_an_example_is_written_that_fits(tmp_path):
    result = run("init", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "run it with: hdmm-bf fit problem.toml" in result.stdout
    fitted = run("fit", "problem.toml", "--gap", "0.05", "--json", cwd=tmp_path)
    assert fitted.returncode == 0, fitted.stderr
    record = json.loads(fitted.stdout)
    assert (record["workload"], record["policy"]) == ("all-range:64", "threshold:64:4")
    assert (tmp_path / "problem.bf").is_dir()


def test_flags_are_written_into_the_file(here):
    flags = ("--domain", "age:3, sex:2", "-w", "identity", "-g", "sensitive:age", "--noise", "laplace")
    result = invoke("init", "p.toml", *flags, "--json")
    assert json.loads(result.output) == {
        "file": "p.toml",
        "workload": "identity:3x2",
        "policy": "sensitive:3x2:0",
        "noise": "laplace",
    }
    made = read("p.toml")
    assert made.policy.domain.names == ("age", "sex")
    assert (made.noise, made.out) == ("laplace", "p.bf")
    invoke("init", "q.toml", "--domain", "4x2", "-w", "prefix", "-g", "bounded")
    assert read("q.toml").workload.spec == "prefix:4x2"


def test_commented_keys_are_true_when_the_comment_is_taken_away(here):
    invoke("init")
    text = Path("problem.toml").read_text()
    for key in ("family", "max_seconds", "max_steps", "[release]", "epsilon", "delta"):
        text = text.replace(f"# {key}", key, 1)
    text = text.replace('family = "p-identity"', 'family = "gaussian"')
    Path("problem.toml").write_text(text)
    made = read("problem.toml")
    assert (made.max_seconds, made.max_steps, made.budget) == (60.0, 100, {"epsilon": 1.0, "delta": 1e-6})


def test_paths_are_written_as_seen_from_the_file(here):
    Path("sub").mkdir()
    np.save("W.npy", np.eye(3))
    Path("G.csv").write_text("0,1\n1,2\n")
    invoke("init", "sub/p.toml", "-w", "W.npy", "-g", str(here / "G.csv"))
    assert 'spec = "../W.npy"' in Path("sub/p.toml").read_text()
    assert read("sub/p.toml").policy.num_edges == 2


def test_a_file_is_overwritten_only_by_force(tmp_path):
    (tmp_path / "problem.toml").write_text("mine")
    assert_one_sentence(call("init", cwd=tmp_path), "problem.toml exists", "--force")
    assert (tmp_path / "problem.toml").read_text() == "mine"
    assert call("init", "--force", cwd=tmp_path).returncode == 0
    assert "[policy]" in (tmp_path / "problem.toml").read_text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-w", "prefix:4"), "needs both --workload W and --policy G"),
        (("--noise", "laplace"), "needs both --workload W and --policy G"),
        (("-w", "prefix", "-g", "line", "--domain", "age:x"), "'age:x' is no attribute"),
        (("no/folder.toml", "-w", "prefix:4", "-g", "line:4"), "cannot be written (No such file"),
    ],
)
def test_mistakes_of_init_are_told_and_nothing_is_written(here, flags, words):
    result = invoke("init", *flags)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not list(here.iterdir())


def test_a_problem_that_does_not_parse_is_not_written(tmp_path):
    result = call("init", "-w", "prefix:4", "-g", "lin:4", cwd=tmp_path)
    assert_one_sentence(result, "problem.toml: line ", "Did you mean 'line'?")
    assert not list(tmp_path.iterdir())


def test_a_line_through_a_table_is_not_written(tmp_path):
    result = call("init", "-w", "prefix", "-g", "line", "--domain", "age:3,sex:2", cwd=tmp_path)
    assert_one_sentence(result, "problem.toml: line ", "Use product:line:3,line:2", '[policy] attribute.age = "line"')
    assert not list(tmp_path.iterdir())


def test_a_terminal_is_asked(tmp_path):
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hdmm_bf", "init"],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    os.write(keyboard, b"age:5,sex:2\nmarginals:1\n\nlaplace\n")
    stdout, stderr = process.communicate(timeout=60)
    os.close(keyboard)
    os.close(terminal)
    assert process.returncode == 0, stderr
    assert "marginals:5x2:1 under threshold:5x2:4" in stdout
    assert "product:line,bounded" in stderr  # a line through a table is not offered
    made = read(tmp_path / "problem.toml")
    assert (made.policy.domain.names, made.noise) == (("age", "sex"), "laplace")


def test_help_has_an_example_and_fits_on_a_screen():
    for command in ("init", "doctor", "fit", "bound", "compare"):
        text = invoke(command, "--help").output
        assert "Example: hdmm-bf" in text
        assert len(text.splitlines()) <= 32, command


def test_doctor_tells_versions_machine_and_sizes():
    import scipy.io._fast_matrix_market  # noqa: F401  # registers a function where threadpoolctl expects a version

    record = json.loads(invoke("doctor", "--json").output)
    assert record["versions"]["numpy"] == np.__version__
    assert record["missing"] == []
    assert record["cores"] >= 1
    assert 0 < record["memory"]["available"] <= record["memory"]["total"]
    assert record["jax"]["backend"] == "cpu"
    assert [entry["cells"] for entry in record["dense_fits"]] == [1024, 4096, 8192]
    words = invoke("doctor").output
    assert "cells need 182.0 MB: fits" in words
    assert "Everything that is needed is installed." in words


def test_doctor_survives_what_is_missing(monkeypatch):
    def version(name):
        if name in ("duckdb", "optax"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(DOCTOR.metadata, "version", version)
    monkeypatch.setattr(DOCTOR, "_MEMORY_FILE", Path("/nowhere"))
    monkeypatch.setattr(DOCTOR.os, "sysconf", lambda name: 2**16)
    for name in ("jax", "threadpoolctl", "hdmm_bf.fit.memory"):
        monkeypatch.setitem(sys.modules, name, None)
    words = invoke("doctor").output
    assert "not installed; optional, comes with hdmm-bf[data]" in words
    assert "Missing: optax; install hdmm-bf again." in words
    assert "does not start" in words
    assert "not known" in words
    assert "4.0 GB available of 4.0 GB" in words
    assert "dense fit" not in words


def test_doctor_says_what_does_not_fit_and_what_it_cannot_know(monkeypatch):
    monkeypatch.setattr(DOCTOR, "_memory", lambda: {"total": 2**30, "available": 2**29})
    words = invoke("doctor").output
    assert "1024 cells need 182.0 MB: fits" in words
    assert "4096 cells need 1.5 GB: DOES NOT FIT in what is available" in words
    monkeypatch.undo()

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(DOCTOR, "_MEMORY_FILE", Path("/nowhere"))
    monkeypatch.setattr(DOCTOR.os, "sysconf", unknown)
    assert "an unknown amount available of an unknown amount" in invoke("doctor").output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_completion_script(shell):
    result = _completing(_HDMM_BF_COMPLETE=f"{shell}_source")
    assert result.returncode == 0, result.stderr
    assert "_HDMM_BF_COMPLETE" in result.stdout
    assert "hdmm-bf" in result.stdout


def test_the_shell_completes_commands():
    result = _completing(_HDMM_BF_COMPLETE="bash_complete", COMP_WORDS="hdmm-bf co", COMP_CWORD="1")
    assert result.stdout.split() == ["plain,compare"]
    assert "_HDMM_BF_COMPLETE=bash_source hdmm-bf" in " ".join(invoke("doctor", "--help").output.split())


def _completing(**settings):
    """Run the command as the shell does when it completes a line."""
    command = [sys.executable, "-m", "hdmm_bf"]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings}, check=False)
