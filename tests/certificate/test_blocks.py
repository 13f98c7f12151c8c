"""Block strategies: certificate, release and bundle against the definitions, on domains that can be written out."""

import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import certify
from hdmm_bf.certificate.exact import block_sensitivity, blocks
from hdmm_bf.fit import loading
from hdmm_bf.fit.memory import product_bytes
from hdmm_bf.fit.reserve import product_seconds
from hdmm_bf.problem.product import as_product
from hdmm_bf.release.products import ProductRecovery
from hdmm_bf.release.row_noise import row_scales, row_variances
from hdmm_bf.strategies.blocks import from_factors, from_integers
from hdmm_bf.strategies.laplace import unions
from hdmm_bf.strategies.records import ProductStrategy

CASES = {
    "grid": ("all-range:5x4", "threshold:5x4:1", "gaussian", "bases"),
    "sectors": ("marginals:5x3x2:2", "product:line:5,bounded:3,empty:2", "gaussian", "sectors"),
    "marginals": ("marginals:3x4x2:2", "sensitive:3x4x2:0,2", "gaussian", "marginals"),
    "unbounded marginals": ("marginals:3x4x2:all", "unbounded:3x4x2", "gaussian", "marginals"),
    "star": ("all-range:6x5", "unbounded:6x5", "gaussian", "kronecker"),
    "Laplace star": ("all-range:6x5", "unbounded:6x5", "laplace", "kronecker"),
    "Laplace tables": ("marginals:3x4x2:1", "unbounded:3x4x2", "laplace", "union"),
    "Laplace sensitive": ("marginals:3x4x2:1", "sensitive:3x4x2:0,2", "laplace", "union"),
}


@pytest.fixture(scope="module", params=CASES)
def fit(request):
    workload, policy, noise, family = CASES[request.param]
    limit = 2.0 if noise == "laplace" else None
    return bf.fit(workload, policy, noise=noise, family=family, max_seconds=limit)


def dense_rows(fit):
    """Every measured row over the cells, with the standard deviation of its noise at unit scale."""
    rows, spread = [], []
    for block in fit.strategy.blocks:
        dense = block.factor(0)
        for i in range(1, len(block.integers)):
            dense = np.kron(dense, block.factor(i))
        rows.append(dense)
        spread.append(1 / np.sqrt(block.full_precisions.ravel()))
    return np.vstack(rows), np.concatenate(spread)


def test_the_sensitivity_is_the_largest_loss_over_all_edges(fit):
    """Quotes certify: the sensitivity is rounded up; rows of infinite precision are invisible to every edge."""
    rows, spread = dense_rows(fit)
    full = np.hstack([rows, np.zeros((len(rows), 1))])  # BOTTOM
    u, v = fit.problem.policy.edges.T
    moves = full[:, u] - full[:, v]
    public = spread == 0
    assert not np.any(moves[public]), "rows without noise are seen by no edge"
    ratios = np.abs(moves[~public]) / spread[~public, None]
    largest = (ratios**2).sum(axis=0).max() ** 0.5 if fit.noise == "gaussian" else ratios.sum(axis=0).max()
    assert fit.certificate.sensitivity == pytest.approx(largest, rel=2e-9)
    assert fit.certificate.sensitivity >= largest


def test_answers_are_unbiased_and_the_unit_error_is_their_variance(fit):
    """Answers are linear in the rows: exact rows must give exact answers, and independent noise the stated error."""
    rows, spread = dense_rows(fit)
    W = fit.problem.workload.matrix.dense()
    recovery = ProductRecovery(fit.problem, fit.strategy)
    shapes = [block.shape for block in fit.strategy.blocks]
    ends = np.cumsum([math.prod(shape) for shape in shapes])

    def answers(flat):
        parts = np.split(flat, ends[:-1])
        measured = [p.reshape(s) for p, s in zip(parts, shapes, strict=True)]
        return recovery.answers(fit.problem.workload, measured)

    R = np.column_stack([answers(e) for e in np.eye(len(rows))])
    np.testing.assert_allclose(R @ rows, W, atol=1e-8)
    total = fit.certificate.sensitivity**2 * float(((R * spread) ** 2).sum())
    assert fit.unit_error == pytest.approx(total, rel=1e-9)
    variances = recovery.unit_variances()
    np.testing.assert_allclose(variances, ((R * spread) ** 2).sum(axis=1), rtol=1e-9, atol=1e-12)


