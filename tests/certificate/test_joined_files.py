"""Files of blocks that join attributes, and blocks that are refused because they do not fit."""

import dataclasses

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate import certify, exact_sensitivity
from hdmm_bf.certificate.exact import GRID_BITS
from hdmm_bf.fit import loading
from hdmm_bf.report.export import write_matrix
from hdmm_bf.report.plots.strategies import strategy_heatmap
from hdmm_bf.strategies.blocks import noise_block
from hdmm_bf.strategies.records import Gains, JoinedBlock, Layer, NoiseSum
from tests.support.joined_blocks import PROBLEMS, fitted, parts_of, random_block


@pytest.mark.parametrize("name", PROBLEMS)
def test_blocks_of_every_kind_are_saved_and_read_again(name, tmp_path):
    problem, block = random_block(name)
    fit = fitted(problem, block)
    again = loading.load(fit.save(tmp_path / "a.bf"))
    (read,) = again.strategy.joined
    assert parts_of(read) == parts_of(block)
    assert again.unit_error == fit.unit_error
    assert again.certificate.sensitivity_exact == fit.certificate.sensitivity_exact


@pytest.mark.parametrize("name", ["two hidden", "unbounded outside", "three outside"])
def test_all_of_a_block_is_exported_and_drawn(name, tmp_path):
    """Weights, rows and gains with what each keeps, as numbers that are not over a power of two any more."""
    problem, block = random_block(name)
    fit = fitted(problem, block)

    def same(found, integers, bits):
        assert np.array_equal(found * 2.0**bits, integers)

    with np.load(write_matrix(fit, tmp_path / "whole.npz", kind="npz")) as held:
        names = [name for name in held.files if name.startswith("joined0_")]
        lists = [(f"joined0_layer{k}", layer.keeps, layer.gains) for k, layer in enumerate(block.layers)]
        for k, layer in enumerate(block.layers):
            same(held[f"joined0_layer{k}_rows"], layer.rows, block.bits)
            assert tuple(held[f"joined0_layer{k}_keeps"]) == layer.keeps
        for start, _, gains in [*lists, ("joined0_totals", (), block.totals)]:
            assert sum(name.startswith(f"{start}_gains") for name in names) == 2 * len(gains)
            for g, own in enumerate(gains):
                same(held[f"{start}_gains{g}"], own.integers, block.gain_bits)
                assert tuple(held[f"{start}_gains{g}_keeps"]) == own.keeps
        same(held["joined0_weights"], block.weights, block.bits)
        assert (tuple(held["joined0_axes"]), tuple(held["joined0_hides"])) == (block.axes, block.hides)
        assert int(held["joined0_layers"]) == len(block.layers)
    (axis, *_) = strategy_heatmap(fit).axes
    assert axis.get_title(loc="left") == "hides " + " and ".join(f"attribute {i + 1}" for i in block.hides)


def of_layer(**changes):
    """A change of a block's first layer."""
    return lambda b: dataclasses.replace(b, layers=(changed(b.layers[0], changes), *b.layers[1:]))


def of_gains(**changes):
    """A change of the first gains of a block's first layer."""

    def made(b):
        first, *others = b.layers[0].gains
        return of_layer(gains=(changed(first, changes), *others))(b)

    return made


def of_totals(**changes):
    """A change of a block's first gains of totals."""
    return lambda b: dataclasses.replace(b, totals=(changed(b.totals[0], changes), *b.totals[1:]))


def changed(record, changes):
    found = {name: change(getattr(record, name)) if callable(change) else change for name, change in changes.items()}
    return dataclasses.replace(record, **found)


