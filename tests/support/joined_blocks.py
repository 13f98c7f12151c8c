"""Joined blocks written out over all cells, by their definition: what tests of them are compared with.

Shares no code with the package. In whole numbers, T over 2^bits, K and K_S over 2^gain_bits:

    N = y + K (z - T y) - K_S S y
"""

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf.fit.certified import certificate
from hdmm_bf.problem.product import as_product
from hdmm_bf.strategies.blocks import noise_block
from hdmm_bf.strategies.records import Gains, JoinedBlock, Layer, NoiseSum

PARTS = policies.from_edges([0, 1, 3], [1, 2, 4], 5)
TWO_PARTS = policies.from_edges([0, 2], [1, -1], 4)


@dataclass(frozen=True)
class Case:
    """A problem, what a block on it joins and hides, and what its layers keep; each layer has two rows or three."""

    workload: str
    policy: object
    axes: tuple
    hides: tuple
    keeps: tuple


PROBLEMS = {
    "unbounded": Case("all-range:4x3", policies.unbounded((4, 3)), (0, 1), (0,), ((),)),
    "bounded inside": Case("all-range:3x4x2", "product:empty:3,bounded:4,empty:2", (0, 1), (1,), ((2,),)),
    "bounded, first and last": Case("prefix:4x2x3", "product:bounded:4,empty:2,empty:3", (0, 2), (0,), ((1,),)),
    "components": Case("all-range:5x3", policies.product(PARTS, policies.empty(3)), (0, 1), (0,), ((),)),
    "two hidden": Case("all-range:3x4x2", "product:line:3,bounded:4,empty:2", (0, 1), (0, 1), ((2,), ())),
    "two hidden in parts": Case(
        "prefix:4x5x2", policies.product(TWO_PARTS, PARTS, policies.empty(2)), (0, 1), (0, 1), ((2,), (2,), ())
    ),
    "summed over": Case("marginals:3x4x2:2", "product:empty:3,bounded:4,empty:2", (1,), (1,), ((0,), (0, 2), (), (2,))),
    "bounded outside": Case("all-range:4x3x2", "product:empty:4,bounded:3,empty:2", (0,), (1,), ((1, 2), (2,), ())),
    "unbounded outside": Case("all-range:4x3x2", "product:empty:4,unbounded:3,empty:2", (0,), (1,), ((1,), (2,), ())),
    "parts outside": Case("all-range:3x5", policies.product(policies.line(3), PARTS), (0,), (0, 1), ((1,), ())),
    "inside and outside": Case("prefix:3x2x3", "product:line:3,empty:2,bounded:3", (0, 1), (0, 2), ((2,), ())),
    "three outside": Case(
        "marginals:3x2x2x2:2", "product:line:3,bounded:2,empty:2,empty:2", (1,), (0, 1), ((0, 2, 3), (2,), (0, 3), ())
    ),
    "three outside, one comes and goes": Case(
        "prefix:2x3x2x2", "product:line:2,line:3,empty:2,unbounded:2", (1,), (0, 1, 3), ((0, 2), (0, 3), (3,))
    ),
    "hidden by another": Case("all-range:3x4x2", "product:line:3,bounded:4,empty:2", (0,), (0,), ((1, 2), (1,), ())),
    "hidden by another, no totals": Case(
        "prefix:3x2x2", "product:unbounded:3,line:2,empty:2", (0, 2), (0,), ((), (1,))
    ),
}


def seeded(name):
    return np.random.default_rng(sum(map(ord, name)))


def problem_of(name):
    case = PROBLEMS[name]
    policy = policies.parse(case.policy) if isinstance(case.policy, str) else case.policy
    return bf.problem(case.workload, policy)


