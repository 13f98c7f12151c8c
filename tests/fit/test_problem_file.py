"""Problem files: what they say is what is fitted, and every mistake names the file and the line."""

import json
import re

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.fit.problem_file import line_of, read
from tests.support.command_line import assert_one_sentence, call
from tests.support.mistakes import THREE_PARTS, table

PEOPLE = """\
[[domain.attribute]]
name = "age"
size = 3
[[domain.attribute]]
name = "sex"
labels = ["F", "M"]

[policy]
attribute.age = "line"

[workload]
union = ["identity", "marginals:1"]
weights = [1, 2]

[fit]
noise = "laplace"
gap = 0.01
family = "p-identity"
seed = 3
max_seconds = 5
max_steps = 7
workers = 2
out = "people.bf"

[release]
epsilon = 2
"""
SMALL = '[policy]\nspec = "line:4"\n[workload]\nspec = "prefix:4"\n'


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "problem.toml"
        path.write_text(text)
        return path

    return write


def test_every_key_arrives(written, tmp_path):
    made = read(written(PEOPLE))
    assert made.workload.domain == made.policy.domain == bf.Domain((3, 2), ("age", "sex"), (None, ("F", "M")))
    assert made.policy.spec == "product:line:3,empty:2"
    assert (made.noise, made.gap, made.family, made.seed) == ("laplace", 0.01, "p-identity", 3)
    assert (made.max_seconds, made.max_steps, made.workers, made.out) == (5, 7, 2, str(tmp_path / "people.bf"))
    assert made.budget == {"epsilon": 2}
    expected = np.concatenate([np.eye(6), 2 * workload.parse("marginals:3x2:1").matrix.dense()])
    np.testing.assert_array_equal(made.workload.objective.dense(), expected)
    assert made.workload.name(1) == "age=0, sex=M"


def test_what_is_left_out_has_the_defaults_of_fit(written):
    made = read(written(SMALL))
    assert (made.noise, made.gap, made.family, made.seed) == ("gaussian", 1e-3, None, 0)
    assert (made.max_seconds, made.max_steps, made.out, made.budget) == (None, None, None, {})


@pytest.mark.parametrize("sizes", ['"3x2"', "[3, 2]"])
def test_sizes_are_filled_into_specs(written, sizes):
    made = read(written(f'[domain]\nsizes = {sizes}\n[policy]\nspec = "bounded"\n[workload]\nspec = "all-range"\n'))
    assert (made.policy.spec, made.workload.spec) == (policy.parse("bounded:3x2").spec, "all-range:3x2")


@table(
    ("bounded", "bounded:3x2"),
    ("bounded:3x2", "bounded:3x2"),
    ("threshold:2", "threshold:3x2:2"),
    ("sensitive:sex", "sensitive:3x2:1"),
    ("sensitive:0", "sensitive:3x2:0"),
    ("product:line,bounded", "product:line:3,bounded:2"),
    ("product:bounded:3x2", "product:bounded:3x2"),
)
def test_policies_on_a_domain_are_those_of_the_full_spec_with_its_names(case):
    domain = bf.Domain((3, 2), ("age", "sex"))
    made, plain = policy.parse(case[0], domain=domain), policy.parse(case[1])
    assert made.spec == plain.spec
    assert made.domain == domain
    np.testing.assert_array_equal(made.edges, plain.edges)


@table(
    ("identity", "identity:3x2"),
    ("marginals:1", "marginals:3x2:1"),
    ("marginals:3x2:1", "marginals:3x2:1"),
    ("random-range:5", "random-range:3x2:5:seed=0"),
    ("random-range:5:seed=2", "random-range:3x2:5:seed=2"),
    ("random-range:3x2:5:seed=2", "random-range:3x2:5:seed=2"),
)
def test_workloads_on_a_domain_are_those_of_the_full_spec_with_its_names(case):
    domain = bf.Domain((3, 2), ("age", "sex"))
    made, plain = workload.parse(case[0], domain=domain), workload.parse(case[1])
    assert made.spec == plain.spec
    assert made.domain == domain
    np.testing.assert_array_equal(made.matrix.dense(), plain.matrix.dense())


