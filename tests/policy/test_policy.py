"""Policies: every constructor against its definition, graphs from outside, what is said in words."""

import itertools
import json

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from hdmm_bf import policy
from hdmm_bf.domain import Domain
from hdmm_bf.policy import BOTTOM
from tests.support import instances, oracles


def edge_set(p):
    return {(int(u), int(v)) for u, v in p.edges}


def unordered(p):
    return {frozenset(edge) for edge in edge_set(p)}


DEFINITIONS = {
    "unbounded:4": {(i, BOTTOM) for i in range(4)},
    "unbounded:2x3": {(i, BOTTOM) for i in range(6)},
    "bounded:5": set(itertools.combinations(range(5), 2)),
    "bounded:2x2": set(itertools.combinations(range(4), 2)),
    "line:4": {(0, 1), (1, 2), (2, 3)},
    "line:1": set(),
    "cycle:4": {(0, 1), (1, 2), (2, 3), (0, 3)},
    "star-tree:4": {(0, 1), (0, 2), (0, 3)},
    "empty:8": set(),
    "h-theta:8:4": {(0, 3), (1, 3), (2, 3), (3, 7), (4, 7), (5, 7), (6, 7)},
    "h-theta:7:3": {(0, 2), (1, 2), (2, 5), (3, 5), (4, 5), (5, 6)},
    "product:line:2,bounded:3": {(0, 3), (1, 4), (2, 5), (0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)},
}


@pytest.mark.parametrize("spec", DEFINITIONS)
def test_spec_strings_give_the_edges_of_their_definition(spec):
    made = policy.parse(spec)
    assert edge_set(made) == DEFINITIONS[spec]
    assert made.num_edges == len(made.edges) == len(DEFINITIONS[spec])


@pytest.mark.parametrize(
    ("sizes", "limit"), [((7,), 1), ((7,), 3), ((7,), 9), ((3, 4), 1), ((3, 4), 2), ((2, 3, 3), 2)]
)
def test_threshold_joins_cells_at_l1_distance_up_to_the_threshold(sizes, limit):
    made = policy.threshold(sizes, limit)
    assert {(min(e), max(e)) for e in edge_set(made)} == oracles.threshold_edges(sizes, limit)
    assert made.num_edges == len(made.edges)


def test_sensitive_joins_cells_that_differ_in_exactly_one_sensitive_attribute():
    sizes, chosen = (2, 3, 2), (0, 2)
    cells = list(itertools.product(*(range(s) for s in sizes)))
    expected = set()
    for i, j in itertools.combinations(range(len(cells)), 2):
        differ = [a for a in range(3) if cells[i][a] != cells[j][a]]
        if len(differ) == 1 and differ[0] in chosen:
            expected.add(frozenset((i, j)))
    assert unordered(policy.parse("sensitive:2x3x2:0,2")) == expected
    named = policy.sensitive(Domain(sizes, names=("a", "b", "c")), ["c", "a"])
    assert unordered(named) == expected


def test_product_is_networkx_cartesian_product():
    first, second = policy.cycle(4), policy.threshold(5, 2)
    expected = nx.cartesian_product(oracles.graph(4, first.edges), oracles.graph(5, second.edges))
    made = policy.product(first, second)
    assert unordered(made) == {frozenset((a * 5 + b, c * 5 + d)) for (a, b), (c, d) in expected.edges}


def test_product_with_bottom_hides_presence_whatever_the_other_values():
    made = policy.parse("product:line:2,unbounded:2")
    assert edge_set(made) == {(0, 2), (1, 3), *((i, BOTTOM) for i in range(4))}
    twice = policy.parse("product:unbounded:2,unbounded:2")
    assert edge_set(twice) == {(i, BOTTOM) for i in range(4)}


def test_per_attribute_leaves_unnamed_attributes_public():
    domain = Domain((3, 2, 4), names=("age", "sex", "zip"))
    made = policy.per_attribute(domain, {"zip": "line", "age": policy.bounded(3)})
    assert unordered(made) == unordered(policy.product(policy.bounded(3), policy.empty(2), policy.line(4)))
    assert policy.discloses(made) == ["the exact number of records for every value of sex"]


def test_grid_policy_and_product_of_lines_are_one_thing():
    assert unordered(policy.parse("threshold:3x4:1")) == unordered(policy.parse("product:line:3,line:4"))


