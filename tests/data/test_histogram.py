"""Histograms: every engine counts as the plain loop over records does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.data.histogram import histogram
from tests.support import records
from tests.support.records import BINS, DOMAIN, ENGINES, NUMBERS, TOWNS, counted, good

nw = pytest.importorskip("narwhals", reason="needs the extra `data`")
pa = pytest.importorskip("pyarrow", reason="needs the extra `data`")
duckdb = pytest.importorskip("duckdb", reason="needs the extra `data`")
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string'")  # ibis asks pandas for it


@pytest.fixture(params=list(ENGINES), ids=str)
def make(request, tmp_path):
    return lambda rows: ENGINES[request.param](rows, tmp_path)


def test_all_engines_give_the_same_counts(make):
    rows = records.records(1)
    counts = histogram(make(rows), DOMAIN, bins=BINS, outside="drop")
    assert counts.dtype == np.int64
    assert counts.sum() > 5
    assert np.array_equal(counts, counted(rows))


def test_all_engines_clip_numbers_alike(make):
    rows = [row for row in records.records(2) if None not in row[1:3]]
    counts = histogram(make(rows), NUMBERS, bins=BINS, outside="clip")
    assert counts.sum() == len(rows)
    assert np.array_equal(counts, counted(rows, town=False, clip=True))


def test_all_engines_add_weights_exactly(make):
    rows = records.records(3)
    counts = histogram(make(rows), DOMAIN, bins=BINS, outside="drop", weights="times")
    assert counts.max() > 2**53
    assert np.array_equal(counts, counted(rows, weighted=True))


def test_all_engines_count_records_inside_the_domain_without_complaint(make):
    rows = good(4)
    assert np.array_equal(histogram(make(rows), DOMAIN, bins=BINS), counted(rows))


def test_all_engines_count_an_empty_table(make):
    assert not histogram(make([]), DOMAIN, bins=BINS).any()


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        (("secret", 1, 5.0, 1), "town"),
        ((TOWNS[0], 4, 5.0, 1), "rooms"),
        ((TOWNS[0], 1, 121.25, 1), "age"),
        ((TOWNS[0], 1, None, 1), "age"),
    ],
)
def test_all_engines_say_which_column_leaves_the_domain_and_nothing_of_its_values(make, bad, column):
    with pytest.raises(InputError) as caught:
        histogram(make([*good(5), bad, bad]), DOMAIN, bins=BINS)
    message = str(caught.value)
    assert message == (
        f"histogram(column '{column}'): 2 records have values outside the domain, or missing ones. Use --other "
        "(other={...}) to count them under a declared value, --outside drop (outside='drop') to leave them out, "
        "--outside clip (outside='clip') for numbers, or correct the table."
    )
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("bad", [(TOWNS[0], None, 5.0, 1), (TOWNS[0], 1, None, 1)])
def test_all_engines_refuse_to_clip_what_is_missing(make, bad):
    with pytest.raises(InputError, match="cannot be clipped: missing ones.*outside='drop'"):
        histogram(make([*good(5), bad]), NUMBERS, bins=BINS, outside="clip")


@pytest.mark.parametrize("times", [None, -1, 2**62 + 1])
def test_all_engines_refuse_bad_weights_even_of_dropped_records(make, times):
    rows = [*good(6), ("nowhere", 1, 5.0, times)]
    # pandas turns whole numbers with a missing one into floats, and those are refused by their type
    with pytest.raises(InputError, match="has weights that are missing, negative, not whole or above 2|type Float64"):
        histogram(make(rows), DOMAIN, bins=BINS, outside="drop", weights="times")


def test_all_engines_notice_that_weights_overflow(make):
    rows = [(TOWNS[0], 1, 5.0, 2**62)] * 2
    with pytest.raises(InputError, match="add up to more than 2\\^63 - 1"):
        histogram(make(rows), DOMAIN, bins=BINS, weights="times")
    rows = [(TOWNS[0], 1, 5.0, 2**62), (TOWNS[0], 1, 5.0, 2**62 - 1)]
    assert histogram(make(rows), DOMAIN, bins=BINS, weights="times").max() == 2**63 - 1


ROW = st.tuples(
    st.sampled_from([*TOWNS, "", "7", None]),
    st.one_of(st.none(), st.integers(-2, 5), st.sampled_from([-(2**63), 2**63 - 1])),
    st.one_of(st.none(), st.sampled_from([*records.EDGES, -0.0, 5e-324]), st.floats(-10, 130, allow_nan=False)),
    st.integers(0, 2**62),
)


@pytest.mark.parametrize("engine", ["polars_lazy", "duckdb", "csv_file"])
@settings(max_examples=25)
@given(rows=st.lists(ROW, max_size=12))
def test_any_records_are_counted_as_by_the_loop(engine, rows, tmp_path_factory):
    source = ENGINES[engine](rows, tmp_path_factory.mktemp("any"))
    assert np.array_equal(histogram(source, DOMAIN, bins=BINS, outside="drop"), counted(rows))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 1000])
def test_any_number_of_bins_is_searched_rightly(size):
    edges = sorted(np.random.default_rng(size).uniform(0, 100, size + 1).tolist())
    values = [*edges, *np.random.default_rng(0).uniform(edges[0], edges[-1], 50).tolist()]
    expected = [0] * size
    for value in values:
        held = [k for k in range(size) if edges[k] <= value < edges[k + 1]]
        expected[held[0] if held else size - 1] += 1  # the last interval holds its upper edge too
    for table in tables({"v": values}):
        assert histogram(table, bf.Domain((size,)), bins={"a0": edges}).tolist() == expected


def test_the_outer_edges_may_be_infinite():
    bins = {"a0": [-np.inf, 0, np.inf]}
    for table in tables({"v": [-np.inf, -1.0, 0.0, np.inf]}):
        assert histogram(table, 2, bins=bins).tolist() == [2, 2]
        assert histogram(table, bf.Domain((2,)), bins=bins, outside="clip").tolist() == [2, 2]


def tables(content, kind=None):
    """The same columns in pandas, polars, pyarrow and DuckDB."""
    table = pa.table({name: pa.array(values, kind) for name, values in content.items()})
    pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    return [table, table.to_pandas(), polars.from_arrow(table), duckdb.from_arrow(table)]


KINDS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
KINDS += [pa.float32(), pa.float64(), pa.decimal128(9, 2)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_of_any_type_are_counted(kind):
    for table in tables({"v": [0, 1, 1, 100]}, kind):
        if kind == pa.decimal128(9, 2) and type(table).__module__.startswith("pandas"):
            continue  # pandas holds decimals as Python objects
        assert histogram(table, 300)[[0, 1, 100]].tolist() == [1, 2, 1]
        assert histogram(table, 50, outside="clip")[[0, 1, 49]].tolist() == [1, 2, 1]
        assert histogram(table, 2, bins={"a0": [0, 0.5, 100]}).tolist() == [1, 3]


def test_the_largest_unsigned_numbers_are_outside():
    for table in tables({"v": [0, 2**64 - 1]}, pa.uint64()):
        assert histogram(table, 2, outside="drop").tolist() == [1, 0]
        assert histogram(table, 2, outside="clip").tolist() == [1, 1]


def test_numbers_beyond_float64_are_binned():
    pandas = pytest.importorskip("pandas")
    table = pa.table({"v": pa.array([0, 1, 2**62 + 1, -(2**63), None])})
    for source in (*tables({"v": [0, 1, 2**62 + 1, -(2**63)]}), table.to_pandas(types_mapper=pandas.ArrowDtype)):
        assert histogram(source, 2, bins={"a0": [0, 0.5, 2]}, outside="drop").tolist() == [1, 1]
        assert histogram(source, 2, bins={"a0": [-np.inf, 0.5, np.inf]}, outside="drop").tolist() == [2, 2]


def test_sums_of_a_database_are_taken_as_weights():
    relation = duckdb.sql("SELECT 1 AS v, sum(i) AS n FROM range(5) AS t(i)")  # a 128-bit number
    assert histogram(relation, 2, weights="n").tolist() == [0, 10]


def test_nan_is_outside_for_every_choice():
    for table in tables({"v": [0.0, float("nan")]}):
        assert histogram(table, 2, outside="drop").tolist() == [1, 0]
        assert histogram(table, 2, bins={"a0": [0, 1, np.inf]}, outside="drop").tolist() == [1, 0]
        for outside in ("error", "clip"):
            with pytest.raises(InputError, match="column 'v'"):
                histogram(table, 2, outside=outside)


def test_numbers_that_are_not_whole_are_outside_also_when_clipping():
    for table in tables({"v": [0.0, 1.5]}):
        assert histogram(table, 3, outside="drop").tolist() == [1, 0, 0]
        with pytest.raises(InputError, match="cannot be clipped"):
            histogram(table, 3, outside="clip")


def test_whole_numbers_equal_the_labels_that_they_are_written_as():
    domain = bf.Domain((3,), ("v",), (("7", "007", "x"),))
    for table in tables({"v": [7, 7]}):
        assert histogram(table, domain).tolist() == [2, 0, 0]


def test_truth_values_equal_labels_in_any_capitals_and_count_as_numbers():
    for labels, expected in [(("False", "TRUE"), [1, 2]), (("true", "false"), [2, 1]), (None, [1, 2])]:
        for table in tables({"v": [True, False, True]}):
            assert histogram(table, bf.Domain((2,), ("v",), (labels,))).tolist() == expected


def test_truth_values_without_a_label_or_missing_are_outside():
    domain = bf.Domain((1,), ("v",), (("true",),))
    table = pa.table({"v": [True, False, None]})
    for source in (table, duckdb.from_arrow(table), pytest.importorskip("polars").from_arrow(table)):
        assert histogram(source, domain, outside="drop").tolist() == [1]


def test_categories_are_read_as_their_text():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    domain = bf.Domain((2,), ("v",), (("a", "b"),))
    column = pandas.Series(["b", "b", "a"], dtype="category")
    assert histogram(pandas.DataFrame({"v": column}), domain).tolist() == [1, 2]
    for kind in (polars.Categorical, polars.Enum(["b", "a"])):
        assert histogram(polars.DataFrame({"v": ["b", "b", "a"]}, schema={"v": kind}), domain).tolist() == [1, 2]
    assert histogram(duckdb.sql("SELECT 'b'::ENUM ('b', 'a') AS v"), domain).tolist() == [0, 1]


def test_a_domain_without_names_reads_the_only_column(tmp_path):
    (tmp_path / "ages.csv").write_text("years\n1\n2\n2\n")
    assert histogram(tmp_path / "ages.csv", 3).tolist() == [0, 1, 2]
    assert histogram(pa.table({"years": [1, 2, 2], "n": [1, 1, 5]}), "3", weights="n").tolist() == [0, 1, 6]


def test_two_attributes_may_read_one_column():
    domain = bf.Domain((2, 4), ("adult", "years"))
    options = {"columns": {"adult": "age", "years": "age"}, "bins": {"adult": [0, 2, 4]}}
    for table in tables({"age": [0, 3, 3]}):
        assert np.flatnonzero(histogram(table, domain, **options)).tolist() == [0, 7]


NASTY = ['a"b', "a'b", "a.b", "a b", "a`b", 'x"); DROP TABLE t; --', "r0", "w", "cell", "ä", "SELECT"]


@pytest.mark.parametrize("name", NASTY)
def test_column_names_are_never_read_as_code(name, tmp_path):
    for table in tables({"other": [9, 9], name: [1, 0]}):
        assert histogram(table, 2, columns={"a0": name}).tolist() == [1, 1]
    quoted = '"' + name.replace('"', '""') + '"'
    (tmp_path / "t.csv").write_text(f"other,{quoted}\n9,1\n9,0\n", encoding="utf-8")
    assert histogram(tmp_path / "t.csv", 2, columns={"a0": name}).tolist() == [1, 1]


@pytest.mark.parametrize(
    "label", ["'", "''); DROP TABLE t; --", '"', "\\", "%s", "\n", "", "NULL", "ünï", "{}", "é" * 999]
)
def test_labels_are_never_read_as_code(label):
    domain = bf.Domain((2,), ("v",), (("plain", label),))
    for table in tables({"v": [label, label, "plain"]}):
        assert histogram(table, domain).tolist() == [1, 2]


def test_csv_text_is_not_guessed_at(tmp_path):
    labels = ("007", "7", "NA", "1e3", "2024-01-01", " x", "")
    (tmp_path / "t.csv").write_text("v,n\n" + "".join(f"{label},1\n" for label in [*labels, '""']))
    assert histogram(tmp_path / "t.csv", bf.Domain((7,), ("v",), (labels,))).tolist() == [1] * 6 + [2]


def test_a_csv_file_of_thousands_of_columns_is_read(tmp_path):
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(5000)) + "\n" + ",".join(["1"] * 5000) + "\n")
    assert histogram(tmp_path / "wide.csv", bf.Domain((2, 2), ("c17", "c4999"))).tolist() == [0, 0, 0, 1]


def test_a_path_that_looks_like_a_partition_gives_no_column(tmp_path):
    (tmp_path / "v=1").mkdir()
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"v": [0]}), tmp_path / "v=1" / "t.parquet")
    assert histogram(tmp_path / "v=1" / "t.parquet", bf.Domain((2,), ("v",))).tolist() == [1, 0]


def test_many_labels_and_attributes_are_counted():
    labels = tuple(f"label {i}" for i in range(5_000))
    domain = bf.Domain((5_000, *[1] * 40), labels=(labels, *[None] * 40))
    content = {f"a{i}": [0, 0] for i in range(41)} | {"a0": ["label 4999", "label 3"]}
    for table in tables(content):
        assert np.flatnonzero(histogram(table, domain)).tolist() == [3, 4_999]


def test_only_cells_and_counts_come_to_python(monkeypatch):
    """Guarantees: Records stay on their engine."""
    shapes = []
    collect = nw.LazyFrame.collect
    monkeypatch.setattr(nw.LazyFrame, "collect", lambda frame: shapes.append(collect(frame)) or shapes[-1])
    histogram(duckdb.sql("SELECT i % 3 AS v FROM range(1000) AS t(i)"), 5)
    assert [(frame.shape, frame.columns) for frame in shapes] == [((3, 2), ["cell", "n"])]


def test_text_among_numbers_of_a_file_is_outside_also_where_every_column_is_a_number(tmp_path):
    (tmp_path / "x.csv").write_text("x,y\n0,1\nmany,1\n2,1\n")
    assert histogram(tmp_path / "x.csv", bf.Domain((3,), ("x",)), outside="drop").tolist() == [1, 0, 1]
