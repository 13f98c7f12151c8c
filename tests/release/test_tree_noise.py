"""Noise of tree norms: its law by exact enumeration, its loss in fractions, its tables in 50 digits."""

import dataclasses
import functools
import itertools
import math
import os
import time
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError, fits
from hdmm_bf.certificate.trees import longest_edge
from hdmm_bf.release import choice, tree_noise, tree_tables, tree_tail
from hdmm_bf.release.tree_noise import TreeSampler, privacy_loss, tree_sampler
from tests.support import branching
from tests.support.trees import (
    Dice,
    Stated,
    Words,
    binary,
    chain,
    exact_weight,
    float_law,
    instances,
    largest_logarithm,
    log_weight,
    norm,
    precise_messages,
    star,
    vectors,
    worst_loss,
)

FIVE_SIGMA = 2 * stats.norm.sf(5)
"""Probability beyond five standard errors, also for statistics that are not normal."""
UNIT = Fraction(1, 2**53)
RNG = np.random.default_rng(0)

PAIR = policies.bounded(2)
LINE = policies.line(3)
HIDDEN = policies.unbounded(2)


def outcomes(sampler, generator):
    """Small vectors, all of them, and some at the edges of the box and beyond."""
    n = sampler.num_cells
    small = list(vectors(sampler, {1: 40, 2: 12, 3: 4, 4: 2}.get(n, 1)))
    chosen = generator.permutation(len(small))[:15]
    far = generator.integers(-60, 61, (6, n))
    for root in sampler.fixed.tolist():
        cells = [cell for cell in range(n) if _root(sampler.parents, cell) == root]
        far[:, cells[-1]] -= far[:, cells].sum(axis=1)
    return [small[k] for k in chosen] + [tuple(z) for z in far.tolist()]


def _root(parents, node):
    while parents[node] >= 0:
        node = parents[node]
    return node


# ---------------------------------------------------------------- pure privacy, in fractions


@pytest.mark.parametrize("place", range(32))
def test_no_policy_edge_loses_more_than_epsilon_by_the_floats_that_are_drawn_with(place):
    """Quotes tree_noise: makes whole counts epsilon-private under the policy, with no delta.

    Also quotes `privacy_loss`: P(z) <= exp(loss) P(z + p) and P(z) <= exp(loss) P(z - p).
    """
    strategy, policy = instances(40)[place]
    epsilon = (0.3, 1.0, 2.5)[place % 3]
    sampler = tree_sampler(strategy, policy, epsilon)
    shown = outcomes(sampler, np.random.default_rng(place))
    stated = worst_loss(policy, shown, functools.cache(Stated(sampler).log))
    assert stated <= privacy_loss(sampler, policy.edges) <= sampler.loss <= epsilon
    assert worst_loss(policy, shown, functools.partial(log_weight, sampler)) <= epsilon


@pytest.mark.parametrize("place", range(0, 40, 5))
def test_stated_probabilities_are_those_of_the_law_but_for_the_slack(place):
    """Quotes TreeSampler.draw: has probability proportional to prod_v q_v^|z(v)|, up to a factor between [...]."""
    strategy, policy = instances(40)[place]
    sampler = tree_sampler(strategy, policy, 0.8)
    stated, differences = Stated(sampler), []
    with mpmath.workdps(50):
        for z in outcomes(sampler, np.random.default_rng(place)):
            chance = stated.log(z)
            if chance is not None:
                differences.append(chance - log_weight(sampler, z))
        assert len(differences) > 5
        assert max(differences) - min(differences) <= sampler.slack
    assert sampler.slack < 1e-9


def heavier(strategy, policy):
    """The strategy with one grid step more on a node of its longest edge."""
    length, edge = longest_edge(strategy.parents, strategy.integers, policy.edges)
    for node in range(strategy.parents.size):
        raised = strategy.integers.copy()
        raised[node] += strategy.integers[node] > 0
        if longest_edge(strategy.parents, raised, policy.edges[edge : edge + 1])[0] > length:
            return raised
    raise AssertionError("no node of the longest edge has a weight")


