"""Written releases: every bit comes back, the promise stands beside them, whole files or none."""

import csv
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.domain import Domain
from hdmm_bf.report.export import (
    SUFFIXES,
    check_rows,
    check_target,
    metadata_file,
    write_answers,
    write_estimate,
    write_file,
    write_matrix,
)
from tests.support.ledgers import nobody
from tests.support.mistakes import THREE_PARTS

IN_CSV = {"two\nlines": r"two\x0alines", "bare\rreturn": r"bare\x0dreturn", "both\r\n": r"both\x0d\x0a"}
IN_CSV |= {"=1+1": "'=1+1", "é \u2028 x": r"é \u2028 x"}
ODD = ["a, b", 'say "no"', "two\nlines", "bare\rreturn", "both\r\n", "#1 of 3", " blanks ", "=1+1", "é \u2028 x", ""]


def named_in(suffix, name):
    return IN_CSV.get(name, name) if suffix == ".csv" else name


COUNTS = np.arange(10) ** 2 + 7
EXACT = [suffix for suffix in SUFFIXES if suffix != ".xlsx"]
"""Formats that bring every bit back; Excel keeps 15 digits."""


@pytest.fixture(scope="module")
def released():
    """Gaussian and Laplace releases whose queries and labels have every odd name."""
    W = np.tril(np.ones((10, 10))) / 3
    workload = bf.workload.from_matrix(W, names=ODD, domain=Domain((10,), ("na,me",), (tuple(ODD),)))
    policy = bf.policy.line(workload.domain)
    gaussian = bf.release(bf.fit(workload, policy), COUNTS, epsilon=1.25, delta=1e-6)
    laplace = bf.release(bf.fit(workload, policy, noise="laplace", max_steps=2), COUNTS, epsilon=0.5)
    return {"gaussian": gaussian, "laplace": laplace}


def read_back(path):
    """Return the notes and the columns of a file, read by other software."""
    if path.suffix == ".json":
        record = json.loads(path.read_text())
        return record["about"], {key: value for key, value in record.items() if isinstance(value, list)}
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        notes = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        return notes, {name: table[name].to_pylist() for name in table.column_names}
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file, strict=True)
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name in names[1:]:
        columns[name] = [float(entry) for entry in columns[name]]
    beside = json.loads(metadata_file(path).read_text(encoding="utf-8"))
    assert beside["url"] == path.name
    assert [column["titles"] for column in beside["tableSchema"]["columns"]] == names
    return beside["notes"][0], columns


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("suffix", EXACT)
def test_answers_come_back_bit_by_bit(released, noise, suffix, tmp_path):
    """Quotes exporting.releases: the same numbers, bit by bit; Parquet and JSON bring back the same names."""
    out = released[noise]
    processed = out.postprocess("nonnegative", "integers")
    path = write_answers(out, tmp_path / f"answers{suffix}", level=0.9, processed=processed)
    beside = [metadata_file(path).name] if suffix == ".csv" else []
    assert sorted(os.listdir(tmp_path)) == [path.name, *beside]
    notes, columns = read_back(path)
    ends = out.interval(0.9)
    wanted = {"answer": out.answers, "stddev": out.stddev, "low": ends.low, "high": ends.high}
    for name, numbers in {**wanted, "processed": processed.answers}.items():
        assert np.asarray(columns[name], dtype=np.float64).tobytes() == numbers.tobytes(), name
    assert columns["query"] == [named_in(suffix, name) for name in ODD]
    assert notes["policy"] == "line:10"
    assert notes["public"] == "the total number of records"
    assert "biased" in notes["post-processing"]
    assert notes["interval"].startswith("90 %")


@pytest.mark.parametrize("suffix", EXACT)
def test_the_estimate_comes_back_bit_by_bit(released, suffix, tmp_path):
    out = released["gaussian"]
    notes, columns = read_back(write_estimate(out, tmp_path / f"cells{suffix}"))
    assert np.array(columns["estimate"]).tobytes() == out.estimate.tobytes()
    assert columns["cell"] == ["na,me=" + named_in(suffix, label).lstrip("'") for label in ODD]
    B = np.linalg.inv(out.problem.workload.matrix.dense()) @ out.recovery.queries(np.arange(10))  # W is invertible
    np.testing.assert_allclose(columns["stddev"], out.plan.stddev * np.linalg.norm(B, axis=1), rtol=1e-9)
    assert "processed" not in columns
    assert "post-processing" not in notes


