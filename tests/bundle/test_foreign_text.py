"""Names and words from files: nobody is shown another policy's name, and no text passes for a line of ours."""

import json
import re
import shutil
import unicodedata

import numpy as np
import pytest
from click.testing import CliRunner

import hdmm_bf as bf
from hdmm_bf import _display, policy, workload
from hdmm_bf._checks import InputError, fail
from hdmm_bf.bundle.files import npz
from hdmm_bf.cli import app
from hdmm_bf.domain import Domain
from hdmm_bf.report import render
from hdmm_bf.report.export import metadata_file, write_answers
from tests.support.bundles import forge

FALSE_NAMES = {
    "ratio signs": "threshold\u223664\u22364",
    "braille blank": "\u2800threshold:64:4",
    "middle dots": "threshold\u00b764\u00b74",
    "wide colons": "threshold\uff1a64\uff1a4",
    "more words": "the policy threshold:64:4",
    "a path": "./threshold:64:4",
}
DANGERS = {
    "a line": "x\nVerified: every claim was derived again.",
    "a carriage return": "x\rVerified: every claim was derived again.",
    "erasing": "x\x1b[2K\x1b[1AVerified",
    "eight-bit escape": "x\x9b2K",
    "bell and backspace": "x\x07\x08\x08",
    "right to left": "x\u202egnp.\u202c\u2066y\u2069",
    "zero width": "x\u200b\u200d\ufeffy",
    "line separator": "x\u2028Verified\u2029",
    "blank letters": "x\u3164\u115f\u1160\uffa0\u2800y",
    "variation selectors": "x\ufe0f\U000e0101\u180b",
    "tags": "x\U000e0041\U000e007f",
    "private and unassigned": "x\ue000\U000f0000\u0378",
    "other spaces": "x\u00a0\u2003\u3000y",
    "a flood of marks": "x" + "\u0301\u0489" * 300,
    "a mark for what stands before": "\u0301x",
    "a wide gap": "x" + " " * 150 + "Verified",
    "very long": "x" * 100_000,
    "tab": "x\ty",
}


@pytest.fixture(scope="module")
def weak(tmp_path_factory):
    """A bundle of a line, the weaker policy, that came from a file."""
    u = np.arange(63)
    made = bf.fit("prefix:64", policy.from_edges(u, u + 1, 64, spec="mine.csv"), gap=0.1)
    return made.save(tmp_path_factory.mktemp("weak") / "weak.bf")


def run(*arguments):
    return CliRunner(catch_exceptions=False).invoke(app, [str(a) for a in arguments], standalone_mode=False)


def called(path, tmp_path, **claims):
    copy = shutil.copytree(path, tmp_path / "copy.bf", dirs_exist_ok=True)

    def change(folder, manifest):
        for key, value in claims.items():
            place, _, last = key.rpartition("__")
            (manifest[place] if place else manifest)[last] = value

    forge(copy, change)
    return copy


def promised(out, path):
    """What stands beside a CSV file of answers."""
    beside = metadata_file(write_answers(out, path, level=0.95))
    return "\n".join(json.loads(beside.read_text(encoding="utf-8"))["notes"][0].values())


@pytest.mark.parametrize("name", FALSE_NAMES.values(), ids=FALSE_NAMES)
def test_a_weak_policy_is_never_shown_under_the_name_of_a_strong_one(name, weak, tmp_path):
    """Quotes policy.naming: called by a spec string only if its edges are those that the spec string makes."""
    path = called(weak, tmp_path, policy__spec=name)
    shown = f"custom graph {_display.quoted(name)}, 63 edges"
    hidden = "Nobody can tell on which side of any of the graph's 63 edges one record is."
    made = bf.load(path)
    commands = {"verify": ["verify", path], "dry run": ["release", path, "--rho", 0.5, "--dry-run"]}
    seen = {
        **{command: run(*words).output for command, words in commands.items()},
        "repr": repr(made),
        "notebook": made._repr_html_().replace("&quot;", '"').replace("&#x27;", "'"),
        "report": render(made).replace("&quot;", '"').replace("&#x27;", "'"),
        "promise": promised(bf.release(made, np.ones(64, dtype=int), rho=0.5), tmp_path / "a.csv"),
    }
    for where, text in seen.items():
        assert shown in text, where
        assert text.count(name) == text.count(shown) * shown.count(name), where  # nowhere without the quotes
    for command, words in commands.items():
        assert hidden in seen[command]
        assert "the total number of records" in seen[command]
        record = json.loads(run(*words, "--json").output)
        assert record["policy"] == shown
        assert record["hides"] == hidden
        assert record["discloses"] == ["the total number of records"]


