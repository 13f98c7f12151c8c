"""The README's example from end to end: `make demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hdmm_bf as bf
from hdmm_bf import fitting

WORKLOAD, POLICY = "all-range:64", "threshold:64:4"


def main() -> None:
    """Fit a strategy, show it beside the bounds, write and verify a bundle."""
    policy = bf.policy.parse(POLICY)
    print(f"Policy {POLICY}: {bf.policy.hides(policy)}")
    print(f"Public: {'; '.join(bf.policy.discloses(policy))}.\n")
    fit = bf.fit(WORKLOAD, POLICY)
    ordinary = bf.fit(WORKLOAD, "unbounded:64")
    print(f"{WORKLOAD}, Gaussian noise, epsilon 1, delta 1e-6")
    print(f"  SVD bound    {fit.bounds.svd:10.1f}   (unit error; no strategy is below)")
    print(f"  tight bound  {fit.bounds.lower:10.1f}   (no strategy is below)")
    print(f"  our strategy {fit.unit_error:10.1f}   proven within {100 * fit.gap:.2f} % of the best possible")
    print(f"  rmse of a query {fit.rmse(epsilon=1.0, delta=1e-6):.1f} records", end="")
    print(f"; under ordinary differential privacy {ordinary.rmse(epsilon=1.0, delta=1e-6):.1f}")
    with tempfile.TemporaryDirectory() as folder:
        path = fit.save(Path(folder) / "ranges.bf")
        _, disagreements = fitting.check(path)
        print(f"\nWrote {path.name} ({', '.join(sorted(f.name for f in path.iterdir()))})")
        print(disagreements or "Verified: every claim was derived again.")


if __name__ == "__main__":
    main()
