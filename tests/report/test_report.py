"""The page: complete, alone, the same twice, safe against hostile names, readable without its pictures."""

import dataclasses
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hdmm_bf as bf
from tests.support.command_line import assert_one_sentence, call

pytest.importorskip("matplotlib")

from hdmm_bf.report import render, sections, write_report  # noqa: E402

SECTIONS = [
    "Summary",
    "What is public",
    "Facts",
    "The policy",
    "What is measured",
    "Error of every query",
    "Which numbers are the worst?",
    "How the search went",
    "Compared with other mechanisms",
    "How to reproduce it",
    "How to cite",
]
VOID = {"meta", "br", "img", "link", "hr", "input"}
EVIL = "<script>alert(1)</script>\"'$x$ & https://evil.example"


@pytest.fixture(scope="module")
def fits():
    return {
        "gaussian": bf.fit("all-range:16", "threshold:16:3"),
        "edge": bf.fit("all-range:8", "cycle:8", noise="laplace", max_steps=4),
        "public": bf.fit("identity:8", "empty:8"),
        "blocks": bf.fit("marginals:2x3x4:2", "product:line:2,bounded:3,empty:4", family="sectors"),
        "targets": bf.fit("all-range:8", "unbounded:8", targets=np.where(np.arange(36) % 2, 2.0, 3.0), gap=0.1),
        "large": bf.fit("marginals:20x30x40:2", "product:line:20,bounded:30,empty:40", gap=0.1),
    }


@pytest.fixture(scope="module")
def pages(fits):
    return {kind: render(fit) for kind, fit in fits.items()}


KINDS = ["gaussian", "edge", "public", "blocks", "targets", "large"]


