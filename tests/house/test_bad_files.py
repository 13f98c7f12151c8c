"""Bad matrix files, numbers that overflow and sizes that do not fit: refused in one sentence, before anything grows."""

import json
import os
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError, readable_bytes
from hdmm_bf.problem import transform
from hdmm_bf.problem.sensitivity import edge_norms, sensitivity
from tests.support.array_files import npy, saved, zipped
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


def mtx(kind, *lines):
    return "\n".join([f"%%MatrixMarket matrix {kind} general", *lines, ""]).encode()


MATRIX = saved(np.save, np.eye(3))
OBJECTS = saved(np.save, np.array([[None]]), allow_pickle=True)
CSR = {"format": np.array(b"csr"), "shape": np.array([1, 3]), "data": np.ones(1), "indptr": np.array([0, 1])}
AGAIN = "Write the file again."


@pytest.mark.parametrize(
    ("name", "content", "seen", "advice"),
    [
        ("zero.npy", b"", "zero.npy", "Write it again; an interrupted export leaves such files."),
        ("junk.npy", b"junk", "junk.npy", AGAIN),
        ("cut.npy", MATRIX[:-1], "cut.npy", AGAIN),
        ("header.npy", MATRIX[:20], "header.npy", AGAIN),
        ("objects.npy", OBJECTS, "objects.npy", AGAIN),
        ("promise.npy", npy((10**7, 10**8)) + bytes(8), "promise.npy", AGAIN),
        ("vector.npy", saved(np.save, np.ones(3)), "1 dimensions", "Write a single query as [[...]]."),
        ("nan.npy", saved(np.save, np.array([[1, np.nan]])), "W[0, 1]=nan", FINITE),
        ("words.npy", saved(np.save, np.array([["a"]])), "<U1", "Convert it to float64 first."),
        ("none.npy", saved(np.save, np.ones((0, 3))), "0 x 3", "Give at least one query and one cell."),
        ("junk.npz", b"junk", "junk.npz", AGAIN),
        ("cut.npz", saved(np.savez, np.eye(3))[:-9], "cut.npz", AGAIN),
        ("objects.npz", zipped(W=OBJECTS), "objects.npz", AGAIN),
        (
            "two.npz",
            zipped(W=MATRIX, V=MATRIX),
            "holds 2 arrays (W, V)",
            "Save one matrix, or use scipy.sparse.save_npz.",
        ),
        ("none.npz", zipped(), "holds 0 arrays", "Save one matrix"),
        ("inf.npz", saved(sp.save_npz, sp.csr_array([[0, np.inf]])), "=inf", FINITE),
        ("data.npz", saved(np.savez, format=b"csr", shape=[2, 2]), "data.npz", AGAIN),
        ("format.npz", saved(np.savez, format=b"zork", shape=[2, 2]), "zork", AGAIN),
        ("junk.mtx", b"junk", "junk.mtx", AGAIN),
        ("cut.mtx", mtx("array real", "2 2", "1.0"), "cut.mtx", AGAIN),
        ("outside.mtx", mtx("coordinate real", "2 2 1", "5 5 1.0"), "outside.mtx", AGAIN),
        ("complex.mtx", mtx("coordinate complex", "2 2 1", "1 1 1 2"), "complex128", "Convert it to float64 first."),
        ("inf.mtx", mtx("coordinate real", "2 2 1", "1 1 1e999"), "=inf", FINITE),
        ("zero.csv", b"", "zero.csv", "Write it again"),
        ("header.csv", b"a,b\n", "header.csv", "Write one query a line, one number a cell."),
        ("ragged.csv", b"a,b\n1,2\n3\n", "ragged.csv, line 3", "Give every query one number for each cell."),
        ("wide.csv", b"1,2\n3,4,5\n", "has 3 columns", "Give every query one number for each cell."),
        ("word.csv", b"1,2\n1,x\n", "line 2, column 2: 'x'", "Write 0 for cells a query leaves out."),
        ("python.csv", b"1,2\n1_0,2\n", "line 2, column 1: '1_0'", "Write 0 for cells a query leaves out."),
        (
            "semicolon.csv",
            b"1;2\n3;4\n",
            "semicolon.csv, line 1",
            "Write commas between fields, and points in decimals.",
        ),
        ("names;.csv", b"a;b\n3;4\n", "semicolons between its fields", "Write commas between fields"),
        ("comma.csv", b"0,5;1,5\n", "semicolons between its fields", "Write commas between fields, and points"),
        ("tab.csv", b"1\t2\n", "tabs between its fields", "Write commas between fields"),
        ("quoted.csv", b'1,"0,5"\n', "column 2: '0,5'", "Write a point in decimals: 0.5."),
        ("some.csv", b"total,1,1\n1,0,0\n", "line 1, column 1: 'total'", "Write 0 for cells a query leaves out."),
        ("hole.csv", b"1,\n", "line 1, column 2: ''", "Write 0 for cells a query leaves out."),
        ("nan.csv", b"1,2\nnan,1\n", "W[1, 0]=nan", FINITE),
        ("latin.csv", b"1,2\n\xe9,1\n", "byte 0xe9 at offset 4", "Save the file as UTF-8."),
        ("large.csv", b"1" + b",1" * 25_000 + b"\n1" * 25_000, "4.7 GB", "Use a sparse format (.npz, .mtx)"),
        ("matrix.txt", b"1", "matrix.txt", "Did you mean '.mtx'?"),
        ("zip.npy", zipped(W=MATRIX), "zip.npy", ""),
        ("token.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "token.npy", ""),
        ("indent.npy", b"\x93NUMPY\x01\x00\x10\x00    x\n  y\n z\n\n  ", "indent.npy", ""),
        ("lil.npz", saved(np.savez, format=b"lil", shape=[2, 2]), "lil.npz", ""),
        ("number.npz", saved(np.savez, format=5, shape=[2, 2]), "number.npz", ""),
        ("half.npz", saved(np.savez, **CSR | {"shape": [1.5, 3], "indices": [0]}), "half.npz", ""),
        ("digits.mtx", mtx("coordinate integer", "2 2 1", f"1 1 {10**30}"), "digits.mtx", ""),
        ("shape.mtx", mtx("array real", f"{10**30} 2", "1.0"), "shape.mtx", ""),
        ("field.csv", b"1,2\n1," + b"1" * 200_000, "field.csv", ""),
    ],
    ids=only_text,
)
def test_a_bad_matrix_file_is_refused(name, content, seen, advice, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert_refused(lambda: workload.read(tmp_path / name), seen, advice)
    with pytest.raises(InputError, match=re.escape(name)):  # whatever else it says, it says which file
        workload.read(tmp_path / name)


@pytest.mark.parametrize("name", ["W.npy", "W.npz", "W.csv", "W.mtx", "no/such/W"])
def test_a_missing_matrix_file_is_refused(name, tmp_path):
    assert_refused(lambda: workload.parse(str(tmp_path / name)), name, "Check the path")


@pytest.mark.parametrize(
    ("parse", "text", "kind", "advice"),
    [
        (policy.parse, "G.cvs", ".cvs", "Did you mean '.csv'?"),
        (policy.parse, "graph.graphmll", ".graphmll", "Did you mean '.graphml'?"),
        (policy.parse, "G.jsn:64", ".jsn", "Did you mean '.json'?"),
        (policy.parse, "G.Cvs", ".Cvs", "Did you mean '.csv'?"),
        (policy.parse, "my.graph.zzz", ".zzz", "Known: .csv, .geojson, .graphml, .json."),
        (workload.parse, "W.cvs", ".cvs", "Did you mean '.csv'?"),
        (workload.parse, " W.nzp", ".nzp", "Did you mean '.npz'?"),
        (workload.parse, "W.mxt", ".mxt", "Did you mean '.mtx'?"),
        (bf.fit, "W.npyy", ".npyy", "Did you mean '.npy'?"),
    ],
    ids=only_text,
)
def test_a_mistyped_suffix_is_answered_as_a_file(parse, text, kind, advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    act = (lambda: bf.fit(text, "line:3")) if parse is bf.fit else lambda: parse(text)
    looks = f"looks like a file, of the unknown kind '{kind}'"
    assert_refused(act, f"{text!r}): {looks}, and there is no such file. {advice}")
    (tmp_path / text.strip().split(":")[0]).write_text("0,1\n")
    assert_refused(act, f"{text!r}): {looks}. {advice}")


@pytest.mark.parametrize("text", ["line.64", "lin:64", "line.3x3", "G."])
def test_a_mistyped_name_is_not_taken_for_a_file(text):
    assert_refused(lambda: policy.parse(text), "unknown policy")
    assert_refused(lambda: workload.parse(text), "unknown workload")


def test_a_matrix_file_that_would_grow_beyond_the_memory_limit_is_refused(tmp_path):
    header = npy((1, 600_000_000), "|u1")
    with (tmp_path / "W.npy").open("wb") as file:  # a sparse file: takes no room on the disk
        file.write(header)
        file.truncate(len(header) + 600_000_000)
    assert_refused(lambda: workload.read(tmp_path / "W.npy"), "4.5 GB", "Use a sparse format (.npz, .mtx)")


def test_an_archive_that_would_unpack_beyond_the_memory_limit_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "W.npz", "w") as archive:
        archive.writestr("W.npy", MATRIX)
        archive.infolist()[0].file_size = 5 * 2**30
    assert_refused(lambda: workload.read(tmp_path / "W.npz"), "5.0 GB", "Use a sparse format (.npz, .mtx)")


# Transformation and sensitivity


@table(
    (lambda: bf.Problem(workload.identity(3), policy.line(4)), "identity:3 with 3 columns", "on the same domain"),
    (lambda: transform.to_edges(problem(3), np.ones(4)), "(4,)", "Give one number for each cell."),
    (lambda: transform.to_edges(problem(3), np.ones((3, 1))), "(3, 1)", "Give one number for each cell."),
    (lambda: transform.to_edges(problem(3), np.full(3, 2**62)), str(3 * 2**62), "cannot be handled exactly"),
    (lambda: sensitivity(np.ones((1, 4)), policy.line(3), norm="L1"), "4 columns", "in row-major order"),
    (lambda: sensitivity(workload.identity(4), policy.line(3), norm="L2"), "4 columns", "in row-major order"),
    (lambda: sensitivity(sp.eye_array(2), policy.line(3), norm="L2"), "2 columns", "in row-major order"),
    (lambda: sensitivity(np.eye(3), policy.line(3), norm="L3"), "norm='L3'", "L1 for Laplace, L2 for Gaussian"),
    (lambda: edge_norms(np.eye(3), policy.empty(3), norm="l2"), "norm='l2'", "L1 for Laplace, L2 for Gaussian"),
)
def test_a_workload_that_does_not_fit_the_policy_is_refused(case):
    assert_refused(*case)


@table(
    (lambda: sensitivity(np.array([[np.nan, 0, 1]]), policy.line(3), norm="L2"), "nan"),
    (lambda: sensitivity(np.array([[np.inf, 0, 1]]), policy.line(3), norm="L1"), "inf"),
    (lambda: sensitivity(sp.csr_array([[np.nan, 0, 1]]), policy.line(3), norm="L2"), "nan"),
    (lambda: sensitivity(np.array([[1j, 0, 1]]), policy.line(3), norm="L2"), "complex128"),
    (lambda: sensitivity(np.array([["a", "b", "c"]]), policy.line(3), norm="L2"), "<U1"),
    (lambda: sensitivity(np.ones((1, 1, 3)), policy.line(3), norm="L2"), "3 dimensions"),
    (lambda: sensitivity(np.array([[1.7e308, -1.7e308]]), policy.line(2), norm="L2"), "nan"),
    (lambda: sensitivity(np.full((2, 1), 1.7e308), policy.unbounded(1), norm="L1"), "inf"),
    (lambda: transform.to_edges(problem(3), np.array([1, np.nan, 1])), "nan"),
)
def test_numbers_that_are_not_real_and_finite_are_refused(case):
    assert_refused(*case)


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
@pytest.mark.parametrize(("entry", "other"), [(2**32, 0), (3 * 2**31, 0), (2**62, -(2**62))])
@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_sensitivity_of_large_integers_does_not_overflow(make, entry, other, norm):
    assert sensitivity(make([[entry, other]]), policy.line(2), norm=norm) == pytest.approx(entry - other)


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
@pytest.mark.parametrize("entry", [5e-324, 1e-200, 1e-160, 1e160, 1e300])
def test_sensitivity_of_extreme_entries_does_not_vanish_or_overflow(make, entry):
    assert sensitivity(make([[entry, 0.0]]), policy.line(2), norm="L2") == pytest.approx(entry, rel=1e-12, abs=0)


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.int32, np.int64])
def test_public_totals_do_not_overflow_in_a_small_integer_type(kind):
    counts = np.full(3, 1 if kind is bool else np.iinfo(kind).max // 2, dtype=kind)
    if kind is np.int64:
        counts //= 2
    total = transform.ground(policy.line(3)).totals(counts)
    assert [int(t) for t in total] == [sum(int(c) for c in counts)]


@pytest.mark.parametrize("spec", ["prefix:4", "all-range:4", "random-range:4:5", "identity:4", "marginals:2x2:1"])
@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int8])
def test_products_with_small_or_unsigned_counts_are_exact(spec, kind):
    W = workload.parse(spec).matrix
    cells, queries = np.full(W.shape[1], 100, dtype=kind), np.full(W.shape[0], 100, dtype=kind)
    assert np.array_equal(W.mv(cells), W.dense() @ cells.astype(float))
    assert np.array_equal(W.rmv(queries), W.dense().T @ queries.astype(float))


