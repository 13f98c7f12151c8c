"""Ours beside the paper's data-independent mechanisms, and DAWA beside others: tables from the result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from experiments.claims import MissingError, Results
from experiments.design import Row

PANELS = ("hist", "range_line", "range_threshold", "range_grid")
INDEPENDENT = ("Transformed + Laplace", "Transformed + Privelet")
TIE = 0.01
FLOW_NORM = Path(__file__).parent / "benchmarks" / "results" / "flow_norm.json"


class Gain(NamedTuple):
    """Error of the paper's data-independent Blowfish mechanism over ours, on one panel and domain."""

    panel: str
    policy: str
    laplace: float
    margin: float
    """Two standard errors of that ratio; 0 where both errors are exact."""
    gaussian: dict[str, float]
    tree: float = float("nan")
    """The same for our tree norm, mean over the epsilons that it was run at."""

    @property
    def on_a_line(self) -> bool:
        """Whether the policy is the line, where the paper's mechanism is optimal up to constants."""
        return self.policy.startswith("line")

    @property
    def verdict(self) -> str:
        """What must be shown: a tie on lines, a win elsewhere."""
        if abs(self.laplace - 1) <= TIE:
            return "tie"
        return "ours" if self.laplace - self.margin > 1 else "paper" if self.laplace + self.margin < 1 else "unclear"

    @property
    def as_it_must(self) -> bool:
        """Whether the verdict is the one that must be shown."""
        return self.verdict == ("tie" if self.on_a_line else "ours")


def gains(results: Results) -> list[Gain]:
    """Return the gain of our strategies for every panel and domain; errors here do not depend on the data."""
    found = []
    for panel in PANELS:
        rows = results.table(panel)
        for policy in dict.fromkeys(row["policy"] for row in rows):
            own = [row for row in rows if row["policy"] == policy and row["mse"]]
            found.append(_gain(panel, policy, own))
    return found


def _gain(panel: str, policy: str, rows: list[Row]) -> Gain:
    def ratio(epsilon: str | None, mechanism: str) -> tuple[float, float]:
        """Mean over data sets (and epsilons: errors scale with 1 / epsilon^2) of the ratio, with its margin."""
        paper = [r for r in rows if r["mechanism"] in INDEPENDENT and epsilon in (None, r["epsilon"])]
        ours = [r for r in rows if r["mechanism"] == mechanism and epsilon in (None, r["epsilon"])]
        if not ours:
            return float("nan"), 0.0
        paper = [r for r in paper if r["epsilon"] in {o["epsilon"] for o in ours}]
        if all(r["expected"] for r in (*paper, *ours)):
            pairs = zip(paper, ours, strict=True)
            return sum(float(p["expected"]) / float(o["expected"]) for p, o in pairs) / len(ours), 0.0
        (a, da), (b, db) = _scaled(paper), _scaled(ours)
        return a / b, 2 * a / b * ((da / a) ** 2 + (db / b) ** 2) ** 0.5

    laplace, margin = ratio(None, "Ours, Laplace")
    tree, _ = ratio(None, "Ours, tree norm")
    epsilons = dict.fromkeys(row["epsilon"] for row in rows)
    return Gain(panel, policy, laplace, margin, {e: ratio(e, "Ours, Gaussian")[0] for e in epsilons}, tree)


def _scaled(rows: list[Row]) -> tuple[float, float]:
    """Mean of epsilon^2 times the error, and its standard error."""
    scales = [float(row["epsilon"]) ** 2 for row in rows]
    means = [s * float(row["mse"]) for s, row in zip(scales, rows, strict=True)]
    errors = [s * float(row["stderr"]) for s, row in zip(scales, rows, strict=True)]
    return sum(means) / len(rows), sum(e**2 for e in errors) ** 0.5 / len(rows)


def sections(results: Results) -> list[str]:
    """Return the Markdown of all comparisons that the results allow."""
    lines: list[str] = []
    for section in (_data, _gains, _k_norms, _dawa):
        try:
            lines += [*section(results), ""]
        except MissingError as missing:
            lines += [f"({missing}.)", ""]
    return lines


def _data(results: Results) -> list[str]:
    rows = results.table("table1")
    synthetic = [row["data_set"] for row in rows if row["data"] == "synthetic"]
    if synthetic:
        return [
            f"**Synthetic stand-ins take the place of {', '.join(synthetic)}.** Computed with {rows[0]['versions']}."
        ]
    return [f"Data: the histograms of Table 1 (not in this repository). Computed with {rows[0]['versions']}."]


