"""Policies in the words of their attributes: labels as nodes, maps, units."""

import json

import networkx as nx
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy
from hdmm_bf._checks import InputError
from tests.support.command_line import call
from tests.support.mistakes import _as_users_run_it, assert_refused, table  # noqa: F401

NAMES = ["Old Town", "harbour", "West", "hill"]
MAP = bf.domain.of(district=NAMES)
EDGES = {(0, 1), (1, 2), (2, 3)}
PATH = nx.relabel_nodes(nx.path_graph(4), dict(enumerate(NAMES)))


def as_pairs(made):
    return {tuple(edge) for edge in made.edges.tolist()}


def graphml_with_property(path):
    graph = nx.relabel_nodes(nx.path_graph(4), {i: f"n{i}" for i in range(4)})
    nx.set_node_attributes(graph, {f"n{i}": name for i, name in enumerate(NAMES)}, "label")
    nx.set_node_attributes(graph, {f"n{i}": i * 1.5 for i in range(4)}, "x")
    nx.write_graphml(graph, path)


def square(column, row, name, **more):
    x, y = column, row
    ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
    return {
        "type": "Feature",
        "properties": {"name": name, **more},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }


def geojson(features):
    return json.dumps({"type": "FeatureCollection", "features": features})


STRIP = geojson([square(i, 0, name) for i, name in enumerate(NAMES)])

FILES = {
    "map.graphml": lambda path: nx.write_graphml(PATH, path),
    "yed.graphml": graphml_with_property,
    "map.json": lambda path: path.write_text(json.dumps(nx.node_link_data(PATH, edges="edges"))),
    "map.csv": lambda path: path.write_text("from,to\nOld Town,harbour\nharbour, West\nhill,West\n"),
    "plain.csv": lambda path: path.write_text("Old Town,harbour\nWest,harbour\nhill,West\n"),
    "numbers.csv": lambda path: path.write_text("u,v\n0,1\n1,2\n2,3\n"),
    "bom.csv": lambda path: path.write_bytes("\ufeffOld Town,harbour\r\nharbour,West\r\nhill,West\r\n".encode()),
    "map.geojson": lambda path: path.write_text(STRIP),
    "geo.json": lambda path: path.write_text(STRIP),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_may_call_cells_by_their_labels(name, tmp_path):
    FILES[name](tmp_path / name)
    assert as_pairs(policy.read(tmp_path / name, domain=MAP)) == EDGES
    people = bf.domain.of(age=3, district=NAMES)
    made = bf.policies(age="line", district=str(tmp_path / name)).on(people)
    assert as_pairs(made.factors[1]) == EDGES


def test_bottom_may_stand_among_labels(tmp_path):
    (tmp_path / "g.csv").write_text("Old Town,_\nharbour,West\n")
    assert as_pairs(policy.read(tmp_path / "g.csv", domain=MAP)) == {(0, -1), (1, 2)}


def test_labels_that_are_numbers_are_labels():
    years = bf.domain.of(year=range(2015, 2018))
    assert as_pairs(policy.from_networkx(nx.Graph([(2015, 2016), ("2017", 2016)]), domain=years)) == {(0, 1), (1, 2)}
    with pytest.raises(InputError, match="node '0'.*is no label"):
        policy.from_networkx(nx.Graph([(0, 1)]), domain=years)


def test_districts_of_a_map_are_neighbours_where_they_share_a_stretch_of_border(tmp_path):
    """Brute force: squares of a grid share a side if one coordinate differs by one."""
    places = [(c, r) for r in range(3) for c in range(4)]
    features = [square(c, r, f"d{i}") for i, (c, r) in enumerate(places)]
    (tmp_path / "grid.geojson").write_text(geojson(features))
    made = policy.read(tmp_path / "grid.geojson")
    near = {
        (i, j)
        for i, a in enumerate(places)
        for j, b in enumerate(places)
        if i < j and abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1
    }
    assert as_pairs(made) == near
    assert made.domain.labels == (tuple(f"d{i}" for i in range(12)),)


def test_a_map_tells_how_many_districts_are_alone(tmp_path):
    (tmp_path / "m.geojson").write_text(geojson([square(0, 0, "a"), square(1, 0, "b"), square(9, 9, "c")]))
    assert "1 of 3 districts have no neighbour on the map" in policy.read(tmp_path / "m.geojson").notes


def many(path):
    """A polygon with a hole, and one of two parts that touches it."""
    hole = {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 0]], [[1, 1], [2, 1], [2, 2], [1, 1]]]}
    parts = {
        "type": "MultiPolygon",
        "coordinates": [[[[9, 9], [9, 8], [8, 8], [9, 9]]], [[[2, 2], [1, 1], [3, 1], [2, 2]]]],
    }
    features = [{"type": "Feature", "id": k, "geometry": g} for k, g in (("x", hole), ("y", parts))]
    path.write_text(geojson(features))


def test_holes_and_parts_have_borders_too(tmp_path):
    many(tmp_path / "m.geojson")
    assert as_pairs(policy.read(tmp_path / "m.geojson", domain=bf.domain.of(d=["x", "y"]))) == {(0, 1)}


