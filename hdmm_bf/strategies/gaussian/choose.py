"""The family for a product problem: the exact ones where they apply, bases otherwise."""

from __future__ import annotations

import math

from hdmm_bf._checks import fail, nearest
from hdmm_bf.parallel.devices import Mesh
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian import bases, kronecker, marginals, sectors
from hdmm_bf.strategies.gaussian.sketch import Found
from hdmm_bf.strategies.search import Callback

FAMILIES = ("marginals", "kronecker", "sectors", "bases")
"""In the order in which they are tried: closed form, product of small optima, small exact parts, search."""


def choose(product: ProductProblem) -> str:
    """Return the first family that fits."""
    if marginals.applies(product):
        return "marginals"
    if kronecker.applies(product):
        return "kronecker"
    return "sectors" if sectors.applies(product) else "bases"


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
    applies = {"marginals": marginals.applies, "kronecker": kronecker.applies, "sectors": sectors.applies}
    if name in applies and not applies[name](product):
        problem, advice = "does not fit this workload and policy", f"Use family={choose(product)!r}."
        raise fail("fit", f"family={name!r}", problem, advice)
    if name == "marginals":
        return marginals.fit(product)
    if name == "kronecker":
        return kronecker.fit(
            product, gap=gap, max_seconds=max_seconds, callback=callback, mesh=mesh, max_steps=max_steps
        )
    searches = {"sectors": sectors.fit, "bases": bases.fit}
    return searches[name](product, gap=gap, max_seconds=max_seconds, callback=callback, max_steps=max_steps)
