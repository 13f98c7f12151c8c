"""Thousands of damaged and forged bundles and histograms: each is accepted and true, or refused in one sentence.

Seeded. A part runs by default, all of it under the `slow` marker.
"""

import contextlib
import copy
import csv
import dataclasses
import hashlib
import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.mechanisms.counts import read_counts
from hdmm_bf.mechanisms.plan import plan
from hdmm_bf.mechanisms.release import carry_out, checked_counts
from tests.mistakes import PEOPLE, _as_users_run_it  # noqa: F401
from tests.test_bad_files import npy, saved, zipped
from tests.test_cli_release import call

MOST_MEMORY = 2**30
"""Bytes by which all of this may grow the process."""

W = np.array([[1.0, 2, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]])
ENDS = ([0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, -1])


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The files of one bundle of every kind."""
    folder = tmp_path_factory.mktemp("honest")
    fits = {
        "named": bf.fit("all-range:6", "line:6"),
        "custom": bf.fit(W, bf.policy.from_edges(*ENDS, 6)),
        "sparse": bf.fit(sp.csr_array(W), "line:6"),
        "edge": bf.fit("all-range:6", "cycle:6", noise="laplace", max_steps=2),
        "labels": bf.fit(bf.workload.identity(PEOPLE), bf.policy.sensitive(PEOPLE, ["age"])),
        "low rank": bf.fit(np.array([[1.0, 1, 0, 0, 0, 0]]), "unbounded:6"),
    }
    paths = {name: fit.save(folder / f"{name}.bf") for name, fit in fits.items()}
    return {name: {file.name: file.read_bytes() for file in sorted(path.iterdir())} for name, path in paths.items()}


class Payload:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


# What is damaged: bytes


def damaged(content, rng):
    """Flip a byte, overwrite, cut, drop, repeat or insert a few."""
    held = bytearray(content)
    place, size = int(rng.integers(len(held) + 1)), int(rng.integers(1, 9))
    kind = rng.integers(6)
    if kind == 0 and place < len(held):
        held[place] ^= int(rng.integers(1, 256))
    elif kind == 1:
        held[place : place + size] = rng.bytes(size)
    elif kind == 2:
        del held[place:]
    elif kind == 3:
        del held[place : place + size]
    elif kind == 4:
        held[place:place] = held[place : place + 40 * size]
    else:
        held[place:place] = rng.bytes(size)
    return bytes(held)


def damage_bytes(files, others, rng, mark):
    name = pick(rng, sorted(files))
    files[name] = damaged(files[name], rng)


def swap_file(files, others, rng, mark):
    other = pick(rng, others)
    name = pick(rng, sorted(other))
    files[name] = other[name]


# What is forged: JSON

ODD_VALUES = [
    *(None, True, False, 0, 1, -1, 7, 0.5, -0.0, 1e308, -1e308, 1e-308, 5e-324, 2**53, 2**63, 2**64, 10**30, 10**400),
    *("", "0", "-1", "nan", "1e999", "x" * 100_000, "\x00", "\n\x1b[2J", "\ud800", "../../etc/passwd", "/etc/passwd"),
    *("line:6", "line:1000000000", "all-range:6", "bounded:6", "product:line:2,line:3", "G.csv", "identity:6"),
    *([], {}, [[]], {"": {}}, [0] * 1000, [None], ["a"], {"spec": "line:6", "file": False}),
    *(float("nan"), float("inf"), float("-inf")),
]


def places(tree, found=None):
    """Return every (container, key) of a JSON value."""
    found = [] if found is None else found
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        found.append((tree, key))
        if isinstance(tree[key], dict | list):
            places(tree[key], found)
    return found


def near(value, rng):
    """A value that could pass for the true one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.integers(-2, 3))
    if isinstance(value, float):
        return value * pick(rng, [1 + 1e-12, 1 + 1e-8, 1 - 1e-6, 0.99, 2.0, -1.0, 0.0])
    if isinstance(value, str) and value:
        at = int(rng.integers(len(value)))
        return value[:at] + pick(rng, ["", " ", "0", "9", "x", ":", "\u200b", value[at].upper()]) + value[at + 1 :]
    return value