def random_block(name, bits=10, gain_bits=12):
    """Any weights, rows and gains on any subsets: privacy must not hang on their being good."""
    problem, rng, case = problem_of(name), seeded(name), PROBLEMS[name]
    n = math.prod(as_product(problem).sizes[i] for i in case.axes)

    def gains(keeps, rows):
        every = list(subsets(keeps))
        chosen = [keeps, *(own for own in every if own != keeps and rng.random() < 0.6)]
        chosen = [chosen[k] for k in rng.permutation(len(chosen))]
        return tuple(Gains(own, rng.integers(-(2**11), 2**11, (n, rows))) for own in chosen)

    layers = []
    for number, keeps in enumerate(case.keeps):
        rows = rng.integers(-(2**9), 2**9, (2 + number % 2, n))
        layers.append(Layer(keeps, rows, gains(keeps, len(rows))))
    S, kept = totals_of(problem, case.axes, case.hides)
    totals = gains(kept, len(S)) if len(S) else ()
    weights = rng.integers(1, 2**bits, n)
    return problem, JoinedBlock(case.axes, case.hides, weights, tuple(layers), totals, bits, gain_bits)


def subsets(attributes):
    return itertools.chain.from_iterable(itertools.combinations(attributes, k) for k in range(len(attributes) + 1))


def components(edges, n):
    """The sets of values that edges connect, ascending, but for those connected to BOTTOM."""
    found = [{value} for value in range(n)]
    for u, v in edges:
        if v >= 0:
            one, other = (next(part for part in found if end in part) for end in (u, v))
            if one is not other:
                found.remove(other)
                one |= other
    return sorted((part for part in found if not any(v < 0 and u in part for u, v in edges)), key=min)


def totals_of(problem, axes, hides):
    """S over the joined attributes and what it keeps: sums over components of the hidden, for each value of others."""
    product = as_product(problem)
    edges = [own.tolist() for own in product.edges]
    kept = tuple(i for i in range(len(product.sizes)) if i not in axes and i not in hides)
    parts = [
        components(edges[i], product.sizes[i]) if i in hides else [{value} for value in range(product.sizes[i])]
        for i in axes
    ]
    if any(v < 0 for i in hides if i not in axes for _, v in edges[i]):
        parts = [[]]
    values = list(itertools.product(*(range(product.sizes[i]) for i in axes)))
    rows = [
        [int(all(v in part for v, part in zip(value, chosen, strict=True))) for value in values]
        for chosen in itertools.product(*parts)
    ]
    return np.array(rows, dtype=object).reshape(len(rows), len(values)), kept


@dataclass(frozen=True)
class Written:
    """T, K, S and K_S over all cells, and the weight of every cell, in Python integers."""

    weights: np.ndarray
    T: np.ndarray
    K: np.ndarray
    S: np.ndarray
    K_S: np.ndarray
    bits: int
    gain_bits: int

    def noise(self, y, z):
        """N of noise on every cell, in records, and on every row, in units of 2^-bits: in fractions."""
        unit, gain = Fraction(1, 2**self.bits), Fraction(1, 2**self.gain_bits)
        y, z = y.astype(object), z.astype(object)
        return y + gain * (unit * self.K.dot(z - self.T.dot(y)) - self.K_S.dot(self.S.dot(y)))

    def covariance(self, values=None, rows=1.0):
        """Of N over the cells, given the variances of y and z in records: at first those at a scale of 1."""
        values = (self.weights.astype(float) / 2.0**self.bits) ** -2 if values is None else values
        T, S = self.T.astype(float) / 2.0**self.bits, self.S.astype(float)
        K, K_S = self.K.astype(float) / 2.0**self.gain_bits, self.K_S.astype(float) / 2.0**self.gain_bits
        F = np.eye(len(values)) - K @ T - K_S @ S
        return (F * values) @ F.T + rows * K @ K.T


