"""Trees for tests of noise: shapes, small random instances, and laws by brute force that share no code with it."""

import functools
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
from scipy import stats

from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError
from hdmm_bf.certificate.trees import free_nodes
from hdmm_bf.policy import BOTTOM
from hdmm_bf.strategies.records import TreeNorm


class Dice:
    """A stand-in for the secure generator that gives the same bytes in every run, and counts them."""

    def __init__(self, seed=0):
        self.generator, self.used = np.random.default_rng(seed), 0

    def __call__(self, size):
        self.used += size
        return self.generator.bytes(size)


class Words:
    """A stand-in that gives 64-bit words in turn, and then zeros."""

    def __init__(self, *words):
        self.left, self.given = list(words), 0

    def __call__(self, size):
        count = size // 8
        self.given += count
        taken, self.left = self.left[:count], self.left[count:]
        return b"".join(word.to_bytes(8, "little") for word in taken + [0] * (count - len(taken)))


def norm(parents, weights, bits=3):
    """A strategy with these weights, in units of 2^-bits."""
    return TreeNorm(np.array(parents, dtype=np.int64), np.array(weights, dtype=np.int64), bits, "test")


PAIR, LINE, HIDDEN = policies.bounded(2), policies.line(3), policies.unbounded(2)
TINY = {
    "two cells, public total": (norm([2, 2, -1], [4, 3, 0]), PAIR),
    "one cell": (norm([-1], [3]), policies.unbounded(1)),
    "one cell below a set": (norm([1, -1], [2, 3]), policies.unbounded(1)),
    "two cells, presence hidden": (norm([2, 2, -1], [4, 3, 2]), HIDDEN),
    "two trees": (norm([-1, -1], [3, 5]), HIDDEN),
    "a chain": (norm([3, 3, 4, 4, -1], [5, 3, 3, 2, 0]), LINE),
    "a free cell": (norm([3, 3, 4, 4, -1], [5, 0, 3, 2, 0]), LINE),
    "a cell of weight zero below a set": (norm([2, 2, -1], [0, 3, 5]), HIDDEN),
    "three cells on a root": (norm([3, 3, 3, -1], [4, 4, 4, 0]), policies.bounded(3)),
}
"""Small trees of every kind, with policies that they serve."""

FIVE_SIGMA = 2 * stats.norm.sf(5)
"""Probability beyond five standard errors, also for statistics that are not normal."""


def chain(n, cell, cut, *, public=True, bits=20):
    """Sets {1..k} of weight `cut` and single cells; the first of both is one node, and a public total has no weight."""
    parents = np.full(2 * n - 1, -1)
    parents[0:n] = np.maximum(np.arange(n) + n - 1, n)
    parents[n:-1] = np.arange(n + 1, 2 * n - 1)
    weights = np.array([cell + cut] + [cell] * (n - 1) + [cut] * (n - 1))
    weights[-1] *= not public
    return norm(parents, np.round(weights * 2**bits), bits)


