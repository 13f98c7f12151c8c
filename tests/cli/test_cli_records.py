"""Records on the command line: counted where they are, refused in a sentence that says how many and never which."""

import json

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.data.sources import holds_records, read_data
from tests.support.command_line import assert_one_sentence, call
from tests.support.releasing import answers

pa = pytest.importorskip("pyarrow", reason="needs the extra `data`")
duckdb = pytest.importorskip("duckdb", reason="needs the extra `data`")
pq = pytest.importorskip("pyarrow.parquet")

PEOPLE = bf.domain.of(
    region=["north", "South East", "elsewhere"], pay=bf.domain.bins([0, 10, 25.5, 99]), age=range(18, 21)
)
SECRET = "Zebediah"
MUCH = ("--rho", "1e6")
"""Next to no noise, so that answers can be told from the data."""
USUAL = ("--rho", "0.5")
SLIP = "differ from a label only in capitals or spaces"


def people(number=300, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "id": [f"p{i}" for i in range(number)],
        "region": rng.choice(PEOPLE.labels[0], number).tolist(),
        "pay": rng.choice([0, 9.5, 10, 25.5, 99], number).tolist(),
        "age": rng.integers(18, 21, number).tolist(),
    }


def counted(rows):
    """The plain loop."""
    edges = PEOPLE.bins[1]
    counts = np.zeros(PEOPLE.sizes, dtype=int)
    for region, pay, age in zip(rows["region"], rows["pay"], rows["age"], strict=True):
        place = min(int(np.searchsorted(edges, pay, side="right")) - 1, 2)
        counts[PEOPLE.labels[0].index(region), place, age - 18] += 1
    return counts.ravel()


def as_csv(rows, separator=",", decimal="."):
    lines = [separator.join(rows)]
    for row in zip(*rows.values(), strict=True):
        lines.append(separator.join(str(v).replace(".", decimal) if isinstance(v, float) else str(v) for v in row))
    return "\n".join(lines) + "\n"


def as_duckdb(path, rows, **others):
    connection = duckdb.connect(str(path))
    connection.from_arrow(pa.table(rows)).create("people")
    for name, other in others.items():
        connection.from_arrow(pa.table(other)).create(name)
    connection.close()


def as_arrow(path, rows, *, stream=False):
    table = pa.table(rows)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "p.csv": lambda path, rows: path.write_text(as_csv(rows)),
    "bom.csv": lambda path, rows: path.write_bytes(b"\xef\xbb\xbf" + as_csv(rows).encode()),
    "crlf.csv": lambda path, rows: path.write_bytes(as_csv(rows).replace("\n", "\r\n").encode()),
    "p.tsv": lambda path, rows: path.write_text(as_csv(rows, "\t")),
    "p.parquet": lambda path, rows: pq.write_table(pa.table(rows), path),
    "p.arrow": as_arrow,
    "s.arrow": lambda path, rows: as_arrow(path, rows, stream=True),
    "p.duckdb": as_duckdb,
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    tables = bf.table("region", "age") + bf.ranges("pay")
    bf.fit(tables, bf.policies(region="bounded", pay="line"), domain=PEOPLE).save(folder / "p.bf")
    return folder / "p.bf"


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_of_records_is_counted(name, tmp_path):
    rows = people()
    WRITERS[name](tmp_path / name, rows)
    assert holds_records(tmp_path / name, PEOPLE)
    assert np.array_equal(read_data(tmp_path / name, PEOPLE), counted(rows))


