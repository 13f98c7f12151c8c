"""What decides the claims on orders of error (Section 5) and on lower bounds (Appendix A), as code over the results."""

from __future__ import annotations

import itertools
import math

from experiments.claims import Results, Verdict, every, yes


def series(results: Results, name: str, mechanism: str) -> tuple[list[int], list[float]]:
    """Return sizes and errors of a series of the orders."""
    rows = [r for r in results.table("orders") if r["series"] == name and r["mechanism"] == mechanism]
    return [int(row["size"]) for row in rows], [float(row["mse"]) for row in rows]


def no_faster(sizes: list[int], errors: list[float], power: int) -> bool:
    """Whether errors grow no faster than a power of log2 of the sizes, up to three percent of noise."""
    scaled = [error / math.log2(size) ** power for size, error in zip(sizes, errors, strict=True)]
    return all(later <= 1.03 * earlier for earlier, later in itertools.pairwise(scaled))


def shown(errors: list[float]) -> str:
    """Write errors with three digits."""
    return ", ".join(f"{error:.3g}" for error in errors)


def order_line(results: Results) -> Verdict:
    """At most 4 / epsilon^2 under the line; Privelet no faster than the cube of the logarithm."""
    line, ordinary = (series(results, "line", m) for m in ("Transformed + Laplace", "Privelet"))
    holds = max(line[1]) < 4.1 and no_faster(*ordinary, 3)
    return Verdict(yes(holds), f"line {shown(line[1])}; Privelet {shown(ordinary[1])} at sizes {line[0]}")


def order_threshold(results: Results) -> Verdict:
    """No faster than the cube of the logarithm of the threshold; the same on all domains."""
    by_limit = series(results, "threshold", "H^theta + Privelet")
    by_size = series(results, "threshold 8 by domain", "H^theta + Privelet")
    holds = no_faster(*by_limit, 3) and by_size[1][-1] / by_size[1][1] < 1.1
    return Verdict(
        yes(holds), f"thresholds {by_limit[0]}: {shown(by_limit[1])}; domains {by_size[0]}: {shown(by_size[1])}"
    )


def order_grid(results: Results) -> Verdict:
    """In the plane the cube against the sixth power of the logarithm, and a gain that grows."""
    grid, ordinary = (series(results, "grid", m) for m in ("Transformed + Privelet", "Privelet"))
    gain = [b / a for a, b in zip(grid[1], ordinary[1], strict=True)]
    holds = no_faster(*grid, 3) and no_faster(*ordinary, 6) and gain == sorted(gain)
    return Verdict(yes(holds), f"gain over Privelet {shown(gain)} at sides {grid[0]}")


def order_grid_threshold(results: Results) -> Verdict:
    """At a fixed threshold no faster than the cube of the logarithm of the side."""
    sides, errors = series(results, "grid, threshold 4", "H^theta + Privelet")
    return Verdict(yes(no_faster(sides, errors, 3)), f"{shown(errors)} at sides {sides}", "threshold 4, two dimensions")


def bounds(results: Results, dimensions: str, column: str = "svd") -> dict[str, dict[int, float]]:
    """Return the SVD bounds (or the tight ones) by policy and size."""
    found: dict[str, dict[int, float]] = {}
    for row in results.table("lower_bounds"):
        if row["dimensions"] == dimensions:
            found.setdefault(row["label"], {})[int(row["size"])] = float(row[column])
    return found


def svd_growth(results: Results) -> Verdict:
    """Growth over the last doubling of the domain."""
    found = bounds(results, "1")
    before, last = sorted(found["unbounded"])[-2:]
    growth = {
        name: sizes[last] / sizes[before] for name, sizes in found.items() if before in sizes and name != "bounded"
    }
    slower = all(ratio < growth["unbounded"] for name, ratio in growth.items() if name != "unbounded")
    return Verdict(
        yes(slower), ", ".join(f"{name} {ratio:.3f}" for name, ratio in growth.items()), f"{before} to {last} cells"
    )


def svd_plane(results: Results) -> Verdict:
    """Which thresholds are below unbounded privacy, on every square; and the same for the best proven bounds."""
    found = bounds(results, "2")
    last = max(found["unbounded"])
    told = ", ".join(
        f"{name} {sizes[last] / found['unbounded'][last]:.2f}" for name, sizes in found.items() if "threshold" in name
    )
    sides = [side for side, names in _below(found).items() if names == ["threshold 1"]]
    tight = [side for side, names in _below(bounds(results, "2", "tight")).items() if names == ["threshold 1"]]
    measured = (
        f"holds on sides {sides} of SVD bounds, {tight} of tight ones; SVD relative to unbounded at {last}: {told}"
    )
    return Verdict(yes(len(sides) == len(found["unbounded"])), measured, "the paper's text does not say its sizes")


def _below(found: dict[str, dict[int, float]]) -> dict[int, list[str]]:
    """For every size the thresholds whose bound is below that of unbounded privacy."""
    limits = {name: sizes for name, sizes in found.items() if name.startswith("threshold")}
    return {
        side: [name for name, sizes in limits.items() if sizes.get(side, math.inf) < bound]
        for side, bound in found["unbounded"].items()
    }


def svd_bounded(results: Results) -> Verdict:
    """Every threshold on every domain."""
    found = {dimensions: bounds(results, dimensions) for dimensions in "12"}
    return every(
        (f"{label}, {dimensions} dimensions, size {size}", value < found[dimensions]["bounded"][size])
        for dimensions in "12"
        for label, sizes in found[dimensions].items()
        if label.startswith("threshold")
        for size, value in sizes.items()
    )


def svd_factor(results: Results) -> Verdict:
    """Bounded over unbounded, all sizes of both dimensions."""
    found = [bounds(results, dimensions) for dimensions in "12"]
    relative = [b["bounded"][size] / b["unbounded"][size] for b in found for size in b["unbounded"]]
    return Verdict(yes(max(relative) <= 4), f"{min(relative):.2f} to {max(relative):.2f} times", "of the lower bounds")
