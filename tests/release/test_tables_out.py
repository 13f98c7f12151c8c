"""Tables out: the frame says of every number what it counts, in every library and every kind of file."""

import csv
import json

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.report.export import write_answers
from tests.support.mistakes import assert_refused

nw = pytest.importorskip("narwhals")
LIBRARIES = ["pandas", "polars", "pyarrow"]
PEOPLE = bf.domain.of(
    age=bf.domain.whole(18, 21, unit="years"),
    region=["north", "=south", "west"],
    pay=bf.domain.bins([0, 10, 25.5, float("inf")]),
)
ASKED = (
    bf.table("region", "age")
    + bf.ranges("age", by="pay")
    + bf.table("region", groups={"coast": ["north", "west"]})
    + bf.table("pay", name="a very long name of a table: [pay]")
    + bf.total()
)


@pytest.fixture(scope="module")
def out():
    """Next to no noise, so that every number can be told from the data."""
    fit = bf.fit(ASKED, bf.policies(age="threshold 2", region="bounded", pay="line"), domain=PEOPLE)
    return bf.release(fit, COUNTS, rho=1e6)


COUNTS = np.random.default_rng(2).integers(0, 1000, PEOPLE.num_cells)


def as_columns(frame):
    columns = nw.from_native(frame, eager_only=True).to_dict(as_series=False)
    return {name: [None if v is None or v != v else v for v in cells] for name, cells in columns.items()}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_says_what_every_number_counts(out, library):
    frame = out.to_frame(library)
    assert type(frame).__module__.split(".")[0] == library
    columns = as_columns(frame)
    said = out.problem.workload.columns()
    assert list(columns) == [*said, "estimate", "stddev", "low", "high"]
    assert {name: columns[name] for name in said} == said
    assert np.array_equal(columns["estimate"], out.answers)
    assert np.array_equal(columns["stddev"], out.stddev)
    assert np.array_equal(columns["low"], out.interval(0.95).low)
    np.testing.assert_allclose(columns["estimate"], out.problem.workload.matrix.mv(COUNTS), atol=0.1)


def test_pandas_keeps_whole_numbers_beside_empty_cells_and_compares_them(out):
    frame = out.to_frame("pandas")
    assert str(frame["age_lo"].dtype) == "Int64"
    old = frame[(frame["age_lo"] >= 20) & (frame["age_hi"] == 21)]
    assert set(old["age_lo"]) == {20, 21}
    assert frame[frame["table"] == "total"]["age_lo"].isna().all()


def test_numbers_beyond_64_bits_stay_whole_beside_empty_cells():
    large = str(2**70)
    domain = bf.domain.of(code=["7", large], sex=["F", "M"])
    fit = bf.fit(bf.table("code") + bf.table("sex"), bf.policies(code="line", sex="line"), domain=domain)
    codes = bf.release(fit, [1, 2, 3, 4], rho=1.0).to_frame("pandas")["code"].tolist()
    assert codes == [7, 2**70, None, None]


