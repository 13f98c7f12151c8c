"""The README's example from end to end: `make demo`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hdmm_bf as bf
from hdmm_bf.report import write_report
from hdmm_bf.report.export import write_answers, write_estimate

WORKLOAD, POLICY = "all-range:64", "threshold:64:4"
FOLDER = Path("out/demo")


def main() -> None:
    """Fit a strategy, show it beside the bounds, write and verify a bundle, release made-up data, write the page."""
    policy = bf.policy.parse(POLICY)
    print(f"Policy {POLICY}: {bf.policy.hides(policy)}")
    print(f"Public: {'; '.join(bf.policy.discloses(policy))}.\n")
    fit = bf.fit(WORKLOAD, POLICY)
    ordinary = bf.fit(WORKLOAD, "unbounded:64")
    print(f"{WORKLOAD}, Gaussian noise, epsilon 1, delta 1e-6")
    print(f"  SVD bound    {fit.bounds.svd:10.1f}   (unit error; no strategy is below)")
    print(f"  tight bound  {fit.bounds.lower:10.1f}   (no strategy is below)")
    print(f"  our strategy {fit.unit_error:10.1f}   proven within {100 * fit.gap:.2f} % of the best possible")
    print(f"  rmse of a query {bf.plan(fit, epsilon=1.0, delta=1e-6).rmse:.1f} records", end="")
    print(f"; under ordinary differential privacy {bf.plan(ordinary, epsilon=1.0, delta=1e-6).rmse:.1f}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = fit.save(FOLDER / "ranges.bf")
    print(f"\nWrote {path} ({', '.join(sorted(f.name for f in path.iterdir()))})")
    bf.load(path)  # refuses a bundle whose claims differ from what it derives
    print("Verified: every claim was derived again.")
    _release(fit)
    page = write_report(fit, FOLDER / "report.html", bundle=path.name)
    print(f"Wrote {page}: open it in a browser")


def _release(fit: bf.Fit) -> None:
    """Publish ranges over made-up salaries, and compare with the truth, which only a demonstration can."""
    salaries = np.random.default_rng(7).lognormal(3.0, 0.5, 5000)
    counts = np.histogram(np.minimum(salaries, 63.5), bins=np.arange(65))[0]
    out = bf.release(fit, counts, epsilon=1.0, delta=1e-6)
    truth = fit.problem.workload.matrix.mv(counts)
    low, high = out.interval(0.95)
    files = [write_answers(out, FOLDER / "answers.csv", level=0.95), write_estimate(out, FOLDER / "histogram.csv")]
    print(f"\nReleased {truth.size} ranges over {counts.sum()} made-up salaries: {out.plan.promise}")
    print(f"  rmse {np.sqrt(np.mean((out.answers - truth) ** 2)):.1f} records, {out.plan.rmse:.1f} expected", end="")
    print(f"; the 95 % intervals cover {100 * np.mean((low <= truth) & (truth <= high)):.0f} % of the answers")
    print(f"Wrote {', '.join(map(str, files))}")


if __name__ == "__main__":
    main()