def test_union_protects_what_either_protects():
    made = policy.union(policy.line(4), policy.cycle(4), policy.unbounded(4))
    assert edge_set(made) == edge_set(policy.cycle(4)) | edge_set(policy.unbounded(4))


@pytest.mark.parametrize("spec", [*instances.SMALL_SPECS, *DEFINITIONS])
def test_a_spec_made_from_a_spec_gives_the_same_edges(spec):
    """Quotes parse: `parse(policy.spec)` gives the same edges, for every policy made from a spec string."""
    made = policy.parse(spec)
    assert np.array_equal(policy.parse(made.spec).edges, made.edges)


@instances.given_policies()
def test_edges_are_simple_and_ordered(p):
    """Quotes Policy: No self-loops, no repeated edges, every end a cell or BOTTOM, BOTTOM only as second end."""
    u, v = p.edges.T
    assert len(edge_set(p)) == p.num_edges
    assert np.all(u != v)
    assert np.all((u >= 0) & (u < p.num_cells))
    assert np.all((v >= BOTTOM) & (v < p.num_cells))


@instances.given_policies()
def test_components_trees_and_distances_agree_with_networkx(p):
    g = oracles.graph(p.num_cells, p.edges)
    groups = [sorted(c) for c in nx.connected_components(g)]
    components = p.components
    assert components.count == len(groups)
    for group in groups:
        cells = [c for c in group if c != BOTTOM]
        label = components.labels[cells[0]]
        assert np.flatnonzero(components.labels == label).tolist() == cells
        assert components.sizes[label] == len(cells)
        assert components.ground[label] == (BOTTOM if BOTTOM in group else max(cells))
    assert p.is_forest == nx.is_forest(g)
    assert p.is_tree == nx.is_tree(g)
    lengths = dict(nx.all_pairs_shortest_path_length(g))
    for a in g.nodes:
        for b in g.nodes:
            assert p.distance(a, b) == lengths[a].get(b, np.inf)


def test_components_are_numbered_by_their_first_cell():
    p = policy.from_edges([4, 1], [0, 3], 5)
    assert p.components.labels.tolist() == [0, 1, 2, 1, 0]
    assert p.components.ground.tolist() == [4, 3, 2]


@instances.given_policies()
def test_networkx_and_back_changes_nothing(p):
    again = policy.from_networkx(policy.to_networkx(p))
    assert np.array_equal(again.edges, p.edges)
    assert again.num_cells == p.num_cells


def test_networkx_nodes_of_any_kind_become_cells_in_the_order_given():
    g = nx.Graph([("Paris", "Lyon"), ("Lyon", "Nice"), ("Nice", "_")])
    made = policy.from_networkx(g, cells=["Lyon", "Nice", "Paris", "Brest"])
    assert edge_set(made) == {(0, 2), (0, 1), (1, BOTTOM)}
    assert made.num_cells == 4


def test_adjacency_matrices_dense_sparse_symmetric_or_not_give_the_same_policy():
    expected = policy.cycle(5)
    upper = np.zeros((5, 5))
    upper[expected.edges[:, 0], expected.edges[:, 1]] = 2.5
    for adjacency in (upper, upper.T, upper + upper.T, sp.csr_array(upper + upper.T)):
        made = policy.from_adjacency(adjacency)
        assert edge_set(made) == edge_set(expected)
        assert made.notes == ()


def test_every_file_format_reads_the_same_graph(tmp_path):
    expected = policy.union(policy.cycle(4), policy.from_edges([2], [BOTTOM], 4))
    g = policy.to_networkx(expected)
    (tmp_path / "plain.csv").write_text("0,1\n1,2\n2,3\n3,0\n_,2\n")
    (tmp_path / "header.csv").write_text("\ufeffsource,target\r\n0, 1\r\n1,2\r\n\r\n2,3\r\n3,0\r\n2,_\r\n", "utf-8")
    nx.write_graphml(g, tmp_path / "g.graphml")
    (tmp_path / "edges.json").write_text(json.dumps(nx.node_link_data(g, edges="edges")))
    (tmp_path / "links.json").write_text(json.dumps(nx.node_link_data(g, edges="links")))
    for name in ("plain.csv", "header.csv", "g.graphml", "edges.json", "links.json"):
        made = policy.parse(str(tmp_path / name))
        assert np.array_equal(made.edges, expected.edges), name
        assert made.num_cells == 4