def edit_json(files, others, rng, mark):
    name = pick(rng, ["manifest.json", "manifest.json", "certificate.json"])
    try:
        record = json.loads(files[name])
    except ValueError:  # damaged before
        return
    if not isinstance(record, dict) or not record:
        return
    for _ in range(int(rng.integers(1, 3))):
        tree, key = pick(rng, places(record) or [(record, "new")])
        kind = rng.integers(4)
        if kind == 0 and isinstance(tree, dict):
            tree.pop(key, None)
        elif kind == 1:
            tree[key] = near(tree.get(key) if isinstance(tree, dict) else tree[key], rng)
        else:
            tree[key] = copy.deepcopy(pick(rng, ODD_VALUES))
    files[name] = json.dumps(record).encode()


def rename_files(files, others, rng, mark):
    """Tricks with the names of the files in the manifest."""
    try:
        record = json.loads(files["manifest.json"])
        held = record["files"]
        old = pick(rng, sorted(held))
    except (ValueError, LookupError, TypeError, AttributeError):
        return
    tricks = [f"../{old}", f"./{old}", "/etc/passwd", f"{old}\0", f"x/../{old}", old.upper(), "manifest.json", "", "."]
    new = pick(rng, tricks)
    held[new] = held.pop(old) if rng.integers(2) else held[old]
    files["manifest.json"] = json.dumps(record).encode()


# What is forged: arrays


def odd_arrays(array, rng, mark):
    """Other arrays in the place of one: of other types and shapes, with other numbers, with objects."""
    shape = array.shape
    noise = rng.integers(-1, 2, size=shape)
    number = array.dtype.kind in "iuf"
    return [
        lambda: saved(np.save, np.array([Payload(mark)], dtype=object), allow_pickle=True),
        lambda: pickle.dumps(Payload(mark)),
        lambda: npy((10**15, 2)) + bytes(16),
        lambda: npy((-1, 2)) + bytes(16),
        lambda: npy((2**62, 2**62)) + bytes(16),
        lambda: npy(shape, "|O") + pickle.dumps(Payload(mark)),
        lambda: npy(shape, "S0"),
        lambda: b"\x93NUMPY\x01\x00\xff\xff" + b"-" * 65535,
        lambda: b"",
        lambda: saved(np.save, np.full(shape, np.nan)),
        lambda: saved(np.save, np.zeros(shape, dtype=array.dtype)),
        lambda: saved(np.save, array.T if array.ndim > 1 else array[None]),
        lambda: saved(np.save, np.concatenate([np.atleast_1d(array)] * 2)),
        lambda: saved(np.save, np.atleast_1d(array)[:-1]),
        lambda: saved(np.save, np.zeros((0, *shape[1:]), dtype=array.dtype)),
        lambda: saved(
            np.save, array.astype(pick(rng, ["f4", "f8", "i1", "i4", "u8", "c16", "U9", "S9", "f2", "M8[s]"]))
        ),
        lambda: saved(np.save, np.asfortranarray(array)),
        lambda: saved(np.save, array.astype(array.dtype.newbyteorder(">"))),
        lambda: saved(np.save, array + noise if number else array),
        lambda: saved(np.save, array * pick(rng, [-1, 2, 3, 1000]) if number else array),
        lambda: saved(np.save, array + pick(rng, [2**40, 2**52, 2**62, -(2**63)]) * noise if number else array),
        lambda: saved(np.save, rng.permutation(array) if array.ndim else array),
        lambda: saved(np.save, np.array(pick(rng, ["vertex", "edge", "corner", "\n", "a" * 1000]))),
        lambda: saved(np.save, rng.normal(size=shape) * 10.0 ** rng.integers(-300, 300)),
    ]