class Reader(html.parser.HTMLParser):
    """Collects elements and checks that they are closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def elements(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_the_kinds_of_fits_are_what_they_are_called(fits):
    for name, kind in {"gaussian": "vertex", "edge": "edge", "public": "vertex", "blocks": "blocks"}.items():
        assert fits[name].strategy.kind == kind
    assert fits["public"].status == "exact"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fit_has_every_section(fits, pages, kind):
    reader = Reader(pages[kind])
    page = "".join(reader.text)
    for section in SECTIONS:
        assert section in page
    assert [a["id"] for a in reader.elements("h2")] == [a["href"][1:] for a in reader.elements("a")]
    assert "nan" not in re.findall(r"[a-z]+", page)
    assert "inf" not in re.findall(r"[a-z]+", page)
    assert f"--seed {fits[kind].seed}" in page
    assert "hdmm-bf verify" in page


@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_has_a_text_alternative_and_a_caption(pages, kind):
    reader = Reader(pages[kind])
    pictures = reader.elements("svg")
    assert len(pictures) >= (1 if kind == "public" else 3)
    for attributes in pictures:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 30
    assert len(reader.elements("figcaption")) == len(pictures)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_refers_to_nothing_outside_itself(pages, kind):
    page = pages[kind]
    for foreign in ("http://", "https://", "src=", "@import", "//cdn", "<script", "<link", "<iframe"):
        assert foreign not in page
    for _, attributes in Reader(page).found:
        assert attributes.get("href", "#").startswith(("#", "data:image/png;base64,"))
    assert set(re.findall(r"url\((.)", page)) <= {"#"}


def test_identifiers_are_used_once(pages):
    used = [attributes["id"] for _, attributes in Reader(pages["gaussian"]).found if "id" in attributes]
    assert len(used) == len(set(used))


@pytest.mark.parametrize("kind", ["gaussian", "edge"])
def test_a_bundle_gives_the_same_page_whenever_it_is_loaded(fits, kind, tmp_path):
    bundle = fits[kind].save(tmp_path / "b.bf")
    assert render(bf.load(bundle)) == render(bf.load(bundle))


def test_hostile_names_are_words_and_nothing_else():
    domain = bf.Domain((2, 3), names=(EVIL, "b"))
    policy = dataclasses.replace(bf.policy.bounded(domain), spec=EVIL, meaning=EVIL, notes=(EVIL,))
    fit = bf.fit(bf.workload.from_matrix(np.eye(6), domain=domain, spec=EVIL), policy)
    fit = dataclasses.replace(
        fit, strategy=dataclasses.replace(fit.strategy, family=EVIL), reached={EVIL + "2": 2 * fit.unit_error}
    )
    page = render(fit, bundle=EVIL)
    reader = Reader(page)
    assert "<script" not in page
    assert reader.elements("script") == []
    assert {name for _, attributes in reader.found for name in attributes if name.startswith("on")} == set()
    assert "".join(reader.text).count(EVIL) >= 5
    assert "WORKLOAD.npz" in page
    assert "POLICY.csv" in page


def test_the_numbers_are_those_of_the_fit(fits, pages):
    fit = fits["gaussian"]
    page = "".join(Reader(pages["gaussian"]).text)
    assert f"{bf.plan(fit, epsilon=1.0, delta=1e-6).rmse:.4g} records" in page
    assert f"within {100 * fit.gap:.2g} %" in page
    assert f"{fit.unit_error:.6g}" in page
    assert "the total number of records" in page
    assert "hdmm-bf fit --workload all-range:16 --policy threshold:16:3 --noise gaussian --gap 0.001 --seed 0" in page


def test_the_comparison_is_the_one_of_compare(pages):
    rows, _ = bf.compare("all-range:8", "cycle:8", noise="laplace", max_steps=4)
    page = "".join(Reader(pages["edge"]).text)
    for row in rows:
        assert row.name in page
        assert f"{row.ratio_to_lower:.4g}" in page


def test_a_bundle_shows_how_its_search_went(fits, tmp_path):
    page = render(bf.load(fits["gaussian"].save(tmp_path / "g.bf")))
    assert f"{len(fits['gaussian'].trace)} steps drawn" in page


def test_the_command_gives_the_options_of_the_search(pages):
    assert "--max-steps 4" in pages["edge"]
    assert "--max" not in pages["gaussian"]


def test_the_command_of_a_structured_fit_names_its_family(pages):
    assert "--family sectors" in pages["blocks"]
    assert "--family" not in pages["large"]
    assert "300 cells only" in pages["large"]


def test_the_citation_is_that_of_the_citation_file():
    known = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    titles = re.findall(r'title: "(.*)"', known)
    page = render(bf.fit("identity:2", "empty:2"))
    assert len(titles) == 2
    assert all(title in page for title in titles)
    assert all(name in page for name in re.findall(r"family-names: (\w+)", known))


def test_the_file_must_be_a_page(fits, tmp_path):
    with pytest.raises(bf.InputError, match="unknown kind of file"):
        write_report(fits["public"], tmp_path / "page.pdf")
    with pytest.raises(bf.InputError, match="cannot be written"):
        write_report(fits["public"], tmp_path / "missing" / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_page(fits, tmp_path):
    fits["gaussian"].save(tmp_path / "r.bf")
    done = call("report", "r.bf", "--out", "page.html", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["file"] == "page.html"
    page = (tmp_path / "page.html").read_text()
    assert page == render(bf.load(tmp_path / "r.bf"), bundle="r.bf")
    assert "hdmm-bf verify r.bf" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("r.bf", "--out", "page.pdf"), "unknown kind of file '.pdf'"),
        (("r.bf",), "--out"),
        (("missing.bf", "--out", "page.html"), "missing.bf"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, arguments, words):
    assert_one_sentence(call("report", *arguments, cwd=tmp_path), words)


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browse(page, picture, *options):
    """Open a page in a browser without a window; return its elements, and what its console said."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
    seen = subprocess.run(
        [CHROMIUM, *flags, "--enable-logging=stderr", f"--screenshot={picture}", *options, f"file://{page}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line for line in seen.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_the_pictures_without_complaint_or_request(fits, tmp_path):
    """The page forbids the browser to load anything, which then complains on its console: the control does."""
    from matplotlib.image import imread

    page = write_report(fits["gaussian"], tmp_path / "page.html")
    options = (f"--user-data-dir={tmp_path / 'profile'}", "--window-size=390,5200")
    assert browse(page, tmp_path / "seen.png", *options) == []
    seen = imread(tmp_path / "seen.png")[:, :, :3]
    blue = np.abs(seen - np.array([0x00, 0x72, 0xB2]) / 255).max(axis=2) < 0.05
    assert seen.shape[1] == 390
    assert blue.sum() > 200, "the curves are not there"
    control = tmp_path / "control.html"
    control.write_text(page.read_text().replace("</main>", '<img src="https://example.org/x.png"></main>'))
    assert browse(control, tmp_path / "control.png", *options) != []


def test_the_worst_queries_are_named_and_beside_their_targets(fits, pages):
    words = "".join(Reader(pages["gaussian"]).text)
    stddev = fits["gaussian"].per_query_stddev(epsilon=1.0, delta=1e-6)
    worst = fits["gaussian"].problem.workload.name(int(stddev.argmax()))
    assert f"the largest standard deviation is {stddev.max():.4g} records, of {worst}" in words
    fit, words = fits["targets"], "".join(Reader(pages["targets"]).text)
    targets = fit.problem.goal.targets
    met = np.sum(fit.per_query_stddev(epsilon=1.0, delta=1e-6) <= targets)
    assert f"At epsilon 1 and delta 1e-6 a release meets {met} of 36 targets." in words
    (shown,) = re.findall(r"At epsilon ([0-9.]+) and delta 1e-6, the smallest epsilon that does it", words)
    needed = fit.epsilon_for(stddev=targets, delta=1e-6)
    assert needed <= float(shown) <= 1.01 * needed


def test_a_goal_is_named_with_its_value_and_its_bound(fits, pages):
    fit, words = fits["targets"], "".join(Reader(pages["targets"]).text)
    assert f"variances over squared targets small, not the total: it is {fit.objective_value:.6g}" in words
    assert f"No Gaussian matrix mechanism is below {fit.objective_bound:.6g}" in words
    assert "gap of the total" in words
    assert "--targets TARGETS.csv" in words
    assert "not the total" not in "".join(Reader(pages["gaussian"]).text)
    one = dataclasses.replace(fit, problem=bf.problem("all-range:8", "unbounded:8", targets=2.5))
    assert "--targets 2.5 " in "".join(Reader(sections.reproduce(one, "a.bf").body).text)