def test_the_frame_is_of_the_library_that_is_loaded(out, monkeypatch):
    import sys

    import polars

    for name in ("pandas", "pyarrow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert isinstance(out.to_frame(), polars.DataFrame)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_wide_table_has_a_column_for_every_value_of_its_last_attribute(out, library):
    cube = COUNTS.reshape(PEOPLE.sizes)
    columns = as_columns(out.table("region", "age", library=library))
    assert list(columns) == ["region", "18", "19", "20", "21"]
    assert columns["region"] == ["north", "=south", "west"]
    np.testing.assert_allclose([columns[str(a)] for a in range(18, 22)], cube.sum(axis=2), atol=0.1)
    turned = as_columns(out.table("age", "region", library=library))
    assert list(turned) == ["age", "north", "=south", "west"]
    np.testing.assert_allclose([turned[r] for r in columns["region"]], cube.sum(axis=2).T, atol=0.1)


def test_a_wide_table_may_hold_deviations_or_ends_and_groups(out):
    assert as_columns(out.table("age", "region", value="stddev"))["north"][0] == pytest.approx(out.stddev[0])
    grouped = as_columns(out.table("age", "region", groups={"region": {"coast": ["north", "west"]}}))
    assert list(grouped) == ["age", "coast"]
    np.testing.assert_allclose(grouped["coast"], COUNTS.reshape(PEOPLE.sizes)[:, [0, 2]].sum(axis=(1, 2)), atol=0.2)


def test_a_table_of_one_attribute_has_its_numbers_side_by_side(out):
    columns = as_columns(out.table("pay"))
    assert list(columns) == ["pay_lo", "pay_hi", "estimate", "stddev", "low", "high"]
    assert columns["pay_lo"] == [0, 10, 25.5]
    assert columns["pay_hi"] == [10, 25.5, None]


def test_a_table_that_was_measured_is_answered_though_the_strategy_has_not_full_rank():
    """Rounding in W (L L^T) W^T once refused what was measured; W L has none to speak of."""
    fit = bf.fit(bf.table("age") + bf.table("region"), bf.policies(age="bounded", region="bounded"), domain=PEOPLE)
    released = bf.release(fit, COUNTS, rho=1e6)
    np.testing.assert_allclose(
        as_columns(released.table("region"))["estimate"], COUNTS.reshape(PEOPLE.sizes).sum(axis=(0, 2)), atol=0.2
    )
    with pytest.raises(InputError, match="asks what the strategy does not measure"):
        released.table("age", "region")


def test_queries_of_a_matrix_have_a_column_of_names():
    out = bf.release(bf.fit(np.eye(3), "line:3"), [1, 2, 3], rho=0.5)
    assert list(as_columns(out.to_frame())) == ["query", "estimate", "stddev", "low", "high"]


def test_mistakes_are_refused(out):
    assert_refused(lambda: out.to_frame("panda"), "library='panda'", "Did you mean 'pandas'?")
    assert_refused(lambda: out.to_frame(level=2.0), "2.0", "")
    assert_refused(lambda: out.table("agee"), "'agee'", "Did you mean 'age'?")
    assert_refused(lambda: out.table("age", value="mean"), "value='mean'", "Known")


@pytest.mark.parametrize("name", ["pandas", "narwhals"])
def test_a_library_that_is_missing_is_named(out, name, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == name else found(n, *a))
    assert_refused(lambda: out.to_frame("pandas"), name, "pip install")


def test_csv_holds_the_table_alone_and_its_metadata_says_the_types(out, tmp_path):
    path = write_answers(out, tmp_path / "t.csv", level=0.9)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    said = out.problem.workload.columns()
    assert [row["age_lo"] for row in rows] == ["" if v is None else str(v) for v in said["age_lo"]]
    assert [row["age_lo"] + row["age_hi"] for row in rows[-4:]] == [""] * 4, "summed over by table pay and by total"
    assert {row["region"] for row in rows} == {"north", "'=south", "west", "coast", ""}
    assert np.array_equal([float(row["estimate"]) for row in rows], out.answers)
    beside = json.loads((tmp_path / "t.csv-metadata.json").read_text())
    kinds = {column["titles"]: column["datatype"] for column in beside["tableSchema"]["columns"]}
    assert kinds == {
        "table": "string",
        "age_lo": "integer",
        "age_hi": "integer",
        "region": "string",
        "pay_lo": "double",
        "pay_hi": "double",
        "estimate": "double",
        "stddev": "double",
        "low": "double",
        "high": "double",
    }
    words = {column["titles"]: column["dc:description"] for column in beside["tableSchema"]["columns"]}
    assert words["age_lo"] == "first value of age, in years; empty: all of age"
    assert words["pay_hi"] == "upper edge of pay; empty: all of pay or no limit"
    needed = {column["titles"]: column["required"] for column in beside["tableSchema"]["columns"]}
    assert (needed["table"], needed["age_lo"], needed["estimate"]) == (True, False, True)
    assert beside["notes"][0]["privacy"] == out.plan.promise
    assert "two ages at most 2 years apart" in beside["notes"][0]["hidden"]


def test_parquet_holds_the_same_table_with_its_promise(out, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(write_answers(out, tmp_path / "t.parquet", level=0.95))
    assert table.to_pydict() == as_columns(out.to_frame("pyarrow"))
    assert table.schema.metadata[b"privacy"].decode() == out.plan.promise
    assert "age_lo: first value of age, in years; empty: all of age" in table.schema.metadata[b"columns"].decode()


def test_json_has_what_queries_ask_under_columns(out, tmp_path):
    record = json.loads(write_answers(out, tmp_path / "t.json", level=0.95).read_text())
    assert record["columns"] == out.problem.workload.columns()
    assert record["answer"] == out.answers.tolist()
    assert record["query"] == out.problem.workload.names()


def test_excel_has_a_sheet_a_table_and_one_for_the_promise(out, tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra `excel`")
    processed = out.postprocess("nonnegative")
    book = openpyxl.load_workbook(write_answers(out, tmp_path / "t.xlsx", level=0.95, processed=processed))
    titles = ["region x age", "ranges of age by pay", "region", "a very long name of a table p", "total", "promise"]
    assert [" ".join(title.split()) for title in book.sheetnames] == titles
    rows = list(book["region x age"].values)
    assert rows[0][:4] == ("age_lo", "age_hi", "region", "estimate")
    assert next(book["total"].values) == ("estimate", "stddev", "low", "high", "processed")
    assert {row[2] for row in rows[1:]} == {"north", "'=south", "west"}
    first = rows[0].index("estimate")
    np.testing.assert_allclose([row[first] for row in rows[1:]], out.answers[:12], rtol=1e-14)
    said = dict(book["promise"].values)
    assert said["privacy"] == out.plan.promise
    assert "biased" in said["post-processing"]


def test_sheets_have_names_that_excel_takes(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra `excel`")
    names = ["x" * 40, "x" * 41, "Promise", "a/b?*", "a b ", "???"]
    tables = [bf.table("age", name=name).asked[0] for name in names]
    fit = bf.fit(bf.workload.Tables(tuple(tables)), bf.policies(age="line"), domain=bf.domain.of(age=2))
    out = bf.release(fit, [3, 4], rho=1.0)
    sheets = openpyxl.load_workbook(write_answers(out, tmp_path / "t.xlsx", level=0.95)).sheetnames
    assert len({name.casefold() for name in sheets}) == 7
    assert all(0 < len(name) <= 31 for name in sheets)
