"""Reports of tables: names and labels, the release that is given, districts on their map."""

import json
import re

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.policy.attribute_words import attribute_edges
from hdmm_bf.policy.files import read_outlines
from hdmm_bf.report import render
from hdmm_bf.report.export import write_answers
from hdmm_bf.report.released import read_release
from tests.support.command_line import assert_one_sentence, call

pytest.importorskip("matplotlib")

DISTRICTS = ["Ahorn", "Birke & Co", "Eiche", "Fichte"]
PLACES = bf.domain.of(district=DISTRICTS, sex=["F", "M"])
TABLES = bf.table("district") + bf.table("district", "sex", stddev=12)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
COUNTS = np.array([50, 40, 30, 20, 10, 60, 70, 80])


def square(x, y):
    return [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]


def drawn(names=DISTRICTS):
    places = [(0, 0), (1, 0), (0, 1), (1, 1)]
    features = [
        {"type": "Feature", "properties": {"name": name}, "geometry": {"type": "Polygon", "coordinates": [square(*at)]}}
        for name, at in zip(names, places, strict=True)
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    (folder / "map.geojson").write_text(drawn())
    (folder / "other.geojson").write_text(drawn(["a", "b", "c", "d"]))
    policy = bf.policies(district=str(folder / "map.geojson"), sex="bounded")
    bf.fit(TABLES, policy, domain=PLACES, objective="total", targets=None).save(folder / "p.bf")
    fit = bf.load(folder / "p.bf")
    out = bf.release(fit, COUNTS, **BUDGET)
    write_answers(out, folder / "out.csv", level=0.95)
    write_answers(out, folder / "out.parquet", level=0.95)
    write_answers(out, folder / "short.csv", level=0.95, queries=bf.table("sex").on(PLACES))
    return folder


@pytest.fixture(scope="module")
def fit(folder):
    return bf.load(folder / "p.bf")


@pytest.fixture(scope="module")
def page(folder, fit):
    return render(fit, release=folder / "out.csv", geojson=folder / "map.geojson")


def section(page, anchor):
    return re.search(rf'<section aria-labelledby="{anchor}">(.*?)</section>', page, re.DOTALL)[1]


def cells(html):
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)]


def test_tables_are_named_with_their_errors(page, fit):
    stddev = fit.per_query_stddev(**BUDGET)
    rows = [row for row in cells(section(page, "tables")) if row]
    assert [row[:2] for row in rows] == [["district", "4"], ["district x sex", "8"]]
    for row, part, wanted in zip(rows, (stddev[:4], stddev[4:]), ("-", "12"), strict=True):
        assert row[2:] == [f"{np.sqrt(np.mean(part**2)):.4g}", f"{part.max():.4g}", wanted]