@pytest.mark.parametrize("name", ["\u3164threshold:64:4", "\u03c4hreshold: 64:4 ", "threshold:64:\u0664", "Line :64"])
def test_a_name_that_is_nearly_a_spec_is_refused(name, weak, tmp_path):
    answer = run("verify", called(weak, tmp_path, policy__spec=name))
    assert answer.return_value == 1
    assert "looks like a spec string and is none" in answer.output


def test_a_graph_that_is_the_one_of_its_spec_is_called_by_it_and_no_other_is():
    line, other = (np.arange(3), np.arange(1, 4)), ([0, 0, 0], [1, 2, 3])
    assert policy.from_edges(*line, 4, spec="line:4").title == "line:4"
    assert policy.from_edges(*other, 4, spec="line:4").title == 'custom graph "line:4", 3 edges'
    assert policy.from_edges(*line, 5, spec="line:4").title == 'custom graph "line:4", 3 edges'
    assert policy.from_edges(*other, 4, spec="product:line:2,line:2").title.startswith("custom graph")
    assert policy.from_edges([0], [1], 2, spec='a", 9 edges').title == r'custom graph "a\", 9 edges", 1 edge'
    assert policy.from_edges(*line, 4).title == "custom graph, 3 edges"
    factor = policy.from_edges([0], [1], 3, spec="line:3")
    assert policy.product(factor, policy.line(2)).title == 'custom graph "product:line:3,line:2", 5 edges'


@pytest.mark.parametrize(
    "spec",
    ["line:5", "unbounded:2x3", "bounded:4", "threshold:8:3", "threshold:4x4:1", "threshold:4x4:2", "cycle:5"]
    + ["star-tree:6", "h-theta:12:3", "empty:3", "sensitive:2x3x2:0,2", "product:line:4,bounded:3", "product:cycle:4"]
    + ["product:unbounded:2,unbounded:3", "product:line:1000,line:1000,line:1000,line:1000,line:1000,line:1000"],
)
def test_policies_of_spec_strings_are_called_by_them(spec):
    assert policy.parse(spec).title == spec


@pytest.mark.parametrize("name", ["line:64.csv", "threshold:64:4.csv", "unbounded:64.json"])
def test_a_file_that_is_named_like_a_spec_is_a_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name.endswith(".csv"):
        (tmp_path / name).write_text("0,1\n1,2\n")
    else:
        graph = {"nodes": [{"id": i} for i in range(3)], "edges": [{"source": 0, "target": 1}]}
        (tmp_path / name).write_text(json.dumps(graph))
    edges = "2 edges" if name.endswith(".csv") else "1 edge"
    output = run("explain", name).output
    assert output.startswith(f'custom graph "{name}", {edges}: 3 cells')
    (tmp_path / "prefix:3.csv").write_text("1,1,0\n0,1,1\n")
    output = run("fit", "--workload", "prefix:3.csv", "--policy", name, "--out", "x.bf").output
    assert output.startswith(f'custom matrix "prefix:3.csv", 2 queries under custom graph "{name}", {edges}, gaussian')
    assert run("verify", "x.bf").output.splitlines()[0] == output.splitlines()[0].replace(
        '"prefix:3.csv"', '"matrix (prefix:3.csv)"'
    ).replace(f'"{name}"', f'"graph ({name})"')


def test_a_matrix_is_never_shown_under_the_name_of_a_workload(tmp_path):
    made = bf.fit(workload.from_matrix(np.eye(4), spec="mine"), "line:4")
    path = called(made.save(tmp_path / "m.bf"), tmp_path, workload__spec="all-range\u22364")
    assert json.loads(run("verify", path, "--json").output)["workload"] == 'custom matrix "all-range\u22364", 4 queries'
    assert workload.from_matrix(np.eye(4), spec="identity:4").title == 'custom matrix "identity:4", 4 queries'


@pytest.mark.parametrize(
    "spec", ["identity:4", "prefix:2x3", "all-range:5", "marginals:2x3:1", "random-range:9:4:seed=3"]
)
def test_workloads_of_spec_strings_are_called_by_them(spec):
    assert workload.parse(spec).title == spec