@pytest.mark.parametrize("key", ["file", "spec"])
@pytest.mark.parametrize("domain", ["", "[domain]\nsizes = 3\n"])
def test_paths_are_relative_to_the_file(written, tmp_path, monkeypatch, key, domain):
    monkeypatch.chdir("/")
    np.save(tmp_path / "W.npy", np.eye(3))
    (tmp_path / "G.csv").write_text("0,1\n1,2\n")
    made = read(written(f'{domain}[policy]\n{key} = "G.csv"\n[workload]\n{key} = "W.npy"\n'))
    np.testing.assert_array_equal(made.policy.edges, [[0, 1], [1, 2]])
    assert made.workload.num_queries == 3
    sized = read(written('[policy]\nspec = "G.csv:5"\n[workload]\nspec = "prefix:5"\n'))
    assert sized.policy.num_cells == 5


def test_one_attribute_may_have_a_graph_of_its_own(written, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "G.csv").write_text("0,1\n")
    made = read(written('[domain]\nsizes = [3, 2]\n[policy.attribute]\na0 = "G.csv"\n[workload]\nspec = "identity"\n'))
    np.testing.assert_array_equal(made.policy.edges, [[0, 2], [1, 3]])


def test_flags_take_the_place_of_what_the_file_says(written):
    made = read(written(PEOPLE), policy="bounded", workload="identity", noise="laplace", seed=9, out="x.bf")
    assert (made.policy.spec, made.workload.spec) == ("bounded:3x2", "identity:3x2")
    assert (made.seed, made.out, made.gap) == (9, "x.bf", 0.01)
    assert read(written("[fit]\nseed = 1\n"), policy="line:4", workload="prefix:4").seed == 1


def test_lines_of_keys_are_found():
    text = 'top = 1\n[a]\nx = 1\n"y z".w = 2\n[[a.b]]\nk = 1\n[[a.b]]\n# k = 5\nk = 2\ninline = {deep = 1}\n'
    assert line_of(text, ("top",)) == 1
    assert line_of(text, ("a", "x")) == 3
    assert line_of(text, ("a", "y z", "w")) == 4
    assert line_of(text, ("a", "b", 0, "k")) == 6
    assert line_of(text, ("a", "b", 1, "k")) == 9
    assert line_of(text, ("a", "b", 1, "inline", "deep")) == 10
    assert line_of(text, ("nowhere",)) == 1


DOMAIN = '[domain]\nsizes = "3x2"\n'