CHANGES = {
    "weights of zero": lambda b: dataclasses.replace(b, weights=0 * b.weights),
    "one weight of zero": lambda b: dataclasses.replace(b, weights=b.weights * (np.arange(b.weights.size) > 0)),
    "negative weights": lambda b: dataclasses.replace(b, weights=-b.weights),
    "an attribute that is not there": lambda b: dataclasses.replace(b, axes=(0, 7)),
    "attributes in another order": lambda b: dataclasses.replace(b, axes=(1, 0)),
    "an attribute twice": lambda b: dataclasses.replace(b, axes=(0, 0)),
    "no attribute": lambda b: dataclasses.replace(b, axes=()),
    "a negative attribute": lambda b: dataclasses.replace(b, axes=(-1, 1)),
    "fewer attributes": lambda b: dataclasses.replace(b, axes=(0,)),
    "edges of another attribute": lambda b: dataclasses.replace(b, hides=(2,)),
    "edges of no attribute": lambda b: dataclasses.replace(b, hides=()),
    "edges of an attribute that is not there": lambda b: dataclasses.replace(b, hides=(1, 3)),
    "edges of an attribute before the first": lambda b: dataclasses.replace(b, hides=(-1, 1)),
    "edges of attributes in another order": lambda b: dataclasses.replace(b, hides=(1, 0)),
    "edges of an attribute twice": lambda b: dataclasses.replace(b, hides=(1, 1)),
    "too few weights": lambda b: dataclasses.replace(b, weights=b.weights[:-1]),
    "too many binary places": lambda b: dataclasses.replace(b, bits=GRID_BITS + 1),
    "less than no binary places": lambda b: dataclasses.replace(b, bits=-1),
    "gains with too many binary places": lambda b: dataclasses.replace(b, gain_bits=53),
    "gains with less than no binary places": lambda b: dataclasses.replace(b, gain_bits=-1),
    "rows of another length": of_layer(rows=lambda T: T[:, :-1]),
    "rows beyond 64 bits": of_layer(rows=lambda T: np.full_like(T, 2**61)),
    "rows of the least number there is": of_layer(rows=lambda T: np.full_like(T, -(2**63))),
    "rows beyond 64 bits in two layers": lambda b: dataclasses.replace(
        b, layers=tuple(Layer((2,), np.full_like(b.layers[0].rows[:1], 2**60), ()) for _ in range(2))
    ),
    "a layer that keeps what is joined": of_layer(keeps=(1, 2)),
    "a layer that keeps an attribute that is not there": of_layer(keeps=(3,)),
    "a layer that keeps an attribute twice": of_layer(keeps=(2, 2)),
    "a layer that keeps less than its gains": of_layer(keeps=()),
    "a layer that keeps a negative attribute": of_layer(keeps=(-1,), gains=()),
    "gains for more rows than there are": of_layer(rows=lambda T: T[:1]),
    "too few gains": of_gains(integers=lambda K: K[:, :-1]),
    "gains of too few values": of_gains(integers=lambda K: K[:-1]),
    "gains on what is joined": of_gains(keeps=(0,)),
    "gains on an attribute twice": of_gains(keeps=(2, 2)),
    "gains on one subset twice": of_layer(gains=lambda own: (own[0], own[0])),
    "too few gains of totals": of_totals(integers=lambda K: K[:, :-1]),
    "gains of totals of too few values": of_totals(integers=lambda K: K[:-1]),
    "gains of totals on what is joined": of_totals(keeps=(0,)),
    "gains of totals on one subset twice": lambda b: dataclasses.replace(b, totals=(b.totals[0], b.totals[0])),
    "gains of totals on what is hidden": lambda b: dataclasses.replace(b, hides=(1, 2)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_block_that_does_not_fit_is_refused(change):
    problem, block = random_block("bounded inside")
    made = NoiseSum((), (), "by hand", (CHANGES[change](block),))
    with pytest.raises(bf.InputError, match="does not fit the domain|must hide the edges"):
        certify(made, problem, noise="laplace", proof=None)


def test_gains_of_totals_that_are_none_are_refused():
    """Where a record can come or go outside, no total is left alone."""
    problem, block = random_block("unbounded outside")
    assert not block.totals
    own = dataclasses.replace(block, totals=(Gains((2,), np.ones((4, 1), dtype=np.int64)),))
    with pytest.raises(bf.InputError, match="does not fit the domain"):
        certify(NoiseSum((), (), "by hand", (own,)), problem, noise="laplace", proof=None)


def test_moves_that_no_block_hides_are_refused():
    problem = bf.problem("all-range:3x4", "product:line:3,bounded:4")
    _, block = random_block("bounded inside")
    with pytest.raises(ValueError, match="hidden by no block"):
        exact_sensitivity(NoiseSum((), (), "by hand", (block,)), problem, "laplace")
    with pytest.raises(ValueError, match="must hide the edges of every attribute once"):
        certify(NoiseSum((), (), "by hand", (block,)), problem, noise="laplace", proof=None)
    own = noise_block([np.eye(3), np.eye(4)], np.ones((1, 1)))
    twice = NoiseSum((own,), ((0, 1),), "by hand", (block,))
    with pytest.raises(ValueError, match="totals would be put right for both"):
        certify(twice, problem, noise="laplace", proof=None)


def test_blocks_that_hide_an_attribute_twice_are_refused():
    problem, block = random_block("two hidden")
    for hides in ((0,), (1,), (0, 1)):
        again = dataclasses.replace(block, hides=hides, totals=())
        made = NoiseSum((), (), "by hand", (dataclasses.replace(block, totals=()), again))
        with pytest.raises(bf.InputError, match="must hide the edges of every attribute once"):
            certify(made, problem, noise="laplace", proof=None)


def test_edges_that_change_several_attributes_are_not_for_joined_blocks():
    problem = bf.problem("all-range:4x3", "threshold:4x3:2")
    blocks = [JoinedBlock((0, 1), hides, np.ones(12, dtype=np.int64), (), (), 0, 0) for hides in ((0,), (1,), (0, 1))]
    for some in (tuple(blocks[:2]), (blocks[2],)):
        with pytest.raises(bf.InputError, match="change one attribute only"):
            exact_sensitivity(NoiseSum((), (), "by hand", some), problem, "laplace")