def test_the_promise_is_beside_a_csv_file_which_holds_nothing_but_the_table(released, tmp_path):
    for noise, privacy in (("gaussian", "epsilon = 1.25, delta = 1e-06, by mu = "), ("laplace", "epsilon = 0.5")):
        path = write_answers(released[noise], tmp_path / "a.csv", level=0.95)
        notes, _ = read_back(path)
        assert notes["made by"] == f"hdmm_bf {bf.__version__}"
        assert notes["policy"] == "line:10"
        assert notes["public"] == "the total number of records"
        assert notes["privacy"].startswith(privacy)
        law = "rounded normal" if noise == "gaussian" else "discrete Laplace"
        assert notes["noise"].startswith(f"{law}, scale ")
        assert {"hidden", "rmse"} <= set(notes)
        assert path.read_text().splitlines()[0] == "query,answer,stddev,low,high"


def test_json_also_holds_the_facts_as_plain_values(released, tmp_path):
    out = released["gaussian"]
    record = json.loads(write_answers(out, tmp_path / "a.json", level=0.95).read_text())
    assert (record["epsilon"], record["delta"], record["level"]) == (1.25, 1e-6, 0.95)
    assert record["rho"] == out.plan.rho
    assert record["discloses"] == ["the total number of records"]
    assert record["num_queries"] == len(record["answer"]) == 10


def test_nothing_is_public_under_ordinary_dp(tmp_path):
    out = bf.release(bf.fit("identity:3", "unbounded:3"), [1, 2, 3], rho=0.5)
    assert read_back(write_answers(out, tmp_path / "a.csv", level=0.95))[0]["public"] == "nothing"


def test_a_name_of_the_workload_cannot_forge_what_is_promised(tmp_path):
    workload = bf.workload.from_matrix(np.eye(3), spec='mine\n", "privacy": "perfect')
    out = bf.release(bf.fit(workload, "line:3"), [1, 2, 3], rho=0.5)
    path = write_answers(out, tmp_path / "a.csv", level=0.95)
    assert read_back(path)[0]["privacy"] == out.plan.promise
    assert len(path.read_text().splitlines()) == 4


@pytest.mark.parametrize("suffix", EXACT)
def test_a_lone_surrogate_is_escaped(suffix, tmp_path):
    """A budget is spent by then: a name that no file can hold must not lose the answers."""
    workload = bf.workload.from_matrix(np.eye(2), names=["\ud800", "b"], spec="mine \udfff")
    out = bf.release(bf.fit(workload, "line:2"), [1, 2], rho=0.5)
    notes, columns = read_back(write_answers(out, tmp_path / f"a{suffix}", level=0.95))
    assert columns["query"] == ["\\ud800", "b"]
    assert notes["workload"] == 'custom matrix "mine \\udfff", 2 queries'


def test_a_name_that_a_spreadsheet_takes_for_a_formula_has_an_apostrophe_and_numbers_stay_numbers(tmp_path):
    """Quotes exporting.releases: a name that a spreadsheet would take for a formula has an apostrophe before it."""
    names = ["=1+1", "+1", "-1", "@x", " =1", "\t=1", "\uff1d1", "a=1"]
    out = bf.release(bf.fit(bf.workload.from_matrix(-np.eye(8), names=names), "line:8"), [9] * 8, rho=50.0)
    text = write_answers(out, tmp_path / "a.csv", level=0.95).read_text()
    rows = text.splitlines()[1:]
    written = [next(csv.reader([row]))[0] for row in rows]
    assert written == ["'=1+1", "'+1", "'-1", "'@x", "' =1", r"\x09=1", "'\uff1d1", "a=1"]
    assert [float(next(csv.reader([row]))[1]) for row in rows] == out.answers.tolist()
    assert (out.answers < 0).all()


