"""Bounds by factors from the certificate's own code: against dense nuclear norms, the search's values, forgeries."""

import itertools
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.bounds.products import product_bound
from hdmm_bf.bounds.products.kronecker import uniform_weights
from hdmm_bf.certificate.duals import grids, proven_bounds, sums
from hdmm_bf.certificate.duals.weights import proof_weights
from hdmm_bf.problem.product import as_product
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian import fit_product
from hdmm_bf.strategies.gaussian.folded_weights import folded_proof
from hdmm_bf.strategies.gaussian.proofs import best_proof, special

QUADRATURE = 5e-6
"""What the search's sum over nodes may leave out on grids; the certificate writes small ones out."""


def taken_apart(W, G):
    W = workload.parse(W) if isinstance(W, str) else W
    G = policy.parse(G) if isinstance(G, str) else G
    made = as_product(Problem(W, G), balls=True)
    assert made is not None
    return made


def edge_weights(product, proof):
    """The weights that a proof puts on every single edge, by the words of its definition, in a dictionary by ends."""
    sizes, found = product.sizes, {}
    d, inner = len(sizes), [e[e[:, 1] >= 0] for e in product.edges]
    stars = [i for i in range(d) if np.count_nonzero(product.edges[i][:, 1] < 0) == sizes[i]]
    moved = [i for i in range(d) if len(inner[i])]

    def add(i, edge, cell, weight):
        """An edge of attribute i at a cell of all attributes, whose own entry is replaced."""
        ends = [tuple(np.where(np.arange(d) == i, v, cell).tolist()) if v >= 0 else None for v in edge]
        found[frozenset(ends)] = found.get(frozenset(ends), 0.0) + weight

    def along(i, edges, weight):
        for k, edge in enumerate(edges.tolist()):
            for cell in itertools.product(*(range(1 if j == i else n) for j, n in enumerate(sizes))):
                add(i, edge, cell, weight(k, cell))

    def to_bottom(weight):
        for cell in itertools.product(*map(range, sizes)):
            found[frozenset([cell, None])] = found.get(frozenset([cell, None]), 0.0) + weight(cell)

    kind, mu = proof["kind"], proof.get("weights")
    if kind == "types":
        for i, w in zip(moved, mu, strict=False):
            along(i, inner[i], lambda k, c, i=i, w=w: w / len(inner[i]) / (math.prod(sizes) / sizes[i]))
        if stars:
            to_bottom(lambda c: mu[-1] / math.prod(sizes))
    elif kind == "sectors":
        own = int(proof["attribute"])
        e, n, rest = len(product.edges[own]), sizes[own], math.prod(sizes) / sizes[own]
        along(own, product.edges[own], lambda k, c: mu[k] / rest)
        kinds = [i for i in moved if i != own]
        for m, i in enumerate(kinds):
            part = mu[e + m * n : e + (m + 1) * n]
            along(i, inner[i], lambda k, c, i=i, part=part: part[c[own]] / len(inner[i]) / (rest / sizes[i]))
        if [i for i in stars if i != own]:
            to_bottom(lambda c: mu[-n + c[own]] / rest)
    elif kind == "kronecker":
        own = int(proof["attribute"])
        others = [i for i in range(d) if i != own]
        along(own, product.edges[own], lambda k, c: mu[own][k] * math.prod(mu[i][c[i]] for i in others))
    else:
        for i in range(d):
            mine = proof["edges"][i] if kind == "folded" else np.ones(len(product.edges[i]))
            others, w = [j for j in range(d) if j != i], proof["types"][i]
            along(
                i,
                product.edges[i],
                lambda k, c, o=others, w=w, mine=mine: w * mine[k] * math.prod(proof["cells"][j][c[j]] for j in o),
            )
    return found


def nuclear(product, weights):
    """||W P diag(sqrt mu)||_*^2 over the sum of mu, everything written out."""
    W, cells = product.problem.workload.objective.dense(), math.prod(product.sizes)
    columns = []
    for ends, mu in weights.items():
        p = np.zeros(cells)
        for sign, cell in zip((1, -1), sorted(ends, key=lambda c: c is None), strict=True):
            if cell is not None:
                p[np.ravel_multi_index(cell, product.sizes)] = sign
        columns.append(math.sqrt(mu) * p)
    return np.linalg.norm(W @ np.array(columns).T, "nuc") ** 2 / sum(weights.values())


