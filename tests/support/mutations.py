"""Ways to damage and forge the files of a bundle, seeded; used by the fuzz tests."""

import contextlib
import copy
import hashlib
import io
import json
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from tests.support.array_files import npy, saved, zipped
from tests.support.mistakes import PEOPLE, _as_users_run_it  # noqa: F401

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
        "basis": bf.fit("all-range:3x2", "threshold:3x2:1", family="bases"),
        "tables": bf.fit("marginals:3x2x2:2", "sensitive:3x2x2:0", family="marginals"),
        "union": bf.fit("marginals:3x2x2:1", "unbounded:3x2x2", noise="laplace", family="union"),
        "tree": bf.fit("all-range:6", "threshold:6:2", noise="norm", max_steps=1),
        "low rank": bf.fit(np.array([[1.0, 1, 0, 0, 0, 0]]), "unbounded:6"),
    }
    paths = {name: fit.save(folder / f"{name}.bf") for name, fit in fits.items()}
    return {name: {file.name: file.read_bytes() for file in sorted(path.iterdir())} for name, path in paths.items()}


def report(what, whole, rest):
    """For the reader of a run with -s."""
    sys.stderr.write(f"\n{what}: {whole} accepted or whole, {rest} refused or none\n")


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
