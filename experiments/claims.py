"""What decides each claim of `paper_values.toml`, as code over the result files: verdict, measured numbers, reason.

A rule sees the results through `Results`, so the same rules also judge the first five runs alone, and DAWA with noise
that is proven private. "Much less" means at least `MUCH` times less; an order of magnitude means ten times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hdmm_bf as bf
from experiments.design import Row, read

MUCH = 5.0
DEPENDENT = ("Transformed + ConsistentEst", "Transformed + DAWA + Cons")
YES, NO, OPEN = "reproduced", "not reproduced", "not testable"


class Verdict(NamedTuple):
    """What was found on a claim."""

    verdict: str
    measured: str
    why: str = ""


class MissingError(Exception):
    """A result that the files do not hold."""


class Results:
    """The result files of a folder; `column` and `dawa` choose what the rules look at."""

    def __init__(self, folder: Path, *, column: str = "mse", dawa: str = "") -> None:
        self.folder, self.column, self.dawa = folder, column, dawa
        self._tables: dict[str, list[Row]] = {}

    def table(self, name: str) -> list[Row]:
        """Return the rows of an experiment."""
        if name not in self._tables:
            self._tables[name] = read(self.folder / f"{name}.csv")
        if not self._tables[name]:
            raise MissingError(f"{name} was not run")
        return self._tables[name]

    def error(self, table: str, mechanism: str, epsilon: str, **where: str) -> float:
        """Return the mean squared error of a mechanism."""
        return self.look(table, self.column, mechanism, epsilon, **where)

    def look(self, table: str, column: str, mechanism: str, epsilon: str, **where: str) -> float:
        """Return a number of a mechanism's row."""
        name = f"{mechanism}, {self.dawa}" if self.dawa and "DAWA" in mechanism else mechanism
        wanted = {"mechanism": name, "epsilon": epsilon, **where}
        for row in self.table(table):
            if all(row[key] == value for key, value in wanted.items()):
                return float(row[column])
        raise MissingError(f"{table} does not hold {', '.join(wanted.values())}")

    def values(self, table: str, column: str) -> list[str]:
        """Return the different values of a column, in order."""
        return list(dict.fromkeys(row[column] for row in self.table(table)))


def yes(holds: bool) -> str:
    """Return the word for a claim that was tested."""
    return YES if holds else NO


def every(cases: Iterable[tuple[str, bool]], why: str = "") -> Verdict:
    """Judge a claim that must hold in every case; the exceptions are named."""
    listed = list(cases)
    wrong = [name for name, holds in listed if not holds]
    measured = f"holds in {len(listed) - len(wrong)} of {len(listed)} cases"
    return Verdict(yes(not wrong), measured + (f"; not in {', '.join(wrong)}" if wrong else ""), why)


def ratios(found: list[float], least: float) -> Verdict:
    """Judge that all ratios reach a value."""
    inside = f"{min(found):.3g} to {max(found):.3g} times, median {np.median(found):.3g}"
    few = sum(ratio < least for ratio in found)
    return Verdict(yes(few == 0), inside + (f"; {few} of {len(found)} below {least:g}" if few else ""))


# Table 1 and the set-up


def described(name: str, what: str, value: float) -> Callable[[Results], Verdict]:
    """Compare a number of Table 1 with the data."""

    def rule(results: Results) -> Verdict:
        row = next(row for row in results.table("table1") if row["data_set"] == name)
        if row["data"] != "real":
            return Verdict(OPEN, "", "the data are not here; stand-ins are made to match")
        if what in ("cells", "side"):
            return Verdict(yes(row["domain"].split("x")[0] == str(int(value))), row["domain"])
        if what == "records":
            digits = float(f"{int(row['records']):.1e}")
            return Verdict(yes(digits == value), row["records"], "" if digits == value else f"rounds to {digits:.2g}")
        close = abs(float(row["percent_empty"]) - value) < 0.01
        why = "" if close else "our file differs: regridded from 256 x 256" if name[0] == "T" else "our file differs"
        return Verdict(yes(close), f"{float(row['percent_empty']):.2f} %", why)

    return rule


def setup_same(
    table: str, column: str, seen: Callable[[list[str]], object], wanted: object
) -> Callable[[Results], Verdict]:
    """Check that our design follows the paper's."""

    def rule(results: Results) -> Verdict:
        found = seen(results.values(table, column))
        return Verdict(yes(found == wanted), str(found), "our design")

    return rule


def setup_runs(results: Results) -> Verdict:
    """Five runs, and more."""
    runs = [int(runs) for runs in results.values("hist", "runs")]
    return Verdict(yes(min(runs) >= 5), str(runs[0]), "the first five are kept as a column of their own")


