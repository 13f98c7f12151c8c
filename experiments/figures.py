"""How results look: one colour a mechanism in every figure, logarithmic scales, the legend beside the panels.

The only home of matplotlib in the experiments; imported when a figure is drawn. Each figure is an SVG and a PNG.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from experiments.design import Row

Draw: TypeAlias = Callable[[list[Row], Path], None]

# Blue: ordinary privacy. Orange and red: the paper's mechanisms under policies. Green: ours.
# Filled markers depend on the data; open ones do not.
STYLES = {
    "Laplace": ("#4a6fa5", "o", False),
    "Privelet": ("#16507f", "s", False),
    "DAWA": ("#2e86de", "D", True),
    "DAWA, proven noise": ("#7fb8f0", "d", True),
    "Transformed + Laplace": ("#d35400", "o", False),
    "Transformed + Privelet": ("#a04000", "s", False),
    "H^theta + Privelet": ("#7d3c98", "^", False),
    "Transformed + ConsistentEst": ("#f39c12", "^", True),
    "Transformed + DAWA": ("#c0392b", "D", True),
    "Transformed + DAWA, proven noise": ("#e6a19a", "d", True),
    "Transformed + DAWA + Cons": ("#c0392b", "D", True),
    "Transformed + DAWA + Cons, proven noise": ("#e6a19a", "d", True),
    "Ours, Laplace": ("#1e8449", "*", False),
    "Ours, tree norm": ("#0b3d20", "X", False),
    "Ours, Gaussian": ("#76c893", "P", False),
}
POLICY_STYLES = {
    "unbounded": ("#16507f", "-"),
    "bounded": ("#000000", "-"),
    "threshold 1": ("#f6b26b", "-"),
    "threshold 2": ("#e67e22", "-"),
    "threshold 4": ("#c0392b", "-"),
    "threshold 8": ("#c2185b", "-"),
    "threshold 16": ("#8e44ad", "-"),
    "threshold 64": ("#5b2c6f", "-"),
}


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    quiet = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "svg.hashsalt": "hdmm_bf"}
    pyplot.rcParams.update(quiet)
    return pyplot


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None}, bbox_inches="tight")
    figure.savefig(path.with_suffix(".png"), dpi=130, bbox_inches="tight")
    _pyplot().close(figure)


def _source(rows: list[Row]) -> str:
    """Say on every figure what the data were."""
    kinds = {row["data"] for row in rows}
    if kinds == {"none"}:
        return ""
    if "synthetic" not in kinds:
        return "Data: the histograms of the paper's Table 1. "
    return "Data: SYNTHETIC stand-ins of the same domain, scale and share of empty cells. "


def panels(question: str, across: str) -> Draw:
    """Return the drawing of a panel figure: one panel an epsilon, `across` on the horizontal axis."""

    def draw(rows: list[Row], path: Path) -> None:
        plt = _pyplot()
        epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
        columns = min(2, len(epsilons))
        height = -(-len(epsilons) // columns)
        figure, axes = plt.subplots(height, columns, figsize=(4.6 * columns, 3.0 * height), squeeze=False, sharex=True)
        for axis, epsilon in zip(axes.flat, epsilons, strict=False):
            _panel(axis, [row for row in rows if row["epsilon"] == epsilon], across)
            axis.set_title(f"ε = {epsilon}", loc="left", fontsize=10)
        for axis in axes[:, 0]:
            axis.set_ylabel("mean squared error of a query")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        labels = [f"{label}  ({_promise(rows, label)})" for label in labels]
        figure.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
        figure.suptitle(question, x=0.01, ha="left", fontsize=11)
        figure.tight_layout()
        figure.text(0.01, -0.01, _footnote(rows), fontsize=7.5, va="top")
        _save(figure, path)

    return draw


def _panel(axis: Any, rows: list[Row], across: str) -> None:
    names = list(dict.fromkeys(row[across] for row in rows))
    mechanisms = list(dict.fromkeys(row["mechanism"] for row in rows))
    for place, mechanism in enumerate(mechanisms):
        colour, marker, filled = STYLES[mechanism]
        own = [row for row in rows if row["mechanism"] == mechanism and row["mse"]]
        shift = 0.8 * ((place + 0.5) / len(mechanisms) - 0.5)
        axis.errorbar(
            [names.index(row[across]) + shift for row in own],
            [float(row["mse"]) for row in own],
            yerr=[2 * float(row["stderr"]) for row in own],
            fmt=marker,
            color=colour,
            markerfacecolor=colour if filled or mechanism.startswith("Ours") else "white",
            markersize=7 if marker == "*" else 5,
            elinewidth=0.8,
            label=mechanism,
        )
    for edge in range(len(names) - 1):
        axis.axvline(edge + 0.5, color="#dddddd", linewidth=0.7, zorder=0)
    axis.set_yscale("log")
    axis.set_xticks(range(len(names)), names)
    axis.set_xlim(-0.5, len(names) - 0.5)
    axis.tick_params(axis="x", length=0, labelbottom=True)
    axis.grid(axis="y", color="#eeeeee", zorder=0)


def _promise(rows: list[Row], mechanism: str) -> str:
    return (
        next(row["promise"] for row in rows if row["mechanism"] == mechanism)
        .replace("epsilon", "ε")
        .replace("delta", "δ")
    )


def _where(rows: list[Row], mechanism: str, why: str) -> str:
    """Name the domains where a mechanism is missing for a reason, and the epsilons unless these are all."""
    missing = [row for row in rows if row["mechanism"] == mechanism and row["note"] == why]
    epsilons, every = ({row["epsilon"] for row in some} for some in (missing, rows))
    at = "" if epsilons == every else f" at ε = {', '.join(sorted(epsilons))}"
    return ", ".join(dict.fromkeys(f"{row['data_set']} {row['cells']} cells" for row in missing)) + at


def _footnote(rows: list[Row]) -> str:
    missing = dict.fromkeys((row["mechanism"], row["note"]) for row in rows if not row["mse"])
    exact = "; tree norms exact" if any("tree norm" in row["mechanism"] for row in rows) else ""
    absent = "".join(f"\n{name} is {why}: {_where(rows, name, why)}." for name, why in missing)
    return (
        f"{_source(rows)}Mean of {rows[0]['runs']} runs, two standard errors{exact}. "
        "Open markers and green ones do not depend on the data.\n"
        "In brackets what is promised: ordinary privacy gets ε/2, as in the paper; δ > 0 is a weaker promise; "
        f"DAWA as published is not proven private.{absent}"
    )


def lower_bounds(question: str) -> Draw:
    """Return the drawing of the lower bounds: a panel for each number of dimensions."""

    def draw(rows: list[Row], path: Path) -> None:
        plt = _pyplot()
        figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.2))
        for axis, dimensions in zip(axes, ("1", "2"), strict=True):
            _bounds_panel(axis, [row for row in rows if row["dimensions"] == dimensions], dimensions)
        handles, labels = axes[0].get_legend_handles_labels()
        more, names = axes[1].get_legend_handles_labels()
        known = dict(zip([*names, *labels], [*more, *handles], strict=True))
        order = [name for name in POLICY_STYLES if name in known]
        figure.legend(
            [known[name] for name in order], order, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False
        )
        figure.suptitle(question, x=0.01, ha="left", fontsize=11)
        figure.tight_layout()
        note = "Mean squared error of all ranges, ε = 1, δ = 0.001, with the paper's factor 2 log(2/δ)/ε²."
        ours = (
            "Solid: the paper's SVD bound. Dotted: the best proven bound, which a Gaussian strategy attains to 0.1 %."
        )
        figure.text(0.01, -0.01, f"{note}\n{ours}", fontsize=7.5, va="top")
        _save(figure, path)

    return draw


def _bounds_panel(axis: Any, rows: list[Row], dimensions: str) -> None:
    for label in dict.fromkeys(row["label"] for row in rows):
        colour, line = POLICY_STYLES[label]
        own = [row for row in rows if row["label"] == label]
        sizes = [int(row["size"]) for row in own]
        svd = [float(row["svd_error_a_query"]) for row in own]
        tight = [e * float(row["tight"]) / float(row["svd"]) for e, row in zip(svd, own, strict=True)]
        axis.plot(sizes, svd, line, color=colour, label=label, linewidth=1.5)
        axis.plot(sizes, tight, ":", color=colour, linewidth=1.5)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("cells" if dimensions == "1" else "side of the square")
    axis.set_ylabel("least possible error of a query")
    axis.set_title(f"all ranges in {dimensions} dimension{'s' if dimensions == '2' else ''}", loc="left", fontsize=10)
    axis.grid(color="#eeeeee")


def orders(question: str) -> Draw:
    """Return the drawing of the orders: a panel for each series."""

    def draw(rows: list[Row], path: Path) -> None:
        plt = _pyplot()
        names = list(dict.fromkeys(row["series"] for row in rows))
        figure, axes = plt.subplots(1, len(names), figsize=(2.3 * len(names), 3.2), sharey=True)
        for axis, name in zip(axes, names, strict=True):
            for mechanism in dict.fromkeys(row["mechanism"] for row in rows if row["series"] == name):
                own = [row for row in rows if row["series"] == name and row["mechanism"] == mechanism]
                colour, marker, _ = STYLES[mechanism]
                sizes, errors = [int(row["size"]) for row in own], [float(row["mse"]) for row in own]
                axis.plot(sizes, errors, marker=marker, color=colour, label=mechanism)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_title(name, loc="left", fontsize=9)
            axis.set_xlabel("threshold" if name == "threshold" else "cells" if "grid" not in name else "side")
            axis.grid(color="#eeeeee")
        axes[0].set_ylabel("mean squared error, ε = 1")
        known = {label: h for axis in axes for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.legend(known.values(), known.keys(), loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        figure.suptitle(question, x=0.01, ha="left", fontsize=11)
        figure.tight_layout()
        _save(figure, path)

    return draw


def curves(
    points: dict[str, list[tuple[float, float]]],
    across: dict[str, str],
    labels: dict[str, str],
    path: Path,
    *,
    question: str,
) -> None:
    """Draw curves on logarithmic scales, one panel for each thing they go across."""
    plt = _pyplot()
    kinds = list(dict.fromkeys(across.values()))
    figure, axes = plt.subplots(
        1, len(kinds), figsize=(4.2 * len(kinds), 3.4), sharey=True, squeeze=False, layout="constrained"
    )
    figure.suptitle(question, x=0.01, ha="left", fontsize=11)
    colours = ("#1e8449", "#16507f", "#c0392b", "#d35400", "#8e44ad")
    for (name, found), colour, marker in zip(points.items(), colours, "osD^P", strict=False):
        axis = axes[0][kinds.index(across[name])]
        axis.loglog(*zip(*found, strict=True), color=colour, marker=marker, markersize=5, label=labels[name])
    axes[0][0].set_ylabel("CPU seconds")
    for axis, kind in zip(axes[0], kinds, strict=True):
        axis.set_xlabel(f"number of {kind}")
        axis.grid(color="#e5e5e5")
        axis.legend(frameon=False, fontsize=8)
    _save(figure, path)
