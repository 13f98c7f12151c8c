"""Bundles keep what a strategy was made for, and what is forged about it is refused or found."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import hdmm_bf as bf
from tests.support.bundles import forge
from tests.support.command_line import call
from tests.support.mistakes import _as_users_run_it  # noqa: F401

TARGETS = np.array([1.0, 2.0, np.nan, 4.0])
ADDED = ("objective", "objective_value", "objective_bound", "worst_variance")
KEPT = ("objective", "objective_value", "objective_bound", "worst_variance", "unit_error", "certified")


@pytest.fixture(scope="module")
def fits():
    return {
        "largest": bf.fit("prefix:4", "unbounded:4", objective="largest"),
        "targets": bf.fit("prefix:4", "unbounded:4", targets=TARGETS),
        "groups": bf.fit("prefix:12", "unbounded:12", objective="largest", groups=list("llkjihgfedcb")),
        "laplace": bf.fit(
            "prefix:4", "unbounded:4", targets=TARGETS, noise="laplace", family="cell-budgets", max_steps=1
        ),
        "norm": bf.fit("prefix:4", "unbounded:4", objective="largest", noise="norm", max_steps=1),
        "tables": bf.fit("marginals:2x2x2:1", "unbounded:2x2x2", objective="largest", family="marginals"),
        "public": bf.fit("prefix:4", "empty:4", targets=2.0),
    }


@pytest.mark.parametrize("kind", ["largest", "targets", "groups", "laplace", "norm", "tables", "public"])
def test_a_bundle_is_read_with_its_goal(fits, kind, tmp_path):
    made = fits[kind]
    read = bf.load(made.save(tmp_path / "a.bf"))
    assert {name: getattr(read, name) for name in KEPT} == {name: getattr(made, name) for name in KEPT}
    assert read.problem.goal.kind == made.problem.goal.kind
    for name in ("targets", "groups"):
        np.testing.assert_array_equal(getattr(read.problem.goal, name), getattr(made.problem.goal, name))
    np.testing.assert_array_equal(read.unit_variances(), made.unit_variances())


@pytest.mark.parametrize("function", [lambda v: jnp.sqrt(v).mean(), lambda v: v.max(), lambda v: v[0]])
def test_an_objective_of_ones_own_is_read_as_the_weighted_sum_that_its_derivatives_make(function, tmp_path):
    made = bf.fit("prefix:4", "unbounded:4", objective=function, max_steps=10)
    read = bf.load(made.save(tmp_path / "own.bf"))
    assert (read.objective, read.own) == ("own", None)
    assert read.objective_value == pytest.approx(read.unit_variances() @ made.proof["queries"], rel=1e-9)
    assert read.objective_bound <= read.objective_value


# Forged


def rewritten(**changes):
    """Change arrays of objective.npz; None takes one out."""

    def change(path, manifest):
        with np.load(path / "objective.npz") as held:
            arrays = dict(held)
        for name, edit in changes.items():
            value = edit(arrays.get(name)) if callable(edit) else edit
            arrays.pop(name, None)
            if value is not None:
                arrays[name] = value
        np.savez(path / "objective.npz", **arrays)

    return change


def claimed(**claims):
    """Change the manifest."""
    return lambda path, manifest: manifest.update(claims)


def without(name):
    def change(path, manifest):
        (path / name).unlink()
        del manifest["files"][name]

    return change


def nan_first(array):
    return np.concatenate([[np.nan], array[1:]])


FORGED = {
    "targets twice as large": ("targets", rewritten(targets=lambda c: 2 * c)),
    "another target": ("targets", rewritten(targets=np.array([1.0, 2.0, 3.0, 4.0]))),
    "targets of zero": ("targets", rewritten(targets=lambda c: 0 * c)),
    "negative targets": ("targets", rewritten(targets=lambda c: -c)),
    "infinite targets": ("targets", rewritten(targets=np.full(4, np.inf))),
    "targets all missing": ("targets", rewritten(targets=np.full(4, np.nan))),
    "too few targets": ("targets", rewritten(targets=lambda c: c[:3])),
    "one target for all": ("targets", rewritten(targets=lambda c: c[:1])),
    "targets in a table": ("targets", rewritten(targets=lambda c: c[None])),
    "targets in words": ("targets", rewritten(targets=np.array(list("abcd")))),
    "whole targets": ("targets", rewritten(targets=np.array([1, 2, 3, 4]))),
    "no targets": ("targets", rewritten(targets=None)),
    "weights of one query": ("targets", rewritten(queries=np.array([1.0, 0, 0, 0]))),
    "weights that are NaN": ("targets", rewritten(queries=nan_first)),
    "weights that are infinite": ("targets", rewritten(queries=np.full(4, np.inf))),
    "weights that overflow": ("targets", rewritten(queries=np.full(4, 1e308))),
    "negative weights": ("targets", rewritten(queries=lambda q: -q)),
    "weights of zero": ("targets", rewritten(queries=lambda q: 0 * q)),
    "too few weights": ("targets", rewritten(queries=lambda q: q[:3])),
    "weights in a table": ("targets", rewritten(queries=lambda q: q[None])),
    "no weights": ("targets", rewritten(queries=None)),
    "an array too many": ("targets", rewritten(groups=np.arange(4))),
    "an array nobody knows": ("largest", rewritten(more=np.arange(4))),
    "groups nobody asked for": ("largest", rewritten(groups=np.array([0, 0, 1, 1]))),
    "groups that are real": ("groups", rewritten(groups=np.arange(12.0))),
    "too few groups": ("groups", rewritten(groups=np.arange(11))),
    "other groups": ("groups", rewritten(groups=np.arange(12) // 2)),
    "no groups": ("groups", rewritten(groups=None)),
    "groups of tables": ("tables", rewritten(groups=np.arange(6))),
    "no file": ("largest", without("objective.npz")),
    "another value": ("largest", claimed(objective_value=1.0)),
    "a value of NaN": ("largest", claimed(objective_value=float("nan"))),
    "a value in words": ("largest", claimed(objective_value="2")),
    "no value": ("largest", lambda path, manifest: manifest.pop("objective_value")),
    "another bound": ("largest", claimed(objective_bound=1.9)),
    "no bound": ("largest", claimed(objective_bound=None)),
    "another largest variance": ("largest", claimed(worst_variance=1.0)),
    "the total instead": ("largest", claimed(objective="total")),
    "targets instead": ("largest", claimed(objective="targets")),
    "own instead": ("largest", claimed(objective="own")),
    "a goal nobody knows": ("largest", claimed(objective="smallest")),
    "a goal that is a list": ("largest", claimed(objective=["largest"])),
    "no goal": ("largest", lambda path, manifest: manifest.pop("objective")),
    "own of tables": ("tables", claimed(objective="own")),
    "a bound nobody proved": ("norm", claimed(objective_bound=1.0)),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_about_a_goal_is_refused_or_found(fits, name, tmp_path):
    kind, change = FORGED[name]
    path = fits[kind].save(tmp_path / "a.bf")
    forge(path, change)
    with pytest.raises(bf.InputError) as refusal:
        bf.load(path)
    assert str(path) in str(refusal.value)


def test_weights_of_any_sum_prove_the_same(fits, tmp_path):
    path = fits["targets"].save(tmp_path / "a.bf")
    forge(path, rewritten(queries=lambda q: 1000 * q))
    assert bf.load(path).objective_bound == pytest.approx(fits["targets"].objective_bound, rel=1e-12)


def test_weights_of_an_objective_of_ones_own_are_part_of_its_claim(tmp_path):
    path = bf.fit("prefix:4", "unbounded:4", objective=lambda v: v.sum()).save(tmp_path / "a.bf")
    forge(path, rewritten(queries=lambda q: 2 * q))
    with pytest.raises(bf.InputError, match="objective_value is claimed"):
        bf.load(path)


def test_verify_finds_a_forged_value_and_exits_with_one(fits, tmp_path):
    path = fits["largest"].save(tmp_path / "a.bf")
    assert call("verify", path).returncode == 0
    forge(path, claimed(objective_value=1.0))
    result = call("verify", path, "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["verified"] is False


@pytest.mark.parametrize(
    "options",
    [{}, {"noise": "laplace", "family": "cell-budgets", "max_steps": 1}, {"noise": "norm", "max_steps": 1}],
    ids=["gaussian", "laplace", "norm"],
)
def test_a_bundle_from_before_there_were_goals_is_read(options, tmp_path):
    made = bf.fit("prefix:4", "line:4", **options)
    path = made.save(tmp_path / "a.bf")

    def older(path, manifest):
        claims = json.loads((path / "certificate.json").read_text())
        for record in (manifest, claims):
            for name in ADDED:
                record.pop(name, None)
        (path / "certificate.json").write_text(json.dumps(claims))

    forge(path, older)
    assert "objective" not in (path / "manifest.json").read_text()
    read = bf.load(path)
    assert read.objective == "total"
    assert read.objective_value == read.unit_error == made.unit_error
    assert call("verify", path).returncode == 0