TABLES = workload.union(workload.parse("marginals:4x3x2:2"), workload.weighted(workload.parse("prefix:4x3x2"), 3.0))
AGES = workload.union(
    workload.parse("marginals:5x3x2:2"),
    workload.product(workload.all_range(5), workload.identity(3), workload.from_matrix(np.ones((1, 2)))),
)
SMALL = [
    ("all-range:4x3x2", "product:line:4,bounded:3,empty:2"),
    ("marginals:4x3x2:2", "product:line:4,bounded:3,empty:2"),
    ("marginals:4x3x2:2", "product:cycle:4,bounded:3,unbounded:2"),
    ("all-range:5x4", "threshold:5x4:1"),
    ("prefix:5x4", "threshold:5x4:1"),
    ("prefix:5x4", "threshold:5x4:2"),
    ("all-range:4x3", "unbounded:4x3"),
    ("all-range:5x3", "product:line:5,empty:3"),
    ("all-range:3x3x3", "product:line:3,line:3,line:3"),
    (AGES, "product:line:5,bounded:3,empty:2"),
    (AGES, "product:line:5,unbounded:3,empty:2"),
    (TABLES, "product:line:4,bounded:3,empty:2"),
    (TABLES, "product:star-tree:4,line:3,line:2"),
    (TABLES, "product:h-theta:4:2,unbounded:3,line:2"),
]


def proofs(product):
    """Every kind of proof that fits but balls, with weights of the search and with others."""
    rng = np.random.default_rng(3)
    own = [special(product), folded_proof(product)]
    if product.threshold is None:
        own.append(best_proof(product)[1])
        own.append(fit_product(product, gap=1e-2, max_steps=3).proof)
    moved = [i for i, edges in enumerate(product.edges) if len(edges)]
    own += [{"kind": "kronecker", "attribute": i, "weights": uniform_weights(product, i)} for i in moved]
    folded = {
        "kind": "folded",
        "edges": [rng.uniform(0.1, 1, len(e)) for e in product.edges],
        "cells": [rng.uniform(0.1, 1, n) for n in product.sizes],
        "types": np.where([len(e) > 0 for e in product.edges], rng.uniform(0.1, 1, len(product.sizes)), 0.0),
    }
    return [proof for proof in [*own, folded] if proof is not None]


@pytest.mark.parametrize(("W", "G"), SMALL)
def test_every_kind_of_proof_is_the_nuclear_norm_of_its_edge_weights(W, G):
    """Quotes proven_bounds: no strategy has a smaller unit error than `lower`."""
    product = taken_apart(W, G)
    for proof in proofs(product):
        found, true = proven_bounds(product, proof), nuclear(product, edge_weights(product, proof))
        lower = max(true, found.svd or 0.0)
        assert found.lower <= lower * (1 + 1e-13), proof["kind"]
        if proof["kind"] != "kronecker" or len(product.terms) == 1:  # of several terms the squares are added up
            assert found.lower == pytest.approx(lower, rel=1e-6), proof["kind"]


@pytest.mark.parametrize(("W", "G"), [case for case in SMALL if not case[1].startswith("threshold:5x4:2")])
def test_equal_weights_give_the_svd_bound(W, G):
    product = taken_apart(W, G)
    found = proven_bounds(product, None)
    true = bf.bounds.svd_bound(product.problem)
    assert found.lower == found.svd
    if found.svd is not None:
        assert found.svd == pytest.approx(true, rel=1e-7)
        assert found.svd <= true * (1 + 1e-13)
    else:
        assert product_bound(product).svd is None


LARGE = [
    ("all-range:100x50x2", "product:line:100,bounded:50,empty:2", 1e-9),
    ("prefix:100x50x2", "product:line:100,bounded:50,empty:2", 1e-9),
    ("marginals:100x50x2:2", "product:line:100,bounded:50,empty:2", 1e-9),
    ("marginals:30x20x10:2", "product:line:30,cycle:20,unbounded:10", 1e-9),
    ("marginals:20x10x30:2", "sensitive:20x10x30:0,1", 1e-9),
    ("all-range:40x30", "unbounded:40x30", 1e-9),
    ("all-range:100x50", "product:line:100,empty:50", 1e-9),
    ("all-range:10x10x10", "product:line:10,line:10,line:10", 1e-9),
    ("all-range:24x24", "threshold:24x24:3", 1e-9),
    ("all-range:32x32", "threshold:32x32:1", QUADRATURE),
    ("all-range:64x64", "threshold:64x64:1", QUADRATURE),
    ("prefix:64x48", "threshold:64x48:1", QUADRATURE),
    ("all-range:128x6", "product:line:128,bounded:6", QUADRATURE),
]


def proof_of_search(product):
    return best_proof(product)[1] or fit_product(product, gap=1e-2, max_steps=5).proof


