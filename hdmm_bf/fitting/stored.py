"""Fits from bundles: read, derived again, compared with what they claim."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from hdmm_bf import bundle
from hdmm_bf._linalg import threads_for
from hdmm_bf.certificate import certify, disagreements
from hdmm_bf.fitting.record import Fit


def load(path: str | Path) -> Fit:
    """Read a bundle and certify it anew; refused if anything in it disagrees with what is derived."""
    loaded, found = check(path)
    if found:
        raise bundle.BundleError(f"bundle.load({str(path)!r}): {found[0]}. Fit the strategy again.")
    return loaded


def check(path: str | Path) -> tuple[Fit, list[str]]:
    """Read a bundle, derive everything again from its files, and list what disagrees with its claims."""
    started = time.perf_counter()
    held = bundle.read(path)
    strategy = held.strategy
    with threads_for(held.problem.policy.num_cells):
        derived = certify(
            held.problem,
            noise=held.manifest["noise"],
            kind=strategy.kind,
            integers=strategy.integers,
            bits=strategy.bits,
            weights=held.weights,
        )
    found = disagreements(held.certificate, derived)
    manifest, seconds = held.manifest, time.perf_counter() - started
    made = Fit(
        held.problem,
        strategy,
        derived,
        held.weights,
        float(manifest["requested_gap"]),
        int(manifest["seed"]),
        manifest["status"],
        seconds,
        reached=manifest.get("reached", {}),
    )
    fresh = made.summary()
    claims = {key: manifest.get(key) for key in fresh if key not in ("workload", "policy", "seconds")}
    found += [
        f"manifest.json claims {key} = {claims[key]}, derived {fresh[key]}"
        for key in claims
        if not _same(claims[key], fresh[key])
    ]
    return made, found


def _same(claimed: Any, derived: Any) -> bool:
    if isinstance(derived, float) and isinstance(claimed, int | float):
        return math.isclose(claimed, derived, rel_tol=1e-9, abs_tol=1e-9)
    return bool(claimed == derived)
