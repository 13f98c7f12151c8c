"""Fits from bundles: read, derived again, compared with what they claim."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np

from hdmm_bf import bundle
from hdmm_bf._checks import fail
from hdmm_bf._display import plain
from hdmm_bf._linalg import AGREEMENT, BOUND_ROUNDING, threads_for
from hdmm_bf._types import JsonObject
from hdmm_bf.bundle.checks import BLOCKS, GROUPED_TREE, STRATEGY, TREE, TREE_SUM, refuse
from hdmm_bf.certificate import Certificate, disagreements
from hdmm_bf.fit.certified import certificate
from hdmm_bf.fit.fit import Fit
from hdmm_bf.strategies import TracePoint

_ADDED = frozenset({"matrix_bound", "worst_variance", "objective", "objective_value", "objective_bound"})
"""Claims that bundles of the first version do not make; whatever follows from them is derived anyway."""

_GRID_ROOM = 1.1, 1e-6
"""Factor and rest by which putting a converged strategy on its grid may exceed the requested gap."""


def load(path: str | Path, *, expect: str | None = None) -> Fit:
    """Read a bundle and certify it anew; refused if anything in it disagrees with what is derived.

    Args:
        path: the folder.
        expect: the digest of the bundle, or its first 16 digits and more; any other bundle is refused.
    """
    loaded, found = check(path, expect=expect)
    if found:
        raise bundle.BundleError(str(fail("bundle.load", repr(str(path)), found[0], "Fit the strategy again.")))
    return loaded


def check(path: str | Path, *, expect: str | None = None) -> tuple[Fit, list[str]]:
    """Read a bundle, derive everything again from its files, and list what disagrees with its claims.

    Guarantees:
        A bundle that cannot be trusted at all is refused with `BundleError`; a folder that is none with `InputError`.
    """
    started = time.perf_counter()
    contents = bundle.read(path, expect=expect)
    manifest = contents.manifest
    derived = _derive(path, contents)
    public = derived.unit_error == 0
    if (manifest["status"] == "exact") != public:
        problem = f"claims status = {manifest['status']}, and the queries are {'' if public else 'not '}all public"
        raise refuse(path, bundle.MANIFEST, problem)
    loaded = Fit(
        problem=contents.problem,
        strategy=contents.strategy,
        certificate=derived,
        proof=contents.proof,
        requested_gap=float(manifest["requested_gap"]),
        seed=manifest["seed"],
        status=manifest["status"],
        seconds=time.perf_counter() - started,
        reached={name: float(error) for name, error in manifest["reached"].items()},
        options=dict(manifest.get("options", {})),  # of the search: nothing rests on them, nor on the trace
        trace=tuple(TracePoint(*map(float, point)) for point in manifest.get("trace", [])),
        why=str(manifest.get("why", "")),
        digest=contents.digest,
    )
    return loaded, _disagreements(manifest, contents.certificate, loaded)


def _derive(path: str | Path, contents: bundle.Contents) -> Certificate:
    """Certify what a bundle holds; numbers too large or small to be certified are a fault of the bundle."""
    problem, strategy = contents.problem, contents.strategy
    noise, proof = contents.manifest["noise"], contents.proof
    try:
        with threads_for(problem.policy.num_cells), np.errstate(all="ignore"):  # what is not finite is refused
            return certificate(strategy, problem, noise=noise, proof=proof)
    except (ValueError, ArithmeticError, LookupError, TypeError) as error:
        kinds = BLOCKS, TREE, GROUPED_TREE, TREE_SUM, STRATEGY
        file = next(name for name in kinds if name in contents.manifest["files"])
        raise refuse(path, file, f"cannot be certified ({error})") from None


def _disagreements(manifest: JsonObject, claimed: JsonObject, made: Fit) -> list[str]:
    found = [f"certificate.json: {item}" for item in disagreements(claimed, made.certificate)]
    found += [f"manifest.json: {item}" for item in _manifest_disagreements(manifest, made)]
    return [plain(item) for item in found]


def _manifest_disagreements(manifest: JsonObject, made: Fit) -> list[str]:
    """List what a manifest claims and is not so: the certificate's numbers, then what follows from them."""
    certificate = made.certificate
    found = disagreements({**manifest, "support": certificate.support}, certificate)
    derived = {k: v for k, v in made.summary().items() if k not in ("workload", "policy", "seconds")}
    found += [
        f"{name} is claimed to be {manifest.get(name)}, derived {value}"
        for name, value in derived.items()
        if name not in certificate.as_dict()
        and not (name in _ADDED and name not in manifest)
        and not _same(manifest.get(name), value)
    ]
    factor, rest = _GRID_ROOM
    gap, value = certificate.objective_gap, made.objective_value
    if made.status == "converged" and gap > factor * made.requested_gap + rest and made.objective != "own":
        found.append(f"status is claimed to be converged to {made.requested_gap}, derived gap {gap}")
    if made.trace and made.trace[-1].bound > (1 + BOUND_ROUNDING) * value and made.objective != "own":
        found.append(f"trace ends with a bound of {made.trace[-1].bound}, above the error {value}")
    found += [
        f"reached is claimed to be {error} by {name}, below the lower bound {certificate.lower_bound}"
        for name, error in made.reached.items()
        if error < (1 - BOUND_ROUNDING) * certificate.lower_bound
    ]
    return found


def _same(claimed: object, derived: object) -> bool:
    if isinstance(derived, float):
        if isinstance(claimed, bool) or not isinstance(claimed, int | float):
            return False
        return math.isclose(claimed, derived, rel_tol=AGREEMENT)
    return type(claimed) is type(derived) and bool(claimed == derived)
