"""Sums of tree norms against brute force by a second reader: laws by enumeration, covariances cell by cell."""

import itertools
import math
from collections import Counter, deque
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import certify
from hdmm_bf.matrix import Kronecker
from hdmm_bf.problem.slots import columns, steps
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.plan import plan
from hdmm_bf.release.publish import publish
from hdmm_bf.release.reconstruction import recovery
from hdmm_bf.strategies.records import TreeNorm, TreePart, TreeSum
from hdmm_bf.workload import AllRange
from tests.support.bundles import forge

NONE = -1
"""No record."""


def tree(parents, weights):
    return TreeNorm(np.array(parents, dtype=np.int64), np.array(weights, dtype=np.int64), 3, "by hand")


def part(own, axes, along=None, edges=()):
    return TreePart(own, axes, along, np.array(edges, dtype=np.int64).reshape(-1, 2))


def factor(size, moves):
    return policies.from_edges(*map(list, zip(*moves, strict=True)), size) if moves else policies.empty(size)


FLAT, NESTED, PUBLIC = tree([-1, -1], [3, 5]), tree([2, 2, -1], [4, 3, 2]), tree([2, 2, -1], [4, 3, 0])
THREE, THREE_PUBLIC = tree([3, 3, 4, 4, -1], [5, 2, 3, 2, 1]), tree([3, 3, 3, -1], [4, 4, 3, 0])
PAIRS = tree([4, 4, 5, 5, 6, 6, -1], [3, 3, 3, 4, 2, 2, 1])
ONE, PATH, STAR = [(0, 1)], [(0, 1), (1, 2)], [(0, NONE), (1, NONE), (2, NONE)]
ROUND, APART = [(1, 0), (1, 2), (3, 2), (3, 4), (4, NONE), (0, NONE)], [(0, 1), (2, NONE), (2, 3)]
FIRST, OWN = part(NESTED, (1,), 0, STAR[:2]), part(THREE_PUBLIC, (1,))

CASES = {
    "two lines": ((3, 2), (PATH, ONE), (part(NESTED, (1,), 0, PATH), part(THREE, (0,), 1, ONE))),
    "presence, and a star": ((2, 3), (STAR[:2], PATH), (part(THREE, (1,), 0, STAR[:2]), part(FLAT, (0,), 1, STAR))),
    "a tree of its own": ((2, 3, 2), (ONE, [*PATH, (0, 2)], []), (OWN, part(THREE, (1,), 0, [(1, 0)]))),
    "several components": ((5, 2), (APART, ONE), (part(FLAT, (1,), 0, ROUND), part(PUBLIC, (1,)))),
    "presence and halves": ((2, 2), (STAR[:2], ONE), (FIRST, part(FLAT, (0,), 1, STAR[:2]))),
    "three attributes": (
        (2, 2, 2),
        (ONE, ONE, [(1, NONE)]),
        (FIRST, part(NESTED, (2,), 1, ONE), part(PAIRS, (0, 1), 2, [(1, NONE), (0, NONE)])),
    ),
}
"""Sizes, moves along every attribute, and parts."""


def made(case, workload=None):
    sizes, moves, parts = CASES[case]
    graph = policies.product(*map(factor, sizes, moves))
    problem, strategy = Problem(workload or bf.workload.identity(sizes), graph), TreeSum(parts, sizes, "by hand")
    certificate = certify(strategy, problem, noise="norm", proof=None)
    return SimpleNamespace(
        problem=problem, certificate=certificate, strategy=strategy, recovery=recovery(strategy, problem)
    )


def mixing(size, moves, edges):
    """M in fractions: what each edge moves, without the mean over every component whose total is public."""
    labels = list(range(size + 1))  # the last is that of no record
    for u, v in [pair for _ in range(size + 1) for pair in moves]:
        low, high = sorted((labels[u], labels[v]))
        labels = [low if label == high else label for label in labels]
    M = [[Fraction((v == a) - (v == b)) for a, b in edges] for v in range(size)]
    for label in set(labels) - {labels[-1]}:
        inside = [v for v in range(size) if labels[v] == label]
        for k in range(len(edges)):
            mean = sum(M[v][k] for v in inside) / len(inside)
            for v in inside:
                M[v][k] -= mean
    return M


