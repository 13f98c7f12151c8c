"""A broken collection cannot pass: every test file gives tests, not fewer than before, and none leans on another."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FEWEST = 3100
"""Raised as tests are added; lowering it needs a reason."""


def places(*patterns):
    """Paths of the files below `tests` whose names fit, as they are written in a listing."""
    return sorted(str(path.relative_to(TESTS.parent)) for pattern in patterns for path in TESTS.rglob(pattern))


def test_every_file_is_collected_and_no_tests_went_missing():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "--override-ini", "addopts=--strict-markers", str(TESTS)],  # slow ones too, and no checks of types
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    found = {name: int(count) for name, count in re.findall(r"^(tests/[\w/]+\.py): (\d+)$", run.stdout, re.MULTILINE)}
    assert sorted(found) == places("test_*.py")
    assert sum(found.values()) >= FEWEST


def of_tests(tree):
    """Test files that a syntax tree imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        assert not getattr(node, "level", 0), "absolute imports only"
        yield from (name for name in names if any(part.startswith("test_") for part in name.split(".")))


@pytest.mark.parametrize("place", places("*.py"))
def test_no_file_imports_a_test_file(place):
    assert not set(of_tests(ast.parse((TESTS.parent / place).read_text())))


def test_the_rule_for_imports_can_fail():
    bad = [
        "from tests.cli.test_cli import run",
        "import tests.cli.test_cli",
        "def f():\n from tests.cli import test_cli",
    ]
    assert all(set(of_tests(ast.parse(line))) for line in bad)
    assert not set(of_tests(ast.parse("from tests.support.command_line import run\nimport json")))


def test_every_folder_of_the_package_has_one_here_and_shared_code_has_its_own():
    package = TESTS.parent / "hdmm_bf"
    wanted = {path.parent.name for path in package.glob("[a-z]*/__init__.py")} | {"experiments", "house", "support"}
    assert wanted <= {path.parent.name for path in TESTS.glob("*/__init__.py")}
    assert [path.name for path in TESTS.glob("test_*.py")] == []
    assert [path.name for path in (TESTS / "support").rglob("test_*.py")] == []
