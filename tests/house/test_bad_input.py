"""Every mistake a user can make is an `InputError` in three parts: what, the value seen, what to do."""

import os

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf import policy, workload
from tests.support.mistakes import (  # noqa: F401
    FINITE,
    IMPLICIT,
    PEOPLE,
    SIZES,
    SMALLER,
    _as_users_run_it,
    assert_refused,
    only_text,
    problem,
    table,
)


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
    (lambda: policy.line("8x4"), "policy.line(8x4)", "Use product:line:8,line:4, which is threshold:8x4:1"),
    (lambda: policy.line(PEOPLE), "2 attributes are not in a row", '[policy] attribute.sex = "line"'),
    (lambda: policy.cycle((4, 4)), "policy.cycle(4x4)", "Use product:cycle:4,cycle:4, or, for one attribute alone"),
    (lambda: policy.parse("line", domain=PEOPLE), "2 attributes are not in a row", "product:line:2,line:3"),
    (lambda: policy.parse("product:line:3x2,bounded:3"), "2 attributes are not in a row", "product:line:3,line:2"),
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
    (
        lambda: workload.weighted(workload.identity(3), [1, 0, 1]),
        "a weight of 0",
        "Leave out queries that do not matter",
    ),
    (lambda: workload.weighted(workload.identity(3), -2), "a weight of -2", "Leave out queries that do not matter"),
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
