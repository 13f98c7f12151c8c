"""The command `hdmm-bf`, in a process of its own (`run`) or inside this one (`call`), and how it refuses."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jaxtyping
import pytest

from hdmm_bf import cli

ROOT = Path(__file__).parents[2]
WIDTH = 80
"""Characters of a line of the terminal."""


def run(*arguments, cwd=None, columns=WIDTH):
    """Run `hdmm-bf` in a process of its own, a second each: for what a process alone can show."""
    return subprocess.run(
        [sys.executable, "-m", "hdmm_bf", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": str(columns)},
        check=False,
    )


def assert_one_sentence(result, *fragments):
    """A mistake ends with code 2, nothing printed, and one line that holds these words."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("hdmm-bf: ")
    for fragment in fragments:
        assert fragment in result.stderr


def call(*arguments, cwd=None, columns=WIDTH):
    """Run `hdmm-bf` inside this process, as users do: without the checks of types that tests switch on."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["hdmm-bf", *map(str, arguments)]))
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": str(columns)}))
        stack.enter_context(mock.patch.object(jaxtyping.config, "jaxtyping_disable", True))
        stack.enter_context(contextlib.chdir(cwd or "."))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        ended = stack.enter_context(pytest.raises(SystemExit))
        cli.main()
    return SimpleNamespace(returncode=ended.value.code, stdout=out.getvalue(), stderr=err.getvalue())