def setup_thresholds(results: Results) -> Verdict:
    """The line is threshold 1."""
    named = [p for table in ("range_line", "range_threshold", "range_grid") for p in results.values(table, "policy")]
    found = sorted({1 if spec.startswith("line") else int(spec.split(":")[-1]) for spec in named})
    return Verdict(yes(found == [1, 4]), str(found), "our design")


def setup_half(results: Results) -> Verdict:
    """Ordinary mechanisms run with epsilon / 2."""
    promises = {row["promise"].split(",")[0] for row in results.table("hist") if row["kind"] == "ordinary"}
    return Verdict(yes(promises == {"epsilon/2"}), ", ".join(promises), "our design")


def setup_algorithms(results: Results) -> Verdict:
    """Laplace, DAWA and three transformed ones."""
    own = {r["mechanism"] for r in results.table("hist") if r["kind"] != "ours" and "proven" not in r["mechanism"]}
    return Verdict(yes(len(own) == 5), str(len(own)), "our design")


def setup_sparse(results: Results) -> Verdict:
    """More than half of the sets have 40 % empty cells or more."""
    rows = results.table("table1")
    sparse = [row["data_set"] for row in rows if float(row["percent_empty"]) >= 40]
    return Verdict(yes(2 * len(sparse) > len(rows)), f"{len(sparse)} of {len(rows)} have 40 % empty cells or more")


# Histograms


def cases(results: Results, table: str, epsilons: Iterable[str], names: Iterable[str] | None = None) -> list[Row]:
    """Return the settings of a panel figure: epsilon with data set and number of cells."""
    kept = [
        row for row in results.table(table) if row["epsilon"] in epsilons and (not names or row["data_set"] in names)
    ]
    settings = {(row["epsilon"], row["data_set"], row["cells"]) for row in kept}
    if not settings:
        raise MissingError(f"{table} does not hold these cells")
    return [{"epsilon": e, "data_set": d, "cells": c} for e, d, c in sorted(settings, key=str)]


ALL = ("0.001", "0.01", "0.1", "1")


def name_of(case: Row) -> str:
    """Return a setting in words."""
    size = " " + case["cells"] if case["data_set"] == "D" and case["cells"] != "4096" else ""
    return f"{case['data_set']}{size} at {case['epsilon']}"


def highlight_hist(results: Results) -> Verdict:
    """The better data-dependent Blowfish mechanism beats Transformed + Laplace."""
    found = [
        results.error("hist", "Transformed + Laplace", **case)
        / min(results.error("hist", m, **case) for m in DEPENDENT)
        for case in cases(results, "hist", ALL)
    ]
    return ratios(found, 1.0)


def hist_factor(results: Results) -> Verdict:
    """8 / epsilon^2 against 4 / epsilon^2 a cell: from the exact errors, with those of the runs beside them."""
    settings = cases(results, "hist", ALL)
    exact, seen = (
        [
            results.look("hist", c, "Laplace", **s) / results.look("hist", c, "Transformed + Laplace", **s)
            for s in settings
        ]
        for c in ("expected", results.column)
    )
    measured = f"{min(exact):.3f} to {max(exact):.3f} expected, {min(seen):.2f} to {max(seen):.2f} in runs"
    return Verdict(yes(all(abs(ratio - 2) < 0.01 for ratio in exact)), measured)


def hist_sparse(results: Results) -> Verdict:
    """DAWA against Laplace, and the better Blowfish one against Transformed + Laplace, on E, F, G."""
    found = []
    for case in cases(results, "hist", ALL, "EFG"):
        found.append(results.error("hist", "Laplace", **case) / results.error("hist", "DAWA", **case))
        better = min(results.error("hist", m, **case) for m in DEPENDENT)
        found.append(results.error("hist", "Transformed + Laplace", **case) / better)
    return ratios(found, MUCH)


def hist_best(results: Results) -> Verdict:
    """At 0.1 and 1, on A to E."""
    return every(
        (
            name_of(case),
            min(results.error("hist", m, **case) for m in DEPENDENT)
            < min(results.error("hist", m, **case) for m in ("Laplace", "DAWA")),
        )
        for case in cases(results, "hist", ("0.1", "1"), "ABCDE")
    )


def hist_dawa_best(results: Results) -> Verdict:
    """At 0.1 and 1, DAWA is the best of all five on F and G."""
    others = ("Laplace", "Transformed + Laplace", *DEPENDENT)
    return every(
        (name_of(case), results.error("hist", "DAWA", **case) < min(results.error("hist", m, **case) for m in others))
        for case in cases(results, "hist", ("0.1", "1"), "FG")
    )


