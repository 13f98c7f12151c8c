"""Fits on several devices: the same numbers as on one, arrays that are really spread, and products alone."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import hdmm_bf as bf
from experiments.benchmarks import cluster
from hdmm_bf.bounds.dense import GramRoot, gram_scale
from hdmm_bf.objectives import PIdentity
from hdmm_bf.objectives.descent import minimise
from hdmm_bf.objectives.grams import DenseGram
from hdmm_bf.objectives.measures import total_of
from hdmm_bf.parallel import devices as dv
from hdmm_bf.parallel import sharded
from hdmm_bf.parallel.grams import spread_gram
from hdmm_bf.problem import inputs
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.strategies import search
from hdmm_bf.strategies.gaussian import dense as gaussian
from tests.support.command_line import assert_one_sentence, run
from tests.support.mistakes import assert_refused, table
from tests.support.on_devices import problems, spd

ROOT = Path(__file__).parents[2]
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
"""Compiling is nearly all of the time of these small problems."""


def started(*words):
    command = [sys.executable, "-W", "error", "-m", "tests.support.on_devices", *map(str, words)]
    return subprocess.Popen(
        command, env=os.environ | QUICK, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process, seconds=240):
    try:
        printed, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, printed


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def assert_same(found, name, count, reference, one):
    """Quotes fit: the number of devices changes no number by more than 1e-8 of it."""
    numbers, gram = found[f"{count} {name} numbers"], found[f"{count} {name} gram"]
    np.testing.assert_allclose(numbers, reference[f"{one} {name} numbers"], rtol=1e-8)
    expected = reference[f"{one} {name} gram"]
    np.testing.assert_allclose(gram, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def assert_as_in_memory(found, name, count):
    made = bf.fit(**problems()[name])
    expected = [made.unit_error, made.bounds.lower, made.bounds.svd]
    np.testing.assert_allclose(found[f"{count} {name} numbers"], expected, rtol=1e-6)


def assert_spread_evenly(found):
    """64 x 64 after padding: of every large matrix each device holds its share and no more."""
    assert np.all(found["2 shards"] == 64 * 64 * 8 // 2)
    assert np.all(found["4 shards"] == 64 * 64 * 8 // 4)
    assert found["4 temporary"] < found["2 temporary"] < found["1 temporary"]
    for count in (1, 2, 4):
        np.testing.assert_array_equal(found[f"{count} edge shards"], [64 * 64 * 8 // count] * count)


MATRIX_MOVES = re.compile(r"f64\[(\d+),(\d+)\]\S* (all-gather|all-reduce|all-to-all)\(")
FACTORISATIONS = re.compile(r"potrf|syev|getrf|geqrf|gesdd|trsm|cholesky|triangular-solve", re.IGNORECASE)


def assert_products_alone(program):
    """The compiled kernel multiplies; it neither factors matrices nor gathers them."""
    assert "collective-permute" in program
    assert not MATRIX_MOVES.search(program)
    assert not FACTORISATIONS.search(program)


@pytest.mark.slow
def test_fits_on_one_two_and_four_devices_are_the_same_and_really_spread(tmp_path):
    """One test, because its runs are dear and workers would each repeat them."""
    ended(started(tmp_path / "first.npz", "ranges,laplace", "1,2,4"))
    ended(started(tmp_path / "second.npz", "singular", "1,4"))
    found = {**np.load(tmp_path / "first.npz"), **np.load(tmp_path / "second.npz")}
    for name, count in [("ranges", 2), ("ranges", 4), ("laplace", 2), ("laplace", 4), ("singular", 4)]:
        assert_same(found, name, count, found, 1)
    assert_as_in_memory(found, "ranges", 4)
    assert_as_in_memory(found, "singular", 4)
    assert_spread_evenly(found)
    assert_products_alone(str(found["4 program"]))


def test_the_look_at_a_compiled_program_can_fail():
    with jax.enable_x64(True):
        program = jax.jit(jax.numpy.linalg.cholesky).lower(np.eye(4)).compile().as_text()
    assert FACTORISATIONS.search(program)
    assert MATRIX_MOVES.search("%g = f64[64,64]{1,0} all-gather(f64[16,64]{1,0} %p)")


@pytest.mark.slow
def test_two_processes_find_what_one_does(tmp_path):
    """Two processes with one device each, over jax.distributed, against one process with one device.

    A Laplace fit has both searches in it: its lower bound comes from the Gaussian one.
    """
    port = free_port()
    outs = [tmp_path / f"{i}.npz" for i in range(2)]
    pair = [started(out, "laplace", 2, i, 2, port) for i, out in enumerate(outs)]
    try:
        ended(started(tmp_path / "alone.npz", "laplace", 1))
        for process in pair:
            ended(process)
    finally:
        for process in pair:
            process.kill()
    for out in outs:
        assert_same(np.load(out), "laplace", 2, np.load(tmp_path / "alone.npz"), 1)


@pytest.mark.slow
def test_four_devices_in_two_processes_on_every_problem(tmp_path):
    port, names = free_port(), ",".join(problems())
    alone, *outs = (tmp_path / f"{name}.npz" for name in ("alone", "first", "second"))
    ended(started(alone, names, "1,2,3,4"), 500)
    pair = [started(out, names, 4, i, 2, port) for i, out in enumerate(outs)]
    for process in pair:
        ended(process)
    reference = np.load(alone)
    for name in problems():
        for count in (2, 3, 4):
            assert_same(reference, name, count, reference, 1)
        for out in outs:
            assert_same(np.load(out), name, 4, reference, 1)


# In this process, on the one device it has.


@pytest.fixture(scope="module")
def mesh():
    return dv.as_mesh(1, None)


def test_a_mesh_of_the_caller_is_followed(mesh):
    made = bf.fit("prefix:8", "line:8", mesh=jax.sharding.Mesh(np.array(jax.devices()[:1]), ("mine",)))
    assert made.unit_error == pytest.approx(7, rel=1e-3)
    assert made.certified


def test_the_factors_of_a_kronecker_product_are_spread(mesh):
    asked = problems()["factors"]
    made, expected = bf.fit(**asked, devices=1), bf.fit(**asked)
    assert made.unit_error == pytest.approx(expected.unit_error, rel=1e-9)
    assert made.bounds.lower == pytest.approx(expected.bounds.lower, rel=1e-9)
    assert made.certified


def test_the_callers_configuration_is_left_alone():
    """Quotes as_mesh: the caller's JAX configuration is not changed."""
    before = dict(jax.config.values)
    bf.fit("prefix:8", "line:8", devices=1)
    assert dict(jax.config.values) == before
    assert jax.numpy.ones(3).dtype == jax.numpy.float32


