"""Weights of queries steer the search; what is published is of the queries as written."""

import csv
import json

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import workload
from hdmm_bf.report.export import write_answers

PUBLIC = np.array([5, 0, 2, 7])


def dense(weight):
    cells = workload.identity(4)
    return workload.union(workload.prefix(4), cells if weight == 1 else workload.weighted(cells, weight))


def tables(weight):
    cells = workload.marginals("3x2x2", 2)
    return workload.union(workload.marginals("3x2x2", 1), cells if weight == 1 else workload.weighted(cells, weight))


KINDS = {
    "dense": (dense, "threshold:4:2", {}),
    "dense vector": (lambda w: workload.weighted(dense(1), [1] * 4 + [w] * 4), "threshold:4:2", {}),
    "marginals": (tables, "sensitive:3x2x2:0,1", {"family": "marginals"}),
    "bases": (
        lambda w: workload.union(workload.all_range("3x4"), workload.weighted(workload.prefix("3x4"), w)),
        "threshold:3x4:1",
        {"family": "bases"},
    ),
    "product of weighted": (
        lambda w: workload.product(workload.weighted(workload.prefix(3), [1, 1, w]), workload.identity(4)),
        "threshold:3x4:1",
        {"family": "bases"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_change_no_published_answer(kind, tmp_path):
    """Quotes workload.weighted: published answers, their names and their standard deviations are of the queries."""
    make, graph, options = KINDS[kind]
    queries = make(3.0)
    fit = bf.fit(queries, graph, **options)
    counts = np.arange(queries.num_cells) + 1
    truth = queries.matrix.mv(counts)
    for held in (fit, bf.load(fit.save(tmp_path / "w.bf"))):
        assert held.problem.workload.is_weighted
        out = bf.release(held, counts, rho=1e7)
        np.testing.assert_allclose(out.answers, truth, atol=1)
        np.testing.assert_allclose(out.answer(queries)[0], out.answers, atol=1e-9)
        np.testing.assert_allclose(held.problem.workload.matrix.dense(), queries.matrix.dense())
        np.testing.assert_allclose(held.problem.workload.weights(), queries.weights())
        assert held.rmse(rho=0.5) == pytest.approx(fit.rmse(rho=0.5), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_rmse_of_weighted_queries_is_that_of_the_answers_as_written(kind):
    make, graph, options = KINDS[kind]
    fit = bf.fit(make(3.0), graph, **options)
    out = bf.release(fit, np.ones(fit.problem.workload.num_cells, dtype=int), rho=0.5)
    mean = np.sqrt(np.mean(out.stddev**2))
    assert out.plan.rmse == pytest.approx(mean, rel=1e-9)
    assert fit.rmse(rho=0.5) == pytest.approx(mean, rel=1e-9)
    np.testing.assert_allclose(fit.per_query_stddev(rho=0.5), out.stddev, rtol=1e-9, atol=1e-12)
    rho = 5e-9  # so little that rounding to whole numbers, 1/12 on every row, is nothing beside the noise
    weighted = np.sum((fit.problem.workload.weights() * fit.per_query_stddev(rho=rho)) ** 2)
    assert 2 * rho * weighted == pytest.approx(fit.unit_error, rel=1e-6)  # of the weighted queries


@pytest.mark.parametrize("kind", KINDS)
def test_weights_steer_the_search(kind):
    """The heavy queries get better, at the cost of the others."""
    make, graph, options = KINDS[kind]
    light, heavy = bf.fit(make(1.0), graph, **options), bf.fit(make(10.0), graph, **options)
    chosen = heavy.problem.workload.weights() > 1
    plain, steered = light.per_query_stddev(rho=0.5), heavy.per_query_stddev(rho=0.5)
    assert np.sum(steered[chosen] ** 2) < 0.999 * np.sum(plain[chosen] ** 2)
    assert np.sum(steered[~chosen] ** 2) > 1.001 * np.sum(plain[~chosen] ** 2)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_files_of_a_weighted_release_hold_the_queries_as_written(noise, tmp_path):
    fit = bf.fit(dense(2.0), "line:4", noise=noise, max_steps=30)
    out = bf.release(fit, PUBLIC, **({"rho": 1e6} if noise == "gaussian" else {"epsilon": 1e4}))
    path = write_answers(out, tmp_path / "a.csv", level=0.9)
    rows = list(csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith("#")))
    expected = [5, 5, 7, 14, 5, 0, 2, 7]
    assert [float(row["answer"]) for row in rows] == pytest.approx(expected, abs=0.5)
    assert rows[4]["query"] == "cell 0"
    low, high = out.interval(0.999999)
    assert np.all((low <= np.array(expected) + 1e-9) & (np.array(expected) - 1e-9 <= high))


def test_a_problem_file_with_weights_publishes_what_its_labels_say(tmp_path):
    from hdmm_bf.fit import problem_file

    text = """[policy]\nspec = "line:4"\n[workload]\nunion = ["prefix:4", "identity:4"]\nweights = [1, 2]\n"""
    (tmp_path / "p.toml").write_text(text)
    asked = problem_file.read(tmp_path / "p.toml")
    out = bf.release(bf.fit(asked.workload, asked.policy), PUBLIC, rho=1e7)
    assert out.answers == pytest.approx([5, 5, 7, 14, 5, 0, 2, 7], abs=0.5)


def test_a_bundle_with_forged_weights_is_refused(tmp_path):
    import hashlib

    fit = bf.fit(dense(2.0), "line:4")
    path = fit.save(tmp_path / "w.bf")
    with np.load(path / "workload.npz") as held:
        arrays = dict(held)
    for forged in (-arrays["weights"], 2 * arrays["weights"], arrays["weights"][:2], np.array(["a"] * 8)):
        np.savez(path / "workload.npz", **{**arrays, "weights": forged})
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"]["workload.npz"] = hashlib.sha256((path / "workload.npz").read_bytes()).hexdigest()
        (path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(bf.InputError):
            bf.load(path)


def test_a_weighted_fit_says_what_its_error_counts():
    from hdmm_bf.cli.fit import describe

    assert "answers will be of the queries as written" in describe(bf.fit(dense(2.0), "line:4"))
    assert "as written" not in describe(bf.fit(dense(1), "line:4"))