def written_out(problem, block):
    """Write a block out: rows in the order of layers, rows, values kept; cells in row-major order."""
    sizes = as_product(problem).sizes
    cells = list(itertools.product(*map(range, sizes)))
    values = list(itertools.product(*(range(sizes[i]) for i in block.axes)))
    inside = [values.index(tuple(cell[i] for i in block.axes)) for cell in cells]

    def table(keeps, rows, gains):
        T, K = [], []
        for r, held in itertools.product(range(len(rows)), itertools.product(*(range(sizes[i]) for i in keeps))):
            fixed = dict(zip(keeps, held, strict=True))
            seen = [all(cell[i] == fixed[i] for i in keeps) for cell in cells]
            T.append([int(rows[r, k]) if see else 0 for k, see in zip(inside, seen, strict=True)])
            K.append([
                sum(int(own.integers[k, r]) for own in gains if all(cell[i] == fixed[i] for i in own.keeps))
                for k, cell in zip(inside, cells, strict=True)
            ])  # fmt: skip
        return matrix(T, len(cells)), matrix(K, len(cells)).T

    parts = [table(layer.keeps, layer.rows, layer.gains) for layer in block.layers]
    T = np.concatenate([part[0] for part in parts] or [matrix([], len(cells))])
    K = np.concatenate([part[1] for part in parts] or [matrix([], len(cells)).T], axis=1)
    totals, kept = totals_of(problem, block.axes, block.hides)
    S, K_S = table(kept, totals, block.totals)
    weights = np.array([int(block.weights[k]) for k in inside], dtype=object)
    return Written(weights, T, K, S, K_S, block.bits, block.gain_bits)


def matrix(rows, width):
    return np.array(rows, dtype=object).reshape(len(rows), width)


def moves(problem, attributes):
    """p_e, over all cells, for every edge of the whole policy along some attributes."""
    sizes = as_product(problem).sizes
    for u, v in problem.policy.edges.tolist():
        p = np.zeros(math.prod(sizes), dtype=object)
        p[u] = 1
        if v >= 0:
            p[v] = -1
            ends = zip(np.unravel_index(u, sizes), np.unravel_index(v, sizes), strict=True)
            (along,) = (i for i, (a, b) in enumerate(ends) if a != b)
        else:
            along = next(i for i, edges in enumerate(as_product(problem).edges) if np.any(edges[:, 1] < 0))
        if along in attributes:
            yield p


def loss(written, moved):
    """What the moves lose at most, in units of 2^-bits."""
    return max(int(written.weights.dot(abs(p)) + abs(written.T.dot(p)).sum()) for p in moved)


def split(problem, block, y, z):
    """The same noise as the package lays it out: y by joined values and the others, z a layer at a time; one draw."""
    sizes = as_product(problem).sizes
    outside = [i for i in range(len(sizes)) if i not in block.axes]
    shape = [block.weights.size, *(sizes[i] for i in outside)]
    own = y.reshape(sizes).transpose([*block.axes, *outside]).reshape(*shape, 1)
    shapes = [(len(layer.rows), *(sizes[i] for i in layer.keeps)) for layer in block.layers]
    ends = np.cumsum([0, *map(math.prod, shapes)])
    assert ends[-1] == len(z)
    return own, [z[a:b].reshape(*s, 1) for a, b, s in zip(ends, ends[1:], shapes, strict=False)]


def left(problem, block):
    """The attributes with edges that the block does not hide."""
    return [i for i, edges in enumerate(as_product(problem).edges) if len(edges) and i not in block.hides]


def summed(problem, block):
    """A whole strategy: what a block leaves is hidden by noise on every cell, of variance 1."""
    cells = [np.eye(size) for size in as_product(problem).sizes]
    others = left(problem, block)
    plain = tuple(noise_block(cells, np.ones((1,) * len(cells))) for _ in others)
    return NoiseSum(plain, tuple((i,) for i in others), "by hand", (block,))


def fitted(problem, block):
    """A fit of that strategy."""
    made, found = summed(problem, block), bf.fit(problem.workload, problem.policy, noise="laplace", max_steps=1)
    derived = certificate(made, problem, noise="laplace", proof=None)
    changed = {"problem": problem, "strategy": made, "certificate": derived, "proof": None}
    return replace(found, **changed, reached={}, trace=(), status="finished")


def parts_of(block):
    """All that a block holds, as lists."""

    def gains(those):
        return [(own.keeps, own.integers.tolist()) for own in those]

    layers = [(layer.keeps, layer.rows.tolist(), gains(layer.gains)) for layer in block.layers]
    where = block.axes, block.hides, block.bits, block.gain_bits
    return where, block.weights.tolist(), layers, gains(block.totals)
