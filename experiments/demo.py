"""The README's example from end to end: `make demo`."""

from __future__ import annotations

import hdmm_bf as bf


def main() -> None:
    """Explain a policy and show what it does to the sensitivity of all ranges."""
    workload = bf.workload.parse("all-range:64")
    for spec in ("unbounded:64", "threshold:64:4", "line:64"):
        policy = bf.policy.parse(spec)
        public = "; ".join(bf.policy.discloses(policy)) or "nothing"
        print(f"{spec}: {bf.policy.hides(policy)} Public: {public}.")
        print(f"  L1 sensitivity of {workload.num_queries} ranges: {bf.sensitivity(workload, policy, norm='L1'):g}")


if __name__ == "__main__":
    main()