@table(
    ("[fit\n", 1, "[fit", "are TOML"),
    ("[fit]\nseed = \n", 2, "seed =", "are TOML"),
    ("[fit]\nseed = 1\nseed = 2\n", 3, "seed = 2", "are TOML"),
    ('[fit]\nout = """\n', 2, 'out = """', "are TOML"),
    ("[fit]\nseed = " + "9" * 5000 + "\n", 2, "seed = 99", "are TOML"),
    ("[fitt]\n", 1, "[fitt]", "Did you mean 'fit'?"),
    ("fit = 3\n", 1, "fit = 3", "Write it like [fit]."),
    ("\n[fit]\ngapp = 0.1\n", 3, "gapp = 0.1", "Did you mean 'gap'?"),
    ("[fit]\ngap = '0.1'\n", 2, "gap = '0.1'", "Write it like gap = 1e-3."),
    ("[fit]\ngap = 0\n", 2, "gap = 0", "Write it like gap = 1e-3."),
    ("[fit]\ngap = inf\n", 2, "gap = inf", "Write it like gap = 1e-3."),
    ("[fit]\nseed = true\n", 2, "seed = True", "Write it like seed = 0."),
    ("[fit]\nmax_steps = 0\n", 2, "max_steps = 0", "Write it like max_steps = 100."),
    ("[fit]\nmax_seconds = -1\n", 2, "max_seconds = -1", "Write it like max_seconds = 60."),
    ("[fit]\nnoise = 'gauss'\n", 2, "noise = 'gauss'", 'Write it like noise = "gaussian".'),
    ("[fit]\nnoise = [1]\n", 2, "noise = [1]", 'Write it like noise = "gaussian".'),
    ("[fit]\nfamily = 'vertx'\nnoise = 'laplace'\n", 2, "family = 'vertx'", "Did you mean 'vertex'?"),
    ("[domain]\nage = 7\n", 2, "age = 7", "An attribute is written as [[domain.attribute]]"),
    ("[policy]\nage = 'line'\n", 2, "age = 'line'", 'attribute = {age = "threshold 2", sex = "public"}.'),
    ("[fit]\nfamily = 'vertx'\n", 2, "family = 'vertx'", "Known: bases, gaussian, kronecker"),
    (SMALL.replace('spec = "prefix:4"', "union = ['prefix:4']\nweights = [-1]"), 5, "[-1]", "weights = [1, 2.5]"),
    ("[fit]\nout = 1\n", 2, "out = 1", 'Write it like out = "ranges.bf".'),
    ("[domain]\nsizes = 2.5\n", 2, "sizes = 2.5", 'Write it like sizes = "32x32"'),
    ("[domain]\nsizes = []\n", 2, "sizes = []", 'Write it like sizes = "32x32"'),
    ("[domain]\nsizes = '3x'\n", 2, "'3x'", "Give one size"),
    ("[domain]\n", 1, "an empty table", "Write one of them."),
    ("[domain]\nsizes = 3\nattribute = [{name = 'a', size = 3}]\n", 3, "sizes and attribute", "Write one of them."),
    ("[domain]\nattribute = 3\n", 2, "attribute = 3", "Write it like attribute = ["),
    ("[[domain.attribute]]\nname = 'a'\n", 1, "{'name': 'a'}", "Write it like name"),
    ("[[domain.attribute]]\nsize = 2\n", 1, "{'size': 2}", "Write it like name"),
    ("[[domain.attribute]]\nname = 'a'\nsizes = 2\n", 3, "sizes = 2", "Did you mean 'size'?"),
    ("[[domain.attribute]]\nname = 'a'\nsize = 2\n[[domain.attribute]]\nname = 5\n", 5, "name = 5", "name ="),
    ("[[domain.attribute]]\nname = 'a'\nlabels = [1]\n", 3, "labels = [1]", 'labels = ["F", "M"]'),
    ("[[domain.attribute]]\nname = 'a'\nlabels = ['x']\nsize = 2\n", 1, "a: 1 labels", "Correct the list of labels"),
    ("[[domain.attribute]]\nname='a'\nsize=2\n" * 2, 1, "('a', 'a')", "Rename the repeated attribute."),
    ("[workload]\nspec = 'prefix:4'\n", 1, "no such table", "Write one of them."),
    ("[policy]\nspec = 'lin:4'\n", 2, "'lin:4'", "Did you mean 'line'?"),
    ("[policy]\nspec = 4\n", 2, "spec = 4", 'Write it like spec = "threshold:64:4".'),
    ("[policy]\nfile = 'none.csv'\n", 2, "none.csv", "Check the path"),
    ("[policy]\nspec = 'line:4'\nfile = 'G.csv'\n", 3, "spec and file", "Write one of them."),
    ("[policy]\nattribute.a0 = 'line'\n", 2, "policy.attribute(a0)", "Add a [domain] table."),
    (DOMAIN + "[policy]\nspec = 'line:64'\n", 4, "'64'", "Leave the size out of the spec"),
    (DOMAIN + "[policy]\nspec = 'sensitive:agee'\n", 4, "'agee'", "Known: a0, a1."),
    (DOMAIN + "[policy]\nspec = 'threshold'\n", 4, "got 0", "Write it like threshold:64:4."),
    (DOMAIN + "[policy.attribute]\na0 = 'line'\na2 = 'line'\n", 5, "'a2'", "Did you mean 'a1'?"),
    (DOMAIN + "[policy]\nattribute = {a0 = 'lin'}\n", 4, "'lin'", "Did you mean 'line'?"),
    (DOMAIN + "[policy]\nattribute.a0 = 3\n", 4, "a0 = 3", 'Write it like a0 = "line".'),
    ("[policy]\nspec = 'line:4'\n", 1, "no such table", "Write one of them."),
    ("[policy]\nspec = 'line:4'\n[workload]\nspec = 'prefx:4'\n", 4, "'prefx:4'", "Did you mean 'prefix'?"),
    ("[policy]\nspec = 'line:4'\n[workload]\nunion = 'prefix:4'\n", 4, "union = 'prefix:4'", "Write it like union"),
    (SMALL + "weights = [1]\n", 5, "1 weights for 1 workloads", "Correct the list."),
    (SMALL.replace('spec = "prefix:4"', "union = ['prefix:4']\nweights = [1, 2]"), 5, "2 weights", "Correct"),
    (SMALL.replace('spec = "prefix:4"', "union = ['prefix:4', 'prefix:5']"), 4, "4 and 5 cells", "workload.product"),
    (SMALL + "[release]\nepsilon = 0\n", 6, "epsilon = 0", "Write it like epsilon = 1.0."),
    (SMALL + "[release]\nepsilon = 1" + "0" * 400 + "\n", 6, "epsilon = 1000", "Write it like epsilon = 1.0."),
    (SMALL + "[release]\nepsilon = 1\n", 5, "epsilon=1", "delta"),
)
def test_a_mistake_names_the_file_and_the_line(case, written):
    text, line, seen, advice = case
    path = written(text)
    with pytest.raises(InputError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: line {line}: "), message
    assert seen in message
    assert advice in message
    assert THREE_PARTS.fullmatch(message), message
    assert len(message.splitlines()) == 1


def test_deep_nesting_is_refused(written):
    with pytest.raises(InputError, match="line 1: toml"):
        read(written("a = " + "[" * 100_000))


def test_workload_files_must_have_a_column_for_each_cell_of_the_domain(written, tmp_path):
    np.save(tmp_path / "W.npy", np.eye(3))
    for key in ("file", "spec"):
        path = written(f'[domain]\nsizes = 4\n[policy]\nspec = "line"\n[workload]\n{key} = "W.npy"\n')
        with pytest.raises(InputError, match=re.escape("line 6: workload(3 columns)")):
            read(path)


def test_fit_takes_a_file_and_flags_override_it(tmp_path):
    (tmp_path / "people.toml").write_text(PEOPLE.replace('family = "p-identity"\n', ""))
    flags = ("--noise", "gaussian", "--gap", "0.002", "--workers", "1", "--json")
    assert_one_sentence(call("fit", "people.toml", *flags, cwd=tmp_path), "people.toml: line 24: ")
    (tmp_path / "people.toml").write_text(PEOPLE.replace('family = "p-identity"\n', "") + "delta = 1e-6\n")
    result = call("fit", "--problem", "people.toml", *flags, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert (record["noise"], record["seed"], record["bundle"]) == ("gaussian", 3, "people.bf")
    assert record["rmse"] == pytest.approx(bf.load(tmp_path / "people.bf").rmse(epsilon=2.0, delta=1e-6))
    assert record["budget"] == {"epsilon": 2, "delta": 1e-6}


def test_names_and_labels_reach_the_released_files(tmp_path):
    people = PEOPLE[: PEOPLE.index("[workload]")] + '[workload]\nspec = "identity"\n[fit]\nout = "p.bf"\n'
    (tmp_path / "p.toml").write_text(people + "[release]\nrho = 0.5\n")
    words = call("fit", "p.toml", cwd=tmp_path)
    assert words.returncode == 0, words.stderr
    assert "Expected rmse of an answer at rho 0.5: " in words.stdout
    np.save(tmp_path / "x.npy", np.arange(6))
    flags = ("--data", "x.npy", "--epsilon", "1", "--delta", "1e-6", "--out", "a.csv", "--estimate", "e.csv")
    assert call("release", "p.bf", *flags, cwd=tmp_path).returncode == 0
    assert "\nage x sex,2,M," in (tmp_path / "a.csv").read_text()
    assert "age=2, sex=M" in (tmp_path / "e.csv").read_text()


def test_bound_and_compare_take_a_file(tmp_path):
    (tmp_path / "p.toml").write_text(SMALL)
    by_file = call("bound", "p.toml", "--json", cwd=tmp_path).stdout
    assert json.loads(by_file) == json.loads(call("bound", "-w", "prefix:4", "-g", "line:4", "--json").stdout)
    record = json.loads(call("compare", "p.toml", "--json", cwd=tmp_path).stdout)
    assert record["lower_bound"] == pytest.approx(json.loads(by_file)["lower_bound"], rel=1e-2)


@table(
    (("fit", "-w", "prefix:4"), "Missing option '--policy' / '-g'."),
    (("fit", "-g", "line:4"), "Missing option '--workload' / '-w'."),
    (("fit", "none.toml"), "no such file"),
    (("fit", "a.toml", "--problem", "b.toml"), "are two problem files; give one."),
)
def test_mistakes_on_the_command_line_are_one_sentence(case, tmp_path):
    assert_one_sentence(call(*case[0], cwd=tmp_path), case[1])
