"""Mistakes around histograms: refused in one sentence that holds no record."""

import datetime
import gzip
import sys

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.data.histogram import histogram
from tests.support.mistakes import _as_users_run_it, assert_refused, table  # noqa: F401

nw = pytest.importorskip("narwhals", reason="needs the extra `data`")
pa = pytest.importorskip("pyarrow", reason="needs the extra `data`")
duckdb = pytest.importorskip("duckdb", reason="needs the extra `data`")

PEOPLE = bf.Domain((2, 3), ("sex", "age"), (("F", "M"), None))
FRAME = pa.table({"sex": ["F", "M"], "age": [0, 2], "n": [1, 1]})
RISING = "one more than the attribute has values"
RELEASE = "hand them to release"


@table(
    (lambda: histogram(FRAME, PEOPLE, outside="ignore"), "outside='ignore'", "Known: clip, drop, error."),
    (lambda: histogram(FRAME, PEOPLE, outside=None), "outside=None", "Known"),
    (lambda: histogram(FRAME, PEOPLE, outside="clip"), "attribute 'sex'", "add a label for all other values"),
    (lambda: histogram(FRAME, PEOPLE, columns=["sex"]), "columns=['sex']", "Give a dictionary"),
    (lambda: histogram(FRAME, PEOPLE, bins=[0, 1]), "bins=[0, 1]", "Give a dictionary"),
    (lambda: histogram(FRAME, PEOPLE, columns={"sexx": "sex"}), "columns for 'sexx'", "Did you mean 'sex'?"),
    (lambda: histogram(FRAME, PEOPLE, bins={"ages": [0, 1]}), "bins for 'ages'", "Did you mean 'age'?"),
    (lambda: histogram(FRAME, PEOPLE, columns={"sex": 0}), "column 0", "Rename the column"),
    (lambda: histogram(FRAME, PEOPLE, columns={"sex": "sexx"}), "column 'sexx'", "Did you mean 'sex'?"),
    (lambda: histogram(FRAME, bf.Domain((2,), ("zip",))), "column 'zip'", "Known: age, n, sex."),
    (lambda: histogram(FRAME, 2), "column 'a0'", "give columns="),
    (lambda: histogram(pa.table({}), 2), "column 'a0'", "There are none."),
    (lambda: histogram(pa.table({f"c{i}{i}": [1] for i in range(30)}), 2), "column 'a0'", "There are 30 others."),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": 5}), "bins of 'age'", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": "0123"}), "bins of 'age'", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": [0, 1, 2]}), "3 edges", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": [0, 1, 1, 2]}), "(0, 1, 1, 2)", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": [0, 1, np.nan, 2]}), "nan", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": [0, "1", 2, 3]}), "'1'", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": [0, None, 2, 3]}), "None", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": [0, 1, 2, 10**400]}), "bins of 'age'", RISING),
    (lambda: histogram(FRAME, PEOPLE, bins={"age": [[0], 1, 2, 3]}), "bins of 'age'", RISING),
    (lambda: histogram(FRAME, bf.Domain((2,), labels=((1, "1"),))), "labels of 'a0'", "differ as text"),
    (lambda: histogram(FRAME, (10**6, 10**6)), "21.8 TB", "Use fewer attributes or wider bins."),
    (lambda: histogram(FRAME, PEOPLE, weights=3), "weights of type int", "Use weights='count'."),
    (lambda: histogram(FRAME, PEOPLE, weights="m"), "column 'm'", "Known"),
    (lambda: histogram(FRAME, PEOPLE, weights="sex"), "weights of type String", "64-bit integers"),
    (lambda: histogram(np.zeros(3, int), 3), "shape (3,)", RELEASE),
    (lambda: histogram(np.zeros((3, 2)), 3), "shape (3, 2)", RELEASE),
    (lambda: histogram([1, 2, 3], 3), "source of type list", "path of a CSV or Parquet file"),
    (lambda: histogram(None, 3), "source of type NoneType", "path of a CSV or Parquet file"),
    (lambda: histogram("counts.npy", 3), "counts.npy", RELEASE),
    (lambda: histogram("ages.xlsx", 3), "ages.xlsx", "Use .csv"),
    (lambda: histogram("ages", 3), "ages", "Use .csv"),
    (lambda: histogram("", 3), "''", "Use .csv"),
    (lambda: histogram("no/such.csv", 3), "no/such.csv", "Check the path"),
    (lambda: histogram("no/such.parquet", 3), "no/such.parquet", "Check the path"),
    (lambda: histogram("a\0b.csv", 3), "a\\x00b.csv", "Check the path"),
    (lambda: histogram("https://example.com/t.csv", 3), "example.com", "Check the path"),
)
def test_a_bad_request_is_refused(case):
    assert_refused(*case)


@table(
    (pa.table({"a0": ["1"]}), 2, "of type String", "give the domain labels"),
    (pa.table({"a0": [datetime.date(2024, 1, 1)]}), 2, "of type Date", "Convert the column to numbers"),
    (pa.table({"a0": [1.0]}), bf.Domain((1,), labels=(("1",),)), "of type Float64", "to text or to integers"),
    (pa.table({"a0": [[1]]}), 2, "of type List", "Convert the column to numbers"),
    (pa.table({"a0": [b"1"]}), bf.Domain((1,), labels=(("1",),)), "of type Binary", "to text or to integers"),
)
def test_a_column_of_the_wrong_type_is_refused(case):
    frame, domain, seen, advice = case
    assert_refused(lambda: histogram(frame, domain), f"column 'a0' {seen}", advice)