def test_the_bound_is_below_the_dense_tight_bound(fit):
    """Quotes product_bound: no strategy of L2 sensitivity 1 has a smaller unit error than `lower`."""
    tight = bf.bound(fit.problem.workload, fit.problem.policy, gap=1e-4)
    assert fit.matrix_bound <= tight.lower * (1 + 2e-4)
    assert fit.bounds.svd == pytest.approx(tight.svd, rel=1e-4)
    assert fit.unit_error >= tight.lower * (1 - 1e-9)


def test_bundles_of_blocks_come_back_bit_by_bit(fit, tmp_path):
    loaded = bf.load(fit.save(tmp_path / "large.bf"))
    _, found = loading.check(tmp_path / "large.bf")
    assert found == []
    assert loaded.unit_error == fit.unit_error
    for old, new in zip(fit.strategy.blocks, loaded.strategy.blocks, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(old.integers, new.integers, strict=True))
        assert np.array_equal(old.precisions, new.precisions)
    assert loaded.summary()["discloses"] == fit.summary()["discloses"]


def test_releases_have_the_stated_error(fit):
    """Total squared error against the sum of the stated variances, within five standard errors of the mean."""
    x = np.random.default_rng(3).integers(0, 30, fit.problem.policy.num_cells)
    truth = fit.problem.workload.matrix.mv(x)
    asked = {"epsilon": 1.0} if fit.noise == "laplace" else {"rho": 0.5}
    outs = [bf.release(fit, x, **asked) for _ in range(100)]
    errors = np.array([((out.answers - truth) ** 2).sum() for out in outs])
    stated = float((outs[0].stddev ** 2).sum())
    room = 5 * errors.std(ddof=1) / math.sqrt(errors.size)
    assert abs(errors.mean() - stated) <= room
    assert stated <= outs[0].plan.expected_error * (1 + 1e-9)  # discrete noise on a coarse grid has less


def test_the_loss_of_the_noise_drawn_is_the_claim(fit):
    """Quotes publish: neighbours differ by at most what the plan promises. From the noise scales drawn."""
    asked = {"epsilon": 0.7} if fit.noise == "laplace" else {"rho": 0.3}
    plan = bf.plan(fit, **asked)
    u, v = fit.problem.policy.edges.T
    loss = np.zeros(u.size)
    for block in fit.strategy.blocks:
        whole = block.integers[0]
        for i in range(1, len(block.integers)):
            whole = np.kron(whole, block.integers[i])
        full = np.hstack([whole, np.zeros((len(whole), 1), dtype=np.int64)])
        moves = np.abs(full[:, u] - full[:, v]).astype(float)
        scales = row_scales(block, plan).ravel()
        noisy = scales > 0
        assert not np.any(moves[~noisy & (block.full_precisions.ravel() > 0)])
        part = moves[noisy] / scales[noisy, None]
        loss += (part**2 / 2).sum(axis=0) if fit.noise == "gaussian" else part.sum(axis=0)
    claim = 0.3 if fit.noise == "gaussian" else 0.7
    assert loss.max() <= claim
    assert loss.max() == pytest.approx(claim, rel=1e-8)


def test_records_and_histograms_give_the_same_tables(monkeypatch):
    fit = bf.fit("marginals:3x4x2:2", "sensitive:3x4x2:0,2", family="marginals")
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.integers(0, n, 200) for n in (3, 4, 2)])
    counts = np.bincount(np.ravel_multi_index(values.T, (3, 4, 2)), minlength=24)
    room = [0] * len(fit.strategy.blocks)
    records = bf.Records(values, fit.problem.policy.domain)
    from hdmm_bf.data.checked import as_tables

    one = fit.recovery.exact_answers(as_tables(fit.problem, counts), room=room)
    other = fit.recovery.exact_answers(as_tables(fit.problem, records), room=room)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    for block, measured in zip(fit.strategy.blocks, one, strict=True):
        whole = block.integers[0]
        for i in range(1, len(block.integers)):
            whole = np.kron(whole, block.integers[i])
        assert np.array_equal(whole @ counts, measured.ravel())