@pytest.mark.parametrize("place", [0, 3, 7, 11])
def test_a_weight_one_grid_step_too_large_is_caught(place):
    """The control: noise for the length before the step loses more than epsilon, in fractions and by privacy_loss."""
    strategy, policy = instances(40)[place]
    epsilon = 1.0
    honest = tree_sampler(strategy, policy, epsilon)
    length, _ = longest_edge(strategy.parents, strategy.integers, policy.edges)
    ratios = tree_noise._ratios(heavier(strategy, policy), length, Fraction(epsilon))
    wrong = dataclasses.replace(honest, ratios=ratios)
    shown = list(itertools.islice(vectors(wrong, 2), 200))
    assert worst_loss(policy, shown, functools.partial(log_weight, wrong)) > epsilon
    assert worst_loss(policy, shown, functools.cache(Stated(wrong).log)) > epsilon
    assert privacy_loss(wrong, policy.edges) > epsilon


def test_an_edge_that_the_tree_makes_longer_than_claimed_is_caught():
    """Quotes `privacy_loss`: It is infinite where an edge changes a total that the sampler keeps."""
    sampler = tree_sampler(chain(4, 0.3, 0.2), policies.line(4), 1.0)
    assert privacy_loss(sampler, policies.line(4).edges) <= 1.0
    assert privacy_loss(sampler, policies.threshold(4, 2).edges) > 1.1
    assert privacy_loss(sampler, policies.unbounded(4).edges) == math.inf
    apart = tree_sampler(norm([4, 4, 5, 5, -1, -1], [1, 1, 1, 1, 0, 0]), policies.from_edges([0, 2], [1, 3], 4), 1.0)
    assert privacy_loss(apart, policies.from_edges([0, 2], [1, 3], 4).edges) <= 1.0
    assert privacy_loss(apart, policies.line(4).edges) == math.inf
    assert privacy_loss(apart, np.zeros((0, 2), dtype=np.int64)) <= 1e-9


@given(st.floats(1e-3, 50.0), st.integers(0, 39))
def test_the_calibrated_loss_is_proven_and_hardly_less_than_epsilon(epsilon, place):
    """Quotes tree_sampler: `loss` is at most epsilon, in exact arithmetic."""
    strategy, policy = instances(40)[place]
    sampler = tree_sampler(strategy, policy, epsilon)
    assert sampler.loss <= epsilon
    if sampler.ratios.min() > tree_noise.LEAST_RATIO:
        assert sampler.loss >= epsilon * (1 - 1e-6)
    with mpmath.workdps(50):
        logs = [-mpmath.log(mpmath.mpf(q)) for q in sampler.ratios.tolist()]
        paths = [
            sum((logs[v] for v in path(sampler.parents.tolist(), *edge)), mpmath.mpf(0))
            for edge in policy.edges.tolist()
        ]
        assert max(paths) + mpmath.mpf(2 * (sampler.roundings + 1)) / mpmath.mpf(2**53 - 1) <= sampler.loss


def path(parents, u, v):
    """Nodes whose sums change when a record moves from u to v: those above one end alone."""
    ups = []
    for node in (u, v):
        up = set()
        while node >= 0:
            up.add(node)
            node = parents[node]
        ups.append(up)
    return ups[0] ^ ups[1]


def test_very_large_epsilon_still_has_noise_that_can_be_told_from_none():
    sampler = tree_sampler(star(3, 0.5), policies.bounded(3), 1e6)
    assert sampler.ratios.min() == tree_noise.LEAST_RATIO
    assert sampler.loss < 1e6
    assert not sampler.draw(100, source=Dice()).any()


# ---------------------------------------------------------------- the whole law, tail included

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


def in_small_boxes(name, epsilon, monkeypatch):
    """A sampler that often leaves its tables: each may end where the message has fallen to a quarter or so.

    The symbol for what is outside then has a quarter of the weight of all others, which is still enough.
    """
    sampler = dataclasses.replace(tree_sampler(*TINY[name], epsilon), tail=3)
    with monkeypatch.context() as patch:
        patch.setattr(tree_tables.Plan, "allowance", lambda *_: 1.0)
        assert max(table.reach for table in sampler.tables) <= 4
    return sampler


def tail_law(name, monkeypatch, *, epsilon=5.0):
    strategy, policy = TINY[name]
    sampler = in_small_boxes(name, epsilon, monkeypatch)
    return sampler, policy, *branching.law(sampler, monkeypatch)


def check_law(sampler, found, again, rare):
    """Every outcome has its weight times one number, inside and outside the box, and none that is likely is missing."""
    assert sum(found.values()) + again + rare == 1
    quotients = {z: chance / exact_weight(sampler, z) for z, chance in found.items()}
    assert largest_logarithm(max(quotients.values()) / min(quotients.values())) <= sampler.slack
    stated = Stated(sampler)
    assert sum(stated.parts(z) is None for z in found) > 3
    likely = max(quotients.values())
    for z in vectors(sampler, 4):
        if likely * exact_weight(sampler, z) > 64 * branching.LEAST:
            assert z in found


