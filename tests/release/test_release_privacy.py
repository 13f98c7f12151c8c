"""Privacy of releases by calculation: what neighbours change is a shift of the noise, and the shift costs the claim.

Two facts make the proof, and both are checked on every family of strategies. First, a release is a function of the
noise shifted by A p_e (vertex strategies) or by column e of S (edge strategies), and of nothing else about the data:
the released numbers agree bit by bit when the shift is given to the noise and not to the data. Second, the worst such
shift costs, by the exact probabilities of the noise, what the plan claims.
"""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import settings

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.bounds.dense import is_public
from hdmm_bf.problem.transform import Problem, to_edges
from hdmm_bf.release import exact
from hdmm_bf.release.noise import Sampler
from hdmm_bf.release.privacy import gaussian_epsilon, zcdp_epsilon
from hdmm_bf.release.tree_noise import TreeSampler
from hdmm_bf.strategies import from_draft, registry
from hdmm_bf.strategies.laplace import portfolio
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy
from tests.support import oracles
from tests.support.fits import shipped
from tests.support.instances import given_policies, halves, random_tree

BOTTOM = -1
RNG = np.random.default_rng(11)


# ---------------------------------------------------------------- strategies of every family


def floor_fits(problem):
    """The paper's and the classical mechanisms, each shipped."""
    drafts = portfolio.Floors(problem, portfolio.Table(), "L1")
    return [shipped(problem, from_draft(problem, found)) for found in drafts]


def family_fit(family, W, G, steps):
    """What a family by itself reaches in a few steps, shipped: without the floors, which are often better."""
    problem = Problem(workload.parse(W), policy.parse(G) if isinstance(G, str) else G)
    drafts = list(itertools.islice(registry.family("laplace", family).search(problem, seed=1), steps))
    best = min(drafts, key=lambda found: found.error)
    assert best.origin == family
    return shipped(problem, from_draft(problem, best))


def tree_fit(W, G, family):
    return bf.fit(W, G, noise="norm", family=family, max_steps=1)


FAMILIES = {
    "p-identity on a tree": lambda: family_fit("p-identity", "all-range:6", random_tree(6, 1), 2),
    "p-identity on a cycle": lambda: family_fit("p-identity", "all-range:5", "cycle:5", 2),
    "cell-budgets, bounded": lambda: family_fit("cell-budgets", "all-range:5", "bounded:5", 2),
    "cell-budgets, two components": lambda: family_fit("cell-budgets", "prefix:8", halves(8, 0), 2),
    "vertex, threshold": lambda: family_fit("vertex", "all-range:6", "threshold:6:2", 2),
    "vertex, two components": lambda: family_fit("vertex", "prefix:8", halves(8, 0), 1),
    "dictionary on a grid": lambda: family_fit("dictionary", "all-range:2x3", "threshold:2x3:1", 3),
    "dictionary with BOTTOM": lambda: family_fit("dictionary", "all-range:4", "product:line:2,unbounded:2", 3),
    "tables of a line and a complete attribute": lambda: family_fit(
        "tables", "marginals:3x2x2:2", "product:line:3,bounded:2,empty:2", 2
    ),
    "grid, a path a step": lambda: family_fit("grid", "all-range:3x3", "threshold:3x3:1", 2),
    "identity on edges of a grid": lambda: bf.fit("all-range:3x3", "threshold:3x3:1", noise="laplace", max_steps=1),
    "gaussian, threshold": lambda: bf.fit("all-range:8", "threshold:8:2"),
    "gaussian, singular workload": lambda: bf.fit("marginals:2x3:1", "sensitive:2x3:1"),
    "gaussian, two components": lambda: bf.fit("all-range:8", halves(8, 0)),
    "tree norm chain, threshold": lambda: tree_fit("all-range:8", "threshold:8:2", "chain"),
    "tree norm hierarchy, unbounded": lambda: tree_fit("prefix:5", "unbounded:5", "hierarchy"),
    "tree norm clusters, two components": lambda: tree_fit("identity:8", halves(8, 0), "clusters"),
    "tree norm clusters, a grid": lambda: tree_fit("all-range:3x3", "threshold:3x3:1", "clusters"),
    "tree norm hierarchy, BOTTOM and a cell by itself": lambda: tree_fit(
        "identity:6", policy.from_edges([0, 1, 3, 4], [1, 2, 4, BOTTOM], 6), "hierarchy"
    ),
    "tree norm blocks, threshold": lambda: tree_fit("prefix:8", "threshold:8:3", "blocks"),
    "public": lambda: bf.fit("identity:4", "empty:4", noise="laplace"),
    "public totals of components": lambda: bf.fit([[1, 1, 0], [0, 0, 1]], policy.from_edges([0], [1], 3)),
}


