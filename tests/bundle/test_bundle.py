"""Bundles: written whole, read back exactly, refused when touched; exports that bring back every bit."""

import csv
import dataclasses
import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf import bundle, workload
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import disagreements
from hdmm_bf.domain import Domain
from hdmm_bf.fit import loading
from hdmm_bf.report.export import write_matrix
from hdmm_bf.report.export.matrices import FORMATS

FILES = ["manifest.json", "strategy.npz", "policy.npz", "certificate.json"]


@pytest.fixture(scope="module")
def made():
    return bf.fit("all-range:10", "threshold:10:2")


def same(a, b):
    return (
        np.array_equal(a.strategy.integers, b.strategy.integers)
        and np.array_equal(a.weights, b.weights)
        and not disagreements(a.certificate.as_dict(), b.certificate)
        and np.array_equal(a.problem.policy.edges, b.problem.policy.edges)
        and np.allclose(a.problem.gram, b.problem.gram, rtol=1e-13)
    )


def test_a_saved_fit_loads_as_it_was(made, tmp_path):
    path = made.save(tmp_path / "ranges.bf")
    assert sorted(os.listdir(path)) == sorted(FILES)
    loaded = bf.load(path)
    assert same(made, loaded)
    quick, slow = made.summary(), loaded.summary()
    del quick["seconds"], slow["seconds"]
    assert quick == slow


@pytest.mark.parametrize(
    "W",
    [
        np.array([[0.1, -2.0, 3.0], [1e-8, 0.0, 1e8]]),
        sp.csr_array(np.array([[0.0, 1.0, 0.0], [2.5, 0.0, 0.0]])),
        workload.union(workload.weighted(workload.prefix(3), 0.3), workload.identity(3)),
        workload.random_range(3, 5, seed=1),
    ],
    ids=["dense", "sparse", "union", "implicit"],
)
def test_custom_workloads_travel_in_the_bundle(W, tmp_path):
    fit = bf.fit(W, "line:3")
    assert same(fit, bf.load(fit.save(tmp_path / "custom.bf")))


def test_labels_and_file_policies_travel_in_the_bundle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "G.csv").write_text("0,1\n1,_\n")
    people = Domain((2,), names=("sex",), labels=(("F", "M"),))
    fit = bf.fit(workload.identity(people), bf.policy.read("G.csv", domain=people))
    loaded = bf.load(fit.save("people.bf"))
    assert loaded.problem.policy.domain == people
    assert loaded.problem.policy.edges.tolist() == [[0, 1], [1, -1]]


@pytest.mark.parametrize("name", FILES)
def test_a_changed_cut_or_missing_file_is_named(made, tmp_path, name):
    """Quotes bundle.read: a file edited, truncated, missing or taken from another bundle is refused, naming it."""
    for i, damage in enumerate(["append", "cut", "remove"]):
        path = made.save(tmp_path / f"{i}.bf")
        target = path / name
        if damage == "append":
            target.write_bytes(target.read_bytes() + b"x")
        elif damage == "cut":
            target.write_bytes(target.read_bytes()[:-9])
        else:
            target.unlink()
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            bf.load(path)


def test_files_of_two_bundles_do_not_mix(made, tmp_path):
    first = made.save(tmp_path / "first.bf")
    second = bf.fit("all-range:10", "threshold:10:3").save(tmp_path / "second.bf")
    for name in FILES[1:]:
        kept = (first / name).read_bytes()
        (first / name).write_bytes((second / name).read_bytes())
        with pytest.raises(InputError, match=rf"{name} was changed, cut short or taken from another"):
            bf.load(first)
        (first / name).write_bytes(kept)
    assert same(made, bf.load(first))


def forge(path, change):
    """Edit a bundle and repair the checksums, as somebody who wants to cheat would."""
    import hashlib

    manifest = json.loads((path / "manifest.json").read_text())
    change(path, manifest)
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


def edit_certificate(**claims):
    def change(path, manifest):
        record = json.loads((path / "certificate.json").read_text())
        (path / "certificate.json").write_text(json.dumps({**record, **claims}))
        manifest.update({k: v for k, v in claims.items() if k in manifest})

    return change


def edit_strategy(path, manifest):
    arrays = dict(np.load(path / "strategy.npz"))
    arrays["integers"] = arrays["integers"] * 2
    np.savez(path / "strategy.npz", **arrays)


def edit_policy(path, manifest):
    np.savez(path / "policy.npz", edges=bf.policy.line(10).edges)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit_certificate(unit_error=1.0), "unit_error"),
        (edit_certificate(lower_bound=1e9), "lower_bound"),
        (edit_certificate(sensitivity_exact="7"), "sensitivity_exact"),
        (edit_strategy, "sensitivity"),
        (edit_policy, "edges"),
    ],
)
def test_a_forged_bundle_with_right_checksums_is_found_out(made, tmp_path, change, words):
    path = made.save(tmp_path / "forged.bf")
    forge(path, change)
    with pytest.raises(InputError, match=words):
        bf.load(path)


def test_check_lists_every_disagreement(made, tmp_path):
    path = made.save(tmp_path / "forged.bf")
    forge(path, edit_certificate(unit_error=1.0, gap=0.5))
    _, found = loading.check(path)
    assert len([item for item in found if "unit_error" in item or "gap" in item]) >= 4


