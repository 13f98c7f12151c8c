"""Pairs of edges that raise the bound for Laplace strategies by factors: neighbours along one attribute."""

from __future__ import annotations

import numpy as np

from hdmm_bf._types import IndexArray, Proof
from hdmm_bf.certificate.duals.metric import Metric, Pairing, metric
from hdmm_bf.certificate.duals.weights import Form, Moves, proof_weights
from hdmm_bf.problem.product import ProductProblem


def paired_proof(product: ProductProblem, proof: Proof | None) -> Proof | None:
    """Return a proof with pairs of edges; the same where none can be evaluated, or none gains."""
    found = None if proof is None else metric(product, proof_weights(product, proof))
    if proof is None or found is None:
        return proof
    chosen = [_best(found, summand) for summand in range(len(found.weights))]
    if all(pairing is None for pairing in chosen):
        return proof
    nobody = np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    lists = [nobody if pairing is None else (pairing.partners, pairing.shares) for pairing in chosen]
    partners, shares = zip(*lists, strict=True)
    along = np.array([-1 if pairing is None else pairing.along for pairing in chosen])
    return {**proof, "along": along, "partners": list(partners), "shares": list(shares)}


def _best(found: Metric, summand: int) -> Pairing | None:
    """Return the pairs that prove most for the edges of one summand; None if none gains."""
    forms = found.weights[summand].forms
    tried = [_neighbours(k, form) for k, form in enumerate(forms) if form.weights.size > 1]
    return max([None, *tried], key=lambda pairing: found.value(summand, pairing))


def _neighbours(along: int, form: Form) -> Pairing:
    """Pair values, or edges, with the next one, as far as the weights of both go."""
    order = _in_line(form)
    left, *others = form.weights[order].tolist()
    taken = []
    for own in others:
        taken.append(min(left, own))
        left = own - taken[-1]
    shares = np.array(taken)
    first = np.flatnonzero(shares)
    return Pairing(along, np.stack([order[first], order[first + 1]], axis=1), shares[first])


def _in_line(form: Form) -> IndexArray:
    """Order values as they are, and edges so that the next one has an end in common wherever all pairs are edges."""
    if not isinstance(form, Moves):
        return np.arange(form.weights.size)
    head, tail = form.ends.T
    return np.lexsort((np.where(head % 2 == 0, tail, -tail), head))