def _gains(results: Results) -> list[str]:
    found = gains(results)
    wrong = [f"{gain.panel} {gain.policy}" for gain in found if not gain.as_it_must]
    summary = "As it must be on every panel." if not wrong else f"Not so on {', '.join(wrong)}."
    epsilons = list(dict.fromkeys(e for gain in found for e in gain.gaussian))
    lines = [
        "## Ours beside the paper's data-independent Blowfish mechanisms",
        "",
        "How many times our error the paper's mechanism has (Transformed + Laplace, on grids Transformed + Privelet),",
        "at the same epsilon. Ours must win where the policy is no line, and tie on the line. " + summary,
        "Gaussian strategies promise less, (epsilon, delta = 0.001), so they are no fair winners; - is not run.",
        "Tree norms have the error of a release, computed and not drawn; on lines they are Laplace noise on the edges.",
        "",
        "| panel | policy | Laplace | tree norm | " + " | ".join(f"Gaussian, {e}" for e in epsilons) + " | better |",
        "|---|---|---|---|" + "---|" * len(epsilons) + "---|",
    ]
    for gain in found:
        margin = f" ± {gain.margin:.2f}" if gain.margin else ""
        others = [_number(gain.gaussian.get(e, float("nan"))) for e in epsilons]
        cells = [gain.panel, gain.policy, f"{gain.laplace:.2f}{margin}", _number(gain.tree), *others, gain.verdict]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _k_norms(results: Results) -> list[str]:
    """What became of the appendix's remark on K-norm mechanisms, with the numbers of the benchmark."""
    rows = json.loads(FLOW_NORM.read_text())["tables"][0]
    told = "; ".join(
        f"{r['policy']}: {r['Laplace']:.2f}, {r['tree norm']:.2f}, {r['flow norm']:.3f} ± {r['±']:.3f}" for r in rows
    )
    return [
        "## K-norm mechanisms",
        "",
        "The paper's appendix carries mechanisms of Hardt and Talwar and of Bhaskara et al. over to policies through",
        "a subtree of distortion l, at the price of l^2. No subtree is needed: a policy has a norm of its own, whose",
        "ball is the hull of its edges, and our tree norms are K-norm mechanisms without a factor for a spanner.",
        "Below: error over the best bound on matrix mechanisms, all ranges, of our best Laplace strategy, of our tree",
        "norm, and of the policy's own norm, which Markov chains evaluate (`benchmarks/flow_norm`) and nothing",
        f"publishes. {told}. A tree must cut cycles and grids somewhere, and pays for it.",
        "The recursion of Bhaskara et al., which such noise would start, is not run.",
    ]


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.2f}"


def _dawa(results: Results) -> list[str]:
    rows = results.table("dawa_check")
    mechanisms = list(dict.fromkeys(row["mechanism"] for row in rows))
    settings = list(dict.fromkeys((row["data_set"], row["records"], row["epsilon"]) for row in rows))
    at = {(r["data_set"], r["records"], r["epsilon"], r["mechanism"]): float(r["rmse"]) for r in rows}
    few = [s for s in settings if s[1] != "all"]
    leads = {m: sum(at[*s, m] < at[*s, "HB"] for s in few) for m in mechanisms if m.startswith("DAWA")}
    queries, runs = rows[0]["workload"].split(":")[2], rows[0]["runs"]
    lines = [
        "## DAWA",
        "",
        f"Root mean squared error of {queries} random ranges on {rows[0]['cells']} cells; {runs} runs.",
        "Published results are plots, so no absolute number could be compared. DPBench (2016) finds that with 1000",
        "records at epsilon 0.1 DAWA beats the best data-independent mechanism, HB, on every data set. Here: "
        + "; ".join(f"{m} on {lead} of {len(few)}" for m, lead in leads.items())
        + ".",
        "",
        "| data | records | epsilon | " + " | ".join(mechanisms) + " |",
        "|---|---|---|" + "---|" * len(mechanisms),
    ]
    for setting in settings:
        lines.append("| " + " | ".join([*setting, *(f"{at[*setting, m]:.4g}" for m in mechanisms)]) + " |")
    return lines