def edit_npz(files, others, rng, mark):
    name = pick(rng, [name for name in sorted(files) if name.endswith(".npz")])
    try:
        with np.load(io.BytesIO(files[name])) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception:  # noqa: BLE001 -- it was damaged before, in whatever way
        return
    if not arrays or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        return
    members = {key: saved(np.save, array) for key, array in arrays.items()}
    key = pick(rng, sorted(members))
    kind = rng.integers(10)
    if kind == 0:
        del members[key]
    elif kind == 1:
        members[pick(rng, ["more", "../../evil", "/tmp/evil", "", key.upper()])] = members[key]
    else:
        with np.errstate(all="ignore"), contextlib.suppress(ValueError, TypeError, OverflowError):
            members[key] = pick(rng, odd_arrays(arrays[key], rng, mark))()
    files[name] = zipped(**members)


def bomb(files, others, rng, mark):
    """An archive that says it is small, or huge, and is the other."""
    name = pick(rng, [name for name in sorted(files) if name.endswith(".npz")])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("edges.npy", npy((2**21,), "<i8") + bytes(2**24))
    content = bytearray(buffer.getvalue())
    central = content.index(b"PK\x01\x02")
    size = pick(rng, [None, 100, 2**31, 2**32 - 2])
    if size is not None:
        content[central + 24 : central + 28] = int(size).to_bytes(4, "little")
    files[name] = bytes(content)


MUTATIONS = [damage_bytes, swap_file, edit_json, edit_json, rename_files, edit_npz, edit_npz, edit_npz, bomb]
WEIGHTS = np.array([3, 1, 3, 3, 1, 3, 3, 3, 0.3])


def pick(rng, options):
    return options[int(rng.integers(len(options)))]


