"""Bundles from strangers: whatever was forged or damaged, it is refused in words or changes nothing."""

import io
import json
import shutil
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.bundle import BundleError
from hdmm_bf.cli import app
from hdmm_bf.domain import Domain
from hdmm_bf.fit import loading
from tests.support.bundles import forge, repair

W = np.array([[1.0, 2, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]])
ENDS = ([0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, -1])


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """One bundle of each kind: named, custom (graph and matrix), sparse, a product, public, stopped early."""
    folder = tmp_path_factory.mktemp("bundles")
    custom = policy.from_edges(*ENDS, 6)
    fits = {
        "named": bf.fit("all-range:6", "line:6"),
        "custom": bf.fit(W, custom),
        "sparse": bf.fit(sp.csr_array(W), "line:6"),
        "product": bf.fit("identity:2x3", "product:line:2,line:3"),
        "public": bf.fit("identity:6", "empty:6"),
        "stopped": bf.fit("all-range:6", "cycle:6", gap=1e-9, max_steps=1),
        "edge": bf.fit("all-range:6", "cycle:6", noise="laplace", max_steps=2),
    }
    return {name: made.save(folder / f"{name}.bf") for name, made in fits.items()}


def copied(bundles, name, tmp_path):
    return shutil.copytree(bundles[name], tmp_path / "x.bf")


def says(**claims):
    """Edit the manifest; `policy__spec` is the key spec of policy."""

    def change(path, manifest):
        for key, value in claims.items():
            place, _, last = key.rpartition("__")
            (manifest[place] if place else manifest)[last] = value

    return change


def lacks(key):
    return lambda path, manifest: manifest.pop(key)


def certified(**claims):
    def change(path, manifest):
        file = path / "certificate.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **claims}))

    return change


def arrays(file, **changes):
    """Replace arrays of an .npz file; None removes one, a function is applied to what is there."""

    def change(path, manifest):
        held = dict(np.load(path / file))
        for key, value in changes.items():
            held[key] = value(held[key]) if callable(value) else value
        np.savez(path / file, **{k: v for k, v in held.items() if v is not None})

    return change


def raw(file, content):
    def change(path, manifest):
        (path / file).write_bytes(content)

    return change


def odd_zip(*, method=None, flags=0, damage=False):
    """A zip of an unknown compression method, with a password, or with a broken deflate stream."""

    def change(path, manifest):
        content = bytearray((path / "policy.npz").read_bytes())
        local, central = content.index(b"PK\x03\x04"), content.index(b"PK\x01\x02")
        for start, flag_at, method_at in ((local, 6, 8), (central, 8, 10)):
            content[start + flag_at] |= flags
            if method is not None:
                content[start + method_at] = method
        if damage:
            first = local + 30 + content[local + 26] + content[local + 28]
            content[first : first + 8] = b"\xff" * 8
        (path / "policy.npz").write_bytes(bytes(content))

    return change


def stored_text(path, manifest):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("edges.npy", b"no array at all")
    (path / "policy.npz").write_bytes(buffer.getvalue())