def test_every_edge_is_held_at_both_of_its_ends():
    forms = edge_forms(inputs.problem("identity:10", "threshold:10:3").P)
    found = sharded.half_edges(forms, 3, 3)
    width = found.edge.size // 3
    ends = {edge: set() for edge in range(forms.num_edges)}
    for place, edge in enumerate(found.edge):
        if edge < forms.num_edges:
            vertex = found.row[place] + 3 * (place // width)
            ends[edge] |= {vertex, found.column[place]}
            assert found.inner[place] == (vertex != found.column[place])
    expected = {e: {h, k} for e, h, k in zip(forms.inner, forms.high, forms.low, strict=True)}
    expected |= {e: {f} for e, f in zip(forms.grounded, forms.foot, strict=True)}
    assert ends == expected
    np.testing.assert_array_equal(found.edge[found.first], np.arange(forms.num_edges))


CASES = [("all-range:12", "threshold:12:3"), ("marginals:2x3x2:1", "bounded:12")]


@pytest.mark.parametrize(("workload", "policy"), CASES)
def test_spread_matrices_are_those_in_memory(mesh, workload, policy):
    problem = inputs.problem(workload, policy)
    root, forms = GramRoot(problem, gram_scale(problem)), edge_forms(problem.P)
    memory, spread = gaussian.InMemory(root, forms), gaussian.OnDevices(root, forms, mesh, gap=1e-3)
    mu = np.random.default_rng(0).uniform(0.5, 1.5, forms.num_edges)
    mu /= mu.sum()
    a, b = memory.at(mu), spread.at(mu)
    assert isinstance(b, sharded.Spread)
    np.testing.assert_allclose([a.root_sum, a.trace], [b.root_sum, b.trace], rtol=1e-9)
    np.testing.assert_allclose(a.d, b.d, rtol=1e-9)
    np.testing.assert_allclose(memory.curvature(a), spread.curvature(b), rtol=1e-7, atol=1e-9)
    change = np.random.default_rng(1).uniform(-0.02, 0.02, forms.num_edges) * a.d.max()
    (value, X), (other, Y) = memory.moved(a, change), spread.moved(b, change)
    assert other == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(np.tril(X), np.tril(spread.to_host(Y)), atol=1e-9 * np.abs(X).max())


def test_a_move_that_leaves_the_cone_has_infinite_error(mesh):
    problem = inputs.problem("identity:6", "threshold:6:2")
    kernel = gaussian.on_devices(problem, mesh, gap=1e-3)
    e = problem.policy.num_edges
    point = kernel.at(np.full(e, 1 / e))
    error, _ = kernel.moved(point, -2.0 * point.d)
    assert error == np.inf


def test_hopeless_conditioning_is_gathered_and_said(mesh):
    """Queries of weight 1e-8 beside weight 1: the condition number of S is 1e16."""
    W = np.diag([1.0] * 4 + [1e-8] * 4)
    made = bf.fit(W, "unbounded:8", devices=1)
    assert made.why == gaussian.GATHERED
    assert made.unit_error == pytest.approx(bf.fit(W, "unbounded:8").unit_error, rel=1e-3)
    assert made.certified


def test_the_search_on_devices_never_claims_more_than_is_true(mesh):
    problem = inputs.problem("all-range:24", "threshold:24:2")
    kernel = gaussian.on_devices(problem, mesh, gap=1e-6)
    found = search(gaussian.steps(problem, gap=1e-6, kernel=kernel), gap=1e-6, max_iterations=100)
    exact = search(gaussian.steps(problem, gap=1e-9), gap=1e-9, max_iterations=400)
    assert found.bound <= exact.error * (1 + 1e-12)
    assert found.error >= exact.bound * (1 - 1e-12)


def test_the_spread_loss_is_the_loss(mesh):
    rng = np.random.default_rng(0)
    V = spd(21, 1e2, rng)
    rows = rng.uniform(size=(4, 21))
    spread, expected = (p_identity_loss(V, 4, mesh) for mesh in (mesh, None))
    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(spread))(rows)
        value_expected, slope_expected = jax.jit(jax.value_and_grad(expected))(rows)
    assert float(value) == pytest.approx(float(value_expected), rel=1e-13)
    np.testing.assert_allclose(slope, slope_expected, rtol=1e-10, atol=1e-13)


