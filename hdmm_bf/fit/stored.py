"""Fits from bundles: read, derived again, compared with what they claim."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._display import plain
from hdmm_bf._linalg import threads_for
from hdmm_bf.bounds.dense import is_public
from hdmm_bf.bundle import dense as bundle
from hdmm_bf.bundle import products as bundle_blocks
from hdmm_bf.bundle.checks import BLOCKS, refuse
from hdmm_bf.bundle.files import read_folder
from hdmm_bf.certificate.dense import AGREEMENT, Certificate, certify, disagreements
from hdmm_bf.certificate.products import certify_blocks
from hdmm_bf.fit.product import ProductFit
from hdmm_bf.fit.record import Fit
from hdmm_bf.strategies import TracePoint

_GRID_ROOM = 1.1, 1e-6
"""Factor and rest by which putting a converged strategy on its grid may exceed the requested gap."""

_ROUNDING = 1e-6
"""Share of the lower bound by which rounding may put the error of a mechanism below it."""


def load(path: str | Path, *, expect: str | None = None) -> Fit | ProductFit:
    """Read a bundle and certify it anew; refused if anything in it disagrees with what is derived.

    Args:
        path: the folder.
        expect: the digest of the bundle, or its first 16 digits and more; any other bundle is refused.
    """
    loaded, found = check(path, expect=expect)
    if found:
        raise bundle.BundleError(str(fail("bundle.load", repr(str(path)), found[0], "Fit the strategy again.")))
    return loaded


def check(path: str | Path, *, expect: str | None = None) -> tuple[Fit | ProductFit, list[str]]:
    """Read a bundle, derive everything again from its files, and list what disagrees with its claims.

    Guarantees:
        A bundle that cannot be trusted at all is refused with `BundleError`; a folder that is none with `InputError`.
    """
    started = time.perf_counter()
    manifest, files, digest = read_folder(path, expect=expect)
    made, found = (_check_blocks if BLOCKS in files else _check_dense)(path, manifest, files, started)
    return replace(made, digest=digest), found


def _check_dense(
    path: str | Path, manifest: dict[str, Any], files: dict[str, bytes], started: float
) -> tuple[Fit | ProductFit, list[str]]:
    held = bundle.contents(Path(path), manifest, files)
    derived, public = _derive(path, held)
    if (manifest["status"] == "exact") != public:
        problem = f"claims status = {manifest['status']}, and the queries are {'' if public else 'not '}all public"
        raise refuse(path, bundle.MANIFEST, problem)
    made = Fit(
        problem=held.problem,
        strategy=held.strategy,
        certificate=derived,
        weights=held.weights,
        requested_gap=float(manifest["requested_gap"]),
        seed=manifest["seed"],
        status=manifest["status"],
        seconds=time.perf_counter() - started,
        **_recorded(manifest),
    )
    return made, _disagreements(manifest, held.certificate, made)


def _check_blocks(
    path: str | Path, manifest: dict[str, Any], files: dict[str, bytes], started: float
) -> tuple[Fit | ProductFit, list[str]]:
    held = bundle_blocks.contents(Path(path), manifest, files)
    try:
        with np.errstate(all="ignore"):
            derived = certify_blocks(held.product, noise=manifest["noise"], strategy=held.strategy, proof=held.proof)
    except (ValueError, ArithmeticError, LookupError, TypeError) as error:
        raise refuse(path, BLOCKS, f"cannot be certified ({error})") from None
    made = ProductFit(
        problem=held.product.problem,
        product=held.product,
        strategy=held.strategy,
        certificate=derived,
        proof=held.proof,
        requested_gap=float(manifest["requested_gap"]),
        seed=manifest["seed"],
        status=manifest["status"],
        seconds=time.perf_counter() - started,
        why=str(manifest.get("why", "")),
        **_recorded(manifest),
    )
    return made, _disagreements(manifest, held.certificate, made)


def _recorded(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of the search: nothing rests on it, and nothing can derive it again."""
    return {
        "reached": {name: float(error) for name, error in manifest["reached"].items()},
        "options": dict(manifest.get("options", {})),
        "trace": tuple(TracePoint(*map(float, point)) for point in manifest.get("trace", [])),
    }


def _derive(path: str | Path, held: bundle.Contents) -> tuple[Certificate, bool]:
    """Certify what a bundle holds; numbers too large or small to be certified are a fault of the bundle."""
    strategy = held.strategy
    try:
        with threads_for(held.problem.policy.num_cells), np.errstate(all="ignore"):  # what is not finite is refused
            derived = certify(
                held.problem,
                noise=held.manifest["noise"],
                kind=strategy.kind,
                integers=strategy.integers,
                bits=strategy.bits,
                weights=held.weights,
            )
            public = is_public(held.problem)
    except (ValueError, ArithmeticError) as error:
        raise refuse(path, "strategy.npz", f"cannot be certified ({error})") from None
    numbers = {name: value for name, value in derived.as_dict().items() if isinstance(value, float)}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise refuse(path, "strategy.npz", f"cannot be certified ({name} is {value})")
    return derived, public


def _disagreements(manifest: dict[str, Any], claimed: dict[str, Any], made: Fit | ProductFit) -> list[str]:
    found = [f"certificate.json: {item}" for item in disagreements(claimed, made.certificate)]
    found += [f"manifest.json: {item}" for item in _manifest_disagreements(manifest, made)]
    return [plain(item) for item in found]


def _manifest_disagreements(manifest: dict[str, Any], made: Fit | ProductFit) -> list[str]:
    """List what a manifest claims and is not so: the certificate's numbers, then what follows from them."""
    certificate = made.certificate
    found = disagreements({**manifest, "support": certificate.support}, certificate)
    derived = {k: v for k, v in made.summary().items() if k not in ("workload", "policy", "seconds")}
    found += [
        f"{name} is claimed to be {manifest.get(name)}, derived {value}"
        for name, value in derived.items()
        if name not in certificate.as_dict() and not _same(manifest.get(name), value)
    ]
    factor, rest = _GRID_ROOM
    if made.status == "converged" and made.gap > factor * made.requested_gap + rest:
        found.append(f"status is claimed to be converged to {made.requested_gap}, derived gap {made.gap}")
    if made.trace and made.trace[-1].bound > (1 + _ROUNDING) * made.unit_error:
        found.append(f"trace ends with a bound of {made.trace[-1].bound}, above the error {made.unit_error}")
    found += [
        f"reached is claimed to be {error} by {name}, below the lower bound {certificate.lower_bound}"
        for name, error in made.reached.items()
        if error < (1 - _ROUNDING) * certificate.lower_bound
    ]
    return found


def _same(claimed: Any, derived: Any) -> bool:
    if isinstance(derived, float):
        number = isinstance(claimed, int | float) and not isinstance(claimed, bool)
        return number and math.isclose(claimed, derived, rel_tol=AGREEMENT)
    return type(claimed) is type(derived) and bool(claimed == derived)