@pytest.mark.parametrize("name", TINY)
def test_the_law_is_exact_inside_the_tables_and_outside(name, monkeypatch):
    """Quotes draw_outside: every outcome outside the box has the probability of its weight [...] over `outside`.

    Also quotes tree_noise: every vector of whole numbers that can occur has its probability to a factor that `slack`
    bounds. The law is enumerated over all choices that the sampler could make, with boxes so small that one attempt in
    five leaves them.
    """
    sampler, policy, found, again, rare = tail_law(name, monkeypatch)
    check_law(sampler, found, again, rare)
    assert rare < 1e-2
    logs = {z: largest_logarithm(chance) for z, chance in found.items()}
    assert worst_loss(policy, list(found), logs.get) <= 5.0


def test_a_tail_that_is_cut_off_is_caught(monkeypatch):
    monkeypatch.setattr(tree_noise, "draw_outside", lambda *_: None)
    sampler, _, *law = tail_law("two cells, public total", monkeypatch)
    with pytest.raises(AssertionError):
        check_law(sampler, *law)


def test_a_tail_with_half_its_weight_is_caught(monkeypatch):
    def halved(kinds, piece, reaches, exponent, outside, tail, source):
        return tree_tail.draw_outside(kinds, piece, reaches, exponent, 2 * outside, tail, source)

    monkeypatch.setattr(tree_noise, "draw_outside", halved)
    sampler, _, found, *_ = tail_law("two cells, public total", monkeypatch)
    quotients = [chance / exact_weight(sampler, z) for z, chance in found.items()]
    assert float(largest_logarithm(max(quotients) / min(quotients))) == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("name", ["a chain", "two cells, presence hidden"])
def test_the_tail_of_full_tables_can_be_drawn(name):
    """A uniform number within 2^-128 of 1 is the symbol; zeros then choose what is outside, and ones to draw again."""
    sampler, ones = tree_sampler(*TINY[name], 6.0), 2**64 - 1
    stated = Stated(sampler)
    assert stated.parts(sampler.draw(source=Words(ones, ones))[0].tolist()) is None
    assert stated.parts(sampler.draw(source=Words(ones, ones, ones))[0].tolist()) is not None


def chi_square(samples, grid, chances):
    """Pearson's statistic over vectors expected at least 10 times, all others as one, and its degrees of freedom."""
    expected = chances * len(samples)
    common = np.flatnonzero(expected >= 10)
    places = {tuple(z): place for place, z in enumerate(grid[common].tolist())}
    seen = np.bincount([places.get(tuple(z), common.size) for z in samples.tolist()], minlength=common.size + 1)
    expected = np.append(expected[common], len(samples) - expected[common].sum())
    return float(((seen - expected) ** 2 / expected).sum()), common.size


def test_samples_with_frequent_tails_have_the_true_law(monkeypatch):
    """The control is the law within the tables: it has lost what is outside."""
    sampler = in_small_boxes("a chain", 3.0, monkeypatch)
    samples = sampler.draw(2000, source=Dice(7))
    grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, 12)
    statistic, freedom = chi_square(samples, grid, chances)
    assert statistic < stats.chi2.isf(FIVE_SIGMA, freedom)
    stated = Stated(sampler)
    boxed = np.array([stated.parts(z) is not None for z in grid.tolist()]) * chances
    assert boxed.sum() < 0.99
    statistic, freedom = chi_square(samples, grid, boxed / boxed.sum())
    assert statistic > stats.chi2.isf(FIVE_SIGMA, freedom)


def test_hardly_any_mass_is_outside_the_tables():
    """Quotes messages: The mass outside the box is at most the number of nodes times `allowance` of the whole."""
    for tail in (3, 10):
        for name in ("a chain", "two cells, presence hidden", "three cells on a root"):
            sampler = dataclasses.replace(tree_sampler(*TINY[name], 3.0), tail=tail)
            grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, 16)
            common = chances > 2.0 ** -(tail + 20)  # the grid and the rest hold far less than 2^-tail
            stated = Stated(sampler)
            outside = [stated.parts(z) is None for z in grid[common].tolist()]
            assert chances[common] @ outside + (1 - chances[common].sum()) <= 2.0**-tail
            assert sampler.plan.allowance(tail) * sampler.plan.num_nodes <= 2.0**-tail


# ---------------------------------------------------------------- tables in 50 digits