@pytest.mark.parametrize(("W", "G", "room"), LARGE)
def test_the_search_and_the_certificate_find_the_same_bound(W, G, room):
    product = taken_apart(W, G)
    proof = proof_of_search(product)
    searched, own = product_bound(product, proof), proven_bounds(product, proof)
    assert own.lower == pytest.approx(searched.lower, rel=room)
    assert (own.svd is None) == (searched.svd is None)
    if own.svd is not None:
        assert own.svd == pytest.approx(searched.svd, rel=room)


def census(ages, regions, groups):
    ones = [workload.from_matrix(np.ones((1, n))) for n in (groups, 2)]
    ranges = workload.product(workload.all_range(ages), workload.identity(regions), *ones)
    return workload.union(workload.parse(f"marginals:{ages}x{regions}x{groups}x2:2"), ranges)


def test_census_tables_have_the_bound_of_the_search():
    product = taken_apart(census(100, 50, 7), "product:line:100,bounded:50,bounded:7,empty:2")
    proof = fit_product(product, gap=1e-3).proof
    assert proof["kind"] == "sectors"
    own = proven_bounds(product, proof)
    assert own.lower == pytest.approx(product_bound(product, proof).lower, rel=1e-9)
    assert own.lower == pytest.approx(3206368.453, rel=1e-3)


@pytest.mark.parametrize(
    ("W", "G"),
    [
        ("all-range:9x7", "threshold:9x7:1"),
        ("prefix:8x6", "threshold:8x6:1"),
        ("all-range:9x8", "product:cycle:9,line:8"),
    ],
)
def test_grids_from_determinants_are_grids_written_out(W, G):
    """Never above, and below by no more than what the nodes leave out."""
    product, rng = taken_apart(W, G), np.random.default_rng(1)
    half = [rng.uniform(0.3, 1, n) for n in product.sizes]
    for cells in (half, [d + d[::-1] for d in half]):
        proof = {"kind": "grid", "cells": cells, "types": [1.0, 1.7]}
        weights = proof_weights(product, proof)
        split = sums.attributes(product, weights)
        small = grids.on_grid((split[0], split[1]), (weights[0].scale, weights[1].scale), 1.0)
        written = sums.by_parts(product, weights, split, 1000)
        assert written**2 / sum(s.mass for s in weights) == pytest.approx(
            nuclear(product, edge_weights(product, proof)), rel=1e-9
        )
        assert (1 - QUADRATURE) * written <= small <= written


def test_attributes_without_a_core_have_no_bound_from_determinants():
    product = taken_apart("all-range:9x7", "sensitive:9x7:0,1")
    weights = proof_weights(product, {"kind": "grid", "cells": [np.ones(9), np.ones(7)], "types": [1.0, 1.0]})
    split = sums.attributes(product, weights)
    assert grids.on_grid((split[0], split[1]), (1.0, 1.0), 1.0) is None


# ---------------------------------------------------------------- random products, and heavy public totals


def random_problem(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, size=int(rng.integers(2, 4))).tolist()
    graphs = [policy.line, policy.bounded, policy.cycle, policy.star_tree, policy.empty, policy.unbounded]
    own = [graphs[k](n) if n > 2 else policy.line(n) for k, n in zip(rng.integers(5, size=9), sizes, strict=False)]
    if rng.uniform() < 0.3:
        own[-1] = policy.unbounded(sizes[-1])
    if all(p.num_edges == 0 for p in own):
        own[0] = policy.line(sizes[0])
    kinds = [workload.identity, workload.all_range, workload.prefix, lambda n: workload.from_matrix(np.ones((1, n)))]
    dense = lambda n: workload.from_matrix(rng.integers(-2, 3, size=(n + 1, n)).astype(float))  # noqa: E731
    terms = [
        workload.weighted(
            workload.product(*([*kinds, dense][rng.integers(5)](n) for n in sizes)), 10.0 ** int(rng.integers(-2, 5))
        )
        for _ in range(rng.integers(1, 4))
    ]
    return taken_apart(terms[0] if len(terms) == 1 else workload.union(*terms), policy.product(*own))


@pytest.mark.parametrize("seed", [pytest.param(k, marks=pytest.mark.slow if k > 9 else ()) for k in range(60)])
def test_random_products_have_no_bound_above_the_nuclear_norm(seed):
    product = random_problem(seed)
    for proof in proofs(product):
        true = nuclear(product, edge_weights(product, proof))
        found = proven_bounds(product, proof)
        scale = np.abs(product.problem.workload.objective.dense()).max() ** 2
        assert found.lower <= max(true, found.svd or 0.0) * (1 + 1e-9) + 1e-13 * scale, proof["kind"]
        if found.svd is not None:
            assert found.svd <= bf.bounds.svd_bound(product.problem) * (1 + 1e-7) + 1e-13 * scale