def binary(n, weight, *, bits=20, jitter=None):
    """A balanced binary tree over a power of two of cells, with one weight, or near it."""
    parents, level = [-1] * n, list(range(n))
    while len(level) > 1:
        for one, other in zip(level[::2], level[1::2], strict=True):
            parents[one] = parents[other] = len(parents)
            parents.append(-1)
        level = list(range(len(parents) - len(level) // 2, len(parents)))
    weights = np.full(len(parents), float(weight))
    if jitter is not None:
        weights *= jitter.uniform(0.8, 1.2, weights.size)
    return norm(parents, np.round(weights * 2**bits), bits)


def star(n, cell, *, bits=20):
    """All cells on one root, whose total is public."""
    return norm([n] * n + [-1], np.round(np.array([cell] * n + [0.0]) * 2**bits), bits)


def _random_tree(cells, parents, generator):
    """Hang some cells on new nodes, at random, and return the root."""
    if len(cells) == 1:
        if generator.random() < 0.2:  # a node with one child
            parents[cells[0]] = len(parents)
            parents.append(-1)
        return len(parents) - 1 if parents[cells[0]] >= 0 else cells[0]
    groups = np.array_split(generator.permutation(cells), generator.integers(2, len(cells) + 1))
    roots = [_random_tree(list(group), parents, generator) for group in groups]
    for root in roots:
        parents[root] = len(parents)
    parents.append(-1)
    return len(parents) - 1


def random_instance(seed):
    """A strategy of up to six cells and a policy it fits: several components, isolated cells, zero weights."""
    generator = np.random.default_rng(seed)
    while True:
        n = int(generator.integers(1, 7))
        labels = generator.integers(0, 3, n)
        edges, parents, public = [], [-1] * n, []
        for label in np.unique(labels):
            cells = np.flatnonzero(labels == label).tolist()
            hidden = label == 0 and generator.random() < 0.7
            edges += itertools.pairwise(cells)
            edges += [(u, v) for u, v in itertools.combinations(cells, 2) if v > u + 1 and generator.random() < 0.3]
            if not hidden:
                public.append(_random_tree(cells, parents, generator))
                continue
            edges += [(u, BOTTOM) for u in cells if u == cells[0] or generator.random() < 0.4]
            half = int(generator.integers(0, len(cells)))
            for own in (cells[:half], cells[half:]):  # one tree or two
                if own:
                    _random_tree(own, parents, generator)
        weights = generator.integers(1, 9, len(parents)) * (generator.random(len(parents)) > 0.25)
        weights[public] = 0
        policy = policies.from_edges([u for u, _ in edges], [v for _, v in edges], n)
        strategy = norm(parents, weights)
        if len(parents) > 3 * n:
            continue
        try:
            free_nodes(strategy.parents, strategy.integers, policy)
        except InputError:
            continue
        return strategy, policy


@functools.cache
def instances(count):
    """Small random instances with at least one policy edge, and always the same."""
    made = (random_instance(seed) for seed in itertools.count())
    return list(itertools.islice((pair for pair in made if pair[1].num_edges), count))


# ---------------------------------------------------------------- laws by brute force


def below(parents):
    """The cells below every node, by walking up from each cell."""
    inner = [p for p in parents if p >= 0]
    n = min(inner) if inner else len(parents)
    sets = [set() for _ in parents]
    for cell in range(n):
        node = cell
        while node >= 0:
            sets[node].add(cell)
            node = parents[node]
    return [sorted(cells) for cells in sets]


def sums(parents, z):
    return [sum(int(z[cell]) for cell in cells) for cells in below(parents)]


def exact_weight(sampler, z):
    """prod_v q_v^|z(v)| as a fraction; zero where a fixed root's sum is not zero."""
    found = sums(sampler.parents.tolist(), z)
    if any(found[root] for root in sampler.fixed.tolist()):
        return Fraction(0)
    return math.prod(
        (Fraction(q) ** abs(s) for q, s in zip(sampler.ratios.tolist(), found, strict=True)), start=Fraction(1)
    )


def vectors(sampler, reach):
    """All integer vectors within `reach` whose sums below fixed roots are zero."""
    sets = below(sampler.parents.tolist())
    n = sampler.num_cells
    for z in itertools.product(range(-reach, reach + 1), repeat=n):
        if not any(sum(z[cell] for cell in sets[root]) for root in sampler.fixed.tolist()):
            yield z


def float_law(ratios, parents, fixed, reach):
    """All vectors within `reach` and their probabilities, in floating point; for moments and chi-square."""
    sets = below(parents)
    n = max(cell for cells in sets for cell in cells) + 1
    grid = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * n, indexing="ij"), axis=-1).reshape(-1, n)
    totals = np.stack([grid[:, cells].sum(axis=1) for cells in sets], axis=1)
    grid, totals = (part[(totals[:, list(fixed)] == 0).all(axis=1)] for part in (grid, totals))
    weights = np.exp(np.abs(totals) @ np.log(np.array(ratios)))
    return grid, weights / weights.sum()


def log_weight(sampler, z):
    """Sum of |z(v)| log q_v, to 50 digits; None where a fixed root's sum is not zero."""
    found = sums(sampler.parents.tolist(), z)
    if any(found[root] for root in sampler.fixed.tolist()):
        return None
    with mpmath.workdps(50):
        return mpmath.fsum(abs(s) * _log(q) for q, s in zip(sampler.ratios.tolist(), found, strict=True))


@functools.cache
def _log(ratio):
    with mpmath.workdps(50):
        return mpmath.log(mpmath.mpf(ratio))