@pytest.mark.parametrize("suffix", EXACT)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_never_written(released, suffix, bad, tmp_path):
    out = released["gaussian"]
    broken = dataclasses.replace(out, measured=out.measured._replace(estimate=out.estimate * bad))
    for write in (lambda path: write_answers(broken, path, level=0.9), lambda path: write_estimate(broken, path)):
        refusal = pytest.raises(InputError, match="holds a number that is not finite")
        with np.errstate(invalid="ignore"), refusal as caught:
            write(tmp_path / f"a{suffix}")
        assert THREE_PARTS.fullmatch(str(caught.value))
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_is_replaced(released, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")
    write_answers(released["laplace"], path, level=0.9)
    assert path.read_text().startswith("query,answer")
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.csv-metadata.json"]


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("moment", ["write_bytes", "replace"])
@pytest.mark.parametrize("reason", [OSError(28, "No space left on device"), OSError("?"), KeyboardInterrupt()])
def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(old, moment, reason, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    if old is not None:
        path.write_bytes(old)
    write = Path.write_bytes

    def half(self, content):
        write(self, content[:3])
        raise reason

    monkeypatch.setattr(Path, moment, half if moment == "write_bytes" else lambda self, target: half(self, b"xxx"))
    with pytest.raises(InputError if isinstance(reason, OSError) else KeyboardInterrupt) as caught:
        write_file(path, b"new content")
    monkeypatch.undo()
    if isinstance(reason, OSError):
        assert "cannot be written (" in str(caught.value)
        assert THREE_PARTS.fullmatch(str(caught.value))
    assert [file.name for file in tmp_path.iterdir()] == ([] if old is None else ["a.csv"])
    assert old is None or path.read_bytes() == old


KILLED = """
import os, signal, sys
from pathlib import Path
from hdmm_bf.report.export.files import write_file
write = Path.write_bytes
def half(self, content):
    write(self, content[:3])
    os.kill(os.getpid(), signal.SIGKILL)
Path.write_bytes = half
write_file(sys.argv[1], b"new content")
"""


def test_a_writer_that_is_killed_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    process = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    write_file(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.txt", "unknown kind of file '.txt'"),
        ("a.cvs", "Did you mean '.csv'?"),
        ("a", "unknown kind of file ''"),
        ("no/such/a.csv", "is in a folder that cannot be written"),
        ("file/a.csv", "is in a folder that cannot be written"),
        ("folder.csv", "is a folder"),
        ("x" * 300 + ".csv", "cannot be written (File name too long)"),
        ("x" * 251 + ".csv", "cannot be written (File name too long)"),
        ("a\0b.csv", "cannot be written"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_target_that_cannot_be_written_is_refused(name, words, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as caught:
        check_target(tmp_path / name, SUFFIXES)
    assert words in str(caught.value)
    assert THREE_PARTS.fullmatch(str(caught.value))


def test_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("x" * (251 - len("-metadata.json")) + ".csv")
    write_file(check_target(path, SUFFIXES), b"content")
    assert path.read_bytes() == b"content"


@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="needs POSIX users")
def test_a_folder_without_the_right_to_write_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with nobody():
            with pytest.raises(InputError, match="is in a folder that cannot be written"):
                check_target(Path(folder) / "a.csv", SUFFIXES)
            with pytest.raises(InputError, match=r"cannot be written \(Permission denied\)"):
                write_file(Path(folder) / "a.csv", b"x")
        assert os.listdir(folder) == []


def test_parquet_without_pyarrow_is_refused_before_anything_is_spent(released, tmp_path, monkeypatch):
    made = bf.fit("identity:3", "line:3")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for act in (
        lambda: check_target(tmp_path / "a.parquet", SUFFIXES),
        lambda: write_answers(released["laplace"], tmp_path / "a.parquet", level=0.9),
        lambda: write_matrix(made, tmp_path / "a.parquet", kind="parquet"),
    ):
        with pytest.raises(InputError, match=r"needs the package pyarrow\. Install it with"):
            act()
    check_target(tmp_path / "a.csv", SUFFIXES)
    assert list(tmp_path.iterdir()) == []


def test_excel_without_openpyxl_is_refused_before_anything_is_spent(released, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    for act in (
        lambda: check_target(tmp_path / "a.xlsx", SUFFIXES),
        lambda: write_answers(released["laplace"], tmp_path / "a.xlsx", level=0.9),
    ):
        with pytest.raises(InputError, match=r"needs the package openpyxl\. Install it with"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_more_queries_than_a_sheet_has_rows_are_refused():
    with pytest.raises(InputError, match=r"a sheet holds 1048575 rows, and a table has 2096128 queries"):
        check_rows("a.xlsx", bf.workload.all_range(2047))
    check_rows("a.xlsx", bf.workload.all_range(1000))