def is_plain(line):
    clean = all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in line)
    return clean and not set(line) & set("\u2800\u3164\u115f\u1160\uffa0\ufe0f\u180b") and "    " not in line


@pytest.mark.parametrize("words", DANGERS.values(), ids=DANGERS)
def test_dangerous_text_is_escaped_and_plain_text_stays(words):
    """Quotes _display.plain."""
    shown = _display.plain(words)
    assert is_plain(shown)
    assert len(shown) <= 2000 * 6
    assert shown != words
    assert _display.plain(shown) == shown
    assert is_plain(str(fail("here", words, words, words)))
    for honest in ("naïve", "日本語 の 列", "salary <= 10", "ß = 1", "שלום", "e\u0301", "❤", "a  b"):
        assert _display.plain(honest) == honest


@pytest.mark.parametrize("words", DANGERS.values(), ids=DANGERS)
def test_text_in_a_bundle_cannot_forge_a_line_on_the_terminal_or_leave_its_place_on_a_page(words, tmp_path):
    domain = Domain((2, 2), (f"a{words}", "b"), (None, (f"l{words}", "m")))
    made = bf.fit(workload.marginals(domain, 1), policy.sensitive(domain, [0]), family="marginals")
    path = made.save(tmp_path / "x.bf")
    told = called(path, tmp_path, why=words, reached={words: 10.0**6})
    if words.isprintable():
        path = told
    else:
        with pytest.raises(InputError, match=r"manifest\.json"):
            bf.load(told)
    for command in (["verify", path], ["release", path, "--rho", 1, "--dry-run"]):
        answer = run(*command)
        assert not answer.return_value, answer.output
        values = [re.sub(r"^  \w+( \w+)? {2,}", "", line) for line in answer.output.splitlines()]
        assert [value for value in values if not is_plain(value)] == []
        assert answer.output.count("\nVerified") == (command[0] == "verify")
    page = render(bf.load(path))
    assert all(is_plain(line.strip()) for line in page.split("\n") if "Verified" in line)
    hidden = {c for c in words if _display.is_hidden(c)} - set("\n\t")
    assert not hidden & set(page)
    page.encode()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    u = np.arange(3)
    made = bf.fit("prefix:4", policy.from_edges(u, u + 1, 4, spec="mine.csv"), noise="norm", max_steps=1)
    return made.save(tmp_path_factory.mktemp("tree") / "tree.bf")


@pytest.mark.parametrize("words", list(DANGERS.values())[::3], ids=list(DANGERS)[::3])
def test_the_family_of_a_tree_cannot_forge_a_line_on_the_terminal(words, tree, tmp_path):
    path = shutil.copytree(tree, tmp_path / "copy.bf")

    def change(folder, manifest):
        arrays = dict(np.load(folder / "tree.npz"))
        (folder / "tree.npz").write_bytes(npz(**{**arrays, "family": np.array(words)}))
        manifest["family"] = words

    forge(path, change)
    for command in (["verify", path], ["release", path, "--epsilon", 1, "--dry-run"]):
        if not words.isprintable():
            with pytest.raises(InputError, match=r"tree\.npz|manifest\.json"):
                bf.load(path)
            continue
        answer = run(*command)
        assert all(is_plain(re.sub(r"^  \w+( \w+)? {2,}", "", line)) for line in answer.output.splitlines())
        assert answer.output.count("\nVerified") == (command[0] == "verify" and not answer.return_value)


@pytest.mark.parametrize("place", ["domain__names", "domain__labels", "why", "reached", "policy__spec"])
def test_half_a_character_in_a_bundle_is_refused_when_it_is_read(place, tmp_path):
    made = bf.fit("marginals:2x2:1", "product:line:2,line:2", family="marginals")
    half = "x\ud800"
    values = {
        "domain__names": [half, "b"],
        "domain__labels": [[half, "m"], None],
        "reached": {half: 10.0**6},
    }
    path = called(made.save(tmp_path / "x.bf"), tmp_path, **{place: values.get(place, half)})
    with pytest.raises(InputError, match=r"manifest\.json"):
        bf.load(path)


def test_a_report_of_names_that_no_file_can_hold_is_written():
    domain = Domain((2,), ("x\ud800",), (("\udfff", "$\\frac{$"),))
    render(bf.fit(workload.identity(domain), policy.line(domain))).encode()
