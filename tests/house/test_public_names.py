"""Experiments and pages use what users use: public names of public modules."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import hdmm_bf as bf

ROOT = Path(__file__).parents[2]
PUBLIC_MODULES = {
    "hdmm_bf",
    "hdmm_bf.bounds",
    "hdmm_bf.cli",
    "hdmm_bf.domain",
    "hdmm_bf.matrix",
    "hdmm_bf.objectives",
    "hdmm_bf.policy",
    "hdmm_bf.release.privacy",
    "hdmm_bf.report",
    "hdmm_bf.report.export",
    "hdmm_bf.workload",
}
"""Modules whose names are for users; CONTRIBUTING.md lists the same ones."""
CLI_NAMES = {"app", "main"}


def sources():
    return sorted([*(ROOT / "experiments").rglob("*.py"), *(ROOT / "docs").rglob("*.py")])


def ours(name):
    return name == "hdmm_bf" or name.startswith("hdmm_bf.")


def offences(tree):
    """What a syntax tree takes from the package that is not for users."""
    aliases = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if ours(alias.name):
                    aliases.add(alias.asname or alias.name)
                    if alias.name not in PUBLIC_MODULES:
                        yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and ours(node.module):
            for alias in node.names:
                if not is_public(node.module, alias.name):
                    yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        of_ours = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
        if of_ours and node.attr not in {*bf.__all__, "__all__"}:
            yield f"hdmm_bf.{node.attr}"


def is_public(module, name):
    if module not in PUBLIC_MODULES or name.startswith("_"):
        return False
    exported = CLI_NAMES if module == "hdmm_bf.cli" else getattr(importlib.import_module(module), "__all__", None)
    return exported is None or name in exported


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_experiments_and_pages_use_public_names_only(path):
    assert list(offences(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_snippets_use_public_names_only(page):
    snippets = "".join(example.source for example in doctest.DocTestParser().get_examples(page.read_text()))
    assert list(offences(ast.parse(snippets))) == []


def test_contributing_lists_the_public_modules():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    sentence = re.search(r"Public modules: (.*?)\.\n", text, flags=re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`(hdmm_bf[\w.]*)`", sentence[1])) == PUBLIC_MODULES


@pytest.mark.parametrize(
    "line",
    [
        "from hdmm_bf._checks import fail",
        "from hdmm_bf import _types",
        "import hdmm_bf._linalg",
        "from hdmm_bf.release.privacy import _positive",
        "from hdmm_bf.strategies import search",
        "from hdmm_bf.policy import words",
        "import hdmm_bf as bf\nbf.strategies",
        "def late():\n    from hdmm_bf.parallel import devices",
    ],
)
def test_the_rule_can_fail(line):
    assert list(offences(ast.parse(line)))
