"""Every mistake a user can make is an `InputError` in three parts: what, the value seen, what to do."""

import io
import json
import os
import re
import subprocess
import sys
import zipfile

import jaxtyping
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf import policy, transform, workload
from hdmm_bf._checks import InputError, readable_bytes
from hdmm_bf.sensitivities import edge_norms, sensitivity

THREE_PARTS = re.compile(r"[\w.: /-]+\(.+\): .+[.?`)] .+[.?]", re.DOTALL)
PEOPLE = bf.Domain((2, 3), ("sex", "age"), (("F", "M"), None))
SIZES = "Give one size for each attribute, for example 64 or 32x32."
FINITE = "Remove NaN and infinite entries."
SMALLER = "Use a smaller domain or a sparser policy."
IMPLICIT = "Use mv, rmv or gram, which do not write the matrix out"


@pytest.fixture(autouse=True)
def _as_users_run_it():
    """Users have no jaxtyping hook: mistakes in types must be caught by the package itself."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def only_text(value):
    """Name a test by its words, not by the bytes of its file."""
    return value if isinstance(value, str) and len(value) < 40 else ""


def assert_refused(mistake, seen, advice=""):
    """The mistake raises an InputError with the value seen and, where the message is fixed, the advice."""
    with pytest.raises(InputError) as caught:
        mistake()
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert seen in message
    assert advice in message
    assert THREE_PARTS.fullmatch(message), message


def table(*cases):
    """Parametrise over (mistake, value seen, advice), or only (mistake, value seen)."""
    return pytest.mark.parametrize("case", cases, ids=[f"{i}-{case[1]}"[:40] for i, case in enumerate(cases)])


def problem(cells=3):
    return bf.Problem(workload.identity(cells), policy.line(cells))


# Domains


@table(
    (lambda: bf.Domain((0,)), "size=0", SIZES),
    (lambda: bf.Domain((4, -3)), "size=-3", SIZES),
    (lambda: bf.Domain((2.5,)), "size=2.5", SIZES),
    (lambda: bf.Domain((True,)), "size=True", SIZES),
    (lambda: bf.Domain(()), "sizes=()", SIZES),
    (lambda: bf.Domain((2, 3), ("a",)), "2 sizes, 1 names", "Give one name and one list of labels"),
    (lambda: bf.Domain((2, 3), labels=(None,)), "1 lists of labels", "Give one name and one list of labels"),
    (lambda: bf.Domain((2, 3), ("a", "a")), "('a', 'a')", "Rename the repeated attribute."),
    (lambda: bf.Domain((3,), labels=(("x", "y"),)), "2 labels", "Correct the list of labels or the size."),
    (lambda: bf.Domain((2,), labels=(("x", "x"),)), "1 different", "Correct the list of labels or the size."),
    (lambda: PEOPLE.attribute("agee"), "'agee'", "Did you mean 'age'?"),
    (lambda: PEOPLE.attribute("zzzzzz"), "'zzzzzz'", "Known: age, sex."),
    (lambda: PEOPLE.attribute(2), "attribute(2)", "Use 0 to 1."),
    (lambda: PEOPLE.ravel([1]), "1 coordinates", "Give one coordinate for each."),
    (lambda: PEOPLE.ravel([1, 3]), "age=3", "enlarge the domain"),
    (lambda: PEOPLE.ravel([-1, 0]), "sex=-1", "enlarge the domain"),
    (lambda: PEOPLE.ravel([0.5, 0]), "sex=0.5", "enlarge the domain"),
    (lambda: PEOPLE.unravel(6), "unravel(6)", "Correct the cell number."),
    (lambda: PEOPLE.unravel(-1), "unravel(-1)", "Correct the cell number."),
    (lambda: PEOPLE.cell(sex="F"), "{'sex': 'F'}", "Name every attribute."),
    (lambda: PEOPLE.cell(sex="F", agee=1), "'agee'", "Did you mean 'age'?"),
    (lambda: PEOPLE.cell(sex="m", age=0), "sex='m'", "Did you mean 'M'?"),
    (lambda: PEOPLE.cell(sex="F", age="old"), "age='old'", "use the value's number"),
)
def test_a_wrong_domain_is_refused(case):
    assert_refused(*case)


@table(
    (lambda: policy.line(64.0), "64.0"),
    (lambda: policy.line(None), "None"),
    (lambda: bf.Domain(64), "64"),
    (lambda: bf.Domain((10**10, 10**10)).ravel([1, 2]), "10000000000x10000000000"),
    (lambda: bf.Domain((10**10, 10**10)).describe(3), "10000000000x10000000000"),
    (lambda: PEOPLE.ravel([np.array([0, 1]), np.array([0, 1, 2])]), "3"),
    (lambda: bf.Domain((10**400,)), "size of 1329 bits"),
    (lambda: bf.Domain((2,) * 2000), "2000 sizes"),
    (lambda: bf.Domain((2,), "a"), "names='a'"),
    (lambda: bf.Domain((2,), labels=(5,)), "labels=5"),
)
def test_a_domain_of_the_wrong_kind_is_refused(case):
    assert_refused(*case)


# Policies made by name


@table(
    (lambda: policy.parse("lin:64"), "'lin:64'", "Did you mean 'line'?"),
    (lambda: policy.parse("treshold:64:4"), "'treshold:64:4'", "Did you mean 'threshold'?"),
    (lambda: policy.parse("zzzzzzzz:4"), "'zzzzzzzz:4'", "Known: bounded, cycle, empty"),
    (lambda: policy.parse(""), "''", "Known: bounded, cycle, empty"),
    (lambda: policy.parse("line"), "'line'", "Write it like line:64."),
    (lambda: policy.parse("line:64:4"), "got 2", "Write it like line:64."),
    (lambda: policy.parse("threshold:64"), "got 1", "Write it like threshold:64:4."),
    (lambda: policy.parse("threshold:64:4.5"), "'4.5'", "Write it like threshold:64:4."),
    (lambda: policy.parse("sensitive:2x5:a"), "'a'", "Write it like sensitive:2x5x7:1,2."),
    (lambda: policy.parse("sensitive:2x5:2"), "attribute(2)", "Use 0 to 1."),
    (lambda: policy.parse("product:line:4,lin:3"), "'lin:3'", "Did you mean 'line'?"),
    (lambda: policy.parse("line:0"), "'0'", SIZES),
    (lambda: policy.parse("line:-3"), "'-3'", SIZES),
    (lambda: policy.parse("unbounded:32x"), "'32x'", SIZES),
    (lambda: policy.parse("threshold:64:0"), "threshold=0", "use policy.empty(n)"),
    (lambda: policy.threshold(64, -1), "threshold=-1", "use policy.empty(n)"),
    (lambda: policy.h_theta(64, 0), "threshold=0", "Use at least 1; 1 gives the grid."),
    (lambda: policy.cycle(2), "n=2", "Use policy.line(n)."),
    (lambda: policy.sensitive("2x3", []), "attributes=[]", "use policy.empty"),
    (lambda: policy.product(), "no policies", "Give one for each attribute."),
    (lambda: policy.union(), "no policies", "Use policy.empty(n) for none."),
    (lambda: policy.union(policy.line(3), policy.line(4)), "3 and 4 cells", "Use policy.product"),
    (lambda: policy.per_attribute(PEOPLE, {"age": "lin"}), "'lin'", "Did you mean 'line'?"),
    (lambda: policy.per_attribute(PEOPLE, {"agee": "line"}), "'agee'", "Did you mean 'age'?"),
    (
        lambda: policy.per_attribute(PEOPLE, {"age": policy.line(4)}),
        "age: policy on 4",
        "Make the policy for that size.",
    ),
    (lambda: policy.per_attribute(PEOPLE, {"age": "threshold"}), "got 1", "Write it like threshold:64:4."),
    (lambda: policy.line(4).distance(0, 4), "vertex(4)", "Use policy.BOTTOM for the missing record."),
    (lambda: policy.line(4).distances_from(-2), "vertex(-2)", "Use policy.BOTTOM for the missing record."),
    (lambda: policy.spanning_tree(policy.line(4), 9), "vertex(9)", "Use policy.BOTTOM for the missing record."),
    (lambda: policy.stretch(policy.line(3), policy.line(4)), "3 and 4 cells", "Build the spanner for"),
    (lambda: policy.stretch(policy.line(3), policy.empty(3)), "empty:3", "policy.spanning_tree(policy)"),
    (lambda: policy.stretch(policy.unbounded(3), policy.cycle(3)), "cycle:3", "policy.spanning_tree(policy)"),
)
def test_a_wrong_policy_is_refused(case):
    assert_refused(*case)


@table(
    (lambda: policy.parse("threshold:64:--5"), "--5"),
    (lambda: policy.parse("line:" + "9" * 5000), "99"),
    (lambda: policy.parse("threshold:64:" + "9" * 5000), "99"),
    (lambda: policy.parse("x" * 300 + ".csv"), "xxx"),
    (lambda: policy.product(policy.line(4), domain=bf.Domain((5,))), "5"),
)
def test_a_strange_policy_spec_is_refused(case):
    assert_refused(*case)


# Policies from edges, matrices and networkx


@table(
    (lambda: policy.from_edges([0], [4], 4), "vertex 4", "enlarge the domain"),
    (lambda: policy.from_edges([-2], [1], 4), "vertex -2", "enlarge the domain"),
    (lambda: policy.from_edges([1, 2], [0, 2], 4), "edge (2, 2)", "Remove it."),
    (lambda: policy.from_edges([-1], [-1], 4), "edge (BOTTOM, BOTTOM)", "Remove it."),
    (lambda: policy.from_edges([0, 1], [1], 4), "(2,) and (1,)", "Pair them up."),
    (lambda: policy.from_edges([[0]], [[1]], 4), "(1, 1) and (1, 1)", "Pair them up."),
    (lambda: policy.from_adjacency(np.ones((2, 3))), "2 x 3", "Give one row for each cell."),
    (lambda: policy.from_adjacency(np.array([[0, np.nan], [0, 0]])), "=nan", FINITE),
    (lambda: policy.from_adjacency(sp.csr_array([[0, np.inf], [0, 0]])), "=inf", FINITE),
    (lambda: policy.from_adjacency(np.array([[0, 1j], [1j, 0]])), "complex128", "Convert it to float64 first."),
    (lambda: policy.from_adjacency(np.eye(2)), "edge (0, 0)", "Remove it."),
    (lambda: policy.from_adjacency(np.zeros((0, 0))), "size=0", SIZES),
    (lambda: policy.from_networkx(nx.Graph()), "networkx graph", "Add one node for each cell."),
    (lambda: policy.from_networkx(nx.Graph([("a", "b")])), "node 'a'", "or pass cells=[...]"),
    (lambda: policy.from_networkx(nx.Graph([(True, 2)])), "node True", "or pass cells=[...]"),
    (lambda: policy.from_networkx(nx.path_graph(2), cells=[0, 0]), "2 cells", "List each cell once."),
    (lambda: policy.from_networkx(nx.path_graph(3), cells=[0, 1]), "node 2", "Add it to cells=[...]."),
    (lambda: policy.from_networkx(nx.path_graph(4), domain=3), "vertex 3", "enlarge the domain"),
    (lambda: policy.from_networkx(nx.Graph([(1, 1)])), "edge (1, 1)", "Remove it."),
)
def test_a_wrong_graph_is_refused(case):
    assert_refused(*case)


@table(
    (lambda: policy.from_edges([0.7], [1.9], 4), "0.7"),
    (lambda: policy.from_edges([np.nan], [1.0], 4), "nan"),
    (lambda: policy.from_edges(["a"], ["b"], 4), "a"),
    (lambda: policy.from_edges([[0], [1, 2]], [1, 2], 4), "[0]"),
    (lambda: policy.from_edges(np.array([2**64 - 1], dtype=np.uint64), [0], 3), "18446744073709551615"),
    (lambda: policy.from_adjacency(np.ones(3)), "3"),
    (lambda: policy.from_adjacency(np.array([[0, None], [1, 0]])), "object"),
    (lambda: policy.from_adjacency(1 - np.eye(3), domain=9), "9"),
    (lambda: policy.from_networkx(nx.Graph([("9" * 30, "1")])), "9" * 30),
    (lambda: policy.from_networkx(nx.path_graph(3), cells=[0, 1, 2], domain=9), "9"),
    (lambda: policy.from_networkx(nx.empty_graph(9), domain=4), "4"),
    (lambda: policy.from_networkx(nx.Graph([("a", "_")]), cells=["a", "_"]), "_"),
    (lambda: policy.from_networkx(nx.Graph([("1", "01")])), "nodes '1' and '01'"),
    (lambda: policy.to_networkx(policy.empty(10**13)), "empty:10000000000000"),
)
def test_a_graph_of_the_wrong_kind_is_refused(case):
    assert_refused(*case)


def test_duplicate_edges_are_merged_and_noted():
    made = policy.from_edges([0, 1, 0, 2], [1, 0, 1, -1], 4)
    assert made.edges.tolist() == [[0, 1], [2, -1]]
    assert made.notes == ("2 duplicate edges were merged",)
    assert policy.from_edges([0, 1], [1, 0], 4).notes == ("1 duplicate edge was merged",)
    assert policy.from_edges([0, 1], [1, 2], 4).notes == ()


def test_an_edge_between_cells_of_a_giant_domain_keeps_its_ends():
    made = policy.from_edges([10**12], [5 * 10**12], 10**13)
    assert made.edges.tolist() == [[10**12, 5 * 10**12]]


# Policies from files


GRAPHML = (
    '<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key id="w" for="node" attr.name="w" attr.type="{kind}"/><graph edgedefault="undirected">'
    '<node id="0"><data key="w">{value}</data></node><node id="1"/><edge source="0" target="1"/></graph></graphml>'
)
NETWORKX = "Write it with networkx"
CELLS = "Use whole numbers from 0, or _ for BOTTOM."


@pytest.mark.parametrize(
    ("name", "content", "seen", "advice"),
    [
        ("zero.csv", b"", "zero.csv", "Write it again; an interrupted export leaves such files."),
        ("zero.json", b"", "zero.json", "Write it again"),
        ("header.csv", b"u,v\n", "header.csv", "Write one edge `u,v` a line, or use empty:N."),
        ("three.csv", b"0,1\n1,2,3\n", "three.csv, line 2", "Write `u,v`, with _ for BOTTOM."),
        ("one.csv", b"0\n", "has 1 columns", "Write `u,v`, with _ for BOTTOM."),
        ("word.csv", b"u,v\n0,x\n", "line 2: 'x'", CELLS),
        ("minus.csv", b"0,-1\n", "line 1: '-1'", CELLS),
        ("float.csv", b"0,1\n1,2.0\n", "line 2: '2.0'", CELLS),
        ("long.csv", b"0," + b"9" * 30, "9" * 30, CELLS),
        ("latin.csv", b"0,1\n\xe9,2\n", "byte 0xe9 at offset 4", "Save the file as UTF-8."),
        ("latin.json", b'{"nodes": ["\xe9"]}', "byte 0xe9", "Save the file as UTF-8."),
        ("latin.graphml", b"<a>\xe9</a>", "byte 0xe9 at offset 3", "Save the file as UTF-8."),
        ("loop.csv", b"0,1\n1,1\n", "loop.csv: line 2: policy.edges(edge (1, 1))", "Remove it."),
        ("loop.json", b'{"nodes": [], "edges": [{"source": 0, "target": 0}]}', "loop.json: policy.edges", "Remove it."),
        ("numbers.csv", b"0.5,1.5\n0,1\n", "line 1: '0.5'", CELLS),
        ("python.csv", b"0,1\n1_0,2\n", "line 2: '1_0'", CELLS),
        ("broken.json", b"{", "broken.json", NETWORKX),
        ("list.json", b"[1]", "list.json", NETWORKX),
        ("number.json", b"5", "number.json", NETWORKX),
        ("nodeless.json", b'{"links": []}', "nodeless.json", NETWORKX),
        ("endless.json", b'{"nodes": [{"id": 0}], "links": [{"source": 0}]}', "endless.json", NETWORKX),
        ("named.json", b'{"nodes": [{"id": "bob"}], "links": []}', "node 'bob'", "or pass cells=[...]"),
        ("cellless.json", b'{"nodes": [], "links": []}', "cellless.json", "Add one node for each cell."),
        ("broken.graphml", b"<graphml", "broken.graphml", NETWORKX),
        ("other.graphml", b"<a/>", "other.graphml", NETWORKX),
        ("type.graphml", GRAPHML.format(kind="zork", value=1).encode(), "zork", NETWORKX),
        ("graph.xml", b"<a/>", "graph.xml", "Did you mean '.graphml'?"),
        ("value.graphml", GRAPHML.format(kind="int", value="abc").encode(), "value.graphml", ""),
        ("nested.json", b"[" * 200_000, "nested.json", ""),
        ("digits.json", b'{"nodes": [{"id": %s}], "links": []}' % (b"9" * 5000), "digits.json", ""),
        ("giant.json", b'{"nodes": [{"id": 99999999999999999999}], "links": []}', "99999999999999999999", ""),
        ("field.csv", b"0,1\n0," + b"1" * 200_000, "field.csv", ""),
    ],
    ids=only_text,
)
def test_a_bad_graph_file_is_refused(name, content, seen, advice, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert_refused(lambda: policy.read(tmp_path / name), seen, advice)


def test_graphml_whose_nodes_are_not_cells_is_refused(tmp_path):
    nx.write_graphml(nx.Graph([("alice", "bob")]), tmp_path / "G.graphml")
    assert_refused(lambda: policy.parse(str(tmp_path / "G.graphml")), "node 'alice'", "Name nodes 0, 1, ...")


def test_a_graph_file_with_too_few_cells_is_refused(tmp_path):
    (tmp_path / "G.csv").write_text("0,1\n1,7\n")
    assert_refused(lambda: policy.parse(f"{tmp_path}/G.csv:4"), "vertex 7", "enlarge the domain")
    assert_refused(lambda: policy.parse(f"{tmp_path}/G.csv:0"), "'0'", SIZES)


@pytest.mark.parametrize("name", ["G.csv", "G.graphml", "G.json", "no/such/G"])
def test_a_missing_graph_file_is_refused(name, tmp_path):
    advice = "Check the path, or use a spec string such as line:64."
    assert_refused(lambda: policy.parse(str(tmp_path / name)), name, advice)


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "G.csv").write_text("0,1\n")
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may run as root, who may read everything
    assert_refused(lambda: policy.read(tmp_path / "G.csv"), "G.csv", "Check the file's permissions.")


def test_duplicate_edges_of_a_file_are_merged_and_noted(tmp_path):
    (tmp_path / "G.csv").write_text("0,1\n1,0\n1,_\n_,1\n")
    made = policy.read(tmp_path / "G.csv")
    assert made.edges.tolist() == [[0, 1], [1, policy.BOTTOM]]
    assert made.notes == ("2 duplicate edges were merged",)


# Workloads


@table(
    (lambda: workload.parse("identty:4"), "'identty:4'", "Did you mean 'identity'?"),
    (lambda: workload.parse("zzzzzzz:4"), "'zzzzzzz:4'", "Known: all-range, identity, marginals"),
    (lambda: workload.parse("prefix"), "got 0", "Write it like prefix:256."),
    (lambda: workload.parse("all-range:4:5"), "got 2", "Write it like all-range:32x32."),
    (lambda: workload.parse("random-range:64"), "got 1", "Write it like random-range:4096:10000:seed=7."),
    (lambda: workload.parse("random-range:64:5:seed=a"), "'a'", "Write it like random-range:4096:10000:seed=7."),
    (lambda: workload.parse("random-range:64:x"), "'x'", "Write it like random-range:4096:10000:seed=7."),
    (lambda: workload.parse("marginals:2x2:x"), "'x'", "Write it like marginals:2x5x7:2."),
    (lambda: workload.parse("identity:0"), "'0'", SIZES),
    (lambda: workload.parse("identity:-4"), "'-4'", SIZES),
    (lambda: workload.identity(0), "size=0", SIZES),
    (lambda: workload.random_range(4, 0, seed=1), "count=0", "Ask for at least one query."),
    (lambda: workload.random_range(4, -2, seed=1), "count=-2", "Ask for at least one query."),
    (lambda: workload.marginals("2x2", 3), "ways=3", "Correct the number."),
    (lambda: workload.marginals("2x2", -1), "ways=-1", "Correct the number."),
    (lambda: workload.marginals("2x2", "some"), "ways='some'", "Correct the number."),
    (lambda: workload.from_matrix(np.ones((0, 3))), "0 x 3", "Give at least one query and one cell."),
    (lambda: workload.from_matrix(sp.csr_array((3, 0))), "3 x 0", "Give at least one query and one cell."),
    (lambda: workload.from_matrix([1, 2]), "1 dimensions", "Write a single query as [[...]]."),
    (lambda: workload.from_matrix(None), "0 dimensions", "Write a single query as [[...]]."),
    (lambda: workload.from_matrix([[1, np.nan]]), "W[0, 1]=nan", FINITE),
    (lambda: workload.from_matrix([[0], [-np.inf]]), "W[1, 0]=-inf", FINITE),
    (lambda: workload.from_matrix(sp.csr_array([[0, np.nan]])), "=nan", FINITE),
    (lambda: workload.from_matrix([["a"]]), "<U1", "Convert it to float64 first."),
    (lambda: workload.from_matrix([[1j]]), "complex128", "Convert it to float64 first."),
    (lambda: workload.from_matrix([[None]]), "object", "Convert it to float64 first."),
    (lambda: workload.from_matrix(np.eye(3), names=["a"]), "1 names", "Name each query once."),
    (
        lambda: workload.from_matrix(np.eye(3), domain="2x2"),
        "3 columns",
        "one column for each cell, in row-major order",
    ),
    (lambda: workload.identity(3).name(3), "name(3)", "Correct the number."),
    (lambda: workload.identity(3).name(-1), "name(-1)", "Correct the number."),
    (lambda: workload.union(), "no workloads", "Pass the workloads to unite."),
    (lambda: workload.union(workload.identity(3), workload.identity(4)), "3 and 4 cells", "Use workload.product"),
    (lambda: workload.product(), "no workloads", "Pass one for each attribute."),
    (lambda: workload.weighted(workload.identity(3), [1, 2]), "2 weights", "Give one weight, or one for each query."),
    (lambda: workload.weighted(workload.identity(3), np.ones((3, 1))), "3 weights", "Give one weight"),
    (lambda: workload.weighted(workload.identity(3), [1, np.nan, 1]), "weights[1]=nan", FINITE),
    (lambda: workload.weighted(workload.identity(3), np.inf), "weights[0]=inf", FINITE),
)
def test_a_wrong_workload_is_refused(case):
    assert_refused(*case)


@table(
    (lambda: workload.parse("identity:" + "9" * 5000), "99"),
    (lambda: workload.parse("random-range:10000000000000000000000:5"), "10000000000000000000000"),
    (lambda: workload.random_range(4, 3, seed=-1), "-1"),
    (lambda: workload.from_matrix([[1, 2], [3]]), "[3]"),
    (lambda: workload.from_matrix(sp.coo_array(np.ones(3))), "1 dimensions"),
    (lambda: workload.weighted(workload.identity(2), [[1], [2, 3]]), "[1]"),
    (lambda: workload.identity(4).matrix.mv(np.ones(3)), "3"),
    (lambda: workload.identity(4).matrix.row(9), "9"),
    (lambda: workload.prefix(1).matrix.mv(np.array([2**64 - 1], dtype=np.uint64)), "18446744073709551615"),
    (lambda: workload.parse("all-range:100000x100000x100000").name(0), "100000x100000x100000"),
)
def test_a_workload_of_the_wrong_kind_is_refused(case):
    assert_refused(*case)


# Workloads from files


def npy(shape, kind="<f8"):
    """Header of a .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": kind, "fortran_order": False, "shape": shape})
    return out.getvalue()