def test_public_totals_prove_nothing():
    """Heavy totals that no edge changes, beside queries that one does: what is proven is of the others alone."""
    light = workload.all_range((6, 4))
    heavy = workload.weighted(workload.product(*(workload.from_matrix(np.ones((1, n))) for n in (6, 4))), 1e6)
    G = "product:line:6,bounded:4"
    alone, both = taken_apart(light, G), taken_apart(workload.union(light, heavy), G)
    proof = folded_proof(alone)
    expected = proven_bounds(alone, proof).lower
    assert proven_bounds(both, proof).lower == pytest.approx(expected, rel=1e-6)
    totals = taken_apart(heavy, G)
    assert proven_bounds(totals, proof)[:2] == (0.0, 0.0)


# ---------------------------------------------------------------- forged proofs


def forged(proof):
    """Ways in which arrays of a proof can be wrong."""
    key = "weights" if "weights" in proof else "cells"
    value = proof[key]
    whole = isinstance(value, list)
    first = np.asarray(value[0] if whole else value, dtype=float)

    def put(array):
        return {**proof, key: [array, *value[1:]] if whole else array}

    yield put(np.where(np.arange(first.size) == 0, -1e-3, first))
    yield put(np.where(np.arange(first.size) == 0, math.nan, first))
    yield put(np.where(np.arange(first.size) == 0, math.inf, first))
    yield put(first[:-1])
    yield put(np.append(first, 1.0))
    yield put(first[None])
    yield put(np.array(["a"] * first.size))
    yield put(1j * first)
    yield {k: v for k, v in proof.items() if k != key}
    if whole:
        yield {**proof, key: value[:-1]}
        yield {**proof, key: [np.zeros(len(v)) for v in value]}
    else:
        yield put(np.zeros(first.size))
    for attribute in (-1, 9, 0.5, math.nan, "0", None) if "attribute" in proof else ():
        yield {**proof, "attribute": attribute}
    for types in ([1.0], [-1.0, 2.0], [math.nan, 1.0], None) if "types" in proof else ():
        yield {**proof, "types": types}
    yield {**proof, "kind": "rumour"}
    yield {**proof, "kind": 3}


@pytest.mark.parametrize(
    ("W", "G"),
    [
        ("marginals:4x3x2:2", "product:line:4,bounded:3,empty:2"),
        (AGES, "product:line:5,bounded:3,empty:2"),
        ("all-range:5x4", "threshold:5x4:1"),
        ("all-range:5x3", "product:line:5,empty:3"),
        ("all-range:3x3x3", "product:line:3,line:3,line:3"),
    ],
)
def test_forged_weights_are_refused(W, G):
    """Quotes proven_bounds: weights that are negative, not finite or of another number than the edges are refused."""
    product = taken_apart(W, G)
    for proof in proofs(product):
        for wrong in forged(proof):
            with pytest.raises(InputError, match="certificate"):
                proven_bounds(product, wrong)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e6])
def test_weights_need_no_sum_of_one_and_prove_the_same_scaled(factor):
    product = taken_apart("all-range:5x4", "threshold:5x4:1")
    proof = special(product)
    scaled = {**proof, "types": [factor * w for w in proof["types"]]}
    assert proven_bounds(product, scaled).lower == pytest.approx(proven_bounds(product, proof).lower, rel=1e-12)


def test_other_weights_prove_what_they_prove():
    """Quotes proven_bounds: all others prove what they prove, never more than the best."""
    product, rng = taken_apart("all-range:6x4", "threshold:6x4:1"), np.random.default_rng(0)
    tight = bf.bound(product.problem.workload, product.problem.policy, gap=1e-6).lower
    for _ in range(20):
        cells = [rng.exponential(size=n) ** 4 for n in product.sizes]
        proof = {"kind": "grid", "cells": cells, "types": rng.exponential(size=2)}
        assert proven_bounds(product, proof).lower <= tight * (1 + 1e-5)


def test_a_grid_needs_two_attributes():
    product = taken_apart("all-range:3x3x3", "product:line:3,line:3,line:3")
    with pytest.raises(InputError, match="two attributes"):
        proven_bounds(product, {"kind": "grid", "cells": [np.ones(3)] * 3, "types": [1.0, 1.0]})


def test_parts_that_are_too_large_prove_nothing():
    sizes = (60, 50, 40)
    product = taken_apart("all-range:60x50x40", "product:line:60,line:50,line:40")
    cells = [np.ones(n) for n in sizes]
    proof = {"kind": "folded", "edges": [np.ones(n - 1) for n in sizes], "cells": cells, "types": np.ones(3)}
    assert proven_bounds(product, proof)[:2] == (None, None)
