"""A strategy as a picture: a row of colours for every query that is measured."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from hdmm_bf._types import AnyArray, RealMatrix
from hdmm_bf.domain import Domain
from hdmm_bf.fit import Fit
from hdmm_bf.policy import Policy
from hdmm_bf.problem.groups import policy_within
from hdmm_bf.problem.slots import moves_along
from hdmm_bf.report.plots import canvas
from hdmm_bf.report.plots.trees import tree_bars
from hdmm_bf.strategies.records import (
    Block,
    GroupedTree,
    MatrixStrategy,
    NoiseSum,
    ProductStrategy,
    TreeNorm,
    TreePart,
    TreeSum,
)

LARGEST_SIDE = 240
"""Rows and columns drawn; larger matrices are pooled."""

_MOST_BLOCKS, _MOST_FACTORS = 3, 4
_LONGEST_NAME = 16


def strategy_heatmap(fit: Fit) -> canvas.Figure:
    """Draw the entries of the strategy; of a strategy of blocks the factors of the largest blocks, side by side."""
    with canvas.style():
        if fit.num_rows == 0:
            return _nothing()
        policy, strategy = fit.problem.policy, fit.strategy
        if isinstance(strategy, GroupedTree):  # the same in every group
            return tree_bars(strategy.tree, policy_within(policy, strategy.axes).domain)
        if isinstance(strategy, TreeSum):
            return tree_part(fit.problem.policy, strategy, 0)
        if isinstance(strategy, TreeNorm):
            return tree_bars(strategy, policy.domain)
        return _drawn(strategy, attribute_names(policy.domain))


def tree_part(policy: Policy, strategy: TreeSum, number: int) -> canvas.Figure:
    """Draw the tree of one part of a sum, over the attributes that it ties together."""
    part = strategy.parts[number]
    own = policy_within(moves_along(policy, part.axes), part.axes).domain
    with canvas.style():
        moves = f" for moves along {hidden_names(policy, part)}"
        return tree_bars(part.tree, own, part="" if part.along is None else moves)


def hidden_names(policy: Policy, part: TreePart) -> str:
    """Name the attributes whose moves a part hides."""
    names = attribute_names(policy.domain)
    return " and ".join(names[i] for i in part.hides)


def attribute_names(domain: Domain) -> list[str]:
    """Name the attributes as they are called, or by their numbers."""
    if not domain.has_own_names:
        return [f"attribute {i + 1}" for i in range(domain.num_attributes)]
    return [canvas.shortened(name, _LONGEST_NAME) for name in domain.names]


@singledispatch
def _drawn(strategy: object, names: list[str]) -> canvas.Figure:
    raise TypeError(f"no picture of {type(strategy).__name__}")


def _nothing() -> canvas.Figure:
    figure = canvas.new_figure("What is measured?", height=1.6)
    axis = figure.subplots()
    axis.set_axis_off()
    axis.text(0.0, 0.5, "Nothing: every answer is public.", transform=axis.transAxes)
    return figure


@_drawn.register
def _(strategy: MatrixStrategy, names: list[str]) -> canvas.Figure:
    A = strategy.matrix()
    pooled, factor = _pooled(A)
    note = f"{A.shape[0]} measured queries, one a row" + (f"; a dot is {factor}" if factor else "")
    figure = canvas.new_figure("What is measured, with which weights?", height=4.4, note=note)
    axis = figure.subplots()
    shown = _heat(axis, pooled, A.shape)
    axis.set_xlabel({"cell": "cell", "edge": "edge of the policy"}[strategy.column])
    axis.set_ylabel("measured query")
    bar = figure.colorbar(shown, ax=axis, shrink=0.8)
    bar.set_label("weight (largest = 1)", fontsize=canvas.SMALL)
    ticks = np.array([-1.0, -0.25, 0.0, 0.25, 1.0])
    bar.set_ticks(list(_stretched(ticks)), labels=[f"{t:g}" for t in ticks])
    return figure


@_drawn.register
def _(strategy: NoiseSum, names: list[str]) -> canvas.Figure:
    return _joined(strategy, names) if strategy.joined else _of_blocks(strategy, names)


@_drawn.register
def _(strategy: ProductStrategy, names: list[str]) -> canvas.Figure:
    return _of_blocks(strategy, names)


def _joined(strategy: NoiseSum, names: list[str]) -> canvas.Figure:
    """Rows over several attributes, one picture a block: all rows over all values of the attributes together."""
    products = len(strategy.blocks)
    rest = f"; {products} more block{'s' if products > 1 else ''} of products of rows" if products else ""
    title = "Which noise? A number for every value, and for every row over several attributes."
    figure = canvas.new_figure(title, height=1.0 + 3.0 * len(strategy.joined), note=f"Drawn: rows{rest}.")
    axes = figure.subplots(len(strategy.joined), 1, squeeze=False)
    for block, (axis,) in zip(strategy.joined, axes, strict=True):
        integers = np.concatenate([layer.rows for layer in block.layers]) if block.layers else np.empty((0, 1))
        rows = np.ldexp(integers.astype(np.float64), -block.bits)
        if rows.size:
            _heat(axis, _pooled(rows)[0], rows.shape)
        axis.set_title("hides " + " and ".join(names[i] for i in block.hides), fontsize=9)
        axis.set_xlabel("value of " + " and ".join(names[i] for i in block.axes), fontsize=9)
        tables = len(block.layers)
        axis.set_ylabel("row" if tables == 1 else f"row of one of {tables} tables", fontsize=9)
        axis.tick_params(labelsize=8)
    return figure


def _of_blocks(strategy: ProductStrategy | NoiseSum, names: list[str]) -> canvas.Figure:
    blocks = sorted(strategy.blocks, key=lambda block: -block.num_rows)[:_MOST_BLOCKS]
    columns = min(_MOST_FACTORS, max(len(block.integers) for block in blocks))
    figure = canvas.new_figure(
        "What is measured? Every product of one row from each."
        if isinstance(strategy, ProductStrategy)
        else "Which noise? A number for every product of one row from each.",
        height=1.0 + (1.9 if columns > 2 else 2.5) * len(blocks),
        note=_blocks_note(strategy, len(blocks), columns),
    )
    axes = figure.subplots(len(blocks), columns, squeeze=False)
    for number, block in enumerate(blocks):
        for attribute, axis in enumerate(axes[number]):
            _factor(axis, block, attribute, names[attribute])
        axes[number, 0].set_ylabel(f"block of\n{block.num_rows} rows", fontsize=canvas.SMALL)
    return figure


def _blocks_note(strategy: ProductStrategy | NoiseSum, blocks: int, columns: int) -> str:
    attributes = len(strategy.blocks[0].integers)
    words = []
    if blocks < len(strategy.blocks):
        words.append(f"the largest {blocks} of {len(strategy.blocks)} blocks")
    if columns < attributes:
        words.append(f"the first {columns} of {attributes} attributes")
    return f"Drawn: {', '.join(words)}." if words else ""


def _factor(axis: canvas.Axes, block: Block, attribute: int, name: str) -> None:
    matrix = block.factor(attribute)
    _heat(axis, _pooled(matrix)[0], matrix.shape)
    axis.set_title(name, fontsize=canvas.SMALL)
    axis.set_xlabel("edge" if block.edges == attribute else "value", fontsize=canvas.SMALL)
    axis.tick_params(labelsize=canvas.SMALL)


def _heat(axis: canvas.Axes, pooled: RealMatrix, shape: tuple[int, ...]) -> canvas.AxesImage:
    """Colour entries by sign and size; the square root keeps small weights visible."""
    from matplotlib.ticker import MaxNLocator

    largest = float(np.abs(pooled).max(initial=0.0)) or 1.0
    box = (-0.5, shape[1] - 0.5, shape[0] - 0.5, -0.5)
    shown = axis.imshow(
        _stretched(pooled / largest),
        cmap="PuOr_r",
        vmin=-1,
        vmax=1,
        aspect="auto" if max(shape) > 2.5 * min(shape) else "equal",
        extent=box,
        interpolation="nearest",
    )
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axis.spines[["top", "right"]].set_visible(True)
    return shown


def _stretched(values: AnyArray) -> AnyArray:
    return np.asarray(np.sign(values) * np.sqrt(np.abs(values)))


def _pooled(matrix: RealMatrix) -> tuple[RealMatrix, str]:
    """Shrink a large matrix by taking of every tile the entry of largest size, and say how large the tiles are."""
    tall, wide = (-(-side // LARGEST_SIDE) for side in matrix.shape)
    if tall == wide == 1:
        return matrix, ""
    rows, columns = -(-matrix.shape[0] // tall), -(-matrix.shape[1] // wide)
    padded = np.zeros((rows * tall, columns * wide))
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    tiles = padded.reshape(rows, tall, columns, wide).swapaxes(1, 2).reshape(rows, columns, -1)
    chosen = np.abs(tiles).argmax(axis=2)[:, :, None]
    return np.take_along_axis(tiles, chosen, axis=2)[:, :, 0], f"the largest of {tall} x {wide}"