@pytest.mark.parametrize(
    ("strategy", "policy", "epsilon"),
    [
        (chain(8, 0.3, 0.1), policies.threshold(8, 2), 1.0),
        (binary(8, 0.25), policies.unbounded(8), 2.0),
        (binary(8, 0.25, jitter=np.random.default_rng(1)), policies.unbounded(8), 2.0),
        (star(6, 0.5), policies.bounded(6), 1.0),
        *((*instance, 3.0) for instance in instances(12)),
    ],
)
def test_tables_have_the_relative_error_that_is_counted(strategy, policy, epsilon):
    """Quotes messages: Entries have the relative error of at most the roundings counted in the subtree."""
    sampler = tree_sampler(strategy, policy, epsilon)
    kinds, tables = sampler.plan.kinds, sampler.tables
    counts = []
    with mpmath.workdps(50):
        precise = precise_messages(kinds, [table.reach for table in tables])
        for kind, table, exact in zip(kinds, tables, precise, strict=True):
            counts.append(table.roundings + sum(counts[child] for child in kind[1:3] if child >= 0))
            scale = mpmath.mpf(2) ** table.exponent
            worst = max(abs(mpmath.mpf(float(m)) * scale / exact[s] - 1) for s, m in enumerate(table.values))
            assert worst <= counts[-1] * mpmath.mpf(2) ** -53 * 1.01
    assert sum(table.roundings for table in tables) <= sampler.counted <= sampler.roundings


@pytest.mark.parametrize("reach", [4, 512, 2**13])
def test_long_sums_have_the_error_that_is_counted(reach):
    """Entries of both convolutions, against sums of rounded products that math.fsum adds without error."""
    one, ratio = np.exp(-np.linspace(0, 60, reach + 1)), 1 - 8 / reach / 1.5
    other = np.exp(-np.linspace(0, 70, reach + 90))
    both = np.concatenate([other[:0:-1], other])
    with mpmath.workdps(30):
        powers = np.array([float(mpmath.mpf(ratio) ** j) for j in range(reach + 1)])
    for length in (reach // 2, 2 * reach):
        direct = tree_tables.convolved(one, other, length)
        recursive = tree_tables.with_geometric(other, ratio, reach, length)
        for s in {0, 1, length // 3, length}:
            k = np.arange(max(-reach, s - other.size + 1), min(reach, s + other.size - 1) + 1)
            moved = both[s - k + other.size - 1]
            truth = math.fsum(one[np.abs(k)] * moved)
            assert direct[s] == pytest.approx(truth, rel=(2 * reach + 3) * 2.0**-53)
            truth = math.fsum(powers[np.abs(k)] * moved)
            assert recursive[s] == pytest.approx(truth, rel=(reach + reach.bit_length() + 6) * 2.0**-53)


def test_a_rounding_that_is_not_counted_is_caught():
    """The control: single precision fails the count."""
    one = np.exp(-np.linspace(0, 60, 401))
    rough = tree_tables.convolved(one.astype(np.float32).astype(np.float64), one, 300)
    assert np.any(np.abs(rough / tree_tables.convolved(one, one, 300) - 1) > 900 * 2.0**-53)


@pytest.mark.parametrize(
    ("strategy", "policy", "epsilon"),
    [
        (chain(32, 0.2846, 0.1077), policies.threshold(32, 4), 0.1),
        (binary(32, 1 / 6), policies.unbounded(32), 0.2),
        (star(64, 0.5), policies.bounded(64), 0.5),
        *((*instance, 0.5) for instance in instances(10)),
    ],
)
def test_memory_and_work_are_known_before_there_are_tables(strategy, policy, epsilon):
    sampler = tree_sampler(strategy, policy, epsilon)
    memory, operations = sampler.memory, sampler.operations
    assert "tables" not in vars(sampler)
    assert memory == pytest.approx(sum(table.values.nbytes for table in sampler.tables), rel=0.5)
    reaches = [table.reach for table in sampler.tables]
    assert operations == pytest.approx(tree_tables.work(sampler.plan.kinds, reaches)[1], rel=0.5)


def test_equal_subtrees_share_one_table():
    sampler = tree_sampler(binary(64, 1 / 7), policies.unbounded(64), 1.0)
    assert len(sampler.tables) == 7
    assert sampler.plan.num_nodes == 127


# ---------------------------------------------------------------- moments


def within_five_standard_errors(samples, covariance):
    """Whether mean squares and products of centred samples agree with a covariance."""
    products = samples[:, :, None] * samples[:, None, :]
    error = products.std(axis=0) / math.sqrt(len(samples))
    return bool(np.all(np.abs(products.mean(axis=0) - covariance) <= 5 * error + 1e-12))


MOMENTS = [
    ("two cells, presence hidden", 1.5, 40),
    ("a chain", 1.5, 30),
    ("a free cell", 2.0, 30),
    ("three cells on a root", 1.5, 30),
    ("two trees", 1.5, 50),
]


@pytest.mark.parametrize(("name", "epsilon", "reach"), MOMENTS)
def test_covariances_are_those_by_brute_force(name, epsilon, reach):
    """The control is 5 % more variance."""
    sampler = tree_sampler(*TINY[name], epsilon)
    grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, reach)
    covariance = (grid * chances[:, None]).T @ grid
    samples = sampler.draw(100_000, source=Dice(1)).astype(np.float64)
    assert within_five_standard_errors(samples, covariance)
    assert not within_five_standard_errors(samples, 1.05 * covariance)
    assert np.all(np.abs(samples.mean(axis=0)) <= 5 * samples.std(axis=0) / math.sqrt(len(samples)))


@pytest.mark.parametrize("place", range(12))
def test_covariances_of_random_trees_are_those_by_brute_force(place):
    small = [pair for pair in instances(60) if 2 <= pair[0].num_cells <= 3]
    strategy, policy = small[place]
    sampler = tree_sampler(strategy, policy, 4.0)
    grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, 40)
    samples = sampler.draw(20_000, source=Dice(place)).astype(np.float64)
    assert within_five_standard_errors(samples, (grid * chances[:, None]).T @ grid)