def test_no_family_that_is_written_out_is_forgotten():
    families = registry.names(structured=False)
    assert [name for name in families if not any(name in told.split(",")[0].split() for told in FAMILIES)] == []


@pytest.fixture(scope="module", params=FAMILIES)
def made(request):
    return FAMILIES[request.param]()


def asked(fit):
    return {"rho": 0.3} if fit.noise == "gaussian" else {"epsilon": 0.7}


# ---------------------------------------------------------------- the calculation, from the definition


def edge_shifts(fit):
    """For every edge (u, v): the step e_u - e_v of the data and the shift of the integer answers, in Python ints."""
    G = fit.problem.policy
    integers = np.eye(G.num_cells, dtype=int).tolist() if fit.noise == "norm" else fit.strategy.integers.tolist()
    parts = nx.connected_components(oracles.graph(G.num_cells, G.edges))
    given_up = {max(part) for part in parts if BOTTOM not in part}
    for e, (u, v) in enumerate(G.edges.tolist()):
        step = [0] * G.num_cells
        step[u] += 1
        if v != BOTTOM:
            step[v] -= 1
        if fit.strategy.kind != "edge":
            yield step, [sum(a * s for a, s in zip(row, step, strict=True)) for row in integers]
        else:
            sign = -1 if u in given_up else 1
            yield step, [sign * row[e] for row in integers]


def worst_loss(fit, scale):
    """Largest log-ratio of Laplace probabilities, or largest rho of Gaussian ones, over all edges, in fractions."""
    size = Fraction(scale)
    if fit.noise == "laplace":
        return max((sum(map(abs, shift)) / size for _, shift in edge_shifts(fit)), default=Fraction(0))
    return max((sum(t * t for t in shift) / (2 * size**2) for _, shift in edge_shifts(fit)), default=Fraction(0))


def tree_loss(fit, sampler):
    """Largest sum of -log q_v over the sets that hold one end of an edge and not the other, in decimals."""

    def sets(cell):
        return set() if cell == BOTTOM else {cell} | sets(int(sampler.parents[cell]))

    logs = [-Decimal(q).ln() for q in sampler.ratios.tolist()]
    return max(sum((logs[v] for v in sets(int(a)) ^ sets(int(b))), Decimal(0)) for a, b in fit.problem.policy.edges)


def check_loss(fit):
    settled = bf.plan(fit, **asked(fit))
    claim = settled.rho if fit.noise == "gaussian" else settled.epsilon
    if settled.sampler is None:
        assert not any(any(shift) for _, shift in edge_shifts(fit))
        return
    tree = fit.noise == "norm"
    loss = Fraction(tree_loss(fit, settled.sampler)) if tree else worst_loss(fit, settled.sampler.scale)
    assert loss <= Fraction(claim)
    assert float(loss) == pytest.approx(claim, rel=1e-7 if tree else 1e-9)
    assert float(loss) == pytest.approx(settled.sampler.loss, rel=1e-7 if tree else 1e-9)


class Draws:
    """Stands in for the sampler: hands out prepared noise, and keeps the random bits of the grid the same."""

    def __init__(self, noise):
        self.noise = noise

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(Sampler, "draw", lambda sampler, size, *, callback=None: self.noise.copy())
        self.patch.setattr(TreeSampler, "draw", lambda sampler, count: self.noise[None].copy())
        self.patch.setattr(exact.secrets, "randbits", lambda count: 0xB5297A4D)
        return self

    def __exit__(self, *_):
        self.patch.undo()


def released(fit, x, noise):
    """Every number of a release that depends on data or noise, as bytes."""
    with Draws(np.array(noise, dtype=np.int64)):
        out = bf.release(fit, np.array(x), **asked(fit))
    return out.answers.tobytes(), out.estimate.tobytes(), out.totals.tobytes()


def check_neighbours_shift_the_noise(fit):
    n = fit.problem.policy.num_cells
    r = n if fit.noise == "norm" else fit.strategy.num_rows
    settled = bf.plan(fit, **asked(fit))
    loudest = 1 if settled.sampler is None else 3 * math.ceil(settled.sampler.scale if fit.noise != "norm" else 9)
    for step, shift in edge_shifts(fit):
        x = RNG.integers(1, 10**6, n)
        k = RNG.integers(-loudest, loudest + 1, r)
        moved = released(fit, x, k + np.array(shift, dtype=np.int64))
        assert released(fit, x + np.array(step), k) == moved
        if settled.sampler is not None and any(shift):
            assert released(fit, x, k) != moved


