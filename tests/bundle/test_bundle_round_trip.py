"""Honest bundles: whatever is saved is read, certified and released again, on random policies of every kind."""

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.domain import Domain
from hdmm_bf.fit import loading

NUM_BUNDLES = 200
IN_DEFAULT = 28
"""Two of every shape and noise."""

KINDS = ("line", "threshold", "cycle", "star-tree", "h-theta", "bounded", "unbounded", "empty", "sensitive")
SHAPES = ("named", "product", "custom product", "graph", "graph with BOTTOM", "labelled", "labelled graph")
NOISES = ("gaussian", "laplace", "structured", "norm")


def drawn_graph(rng, domain, *, bottom):
    n = domain.num_cells if isinstance(domain, Domain) else domain
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n) if rng.random() < 0.5]
    pairs += [(u, policy.BOTTOM) for u in range(n) if bottom and rng.random() < 0.4]
    pairs = [pairs[i] for i in rng.permutation(len(pairs))] or [(0, n - 1)]
    name = str(rng.choice(["mine.csv", "a b", "line:3.csv", "line:3", "graph \u2236 3", "networkx graph"]))
    u, v = np.array(pairs).T
    return policy.from_edges(u, v, domain, spec=name)


def drawn_named(rng, n):
    kind = str(rng.choice(KINDS[:-1]))
    extra = f":{rng.integers(1, n)}" if kind in ("threshold", "h-theta") else ""
    return policy.parse(f"{kind}:{n}{extra}")


def labelled(sizes):
    names = tuple(f"n{i} \u2236" for i in range(len(sizes)))
    return Domain(sizes, names, tuple(tuple(f"{i}/{v}" for v in range(s)) for i, s in enumerate(sizes)))


def drawn_policy(rng, shape):
    sizes = tuple(int(s) for s in rng.integers(3, 5, size=2))
    if shape == "named":
        return drawn_named(rng, int(rng.integers(3, 9))) if rng.random() < 0.8 else policy.sensitive(sizes, [0])
    if shape == "product":
        return policy.product(*(drawn_named(rng, n) for n in sizes))
    if shape == "custom product":
        parts = [drawn_graph(rng, sizes[0], bottom=rng.random() < 0.3), drawn_named(rng, sizes[1])]
        return policy.product(*(parts if rng.random() < 0.5 else parts[::-1]))
    if shape == "labelled":
        domain = labelled(sizes)
        named = policy.per_attribute(domain, {0: "line", 1: str(rng.choice(["cycle", "bounded", "unbounded"]))})
        return named if rng.random() < 0.5 else policy.sensitive(domain, [1])
    domain = labelled((int(rng.integers(3, 7)),)) if shape == "labelled graph" else int(rng.integers(3, 8))
    return drawn_graph(rng, domain, bottom="BOTTOM" in shape or rng.random() < 0.3)


def drawn_workload(rng, graph, noise):
    domain = graph.domain
    d = domain.num_attributes
    choices = [workload.identity(domain), workload.all_range(domain), workload.prefix(domain)]
    choices += [workload.marginals(domain, int(rng.integers(0, d + 1)))]
    if noise != "structured":
        names = [f"q {i}, =x" for i in range(3)] if rng.random() < 0.5 else None
        matrix = rng.integers(-2, 3, size=(3, domain.num_cells)) + np.eye(3, domain.num_cells)
        choices += [workload.from_matrix(matrix, domain=domain, names=names, spec="prefix:4.csv")]
    return choices[int(rng.integers(len(choices)))]


def drawn_fit(number):
    """Return a fit, by its factors where the problem has them."""
    rng = np.random.default_rng(number)
    noise = NOISES[number % len(NOISES)]
    graph = drawn_policy(rng, SHAPES[(number // len(NOISES)) % len(SHAPES)])
    queries = drawn_workload(rng, graph, noise)
    if noise == "norm":
        family = str(rng.choice(["hierarchy", "clusters"]))
        return bf.fit(queries, graph, noise=noise, max_steps=1, family=family, effort="quick")
    if noise != "structured":
        family = str(rng.choice(["vertex", "p-identity"])) if noise == "laplace" else None
        return bf.fit(queries, graph, noise=noise, max_steps=2, family=family if rng.random() < 0.7 else None)
    family = "bases" if rng.random() < 0.5 else None
    try:
        return bf.fit(queries, graph, family=family or "marginals")
    except bf.InputError as refused:
        if "family" not in str(refused):
            raise
        return bf.fit(queries, graph, max_steps=2)


def check_round_trip(number, tmp_path):
    made = drawn_fit(number)
    path = made.save(tmp_path / f"{number}.bf")
    back, found = loading.check(path)
    assert found == []
    facts, again = made.summary(), back.summary()
    for key in set(facts) - {
        "seconds",
        "policy",
        "workload",
        "discloses",
    }:  # a product read by its edges has other words
        close = isinstance(facts[key], float) and again[key] == pytest.approx(facts[key], rel=1e-9)
        assert close or again[key] == facts[key], key
    assert back.discloses == bf.load(back.save(tmp_path / "again.bf")).discloses
    assert bool(back.discloses) == bool(made.discloses)
    assert policy.hides(back.problem.policy)
    np.testing.assert_array_equal(back.strategy.matrix(), made.strategy.matrix())
    x = np.random.default_rng(number).integers(0, 9, size=back.problem.policy.num_cells)
    out = bf.release(back, x, **({"rho": 0.5} if made.noise == "gaussian" else {"epsilon": 1.0}))
    m = back.problem.workload.num_queries
    assert out.answers.shape == out.stddev.shape == (m,)
    assert out.estimate.shape == x.shape
    assert np.isfinite(out.answers).all()


@pytest.mark.parametrize("number", range(IN_DEFAULT))
def test_what_is_saved_is_read_certified_and_released_again(number, tmp_path):
    check_round_trip(number, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(IN_DEFAULT, NUM_BUNDLES))
def test_what_is_saved_is_read_certified_and_released_again_at_length(number, tmp_path):
    check_round_trip(number, tmp_path)


def test_a_product_with_a_custom_factor_is_read_again(tmp_path):
    factor = policy.from_edges([0, 2], [1, 3], 4, spec="mine.csv")
    for other in ("line:3", "cycle:3", "empty:3"):
        graph = policy.product(factor, policy.parse(other))
        for made in (bf.fit("identity:4x3", graph), bf.fit("identity:4x3", graph, family="bases")):
            assert loading.check(made.save(tmp_path / "x.bf"))[1] == []
