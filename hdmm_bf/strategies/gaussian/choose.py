"""The family for a product problem: the exact ones where they apply, bases otherwise."""

from __future__ import annotations

import math
from typing import Any

from hdmm_bf._checks import fail, nearest
from hdmm_bf._types import Proof
from hdmm_bf.parallel.devices import Mesh
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian import bases, marginals
from hdmm_bf.strategies.gaussian.floors import floors
from hdmm_bf.strategies.gaussian.proofs import best_proof
from hdmm_bf.strategies.gaussian.sketch import Found
from hdmm_bf.strategies.registry import Family, families, names
from hdmm_bf.strategies.registry import family as find
from hdmm_bf.strategies.search import Callback

FAMILIES = names("gaussian", structured=True)
_PROOF_GAP = 1e-3
"""In the order in which they are tried: closed form, product of small optima, small exact parts, search."""

FLOOR = "a known mechanism, kept by its factors: nothing that was searched is better"


def choose(product: ProductProblem) -> str:
    """Return the first family that fits."""
    return next(family.name for family in families("gaussian", structured=True) if _fits(family, product))


def _fits(family: Family, product: ProductProblem) -> bool:
    return (family.balls or product.threshold is None) and family.applies(product)


def fit_beside_floors(product: ProductProblem, **options: Any) -> Found:
    """Find an implicit Gaussian strategy as `fit_product` does, and take a known mechanism where that is better.

    Guarantees:
        Never worse than any of the paper's and the classical mechanisms in `reached`, whatever the family, wherever
        the search was cut short. In tables with a closed form nothing is better, and none are evaluated.
    """
    known = [] if (options.get("family") or choose(product)) == marginals.FAMILY.name else floors(product)
    found = fit_product(product, **options)
    if not known or found.error == 0:
        return found
    reached = {floor.name: floor.error for floor in known} | {found.family: found.error}
    best = min(known, key=lambda floor: floor.error)
    if found.error <= best.error:
        return found._replace(reached=reached)
    return found._replace(sketches=(best.sketch,), error=best.error, family=best.name, why=FLOOR, reached=reached)


def fit_product(
    product: ProductProblem,
    *,
    gap: float = 1e-3,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
    family: str | None = None,
    mesh: Mesh | None = None,
    max_steps: int | None = None,
) -> Found:
    """Find an implicit Gaussian strategy for a product problem without writing the domain out.

    Args:
        product: the problem by its factors.
        gap: stop when the error is proven to be within this share of the best possible.
        max_seconds: time limit of the search.
        callback: called with error and bound after every step.
        family: one of FAMILIES, or None for the first that fits.
        mesh: the devices over which the factors of `kronecker` are spread; the other families do not use it.
        max_steps: limit on the steps of the search; `marginals` has a closed form and takes none.

    Guarantees:
        The error is that of the sketches at sensitivity 1, and the bound is what `product_bound` gives for the proof.
    """
    name = choose(product) if family is None else family
    if name not in FAMILIES:
        raise fail("fit", f"family={name!r}", "is not a family for product domains", nearest(name, FAMILIES))
    chosen = find("gaussian", name)
    if not _fits(chosen, product):
        problem, advice = "does not fit this workload and policy", f"Use family={choose(product)!r}."
        raise fail("fit", f"family={name!r}", problem, advice)
    spread = {"mesh": mesh} if chosen.spreads else {}
    found: Found = chosen.search(
        product, gap=gap, max_seconds=max_seconds, callback=callback, max_steps=max_steps, **spread
    )
    return found


def short_proof(product: ProductProblem) -> Proof | None:
    """Return the Gaussian optimum's proof where a small search finds it, else the best there is: it bounds Laplace too.

    None where no bound can be evaluated from the factors.
    """
    if choose(product) == bases.FAMILY.name:
        return best_proof(product)[1]
    return fit_product(product, gap=_PROOF_GAP).proof
