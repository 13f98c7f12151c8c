"""The command `hdmm-bf`, in a process of its own (`run`) or inside this one (`call`), and how it refuses."""

import contextlib
import io
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from hdmm_bf import cli


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "hdmm_bf", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        check=False,
    )


def assert_one_sentence(result, *fragments):
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("hdmm-bf: ")
    for fragment in fragments:
        assert fragment in result.stderr


def call(*arguments, cwd):
    """Run `hdmm-bf` inside this process."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["hdmm-bf", *map(str, arguments)])
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with argv, contextlib.chdir(cwd), streams[0], streams[1], pytest.raises(SystemExit) as ended:
        cli.main()
    return SimpleNamespace(returncode=ended.value.code, stdout=out.getvalue(), stderr=err.getvalue())
