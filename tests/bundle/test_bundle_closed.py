"""Bundles are closed: no links, nothing twice, nothing that cannot be run; a digest; outputs that stay outside."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.bundle import BundleError
from hdmm_bf.bundle.checks import MOST_BITS
from hdmm_bf.cli import app
from hdmm_bf.report.export import check_apart
from tests.support.bundles import forge

COUNTS = "\n".join(map(str, range(6)))


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest")
    fits = {
        "dense": bf.fit(np.eye(6), "line:6"),
        "edge": bf.fit("all-range:6", "cycle:6", noise="laplace", max_steps=2),
        "blocks": bf.fit("identity:2x3", "product:line:2,line:3", family="bases"),
    }
    return {name: made.save(folder / f"{name}.bf") for name, made in fits.items()}


@pytest.fixture
def path(honest, tmp_path):
    return shutil.copytree(honest["dense"], tmp_path / "x.bf")


def run(*arguments):
    return CliRunner(catch_exceptions=False).invoke(app, [str(a) for a in arguments], standalone_mode=False)


@pytest.mark.parametrize("name", ["manifest.json", "strategy.npz", "policy.npz", "workload.npz", "certificate.json"])
def test_a_link_inside_a_bundle_is_refused_and_named(path, tmp_path, name):
    outside = tmp_path / "outside"
    shutil.move(path / name, outside)
    (path / name).symlink_to(outside)
    with pytest.raises(BundleError, match=rf"{name} is a link"):
        bf.load(path)


def test_a_bundle_may_be_reached_through_a_link(path, tmp_path):
    (tmp_path / "link.bf").symlink_to(path)
    assert bf.load(tmp_path / "link.bf").num_rows


def with_members(file, *members):
    def change(folder, manifest):
        held = (folder / file).read_bytes()
        buffer = io.BytesIO(held)
        with zipfile.ZipFile(buffer, "a") as archive:
            first = zipfile.ZipFile(io.BytesIO(held)).namelist()[0]
            for member in members:
                archive.writestr(member or first, zipfile.ZipFile(io.BytesIO(held)).read(first))
        (folder / file).write_bytes(buffer.getvalue())

    return change


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("file", ["strategy.npz", "policy.npz", "workload.npz"])
@pytest.mark.parametrize("member", ["", "../edges.npy", "/etc/edges.npy", "edges", "a\x1b.npy", "folder/edges.npy"])
def test_an_archive_with_an_array_twice_or_an_odd_name_is_refused(path, file, member):
    forge(path, with_members(file, member))
    with pytest.raises(BundleError, match=rf"{file} holds .* (twice|no name of an array)"):
        bf.load(path)


@pytest.mark.parametrize("name", ["manifest.json", "certificate.json"])
def test_a_key_that_stands_twice_is_refused(path, name):
    text = (path / name).read_text()
    key = "noise"
    (path / name).write_text(text.replace("{", f'{{"{key}": "gaussian",', 1))
    if name != "manifest.json":
        forge(path, lambda folder, manifest: None)
    with pytest.raises(BundleError, match=rf"{name} .*'noise'.*stands twice"):
        bf.load(path)


def changed(honest, tmp_path, kind, file, **arrays):
    path = shutil.copytree(honest[kind], tmp_path / "y.bf")

    def change(folder, manifest):
        held = {**np.load(folder / file)}
        np.savez(folder / file, **{**held, **arrays})
        if "bits" in arrays:
            manifest["bits"] = int(arrays["bits"])

    forge(path, change)
    return path


@pytest.mark.parametrize("bits", [MOST_BITS + 1, 499, 500, 1000])
def test_a_strategy_on_a_grid_that_no_release_can_run_is_refused_when_it_is_read(honest, tmp_path, bits):
    path = changed(honest, tmp_path, "edge", "strategy.npz", bits=np.array(bits))
    with pytest.raises(BundleError, match=rf"strategy\.npz .*must be 0 to {MOST_BITS}"):
        bf.load(path)


def test_every_grid_that_is_read_can_be_run(honest, tmp_path):
    """The smallest entries on the finest grid: the hardest to invert in floating point."""
    from dataclasses import replace

    from hdmm_bf.certificate import certify

    made = bf.load(honest["edge"])
    for integers in (made.strategy.integers, np.eye(6, dtype=np.int64), np.eye(6, dtype=np.int64) * (2**52 - 1)):
        strategy = replace(made.strategy, integers=integers, bits=MOST_BITS)
        found = certify(strategy, made.problem, noise="laplace", proof=made.proof)
        out = bf.release(replace(made, strategy=strategy, certificate=found), np.arange(6), epsilon=1.0)
        assert np.isfinite(out.answers).all()


@pytest.mark.parametrize("entry", [-(2**63), 2**52, -(2**52)])
def test_a_block_with_an_entry_beyond_all_grids_is_refused(honest, tmp_path, entry):
    factor = np.load(honest["blocks"] / "blocks.npz")["b0_f0"].copy()
    factor[0, 0] = entry
    path = changed(honest, tmp_path, "blocks", "blocks.npz", b0_f0=factor)
    with pytest.raises(BundleError, match=r"blocks\.npz .*does not fit"):
        bf.load(path)


@pytest.mark.parametrize("family", [None, "marginals", "sectors", "kronecker", "bases"])
@pytest.mark.parametrize(("W", "G"), [("marginals:3:0", "cycle:3"), ("marginals:3x4:0", "product:cycle:3,bounded:4")])
def test_a_public_total_is_exact_by_every_family(W, G, family, tmp_path):
    try:
        made = bf.fit(W, G, family=family)
    except InputError as refused:
        assert "does not fit this workload" in str(refused)  # noqa: PT017 - some families are for other structures
        return
    assert (made.status, made.unit_error, made.bounds.lower) == ("exact", 0.0, 0.0)
    assert bf.release(bf.load(made.save(tmp_path / "x.bf")), np.ones(made.problem.policy.num_cells, int), rho=1.0)


def test_the_digest_is_what_sha256sum_prints(path):
    wanted = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
    assert json.loads(run("verify", path, "--json").output)["digest"] == wanted
    assert f"\nDigest: {wanted}\n" in run("verify", path).output
    assert bf.load(path).digest == wanted
    if shutil.which("sha256sum"):
        told = subprocess.run(["sha256sum", path / "manifest.json"], capture_output=True, text=True, check=True)
        assert told.stdout.split()[0] == wanted


def test_another_bundle_than_the_expected_one_is_refused_before_data_are_read(path, tmp_path):
    """Quotes bundle_files.read_folder: a bundle with another digest than expected is refused."""
    digest = bf.load(path).digest
    for expect in (digest, digest[:16], digest.upper()):
        assert bf.load(path, expect=expect).digest == digest
    release = ["release", path, "--rho", 1, "--data", tmp_path / "missing.csv", "--out", tmp_path / "a.csv"]
    other = digest[:20] + ("0" if digest[20] != "0" else "1")
    for expect, words in [(other, "has the digest"), (digest[:15], "16 to 64"), ("", "16 to 64"), ("z" * 64, "16 to")]:
        with pytest.raises(InputError, match=words):
            bf.load(path, expect=expect)
        with pytest.raises(InputError, match=words):
            run(*release, "--expect", expect)
    with pytest.raises(InputError, match=r"missing\.csv"):
        run(*release, "--expect", digest)


def writing(path, tmp_path):
    data, queries = tmp_path / "d.csv", tmp_path / "W.csv"
    data.write_text(COUNTS)
    queries.write_text("1,0,0,0,0,0\n")
    release = ["release", path, "--data", data, "--rho", 1]
    (tmp_path / "linked").symlink_to(path)
    os.link(queries, tmp_path / "hard.csv")
    return {
        "answers in the bundle": [*release, "--out", path / "a.csv"],
        "answers over the certificate": [*release, "--out", path / "certificate.json"],
        "answers through a link": [*release, "--out", tmp_path / "linked" / "a.csv"],
        "answers over the queries": [*release, "--queries", queries, "--out", queries],
        "answers over the queries by another name": [*release, "--queries", queries, "--out", tmp_path / "hard.csv"],
        "the estimate in the bundle": [*release, "--out", tmp_path / "a.csv", "--estimate", path / "e.csv"],
        "the ledger in the bundle": [
            *release,
            "--out",
            tmp_path / "a.csv",
            "--ledger",
            path / "l.db",
            "--data-id",
            "x",
        ],
        "an export over the strategy": ["export", path, "--format", "npz", "--out", path / "strategy.npz"],
        "an export in the bundle": ["export", path, "--format", "csv", "--out", path / "strategy.csv"],
        "a report in the bundle": ["report", path, "--out", path / "r.html"],
        "a bundle over its queries": ["fit", "-w", path / "W.csv", "-g", "line:6", "--out", path],
        "a problem over its queries": ["init", queries, "-w", queries, "-g", "line:6", "--force"],
    }


@pytest.mark.parametrize("case", range(12))
def test_nothing_is_written_over_or_into_what_is_read(path, tmp_path, case):
    name, command = list(writing(path, tmp_path).items())[case]
    if name == "a bundle over its queries":
        shutil.copy(tmp_path / "W.csv", path / "W.csv")
    before = {file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()}
    with pytest.raises(InputError, match=r"what is read or written too"):
        run(*command)
    assert {file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()} == before


def test_answers_and_estimate_need_two_places(path, tmp_path):
    with pytest.raises(InputError, match="written too"):
        check_apart([tmp_path / "a.csv", tmp_path / "." / "a.csv"], [])
    check_apart([tmp_path / "a.csv", None], ["line:64", "nothing\0", tmp_path / "b.csv"])


@pytest.mark.parametrize("out", ["../x.bf", "/tmp/x.bf", "a/../../x.bf", "linked/x.bf", "."])
def test_a_problem_file_writes_into_its_own_folder_only(tmp_path, out):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "linked").symlink_to(tmp_path)
    file = folder / "problem.toml"
    file.write_text(f'[policy]\nspec = "line:4"\n[workload]\nspec = "prefix:4"\n[fit]\nout = "{out}"\n')
    with pytest.raises(InputError, match=r"problem\.toml: line 6: .*outside the folder"):
        run("fit", file)
    run("fit", file, "--out", tmp_path / "mine.bf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.bf", "own"]
    file.write_text(file.read_text().replace(out, "inside.bf"))
    run("fit", file)
    assert (folder / "inside.bf").is_dir()
