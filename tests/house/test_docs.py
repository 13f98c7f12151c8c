"""The pages of the documentation run, agree with the package, and can be built."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hdmm_bf as bf
from tests.support.snippets import blocks, run_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RUN = [page for page in PAGES if blocks(page.read_text(), "pycon", "console")]
LARGEST_PICTURE = 150_000
NOT_RUN = {"sh", "r"}
"""Instructions for a shell, and R, which is not needed to develop this package."""

MOST_NOT_RUN = 2
WIDEST = 106
"""Characters of a line of code that fit on a page without scrolling."""

NO_CODE = {"text", "toml"}


def name(page):
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", RUN, ids=name)
def test_a_page_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = run_page(page.read_text(), name(page), tmp_path)
    assert not wrong, wrong


def test_a_page_that_says_something_else_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "```pycon\n>>> a = 1\n```\n\n```pycon\n>>> a + 1\n{}\n```\n"
    assert run_page(page.format(2), "control", tmp_path) == ""
    assert "Got" in run_page(page.format(3), "control", tmp_path)
    assert "Got" in run_page("```console\n$ hdmm-bf explain line:4\nnothing\n```\n", "control", tmp_path)


def test_code_that_is_not_run_is_rare():
    kinds = [block.kind for page in PAGES for block in blocks(page.read_text())]
    assert set(kinds) <= {"pycon", "console"} | NOT_RUN | NO_CODE
    assert sum(kind in NOT_RUN for kind in kinds) <= MOST_NOT_RUN


def test_every_kind_of_page_is_run():
    assert {page.parent.name for page in RUN} >= {"tutorials", "howto"}
    assert len(RUN) >= 7


@pytest.mark.parametrize("page", sorted(DOCS.glob("tutorials/*.md")), ids=name)
def test_every_picture_is_made_by_a_snippet_of_its_page(page):
    text = page.read_text()
    saved = set(re.findall(r'savefig\("([^"]+)"', text))
    shown = {Path(target).name for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)}
    assert saved == shown
    for picture in shown:
        assert 0 < (DOCS / "_static" / picture).stat().st_size < LARGEST_PICTURE


def test_no_picture_is_left_over():
    text = "".join(page.read_text() for page in PAGES)
    assert [p.name for p in (DOCS / "_static").glob("*.png") if p.name not in text] == []


def test_the_reference_names_the_whole_public_surface():
    text = "".join(page.read_text() for page in DOCS.glob("reference/*.md"))
    named = set(re.findall(r"^\.\. auto\w+:: (?:[\w.]+\.)?(\w+)$", text, flags=re.MULTILINE))
    surface = {*bf.__all__, *bf.policy.__all__, *bf.workload.__all__, *bf.plots.__all__, *bf.objectives.__all__}
    elsewhere = {"__version__", "BOTTOM", "domain", "policy", "workload"}  # pages of their own, or a sentence
    assert sorted(surface - named - elsewhere) == []


MACHINE = "|".join(f"/{folder}/" for folder in ("tmp", "work", "home", "root"))
"""Folders of one machine."""


def test_pages_are_short_and_name_no_machine():
    for page in [*PAGES, *DOCS.glob("*.py")]:
        text = page.read_text()
        assert len(text.splitlines()) <= 400, page
        assert not re.search(MACHINE, text), page


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_fits_on_the_page(page):
    for block in blocks(page.read_text()):
        for number, line in enumerate(block.code.splitlines(), block.line):
            assert len(line) <= WIDEST, f"{name(page)}, line {number}"


def test_links_between_pages_exist():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{name(page)}: {target}"


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="needs the dependency group docs")
def test_the_pages_are_built_without_a_warning(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path)]
    run = subprocess.run(build, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    html = "".join(page.read_text() for page in tmp_path.rglob("*.html"))
    loaded = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:[^\"]+)", html)
    assert loaded == [], "pages load nothing from elsewhere"