def test_a_row_without_noise_that_an_edge_sees_is_refused():
    product = as_product(bf.Problem(bf.workload.parse("identity:2x2"), bf.policy.parse("threshold:2x2:1")))
    block = from_factors([np.eye(2), np.eye(2)], np.full((1, 1), np.inf))
    with pytest.raises(InputError, match="is seen by an edge"):
        certify(ProductStrategy((block,), "bad"), product.problem, noise="gaussian", proof=None)


def test_a_strategy_that_does_not_support_the_workload_is_refused():
    product = as_product(bf.Problem(bf.workload.parse("identity:2x2"), bf.policy.parse("unbounded:2x2")))
    block = from_factors([np.ones((1, 2)), np.eye(2)], np.ones((1, 1)))
    strategy = ProductStrategy((block,), "bad")
    assert block_sensitivity(product.edges, strategy.blocks, "gaussian") == 4**30
    with pytest.raises(InputError, match="outside the strategy"):
        certify(strategy, product.problem, noise="gaussian", proof=None)


def test_other_queries_are_answered_from_the_same_release():
    fit = bf.fit("all-range:5x4", "threshold:5x4:1", family="bases")
    x = np.arange(20)
    out = bf.release(fit, x, rho=1e6)
    for spec in ("identity:5x4", "random-range:5x4:30:seed=1", "prefix:5x4"):
        asked = bf.workload.parse(spec)
        answers, stddev = out.answer(asked)
        np.testing.assert_allclose(answers, asked.matrix.mv(x), atol=0.2)
        spreads = [row_variances(block, out.plan) for block in fit.strategy.blocks]
        C = np.zeros((20, 20))
        for block, spread in zip(fit.strategy.blocks, spreads, strict=True):
            G = np.kron(*block.inverses)
            C += (G * spread.ravel()) @ G.T
        np.testing.assert_allclose(stddev**2, asked.matrix.quadratic(C), rtol=1e-8, atol=1e-18)


def test_large_domains_are_fitted_by_structure_and_say_why():
    fit = bf.fit("all-range:70x70", "unbounded:70x70")
    assert fit.family == "kronecker"
    assert "product of the attributes' optima" in fit.why
    with pytest.raises(InputError, match="would need"):
        bf.fit("random-range:300x300:10:seed=1", "threshold:300x300:2")
    with pytest.raises(InputError, match="products"):
        bf.fit("random-range:4x4:10:seed=1", "threshold:4x4:2", family="bases")


def test_bounds_of_large_domains_come_from_the_factors():
    star = bf.bound("all-range:70x70", "unbounded:70x70")
    assert star.gap <= 1e-3
    assert star.lower >= star.svd
    grid = bf.bound("all-range:70x70", "threshold:70x70:1")
    assert grid.svd < grid.lower < 1.05 * grid.svd
    assert math.isinf(grid.gap)