def saved(save, *args, **kwargs):
    out = io.BytesIO()
    save(out, *args, **kwargs)
    return out.getvalue()


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return out.getvalue()


def mtx(kind, *lines):
    return "\n".join([f"%%MatrixMarket matrix {kind} general", *lines, ""]).encode()


MATRIX = saved(np.save, np.eye(3))
OBJECTS = saved(np.save, np.array([[None]]), allow_pickle=True)
CSR = {"format": np.array(b"csr"), "shape": np.array([1, 3]), "data": np.ones(1), "indptr": np.array([0, 1])}
AGAIN = "Write the file again."


@pytest.mark.parametrize(
    ("name", "content", "seen", "advice"),
    [
        ("zero.npy", b"", "zero.npy", "Write it again; an interrupted export leaves such files."),
        ("junk.npy", b"junk", "junk.npy", AGAIN),
        ("cut.npy", MATRIX[:-1], "cut.npy", AGAIN),
        ("header.npy", MATRIX[:20], "header.npy", AGAIN),
        ("objects.npy", OBJECTS, "objects.npy", AGAIN),
        ("promise.npy", npy((10**7, 10**8)) + bytes(8), "promise.npy", AGAIN),
        ("vector.npy", saved(np.save, np.ones(3)), "1 dimensions", "Write a single query as [[...]]."),
        ("nan.npy", saved(np.save, np.array([[1, np.nan]])), "W[0, 1]=nan", FINITE),
        ("words.npy", saved(np.save, np.array([["a"]])), "<U1", "Convert it to float64 first."),
        ("none.npy", saved(np.save, np.ones((0, 3))), "0 x 3", "Give at least one query and one cell."),
        ("junk.npz", b"junk", "junk.npz", AGAIN),
        ("cut.npz", saved(np.savez, np.eye(3))[:-9], "cut.npz", AGAIN),
        ("objects.npz", zipped(W=OBJECTS), "objects.npz", AGAIN),
        (
            "two.npz",
            zipped(W=MATRIX, V=MATRIX),
            "holds 2 arrays (W, V)",
            "Save one matrix, or use scipy.sparse.save_npz.",
        ),
        ("none.npz", zipped(), "holds 0 arrays", "Save one matrix"),
        ("inf.npz", saved(sp.save_npz, sp.csr_array([[0, np.inf]])), "=inf", FINITE),
        ("data.npz", saved(np.savez, format=b"csr", shape=[2, 2]), "data.npz", AGAIN),
        ("format.npz", saved(np.savez, format=b"zork", shape=[2, 2]), "zork", AGAIN),
        ("junk.mtx", b"junk", "junk.mtx", AGAIN),
        ("cut.mtx", mtx("array real", "2 2", "1.0"), "cut.mtx", AGAIN),
        ("outside.mtx", mtx("coordinate real", "2 2 1", "5 5 1.0"), "outside.mtx", AGAIN),
        ("complex.mtx", mtx("coordinate complex", "2 2 1", "1 1 1 2"), "complex128", "Convert it to float64 first."),
        ("inf.mtx", mtx("coordinate real", "2 2 1", "1 1 1e999"), "=inf", FINITE),
        ("zero.csv", b"", "zero.csv", "Write it again"),
        ("header.csv", b"a,b\n", "header.csv", "Write one query a line, one number a cell."),
        ("ragged.csv", b"a,b\n1,2\n3\n", "ragged.csv, line 3", "Give every query one number for each cell."),
        ("wide.csv", b"1,2\n3,4,5\n", "has 3 columns", "Give every query one number for each cell."),
        ("word.csv", b"1,2\n1,x\n", "line 2, column 2: 'x'", "Write 0 for cells a query leaves out."),
        ("python.csv", b"1,2\n1_0,2\n", "line 2, column 1: '1_0'", "Write 0 for cells a query leaves out."),
        ("hole.csv", b"1,\n", "line 1, column 2: ''", "Write 0 for cells a query leaves out."),
        ("nan.csv", b"1,2\nnan,1\n", "W[1, 0]=nan", FINITE),
        ("latin.csv", b"1,2\n\xe9,1\n", "byte 0xe9 at offset 4", "Save the file as UTF-8."),
        ("large.csv", b"1" + b",1" * 25_000 + b"\n1" * 25_000, "4.7 GB", "Use a sparse format (.npz, .mtx)"),
        ("matrix.txt", b"1", "matrix.txt", "Did you mean '.mtx'?"),
        ("zip.npy", zipped(W=MATRIX), "zip.npy", ""),
        ("token.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "token.npy", ""),
        ("indent.npy", b"\x93NUMPY\x01\x00\x10\x00    x\n  y\n z\n\n  ", "indent.npy", ""),
        ("lil.npz", saved(np.savez, format=b"lil", shape=[2, 2]), "lil.npz", ""),
        ("number.npz", saved(np.savez, format=5, shape=[2, 2]), "number.npz", ""),
        ("half.npz", saved(np.savez, **CSR | {"shape": [1.5, 3], "indices": [0]}), "half.npz", ""),
        ("digits.mtx", mtx("coordinate integer", "2 2 1", f"1 1 {10**30}"), "digits.mtx", ""),
        ("shape.mtx", mtx("array real", f"{10**30} 2", "1.0"), "shape.mtx", ""),
        ("field.csv", b"1,2\n1," + b"1" * 200_000, "field.csv", ""),
    ],
    ids=only_text,
)
def test_a_bad_matrix_file_is_refused(name, content, seen, advice, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert_refused(lambda: workload.read(tmp_path / name), seen, advice)
    with pytest.raises(InputError, match=re.escape(name)):  # whatever else it says, it says which file
        workload.read(tmp_path / name)


@pytest.mark.parametrize("name", ["W.npy", "W.npz", "W.csv", "W.mtx", "no/such/W"])
def test_a_missing_matrix_file_is_refused(name, tmp_path):
    assert_refused(lambda: workload.parse(str(tmp_path / name)), name, "Check the path")


def test_a_matrix_file_that_would_grow_beyond_the_memory_limit_is_refused(tmp_path):
    header = npy((1, 600_000_000), "|u1")
    with (tmp_path / "W.npy").open("wb") as file:  # a sparse file: takes no room on the disk
        file.write(header)
        file.truncate(len(header) + 600_000_000)
    assert_refused(lambda: workload.read(tmp_path / "W.npy"), "4.5 GB", "Use a sparse format (.npz, .mtx)")


def test_an_archive_that_would_unpack_beyond_the_memory_limit_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "W.npz", "w") as archive:
        archive.writestr("W.npy", MATRIX)
        archive.infolist()[0].file_size = 5 * 2**30
    assert_refused(lambda: workload.read(tmp_path / "W.npz"), "5.0 GB", "Use a sparse format (.npz, .mtx)")


# Transformation and sensitivity


@table(
    (lambda: bf.Problem(workload.identity(3), policy.line(4)), "identity:3 with 3 columns", "on the same domain"),
    (lambda: transform.to_edges(problem(3), np.ones(4)), "(4,)", "Give one number for each cell."),
    (lambda: transform.to_edges(problem(3), np.ones((3, 1))), "(3, 1)", "Give one number for each cell."),
    (lambda: transform.to_edges(problem(3), np.full(3, 2**62)), str(3 * 2**62), "cannot be handled exactly"),
    (lambda: sensitivity(np.ones((1, 4)), policy.line(3), norm="L1"), "4 columns", "in row-major order"),
    (lambda: sensitivity(workload.identity(4), policy.line(3), norm="L2"), "4 columns", "in row-major order"),
    (lambda: sensitivity(sp.eye_array(2), policy.line(3), norm="L2"), "2 columns", "in row-major order"),
    (lambda: sensitivity(np.eye(3), policy.line(3), norm="L3"), "norm='L3'", "L1 for Laplace, L2 for Gaussian"),
    (lambda: edge_norms(np.eye(3), policy.empty(3), norm="l2"), "norm='l2'", "L1 for Laplace, L2 for Gaussian"),
)
def test_a_workload_that_does_not_fit_the_policy_is_refused(case):
    assert_refused(*case)


@table(
    (lambda: sensitivity(np.array([[np.nan, 0, 1]]), policy.line(3), norm="L2"), "nan"),
    (lambda: sensitivity(np.array([[np.inf, 0, 1]]), policy.line(3), norm="L1"), "inf"),
    (lambda: sensitivity(sp.csr_array([[np.nan, 0, 1]]), policy.line(3), norm="L2"), "nan"),
    (lambda: sensitivity(np.array([[1j, 0, 1]]), policy.line(3), norm="L2"), "complex128"),
    (lambda: sensitivity(np.array([["a", "b", "c"]]), policy.line(3), norm="L2"), "<U1"),
    (lambda: sensitivity(np.ones((1, 1, 3)), policy.line(3), norm="L2"), "3 dimensions"),
    (lambda: sensitivity(np.array([[1.7e308, -1.7e308]]), policy.line(2), norm="L2"), "nan"),
    (lambda: sensitivity(np.full((2, 1), 1.7e308), policy.unbounded(1), norm="L1"), "inf"),
    (lambda: transform.to_edges(problem(3), np.array([1, np.nan, 1])), "nan"),
)
def test_numbers_that_are_not_real_and_finite_are_refused(case):
    assert_refused(*case)


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
@pytest.mark.parametrize(("entry", "other"), [(2**32, 0), (3 * 2**31, 0), (2**62, -(2**62))])
@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_sensitivity_of_large_integers_does_not_overflow(make, entry, other, norm):
    assert sensitivity(make([[entry, other]]), policy.line(2), norm=norm) == pytest.approx(entry - other)


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
@pytest.mark.parametrize("entry", [5e-324, 1e-200, 1e-160, 1e160, 1e300])
def test_sensitivity_of_extreme_entries_does_not_vanish_or_overflow(make, entry):
    assert sensitivity(make([[entry, 0.0]]), policy.line(2), norm="L2") == pytest.approx(entry, rel=1e-12, abs=0)


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.int32, np.int64])
def test_public_totals_do_not_overflow_in_a_small_integer_type(kind):
    counts = np.full(3, 1 if kind is bool else np.iinfo(kind).max // 2, dtype=kind)
    if kind is np.int64:
        counts //= 2
    total = transform.ground(policy.line(3)).totals(counts)
    assert [int(t) for t in total] == [sum(int(c) for c in counts)]


@pytest.mark.parametrize("spec", ["prefix:4", "all-range:4", "random-range:4:5", "identity:4", "marginals:2x2:1"])
@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int8])
def test_products_with_small_or_unsigned_counts_are_exact(spec, kind):
    W = workload.parse(spec).matrix
    cells, queries = np.full(W.shape[1], 100, dtype=kind), np.full(W.shape[0], 100, dtype=kind)
    assert np.array_equal(W.mv(cells), W.dense() @ cells.astype(float))
    assert np.array_equal(W.rmv(queries), W.dense().T @ queries.astype(float))