# ---------------------------------------------------------------- every family


def test_the_worst_edge_loses_what_the_plan_claims(made):
    """Quotes plan: The privacy map of the noise, at the exact integer sensitivity, is at most what was asked for."""
    check_loss(made)


def test_neighbours_release_the_same_bits_when_the_noise_is_shifted(made):
    """Quotes release: the distributions of everything in the result differ by at most what was asked for."""
    check_neighbours_shift_the_noise(made)


@settings(max_examples=12)
@given_policies(most_cells=6)
def test_gaussian_releases_are_private_under_random_policies(G):
    fit = bf.fit(workload.all_range(G.num_cells), G, max_steps=3)
    check_loss(fit)
    check_neighbours_shift_the_noise(fit)


@settings(max_examples=8)
@given_policies(most_cells=5)
def test_laplace_floors_are_private_under_random_policies(G):
    problem = Problem(workload.all_range(G.num_cells), G)
    if is_public(problem):
        return
    for fit in floor_fits(problem):
        check_loss(fit)
        check_neighbours_shift_the_noise(fit)


@pytest.mark.parametrize("G", ["cycle:6", "threshold:2x3:1", "line:5", "product:line:2,unbounded:2"])
def test_laplace_floors_are_private(G):
    made = policy.parse(G)
    kinds = set()
    for fit in floor_fits(Problem(workload.all_range(made.num_cells), made)):
        check_loss(fit)
        check_neighbours_shift_the_noise(fit)
        kinds.add(fit.strategy.kind)
    assert ("edge" in kinds) == (not made.is_forest)


def test_strategies_without_full_column_rank_are_private_and_answer_what_they_support():
    """One total of a hidden pair: the strategy cannot tell the cells apart, and need not."""
    G = policy.unbounded(3)
    problem = Problem(workload.from_matrix(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])), G)
    for noise in ("laplace", "gaussian"):
        fit = shipped(problem, CellStrategy(np.array([[1, 1, 0], [0, 0, 3]]) << 18, 18, "test"), noise)
        check_loss(fit)
        check_neighbours_shift_the_noise(fit)
        out = bf.release(fit, [4, 5, 6], **({"epsilon": 1e7} if noise == "laplace" else {"rho": 1e7}))
        assert out.answers == pytest.approx([9, 12], abs=0.01)


# ---------------------------------------------------------------- edge strategies off trees


