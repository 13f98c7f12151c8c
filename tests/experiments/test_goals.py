"""The benchmark of goals: its instances are what their names say, and its kept numbers are those of a fit."""

import json
from pathlib import Path

import numpy as np
import pytest

import hdmm_bf as bf
from experiments.benchmarks import goals

KEPT = Path(goals.__file__).parent / "results" / "goals.json"


def test_the_instances_are_those_of_the_literature():
    ranges = goals.random_ranges().matrix.dense()
    assert ranges.shape == (128, 64)
    assert np.all(np.abs(np.diff(np.pad(ranges, ((0, 0), (1, 1))), axis=1)).sum(axis=1) == 2)  # one run of ones each
    pyramids = goals.pyramids().matrix.dense()
    assert pyramids.shape == (348, 232)
    assert np.array_equal(pyramids[:116] + pyramids[116:232], pyramids[0:116] + np.roll(pyramids[:116], 116, axis=1))
    assert np.array_equal(pyramids[232:], pyramids[:116] + pyramids[116:232])
    workload, targets = goals.census()
    assert (workload.num_queries, workload.num_cells) == (2824, 480)
    assert (np.sum(targets == 5), np.sum(targets == 20)) == (304, 2520)


def test_the_kept_value_of_the_random_ranges_is_that_of_a_fit():
    kept = {row["workload"]: row for row in json.loads(KEPT.read_text())["tables"][0]}["128 random ranges"]
    made = bf.fit(goals.random_ranges(), "unbounded:64", objective="largest")
    assert made.objective_value <= kept["value"] * 1.001
    assert kept["bound"] <= made.objective_value * (1 + 1e-6)
    assert made.certified


def test_the_quick_table_has_the_columns_of_the_whole(monkeypatch):
    monkeypatch.setattr(goals, "SHAPES", goals.SHAPES[3:])
    (table,) = goals.report(quick=True)
    assert table.headers[2:5] == ["value", "bound", "gap"]
    assert [row["workload"] for row in table.records()] == ["prefix:64", "128 random ranges"]
    for row in table.records():
        assert row["value"] >= row["bound"] > 0
        assert row["gap"] == pytest.approx(row["value"] / row["bound"] - 1, rel=0.1, abs=1e-5)