def test_release_reads_records_with_the_attributes_of_the_bundle(bundle, tmp_path):
    rows = people()
    WRITERS["p.parquet"](tmp_path / "p.parquet", rows)
    result = call("release", bundle, "--data", "p.parquet", "--out", "a.csv", *MUCH, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "What is promised: a.csv-metadata.json" in result.stdout
    lines = answers(tmp_path / "a.csv")
    assert list(lines[0]) == ["table", "region", "pay_lo", "pay_hi", "age", "estimate", "stddev", "low", "high"]
    table = counted(rows).reshape(PEOPLE.sizes).sum(axis=1)
    for line in lines[:9]:
        cell = PEOPLE.labels[0].index(line["region"]), int(line["age"]) - 18
        assert float(line["estimate"]) == pytest.approx(table[cell], abs=0.1)
    assert [line["pay_lo"] for line in lines[9:]] == ["0.0", "0.0", "0.0", "10.0", "10.0", "25.5"]


def test_a_list_of_counts_is_still_read_as_counts(bundle, tmp_path):
    counts = counted(people())
    (tmp_path / "c.csv").write_text(",".join(map(str, counts)))
    assert np.array_equal(read_data(tmp_path / "c.csv", PEOPLE), counts)
    lines = ["cell,count", *(f"{i},{c}" for i, c in enumerate(counts))]
    (tmp_path / "l.csv").write_text("\n".join(lines))
    assert np.array_equal(read_data(tmp_path / "l.csv", PEOPLE), counts)
    np.save(tmp_path / "c.npy", counts)
    assert np.array_equal(read_data(tmp_path / "c.npy", PEOPLE), counts)


def test_a_table_of_a_database_is_named_after_a_colon(tmp_path):
    rows = people(20)
    as_duckdb(tmp_path / "two.duckdb", rows, pets={"name": ["x"]})
    assert np.array_equal(read_data(f"{tmp_path}/two.duckdb:people", PEOPLE), counted(rows))
    with pytest.raises(bf.InputError, match="has 2 tables.*Name one of people, pets"):
        read_data(tmp_path / "two.duckdb", PEOPLE)
    with pytest.raises(bf.InputError, match="0 of them called 'men'"):
        read_data(f"{tmp_path}/two.duckdb:men", PEOPLE)


def changed(**columns):
    rows = people(50)
    for name, cells in columns.items():
        rows[name] = [*cells, *rows[name][len(cells) :]]
    return rows


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.duckdb"])
def test_undeclared_values_are_refused_with_how_many_and_never_which(bundle, name, tmp_path):
    WRITERS[name](tmp_path / name, changed(region=[SECRET, SECRET, "north"], age=[18, 18, 77]))
    result = call("release", bundle, "--data", name, "--out", "a.csv", *USUAL, cwd=tmp_path)
    assert_one_sentence(result, "column 'region'", "3 records have values outside the domain", "in 'age'", "--other")
    assert SECRET not in result.stderr
    assert "77" not in result.stderr
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.duckdb"])
def test_other_gives_undeclared_and_missing_values_a_home(bundle, name, tmp_path):
    WRITERS[name](tmp_path / name, changed(region=[SECRET, "" if name == "p.csv" else None]))
    rows = changed(region=["elsewhere", "elsewhere"])
    arguments = ("--data", name, "--out", "a.json", "--other", "region=elsewhere", *MUCH)
    result = call("release", bundle, *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "a.json").read_text())["answer"]
    workload = bf.load(bundle).problem.workload
    np.testing.assert_allclose(found, workload.matrix.mv(counted(rows)), atol=0.1)
    assert np.array_equal(read_data(tmp_path / name, PEOPLE, other={"region": "elsewhere"}), counted(rows))


def test_other_takes_numbers_of_values_without_labels(tmp_path):
    (tmp_path / "x.csv").write_text('x,y\n0,1\n9,1\nmany,1\n"",1\n2,1\n')
    assert bf.histogram(tmp_path / "x.csv", bf.domain.of(x=3), other={"x": 1}).tolist() == [1, 3, 1]
    with pytest.raises(bf.InputError, match="is no value of the attribute.*0 to 2"):
        bf.histogram(tmp_path / "x.csv", bf.domain.of(x=3), other={"x": 3})


def test_records_may_be_dropped_or_clipped(bundle, tmp_path):
    WRITERS["p.csv"](tmp_path / "p.csv", changed(age=[17]))
    arguments = ("--data", "p.csv", "--out", "a.csv", "--outside", "drop", *MUCH)
    assert call("release", bundle, *arguments, cwd=tmp_path).returncode == 0


