"""The README's code blocks run and print what they say; `sh` blocks are checked for existence only."""

import re
from pathlib import Path

from tests.support.command_line import run
from tests.support.snippets import blocks, commands, run_command, run_python, same

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [command for block in blocks(README, "console") for command in commands(block.code)]


def test_commands_print_what_the_readme_says(tmp_path):
    """One after the other, in processes of their own, because one uses what another has written."""
    assert COMMANDS, "the README has no command"
    for command, output in COMMANDS:
        printed = run_command(command, tmp_path, run)
        assert same(output, printed), f"{command}\n{printed}"


def test_python_examples_print_what_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples, names = blocks(README, "pycon"), {}
    assert examples, "the README has no Python example"
    failures = [run_python(block.code, names, "README.md", block.line - 1) for block in examples]
    assert not any(failures), "".join(failures)


def test_the_first_screen_shows_how_to_start():
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", "\n".join(block.code for block in blocks(README, "sh"))):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_readme_test_can_fail():
    assert same("1.234...\n", "1.2345\n")
    assert not same("1.234...\n", "1.3\n")
    assert "Expected" in run_python(">>> 1 + 1\n3\n", {}, "control")


def test_links_into_the_project_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