def hist_dawa_low(results: Results) -> Verdict:
    """At 0.01 and 0.001 DAWA beats one or both on C to G, and neither on A and B."""
    return every(
        (
            name_of(case),
            (results.error("hist", "DAWA", **case) < max(results.error("hist", m, **case) for m in DEPENDENT))
            == (case["data_set"] not in "AB"),
        )
        for case in cases(results, "hist", ("0.001", "0.01"))
    )


# Ranges


def counterparts(table: str, pairs: Iterable[tuple[str, str]], least: float) -> Callable[[Results], Verdict]:
    """The first of each pair has at least `least` times the error of the second."""

    def rule(results: Results) -> Verdict:
        settings = cases(results, table, ALL)
        return ratios(
            [results.error(table, a, **c) / results.error(table, b, **c) for c in settings for a, b in pairs], least
        )

    return rule


LINE_PAIRS = (("Privelet", "Transformed + Laplace"), ("DAWA", "Transformed + DAWA + Cons"))
SPANNER_PAIRS = (("Privelet", "Transformed + Laplace"), ("DAWA", "Transformed + DAWA"))


def line_orders(results: Results) -> Verdict:
    """The logarithms of all ratios round to 2 or 3."""
    pairs = (*LINE_PAIRS, ("DAWA", "Transformed + ConsistentEst"))
    logs = [
        math.log10(results.error("range_line", a, **case) / results.error("range_line", b, **case))
        for case in cases(results, "range_line", ALL)
        for a, b in pairs
    ]
    inside = sum(1.5 <= log < 3.5 for log in logs)
    spread = f"{min(logs):.1f} to {max(logs):.1f} orders, median {np.median(logs):.1f}"
    more = sum(log >= 3.5 for log in logs)
    told = f"{spread}; {inside} of {len(logs)} round to 2 or 3, {more} are above"
    return Verdict(yes(inside == len(logs)), told)


def beats(
    table: str, first: str, second: str, epsilons: tuple[str, ...], names: tuple[str, ...] | None = None
) -> Callable[[Results], Verdict]:
    """The first mechanism has less error than the second in every case; says where noise hides the order."""

    def rule(results: Results) -> Verdict:
        settings = cases(results, table, epsilons, names)
        told = every(
            (name_of(c), results.error(table, first, **c) < results.error(table, second, **c)) for c in settings
        )
        hidden = [name_of(c) for c in settings if not clear(results, table, first, second, c)]
        return told._replace(measured=told.measured + (f"; within noise: {', '.join(hidden)}" if hidden else ""))

    return rule


def clear(results: Results, table: str, first: str, second: str, case: Row) -> bool:
    """Whether two errors are more than two standard errors of their difference apart."""
    gap = results.error(table, first, **case) - results.error(table, second, **case)
    spread = [results.look(table, "stderr", mechanism, **case) for mechanism in (first, second)]
    return abs(gap) > 2 * math.hypot(*spread)


def theta_stretch(results: Results) -> Verdict:
    """The computed stretch, from the notes of the rows."""
    notes = {row["note"] for row in results.table("range_threshold") if row["kind"] == "paper"}
    return Verdict(yes(notes == {"stretch 3"}), ", ".join(notes))


def theta_flat(results: Results) -> Verdict:
    """From the smallest to the largest domain ordinary errors grow and Blowfish ones stay within a quarter."""
    table = "range_threshold"
    ends = sorted(results.values(table, "cells"), key=int)[:: len(results.values(table, "cells")) - 1]
    told, hidden = [], []
    for mechanism, epsilon in itertools.product(dict.fromkeys(itertools.chain(*SPANNER_PAIRS)), ALL):
        small, large = (results.error(table, mechanism, epsilon, cells=cells) for cells in ends)
        spread = [results.look(table, "stderr", mechanism, epsilon, cells=cells) for cells in ends]
        name, ordinary = f"{mechanism} at {epsilon} ({large / small:.2f})", not mechanism.startswith("Transformed")
        told.append((name, large > small if ordinary else abs(large / small - 1) < 0.25))
        if ordinary and abs(large - small) <= 2 * math.hypot(*spread):
            hidden.append(name)
    found = every(told, "in brackets: error on the largest domain / on the smallest")
    return found._replace(measured=found.measured + (f"; within noise: {', '.join(hidden)}" if hidden else ""))


def four_ranges(results: Results) -> Verdict:
    """The edges that an inner box uses on a grid of 8 x 8 fall into four runs of parallel neighbours."""
    box = np.zeros((8, 8))
    box[2:5, 3:7] = 1
    grid = bf.policy.parse("threshold:8x8:1")
    used = np.flatnonzero(bf.Problem(bf.workload.from_matrix(box.reshape(1, -1)), grid).W_G()[0])
    steps = {(int(v - u), int(u) // 8 if v - u == 8 else int(u) % 8) for u, v in grid.edges[used].tolist()}
    return Verdict(yes(len(steps) == 4), str(len(steps)))