def p_identity_loss(V, rows, mesh):
    with jax.enable_x64(True):
        gram = DenseGram(jax.numpy.asarray(V)) if mesh is None else spread_gram(V, mesh)
        return total_of(gram).of(PIdentity(rows, len(V)))


@pytest.mark.slow
def test_the_spread_loss_descends_on_a_device_too(mesh):
    """The route of accelerators, where the iteration stays on the device."""
    rng = np.random.default_rng(0)
    V = spd(16, 1e2, rng)
    rows = rng.uniform(size=(2, 16))
    loss = p_identity_loss(V, 2, None)
    found = minimise(p_identity_loss(V, 2, mesh), rows, steps=30, method=optax.lbfgs(memory_size=15))
    assert float(loss(found.parameters)) == pytest.approx(found.value, rel=1e-12)
    assert found.value < float(loss(rows))


def test_the_page_on_clusters_says_what_the_script_computes():
    page = (ROOT / "docs" / "explanation" / "cluster.md").read_text()
    for part in cluster.report():
        assert (part if isinstance(part, str) else part.markdown()) in page


def test_the_calculation_of_clusters_has_its_limits_right():
    """One device passes nothing; where both take as long the formula is N = n B / (4 F)."""
    computing, passing = cluster.product_seconds(cluster.H100, 1, 1000)
    assert passing == 0
    assert computing == pytest.approx(2e9 / (0.7 * 66.9e12))
    n = cluster.largest(cluster.H100, 8)
    assert cluster.MATRICES * 8 * n**2 / 8 == pytest.approx(0.9 * 80e9, rel=1e-3)
    count = cluster.balance(cluster.H100, 450e9, 10**6)
    assert 2e18 / (count * 0.7 * 66.9e12) == pytest.approx(8e12 / 450e9)


def test_the_command_line_refuses_more_devices_than_it_can_make():
    words = ["fit", "--workload", "prefix:8", "--policy", "line:8", "--devices", "999"]
    assert_one_sentence(run(*words), "devices=999", "Ask for fewer")


@pytest.mark.slow
def test_the_command_line_splits_a_cpu():
    made = run("fit", "--workload", "all-range:16", "--policy", "threshold:16:2", "--devices", "3", "--json")
    expected = bf.fit("all-range:16", "threshold:16:2").unit_error
    assert json.loads(made.stdout)["unit_error"] == pytest.approx(expected, rel=1e-6)


def test_a_mesh_that_leaves_out_a_process_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert_refused(lambda: bf.fit("prefix:8", "line:8", devices=1), "a mesh of 1 devices", "jax.devices()")


def two_axes():
    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))


@table(
    (lambda: bf.fit("prefix:8", "line:8", devices=0), "devices=0", "for example 4"),
    (lambda: bf.fit("prefix:8", "line:8", devices=True), "devices=True", "for example 4"),
    (lambda: bf.fit("prefix:8", "line:8", devices=99), "devices=99", "JAX_NUM_CPU_DEVICES"),
    (lambda: bf.fit("prefix:8", "line:8", mesh=4), "mesh of type int", "jax.sharding.Mesh("),
    (lambda: bf.fit("prefix:8", "line:8", mesh=two_axes()), "axes ('a', 'b')", "jax.sharding.Mesh("),
    (lambda: bf.fit("prefix:8", "line:8", devices=1, mesh=two_axes()), "devices=1 and a mesh", "Leave one out"),
    (lambda: bf.fit("all-range:9", "cycle:9", noise="laplace", devices=1), "family=None", "family='p-identity'"),
    (lambda: bf.fit("all-range:9", "line:9", noise="laplace", family="vertex", devices=1), "'vertex'", "Use family="),
    (lambda: bf.fit("all-range:4x4", "line:16", family="bases", devices=1), "family='bases'", ""),
    (lambda: bf.fit("all-range:4x4", "threshold:4x4:1", family="bases", devices=1), "for 16 cells", "Leave devices"),
    (lambda: bf.fit("prefix:4x4", "unbounded:4x4", family="cells", noise="laplace", devices=1), "'cells'", "Leave dev"),
)
def test_what_cannot_be_spread_is_refused(case):
    assert_refused(*case)