@pytest.mark.parametrize(
    "name", ["p-identity on a cycle", "dictionary on a grid", "dictionary with BOTTOM", "identity on edges of a grid"]
)
def test_the_step_of_an_edge_is_its_column_carried_back_exactly(name):
    """p_e = P S^+ (S e_e), in fractions: full column rank is what makes the column norm the loss."""
    fit = FAMILIES[name]()
    assert fit.strategy.kind == "edge"
    S = [[Fraction(v) for v in row] for row in fit.strategy.integers.tolist()]
    P = fit.problem.P.dense().astype(int).tolist()
    columns = list(zip(*S, strict=True))
    e = len(columns)
    gram = [[sum(a * b for a, b in zip(c, d, strict=True)) for d in columns] for c in columns]
    rows = [g + [Fraction(i == j) for j in range(e)] for i, g in enumerate(gram)]
    for i in range(e):  # Gauss and Jordan; a pivot of zero would be a strategy without full rank
        pivot = next(j for j in range(i, e) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for j in set(range(e)) - {i}:
            rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    inverse = [row[e:] for row in rows]
    for edge, column in enumerate(columns):
        carried = [sum(a * b for a, b in zip(c, column, strict=True)) for c in columns]
        z = [sum(a * b for a, b in zip(row, carried, strict=True)) for row in inverse]
        assert [sum(p * t for p, t in zip(row, z, strict=True)) for row in P] == [row[edge] for row in P]


def test_raw_answers_of_an_edge_strategy_on_a_cycle_would_break_the_claim():
    """The control of mathematics section 2: S x_G + noise, identity on the edges of a 6-cycle, loses 1.67 epsilon.

    x_G is one preimage of the data; the Moore-Penrose preimages of neighbours differ by 5/6 on the edge and 1/6 on the
    other five. What is published, x + P S^+ noise, does not show which preimage was used.
    """
    fit = shipped(
        Problem(workload.identity(6), policy.cycle(6)),
        EdgeStrategy(np.eye(6, dtype=np.int64) << 16, 16, "identity on edges"),
    )
    settled = bf.plan(fit, epsilon=0.7)
    check_loss(fit)
    x, raw = np.full(6, 5), []
    for step, _ in edge_shifts(fit):
        moved = to_edges(fit.problem, x + np.array(step)) - to_edges(fit.problem, x)
        raw.append(np.abs(moved).sum() * 2**16 / settled.sampler.scale)
    assert max(raw) == pytest.approx(0.7 * 10 / 6, rel=1e-6)
    check_neighbours_shift_the_noise(fit)


def test_edge_strategies_without_full_column_rank_are_refused_before_anything_is_spent(tmp_path):
    """Without full rank P S^+ S e_e is not p_e, so the noise would not cover the step."""
    S = np.array([[1, 1, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1], [2, 2, 2, 0]]) << 16
    problem = Problem(workload.from_matrix(np.zeros((1, 4))), policy.cycle(4))
    ledger = bf.Ledger(tmp_path / "ledger.db", epsilon=1.0, new=True)
    with pytest.raises(bf.InputError, match="edge strategy without full column rank"):
        bf.release(shipped(problem, EdgeStrategy(S, 16, "test")), [1] * 4, epsilon=1.0, account=ledger.account("d"))
    assert ledger.entries() == []


# ---------------------------------------------------------------- what is public


@settings(max_examples=12)
@given_policies(most_cells=6)
def test_published_totals_are_the_same_on_all_neighbours(G):
    """Quotes release: Besides them only what the policy makes public is used: component totals."""
    fit = bf.fit(workload.identity(G.num_cells), G, max_steps=1)
    x = tuple(range(1, G.num_cells + 1))
    noise = np.zeros(fit.strategy.num_rows, dtype=np.int64)
    parts = nx.connected_components(oracles.graph(G.num_cells, G.edges))
    want = sorted(sum(x[cell] for cell in part) for part in parts if BOTTOM not in part)
    with Draws(noise):
        out = bf.release(fit, np.array(x), **asked(fit))
        assert sorted(out.totals.tolist()) == want
        for y in oracles.neighbours(G.edges.tolist(), x):
            assert np.array_equal(bf.release(fit, np.array(y), **asked(fit)).totals, out.totals)


# ---------------------------------------------------------------- epsilon and delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.2, 1e-9), (4.0, 1e-3), (0.5, 0.001)])
def test_gaussian_plans_keep_epsilon_and_delta_by_the_definition(epsilon, delta):
    """delta(epsilon) of the noise on the worst edge by numerical integration: all of the request, and not more.

    0.999 of the noise breaks the claim.
    """
    fit = bf.fit("all-range:8", "threshold:8:2")
    settled = bf.plan(fit, epsilon=epsilon, delta=delta)
    worst = math.sqrt(max(sum(t * t for t in shift) for _, shift in edge_shifts(fit)))
    for factor, fine in ((1.0, True), (0.999, False)):
        mean = worst / (factor * settled.sampler.scale)  # of the noise's own standard deviation
        cut = mean / 2 + epsilon / mean  # from where on one density is more than e^epsilon of the other
        t = np.linspace(cut, cut + 14, 200_001)
        density = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
        excess = np.maximum(np.exp(-((t - mean) ** 2) / 2) / math.sqrt(2 * math.pi) - math.exp(epsilon) * density, 0)
        found = float(np.trapezoid(excess, t))
        assert bool(found <= delta * (1 + 1e-9)) == fine
        assert found > 0.999 * delta
    assert settled.rho == pytest.approx(worst**2 / (2 * settled.sampler.scale**2), rel=1e-9)
    assert settled.epsilon_at(delta) == pytest.approx(epsilon, rel=1e-6)
    assert settled.epsilon_at(delta) <= epsilon * (1 + 1e-9)
    assert settled.mu == pytest.approx(math.sqrt(2 * settled.rho), rel=1e-12)
    assert zcdp_epsilon(settled.rho, delta / 10) > settled.epsilon_at(delta / 10) > epsilon
    assert settled.epsilon_at(delta / 10) == pytest.approx(gaussian_epsilon(1 / settled.mu, delta / 10), rel=1e-9)


def test_gaussian_plans_by_way_of_zcdp_keep_what_they_claim():
    fit = bf.fit("all-range:8", "threshold:8:2")
    exact, by_way = (bf.plan(fit, epsilon=1.0, delta=1e-6, accounting=name) for name in ("analytic", "zcdp"))
    assert 1.06 * exact.sampler.scale < by_way.sampler.scale < 1.08 * exact.sampler.scale
    assert by_way.epsilon_at(1e-7) == zcdp_epsilon(by_way.rho, 1e-7) > 1.0
