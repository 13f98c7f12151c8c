"""Forged bundles are refused or released within what was asked for, judged by an oracle of its own."""

import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate import tree_sums as certified_sums
from hdmm_bf.release import calibration, noise_sums, tree_sum_noise, tree_sums, whole_numbers
from tests.support.attack_kit import forge, known, noise_oracle, oracle, tree_sum_oracle
from tests.support.attack_kit.judge import HoleError, judge
from tests.support.attack_kit.marked import marked
from tests.support.mistakes import _as_users_run_it  # noqa: F401

DEFAULT, MORE, MANY = 100, 300, 5000
BATCH = 25
JOINED = ["sum joined", "sum beside", "sum layers", "sum outside"]
SUMS = ["sum", "sum grid", "sum hidden", "sum cells", "sum parts", *JOINED]
GROUPS = ["tree groups", "tree groups hidden"]
TREE_SUMS = ["tree sum", "tree sum stars", "tree sum own", "tree sum hidden", "tree sum fitted"]
KINDS = [
    *("gaussian", "gaussian star", "gaussian custom", "laplace", "laplace complete", "edge cycle", "edge grid"),
    *("marginals", "sectors", "kronecker", "bases", "union", "laplace kronecker", "tree", "tree hidden", "tree parts"),
    *GROUPS,
    *SUMS,
    *TREE_SUMS,
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return forge.honest_pool(tmp_path_factory.mktemp("honest"))


def forged(draft, folder, *, claims=True):
    """Write a known attack, with the claims that the package itself would make of it."""
    return forge.write(forge.with_claims(draft, folder / "claims") if claims else draft, folder / "forged.bf")


def holes(seeds, pool, folder, **chosen):
    """Judge forged bundles; return how they went and what was found."""
    went, found = Counter(), []
    for seed in seeds:
        made = forge.forge(seed, pool, folder, **chosen)
        try:
            went[judge(made.folder).outcome] += 1
        except HoleError as hole:
            found.append(f"{made}: {hole}")
    return went, found


@pytest.mark.parametrize(
    "start",
    [*range(0, DEFAULT, BATCH), *(pytest.param(i, marks=pytest.mark.slow) for i in range(DEFAULT, MORE, BATCH))],
)
def test_no_forged_bundle_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + BATCH), pool, tmp_path)
    assert not found, "\n".join([str(went), *found])


@pytest.mark.parametrize("start", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(BATCH, MORE, BATCH))])
def test_no_forged_sum_of_noise_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + BATCH), pool, tmp_path, origins=SUMS)
    assert not found, "\n".join([str(went), *found])


@pytest.mark.parametrize("start", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(BATCH, MORE, BATCH))])
def test_no_forged_joined_block_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + BATCH), pool, tmp_path, origins=JOINED)
    assert not found, "\n".join([str(went), *found])


@pytest.mark.parametrize("start", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(BATCH, MORE, BATCH))])
def test_no_forged_tree_of_groups_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + BATCH), pool, tmp_path, origins=GROUPS)
    assert not found, "\n".join([str(went), *found])


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(BATCH, MANY, 10 * BATCH))]
)
def test_no_forged_sum_of_trees_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + (10 * BATCH if start else BATCH)), pool, tmp_path, origins=TREE_SUMS)
    assert not found, "\n".join([str(went), *found])
    assert min(went["released"], went["refused"]) > (BATCH if start else 2)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 10_000 + MANY, 10 * BATCH))
def test_no_forged_bundle_of_many_loses_more_than_was_asked_for(pool, tmp_path, start):
    went, found = holes(range(start, start + 10 * BATCH), pool, tmp_path)
    assert not found, "\n".join([str(went), *found])
    assert min(went["released"], went["refused"]) > BATCH  # the forger is neither too clumsy nor too tame


# Controls: the oracle sees what it should


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_bundle_uses_up_what_was_asked_for_and_no_more(pool, tmp_path, kind):
    verdict = judge(forge.write(forge.opened(pool[kind]), tmp_path / "honest.bf"))
    assert verdict.outcome == "released"
    assert 0.999 < verdict.share <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_sampler_that_draws_too_little_is_caught(pool, tmp_path, kind):
    with pytest.raises(HoleError, match="asked for"):
        judge(forge.write(forge.opened(pool[kind]), tmp_path / "honest.bf"), honesty=0.9)


