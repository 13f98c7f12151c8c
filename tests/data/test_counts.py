"""Histograms from files: both forms of CSV, .npy, and refusals that never show a count."""

import re
import struct

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.data.checked import checked_counts
from hdmm_bf.data.counts import read_counts
from hdmm_bf.domain import Domain
from tests.support.array_files import npy, saved
from tests.support.mistakes import PEOPLE, THREE_PARTS, _as_users_run_it, only_text  # noqa: F401

SECRET = 987654321
"""A count that no message may show."""

COUNTS = [[3, 1, 4], [1, 5, 9]]
FLAT = [3, 1, 4, 1, 5, 9]


def problem():
    return bf.Problem(bf.workload.identity(PEOPLE), bf.policy.bounded(PEOPLE))


def counts_of(path):
    return checked_counts(problem(), read_counts(path, PEOPLE))


def header(text):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("flat.npy", saved(np.save, np.array(FLAT))),
        ("table.npy", saved(np.save, np.array(COUNTS))),
        ("fortran.npy", saved(np.save, np.asfortranarray(COUNTS))),
        ("small.npy", saved(np.save, np.array(COUNTS, dtype=np.uint8))),
        ("big-endian.npy", saved(np.save, np.array(COUNTS, dtype=">i4"))),
        ("whole-floats.npy", saved(np.save, np.array(COUNTS, dtype=np.float32))),
        ("version-2.npy", b"\x93NUMPY\x02\x00" + npy((6,), "<i8")[8:10] + b"\0\0" + npy((6,), "<i8")[10:] + bytes(48)),
        ("python-2.npy", header("{'descr': '<i8', 'fortran_order': False, 'shape': (6L,), }") + bytes(48)),
        ("UPPER.NPY", saved(np.save, np.array(FLAT))),
        ("column.csv", b"3\n1\n4\n1\n5\n9\n"),
        ("row.csv", b"3,1,4,1,5,9"),
        ("table.csv", b"3,1,4\n1,5,9\n"),
        ("named.csv", b"young,old,older\n3,1,4\n1,5,9\n"),
        ("blanks.csv", b"\xef\xbb\xbf 3 , 1,4\r\n\r\n1,5 ,9\r\n"),
        ("cells.csv", b"cell,count\n5,9\n0,3\n1,1\n2,4\n3,1\n4,5\n"),
        ("turned.csv", b" count , cell \n9,5\n3,0\n1,1\n4,2\n1,3\n5,4\n"),
        ("values.csv", b"sex,age,count\nF,0,3\nF,1,1\nF,2,4\nM,0,1\nM,1,5\nM,2,9\n"),
        ("extra.csv", b'note,age,sex,count\n"a, b",0,F,3\n,1,F,1\n,2,F,4\n,0,M,1\n,1,M,5\n,2,M,9\n'),
    ],
    ids=only_text,
)
def test_every_form_of_a_histogram_is_read(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    found = counts_of(tmp_path / name)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.zeros(6) if "version" in name or "python" in name else FLAT)


@pytest.mark.parametrize(
    ("content", "problem", "zeros"),
    [
        ("sex,age,count\nM,2,7\n", "has no line for sex=F, age=0 and 4 more", [0, 0, 0, 0, 0, 7]),
        ("cell,count\n0,1\n1,1\n2,1\n3,1\n5,1\n", "has no line for sex=M, age=1. Add", [1, 1, 1, 1, 0, 1]),
        ("cell,count\n", "has no line for sex=F, age=0 and 5 more", [0] * 6),
    ],
)
def test_a_list_that_leaves_cells_out_is_refused_unless_they_are_said_to_be_empty(content, problem, zeros, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(problem)) as refused:
        counts_of(path)
    assert "--missing zero" in str(refused.value)
    assert read_counts(path, PEOPLE, missing="zero").tolist() == zeros


def test_semicolons_and_tabs_between_fields_are_named(tmp_path):
    for content, mark in [("cell;count\n0;1\n", "semicolons"), ("3\t1\t4\n1\t5\t9\n", "tabs")]:
        (tmp_path / "x.csv").write_text(content)
        with pytest.raises(InputError, match=f"line 1.*has {mark} between its fields. Write commas"):
            counts_of(tmp_path / "x.csv")


