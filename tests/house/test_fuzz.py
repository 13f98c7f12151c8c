"""Thousands of damaged and forged bundles and histograms: each is accepted and true, or refused in one sentence.

Seeded. A part runs by default, all of it under the `slow` marker.
"""

import contextlib
import csv
import dataclasses
import io
import json
import os
import re
import resource

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.data.checked import checked_counts
from hdmm_bf.data.counts import read_counts
from hdmm_bf.problem.product import as_product
from hdmm_bf.release.plan import plan
from hdmm_bf.release.publish import publish
from tests.support.array_files import saved
from tests.support.command_line import call
from tests.support.mistakes import PEOPLE, _as_users_run_it  # noqa: F401
from tests.support.mutations import MUTATIONS, WEIGHTS, damaged, odd_arrays, pick, repair, report
from tests.support.pairs import paired

MOST_MEMORY = 2**30
"""Bytes by which all of this may grow the process."""


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
    if fit.strategy.kind == "blocks":
        assert_true_blocks(fit)
        return
    if fit.strategy.kind == "tree":
        assert_true_tree(fit)
        return
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
    assert fit.matrix_bound == pytest.approx(max(svd, dual), rel=1e-6)
    proven = fit.matrix_bound
    if "partners" in fit.proof:
        proven = max(proven, paired(W_G, mu, fit.proof["partners"], fit.proof["shares"]))
    assert proven * (1 - 1e-3) <= fit.bounds.lower <= proven * (1 + 1e-6)
    assert fit.bounds.lower <= fit.unit_error * (1 + 1e-9)
    assert fit.gap == pytest.approx(fit.unit_error / fit.bounds.lower - 1, rel=1e-6, abs=1e-9)
    assert fit.certified == (fit.noise == "gaussian" and fit.gap <= fit.requested_gap)


def assert_true_tree(fit):
    """The longest edge by the sets written out, and the error by draws of the noise that will be drawn."""
    policy, queries = fit.problem.policy, fit.problem.workload.matrix.dense()
    longest = np.abs(over_edges(fit.strategy.matrix(), policy)).sum(axis=0).max()
    assert fit.certificate.sensitivity == pytest.approx(longest, rel=1e-9)
    epsilon = 0.2
    z = plan(fit, epsilon=epsilon).sampler.draw(4000).astype(np.float64)
    errors = epsilon**2 * np.sum((z @ queries.T) ** 2, axis=1) / 2
    assert abs(errors.mean() - fit.unit_error) < 6 * errors.std() / np.sqrt(4000) + 0.02 * fit.unit_error


def assert_true_blocks(fit):
    """Sensitivity and error of an accepted block strategy, every row written out."""
    policy, queries = fit.problem.policy, fit.problem.workload.matrix.dense()
    loss = np.zeros(policy.num_edges)
    error = np.zeros(len(queries))
    for block in fit.strategy.blocks:
        rows, back = np.ones((1, 1)), np.ones((1, 1))
        for i in range(len(block.integers)):
            rows, back = np.kron(rows, block.factor(i)), np.kron(back, np.linalg.pinv(block.factor(i)))
        moves, precision = np.abs(over_edges(rows, policy)), block.full_precisions.ravel()
        assert not np.any(moves[np.isinf(precision)]), "rows without noise are seen by no edge"
        noisy = np.isfinite(precision)
        size = np.sqrt(precision[noisy, None])
        loss += ((size * moves[noisy]) ** 2 if fit.noise == "gaussian" else size * moves[noisy]).sum(axis=0)
        own = own_queries(fit, block)
        seen = noisy & (precision > 0)
        error[own] += ((queries[own] @ back[:, seen]) ** 2 / precision[seen]).sum(axis=1)
    sensitivity = np.sqrt(loss.max()) if fit.noise == "gaussian" else loss.max()
    rounding = 1e-12  # of the sums above, which processors add up in different orders
    assert sensitivity * (1 - rounding) <= fit.certificate.sensitivity <= sensitivity * (1 + 1e-8)
    assert fit.unit_error == pytest.approx(fit.certificate.sensitivity**2 * error.sum(), rel=1e-6)
    W_G, e = over_edges(queries, policy), policy.num_edges
    assert fit.bounds.svd <= np.linalg.svd(W_G, compute_uv=False).sum() ** 2 / e * (1 + 1e-6)
    assert fit.bounds.lower <= fit.unit_error * (1 + 1e-7)


def own_queries(fit, block):
    """Queries that a block answers: all, or those of its terms."""
    ends = np.cumsum([np.prod([f.shape[0] for f in term.factors]) for term in as_product(fit.problem).terms])
    term = np.searchsorted(ends, np.arange(fit.problem.workload.num_queries), side="right")
    return np.ones(term.size, dtype=bool) if block.terms is None else np.isin(term, block.terms)


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
            plan(fit, epsilon=1.0, delta=1e-6 if fit.noise == "gaussian" else None)
            message = repr(fit)
        assert message.isprintable(), (trial, names)
        assert sorted(os.listdir(folder)) == ["x.bf"], (trial, names, "something was written or executed")
    assert peak_memory() - before < MOST_MEMORY
    return accepted, refused


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
                assert np.all(np.isfinite(publish(settled, fit, x).answers))
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
    book = ("--ledger", "spent.db", "--new-ledger", "--total", "rho=0.5", "--data-id", "people")
    arguments = ("--rho", "0.5", "--out", "a.json", *book)
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