def tree_pmf(own, ratios, reach, fixed):
    """The law of the leaves in a box, by enumeration: prod_v q_v^|z(v)|, roots being zero if `fixed`."""
    leaves = own.num_cells
    z = np.meshgrid(*[np.arange(-reach, reach + 1)] * leaves, indexing="ij")
    sums, logs = [*z, *[0] * (len(ratios) - leaves)], 0.0
    for node, above in enumerate(own.parents.tolist()):
        logs = logs + np.abs(sums[node]) * math.log(ratios[node])
        if above >= 0:
            sums[above] = sums[above] + sums[node]
        elif fixed:
            logs = np.where(sums[node] == 0, logs, -np.inf)
    weights = np.exp(logs)
    return np.stack(z), weights / weights.sum()


def covariance(case, sampler):
    """Of all cells, entry by entry."""
    sizes, moves, parts = CASES[case]
    cells, total = list(itertools.product(*map(range, sizes))), 0
    for own, drawn in zip(parts, sampler.parts, strict=True):
        reach, fixed = {2: 150, 3: 40, 4: 20}[own.tree.num_cells], own.along is None
        z, p = tree_pmf(own.tree, drawn.tree.ratios.tolist(), reach, fixed)
        C = (z * p).reshape(len(z), -1) @ z.reshape(len(z), -1).T
        place = {value: k for k, value in enumerate(itertools.product(*(range(sizes[i]) for i in own.axes)))}
        M = None if own.along is None else mixing(sizes[own.along], moves[own.along], own.edges.tolist())
        found = np.zeros((len(cells), len(cells)))
        for (a, x), (b, y) in itertools.product(enumerate(cells), repeat=2):
            if all(x[i] == y[i] for i in range(len(sizes)) if i not in own.axes and i != own.along):
                found[a, b] = C[tuple(place[tuple(t[i] for i in own.axes)] for t in (x, y))]
                if M is not None:
                    found[a, b] *= float(np.dot(M[x[own.along]], M[y[own.along]]))
        total = total + found
    return total


WORKLOADS = {
    "prefixes": lambda sizes: bf.workload.prefix(sizes),
    "a union": lambda sizes: bf.workload.union(bf.workload.identity(sizes), bf.workload.marginals(sizes, 1)),
    "boxes": lambda sizes: bf.workload.random_range(sizes, 20, seed=1),
    "weighted": lambda sizes: bf.workload.weighted(bf.workload.random_range(sizes, 20, seed=1), np.linspace(1, 3, 20)),
    "any matrix": lambda sizes: bf.workload.from_matrix(
        np.random.default_rng(1).normal(size=(5, math.prod(sizes))), domain=sizes
    ),
}