def test_memory_is_predicted_within_thirty_percent_of_the_measured_peak():
    """The peaks are those of the committed table, printed by `python -m experiments.benchmarks products`."""
    text = (Path(__file__).parents[2] / "experiments/benchmarks/results/products.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if " x " in line[:14]]
    assert len(rows) == 5
    for row in rows:
        side, peak = row[1].replace(" ", ""), float(row[9]) * 2**30
        product = as_product(bf.Problem(bf.workload.all_range(side), bf.policy.threshold(side, 1)))
        assert product_bytes(product, "bases") == pytest.approx(peak, rel=0.3)


def test_a_structured_fit_that_would_not_fit_in_memory_is_refused_before_it_starts():
    with pytest.raises(InputError, match="would need"):
        bf.fit("all-range:6000x6000", "threshold:6000x6000:1")


@pytest.mark.parametrize(("precision", "bits"), [(5e-324, (0, 0)), (1e-61, (0, 0)), (1e61, (0, 0)), (1.0, (62, 62))])
def test_a_strategy_whose_loss_could_vanish_in_floating_point_is_refused(precision, bits):
    """It would pass for public, and be released without noise."""
    product = as_product(bf.Problem(bf.workload.parse("identity:2x2"), bf.policy.parse("unbounded:2x2")))
    eye = np.eye(2, dtype=np.int64)
    block = from_integers((eye, eye), bits, np.full((1, 1), precision))
    with pytest.raises(InputError, match="does not fit the domain"):
        certify(ProductStrategy((block,), "bad"), product.problem, noise="gaussian", proof=None)


def test_constant_rows_stay_constant_on_the_grid():
    """Quotes from_factors: rows that are constant stay constant; the inverses are those of the integers."""
    factor = np.vstack([np.full(3, 1 / 3), np.random.default_rng(0).normal(size=(2, 3))])
    block = from_factors([factor, np.eye(2)], np.ones((3, 2)))
    assert len(set(block.integers[0][0].tolist())) == 1
    for i in range(2):
        np.testing.assert_allclose(block.inverses[i] @ block.factor(i), np.eye(block.factor(i).shape[1]), atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_edges_in_portions_have_the_same_largest_loss_as_all_at_once(case, monkeypatch):
    workload, policy, noise, family = CASES[case]
    fit = bf.fit(workload, policy, noise=noise, family=family, max_steps=2)
    product = as_product(fit.problem)
    whole = block_sensitivity(product.edges, fit.strategy.blocks, noise)
    monkeypatch.setattr(blocks, "_MOST_AT_ONCE", 0)
    for portion in (1, 16, 2**22):
        monkeypatch.setattr(blocks, "_PORTION", portion)
        assert block_sensitivity(product.edges, fit.strategy.blocks, noise) == pytest.approx(whole, rel=1e-9)


@pytest.mark.slow
def test_tables_with_many_edges_are_certified_in_portions():
    """Of 90 thousand edges along two attributes, at 6000 cells each, none is left out; the share of each is closed."""
    fit = bf.fit("marginals:300x300x20:2", "sensitive:300x300x20:0,1", noise="laplace")
    assert fit.certificate.sensitivity == pytest.approx(1.0, rel=1e-6)
    assert fit.unit_error <= unions.first(as_product(fit.problem)).error * (1 + 1e-3)


PEAK = """
import pathlib, re, sys
import hdmm_bf as bf
queries, graph = sys.argv[1:]
predicted = bf.memory_needed(queries, graph)
bf.fit(queries, graph)
peak = re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())  # of this process alone
print(predicted / (int(peak[1]) * 1024))
"""
TABLES = ("marginals:100x50x7x2:2", "product:line:100,bounded:50,bounded:7,empty:2")


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read as Linux has them")
def test_memory_of_tables_with_many_edges_is_predicted_within_thirty_percent():
    run = subprocess.run([sys.executable, "-c", PEAK, *TABLES], capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(1.0, abs=0.3)


def test_seconds_are_left_for_the_losses_of_all_edges():
    """In units of an eigenvalue problem: 1225 edges at 1400 cells each take more than the factors do."""
    many, few = (as_product(bf.problem(queries, TABLES[1])) for queries in (TABLES[0], "marginals:100x50x7x2:1"))
    assert product_seconds(many, "sectors", "gaussian") > product_seconds(few, "marginals", "gaussian")


@pytest.mark.slow
def test_certifying_takes_no_longer_than_was_left_over():
    fit = bf.fit(*TABLES)
    seconds = product_seconds(as_product(fit.problem), fit.family, fit.noise)
    started = time.process_time()
    certify(fit.strategy, fit.problem, noise=fit.noise, proof=fit.proof, bounds=fit.bounds)
    assert time.process_time() - started <= 2 * seconds
