"""The paper's experiments: a figure from end to end, stopping and going on, stand-ins, verdicts that can fail."""

import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from experiments import claims, comparisons, contenders, data, design, panels, range_threshold, verdicts
from experiments.design import Experiment
from hdmm_bf import cli


@pytest.fixture(autouse=True)
def _without_the_real_data(monkeypatch, tmp_path):
    monkeypatch.setenv("HDMM_BF_DATA", str(tmp_path / "nowhere"))


def tiny(measure=None):
    """An experiment of six cells that draws one number each."""

    def cells(smoke):
        return [{"number": str(i), "data": "none"} for i in range(3 if smoke else 6)]

    def drawn(cell, random):
        return {"value": float(random.normal()), "note": f"cell {cell['number']}"}

    return Experiment("tiny", "?", cells, ("value", "note"), measure or drawn)


@pytest.mark.slow
def test_one_figure_runs_from_end_to_end_and_says_that_its_data_are_made_up(tmp_path):
    told = CliRunner().invoke(cli.app, ["reproduce", "range_threshold", "--smoke", "--out", str(tmp_path), "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["smoke"] is True
    assert found["experiments"]["range_threshold"]["data"] == ["synthetic"]
    rows = design.read(tmp_path / "range_threshold.csv")
    assert len(rows) == found["experiments"]["range_threshold"]["cells"] == 2 * len(range_threshold.MECHANISMS)
    assert {row["data"] for row in rows} == {"synthetic"}
    for row in rows:
        assert float(row["mse"]) > 0
        if row["expected"]:
            assert float(row["mse"]) == pytest.approx(float(row["expected"]), rel=0.9)
    assert "SYNTHETIC" in (tmp_path / "range_threshold.svg").read_text()
    assert (tmp_path / "range_threshold.png").stat().st_size > 10_000
    report = (tmp_path / "README.md").read_text()
    assert "smoke run" in report
    assert str(tmp_path) not in report + (tmp_path / "range_threshold.csv").read_text()
    assert sum(found["verdicts"].values()) == 71


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_file(tmp_path):
    whole = design.run(tiny(), tmp_path / "whole")
    calls = []

    def dies(cell, random):
        calls.append(cell["number"])
        if len(calls) == 4:
            raise KeyboardInterrupt
        return tiny().measure(cell, random)

    with pytest.raises(KeyboardInterrupt):
        design.run(tiny(dies), tmp_path / "parts")
    part = tmp_path / "parts" / "tiny.csv"
    assert len(design.read(part)) == 3
    with part.open("a") as file:
        file.write("3,none,7,")  # killed in the middle of a line
    assert len(design.read(part)) == 3
    calls.clear()
    again = design.run(
        tiny(lambda cell, random: calls.append(cell["number"]) or tiny().measure(cell, random)), part.parent
    )
    assert calls == ["3", "4", "5"], "finished cells are kept"
    assert again == whole
    assert part.read_text() == (tmp_path / "whole" / "tiny.csv").read_text()


def test_rows_of_another_design_or_version_are_measured_again(tmp_path, monkeypatch):
    design.run(tiny(), tmp_path, smoke=True)
    monkeypatch.setattr(design, "versions", lambda: "another version")
    seen = []
    design.run(
        tiny(lambda cell, random: seen.append(cell["number"]) or {"value": 1.0, "note": ""}), tmp_path, smoke=True
    )
    assert seen == ["0", "1", "2"]


def test_a_cell_has_the_same_random_numbers_whatever_ran_before():
    cells = design.complete(tiny().cells(False))
    first, again, other = (design.generator(cell).normal() for cell in (cells[2], cells[2], cells[3]))
    assert first == again != other


@pytest.mark.parametrize("name", data.SOURCES)
def test_stand_ins_have_the_domain_the_scale_and_the_share_of_empty_cells(name):
    """Quotes stand_in."""
    source, made = data.SOURCES[name], data.counts(name)
    assert data.origin(name) == "synthetic"
    assert made.size == np.prod(source.sizes)
    assert made.sum() == source.records
    assert made.min() == 0
    assert abs(np.sum(made == 0) - made.size * source.percent_empty / 100) <= 0.5
    np.testing.assert_array_equal(made, data.counts(name))


def test_aggregation_keeps_the_records():
    assert data.counts("D", 512).size == 512
    np.testing.assert_array_equal(data.counts("D", 512)[:2], data.counts("D").reshape(512, 8)[:2].sum(axis=1))


def test_data_of_a_wrong_shape_are_refused(tmp_path, monkeypatch):
    np.save(tmp_path / "patent.npy", np.ones(7, dtype=int))
    monkeypatch.setenv("HDMM_BF_DATA", str(tmp_path))
    assert data.origin("A") == "real"
    with pytest.raises(ValueError, match="Check HDMM_BF_DATA"):
        data.counts("A")


def write(folder, name, rows):
    with (folder / f"{name}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def panel(errors, **more):
    """Rows of a panel figure from {(data set, epsilon, mechanism): error}."""
    base = {"cells": "4096", "policy": "threshold:4096:4", "stderr": "0", "expected": "", "kind": "paper", **more}
    return [
        {"data_set": d, "epsilon": e, "mechanism": m, "mse": str(v), "mse_of_5": str(v), **base}
        for (d, e, m), v in errors.items()
    ]


def test_verdicts_can_go_either_way(tmp_path):
    rule = claims.beats("range_threshold", "Transformed + DAWA", "Transformed + Laplace", ("1",))
    names = ("Transformed + DAWA", "Transformed + Laplace")
    for ours, expected in ((1.0, claims.YES), (3.0, claims.NO)):
        write(tmp_path, "range_threshold", panel({("D", "1", names[0]): ours, ("D", "1", names[1]): 2.0}))
        found = rule(claims.Results(tmp_path))
        assert found.verdict == expected
    assert "D at 1" in found.measured
    assert claims.every([("a", True), ("b", False)]).measured == "holds in 1 of 2 cases; not in b"
    assert claims.ratios([10.0, 20.0], 10).verdict == claims.YES
    assert claims.ratios([9.0, 20.0], 10).measured == "9 to 20 times, median 14.5; 1 of 2 below 10"


def test_results_that_are_not_there_make_a_claim_untestable(tmp_path):
    judged = verdicts.judge(tmp_path)
    open_claims = [item for item in judged if item.verdict.verdict == claims.OPEN]
    assert len(open_claims) == len(judged) - 1  # all but the one on the geometry of boxes
    assert "was not run" in open_claims[0].verdict.why


def test_every_claim_has_a_rule_and_every_rule_a_claim(tmp_path):
    listed = [item.claim for item in verdicts.judge(tmp_path)]
    own = {claim["id"] for claim in listed if not claim["id"].startswith("data-")}
    assert own == set(verdicts.RULES) | set(verdicts.UNTESTABLE)


def test_table_one_is_judged_on_real_data_only(tmp_path):
    row = {"data_set": "A", "data": "real", "domain": "4096", "records": "27948226", "percent_empty": "6.2"}
    write(tmp_path, "table1", [row])
    results = claims.Results(tmp_path)
    assert claims.described("A", "cells", 4096)(results).verdict == claims.YES
    assert claims.described("A", "records", 2.8e7)(results).verdict == claims.YES
    assert claims.described("A", "records", 2.7e7)(results).verdict == claims.NO
    assert claims.described("A", "zeros", 6.3)(results).verdict == claims.NO
    write(tmp_path, "table1", [{**row, "data": "synthetic"}])
    assert claims.described("A", "cells", 4096)(claims.Results(tmp_path)).verdict == claims.OPEN


def test_our_strategies_must_win_off_lines_and_tie_on_them():
    line = comparisons.Gain("hist", "line:8", 1.0, 0.0, {})
    assert line.as_it_must
    assert not line._replace(laplace=1.2).as_it_must
    grid = comparisons.Gain("range_grid", "threshold:8x8:1", 1.3, 0.1, {})
    assert grid.as_it_must
    assert grid._replace(margin=0.4).verdict == "unclear"
    assert grid._replace(laplace=0.5).verdict == "paper"


def test_tree_norms_are_compared_at_the_epsilons_where_they_can_be_released(tmp_path):
    names = ("Transformed + Laplace", "Ours, Laplace", "Ours, tree norm", "Ours, Gaussian")
    errors = {("D", e, m): v * float(e) ** -2 for e in ("0.001", "1") for m, v in zip(names, (9, 4, 3, 1), strict=True)}
    rows = [row | {"expected": row["mse"]} for row in panel(errors)]
    refused = next(row for row in rows if row["mechanism"] == "Ours, tree norm")
    refused["mse"] = refused["expected"] = ""
    for name in comparisons.PANELS:
        write(tmp_path, name, rows)
    gain = comparisons.gains(claims.Results(tmp_path))[0]
    assert (gain.laplace, gain.tree) == (pytest.approx(9 / 4), pytest.approx(3))


def test_a_release_that_memory_forbids_is_a_missing_point_with_its_reason(monkeypatch):
    made = contenders.Contender(None, contenders.unknown)
    monkeypatch.setattr(panels, "contender", lambda *names: made)
    cell = range_threshold.cells(True)[0] | {"mechanism": "Ours, tree norm"}
    found = panels.measure(cell, np.random.default_rng(0))
    assert np.isnan([found["mse"], found["stderr"], found["expected"]]).all()
    assert found["note"] == panels.TOO_LONG
    monkeypatch.setattr(panels, "contender", lambda *names: made._replace(expected=lambda epsilon: 7.0))
    found = panels.measure(cell, np.random.default_rng(0))
    assert (found["mse"], found["stderr"], found["note"]) == (7.0, 0.0, "")


def test_unknown_figures_and_a_wrong_folder_are_one_sentence(tmp_path):
    told = CliRunner().invoke(cli.app, ["reproduce", "nothing"])
    assert told.exit_code == 2
    assert "'nothing' is no figure; known are table1" in told.output
    (tmp_path / "file").write_text("")
    told = CliRunner().invoke(cli.app, ["reproduce", "table1", "--out", str(tmp_path / "file")])
    assert told.exit_code == 2
    assert "name a folder" in told.output


@pytest.mark.parametrize(("package", "sentence"), [("experiments", "needs a checkout"), ("matplotlib", "[plot]")])
def test_what_is_not_installed_is_named_in_one_sentence(monkeypatch, package, sentence):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="experiments")

    util = SimpleNamespace(find_spec=lambda name: None if name == package else name)
    command = sys.modules["hdmm_bf.cli.reproduce"]  # the package's attribute of that name is the command
    monkeypatch.setattr(command, "importlib", SimpleNamespace(import_module=absent, util=util))
    told = CliRunner().invoke(cli.app, ["reproduce"])
    assert told.exit_code == 2
    assert sentence in told.output


def test_an_installed_package_says_that_reproduce_needs_a_checkout(tmp_path):
    """Only what a wheel holds is on the path: -S keeps an editable install out."""
    root = Path(__file__).parents[2]
    tools = tomllib.loads((root / "pyproject.toml").read_text())["tool"]
    for name in tools["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(root / name, tmp_path / "site" / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join([str(tmp_path / "site"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    told = subprocess.run(
        [sys.executable, "-S", "-m", "hdmm_bf", "reproduce"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert told.returncode == 2, told.stderr
    assert told.stderr.strip().splitlines()[-1].startswith("hdmm-bf: reproduce needs a checkout of the source")
    assert "Traceback" not in told.stderr
    assert not told.stdout