def test_a_file_graph_can_have_more_cells_than_it_names(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("0,1\n")
    assert policy.parse(f"{path}:5").num_cells == 5
    assert policy.parse(f"{path}:2x2").domain.sizes == (2, 2)


def test_duplicate_edges_are_merged_and_said():
    made = policy.from_edges([0, 1, 1, BOTTOM, 2], [1, 0, 2, 2, BOTTOM], 3)
    assert edge_set(made) == {(0, 1), (1, 2), (2, BOTTOM)}
    assert made.notes == ("2 duplicate edges were merged",)


@pytest.mark.parametrize(
    ("spec", "public"),
    [
        ("unbounded:5", []),
        ("unbounded:2x3", []),
        ("line:5", ["the total number of records"]),
        ("threshold:2x3:1", ["the total number of records"]),
        ("empty:3", ["the exact count of every one of the 3 cells"]),
        ("product:empty:2,empty:3", ["the exact count of every one of the 6 cells"]),
        ("sensitive:2x5x7:1,2", ["the exact number of records for every value of a0"]),
        ("sensitive:2x5x7:1", ["the exact number of records for every combination of a0 and a2"]),
    ],
)
def test_what_is_public_is_said_in_words(spec, public):
    assert policy.discloses(policy.parse(spec)) == public


def test_groups_and_isolated_cells_are_listed():
    mixed = policy.from_edges([0, 1, 4, 5], [1, 2, BOTTOM, 6], 8)
    assert policy.discloses(mixed) == [
        "the number of records in cells 0-2",
        "the exact count of cell 3",
        "the number of records in cells 5-6",
        "the exact count of cell 7",
    ]


@instances.given_policies()
def test_nothing_is_said_to_be_public_only_if_every_component_contains_bottom(p):
    """Quotes discloses: The list is empty only if every component of the graph contains BOTTOM."""
    groups = nx.connected_components(oracles.graph(p.num_cells, p.edges))
    assert (policy.discloses(p) == []) == all(BOTTOM in group for group in groups)


@instances.given_policies()
def test_examples_are_what_they_say(p):
    shown = policy.examples(p)
    names = {p.domain.describe(c): c for c in range(p.num_cells)}
    assert any(e.neighbours for e in shown) == (p.num_edges > 0)
    for example in shown:
        before, after = np.zeros(p.num_cells, int), np.zeros(p.num_cells, int)
        for name, count in example.before.items():
            before[names[name]] = count
        for name, count in example.after.items():
            after[names[name]] = count
        assert (tuple(after) in oracles.neighbours(p.edges.tolist(), before)) == example.neighbours


def test_sensitive_policies_of_huge_tables_are_described_without_writing_them_out():
    sizes = "x".join(map(str, (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)))
    huge = policy.parse(f"sensitive:{sizes}:0,2,5")
    assert huge.num_edges == huge.num_cells * (84 + 99 + 14) // 2
    assert policy.discloses(huge)[0].startswith("the exact number of records for every combination of a1, a3")


def test_groups_of_labelled_values_are_called_by_their_labels():
    domain = Domain((5,), ("district",), (("A", "B", "C", "D", "E"),))
    said = policy.discloses(policy.from_edges([0, 2], [1, 3], domain))
    assert said[0] == "the number of records in district=A, district=B"
    assert said[2] == "the exact count of district=E"
    wide = Domain((20,), ("x",), (tuple(f"v{i}" for i in range(20)),))
    (said, *_) = policy.discloses(policy.from_edges(list(range(9)), list(range(1, 10)), wide))
    assert said.endswith("x=v5, ...")


def test_a_table_with_one_attribute_of_several_values_is_a_line():
    assert edge_set(policy.line("1x5x1")) == edge_set(policy.line(5))
    assert edge_set(policy.cycle("4x1")) == edge_set(policy.cycle(4))


def test_what_the_refusal_of_a_table_in_a_row_advises_is_the_grid():
    assert edge_set(policy.parse("product:line:3,line:4")) == edge_set(policy.parse("threshold:3x4:1"))