def test_the_release_is_shown_by_table_and_label(page, folder):
    html = section(page, "release")
    assert "epsilon = 1, delta = 1e-06" in html
    assert re.findall(r"<h3>(.*?)</h3>", html) == ["district", "district x sex"]
    rows = [row for row in cells(html) if len(row) > 3]
    published = [line.split(",") for line in (folder / "out.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows[:4]] == ["Ahorn", "Birke &amp; Co", "Eiche", "Fichte"]
    estimate, stddev, low, high = (f"{float(number):,.1f}" for number in published[0][-4:])
    assert rows[0][1:] == [estimate, stddev, f"{low} to {high}"]
    assert rows[5][:2] == ["Ahorn", "M"]


def test_csv_and_parquet_read_back_the_same_numbers(folder, fit):
    by_csv, by_parquet = (read_release(folder / f"out.{kind}", fit.problem.workload) for kind in ("csv", "parquet"))
    assert by_csv.numbers.keys() == {"estimate", "stddev", "low", "high"}
    for name, values in by_csv.numbers.items():
        assert np.array_equal(values, by_parquet.numbers[name])
    assert by_csv.notes["privacy"] == by_parquet.notes["privacy"]
    assert by_csv.numbers["stddev"] == pytest.approx(fit.per_query_stddev(**BUDGET))


def test_a_file_of_other_queries_is_refused(folder, fit, tmp_path):
    claim = "A file whose queries are not those of the workload, one by one, is refused."
    assert claim in read_release.__doc__
    with pytest.raises(bf.InputError, match="is not that of this bundle's queries"):
        read_release(folder / "short.csv", fit.problem.workload)
    lines = (folder / "out.csv").read_text().splitlines()
    for name, changed in {
        "swapped.csv": [lines[0], lines[2], lines[1], *lines[3:]],
        "fewer.csv": lines[:-1],
        "words.csv": [*lines[:-1], lines[-1].rpartition(",")[0] + ",many"],
        "ragged.csv": [*lines[:-1], lines[-1] + ",5"],
    }.items():
        (tmp_path / name).write_text("\n".join(changed) + "\n")
        with pytest.raises(bf.InputError, match=name):
            read_release(tmp_path / name, fit.problem.workload)


def test_the_map_shows_the_policy_and_the_counts(page, folder, fit):
    html = section(page, "map")
    assert html.count("<svg") == 2
    assert "lines join 4 pairs that nobody can tell apart" in html  # a square of four: corners do not count
    estimate = read_release(folder / "out.csv", fit.problem.workload).numbers["estimate"][:4]
    assert f"from {estimate.min():.4g} to {estimate.max():.4g}" in html
    before = section(render(fit, geojson=folder / "map.geojson"), "map")
    assert "standard deviation (records), at epsilon 1" in before


def test_outlines_are_those_of_the_labels(folder):
    found = read_outlines(folder / "map.geojson", bf.domain.of(district=DISTRICTS[::-1]))
    assert found[3] == [[(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]]


def test_districts_are_drawn_where_they_are_with_their_values():
    rings = [[[tuple(map(float, point)) for point in square(x, 0)]] for x in range(3)]
    figure = bf.plots.district_map(rings, ["a", "b", "c"], question="How many?", values=np.array([1.0, 5.0, 3.0]))
    shapes = figure.axes[0].collections[0]
    assert shapes.get_array().tolist() == [1.0, 5.0, 3.0]
    assert [path.vertices[0].tolist() for path in shapes.get_paths()] == [[0, 0], [1, 0], [2, 0]]
    joined = bf.plots.district_map(rings, ["a", "b", "c"], question="Which?", edges=np.array([[0, 2]]))
    (line,) = joined.axes[0].collections[1].get_segments()
    assert np.allclose(line, [[0.5, 0.5], [2.5, 0.5]])  # from middle to middle


def test_what_a_bundle_hides_is_said_in_the_words_of_its_attributes(fit):
    assert fit.problem.policy.factors is None  # edges alone are stored
    assert "4 pairs of values of district such as Ahorn and" in bf.policy.hides(fit.problem.policy)
    assert "any two values of sex" in bf.policy.hides(fit.problem.policy)


def test_edges_by_attribute_are_found_only_where_the_policy_is_a_product():
    grid = bf.policy.parse("threshold:3x2:1")
    flat = bf.policy.from_edges(grid.edges[:, 0], grid.edges[:, 1], grid.domain)
    assert [edges.tolist() for edges in attribute_edges(flat)] == [[[0, 1], [1, 2]], [[0, 1]]]
    fewer = bf.policy.from_edges(grid.edges[1:, 0], grid.edges[1:, 1], grid.domain)  # one edge for some values alone
    assert attribute_edges(fewer) is None
    assert attribute_edges(bf.policy.parse("threshold:3x2:2")) is None  # edges that change both
    assert attribute_edges(bf.policy.bounded("3x2")) is None


def test_attributes_are_named_in_pictures_and_facts(page):
    assert "district (4) x sex (2): 8 cells" in page
    figure = bf.plots.policy_graph(bf.policies(district="bounded", sex="bounded").on(PLACES))
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["district: 4 values", "sex: 2 values"]
    assert {text.get_text() for axis in figure.axes for text in axis.texts} >= {"Ahorn", "F"}


def test_a_map_that_is_not_there_is_named_as_that(folder, fit):
    with pytest.raises(bf.InputError, match=re.escape("no such file. Check the path of the map.")):
        render(fit, geojson=folder / "nowhere.geojson")


def test_the_command_shows_release_and_map(folder):
    given = ("report", "p.bf", "--release", "out.csv", "--map", "map.geojson", "--out", "page.html")
    assert call(*given, cwd=folder).returncode == 0
    assert '<h2 id="map">' in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--release", "short.csv"), ["short.csv", "not that of this bundle's queries"]),
        (("--release", "map.geojson"), [".csv and .parquet"]),
        (("--map", "other.geojson"), ["no attribute has its districts for labels"]),
        (("--map", "out.csv"), ["out.csv"]),
        (("--release", "none.csv"), ["none.csv"]),
    ],
)
def test_a_mistake_is_one_sentence_and_no_page(folder, arguments, words):
    assert_one_sentence(call("report", "p.bf", *arguments, "--out", "bad.html", cwd=folder), *words)
    assert not (folder / "bad.html").exists()


def test_text_in_charts_is_readable_on_a_phone():
    """At 390 pixels a chart is 359 wide: a page has 0.6rem, a card 0.3rem and a line on either side."""
    from matplotlib.text import Text

    square = [[(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]]
    fit = bf.fit("all-range:8x8", "product:line:8,bounded:8")
    figures = [
        bf.plots.policy_graph(bf.policy.parse("line:16")),
        bf.plots.policy_graph(fit.problem.policy),
        bf.plots.strategy_heatmap(fit),
        bf.plots.error_per_query(fit),
        bf.plots.worst_queries(fit),
        bf.plots.district_map([square], ["district 1"], question="Where?", values=np.array([3.0]), unit="records"),
    ]
    width = 390 - 2 * (0.6 + 0.3) * 16 - 2
    for figure in figures:
        sizes = [part.get_fontsize() for part in figure.findobj(Text) if part.get_text()]
        assert width / (72 * figure.get_figwidth()) * min(sizes) >= 10


def test_names_are_white_on_dark_districts_and_black_on_light_ones():
    from matplotlib.text import Annotation

    squares = [[[(x, 0.0), (x + 1, 0.0), (x + 1, 1.0), (x, 1.0)]] for x in (0.0, 1.0)]
    figure = bf.plots.district_map(squares, ["low town", "high mountain"], question="?", values=np.array([0.0, 9.0]))
    written = {part.get_text(): part.get_color() for part in figure.findobj(Annotation)}
    assert written == {"low town": "black", "high\nmoun...": "white"}


def test_tables_leave_out_what_they_sum_over_and_ends_without_a_limit_say_so(tmp_path):
    people = bf.domain.of(pay=bf.domain.bins([0, 10, float("inf")]), sex=["F", "M"])
    fit = bf.fit(bf.ranges("pay") + bf.table("sex") + bf.total(), bf.policies(pay="line", sex="line"), domain=people)
    write_answers(bf.release(fit, [9, 8, 7, 6], **BUDGET), tmp_path / "a.csv", level=0.9)
    html = section(render(fit, release=tmp_path / "a.csv"), "release")
    heads = [re.findall(r"<th scope[^>]*>(.*?)</th>", part) for part in html.split("<h3>")[1:]]
    numbers = ["estimate", "stddev", "low to high"]
    assert heads == [["pay", *numbers], ["sex", *numbers], numbers]
    assert [row[0] for row in cells(html) if len(row) == 4] == ["0 to 10", "0 or more", "10 or more", "F", "M"]


def test_intervals_of_one_value_and_processed_numbers_are_shown_as_people_print_them(tmp_path):
    """A range table beside a plain one has two columns for ages in the file; the plain table shows its ages once."""
    people = bf.domain.of(age=bf.domain.whole(20, 22), sex=["F", "M"])
    fit = bf.fit(bf.table("age", "sex") + bf.ranges("age"), bf.policies(age="line", sex="public"), domain=people)
    out = bf.release(fit, np.full(6, 40), **BUDGET)
    processed = out.postprocess("nonnegative", "integers")
    write_answers(out, tmp_path / "a.csv", level=0.9, processed=processed, draws=20)
    html = section(render(fit, release=tmp_path / "a.csv"), "release")
    heads = [re.findall(r"<th scope[^>]*>(.*?)</th>", part) for part in html.split("<h3>")[1:]]
    numbers = ["estimate", "stddev", "low to high", "processed", "its low to high"]
    assert heads == [["age", "sex", *numbers], ["age", *numbers]]
    assert [row[0] for row in cells(html) if len(row) == 6][:4] == ["20", "20 to 21", "20 to 22", "21"]
    assert [row[:2] for row in cells(html) if len(row) == 7][:3] == [["20", "F"], ["20", "M"], ["21", "F"]]