def test_another_schema_is_refused(made, tmp_path):
    path = made.save(tmp_path / "old.bf")
    forge(path, lambda path, manifest: manifest.update(schema=99))
    with pytest.raises(InputError, match="schema 99"):
        bf.load(path)


def test_only_bundles_are_replaced(made, tmp_path):
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"is not a bundle.*only a bundle is ever replaced"):
        made.save(folder)
    assert (folder / "thesis.tex").read_text() == "x"
    path = made.save(tmp_path / "again.bf")
    bf.fit("prefix:10", "line:10").save(path)
    assert bf.load(path).problem.workload.spec == "prefix:10"
    assert sorted(os.listdir(tmp_path)) == ["again.bf", "precious"]


def test_a_failed_write_leaves_the_old_bundle(made, tmp_path, monkeypatch):
    path = made.save(tmp_path / "kept.bf")

    def fail(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(InputError, match="No space left"):
        made.save(path)
    monkeypatch.undo()
    assert same(made, bf.load(path))
    assert os.listdir(tmp_path) == ["kept.bf"]


def test_what_is_not_a_bundle_is_refused(tmp_path):
    for path, words in ((tmp_path, "is not a bundle"), (tmp_path / "nothing.bf", "there is no such folder")):
        with pytest.raises(InputError, match=words):
            bundle.read(path)


def read_back(path, kind):
    if kind == "npz":
        return np.load(path)["strategy"]
    if kind == "json":
        return np.array(json.loads(path.read_text())["strategy"])
    if kind == "mtx":
        return scipy.io.mmread(path, spmatrix=False).toarray()
    if kind == "parquet":
        return np.column_stack([column.to_numpy() for column in pq.read_table(path).columns])
    assert kind == "csv", "another format needs another reader"
    return np.array([[float(v) for v in row] for row in csv.reader(path.read_text().splitlines())])


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_brings_back_the_same_numbers(made, tmp_path, kind):
    """Quotes write_matrix: Every format brings back the same numbers, bit by bit."""
    path = write_matrix(made, tmp_path / f"strategy.{kind}", kind=kind)
    np.testing.assert_array_equal(read_back(path, kind), made.strategy.matrix())
    assert os.listdir(tmp_path) == [path.name]


def test_npz_and_json_hold_what_a_stranger_needs(made, tmp_path):
    arrays = np.load(write_matrix(made, tmp_path / "s.npz", kind="npz"))
    record = json.loads(write_matrix(made, tmp_path / "s.json", kind="json").read_text())
    for held in (arrays, record):
        A, edges = np.array(held["strategy"]), np.array(held["edges"])
        assert str(held["kind"]) == "vertex"
        assert A.shape == (9, 10)
        assert not A[:, 9].any(), "the cell given up has a zero column"
        largest = max(np.linalg.norm(A[:, u] - (0 if v == -1 else A[:, v])) for u, v in edges)
        assert float(held["sensitivity"]) == pytest.approx(largest, rel=1e-14)


def test_the_reconstruction_turns_strategy_answers_into_workload_answers(made, tmp_path):
    path = write_matrix(made, tmp_path / "r.npz", kind="npz", what="reconstruction")
    B = np.load(path)["reconstruction"]
    A_D = made.problem.grounding.columns(made.strategy.matrix())
    np.testing.assert_allclose(B @ A_D, made.problem.W_D(), atol=1e-9)


def test_an_export_that_cannot_be_written_says_so(made, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_matrix(made, tmp_path / "no" / "such" / "folder.csv", kind="csv")


def test_names_of_queries_come_back_from_a_bundle(tmp_path):
    W = bf.workload.from_matrix(np.eye(3)[:2], names=["north, south", "east"])
    loaded = bf.load(bf.fit(W, "line:3").save(tmp_path / "named.bf"))
    assert loaded.problem.workload.names() == ["north, south", "east"]
    plain = bf.load(bf.fit(np.eye(3)[:2], "line:3").save(tmp_path / "plain.bf"))
    assert plain.problem.workload.names() == ["query 0", "query 1"]


def test_a_bundle_keeps_the_search_and_one_without_it_is_still_read(tmp_path):
    made = bf.fit("prefix:12", "threshold:12:3", max_steps=50, gap=1e-9)
    path = made.save(tmp_path / "a.bf")
    again = bf.load(path)
    assert again.options == made.options == {"max_steps": 50}
    assert [(p.seconds, p.error, p.bound) for p in again.trace] == [(p.seconds, p.error, p.bound) for p in made.trace]
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["trace"], manifest["options"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert bf.load(path).trace == ()


def test_a_long_search_is_kept_thinned(tmp_path):
    made = bf.fit("prefix:12", "threshold:12:3")
    long = tuple(dataclasses.replace(made.trace[-1], seconds=float(k)) for k in range(5000))
    kept = bf.load(dataclasses.replace(made, trace=long).save(tmp_path / "a.bf")).trace
    assert (len(kept), kept[0].seconds, kept[-1].seconds) == (200, 0.0, 4999.0)


def test_exports_say_which_cells_were_given_up(made, tmp_path):
    write_matrix(made, tmp_path / "a.npz", kind="npz")
    with np.load(tmp_path / "a.npz") as held:
        np.testing.assert_array_equal(held["given_up"], made.problem.grounding.given_up)
        assert not held["strategy"][:, held["given_up"]].any()
