"""The bound for Laplace strategies by factors, from the pairs of edges of a proof: code that no search uses.

A proof says for every summand of its weights along which attribute edges are paired (`along`, -1 for none), which of
its values, or of its edges where it is the one that moves (`partners`), and how much of their weights each pair takes
(`shares`); the weights of the other attributes stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, Proof
from hdmm_bf.certificate.duals.metric import Pairing, left_over, metric
from hdmm_bf.certificate.duals.weights import Summand, proof_weights
from hdmm_bf.problem.product import ProductProblem


def paired_bound(product: ProductProblem, proof: Proof) -> float | None:
    """Return the bound of a proof that has pairs of edges; None where it cannot be evaluated.

    Guarantees:
        No strategy of L1 sensitivity 1 has a smaller unit error, whatever the proof says: pairs that take more than
        there is are refused, all others prove what they prove.
    """
    weights = proof_weights(product, proof)
    pairings = _pairings(product, weights, proof)
    found = metric(product, weights)
    return None if found is None else found.bound(pairings)


def _pairings(product: ProductProblem, weights: Sequence[Summand], proof: Proof) -> list[Pairing | None]:
    """Return the pairs of a proof; refused unless they are of its weights and leave none below zero."""
    along, partners, shares = (proof.get(name) for name in ("along", "partners", "shares"))
    lists = [partners, shares]
    if not all(isinstance(given, list | tuple) and len(given) == len(weights) for given in lists):
        raise fail("certificate", "pairs of edges", f"must be lists of {len(weights)}", "Fit again.")
    axes = np.asarray(along)
    if (
        axes.dtype.kind not in "iuf"
        or axes.shape != (len(weights),)
        or not set(axes.tolist()) <= set(range(-1, len(product.sizes)))
    ):
        raise fail("certificate", f"pairs along {along!r}", f"must be {len(weights)} attributes", "Fit again.")
    assert partners is not None
    assert shares is not None
    return [
        None if k < 0 else _checked(Pairing(k, np.asarray(ends), np.asarray(taken)), summand)
        for summand, k, ends, taken in zip(weights, axes.astype(int).tolist(), partners, shares, strict=True)
    ]


def _checked(pairing: Pairing, summand: Summand) -> Pairing:
    ends, shares, mu = pairing.partners, pairing.shares, summand.forms[pairing.along].weights
    good = ends.ndim == 2 and ends.shape[1:] == (2,) and ends.dtype.kind in "iuf" and shares.shape == ends.shape[:1]
    if not good or shares.dtype.kind != "f" or not np.all(np.isin(ends, np.arange(mu.size))):
        raise fail("certificate", "pairs of edges", f"must be of {mu.size} values, with a share each", "Fit again.")
    ends = ends.astype(np.int64)
    if np.any(ends[:, 0] == ends[:, 1]) or not np.all(np.isfinite(shares)) or np.any(shares < 0):
        raise fail("certificate", "pairs of edges", "must have two ends, and finite shares above zero", "Fit again.")
    if np.any(left_over(mu, Pairing(pairing.along, ends, shares)) < -AGREEMENT * mu):
        raise fail("certificate", "shares of pairs", "take more than the weight of an edge", "Fit again.")
    return Pairing(pairing.along, ends, shares)