def test_two_columns_of_one_name_are_refused(tmp_path):
    pandas = pytest.importorskip("pandas")
    doubled = pandas.DataFrame([[1, 1]], columns=["a", "a"])
    with pytest.raises(InputError, match="could not read them|several columns"):
        histogram(doubled, bf.Domain((2,), ("a",)))
    (tmp_path / "t.csv").write_text("a,a\n1,1\n")
    assert_refused(lambda: histogram(tmp_path / "t.csv", bf.Domain((2,), ("a",))), "column 'a'", "Rename one")


SECRET = "Zebediah"


@pytest.mark.parametrize(
    ("name", "content", "seen", "advice"),
    [
        ("empty.csv", b"", "the file is empty", "Write it again"),
        ("blank.csv", b"\n1\n", "its first line is empty", "Write the names"),
        ("utf16.csv", "sex,age\nF,1\n".encode("utf-16"), "not UTF-8", "Save the file as UTF-8."),
        ("quote.csv", b'"sex,age\nF,1\n', "its first line is not readable", "quoted whole"),
        ("headless.csv", f"{SECRET},1\nF,1\n".encode(), "names none of the columns", "into the first line"),
        ("other.csv", f"sex,{SECRET}\nF,1\n".encode(), "no such column", "There are 2 others."),
        ("close.csv", b"sex,Age\nF,1\n", "column 'age'", "Did you mean 'Age'?"),
        ("short.csv", f"sex,age\nF,1\n{SECRET}\n".encode(), "line 3 is not readable", "as many fields"),
        ("long.csv", f"sex,age\nF,1\n{SECRET},1,1\n".encode(), "line 3 is not readable", "as many fields"),
        ("open.csv", f'sex,age\nF,1\n"{SECRET},1\n'.encode(), "not readable", "quotes in pairs"),
        ("bytes.csv", f"sex,age\n{SECRET}\xff,1\n".encode("latin-1"), "not readable", "in UTF-8"),
        ("huge.csv", b"sex,age\nF,1\n" + SECRET.encode() * 500_000 + b",1\n", "not readable", "as many fields"),
        ("value.csv", f"sex,age\n{SECRET},1\n".encode(), "column 'sex'", "outside='drop'"),
        ("number.csv", f"sex,age\nF,{SECRET}\n".encode(), "column 'age'", "outside='drop'"),
        ("packed.csv.gz", b"sex,age\nF,1\n", "cannot be unpacked", "Write the file again."),
        ("cut.csv.gz", gzip.compress(b"sex,age\n" + b"F,1\n" * 9999, mtime=0)[:60], "", ""),
        ("text.parquet", f"sex,age\n{SECRET},1\n".encode(), "could not read them", "with the engine itself"),
        ("cut.parquet", b"PAR1" + SECRET.encode() + b"PAR1", "could not read them", "with the engine itself"),
    ],
)
def test_a_bad_file_is_refused_without_a_word_of_its_records(name, content, seen, advice, tmp_path, capfd):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        histogram(tmp_path / name, PEOPLE)
    assert_refused(lambda: histogram(tmp_path / name, PEOPLE), seen, advice)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert capfd.readouterr() == ("", "")


def test_a_file_of_one_column_without_its_name_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("3\n1\n2\n")
    assert_refused(lambda: histogram(tmp_path / "t.csv", 4), "a file of one column", "into the first line")
    (tmp_path / "t.csv").write_text("red\nblue\n")
    colours = bf.Domain((2,), labels=(("red", "blue"),))
    assert_refused(lambda: histogram(tmp_path / "t.csv", colours), "a file of one column", "into the first line")


@pytest.mark.parametrize("times", ["1.5", "-1", "many", "", "1e3", "99999999999999999999"])
def test_weights_in_a_csv_file_must_be_whole_counts(times, tmp_path):
    (tmp_path / "t.csv").write_text(f"v,n\n1,2\n1,{times}\n")
    domain = bf.Domain((2,), ("v",))
    assert_refused(lambda: histogram(tmp_path / "t.csv", domain, weights="n"), "column 'n'", "correct it")


def test_an_engine_that_fails_is_not_quoted():
    relation = duckdb.sql(f"SELECT CAST('{SECRET}' AS INTEGER) AS v FROM range(3)")
    with pytest.raises(InputError, match=r"could not read them \(ConversionException\)") as caught:
        histogram(relation, 2)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_closed_connection_is_a_mistake_of_the_user():
    connection = duckdb.connect()
    relation = connection.sql("SELECT 1 AS v")
    connection.close()
    assert_refused(lambda: histogram(relation, 2), "table", "with the engine itself")


@pytest.mark.parametrize(("package", "source"), [("duckdb", "t.csv"), ("narwhals", None), ("narwhals", "t.csv")])
def test_a_missing_package_is_named_with_the_way_to_get_it(package, source, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("a0\n1\n")
    given = pa.table({"a0": [1]}) if source is None else tmp_path / source
    monkeypatch.setitem(sys.modules, package, None)
    advice = "Install it with: pip install 'hdmm-bf[data]'."
    assert_refused(lambda: histogram(given, 2), f"needs the package {package}", advice)


def test_a_package_that_an_engine_lacks_is_named(monkeypatch):
    def lacking(*_):
        raise ModuleNotFoundError(name="pyarrow")

    monkeypatch.setattr(nw.LazyFrame, "collect", lacking)
    assert_refused(lambda: histogram(duckdb.sql("SELECT 1 AS v"), 2), "needs the package pyarrow", "hdmm-bf[data]")