# Sizes that no machine has: refused before anything is allocated, with the memory they would need


@table(
    (lambda: policy.parse("bounded:1000000"), "7.3 TB", SMALLER),
    (lambda: policy.parse("line:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("threshold:10000000000000:1"), "145.5 TB", SMALLER),
    (lambda: policy.parse("cycle:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("star-tree:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("unbounded:10000000000000"), "145.5 TB", SMALLER),
    (lambda: policy.parse("bounded:100000x100000"), "693.9 EB", SMALLER),
    (lambda: policy.parse("threshold:1000000x1000000:1").edges, "29.1 TB", SMALLER),
    (lambda: policy.parse("sensitive:1000000x1000000x2:2").components, "14.6 TB", SMALLER),
    (lambda: workload.all_range(100_000).matrix.dense(), "3.6 PB", IMPLICIT),
    (lambda: workload.all_range(100_000).matrix.sparse(), "2.4 PB", IMPLICIT),
    (lambda: workload.identity(10**10).gram, "693.9 EB", "Use a smaller or a structured domain."),
    (lambda: workload.parse("all-range:1000x1000x1000").gram, "6.9 EB", "Use a smaller or a structured domain."),
    (lambda: workload.all_range(10**6).names(), "36.4 TB", "Use name(i) for the ones you need."),
    (
        lambda: bf.Problem(workload.all_range(3000), policy.bounded(3000)).W_G(),
        "147.3 TB",
        "Work with the Gram matrix `gram` and with `P`.",
    ),
    (lambda: policy.parse("bounded:" + "9" * 200), "9" * 200, SMALLER),
)
def test_a_giant_size_is_refused_with_the_memory_it_would_need(case):
    assert_refused(*case)


CHILD = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
import numpy as np
import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.problem.sensitivity import sensitivity
try:
    {mistake}
except bf.InputError as error:
    print("refused:", error)
"""


def run_in_a_child(mistake):
    """Run a statement that may hang, crash or fill the memory, with 8 GB and 30 seconds; return what it printed."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(mistake=mistake)],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    return child.stdout + child.stderr[-300:]


@pytest.mark.parametrize(
    "mistake",
    [
        "policy.parse('threshold:10000000000000:10000000000000')",
        "policy.parse('threshold:100000000000000000000:2')",
        "policy.parse('h-theta:10000000000000:4')",
        "policy.parse('empty:10000000000000').components",
        "workload.parse('random-range:64:1000000000000000')",
        "workload.all_range(100_000).matrix.mv(np.ones(100_000))",
        "sensitivity(workload.all_range(100_000), policy.line(100_000), norm='L2')",
        "workload.parse('marginals:' + 'x'.join('2' * 40) + ':all')",
    ],
)
def test_a_giant_computation_is_refused_before_it_starts(mistake):
    printed = run_in_a_child(mistake)
    assert printed.startswith("refused:"), printed
    assert re.search(r"would need [\d.e+]+ [KMGTPE]B of memory", printed)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("promise.npz", zipped(W=npy((10**7, 10**8)) + bytes(8))),
        ("rows.npz", saved(sp.save_npz, sp.coo_array(([1.0], ([0], [0])), shape=(10**14, 10)))),
        ("rows.mtx", mtx("coordinate real", f"{10**14} 10 1", "1 1 1.0")),
        ("entries.mtx", mtx("coordinate real", f"2 2 {10**14}", "1 1 1.0")),
        ("dense.mtx", mtx("array real", f"{10**7} {10**8}", "1.0")),
    ],
    ids=only_text,
)
def test_a_small_file_that_promises_a_giant_matrix_is_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    printed = run_in_a_child(f"workload.read({str(tmp_path / name)!r})")
    assert printed.startswith("refused:"), printed
    assert name in printed


@pytest.mark.parametrize("column", [50_000_000, -7])
def test_a_sparse_file_with_entries_outside_the_matrix_is_refused(column, tmp_path):
    np.savez(tmp_path / "W.npz", **CSR, indices=np.array([column]))
    mistake = f"workload.read({str(tmp_path / 'W.npz')!r}).matrix.mv(np.ones(3))"  # reads outside the vector
    printed = run_in_a_child(mistake)
    assert printed.startswith("refused:"), printed
    assert "W.npz" in printed


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KB"), (600 * 2**20, "600.0 MB"), (4 * 2**30, "4.0 GB")],
)
def test_sizes_are_written_in_the_largest_unit_they_reach(num_bytes, text):
    assert readable_bytes(num_bytes) == text


def test_a_message_from_a_bad_json_file_does_not_speak_python(tmp_path):
    (tmp_path / "G.json").write_text(json.dumps([1]))
    with pytest.raises(InputError) as caught:
        policy.read(tmp_path / "G.json")
    assert "object has no attribute" not in str(caught.value)