BAD = {
    "semicolons": (as_csv(people(5), ";"), (), "has semicolons between its fields", "Write commas"),
    "tabs": (as_csv(people(5), "\t"), (), "has tabs between its fields", "Write commas"),
    "decimal commas": (
        as_csv(people(9)).replace(",9.5,", ',"9,5",'),
        (),
        "column 'pay'",
        "Some have a decimal comma: write a point.",
    ),
    "capitals": (
        as_csv(changed(region=["NORTH"])),
        (),
        "1 record has",
        "differ from a label only in capitals or spaces",
    ),
    "spaces": (
        as_csv(changed(region=[" north "])),
        (),
        "1 record has",
        "differ from a label only in capitals or spaces",
    ),
    "spaces within": (as_csv(changed(region=["South  East"])), (), "1 record has values outside", "--other"),
    "no column": (as_csv({"id": [1], "region": ["north"], "pay": [3]}), (), "column 'age'", "no such column"),
    "column in capitals": (
        as_csv({"Region": ["north"], "pay": [3], "age": [18]}),
        (),
        "column 'region'",
        "Did you mean 'Region'?",
    ),
    "doubled column": ("region,region,pay,age\nnorth,north,3,18\n", (), "column 'region'", "several columns"),
    "short line": ("region,pay,age\nnorth,3,18\nnorth,3\n", (), "line 3 is not readable", "as many fields"),
    "no such home": (as_csv(people(5)), ("--other", "region=nowhere"), "is no value of the attribute", "elsewhere"),
    "no such attribute": (as_csv(people(5)), ("--other", "town=x"), "other for 'town'", "Known: age, pay, region."),
    "no value": (as_csv(people(5)), ("--other", "region"), "is no attribute=value", "--other region=elsewhere"),
    "two homes": (as_csv(people(5)), ("--other", "age=18", "--other", "age=19"), "twice", "one home"),
    "home of counts": ("cell,count\n0,3\n", ("--other", "age=18"), "holds counts", "Leave other out"),
    "missing cells": ("cell,count\n0,3\n", (), "has no line for", "--missing zero"),
    "doubled cells": ("cell,count\n0,3\n0,4\n", (), "for the second time", "Add the counts up"),
    "cells in capitals": (
        "region,pay,age,count\nNORTH,0,18,3\n",
        (),
        "names no cell of the domain",
        "capitals and spaces count",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_in_a_file_is_one_sentence(bundle, name, tmp_path):
    text, arguments, seen, advice = BAD[name]
    (tmp_path / "p.csv").write_text(text)
    result = call("release", bundle, "--data", "p.csv", "--out", "a.csv", *arguments, *USUAL, cwd=tmp_path)
    assert_one_sentence(result, seen, advice)
    assert not (tmp_path / "a.csv").exists()


def test_an_unknown_kind_of_file_is_refused(bundle, tmp_path):
    result = call("release", bundle, "--data", "p.xls", "--out", "a.csv", *USUAL, cwd=tmp_path)
    assert_one_sentence(result, "unknown kind of file '.xls'")


def test_records_of_a_domain_too_large_for_a_histogram_are_released_by_factors(tmp_path):
    domain = bf.domain.of(a=[f"a{i}" for i in range(60)], b=60, c=range(60), d=60, e=60)
    codes = np.random.default_rng(0).integers(0, 60, (400, 5))
    rows = {name: codes[:, i].tolist() for i, name in enumerate("abcde")}
    rows["a"] = [f"a{i}" for i in rows["a"]]
    pq.write_table(pa.table(rows), tmp_path / "p.parquet")
    read = read_data(tmp_path / "p.parquet", domain)
    assert sorted(map(tuple, read.values.tolist())) == sorted(map(tuple, codes.tolist()))
    bf.fit(bf.table("a") + bf.table("c"), bf.policies(a="bounded"), domain=domain).save(tmp_path / "l.bf")
    result = call("release", "l.bf", "--data", "p.parquet", "--out", "a.json", *MUCH, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = np.array(json.loads((tmp_path / "a.json").read_text())["answer"])
    np.testing.assert_allclose(found[:60], np.bincount(codes[:, 0], minlength=60), atol=0.1)
    rows["a"][0] = SECRET
    pq.write_table(pa.table(rows), tmp_path / "p.parquet")
    with pytest.raises(bf.InputError, match="column 'a'.*1 record has values outside") as caught:
        read_data(tmp_path / "p.parquet", domain)
    assert SECRET not in str(caught.value)