@pytest.mark.parametrize("queries", WORKLOADS)
@pytest.mark.parametrize("case", CASES)
def test_errors_are_those_of_the_covariance_written_out(case, queries):
    """Variances of all and of chosen queries, the expected error and the worst; control: another epsilon."""
    fit = made(case, WORKLOADS[queries](CASES[case][0]))
    settled, W = plan(fit, epsilon=3.0), fit.problem.workload.matrix.dense()
    want = np.einsum("qi,ij,qj->q", W, covariance(case, settled.sampler), W)
    close = {"rtol": 1e-8, "atol": 1e-10 * want.max()}
    np.testing.assert_allclose(fit.recovery.variances(fit.problem.workload, settled), want, **close)
    chosen = np.array([len(W) - 1, 0, len(W) // 2])
    np.testing.assert_allclose(fit.recovery.variances(fit.problem.workload, settled, chosen), want[chosen], **close)
    assert settled.expected_error == pytest.approx(want.sum(), rel=1e-8)
    assert settled.worst_stddev == pytest.approx(math.sqrt(want.max()), rel=1e-8)
    assert plan(fit, epsilon=2.9).expected_error > 1.01 * want.sum()


@pytest.mark.parametrize("case", ["two lines", "presence, and a star"])
def test_the_unit_error_of_independent_slots_is_that_of_continuous_laplace_noise(case):
    """A slot of weight w has scale L / w, L = steps * largest weight: half its variance is (L / w)^2, by hand."""
    sizes, moves, parts = CASES[case]
    flat = {2: tree([-1, -1], [3, 5]), 3: tree([-1, -1, -1], [4, 7, 5])}
    parts = tuple(replace(own, tree=flat[own.tree.num_cells]) for own in parts)
    problem = made(case).problem
    certificate = certify(TreeSum(parts, sizes, "by hand"), problem, noise="norm", proof=None)
    lengths = {"two lines": (1, 1), "presence, and a star": (1, 2)}[case]
    want = 0.0
    for own, length in zip(parts, lengths, strict=True):
        M = mixing(sizes[own.along], moves[own.along], own.edges.tolist())
        squares = float(sum(entry**2 for row in M for entry in row))
        longest = length * max(own.tree.integers.tolist())
        want += squares * sum((longest / w) ** 2 for w in own.tree.integers.tolist())
    assert certificate.unit_error == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_what_every_move_loses_is_at_most_epsilon(case):
    """The best part for every attribute: logarithms of ratios up the tree, times breadth-first paths in its graph."""
    fit, epsilon = made(case), 0.7
    sizes, moves, parts = CASES[case]
    for people in (None, 3):
        settled, losses = plan(fit, epsilon=epsilon, per_person=people), []
        for own, drawn in zip(parts, settled.sampler.parts, strict=True):
            logs, parents = [-mpmath.log(q) for q in drawn.tree.ratios.tolist()], own.tree.parents.tolist()

            def up(node, parents=parents):
                return set() if node < 0 else {node} | up(parents[node])

            values = list(itertools.product(*(range(sizes[i]) for i in own.axes)))
            if own.along is not None:
                once = max(sum(logs[v] for v in up(leaf)) for leaf in range(len(values)))
                losses.append(once * max(distance(own.edges.tolist(), *move) for move in moves[own.along]))
            else:
                ends = [(values.index((u,)), values.index((v,))) for u, v in moves[own.axes[0]]]
                losses.append(max(sum(logs[v] for v in up(a) ^ up(b)) for a, b in ends))
        assert all(0.999 * epsilon < loss * (people or 1) <= epsilon for loss in losses)


def distance(edges, start, goal):
    far, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for other in {b for a, b in edges if a == here} | {a for a, b in edges if b == here}:
            if other not in far:
                far[other] = far[here] + 1
                queue.append(other)
    return far.get(goal, math.inf)


def test_paths_and_columns_are_those_of_random_graphs_by_brute_force():
    """300 policies of up to six values and graphs, BOTTOM in both or in neither; moves without a path are refused."""
    rng, refused = np.random.default_rng(3), 0
    for _ in range(300):
        size = int(rng.integers(2, 7))
        every = [*itertools.combinations(range(size), 2), *((v, NONE) for v in range(size))]
        moves, edges = ([every[k] for k in np.flatnonzero(rng.random(len(every)) < share)] for share in (0.25, 0.4))
        edges = [pair[::-1] if NONE not in pair and rng.random() < 0.5 else pair for pair in edges]
        if not moves or not edges:
            continue
        own, held = factor(size, moves), np.array(edges)
        M = mixing(size, moves, edges)
        made_of = columns(own, held)
        assert [[Fraction(entry, made_of.denominator) for entry in row] for row in made_of.integers.tolist()] == M
        lengths = [distance(edges, *move) for move in moves]
        if math.inf in lengths:
            refused += 1
            with pytest.raises(InputError, match="is no path"):
                steps(own.edges, held, size)
        else:
            assert steps(own.edges, held, size) == max(lengths)
    assert 20 < refused < 280


def published_law(sampler, reach=30, window=3):
    """The law of twice the noise of "presence and halves", enumerated: rows of two cells, and P[row, row]."""
    _, first = tree_pmf(NESTED, sampler.parts[0].tree.ratios.tolist(), reach, False)
    _, second = tree_pmf(FLAT, sampler.parts[1].tree.ratios.tolist(), reach, False)
    size = 4 * reach + 1
    spectrum = np.fft.rfft2(second, (size, size))
    between = np.maximum(np.fft.irfft2(spectrum * spectrum, (size, size)), 0)  # of d = phi - phi', which is even
    rows = list(itertools.product(range(-2 * window, 2 * window + 1), repeat=2))
    given = np.zeros((len(rows), size))
    for (i, (a, b)), d in itertools.product(enumerate(rows), range(-2 * reach, 2 * reach + 1)):
        x, y = a - d, b + d
        if x % 2 == y % 2 == 0 and max(abs(x), abs(y)) <= 2 * reach:
            given[i, d + 2 * reach] = first[x // 2 + reach, y // 2 + reach]
    return rows, given @ between @ given.T


def test_no_move_changes_the_law_of_what_is_published_by_more_than_epsilon():
    """All outcomes in a window, from the law of the sum itself; the control has noise for twice the epsilon."""
    fit, worst = made("presence and halves"), {}
    for epsilon in (1.0, 2.0):
        rows, P = published_law(plan(fit, epsilon=epsilon).sampler)
        place, changes = {row: i for i, row in enumerate(rows)}, []
        for (i, (a, b)), (c, d) in itertools.product(enumerate(rows), [(2, -2), (2, 0), (0, 2)]):
            if (a + c, b + d) in place:
                here, there = P[i], P[place[a + c, b + d]]
                seen = (here > 1e-12) & (there > 1e-12)
                changes.append(np.abs(np.log(here[seen] / there[seen])).max(initial=0))
        worst[epsilon] = max(changes)
    assert 0.8 < worst[1.0] <= 1.0
    assert worst[2.0] > 1.0


def test_draws_follow_the_law_and_intervals_hold_what_they_say():
    """Each outcome within five standard errors of a binomial share; the control is the law at another epsilon."""
    fit, count = made("presence and halves"), 400_000
    settled = plan(fit, epsilon=1.0)
    seen = Counter(map(tuple, fit.recovery.noise(settled, count).T.tolist()))
    assert fit.recovery.denominator == 2

    def farthest(sampler):
        rows, P = published_law(sampler)
        outcomes = [(one + other, P[i, j]) for i, one in enumerate(rows) for j, other in enumerate(rows)]
        likely = [(value, p) for value, p in outcomes if count * p > 100]
        assert len(likely) > 100
        return max(abs(seen[value] - count * p) / math.sqrt(count * p * (1 - p)) for value, p in likely)

    assert farthest(settled.sampler) < 5
    assert farthest(plan(fit, epsilon=1.15).sampler) > 5
    rows, P = published_law(settled.sampler, window=14)
    width = fit.recovery.half_widths(settled, 0.8, np.array([0]))[0]
    inside = {w: sum(P[i].sum() for i, (a, _) in enumerate(rows) if abs(a) <= 2 * w) for w in (width, width - 1)}
    assert inside[width - 1] < 0.8 <= inside[width]


def test_public_totals_and_counts_that_no_move_changes_are_published_as_they_are():
    """In "several components" value 4 is by itself, and 0 and 1 have a public total."""
    fit, x = made("several components"), np.arange(10) + 5
    settled = plan(fit, epsilon=0.5)
    blocks = publish(settled, fit, x).estimate.reshape(5, 2)
    assert blocks[:2].sum() == pytest.approx(x[:4].sum(), abs=1e-9)
    assert blocks[4].sum() == pytest.approx(x[8:].sum(), abs=1e-9)
    noise = fit.recovery.noise(settled, 200).reshape(5, 2, -1)
    sums = noise[:2].sum(axis=(0, 1)), noise[4].sum(axis=0), noise[2:4].sum(axis=(0, 1))
    assert [bool(np.any(own)) for own in sums] == [False, False, True]


def test_plans_with_noise_of_other_parts_or_of_less_size_are_refused():
    """Noise of 1 % more epsilon in one part or all, parts missing, swapped, elsewhere, and promises to more people."""
    fit = made("three attributes")
    settled, weak, x = plan(fit, epsilon=1.0), plan(fit, epsilon=1.01).sampler, np.zeros(8, dtype=int)
    first, *others = settled.sampler.parts
    samplers = [weak, replace(weak, loss=1.0), replace(weak, parts=(weak.parts[0], *others)), first.tree, None]
    samplers += [replace(weak, parts=own) for own in ((first,), (*others, first), (first, *others, first))]
    samplers += [replace(weak, parts=(replace(first, along=None), *others))]
    samplers += [replace(weak, parts=(replace(first, edges=first.edges[::-1]), *others))]
    for sampler in samplers:
        with pytest.raises(InputError):
            publish(replace(settled, sampler=sampler), fit, x)
    with pytest.raises(InputError, match="less noise"):
        publish(replace(settled, per_person=2), fit, x)


def test_variances_of_products_of_ranges_are_those_written_out():
    """M C M^T for a random symmetric C."""
    M, A = Kronecker((AllRange(3), AllRange(3))), np.random.default_rng(0).normal(size=(9, 9))
    np.testing.assert_allclose(M.quadratic(A @ A.T), np.einsum("qi,ij,qj->q", M.dense(), A @ A.T, M.dense()))


def test_a_bundle_whose_sum_cannot_be_certified_is_refused_in_one_sentence(tmp_path):
    """One part on another grid."""
    path = bf.fit("all-range:3x3", "threshold:3x3:1", noise="norm", family="flows", max_steps=1).save(tmp_path / "a.bf")

    def other_grid(folder, _manifest):
        with np.load(folder / "tree_sum.npz") as held:
            arrays = {name: held[name] for name in held.files}
        np.savez(folder / "tree_sum.npz", **arrays | {"p0_bits": np.array(29)})

    forge(path, other_grid)
    with pytest.raises(InputError, match="several grids"):
        bf.load(path)