def test_labels_may_hold_semicolons(tmp_path):
    domain = Domain((2,), ("age",), (("18;25", "26;99"),))
    (tmp_path / "x.csv").write_text("age,count\n18;25,4\n26;99,2\n")
    assert read_counts(tmp_path / "x.csv", domain).tolist() == [4, 2]


def test_the_largest_count_is_2_to_the_53(tmp_path):
    (tmp_path / "x.csv").write_text(f"{2**53},0,0,0,0,0\n")
    assert counts_of(tmp_path / "x.csv")[0] == 2**53
    np.save(tmp_path / "x.npy", np.array([2**53, 0, 0, 0, 0, 0]))
    assert counts_of(tmp_path / "x.npy")[0] == 2**53


def test_labels_with_commas_and_quotes_are_found(tmp_path):
    domain = Domain((2,), ("city",), (('Bath, "Somerset"', "Ely"),))
    (tmp_path / "x.csv").write_text('city,count\n"Bath, ""Somerset""",4\nEly,2\n')
    assert read_counts(tmp_path / "x.csv", domain).tolist() == [4, 2]


S = str(SECRET).encode()
BAD = {
    "zero.csv": (b"", "the file is empty"),
    "zero.npy": (b"", "the file is empty"),
    "counts.txt": (S, "unknown kind of file '.txt'"),
    "counts.cvs": (S, "Did you mean '.csv'?"),
    "counts": (S, "unknown kind of file ''"),
    "short.csv": (b"3,1\n" + S, "holds 3 numbers, the domain 2x3 has 6 cells"),
    "long.csv": (b"3,1,4\n1,5,9\n" + S, "holds 7 numbers"),
    "header.csv": (b"young,old,older\n", "holds 0 numbers"),
    "negative.csv": (b"3,1,4\n1,5,-" + S, "line 2): holds something that is no count"),
    "half.csv": (b"3,1,4\n1,5," + S + b".5", "line 2): holds something that is no count"),
    "float.csv": (S + b".0\n3,1,4\n1,5,9", "line 1): holds something that is no count"),
    "nan.csv": (b"3,1,4\nnan,5," + S, "line 2): holds something that is no count"),
    "word.csv": (b"3,1,4\n1,x" + S + b",5", "line 2): holds something that is no count"),
    "python.csv": (b"3,1,4\n1,9_87654321,5", "line 2): holds something that is no count"),
    "arabic.csv": ("3,1,4\n1,\u0663,987654321".encode(), "line 2): holds something that is no count"),
    "hole.csv": (b"3,1,4\n1,," + S, "line 2): holds something that is no count"),
    "large.csv": (b"3,1,4\n1,1,9007199254740993", "line 2): holds something that is no count"),
    "endless.csv": (b"3,1,4\n1,1," + b"9" * 2000, "line 2): holds something that is no count"),
    "latin.csv": (b"3,1,4\n1,5,\xe9" + S, "not UTF-8"),
    "field.csv": (b"3,1," + b"1" * 200_000, "not readable as CSV"),
    "columns.csv": (b"cell,count\n0," + S + b",1\n", "line 2): has not 2 columns"),
    "few.csv": (b"cell,count\n0," + S + b"\n1\n", "line 3): has not 2 columns"),
    "twice.csv": (b"cell,count\n0," + S + b"\n0,1\n", "line 3): names a cell for the second time"),
    "far.csv": (b"cell,count\n6," + S + b"\n", "line 2): names no cell of the domain 2x3"),
    "before.csv": (b"cell,count\n-1," + S + b"\n", "line 2): names no cell of the domain"),
    "float cell.csv": (b"cell,count\n1.0," + S + b"\n", "line 2): names no cell of the domain"),
    "label.csv": (b"sex,age,count\nX,1," + S + b"\n", "line 2): names no cell of the domain"),
    "number.csv": (b"sex,age,count\nF,3," + S + b"\n", "line 2): names no cell of the domain"),
    "list count.csv": (b"cell,count\n0,-" + S + b"\n", "line 2): holds something that is no count"),
    "no age.csv": (b"sex,count\nF," + S + b"\n", "line 1): does not name each needed column once"),
    "two counts.csv": (b"cell,count,count\n0,1," + S + b"\n", "line 1): does not name each needed column once"),
    "two cells.csv": (b"cell,cell,count\n0,1," + S + b"\n", "line 1): does not name each needed column once"),
    "junk.npy": (b"junk" + S, "not readable as .npy"),
    "cut.npy": (saved(np.save, np.full(6, SECRET))[:-1], "not readable as .npy"),
    "magic.npy": (b"\x93NUMPY", "not readable as .npy"),
    "head.npy": (b"\x93NUMPY\x01\x00\xff", "not readable as .npy"),
    "objects.npy": (saved(np.save, np.array([SECRET, {}], dtype=object), allow_pickle=True), "not readable as .npy"),
    "nested.npy": (header("-" * 9000 + "1"), "not readable as .npy"),
    "parentheses.npy": (header("(" * 9000), "not readable as .npy"),
    "negative shape.npy": (npy((-6,), "<i8") + bytes(48), "not readable as .npy"),
    "promise.npy": (npy((10**12,), "<i8") + bytes(48), "not readable as .npy"),
    "nothing.npy": (npy((10**12,), "S0") + bytes(48), "would need 7.3 TB"),
    "zip.npy": (b"PK\x03\x04" + S, "not readable as .npy"),
    "shape.npy": (saved(np.save, np.full(5, SECRET)), "counts of shape (5,)"),
    "turned.npy": (saved(np.save, np.full((3, 2), SECRET)), "counts of shape (3, 2)"),
    "scalar.npy": (saved(np.save, np.array(SECRET)), "counts of shape ()"),
    "text.npy": (saved(np.save, np.full(6, str(SECRET))), "counts of type <U9"),
    "bytes.npy": (saved(np.save, np.full(6, S)), "counts of type |S9"),
    "dates.npy": (saved(np.save, np.full(6, SECRET, dtype="M8[s]")), "counts of type datetime64"),
    "complex.npy": (saved(np.save, np.full(6, SECRET + 0j)), "counts of type complex128"),
    "records.npy": (saved(np.save, np.zeros(6, dtype=[("a", "i4")])), "counts of type"),
    "below.npy": (saved(np.save, np.array([1, 1, 1, 1, 1, -SECRET])), "negative or too large"),
    "above.npy": (saved(np.save, np.array([1, 1, 1, 1, 1, 2**63 + SECRET], dtype=np.uint64)), "negative or too large"),
    "fraction.npy": (saved(np.save, np.full(6, SECRET + 0.5)), "not whole"),
    "nan.npy": (saved(np.save, np.array([SECRET, 0, 0, 0, 0, np.nan])), "not whole"),
    "inf.npy": (saved(np.save, np.array([SECRET, 0, 0, 0, 0, np.inf])), "not whole"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_histogram_is_refused_without_a_count(name, tmp_path):
    content, words = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        counts_of(tmp_path / name)
    message = str(caught.value)
    assert words in message
    assert THREE_PARTS.fullmatch(message), message
    assert message.isprintable()
    for start in range(len(str(SECRET)) - 3):
        assert str(SECRET)[start : start + 4] not in message.replace(str(tmp_path), ""), "a count is in the message"


def test_a_missing_file_or_a_folder_is_refused(tmp_path):
    for name in ("nothing.csv", "nothing.npy", "", "x" * 300 + ".csv"):
        with pytest.raises(InputError, match="no such file|cannot be opened"):
            read_counts(tmp_path / name, PEOPLE)


def test_a_domain_too_large_for_a_histogram_is_refused_before_the_file_is_read(tmp_path):
    (tmp_path / "x.csv").write_text("cell,count\n0,1\n")
    with pytest.raises(InputError, match=re.escape("domain 100000x100000")):
        read_counts(tmp_path / "x.csv", Domain((10**5, 10**5)))


def test_a_total_beyond_64_bits_is_refused():
    wide = bf.Problem(bf.workload.identity(1024), bf.policy.line(1024))
    with pytest.raises(InputError, match="total that does not fit in 64 bits") as caught:
        checked_counts(wide, np.full(1024, 2**53))
    assert str(2**53) not in str(caught.value)