def huge_header(path, manifest):
    buffer = io.BytesIO()
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000, 2), }"
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("edges.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    (path / "policy.npz").write_bytes(buffer.getvalue())


def swapped(edges):
    return edges[:, ::-1]


FORGERIES = {
    "sensitivity in the manifest": ("named", says(sensitivity_exact="7"), "sensitivity_exact"),
    "bits in the manifest": ("named", says(bits=3), "bits"),
    "certified": ("stopped", says(certified=True), "certified"),
    "exact, not public": ("named", says(status="exact", certified=True), "status"),
    "public, not exact": ("public", says(status="converged"), "status"),
    "converged, not so": ("stopped", says(status="converged"), "status"),
    "status unknown": ("named", says(status="proven"), "status"),
    "status a list": ("named", says(status=["exact"]), "status"),
    "matrix with a spec": ("custom", says(workload__spec="all-range:6"), "spec string or a file"),
    "matrix like a spec": ("custom", says(workload__spec=" all-rangs:6"), "unknown workload"),
    "spec is a path": ("named", says(workload__spec="/etc/W.csv"), "spec string or a file"),
    "spec hides a path": ("named", says(workload__spec="identity:/etc/W.csv"), "looks like a spec string"),
    "policy reads a file": ("named", says(policy__spec="product:/etc/G.csv,line:3"), "looks like a spec string"),
    "policy with a blank": ("named", says(policy__spec=" unbounded:6"), "edges"),
    "policy unknown": ("custom", says(policy__spec="ordinary-dp:6"), "unknown policy"),
    "policy of a graph": ("custom", says(policy__spec="unbounded:6"), "edges"),
    "policy with a zero-width blank": ("custom", says(policy__spec="\u200bunbounded:6"), "printable"),
    "policy nested": ("named", says(policy__spec="product:" * 3000 + "line:6"), "policy"),
    "meaning": ("named", says(policy__meaning="whether any one record is in the data at all"), "hides"),
    "meaning of a graph": ("custom", says(policy__meaning="everything"), "hides"),
    "meaning no text": ("named", says(policy__meaning=7), "policy"),
    "sizes turned": ("product", says(domain__sizes=[3, 2]), "domain"),
    "sizes merged": ("product", says(domain={"sizes": [6], "names": ["a"], "labels": [None]}), "domain"),
    "sizes split": ("named", says(domain={"sizes": [2, 3], "names": ["a", "b"], "labels": [None] * 2}), "domain"),
    "reached": ("named", says(reached={"paper": -1.0}), "reached"),
    "reached the impossible": ("edge", says(reached={"paper": 1.0}), "below the lower bound"),
    "seconds": ("named", says(seconds="\x1b[2J"), "seconds"),
    "reached text": ("named", says(reached={"paper": "good"}), "reached"),
    "reached list": ("named", says(reached=[1.0]), "reached"),
    "a small number": ("public", says(unit_error=1e-10), "unit_error"),
    "a small bound": ("public", says(svd_bound=1e-10), "svd_bound"),
    "a truth for a number": ("public", says(ratio_to_svd=True), "ratio_to_svd"),
    "bits of 2.7": ("named", arrays("strategy.npz", bits=lambda b: np.array(b + 0.7)), r"strategy\.npz"),
    "edges turned": ("custom", arrays("policy.npz", edges=swapped), r"policy\.npz"),
    "edges repeated": ("custom", arrays("policy.npz", edges=lambda e: e[[0, 0, 2, 3, 4, 5]]), r"policy\.npz"),
    "edges as loops": ("custom", arrays("policy.npz", edges=np.zeros((6, 2), dtype=int)), r"policy\.npz"),
    "edges out of range": ("custom", arrays("policy.npz", edges=lambda e: e + 9), r"policy\.npz"),
    "lines in a claim": ("named", says(num_rows="5\nVerified: every claim was derived again."), "num_rows"),
}

MALFORMED = {
    **{f"no {key}": ("named", lacks(key), "manifest") for key in ("noise", "seed", "status", "requested_gap")},
    **{f"no {key}": ("named", lacks(key), "manifest") for key in ("files", "domain", "workload", "policy")},
    **{f"{key} 7": ("named", says(**{key: 7}), "manifest") for key in ("noise", "files", "domain", "workload")},
    **{f"{key} text": ("named", says(**{key: "x"}), "manifest") for key in ("seed", "requested_gap", "policy")},
    "files outside": ("named", says(files={"../x": "0"}), "files"),
    "files with NUL": ("named", says(files={"a\0b": "0"}), "files"),
    **{
        f"trace {shown}": ("named", says(trace=value), "trace")
        for shown, value in {
            "a number": 7,
            "of pairs": [[1.0, 2.0]],
            "of text": [["a", "b", "c"]],
            "backwards in time": [[2.0, 9.0, 8.0], [1.0, 9.0, 8.0]],
            "negative": [[1.0, -9.0, 8.0]],
            "endless": [[0.0, 9.0, 8.0]] * 1001,
            "with a bound above the error": [[0.0, 1e12, 1e11]],
        }.items()
    },
    **{
        f"options {shown}": ("named", says(options=value), "options")
        for shown, value in {
            "a list": [],
            "unknown": {"colour": "red"},
            "a limit of text": {"max_seconds": "9"},
            "a limit of zero": {"max_steps": 0},
            "a family of two lines": {"family": "a\nb"},
        }.items()
    },
    "no files named": ("named", lambda path, manifest: manifest["files"].clear(), "files"),
    "sizes text": ("named", says(domain__sizes=["6"]), "manifest"),
    "names nested": ("named", says(domain__names=[[1]]), "manifest"),
    "labels a number": ("named", says(domain__labels=[7]), "manifest"),
    "no spec": ("named", says(workload__spec=None), "manifest"),
    "file a number": ("named", says(workload__file=0), "manifest"),
    "gap negative": ("named", says(requested_gap=-1), "requested_gap"),
    "gap infinite": ("named", says(requested_gap=float("inf")), "manifest"),
    "seed huge": ("named", says(seed=10**400), "manifest"),
    "number huge": ("named", says(unit_error=10**400), "manifest"),
    "certificate huge": ("named", certified(unit_error=10**400), "certificate"),
    "certificate list": ("named", certified(gap=[1]), "gap"),
    "certificate no object": ("named", raw("certificate.json", b"[1]"), "certificate"),
    "certificate nested": ("named", raw("certificate.json", b"[" * 100000), "certificate"),
    "weights text": ("named", arrays("strategy.npz", weights=lambda w: w.astype(str)), r"strategy\.npz"),
    "weights complex": ("named", arrays("strategy.npz", weights=lambda w: w + 1j), r"strategy\.npz"),
    "weights nan": ("named", arrays("strategy.npz", weights=lambda w: w * np.nan), r"strategy\.npz"),
    "weights 1e308": ("named", arrays("strategy.npz", weights=lambda w: w * 0 + 1e308), r"strategy\.npz"),
    "weights zero": ("named", arrays("strategy.npz", weights=lambda w: w * 0), r"strategy\.npz"),
    "weights short": ("named", arrays("strategy.npz", weights=lambda w: w[1:]), r"strategy\.npz"),
    "integers text": ("named", arrays("strategy.npz", integers=lambda a: a.astype(str)), r"strategy\.npz"),
    "integers float": ("named", arrays("strategy.npz", integers=lambda a: a + 0.5), r"strategy\.npz"),
    "integers uint64": ("named", arrays("strategy.npz", integers=lambda a: a.astype("u8")), r"strategy\.npz"),
    "integers flat": ("named", arrays("strategy.npz", integers=np.ravel), r"strategy\.npz"),
    "integers least": ("named", arrays("strategy.npz", integers=lambda a: np.full_like(a, -(2**63))), r"strategy\.npz"),
    "integers zero": ("named", arrays("strategy.npz", integers=lambda a: a * 0), r"strategy\.npz"),
    "integers narrow": ("named", arrays("strategy.npz", integers=lambda a: a[:, 1:]), r"strategy\.npz"),
    "no integers": ("named", arrays("strategy.npz", integers=None), r"strategy\.npz"),
    "bits negative": ("named", arrays("strategy.npz", bits=np.array(-1)), r"strategy\.npz"),
    "bits 1001": ("named", arrays("strategy.npz", bits=np.array(1001)), r"strategy\.npz"),
    "bits 1000": ("named", arrays("strategy.npz", bits=np.array(1000)), "strategy|bits"),
    "bits list": ("named", arrays("strategy.npz", bits=np.array([20])), r"strategy\.npz"),
    "kind": ("named", arrays("strategy.npz", kind=np.array("corner")), r"strategy\.npz"),
    "kind other": ("named", arrays("strategy.npz", kind=np.array("edge")), r"strategy\.npz"),
    "family number": ("named", arrays("strategy.npz", family=np.array(7)), r"strategy\.npz"),
    "one more array": ("named", arrays("strategy.npz", more=np.array(7)), r"strategy\.npz"),
    "edges float": ("custom", arrays("policy.npz", edges=lambda e: e.astype(float)), r"policy\.npz"),
    "edges flat": ("custom", arrays("policy.npz", edges=np.ravel), r"policy\.npz"),
    "edges wide": ("custom", arrays("policy.npz", edges=lambda e: e[:, [0, 1, 1]]), r"policy\.npz"),
    "edges huge": ("custom", arrays("policy.npz", edges=np.full((6, 2), 2**64 - 1, "u8")), r"policy\.npz"),
    "W text": ("custom", arrays("workload.npz", W=lambda w: w.astype(str)), r"workload\.npz"),
    "W nan": ("custom", arrays("workload.npz", W=lambda w: w * np.nan), r"workload\.npz"),
    "W flat": ("custom", arrays("workload.npz", W=np.ravel), r"workload\.npz"),
    "W narrow": ("custom", arrays("workload.npz", W=lambda w: w[:, 1:]), r"workload\.npz"),
    "both W and CSR": ("sparse", arrays("workload.npz", W=W), r"workload\.npz"),
    "indices far": ("sparse", arrays("workload.npz", indices=lambda i: i + 9), r"workload\.npz"),
    "indices negative": ("sparse", arrays("workload.npz", indices=lambda i: i - 9), r"workload\.npz"),
    "indices float": ("sparse", arrays("workload.npz", indices=lambda i: i + 0.5), r"workload\.npz"),
    "indptr falling": ("sparse", arrays("workload.npz", indptr=lambda p: p[::-1]), r"workload\.npz"),
    "indptr short": ("sparse", arrays("workload.npz", indptr=lambda p: p[1:]), r"workload\.npz"),
    "shape of one": ("sparse", arrays("workload.npz", shape=np.array([3])), r"workload\.npz"),
    "shape negative": ("sparse", arrays("workload.npz", shape=np.array([-3, 6])), r"workload\.npz"),
    "shape huge": ("sparse", arrays("workload.npz", shape=np.array([3, 2**62])), r"workload\.npz"),
    "data text": ("sparse", arrays("workload.npz", data=lambda d: d.astype(str)), r"workload\.npz"),
    "data short": ("sparse", arrays("workload.npz", data=lambda d: d[1:]), r"workload\.npz"),
    "a pickle": ("named", arrays("policy.npz", edges=np.array([{}], dtype=object)), r"policy\.npz"),
    "no zip": ("named", raw("policy.npz", b"hello"), r"policy\.npz"),
    "an empty file": ("named", raw("policy.npz", b""), r"policy\.npz"),
    "deflate": ("named", odd_zip(damage=True), r"policy\.npz"),
    "compression": ("named", odd_zip(method=99), r"policy\.npz"),
    "lzma": ("named", odd_zip(method=14), r"policy\.npz"),
    "password": ("named", odd_zip(flags=1), r"policy\.npz"),
    "no array": ("named", stored_text, r"policy\.npz"),
    "an array of petabytes": ("named", huge_header, r"policy\.npz"),
}
HOSTILE = {**FORGERIES, **MALFORMED}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bundles_are_refused_in_words(bundles, tmp_path, name):
    """Quotes loading.check: a bundle that cannot be trusted at all is refused with BundleError."""
    which, change, words = HOSTILE[name]
    path = copied(bundles, which, tmp_path)
    forge(path, change)
    with pytest.raises(BundleError, match=words) as refused:
        bf.load(path)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("size", [1e100, 1e154, 1e200, 1e308])
def test_workloads_beyond_all_numbers_are_refused(bundles, tmp_path, size):
    path = copied(bundles, "custom", tmp_path)
    forge(path, arrays("workload.npz", W=W * (size / 2)))
    with pytest.raises(BundleError, match=r"strategy\.npz|unit_error"):
        bf.load(path)


def test_untouched_bundles_of_every_kind_load(bundles, tmp_path):
    for name, path in bundles.items():
        forge(path, lambda path, manifest: None)
        assert loading.check(path)[1] == [], name


@pytest.mark.parametrize(
    ("W", "G"),
    [
        ("identity:6", policy.product(policy.sensitive("1x2", [0, 1]), policy.line(3))),
        ("identity:6", policy.product(policy.product(policy.line(1), policy.line(2)), policy.line(3))),
        ("identity:6", policy.union(policy.line(6), policy.unbounded(6))),
        ("identity:6", policy.from_edges([0, 1], [1, 2], 6, spec="people:2020")),
        ("identity:6", policy.from_edges([0, 1], [1, 2], 6, spec="bounded:6")),
        ("identity:6", policy.per_attribute(Domain((2, 3), names=("sex", "age")), {"age": "line"})),
        ("identity:6", policy.sensitive(Domain((2, 3), names=("sex", "age")), ["age"])),
        ("identity:6", "threshold:2x3:1"),
        (workload.from_matrix(W, spec="all-range:6"), "line:6"),
        (workload.from_matrix(W, spec="sales:2020"), "unbounded:2x3"),
    ],
)
def test_honest_bundles_with_unusual_names_load(W, G, tmp_path):
    made = bf.fit(W, G)
    loaded = bf.load(made.save(tmp_path / "x.bf"))
    np.testing.assert_array_equal(loaded.problem.policy.edges, made.problem.policy.edges)
    np.testing.assert_array_equal(loaded.strategy.integers, made.strategy.integers)
    assert loaded.unit_error == pytest.approx(made.unit_error, rel=1e-9)
    assert loaded.problem.policy.domain == made.problem.policy.domain
    again = bf.load(loaded.save(tmp_path / "y.bf"))
    assert again.problem.policy.spec == loaded.problem.policy.spec
    assert again.problem.workload.spec == loaded.problem.workload.spec


def test_a_file_that_cannot_be_read_is_named(bundles, monkeypatch):
    def fail(self):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.read_bytes", fail)
    with pytest.raises(BundleError, match=r"manifest\.json cannot be read \(Input/output error\)"):
        bf.load(bundles["named"])


def test_named_policies_keep_their_words(tmp_path):
    people = Domain((2, 3), names=("sex", "age"))
    made = bf.fit("identity:2x3", policy.sensitive(people, ["age"]))
    loaded = bf.load(made.save(tmp_path / "x.bf"))
    assert loaded.problem.policy.meaning == made.problem.policy.meaning == "which value of age any one record has"


def damaged(content, rng):
    """Flip some bits of a byte, overwrite a few, or cut the file short."""
    held = bytearray(content)
    place = int(rng.integers(len(held)))
    kind = rng.integers(3)
    if kind == 0:
        held[place] ^= int(rng.integers(1, 256))
    elif kind == 1:
        held[place : place + 4] = rng.bytes(4)
    else:
        del held[place:]
    return bytes(held)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("which", ["custom", "sparse", "edge"])
@pytest.mark.parametrize("repaired", [False, True])
def test_random_damage_is_refused_or_changes_nothing(bundles, tmp_path, which, repaired):
    path = copied(bundles, which, tmp_path)
    honest = bf.load(path)
    files = {file.name: file.read_bytes() for file in sorted(path.iterdir())}
    rng = np.random.default_rng(5)
    refusals = 0
    for _ in range(50):
        name = sorted(files)[int(rng.integers(len(files)))]
        (path / name).write_bytes(damaged(files[name], rng))
        if repaired and name != "manifest.json":
            repair(path, json.loads(files["manifest.json"]))
        try:
            loaded = bf.load(path)
        except InputError:
            refusals += 1
        else:
            np.testing.assert_array_equal(loaded.strategy.matrix(), honest.strategy.matrix())
            np.testing.assert_array_equal(loaded.problem.policy.edges, honest.problem.policy.edges)
            np.testing.assert_array_equal(loaded.problem.gram, honest.problem.gram)
            assert loaded.noise == honest.noise
        for file, content in files.items():
            (path / file).write_bytes(content)
    assert refusals > 20


def test_verify_exits_with_one_for_a_bad_bundle_and_two_for_none(bundles, tmp_path):
    path = copied(bundles, "named", tmp_path)
    forge(path, arrays("strategy.npz", integers=lambda a: a * 0))
    result = CliRunner().invoke(app, ["verify", str(path), "--json"], standalone_mode=False)
    record = json.loads(result.stdout)
    assert result.return_value == 1
    assert record["verified"] is False
    assert "strategy.npz" in record["disagreements"][0]
    missing = CliRunner().invoke(app, ["verify", str(tmp_path / "nothing.bf")], standalone_mode=False)
    assert isinstance(missing.exception, InputError)
    assert not isinstance(missing.exception, BundleError), "the command line exits with 2"