BAD = {
    "case.csv": ("old town,harbour\nWest,hill\n", "The label is 'Old Town': capitals and spaces count."),
    "typo.csv": ("Old Town,harbuor\n", "Did you mean 'harbour'?"),
    "point.geojson": (
        geojson([{"type": "Feature", "geometry": {"type": "Point", "coordinates": [0, 0]}}] * 4),
        "polygon",
    ),
    "unnamed.geojson": (geojson([square(i, 0, "") for i in range(4)]), "no property of its features"),
    "none.geojson": (geojson([]), "no list of features"),
    "torn.geojson": (
        geojson([{"type": "Feature", "id": n, "geometry": {"type": "Polygon", "coordinates": [["a"]]}} for n in NAMES]),
        "is damaged",
    ),
    "ring.geojson": (
        geojson([{"type": "Feature", "id": n, "geometry": {"type": "Polygon", "coordinates": 3}} for n in NAMES]),
        "is damaged",
    ),
    "other.geojson": (geojson([square(0, 0, "Old Town"), square(1, 0, "Nowhere")]), "node 'Nowhere'"),
    "twice.geojson": (geojson([square(0, 0, "hill"), square(1, 0, "hill")]), "same cell number"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_map_is_refused(name, tmp_path):
    text, words = BAD[name]
    (tmp_path / name).write_text(text)
    assert_refused(lambda: policy.read(tmp_path / name, domain=MAP), words)


@table(
    ({"age": bf.domain.whole(18, 37, unit="years")}, {"age": "threshold 2"}, "two ages at most 2 years apart"),
    ({"age": 20}, {"age": "threshold 2"}, "two values of age at most 2 steps apart"),
    ({"age": 20}, {"age": "line"}, "two values of age at most 1 step apart"),
    (
        {"salary": bf.domain.bins([0, 5, 10, 15], unit="euros")},
        {"salary": "line"},
        "two salaries in intervals of 5 euros at most 1 interval apart",
    ),
    (
        {"pay": bf.domain.bins([0, 5, 10, 99, 200], unit="euros")},
        {"pay": "threshold 2"},
        "two pays in intervals at most 2 intervals apart",
    ),
    ({"sex": ["F", "M", "X"]}, {"sex": "bounded"}, "any two values of sex"),
    ({"net pay": 3}, {"net pay": "bounded"}, "any two values of net pay"),
    (
        {"district": NAMES},
        {"district": nx.Graph([("Old Town", "hill"), ("West", "hill")])},
        "2 pairs of values of district such as Old Town and hill",
    ),
    (
        {"age": 4, "sex": ["F", "M"]},
        {"age": "line", "sex": "bounded"},
        "two values of age at most 1 step apart, or any two values of sex",
    ),
)
def test_what_is_hidden_is_said_in_the_words_of_the_attributes(case):
    domain, policies, words = case
    made = bf.policies(policies).on(bf.domain.of(domain))
    assert policy.hides(made) == f"Of one record nobody can tell apart {words}."


def test_the_words_of_a_threshold_are_told_from_the_edges_alone():
    domain = bf.domain.of(age=bf.domain.whole(1, 6, unit="years"))
    same = policy.from_edges([0, 1, 2, 3, 4], [1, 2, 3, 4, 5], domain, spec="anything")
    other = policy.from_edges([0, 1, 2, 3, 0], [1, 2, 3, 4, 5], domain, spec="line:6")
    assert "at most 1 years apart" in policy.hides(same)
    assert "apart 5 pairs of ages such as 1 and 2" in policy.hides(other)


def test_presence_and_joint_changes_keep_their_own_words():
    domain = bf.domain.of(age=3, sex=2)
    assert "is in the data at all" in policy.hides(policy.unbounded(domain))
    assert "distance at most 2" in policy.hides(policy.threshold(domain, 2))


def test_explain_uses_labels_and_units_of_a_problem_file(tmp_path):
    star = nx.relabel_nodes(nx.star_graph(3), dict(enumerate(NAMES)))
    nx.write_graphml(star, tmp_path / "map.graphml")
    labels = json.dumps(NAMES)
    (tmp_path / "p.toml").write_text(
        f'[[domain.attribute]]\nname = "age"\nfirst = 18\nlast = 37\nunit = "years"\n'
        f'[[domain.attribute]]\nname = "district"\nlabels = {labels}\n'
        '[policy]\nattribute.age = "threshold 2"\nattribute.district = "map.graphml"\n'
    )
    printed = call("explain", "p.toml", cwd=tmp_path).stdout
    words = "two ages at most 2 years apart, or 3 pairs of values of district such as Old Town and harbour"
    assert words in " ".join(printed.split())
    assert "district=" in printed


def test_words_and_paths_of_policies_are_refused_with_advice():
    domain = bf.domain.of(age=4)
    assert_refused(lambda: bf.policies().on(domain), "no attributes", "Write it like")
    assert_refused(lambda: bf.policies(age="threshhold 2").on(domain), "unknown policy", "Did you mean 'threshold'?")
    assert_refused(lambda: bf.policies(agee="line").on(domain), "'agee'", "Did you mean 'age'?")
    assert_refused(lambda: bf.policies(age="no.graphml").on(domain), "no such file", "")
    made = bf.policies(age="Public").on(domain)
    assert made.num_edges == 0
    assert np.array_equal(bf.policies(age="threshold:4:2").on(domain).edges, policy.threshold(4, 2).edges)
