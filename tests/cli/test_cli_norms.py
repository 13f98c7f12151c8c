"""Tree norms on the command line: fit, verify, release, export, report, compare by budget, auto, bounds."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from hdmm_bf.cli import app


def run(*arguments, code=0):
    result = CliRunner().invoke(app, list(arguments), standalone_mode=False)
    if code == 0:
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


PROBLEM = ["-w", "all-range:12", "-g", "threshold:12:2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("norms")
    run("fit", *PROBLEM, "--noise", "norm", "--quick", "--max-steps", "3", "--out", str(folder / "a.bf"))
    return folder


def test_fit_and_verify_tell_the_yardstick_and_no_bound(folder):
    result = run("fit", *PROBLEM, "--noise", "norm", "--quick", "--max-steps", "3", "--epsilon", "1", "--json")
    record = json.loads(result.stdout)
    assert record["noise"] == "norm"
    assert record["lower_bound"] is None
    assert record["matrix_bound"] > 0
    assert record["rmse"] > 0
    assert record["budget"] == {"epsilon": 1.0}
    verified = json.loads(run("verify", str(folder / "a.bf"), "--json").stdout)
    assert verified["unit_error"] == pytest.approx(record["unit_error"], rel=1e-9)
    assert "a yardstick: it does not bind tree norms" in run("verify", str(folder / "a.bf")).stdout


def test_release_writes_answers_with_simulated_intervals(folder):
    (folder / "c.csv").write_text("\n".join(map(str, range(12))))
    plan = json.loads(run("release", str(folder / "a.bf"), "--epsilon", "1", "--dry-run", "--json").stdout)
    assert plan["any_unbiased_rmse"] < plan["rmse"]
    out = folder / "o.json"
    run("release", str(folder / "a.bf"), "--data", str(folder / "c.csv"), "--epsilon", "1", "--out", str(out))
    assert len(json.loads(out.read_text())["answer"]) == 78
    text = folder / "o.csv"
    run("release", str(folder / "a.bf"), "--data", str(folder / "c.csv"), "--epsilon", "1", "--out", str(text))
    notes = json.loads((folder / "o.csv-metadata.json").read_text())["notes"][0]
    assert notes["noise"].startswith("whole numbers on the cells, by the norm of a tree")
    assert notes["interval"].startswith("95 %, simulated")


def test_export_holds_the_matrix_and_the_tree(folder):
    run("export", str(folder / "a.bf"), "--format", "npz", "--out", str(folder / "s.npz"))
    held = np.load(folder / "s.npz")
    assert str(held["kind"]) == "tree"
    assert held["strategy"].shape[1] == 12
    assert held["parents"].shape == held["weights"].shape
    moves = [np.abs(held["strategy"][:, u] - held["strategy"][:, v]).sum() for u, v in held["edges"]]
    assert float(held["sensitivity"]) == pytest.approx(max(moves), rel=1e-12)


def test_the_report_draws_the_sets_and_names_the_yardstick(folder):
    run("report", str(folder / "a.bf"), "--out", str(folder / "r.html"))
    page = (folder / "r.html").read_text()
    assert "How noise is drawn" in page
    assert "bound of matrix mechanisms" in page
    assert "No unbiased mechanism that keeps the same promise is below" in page


def test_compare_sets_noises_side_by_side_at_a_budget():
    given = ["--epsilon", "1", "--delta", "1e-6", "--max-steps", "2"]
    record = json.loads(run("compare", *PROBLEM, *given, "--json").stdout)
    assert {row["noise"] for row in record["rows"]} == {"norm", "laplace", "gaussian"}
    errors = [row["rmse"] for row in record["rows"]]
    assert errors == sorted(errors)
    assert record["any_unbiased_rmse"] is None
    pure = json.loads(run("compare", *PROBLEM, "--epsilon", "1", "--max-steps", "2", "--json").stdout)
    assert {row["noise"] for row in pure["rows"]} == {"norm", "laplace"}
    assert 0 < pure["any_unbiased_rmse"] < pure["rows"][0]["rmse"]


def test_compare_of_tree_norms_lists_the_mechanisms_beside_the_yardstick():
    record = json.loads(run("compare", *PROBLEM, "--noise", "norm", "--max-steps", "2", "--json").stdout)
    assert record["lower_bound"] is None
    assert record["matrix_bound"] > 0
    assert {"paper", "classical", "ours"} <= {row["kind"] for row in record["rows"]}


def test_auto_says_why():
    result = run("fit", *PROBLEM, "--noise", "auto", "--epsilon", "1", "--max-steps", "2")
    assert "least rmse at epsilon 1" in result.stdout


def test_bound_tells_what_no_unbiased_mechanism_is_below():
    pure = json.loads(run("bound", *PROBLEM, "--epsilon", "1", "--json").stdout)
    zcdp = json.loads(run("bound", *PROBLEM, "--rho", "0.5", "--json").stdout)
    assert pure["any_unbiased_rmse"] > 0
    assert zcdp["any_unbiased_rmse"] == pytest.approx(np.sqrt(zcdp["lower_bound"] / np.expm1(1.0) / 78), rel=1e-9)
    assert json.loads(run("bound", *PROBLEM, "--json").stdout)["any_unbiased_rmse"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", *PROBLEM, "--noise", "auto"], "needs the budget"),
        (["fit", *PROBLEM, "--noise", "norm", "--epsilon", "1", "--delta", "1e-6"], "takes epsilon alone"),
        (["bound", *PROBLEM, "--epsilon", "-1"], "must be a positive number"),
        (["compare", *PROBLEM, "--delta", "1e-6"], "Gaussian noise takes epsilon and delta"),
    ],
)
def test_budgets_that_do_not_go_together_get_a_sentence(arguments, words):
    result = run(*arguments, code=2)
    assert words in str(result.exception), result.exception


@pytest.mark.slow
def test_public_groups_go_from_fit_to_release_and_report(tmp_path):
    """4500 cells, of which 30 at a time are hidden from each other."""
    bundle, counts, out = tmp_path / "g.bf", tmp_path / "c.csv", tmp_path / "o.json"
    problem = ["-w", "prefix:30x150", "-g", "product:line:30,empty:150"]
    run("fit", *problem, "--noise", "norm", "--max-steps", "1", "--out", str(bundle))
    assert json.loads(run("verify", str(bundle), "--json").stdout)["num_cells"] == 4500
    counts.write_text("\n".join(["2"] * 4500))
    run("release", str(bundle), "--data", str(counts), "--epsilon", "1", "--out", str(out))
    answers = json.loads(out.read_text())["answer"]
    assert answers[-150:] == [60.0 * (group + 1) for group in range(150)]  # public totals
    run("report", str(bundle), "--out", str(tmp_path / "r.html"))
    assert "the same in each of 150 groups" in (tmp_path / "r.html").read_text()
    run("export", str(bundle), "--format", "npz", "--out", str(tmp_path / "s.npz"))
    assert str(np.load(tmp_path / "s.npz")["kind"]) == "grouped tree"