@pytest.mark.parametrize(
    "kind", ["gaussian", "laplace complete", "edge grid", "marginals", "union", "tree", *GROUPS, *SUMS, *TREE_SUMS]
)
def test_a_release_that_shows_a_record_beside_the_noise_is_caught(pool, tmp_path, kind, monkeypatch):
    honest = bf.release
    monkeypatch.setattr(bf, "release", lambda fit, x, **asked: Leaking(honest(fit, x, **asked), x[0]))
    with pytest.raises(HoleError, match="shows in more than the noise"):
        judge(forge.write(forge.opened(pool[kind]), tmp_path / "honest.bf"))


def test_a_release_that_refuses_all_noise_but_zero_is_caught(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(whole_numbers, "every_step_helps", lambda *_: True)
    monkeypatch.setattr(noise_sums, "MOST_BITS", 200)
    with pytest.raises(HoleError, match="other noise is refused"):
        judge(forged(known.unrefined_sum(pool), tmp_path))


@pytest.mark.parametrize("kind", TREE_SUMS)
def test_a_graph_whose_long_ways_count_as_one_step_is_caught(pool, tmp_path, kind, monkeypatch):
    """The certificate and the calibration agree on it, and where moves take several steps it is a hole."""
    for module in (certified_sums, tree_sum_noise):
        monkeypatch.setattr(module, "steps", lambda moves, *_: min(1, len(moves)))
    draft = forge.opened(pool[kind])
    if kind in ("tree sum", "tree sum fitted"):  # every move is an edge of the graph
        assert judge(forged(draft, tmp_path)).share <= 1
        return
    with pytest.raises(HoleError, match="asked for"):
        judge(forged(draft, tmp_path))


@pytest.mark.parametrize("kind", TREE_SUMS)
def test_noise_of_a_part_that_is_drawn_and_not_added_is_caught(pool, tmp_path, kind, monkeypatch):
    honest = tree_sums.PartRecovery.draw
    monkeypatch.setattr(
        tree_sums.PartRecovery, "draw", lambda self, *drawn: honest(self, *drawn) * (self.part.along != 1)
    )
    with pytest.raises(HoleError, match="is not the counts and the noise"):
        judge(forge.write(forge.opened(pool[kind]), tmp_path / "honest.bf"))


def test_a_part_that_hides_no_attribute_is_caught_where_it_is_not_refused(pool, tmp_path, monkeypatch):
    draft = forge.opened(pool["tree sum"])
    draft.strategy["parts"] = np.array(1)
    for name in [name for name in draft.strategy if name.startswith("p1_")]:
        del draft.strategy[name]
    assert judge(forged(draft, tmp_path / "refused")).outcome == "refused"
    monkeypatch.setattr(certified_sums, "check_sum", lambda *_: None)
    monkeypatch.setattr(calibration, "sum_loss", lambda sampler, _: sampler.loss)
    with pytest.raises(HoleError, match="loses inf"):
        judge(forged(draft, tmp_path / "released"))


class Leaking:
    """A release whose first answer is off by a billionth of the first count."""

    def __init__(self, honest, count):
        self.answers = honest.answers + 1e-9 * count
        self.stddev = honest.stddev


def test_the_oracle_agrees_with_losses_derived_by_hand():
    rows = np.array([[2, 0, 0], [0, 3, 1]], dtype=object)
    for noise, wanted in (("laplace", Fraction(2, 4) + Fraction(3, 2)), ("gaussian", Fraction(4, 32) + Fraction(9, 8))):
        bundle = oracle.Bundle([3], noise, "vertex", [(0, 1), (2, -1)], rows, [Fraction(1)] * 2, [2])
        assert oracle.loss(bundle, [4.0, 2.0]) == (wanted, (0, 1))
    assert oracle.loss(bundle, [4.0, oracle.EXACT])[0] == float("inf")
    grid = oracle.product_edges([[(0, 1)], [(0, -1)]], [2, 3])
    assert sorted(grid) == [(0, -1), (0, 3), (1, 4), (2, 5), (3, -1)]


def test_the_oracle_agrees_with_losses_of_sums_derived_by_hand():
    rows, cells = [np.array(m, dtype=object) for m in ([[1, 1], [3, -2]], [[1, 0], [0, 1]])]
    lists = [[(0, 1)], [(0, -1)]]
    half = Fraction(1, 2)
    held = oracle.product_edges(lists, [2, 2]), np.empty(0), [None, None, half, half, *[half] * 4], [4, 4]
    own = [[rows, cells], [cells, cells]]
    bundle = noise_oracle.Sum([2, 2], "laplace", "noise", *held, factors=own, over=[-1, -1], lists=lists)
    first = [None, None, 4.0, 8.0]  # the sum over the first attribute has no noise, and its moves do not see it
    found = {edge: lost for edge, lost, _ in noise_oracle.shifts(bundle, [*first, *[16.0] * 4])}
    assert found[0, 2] == found[1, 3] == Fraction(2, 16), "cell by cell: less than 5 / 4 or 5 / 8"
    assert found[0, -1] == found[2, -1] == Fraction(1, 16), "by the other block alone: rows without noise see it"
    found = {edge: lost for edge, lost, _ in noise_oracle.shifts(bundle, [*first, *[1.0] * 4])}
    assert (found[0, 2], found[1, 3]) == (Fraction(5, 4), Fraction(5, 8))
    bundle.factors[1][0] = np.array([[1, 1], [2, 2]], dtype=object)
    assert noise_oracle.loss(bundle, [*first, *[1.0] * 4])[0] == float("inf"), "dependent columns take nothing up"


def test_the_oracle_agrees_with_losses_of_joined_blocks_derived_by_hand():
    """Two values that are joined, two outside: rows at each of the latter, and rows over their sum."""
    lists = [[(0, 1)], [(0, 1)]]
    rows = np.array([[1, -2]], dtype=object), np.array([[4, 3]], dtype=object)
    layers = [([1], rows[0]), ([], rows[1])]
    held = oracle.product_edges(lists, [2, 2]), np.empty(0), [Fraction(1)] * 7, [4, 2, 1]
    scales = [8.0] * 4 + [16.0, 16.0, 32.0]

    def found(axes, hides):
        bundle = noise_oracle.Sum([2, 2], "laplace", "noise", *held, lists=lists, joined=[(axes, hides, layers)])
        return {edge: (lost, shift) for edge, lost, shift in noise_oracle.shifts(bundle, scales)}

    inside = found([0], [0])
    assert inside[0, 2] == (Fraction(2, 8) + Fraction(3, 16) + Fraction(1, 32), [1, 0, -1, 0, 3, 0, 1])
    assert inside[1, 3] == (Fraction(2, 8) + Fraction(3, 16) + Fraction(1, 32), [0, 1, 0, -1, 0, 3, 1])
    assert inside[0, 1] == inside[2, 3] == (float("inf"), None), "totals of each value outside would see it"
    outside = found([0], [1])
    assert outside[0, 2] == outside[1, 3] == (float("inf"), None), "totals of each value inside would see it"
    assert outside[0, 1] == (Fraction(2, 8) + Fraction(2, 16), [1, -1, 0, 0, 1, -1, 0]), "the sum does not"
    assert outside[2, 3] == (Fraction(2, 8) + Fraction(4, 16), [0, 0, 1, -1, -2, 2, 0])
    assert found([0], [0, 1]) == inside | {edge: outside[edge] for edge in ((0, 1), (2, 3))}, "of all, one total"
    lists[1] = [(0, -1), (1, -1)]
    held = oracle.product_edges(lists, [2, 2]), *held[1:]
    gone = found([0], [1])
    assert gone[0, -1] == (Fraction(1, 8) + Fraction(1, 16) + Fraction(4, 32), [1, 0, 0, 0, 1, 0, 4])
    assert gone[0, 2] == inside[0, 2], "no totals are left alone, so every move can be taken up"


def test_the_oracle_agrees_with_losses_of_trees_derived_by_hand():
    rows = np.array([[int(i == j) for j in range(3)] for i in range(3)], dtype=object)
    parents, ratios = [4, 4, 3, 4, -1], [0.5, 0.25, 0.5, 0.125, 1.0]  # 2 hangs on 3
    bundle = oracle.Bundle([3], "norm", "tree", [(0, 1), (1, 2)], rows, [Fraction(1)] * 3, [3], parents)
    lost, edge = oracle.tree_loss(bundle, ratios, [4])
    assert edge == (1, 2)
    assert 0 <= float(lost) - np.log(4 * 2 * 8) < 1e-14
    bundle.edges = [(0, 1), (1, 2), (0, -1)]
    assert oracle.tree_loss(bundle, ratios, [4])[0] == float("inf")
    ratios[4] = 2.0**-20
    lost, edge = oracle.tree_loss(bundle, ratios, [])
    assert edge == (0, -1)
    assert 0 <= float(lost) - 21 * np.log(2) < 1e-13


def test_the_oracle_agrees_with_losses_of_sums_of_trees_derived_by_hand():
    """Two values that are joined and three that are, with "no record" or without; ratios are powers of two."""
    Part, trees = tree_sum_oracle.Part, [([0.5, 0.25, 0.125], []), ([0.5, 0.5, 0.25, 0.125, 1.0], [])]
    ways, across = [(1, 0), (1, 2)], [(0, 1)]
    first, second = Part([2, 2, -1], [1], 0, ways), Part([3, 3, 4, 4, -1], [0], 1, across)

    def found(parts, lists, drawn=trees):
        bundle = tree_sum_oracle.of([3, 2], lists, parts)
        lost = {edge: (own, shift) for edge, own, shift in tree_sum_oracle.shifts(bundle, drawn)}
        assert tree_sum_oracle.loss(bundle, drawn)[0] == max(own for own, _ in lost.values())
        return {
            e: (own if own == float("inf") else round(float(own) / np.log(2), 9), s) for e, (own, s) in lost.items()
        }

    lost = found([first, second], [[(0, 1), (0, 2)], across])
    assert lost[0, 2] == (4, [-1, 0, 0, 0, 0, 0, 0]), "one step, against its edge"
    assert lost[1, 5] == (10, [0, -1, 0, 1, 0, 0, 0]), "two steps of a leaf of ratio 1/4 below a root of 1/8"
    assert [lost[edge][0] for edge in ((0, 1), (2, 3), (4, 5))] == [4, 4, 2]
    assert lost[4, 5][1] == [0, 0, 0, 0, 0, 0, 1]
    fixed = found([first, second], [[(0, 1)], across], [(trees[0][0], [2]), trees[1]])
    assert fixed[0, 2] == (float("inf"), None), "a total without noise sees it"
    assert found([first], [[(0, 1)], across], trees[:1])[0, 1] == (float("inf"), None), "nobody hides the second one"
    assert found([first, second], [[(0, 1)], across], [])[0, 2][0] == float("inf"), "there is no noise at all"
    first.graph = [(0, 1), (2, -1)]
    assert found([first, second], [[(0, 2)], across])[0, 4] == (float("inf"), None), "no way leads there"
    first.graph = [(0, -1), (2, -1)]
    assert found([first, second], [[(0, 2)], across])[0, 4] == (8, [1, 0, -1, 0, 0, 0, 0]), "a way out and in again"
    column = tree_sum_oracle.columns(tree_sum_oracle.of([3, 2], [[(0, 2)], across], [first]), 0, first.graph)
    assert column == [[Fraction(1, 2), 0, Fraction(-1, 2)], [Fraction(-1, 2), 0, Fraction(1, 2)]]
    first.graph = [(0, -1)]
    assert found([first, second], [[(0, -1)], across])[0, -1] == (4, [1, 0, 0, 0, 0])
    own = Part([3, 3, 4, 4, -1], [0], None, [])
    lost = found([second, own], [[(0, 1), (0, 2)], across], trees[1:] * 2)
    assert (lost[0, 2][0], lost[0, 4][0]) == (2, 6), "paths in the tree"
    assert lost[1, 5][1] == [0, 0, 0, 0, 0, 0, 1, 0, -1], "in the tree of the second value"


@pytest.mark.parametrize(
    "name", ["line\u22366", "\u2800line:6", "\uff4c\uff49\uff4e\uff45\uff1a6", '"line:6"', "l\u00adine:6"]
)
def test_lookalikes_of_a_spec_string_are_folded_into_it(name):
    assert oracle.folded(name) == "line:6"


# Attacks that are known by name


@pytest.mark.parametrize("mild", [False, True])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_edges_do_not_drop_out_of_the_sensitivity_by_infinity_times_zero(pool, tmp_path, noise, mild):
    judge(forged(known.drowned_edges(pool, noise, mild=mild), tmp_path))


def test_a_row_of_zeros_shows_no_count_by_infinity_times_zero(pool, tmp_path):
    draft = known.drowned_count(pool)
    try:
        fit = bf.load(forged(draft, tmp_path))
    except bf.InputError:
        return
    shown = [measured_with_marks(fit, draft, count) for count in (1, 2)]
    assert any(part is None for part in shown) or np.array_equal(*shown)


def measured_with_marks(fit, draft, count):
    """What is published of the block of zeros when the first cell has that many records, and three are in all."""
    x = np.zeros(draft.manifest["domain"]["sizes"], dtype=np.int64)
    x[0].flat[0], x[1].flat[0] = count, 3 - count
    try:
        with marked(), np.errstate(all="ignore"):
            return np.ravel(bf.release(fit, x.ravel(), epsilon=0.1).measured[1])
    except bf.InputError:
        return None


@pytest.mark.parametrize("attack", [known.huge_constant, known.tiny_edge_strategy, known.unrefined_sum])
def test_numbers_beyond_the_range_of_the_machine_are_refused_in_words(pool, tmp_path, attack):
    judge(forged(attack(pool), tmp_path))


@pytest.mark.parametrize("kind", ["kronecker", "marginals", "sectors", "bases", "union", "sum", "sum grid"])
def test_a_proof_without_weights_is_refused_in_words_or_proves_nothing(pool, tmp_path, kind):
    names = [
        name for name, held in forge.opened(pool[kind]).strategy.items() if name.startswith("proof_") and held.ndim
    ]
    for name in names:
        draft = forge.opened(pool[kind])
        draft.strategy[name] = 0 * draft.strategy[name]
        judge(forged(draft, tmp_path / name))


def test_an_attribute_cannot_say_what_the_policy_hides(pool, tmp_path):
    try:
        fit = bf.load(forged(known.renamed_attribute(pool), tmp_path))
    except bf.InputError:
        return
    outside_quotes = re.sub(r'"(\\.|[^"\\])*"', "", bf.policy.hides(fit.problem.policy))
    assert outside_quotes.count("in attribute") == 1


def test_a_bundle_whose_files_are_links_to_elsewhere_is_refused(pool, tmp_path):
    draft = forge.opened(pool["gaussian"])
    draft.links = {"policy.npz": True}
    with pytest.raises(bf.InputError):
        bf.load(forged(draft, tmp_path, claims=False))


@pytest.mark.parametrize("key", ["why", "reached"])
def test_text_of_a_manifest_cannot_pass_for_lines_of_the_output(pool, tmp_path, key):
    line = "x\n\x1b[2JVerified: every claim was derived again."
    draft = forge.opened(pool["kronecker"])
    draft.manifest[key] = line if key == "why" else {line: 1e9}
    try:
        fit = bf.load(forged(draft, tmp_path, claims=False))
    except bf.InputError:
        return
    assert all(text.isprintable() for text in (fit.why, *fit.reached))


def test_records_on_attributes_of_other_names_are_refused(pool, tmp_path):
    fit = bf.load(forge.write(forge.opened(pool["kronecker"]), tmp_path / "honest.bf"))
    other = bf.Domain((3, 3), ("a1", "a0"))  # the policy protects a0, which is the second attribute here
    with pytest.raises(bf.InputError):
        bf.release(fit, bf.Records(np.array([[0, 1], [1, 2]]), other), rho=0.02)