def chain_moments(n, cell, cut, reach):
    """Variances of the prefix sums of a chain with a public total, by products of transfer matrices."""
    s = np.arange(-reach, reach + 1)
    step = np.exp(np.abs(s[:, None] - s) * math.log(cell))
    hold = np.exp(np.abs(s) * math.log(cut))
    forward = [step[reach] * hold]
    for _ in range(n - 2):
        forward.append((forward[-1] @ step) * hold)
        forward[-1] /= forward[-1].sum()
    backward = [step[reach]]
    for _ in range(n - 2):
        backward.append((backward[-1] * hold) @ step)
        backward[-1] /= backward[-1].sum()
    laws = [f * b for f, b in zip(forward, backward[::-1], strict=True)]
    return np.array([(law * s**2).sum() / law.sum() for law in laws])


def test_a_chain_of_64_cells_has_the_variances_of_its_transfer_matrices():
    sampler = tree_sampler(chain(64, 0.2846, 0.1077), policies.threshold(64, 4), 1.0)
    expected = chain_moments(64, sampler.ratios[1], sampler.ratios[64], 120)
    squares = np.cumsum(sampler.draw(4000, source=Dice(3)), axis=1)[:, :-1].astype(np.float64) ** 2
    error = squares.std(axis=0) / math.sqrt(len(squares))
    assert np.all(np.abs(squares.mean(axis=0) - expected) <= 5 * error)
    assert not np.all(np.abs(squares.mean(axis=0) - 1.2 * expected) <= 5 * error)


def gibbs(n, cell, cut, chains, sweeps, generator, reach=70):
    """Prefix sums of a chain with a public total by a Gibbs sampler, odd and even ones in turn, from zero."""
    values = np.arange(-reach, reach + 1)
    sums = np.zeros((chains, n + 1), dtype=np.int64)
    for _ in range(sweeps):
        for start in (1, 2):
            own = np.arange(start, n, 2)
            left, right = sums[:, own - 1, None], sums[:, own + 1, None]
            logs = math.log(cell) * (np.abs(values - left) + np.abs(values - right)) + math.log(cut) * np.abs(values)
            totals = np.cumsum(np.exp(logs - logs.max(axis=2, keepdims=True)), axis=2)
            place = generator.random((chains, own.size, 1)) * totals[:, :, -1:]
            sums[:, own] = values[0] + (totals <= place).sum(axis=2)
    return sums[:, 1:-1]