class Stated:
    """The probability of z in one attempt, as a fraction, by the sampler's own floats; None where z is outside the box.

    A root's sum is drawn by its table and the symbol for what is outside; a sum is split by products of two tables.
    """

    def __init__(self, sampler):
        self.sampler, self.parents = sampler, sampler.parents.tolist()
        self.tables = [table.both.tolist() for table in sampler.tables]
        self.known = {}

    def __call__(self, z):
        parts = self.parts(z)
        return None if parts is None else Fraction(*parts)

    def parts(self, z):
        """Return numerator and denominator, not in lowest terms."""
        totals = sums(self.parents, z)
        above, under = 1, 1
        for piece in self.sampler.plan.pieces:
            own = []
            for node in piece.nodes:  # children first
                extra = sum(own[child] for child in node[1:3] if child >= 0)
                own.append(totals[node.owner] if node.owner >= 0 else extra)
            if any(abs(s) > len(self.tables[node.kind]) // 2 for s, node in zip(own, piece.nodes, strict=True)):
                return None
            root = self.tables[piece.nodes[-1].kind]
            symbol = math.ldexp(float(np.sum(root)), 1 - self.sampler.tail)
            above *= scaled(root[own[-1] + len(root) // 2])
            under *= self.once(("root", piece.nodes[-1].kind), lambda root=root, symbol=symbol: [*root, symbol])
            for node, s in zip(piece.nodes, own, strict=True):
                if node.second >= 0:
                    first, second = (self.tables[piece.nodes[child].kind] for child in node[1:3])
                    one, other = own[node.first] + len(first) // 2, own[node.second] + len(second) // 2
                    above *= scaled(first[one] * second[other])
                    under *= self.once((node.kind, s), functools.partial(_splits, first, second, s))
        return above, under

    def once(self, name, floats):
        if name not in self.known:
            self.known[name] = sum(map(scaled, floats()))
        return self.known[name]

    def log(self, z):
        """Logarithm of the probability, to 50 digits."""
        parts = self.parts(z)
        with mpmath.workdps(50):
            return None if parts is None else mpmath.log(mpmath.mpf(parts[0])) - mpmath.log(mpmath.mpf(parts[1]))


def scaled(number):
    """A float times 2^1074, which is whole."""
    top, bottom = number.as_integer_ratio()
    return (top << 1074) // bottom


def _splits(first, second, total):
    one, other = len(first) // 2, len(second) // 2
    low, high = max(-one, total - other), min(one, total + other)
    return [first[k + one] * second[total - k + other] for k in range(low, high + 1)]


def largest_logarithm(quotient):
    """Return the logarithm of a fraction, to 50 digits."""
    with mpmath.workdps(50):
        return mpmath.log(mpmath.mpf(quotient.numerator) / mpmath.mpf(quotient.denominator))


def worst_loss(policy, outcomes, log_chance):
    """The largest log P(z) - log P(z + p) or log P(z - p) over outcomes z and policy edges p, where both are given."""
    worst = mpmath.mpf(0)
    with mpmath.workdps(50):
        for z in outcomes:
            here = log_chance(tuple(z))
            if here is None:
                continue
            for u, v in policy.edges.tolist():
                for sign in (1, -1):
                    moved = list(z)
                    moved[u] += sign
                    if v != BOTTOM:
                        moved[v] -= sign
                    there = log_chance(tuple(moved))
                    if there is not None:
                        worst = max(worst, here - there)
    return worst


def precise_messages(kinds, reaches):
    """Messages of the law in the box, in 50 digits, from -reach to reach."""
    messages = []
    for kind, reach in zip(kinds, reaches, strict=True):
        ratio = mpmath.mpf(kind.ratio)
        support = [-reach + k for k in range(2 * reach + 1)]
        if kind.first < 0:
            below_here = dict.fromkeys(support, mpmath.mpf(1))
        elif kind.second < 0:
            below_here = messages[kind.first]
        else:
            one, other = messages[kind.first], messages[kind.second]
            below_here = {
                s: mpmath.fdot((one[k], other[s - k]) for k in one if s - k in other) for s in support if s >= 0
            }
            below_here |= {-s: value for s, value in below_here.items()}
        messages.append({s: below_here[s] * (1 if kind.pinned else ratio ** abs(s)) for s in support})
    return messages
