"""The README's code blocks run and print what they say.

`pycon` blocks are doctests; in `console` blocks a line `$ command` is run and what follows must be printed
(`...` stands for anything). `sh` blocks are instructions for a shell and are checked for existence only.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands():
    for block in blocks("console"):
        parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        for part in parts[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def same(expected, printed):
    checker = doctest.OutputChecker()
    return checker.check_output(expected, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


@pytest.mark.parametrize(("command", "output"), list(commands()), ids=[c for c, _ in commands()])
def test_commands_print_what_the_readme_says(command, output, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "readme-commands"
    folder.mkdir(exist_ok=True)
    program, *arguments = shlex.split(command)
    assert program == "hdmm-bf", "only our own command is run from the README"
    run = subprocess.run(
        [sys.executable, "-m", "hdmm_bf", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    printed = run.stdout + run.stderr
    assert same(output, printed), printed


def test_python_examples_print_what_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks("pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, "README", "README.md", 0)
    assert test.examples, "the README has no Python example"
    failures = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(test, out=failures.append)
    assert not failures, "".join(failures)


def test_the_first_screen_shows_how_to_start():
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", "\n".join(blocks("sh"))):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_readme_test_can_fail():
    assert same("1.234...\n", "1.2345\n")
    assert not same("1.234...\n", "1.3\n")


def test_links_into_the_project_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