def repair(files):
    """Write right checksums, as somebody who wants to cheat would."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        record = json.loads(files["manifest.json"])
        held = record.get("files")
        if isinstance(held, dict):
            record["files"] = {name: hashlib.sha256(files.get(name, b"")).hexdigest() for name in held}
            files["manifest.json"] = json.dumps(record).encode()


# What must hold for what is accepted


def grounded(matrix, policy):
    """Columns of the cells that are kept, minus that of the cell their component gives up: by the definition."""
    n = policy.num_cells
    u, v = policy.edges[:, 0], np.where(policy.edges[:, 1] < 0, n, policy.edges[:, 1])
    _, label = csgraph.connected_components(
        sp.coo_array((np.ones(len(u)), (u, v)), shape=(n + 1, n + 1)), directed=False
    )
    columns = []
    for cell in range(n):
        last = max(np.flatnonzero(label[:n] == label[cell]))
        if label[cell] == label[n]:
            columns.append(matrix[:, cell])
        elif cell != last:
            columns.append(matrix[:, cell] - matrix[:, last])
    return np.array(columns).reshape(len(columns), -1).T


def over_edges(matrix, policy):
    """W P: one column an edge."""
    padded = np.concatenate([matrix, np.zeros((len(matrix), 1))], axis=1)
    return padded[:, policy.edges[:, 0]] - padded[:, policy.edges[:, 1]]


def assert_true_claims(fit):
    """Sensitivity, error and bounds of an accepted bundle, from dense matrices and the definitions alone."""
    policy, queries = fit.problem.policy, fit.problem.workload.matrix.dense()
    A = np.ldexp(fit.strategy.integers.astype(np.float64), -fit.strategy.bits)
    on_edges = fit.strategy.kind == "edge"
    moved = A if on_edges else over_edges(A, policy)
    norm = 1 if fit.noise == "laplace" else 2
    sensitivity = max(np.linalg.norm(column, norm) for column in moved.T)
    rows = over_edges(queries, policy) if on_edges else grounded(queries, policy)
    inverse = np.linalg.pinv(A if on_edges else grounded(A, policy), rcond=1e-13)
    assert fit.certificate.sensitivity == pytest.approx(sensitivity, rel=1e-9)
    assert fit.unit_error == pytest.approx(sensitivity**2 * np.sum((rows @ inverse) ** 2), rel=1e-6)
    outside = rows - rows @ inverse @ (A if on_edges else grounded(A, policy))
    assert np.abs(outside).max() <= 1e-6 * np.abs(rows).max(), "every query is answered"
    W_G, e = over_edges(queries, policy), policy.num_edges
    mu = fit.weights / fit.weights.sum()
    svd = np.linalg.svd(W_G, compute_uv=False).sum() ** 2 / e
    dual = np.linalg.svd(W_G * np.sqrt(mu), compute_uv=False).sum() ** 2
    assert fit.bounds.svd == pytest.approx(svd, rel=1e-6)
    assert fit.bounds.lower == pytest.approx(max(svd, dual), rel=1e-6)
    assert fit.bounds.lower <= fit.unit_error * (1 + 1e-9)
    assert fit.gap == pytest.approx(fit.unit_error / fit.bounds.lower - 1, rel=1e-6, abs=1e-9)
    assert fit.certified == (fit.noise == "gaussian" and fit.gap <= fit.requested_gap)


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz_bundles(honest, folder, *, trials, seed):
    rng = np.random.default_rng(seed)
    kinds = sorted(honest)
    path, mark = folder / "x.bf", folder / "mark"
    path.mkdir()
    accepted = refused = 0
    before = peak_memory()
    for trial in range(trials):
        files = dict(honest[pick(rng, kinds)])
        names = []
        for _ in range(1 + int(rng.integers(4) == 0)):
            mutate = MUTATIONS[int(rng.choice(len(MUTATIONS), p=WEIGHTS / WEIGHTS.sum()))]
            mutate(files, [honest[kind] for kind in kinds], rng, mark)
            names.append(mutate.__name__)
        if rng.integers(5):
            repair(files)
        for file in path.iterdir():
            file.unlink()
        for name, content in files.items():
            (path / name).write_bytes(content)
        try:
            fit = bf.load(path)
        except InputError as refusal:
            refused += 1
            message = str(refusal)
        except BaseException as error:
            raise AssertionError(f"trial {trial}, {names}: {error!r}") from error
        else:
            accepted += 1
            assert_true_claims(fit)
            plan(fit, epsilon=1.0, delta=None if fit.noise == "laplace" else 1e-6)
            message = repr(fit)
        assert message.isprintable(), (trial, names)
        assert sorted(os.listdir(folder)) == ["x.bf"], (trial, names, "something was written or executed")
    assert peak_memory() - before < MOST_MEMORY
    return accepted, refused


def report(what, whole, rest):
    """For the reader of a run with -s."""
    sys.stderr.write(f"\n{what}: {whole} accepted or whole, {rest} refused or none\n")


@pytest.mark.parametrize("trials", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_forged_bundle_is_refused_or_true(honest, tmp_path, trials):
    accepted, refused = fuzz_bundles(honest, tmp_path, trials=trials, seed=trials)
    report("bundles", accepted, refused)
    assert accepted + refused == trials
    assert accepted > trials / 50, "some damage changes nothing, and the dense check had work"
    assert refused > trials / 2


def test_the_dense_check_finds_a_wrong_claim(honest, tmp_path):
    """A control that must fail."""
    for name, content in honest["custom"].items():
        (tmp_path / name).write_bytes(content)
    fit = bf.load(tmp_path)
    assert_true_claims(fit)
    other = fit.strategy.integers + np.eye(*fit.strategy.integers.shape, dtype=np.int64)
    with pytest.raises(AssertionError):
        assert_true_claims(dataclasses.replace(fit, strategy=dataclasses.replace(fit.strategy, integers=other)))


# Histograms

SECRETS = [987654321, 876543219, 765432198, 654321987, 543219876, 432198765]
TABLE = ",".join(map(str, SECRETS))
LISTED = "\n".join(["sex,age,count", *(f"{'FM'[i // 3]},{i % 3},{x}" for i, x in enumerate(SECRETS))]) + "\n"
NUMBERED = "\n".join(["cell,count", *(f"{i},{x}" for i, x in enumerate(SECRETS))]) + "\n"
HISTOGRAMS = {
    "flat.npy": saved(np.save, np.array(SECRETS)),
    "table.npy": saved(np.save, np.array(SECRETS, dtype=np.int32).reshape(2, 3)),
    "floats.npy": saved(np.save, np.array(SECRETS, dtype=np.float64)),
    "table.csv": TABLE.encode(),
    "named.csv": b"a,b,c\n" + TABLE.encode().replace(b",", b"\n"),
    "listed.csv": LISTED.encode(),
    "numbered.csv": NUMBERED.encode(),
}
ODD_FIELDS = [
    "",
    "nan",
    "-1",
    "1e9",
    "=1+1",
    '"',
    '""',
    "\n",
    ",",
    "count",
    "cell",
    "#",
    "\x00",
    "F",
    "9" * 30,
    "é",
    " 3 ",
]
HARMLESS = re.compile(r"field limit \(\d+\)")


def damaged_histogram(content, rng, mark, *, text):
    if text and rng.integers(2):
        fields = re.split(r"([,\n])", content.decode())
        for _ in range(int(rng.integers(1, 4))):
            fields[int(rng.integers(len(fields)))] = pick(rng, ODD_FIELDS)
        return "".join(fields).encode()
    if not text and rng.integers(2):
        with np.errstate(all="ignore"), contextlib.suppress(ValueError, TypeError, OverflowError):
            return pick(rng, odd_arrays(np.load(io.BytesIO(content)), rng, mark))()
    return damaged(content, rng)


def independent(path):
    """The histogram of an accepted file, read in another way."""
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False).ravel().astype(np.int64).tolist()
    rows = [row for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))) if row]
    names = [name.strip() for name in rows[0]]
    if "count" not in names:
        words = not any(re.fullmatch(r"\s*-?\d+\s*", entry) for entry in rows[0])
        return [int(entry.strip()) for row in rows[words:] for entry in row]
    counts = [0] * 6
    for row in rows[1:]:
        line = dict(zip(names, (entry.strip() for entry in row), strict=True))
        cell = int(line["cell"]) if "cell" in line else 3 * "FM".index(line["sex"]) + int(line["age"])
        counts[cell] += int(line["count"])
    return counts


def fuzz_histograms(fit, folder, *, trials, seed):
    rng = np.random.default_rng(seed)
    settled = plan(fit, epsilon=1.0, delta=1e-6)
    mark = folder / "mark"
    accepted = refused = 0
    before = peak_memory()
    for trial in range(trials):
        name = pick(rng, sorted(HISTOGRAMS))
        path = folder / name
        path.write_bytes(damaged_histogram(HISTOGRAMS[name], rng, mark, text=name.endswith(".csv")))
        try:
            x = checked_counts(fit.problem, read_counts(path, PEOPLE))
        except InputError as refusal:
            refused += 1
            message = HARMLESS.sub("", str(refusal).replace(str(folder), ""))
        except BaseException as error:
            raise AssertionError(f"trial {trial}, {name}: {error!r}") from error
        else:
            accepted += 1
            message = "read"
            assert x.dtype == np.int64
            assert x.tolist() == independent(path), (trial, name)
            if accepted % 10 == 1:
                with contextlib.suppress(InputError):  # counts that do not fit in 64 bits beside the strategy
                    assert np.all(np.isfinite(carry_out(settled, fit, x).answers))
        assert message.isprintable(), trial
        assert not re.search(r"\d{5}", message), (trial, message)
        assert os.listdir(folder) == [name], (trial, name)
        if trial % 25 == 0:
            assert_whole_or_nothing(folder, name)
        path.unlink()
    assert peak_memory() - before < MOST_MEMORY
    return accepted, refused


def assert_whole_or_nothing(folder, name):
    """The command writes a whole file and exits with 0, or writes nothing, spends nothing and says why."""
    arguments = ("--rho", "0.5", "--out", "a.json", "--ledger", "spent.db", "--total", "rho=0.5")
    result = call("release", folder.parent / "people.bf", "--data", name, *arguments, cwd=folder)
    if result.returncode == 0:
        assert len(json.loads((folder / "a.json").read_text())["answer"]) == 6
    else:
        assert result.returncode == 2, result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert os.listdir(folder) == [name]
    for made in ("a.json", "spent.db"):
        (folder / made).unlink(missing_ok=True)


@pytest.mark.parametrize("trials", [500, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_damaged_histogram_is_refused_or_read_as_it_stands(tmp_path, trials):
    fit = bf.fit(bf.workload.identity(PEOPLE), bf.policy.bounded(PEOPLE))
    fit.save(tmp_path / "people.bf")
    (tmp_path / "data").mkdir()
    accepted, refused = fuzz_histograms(fit, tmp_path / "data", trials=trials, seed=trials)
    report("histograms", accepted, refused)
    assert accepted + refused == trials
    assert accepted > trials / 20
    assert refused > trials / 4


# Killed while it saves

KILLED = """
import os, random, signal, sys, time, warnings
warnings.simplefilter("ignore")  # about fork beside threads
import hdmm_bf as bf
first, second, target = sys.argv[1:]
fits = [bf.load(first), bf.load(second)]
random.seed(7)
for _ in range(20):
    child = os.fork()
    if child == 0:
        while True:
            for fit in fits:
                fit.save(target)
    time.sleep(random.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if os.path.lexists(target):
        print(bf.load(target).problem.workload.spec)
    else:
        print("none")
        fits[0].save(target)
"""


def test_a_process_killed_while_it_saves_leaves_a_whole_bundle_or_none(honest, tmp_path):
    paths = [tmp_path / name for name in ("one.bf", "two.bf")]
    for path, kind in zip(paths, ("named", "labels"), strict=True):
        path.mkdir()
        for name, content in honest[kind].items():
            (path / name).write_bytes(content)
    shutil.copytree(paths[0], tmp_path / "target.bf")
    process = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, paths), str(tmp_path / "target.bf")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    ends = process.stdout.splitlines()
    assert len(ends) == 20
    report("killed while saving", *(sum(end != "none" for end in ends), ends.count("none")))
    assert set(ends) <= {"all-range:6", "identity:2x3", "none"}
    assert bf.load(tmp_path / "target.bf").problem.workload.spec in ("all-range:6", "identity:2x3")


STEP = """
import os, pathlib, signal, sys
import hdmm_bf as bf
made = bf.load(sys.argv[1])
left = int(sys.argv[3])
def counted(act):
    def run(self, *arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(self, *arguments, **options)
    return run
for name in ("mkdir", "write_bytes", "rename"):
    setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
made.save(sys.argv[2])
"""


@pytest.mark.slow
def test_a_process_killed_at_any_step_of_a_save_leaves_the_old_bundle_the_new_one_or_none(honest, tmp_path):
    new, target = tmp_path / "new.bf", tmp_path / "target.bf"
    new.mkdir()
    for name, content in honest["labels"].items():
        (new / name).write_bytes(content)
    found = []
    for step in range(1, 9):
        shutil.rmtree(target, ignore_errors=True)
        bf.fit("prefix:4", "line:4").save(target)
        process = subprocess.run(
            [sys.executable, "-c", STEP, str(new), str(target), str(step)], check=False, timeout=60
        )
        killed = process.returncode == -signal.SIGKILL
        found.append((killed, bf.load(target).problem.workload.spec if target.exists() else "none"))
    old, none, done = (True, "prefix:4"), (True, "none"), (False, "identity:2x3")
    assert found == [*[old] * 6, none, done], "mkdir, four files, two renames"


def test_a_save_that_cannot_take_the_place_of_the_old_bundle_brings_it_back(honest, tmp_path, monkeypatch):
    target = tmp_path / "target.bf"
    made = bf.fit("prefix:4", "line:4")
    made.save(target)
    rename = Path.rename

    def fails(self, goal):
        if ".new-" in self.name:
            raise OSError(5, "Input/output error")
        return rename(self, goal)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(InputError, match="Input/output error"):
        made.save(target)
    monkeypatch.undo()
    assert bf.load(target).problem.workload.spec == "prefix:4"
    assert os.listdir(tmp_path) == ["target.bf"]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"], ids=["long", "nul"])
def test_a_path_that_cannot_be_a_bundle_is_refused(name, tmp_path):
    for act in (bf.load, bf.fit("prefix:3", "line:3").save):
        with pytest.raises(InputError, match="is not a bundle|cannot be written"):
            act(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
