"""Sensitivities that noise is scaled to, against fractions over the definition; forged strategies are refused."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import Certificate, certify, exact_sensitivity
from hdmm_bf.certificate.exact import GRID_BITS, INTEGER_LIMIT, block_sensitivity, dense_sensitivity, row_weight
from hdmm_bf.problem.product import as_product
from hdmm_bf.release.row_noise import row_scales
from hdmm_bf.strategies.blocks import from_factors, from_integers
from hdmm_bf.strategies.records import CellStrategy, ProductStrategy

NOISES = ("gaussian", "laplace")


def norm(column, noise):
    return sum(abs(int(t)) for t in column) if noise == "laplace" else sum(int(t) ** 2 for t in column)


def brute_dense(integers, edges, noise):
    full = [[*map(int, row), 0] for row in integers]
    return max((norm([row[u] - row[v] for row in full], noise) for u, v in edges), default=0)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(12))
def test_the_sensitivity_of_a_matrix_is_exact_for_integers_of_every_size(noise, seed):
    """Quotes certificate_exact: `dense_sensitivity` is exact."""
    rng = np.random.default_rng(seed)
    rows, cells = int(rng.integers(1, 9)), int(rng.integers(2, 9))
    size = int(rng.choice([2, 2**18, 2**36, INTEGER_LIMIT]))
    integers = rng.integers(-size + 1, size, (rows, cells))
    pairs = [(u, v) for u, v in itertools.product(range(cells), range(-1, cells)) if u != v]
    edges = np.array([pairs[i] for i in rng.permutation(len(pairs))[:10]])
    assert dense_sensitivity(integers, *edges.T, noise) == brute_dense(integers, edges.tolist(), noise)


@pytest.mark.parametrize("noise", NOISES)
def test_one_unit_in_the_last_place_of_one_of_many_equal_edges_counts(noise):
    """All edges tie in floating point; one is larger by one unit."""
    integers = np.full((40, 300), 2**51)
    integers[:, ::2] *= -1
    integers[7, 123] += 1
    head, tail = np.arange(299), np.arange(1, 300)
    assert dense_sensitivity(integers, head, tail, noise) == brute_dense(
        integers, zip(head.tolist(), tail.tolist(), strict=True), noise
    )


def test_half_a_million_tied_edges_take_no_loop_in_python():
    """A loop of Python over ties took minutes; entries of one size make every edge of a complete graph tie."""
    problem = bf.Problem(bf.workload.parse("identity:700"), bf.policy.parse("bounded:700"))
    strategy = CellStrategy(np.eye(700, dtype=np.int64), 0, "identity")
    assert exact_sensitivity(strategy, problem, "gaussian") == 2
    assert exact_sensitivity(strategy, problem, "laplace") == 2


def brute_blocks(edges, sizes, blocks, noise):
    """The loss of every edge, row by row, in fractions; then rounded up to the grid."""
    squares = 2 if noise == "gaussian" else 1
    largest = Fraction(0)
    for axis, pairs in enumerate(edges):
        others = [range(size) for i, size in enumerate(sizes) if i != axis]
        for (u, v), cells in itertools.product(pairs.tolist(), itertools.product(*others)):
            loss = Fraction(0)
            for block in blocks:
                for J in np.ndindex(*block.shape):
                    precision = float(block.full_precisions[J])
                    if precision in (0.0, math.inf):
                        continue
                    move, rest = Fraction(1), iter(cells)
                    for i, factor in enumerate(block.integers):
                        row = [Fraction(int(t), 2 ** block.bits[i]) for t in factor[J[i]]]
                        move *= (row[u] - (row[v] if v >= 0 else 0)) if i == axis else row[next(rest)]
                    level = Fraction(precision) if squares == 2 else Fraction(row_weight(precision))
                    loss += level * abs(move) ** squares
            largest = max(largest, loss)
    return math.ceil(largest * 2 ** (squares * GRID_BITS))


def random_blocks(rng, sizes):
    """Blocks with integers and precisions of every size, some zero, some infinite where the rows are constant."""
    blocks = []
    for _ in range(int(rng.integers(1, 4))):
        size = int(rng.choice([3, 2**20, INTEGER_LIMIT]))
        rows = [int(rng.integers(1, 4)) for _ in sizes]
        factors = tuple(rng.integers(-size + 1, size, (r, n)) for r, n in zip(rows, sizes, strict=True))
        bits = tuple(int(b) for b in rng.integers(0, 20, len(sizes)))
        precisions = 10.0 ** rng.uniform(-60, 60, rows)
        precisions[rng.random(rows) < 0.2] = 0.0
        blocks.append(from_integers(factors, bits, precisions))
    return blocks


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(10))
def test_the_sensitivity_of_blocks_is_exact_for_factors_of_every_size(noise, seed):
    """Quotes block_sensitivity: rounded up to a whole number; an upper bound, exact where no axis is narrowed."""
    rng = np.random.default_rng(seed)
    sizes = (3, 2, 2)[: int(rng.integers(1, 4))]
    edges = tuple(bf.policy.parse(f"{rng.choice(['line', 'unbounded', 'empty'])}:{n}").edges for n in sizes)
    blocks = random_blocks(rng, sizes)
    derived, truth = block_sensitivity(edges, blocks, noise), brute_blocks(edges, sizes, blocks, noise)
    assert truth <= derived <= truth * (1 + Fraction(1, 10**8))
    assert (derived == 0) == (truth == 0)


@pytest.mark.parametrize("noise", NOISES)
def test_the_noise_of_every_row_covers_its_share_in_exact_arithmetic(noise):
    """Quotes row_scales: never less noise than the sensitivity was derived for."""
    fit = bf.fit(
        "marginals:3x4x2:2",
        "sensitive:3x4x2:0,2",
        noise=noise,
        max_seconds=2.0,
        family={"gaussian": "marginals"}.get(noise, "union"),
    )
    plan = bf.plan(fit, **({"rho": 0.3} if noise == "gaussian" else {"epsilon": 0.7}))
    unit = Fraction(plan.sampler.scale) / 2**plan.bits
    for block in fit.strategy.blocks:
        scales = row_scales(block, plan)
        for J in np.ndindex(*block.shape):
            precision, scale = float(block.full_precisions[J]), Fraction(float(scales[J]))
            if precision in (0.0, math.inf):
                assert scale == 0
            elif noise == "gaussian":
                assert scale**2 * Fraction(precision) >= (unit * 2 ** sum(block.bits)) ** 2
            else:
                assert scale * Fraction(row_weight(precision)) >= unit * 2 ** sum(block.bits)


def inert_block(attributes, precision=1e60):
    """Factors whose product overflows, then a zero factor: infinity times zero."""
    factors = [np.full((1, 2), 2**51) for _ in range(attributes - 1)] + [np.zeros((1, 2), dtype=np.int64)]
    return from_integers(tuple(factors), (0,) * attributes, np.full((1,) * attributes, precision), ())


def forged(terms):
    """An honest exact-looking table, noise far too small, beside a block that turned sums into "not a number"."""
    sizes = (2,) * 12
    policy = bf.policy.parse("product:" + ",".join(["line:2"] * 12))
    product = as_product(bf.Problem(bf.workload.parse("marginals:" + "x".join(map(str, sizes)) + ":1"), policy))
    assert product is not None
    own = from_factors([np.eye(2)] * 2 + [np.ones((1, 2))] * 10, np.full((1,) * 12, 1e20))
    return product, ProductStrategy((own, dataclasses.replace(inert_block(12), terms=terms)), "forged")


@pytest.mark.parametrize("noise", NOISES)
def test_an_inert_block_does_not_remove_an_edge_from_the_sensitivity(noise):
    product, strategy = forged(None)
    alone = block_sensitivity(product.edges, strategy.blocks[:1], noise)
    assert block_sensitivity(product.edges, strategy.blocks, noise) >= alone > 2**30 * 10**9


@pytest.mark.parametrize("terms", [(), (99,), (-1,)])
def test_blocks_that_answer_no_term_are_refused(terms):
    """Quotes certify: every block answers some term."""
    product, strategy = forged(terms)
    with pytest.raises(InputError, match="terms of the workload"):
        certify(strategy, product.problem, noise="gaussian", proof=None)


def test_the_smallest_integer_of_64_bits_is_no_entry_of_a_factor():
    """np.abs(-2^63) is negative, so a test of absolute values let it pass."""
    product = as_product(bf.Problem(bf.workload.parse("identity:2x2"), bf.policy.parse("unbounded:2x2")))
    block = from_integers((np.array([[1, -(2**63)], [0, 1]]), np.eye(2, dtype=np.int64)), (0, 0), np.ones((1, 1)))
    with pytest.raises(InputError, match="does not fit the domain"):
        certify(ProductStrategy((block,), "bad"), product.problem, noise="gaussian", proof=None)


OBJECTIVE = ("objective_value", "objective_bound")
NUMBERS = [f.name for f in dataclasses.fields(Certificate) if f.name not in ("noise", "objective", *OBJECTIVE)]
WHOLE = ("sensitivity_exact", "bits")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_every_number_of_a_certificate_is_finite(name, value):
    """Quotes Certificate: every number is finite and none is negative."""
    fit = bf.fit("identity:4", "line:4")
    planted = -1 if name in WHOLE else value
    with pytest.raises(InputError, match=f"{name}="):
        dataclasses.replace(fit.certificate, **{name: planted})


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("name", OBJECTIVE)
def test_numbers_of_an_objective_are_finite_and_those_of_the_total_are_its_error_and_bound(name, value):
    largest = bf.fit("identity:4", "line:4", objective="largest").certificate
    with pytest.raises(InputError, match=f"{name}="):
        dataclasses.replace(largest, **{name: value})
    total = bf.fit("identity:4", "line:4").certificate
    kept = dataclasses.replace(total, **{name: value})
    assert (kept.objective_value, kept.objective_bound) == (total.unit_error, total.lower_bound)


def test_a_gap_without_a_bound_is_infinite_and_with_one_it_is_not():
    fit = bf.fit("identity:4", "line:4")
    unproven = dataclasses.replace(fit.certificate, svd_bound=0.0, lower_bound=0.0, gap=math.inf)
    assert unproven.as_dict()["gap"] is None
    with pytest.raises(InputError, match="gap="):
        dataclasses.replace(fit.certificate, gap=math.inf)


@pytest.mark.parametrize("factor", [1000, 2])
@pytest.mark.parametrize(
    ("workload", "policy", "options"),
    [
        ("identity:6", "line:6", {}),
        ("identity:6", "unbounded:6", {"noise": "laplace", "max_steps": 5}),
        ("all-range:6", "cycle:6", {"noise": "laplace", "max_steps": 5, "family": "dictionary"}),
    ],
)
def test_a_strategy_that_replaces_the_certified_one_is_not_released(workload, policy, options, factor):
    """Quotes publish: a plan that was made for another sensitivity is refused."""
    fit = bf.fit(workload, policy, **options)
    own = fit.strategy
    other = dataclasses.replace(fit, strategy=dataclasses.replace(own, integers=own.integers * factor))
    budget = {"epsilon": 1.0} if fit.noise == "laplace" else {"rho": 0.5}
    with pytest.raises(InputError, match="has another sensitivity than its certificate"):
        bf.release(other, np.ones(6, dtype=np.int64), **budget)


@pytest.mark.parametrize("noise", NOISES)
def test_blocks_that_replace_the_certified_ones_are_not_released(noise):
    """Quotes publish: a plan that was made for another sensitivity is refused."""
    fit = bf.fit("identity:3x2", "unbounded:3x2", noise=noise, family="kronecker", max_seconds=2.0)
    louder = tuple(dataclasses.replace(block, precisions=block.precisions * 1e6) for block in fit.strategy.blocks)
    other = dataclasses.replace(fit, strategy=ProductStrategy(louder, "forged"))
    budget = {"epsilon": 1.0} if noise == "laplace" else {"rho": 0.5}
    with pytest.raises(InputError, match="has another sensitivity than its certificate"):
        bf.release(other, np.ones(6, dtype=np.int64), **budget)


def test_a_plan_whose_noise_was_taken_out_is_not_carried_out():
    from hdmm_bf.release.publish import publish

    fit = bf.fit("identity:6", "line:6")
    silent = dataclasses.replace(bf.plan(fit, rho=0.5), sampler=None)
    with pytest.raises(InputError, match="noise that does not go with"):
        publish(silent, fit, np.ones(6, dtype=np.int64))


@pytest.mark.parametrize("change", [{"scale": 0.01}, {"noise": "laplace"}])
def test_a_plan_with_less_noise_than_its_promise_is_not_carried_out(change):
    from hdmm_bf.release.publish import publish

    fit = bf.fit("identity:6", "line:6")
    plan = bf.plan(fit, epsilon=1.0, delta=1e-6)
    quiet = dataclasses.replace(plan, sampler=dataclasses.replace(plan.sampler, **change))
    with pytest.raises(InputError, match="less noise than its promise"):
        publish(quiet, fit, np.ones(6, dtype=np.int64))
    promising = dataclasses.replace(plan, epsilon=0.5)
    with pytest.raises(InputError, match="less noise than its promise"):
        publish(promising, fit, np.ones(6, dtype=np.int64))


def test_a_sensitivity_that_no_noise_covers_is_refused_in_a_sentence():
    problem = bf.Problem(bf.workload.parse("identity:2x2"), bf.policy.parse("unbounded:2x2"))
    block = from_integers((np.full((1, 2), 2**51),) * 2, (0, 0), np.full((1, 1), 1e60))
    product = as_product(problem)
    strategy = ProductStrategy((block,), "bad")
    assert block_sensitivity(product.edges, strategy.blocks, "gaussian").bit_length() > 400
    with pytest.raises(InputError):
        certify(strategy, product.problem, noise="gaussian", proof=None)


@pytest.mark.parametrize("count", [1407, 1408, 2**40, 2**53])
def test_whether_a_release_is_refused_does_not_depend_on_a_count(count):
    """An entry of 2^51 put the border of 64 bits between 1407 and 1408 records of a cell, before anything was paid."""
    fit = bf.fit("identity:5", "bounded:5", noise="laplace", max_steps=1)
    integers = np.vstack([fit.strategy.integers, 2**51 * np.eye(5, dtype=np.int64)[:1]])
    strategy = CellStrategy(integers, fit.strategy.bits, "forged")
    certificate = certify(strategy, fit.problem, noise="laplace", proof=fit.proof)
    loud = dataclasses.replace(fit, strategy=strategy, certificate=certificate)
    out = bf.release(loud, np.array([count, 0, 0, 0, 0]), epsilon=0.1)
    assert np.all(np.isfinite(out.answers))


def test_blocks_beyond_64_bits_are_measured_exactly():
    from hdmm_bf.data.tables import Histogram
    from hdmm_bf.release.products import ProductRecovery

    product = as_product(bf.Problem(bf.workload.parse("identity:2x2"), bf.policy.parse("unbounded:2x2")))
    factors = (np.array([[2**40, 3], [5, -(2**45)]]), np.array([[2**30, 1], [-1, 2**31]]))
    strategy = ProductStrategy((from_integers(factors, (0, 0), np.ones((1, 1))),), "large")
    table = np.array([[2**50, 7], [11, 2**52]])
    (measured,) = ProductRecovery(product.problem, strategy).exact_answers(Histogram(table), room=[0])
    for i, j in np.ndindex(2, 2):
        exact = sum(int(factors[0][i, a]) * int(factors[1][j, b]) * int(table[a, b]) for a, b in np.ndindex(2, 2))
        assert measured[i, j] == exact


def test_records_on_attributes_of_other_names_or_labels_are_refused():
    """Two attributes of one size: the policy may protect one of them alone."""
    named = bf.Domain((2, 2), ("age", "sex"))
    fit = bf.fit(
        bf.workload.parse("identity:2x2", domain=named),
        bf.policy.parse("sensitive:2x2:0", domain=named),
        family="marginals",
    )
    values = np.array([[0, 1], [1, 1]])
    with pytest.raises(InputError, match="the policy is on age, sex"):
        bf.release(fit, bf.Records(values, bf.Domain((2, 2), ("sex", "age"))), rho=1.0)
    assert bf.release(fit, bf.Records(values, named), rho=1.0).answers.shape == (4,)
    assert bf.release(fit, bf.Records(values, bf.Domain((2, 2))), rho=1.0).answers.shape == (4,)