# Sizes that no machine has: refused before anything is allocated, with the memory they would need


@table(
    (lambda: policy.parse("bounded:1000000"), "7.3 TB", SMALLER),
    (lambda: policy.parse("line:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("threshold:10000000000000:1"), "145.5 TB", SMALLER),
    (lambda: policy.parse("cycle:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("star-tree:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("unbounded:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("bounded:100000x100000"), "693.9 EB", SMALLER),
    (lambda: policy.parse("threshold:1000000x1000000:1").edges, "29.1 TB", SMALLER),
    (lambda: policy.parse("sensitive:1000000x1000000x2:2").components, "14.6 TB", SMALLER),
    (lambda: workload.all_range(100_000).matrix.dense(), "3.6 PB", IMPLICIT),
    (lambda: workload.all_range(100_000).matrix.sparse(), "2.4 PB", IMPLICIT),
    (lambda: workload.identity(10**10).gram, "693.9 EB", "Use a smaller or a structured domain."),
    (lambda: workload.parse("all-range:1000x1000x1000").gram, "6.9 EB", "Use a smaller or a structured domain."),
    (lambda: workload.all_range(10**6).names(), "36.4 TB", "Use name(i) for the ones you need."),
    (
        lambda: bf.Problem(workload.all_range(3000), policy.bounded(3000)).W_G(),
        "147.3 TB",
        "Work with the Gram matrix `gram` and with `P`.",
    ),
    (lambda: policy.parse("bounded:" + "9" * 200), "9" * 200, SMALLER),
)
def test_a_giant_size_is_refused_with_the_memory_it_would_need(case):
    assert_refused(*case)


CHILD = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
import numpy as np
import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.sensitivities import sensitivity
try:
    {mistake}
except bf.InputError as error:
    print("refused:", error)
"""


def run_in_a_child(mistake):
    """Run a statement that may hang, crash or fill the memory, with 8 GB and 30 seconds; return what it printed."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(mistake=mistake)],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    return child.stdout + child.stderr[-300:]


@pytest.mark.parametrize(
    "mistake",
    [
        "policy.parse('threshold:10000000000000:10000000000000')",
        "policy.parse('threshold:100000000000000000000:2')",
        "policy.parse('h-theta:10000000000000:4')",
        "policy.parse('empty:10000000000000').components",
        "workload.parse('random-range:64:1000000000000000')",
        "workload.all_range(100_000).matrix.mv(np.ones(100_000))",
        "sensitivity(workload.all_range(100_000), policy.line(100_000), norm='L2')",
        "workload.parse('marginals:' + 'x'.join('2' * 40) + ':all')",
    ],
)
def test_a_giant_computation_is_refused_before_it_starts(mistake):
    printed = run_in_a_child(mistake)
    assert printed.startswith("refused:"), printed
    assert re.search(r"would need [\d.e+]+ [KMGTPE]B of memory", printed)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("promise.npz", zipped(W=npy((10**7, 10**8)) + bytes(8))),
        ("rows.npz", saved(sp.save_npz, sp.coo_array(([1.0], ([0], [0])), shape=(10**14, 10)))),
        ("rows.mtx", mtx("coordinate real", f"{10**14} 10 1", "1 1 1.0")),
        ("entries.mtx", mtx("coordinate real", f"2 2 {10**14}", "1 1 1.0")),
        ("dense.mtx", mtx("array real", f"{10**7} {10**8}", "1.0")),
    ],
    ids=only_text,
)
def test_a_small_file_that_promises_a_giant_matrix_is_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    printed = run_in_a_child(f"workload.read({str(tmp_path / name)!r})")
    assert printed.startswith("refused:"), printed
    assert name in printed


@pytest.mark.parametrize("column", [50_000_000, -7])
def test_a_sparse_file_with_entries_outside_the_matrix_is_refused(column, tmp_path):
    np.savez(tmp_path / "W.npz", **CSR, indices=np.array([column]))
    mistake = f"workload.read({str(tmp_path / 'W.npz')!r}).matrix.mv(np.ones(3))"  # reads outside the vector
    printed = run_in_a_child(mistake)
    assert printed.startswith("refused:"), printed
    assert "W.npz" in printed


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KB"), (600 * 2**20, "600.0 MB"), (4 * 2**30, "4.0 GB")],
)
def test_sizes_are_written_in_the_largest_unit_they_reach(num_bytes, text):
    assert readable_bytes(num_bytes) == text


def test_a_message_from_a_bad_json_file_does_not_speak_python(tmp_path):
    (tmp_path / "G.json").write_text(json.dumps([1]))
    with pytest.raises(InputError) as caught:
        policy.read(tmp_path / "G.json")
    assert "object has no attribute" not in str(caught.value)
