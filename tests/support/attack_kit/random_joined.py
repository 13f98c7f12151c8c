"""Sums of joined blocks drawn at random: any policy by attributes, any blocks that hide all of it, any numbers."""

import math

import numpy as np

import hdmm_bf as bf
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import Gains, JoinedBlock, Layer, NoiseSum
from tests.support.attack_kit import forge

_LARGEST = 40
"""Cells of a domain."""


def random_fit(fit, seed):
    """Return a fit of joined blocks alone."""
    rng = np.random.default_rng([seed, 77])
    sizes = [int(size) for size in rng.integers(1, 5, int(rng.integers(2, 5)))]
    while math.prod(sizes) > _LARGEST:
        sizes[int(np.argmax(sizes))] -= 1
    lists = random_edges(rng, sizes)
    factors = [policy_of(own, n) for own, n in zip(lists, sizes, strict=True)]
    spec = "prefix:" + "x".join(map(str, sizes))
    problem = Problem(bf.workload.parse(spec), bf.policy.product(*factors))
    blocks = tuple(random_block(rng, sizes, lists, hides) for hides in random_parts(rng, lists))
    return forge.fit_by_hand(fit, problem, NoiseSum((), (), "by hand", blocks))


def policy_of(edges, n):
    return bf.policy.from_edges([u for u, _ in edges], [v for _, v in edges], n) if edges else bf.policy.empty(n)


def random_edges(rng, sizes):
    """A list of edges an attribute, some empty but not all; one attribute at most has edges to BOTTOM."""
    lists = []
    for n in sizes:
        every = [(u, v) for u in range(n) for v in range(u + 1, n)]
        share = rng.choice([0.0, 0.3, 0.7, 1.0])
        lists.append([edge for edge in every if rng.random() < share])
    last = int(rng.integers(len(sizes)))
    if rng.random() < 0.4 or not any(lists):
        share = rng.choice([0.3, 1.0])
        own = [(u, -1) for u in range(sizes[last]) if u == 0 or rng.random() < share]
        lists[last] = [*lists[last], *own]
    return lists


def random_parts(rng, lists):
    """What the blocks hide: every attribute with edges once, others perhaps."""
    d = len(lists)
    hidden = [i for i in range(d) if lists[i] or rng.random() < 0.2]
    parts = [[] for _ in range(int(rng.integers(1, len(hidden) + 1)))]
    for i in hidden:
        parts[int(rng.integers(len(parts)))].append(i)
    return [tuple(part) for part in parts if part]


def random_block(rng, sizes, lists, hides):
    d = len(sizes)
    axes = tuple(sorted(rng.permutation(d)[: int(rng.integers(1, d + 1))].tolist()))
    outside, n = [i for i in range(d) if i not in axes], math.prod(sizes[i] for i in axes)

    def some(attributes):
        return tuple(i for i in attributes if rng.random() < 0.6)

    def gains(keeps, rows):
        subsets = {some(keeps) for _ in range(int(rng.integers(3)))}
        return tuple(Gains(own, rng.integers(-9, 10, (n, rows))) for own in subsets if rows)

    layers = []
    for _ in range(int(rng.integers(4))):
        keeps, rows = some(outside), int(rng.integers(1, 4))
        layers.append(Layer(keeps, rng.integers(-9, 10, (rows, n)), gains(keeps, rows)))
    totals = number_of_totals(sizes, lists, axes, hides)
    own = gains(tuple(i for i in outside if i not in hides), totals)
    return JoinedBlock(axes, hides, rng.integers(1, 9, n), tuple(layers), own, 3, 4)


def number_of_totals(sizes, lists, axes, hides):
    """One for every product of components without BOTTOM and of values that are not hidden."""
    if any(v == -1 for i in hides if i not in axes for _, v in lists[i]):
        return 0
    return math.prod(components(lists[i], sizes[i]) if i in hides else sizes[i] for i in axes)


def components(edges, n):
    """How many sets of connected values there are without BOTTOM."""
    label = list(range(n)) + [n]  # BOTTOM is last, and has the largest
    for _ in range(n + 1):
        for u, v in edges:
            label[u] = label[v] = max(label[u], label[v])
    return len(set(label) - {n})