@pytest.mark.slow
def test_a_chain_of_64_cells_has_the_covariances_of_a_gibbs_sampler():
    sampler = tree_sampler(chain(64, 0.2846, 0.1077), policies.threshold(64, 4), 1.0)
    ours = np.cumsum(sampler.draw(3000, source=Dice(5)), axis=1)[:, :-1].astype(np.float64)
    theirs = gibbs(64, sampler.ratios[1], sampler.ratios[64], 1000, 100, RNG).astype(np.float64)
    for lag in (0, 1, 3, 10):
        one, other = (part[:, lag:] * part[:, : 63 - lag] for part in (ours, theirs))
        error = np.hypot(one.std(axis=0) / math.sqrt(len(one)), other.std(axis=0) / math.sqrt(len(other)))
        assert np.all(np.abs(one.mean(axis=0) - other.mean(axis=0)) <= 5 * error)
    assert not np.all(np.abs(1.5 * (ours**2).mean(axis=0) - (theirs**2).mean(axis=0)) <= 5 * error.max())


# ---------------------------------------------------------------- exact choices


def reference_choice(weights, word, bits=64):
    """The position that a uniform number in [word, word + 1) / 2^bits has, or None if it is not yet decided."""
    total = sum(map(Fraction, weights))
    below, above = word * total / 2**bits, (word + 1) * total / 2**bits
    start = Fraction(0)
    for position, weight in enumerate(weights):
        if start <= below and above <= start + Fraction(weight):
            return position
        start += Fraction(weight)
    return None


def edges_of(weights):
    """Words at and beside every partial sum."""
    total = sum(map(Fraction, weights))
    for partial in itertools.accumulate(map(Fraction, weights)):
        near = math.floor(partial / total * 2**64)
        yield from (word for word in range(near - 2, near + 3) if 0 <= word < 2**64)


@pytest.mark.parametrize(
    "weights",
    [[1.0, 1.0], [1.0, 1.0, 1.0], [0.1, 0.2, 0.7], [1e-30, 1.0, 1e-30], [3.0, 0.0, 5.0], [0.3] * 50, [2.0**-300, 1.0]],
)
def test_choices_are_exact_at_every_partial_sum(weights):
    """Quotes choose: The probabilities are exactly those of the weights, read as the dyadic numbers that they are."""
    for word in {*edges_of(weights), 0, 2**64 - 1, 2**63}:
        drawn = int(choice.choose(np.array(weights), 1, Words(word))[0])
        longer = (reference_choice(weights, word << more, 64 + more) for more in range(0, 640, 64))
        assert drawn == next(position for position in longer if position is not None)


def test_a_word_that_does_not_decide_asks_for_more():
    thirds = Words(2**64 // 3, 2**63)
    assert choice.choose(np.ones(3), 1, thirds)[0] == 1
    assert thirds.given == 2
    assert choice.choose(np.ones(3), 1, Words(2**64 // 3, 2**64 // 3 - 1))[0] == 0
    assert choice.choose(np.ones(3), 1, Words(2**64 // 3, 2**64 // 3, 2**63))[0] == 1


def test_floats_decide_alone_only_where_they_cannot_err(monkeypatch):
    """The control: partial sums in floating point, taken at their word, choose wrongly beside an edge."""
    asked = []
    exactly = choice.choose_integer
    monkeypatch.setattr(choice, "choose_integer", lambda *given: asked.append(given) or exactly(*given))
    weights = np.array([0.1] * 10 + [0.7])
    wrong = 0
    for word in edges_of(weights.tolist()):
        asked.clear()
        drawn = choice.choose(weights, 1, Words(word))[0]
        assert asked
        naive = np.searchsorted(np.cumsum(weights), word * 2.0**-64 * np.cumsum(weights)[-1], side="right")
        wrong += naive != drawn
    assert wrong > 0
    asked.clear()
    choice.choose(weights, 100_000, Dice())
    assert len(asked) <= 1


def test_one_symbol_needs_no_bits_and_a_weight_of_zero_is_never_drawn():
    dice = Dice()
    assert not choice.choose(np.array([0.7]), 5, dice).any()
    assert dice.used == 0
    drawn = choice.choose(np.array([0.0, 1.0, 0.0, 1.0, 0.0]), 1000, dice)
    assert set(drawn.tolist()) == {1, 3}
    assert choice.choose_integer([0, 3, 0], Words()) == 1
    assert choice.choose_fraction([Fraction(0), Fraction(1, 3)], Words()) == 1


def test_choices_have_the_probabilities_of_their_weights():
    weights = np.array([1.0, 2.5, 0.01, 4.0])
    seen = np.bincount(choice.choose(weights, 100_000, Dice()), minlength=4)
    expected = 100_000 * weights / weights.sum()
    assert ((seen - expected) ** 2 / expected).sum() < stats.chi2.isf(FIVE_SIGMA, 3)
    fractions = [Fraction(w) for w in weights.tolist()]
    dice = Dice(1)
    seen = np.bincount([choice.choose_fraction(fractions, dice) for _ in range(20_000)], minlength=4)
    assert ((seen - expected / 5) ** 2 / (expected / 5)).sum() < stats.chi2.isf(FIVE_SIGMA, 3)


# ---------------------------------------------------------------- draws


def test_draws_are_whole_numbers_of_the_right_shape_and_keep_public_totals():
    strategy = norm([6, 6, 6, 5, -1, -1, -1], [3, 2, 0, 2, 1, 1, 0])
    policy = policies.from_edges([0, 1, 3, 4], [1, 2, 4, -1], 5)
    sampler = tree_sampler(strategy, policy, 0.5)
    z = sampler.draw(500, source=Dice())
    assert z.shape == (500, 5)
    assert z.dtype == np.int64
    assert not z[:, :3].sum(axis=1).any()
    assert np.all(z.std(axis=0) > 0)


def test_isolated_cells_and_policies_without_edges_have_no_noise():
    alone = tree_sampler(norm([-1, 3, 3, -1], [0, 2, 3, 0]), policies.from_edges([1], [2], 3), 1.0)
    z = alone.draw(200, source=Dice())
    assert not z[:, 0].any()
    assert z[:, 1].any()
    empty = tree_sampler(norm([-1, -1], [0, 0]), policies.empty(2), 1.0)
    assert not empty.draw(3).any()
    assert empty.loss <= 1e-15
    below = tree_sampler(norm([1, -1], [5, 0]), policies.empty(1), 1.0)
    assert not below.draw(3).any()


def test_many_draws_in_blocks_are_like_few(monkeypatch):
    sampler = tree_sampler(*TINY["a chain"], 1.0)
    monkeypatch.setattr(tree_noise, "_BLOCK", 50)
    assert sampler.draw(101, source=Dice()).shape == (101, 3)
    assert len(np.unique(sampler.draw(101, source=Dice()), axis=0)) > 30


def test_the_same_bytes_give_the_same_noise_and_others_do_not():
    sampler = tree_sampler(binary(16, 0.2), policies.unbounded(16), 0.5)
    assert np.array_equal(sampler.draw(3, source=Dice(1)), sampler.draw(3, source=Dice(1)))
    assert not np.array_equal(sampler.draw(3, source=Dice(1)), sampler.draw(3, source=Dice(2)))
    assert not np.array_equal(sampler.draw(3), sampler.draw(3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_have_different_noise():
    sampler = tree_sampler(binary(16, 0.2), policies.unbounded(16), 0.1)
    sampler.draw()
    drawn = []
    for _ in range(2):
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other threads are idle
            child = os.fork()
        if child == 0:
            os.write(write, sampler.draw().tobytes())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            drawn.append(np.frombuffer(pipe.read(), dtype=np.int64))
        os.waitpid(child, 0)
    assert drawn[0].size == drawn[1].size == 16
    assert not np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], sampler.draw()[0])


def test_what_was_calibrated_cannot_be_changed():
    sampler = tree_sampler(*TINY["a chain"], 1.0)
    with pytest.raises(ValueError, match="read-only"):
        sampler.ratios[0] = 0.1
    assert repr(sampler) == "TreeSampler(3 cells, 5 nodes, loss 1)"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_epsilon_must_be_positive_and_finite(epsilon):
    with pytest.raises(
        InputError, match=r"noise\(epsilon=.*\): must be positive and finite\. Give for example epsilon=1\."
    ):
        tree_sampler(*TINY["a chain"], epsilon)


def test_improper_trees_are_refused():
    with pytest.raises(InputError, match="have no weight that holds them"):
        tree_sampler(norm([3, 3, 4, 4, -1], [0, 0, 3, 2, 0]), LINE, 1.0)
    with pytest.raises(InputError, match="have no weight that holds them"):
        tree_sampler(norm([-1, -1], [0, 3]), HIDDEN, 1.0)
    with pytest.raises(InputError, match="every parent must be a later node"):
        tree_sampler(norm([0, -1, -1], [1, 1, 1]), policies.unbounded(3), 1.0)
    for parents, ratios in ([2, 2, -1], [1.0, 1.0, 0.5]), ([-1], [1.0]):
        made = TreeSampler(np.array(parents), np.array(ratios), np.array([], dtype=np.int64), 10**6, 1.0)
        with pytest.raises(
            InputError, match=r"noise\(sets below node \d\): have no weight .*\. Give every cell but one"
        ):
            made.draw()


def test_a_weight_that_rounds_to_none_is_refused_where_it_holds_a_cell():
    strategy = norm([2, 2, -1], [2**60, 1, 2**60], bits=60)
    with pytest.raises(InputError, match="have no weight that holds them"):
        tree_sampler(norm([2, 2, -1], [1, 0, 2**60], bits=60), HIDDEN, 1.0).draw()
    assert tree_sampler(strategy, HIDDEN, 1.0).loss <= 1.0


def test_tables_that_do_not_fit_are_refused_before_there_is_one():
    with pytest.raises(
        InputError, match=r"noise\(tables of the tree\): would need .* of memory.* Use a larger epsilon"
    ):
        tree_sampler(chain(64, 0.2846, 0.1077), policies.threshold(64, 4), 1e-7)


def test_tables_that_grow_beyond_the_limit_are_refused(monkeypatch):
    sampler = tree_sampler(*TINY["a chain"], 0.1)
    monkeypatch.setattr(tree_tables, "fits", functools.partial(fits, limit=1000))
    with pytest.raises(InputError, match="would need"):
        sampler.draw()


def test_tables_that_take_too_long_are_refused(monkeypatch):
    sampler = tree_sampler(*TINY["a chain"], 0.1)
    monkeypatch.setattr(tree_noise, "_MOST_OPERATIONS", 100)
    problem = r"noise\(tables of the tree\): would take .* operations, more than 1\.0e\+02\. Use a larger epsilon"
    with pytest.raises(InputError, match=problem):
        tree_sampler(*TINY["a chain"], 0.1)
    with pytest.raises(InputError, match=problem):
        sampler.draw()


def test_an_epsilon_that_rounding_would_use_up_is_refused(monkeypatch):
    monkeypatch.setattr(tree_noise, "_RESERVE", 2**50)
    with pytest.raises(InputError, match=r"noise\(epsilon=0\.5\): rounding alone may cost .*\. Use a larger epsilon"):
        tree_sampler(*TINY["a chain"], 0.5)


def test_more_roundings_than_were_reserved_are_refused():
    sampler = dataclasses.replace(tree_sampler(*TINY["a chain"], 1.0), roundings=5)
    problem = r"noise\(tables of the tree\): make \d+ roundings, more than 5\. Calibrate the noise again"
    for use in (sampler.draw, functools.partial(privacy_loss, sampler, LINE.edges)):
        with pytest.raises(InputError, match=problem):
            use()


def test_too_few_and_too_many_vectors_are_refused():
    sampler = tree_sampler(*TINY["a chain"], 1.0)
    with pytest.raises(InputError, match=r"count=0.* must be a whole number of at least 1\. Draw at least one vector"):
        sampler.draw(0)
    with pytest.raises(InputError, match=r"would need .* of memory.* Draw fewer at a time"):
        sampler.draw(2**40)


# ---------------------------------------------------------------- samplers put together by hand


@pytest.mark.parametrize(
    "ratios",
    [[0.25, 0.25, 1.5], [math.nan] * 3, [0.5, 0.5, math.inf], [0.0, 0.5, 0.5], [-0.5, 0.5, 0.5], [1e-300] * 3],
    ids=str,
)
def test_a_sampler_is_not_made_of_ratios_that_the_proof_does_not_know(ratios):
    """A ratio above 1 would cancel others in the sum of logarithms, while the loss is the sum of their sizes."""
    honest = tree_sampler(norm([2, 2, -1], [4, 4, 1]), HIDDEN, 1.0)
    with pytest.raises(InputError, match=r"noise\(ratios\)"):
        dataclasses.replace(honest, ratios=np.array(ratios))


@pytest.mark.parametrize("tail", [2, 101, 10**6])
def test_a_sampler_has_a_tail_that_its_tables_can_hold(tail):
    with pytest.raises(InputError, match="must be 3 to 100"):
        dataclasses.replace(tree_sampler(star(2, 1.0), PAIR, 1.0), tail=tail)


def test_a_sampler_of_fewer_cells_protects_no_edge_of_more():
    sampler = tree_sampler(star(2, 1.0), PAIR, 1.0)
    assert privacy_loss(sampler, policies.bounded(40).edges) == math.inf
    assert privacy_loss(sampler, policies.unbounded(40).edges) == math.inf


def test_weights_far_beyond_the_least_ratio_take_no_time():
    start = time.perf_counter()
    assert np.all(tree_sampler(star(2, 1.0), PAIR, 1e7).ratios[:2] == tree_noise.LEAST_RATIO)
    assert time.perf_counter() - start < 5
