"""Strategies and reconstructions as files for other software, written whole or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import singledispatch
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.io
import scipy.sparse as sp

from hdmm_bf._checks import fail, nearest
from hdmm_bf._types import AnyArray, JsonObject, RealMatrix
from hdmm_bf.fit import Fit
from hdmm_bf.problem.product import product_view
from hdmm_bf.report.export.files import parquet_bytes, write_file
from hdmm_bf.strategies.records import (
    Gains,
    GroupedTree,
    JoinedBlock,
    MatrixStrategy,
    NoiseSum,
    ProductStrategy,
    TreeNorm,
    TreeSum,
)

What: TypeAlias = Literal["strategy", "reconstruction"]

_DIGITS = 17
"""Significant digits that bring every float64 back exactly."""


def write_matrix(made: Fit, path: str | Path, *, kind: str, what: What = "strategy", dense: bool = False) -> Path:
    """Write the strategy matrix, or W A^+, in the given format.

    Implicit strategies are written by their factors, in npz or json; with `dense`, as the matrix they stand for.

    Guarantees:
        Every format brings back the same numbers, bit by bit.
    """
    form = FORMATS.get(kind)
    if form is None:
        raise fail("export", f"format={kind!r}", "is unknown", nearest(kind, FORMATS))
    return write_file(path, form.encode(*_written(made.strategy, made, kind=kind, what=what, dense=dense)))


Written: TypeAlias = tuple[RealMatrix, JsonObject]
"""The matrix, for formats that hold nothing else, and all that npz and json hold."""


@singledispatch
def _written(strategy: object, made: Fit, *, kind: str, what: What, dense: bool) -> Written:
    raise TypeError(f"no export of {type(strategy).__name__}")


@_written.register
def _(strategy: MatrixStrategy, made: Fit, *, kind: str, what: What, dense: bool) -> Written:
    matrix = strategy.matrix() if what == "strategy" else made.reconstruction()
    return matrix, _record(made, matrix, strategy.kind, what)


@_written.register
def _(strategy: TreeNorm, made: Fit, *, kind: str, what: What, dense: bool) -> Written:
    """A with ||z|| = ||A z||_1, and the tree itself beside it."""
    matrix = strategy.matrix() if what == "strategy" else made.reconstruction()
    tree = {"parents": strategy.parents, "weights": strategy.weights}
    return matrix, {**_record(made, matrix, strategy.kind, what), **tree}


@_written.register
def _(strategy: GroupedTree, made: Fit, *, kind: str, what: What, dense: bool) -> Written:
    """The tree of one group and where it holds, or the matrix over all cells."""
    _check_implicit(kind, what, dense)
    if dense:
        matrix = strategy.matrix()
        return matrix, _record(made, matrix, "tree", what)
    tree = {"parents": strategy.tree.parents, "weights": strategy.tree.weights}
    where = {"axes": np.array(strategy.axes), "sizes": np.array(strategy.sizes)}
    edges = {f"edges{i}": factor.edges for i, factor in enumerate(made.problem.policy.factors or ())}
    record = {"kind": strategy.kind, "sensitivity": made.certificate.sensitivity, **tree, **where, **edges}
    return np.empty((0, 0)), record


@_written.register
def _(strategy: TreeSum, made: Fit, *, kind: str, what: What, dense: bool) -> Written:
    """The tree of every part, and the graph along which its noise flows."""
    _check_implicit(kind, what, dense)
    if dense:
        strategy.matrix()  # refuses
    record: JsonObject = {"kind": strategy.kind, "sensitivity": made.certificate.sensitivity}
    record |= {"parts": len(strategy.parts), "sizes": np.array(strategy.sizes)}
    for k, part in enumerate(strategy.parts):
        along = -1 if part.along is None else part.along
        tree = {"parents": part.tree.parents, "weights": part.tree.weights}
        own = {**tree, "axes": np.array(part.axes), "along": along, "edges": part.edges}
        record |= {f"part{k}_{name}": value for name, value in own.items()}
    record |= {f"edges{i}": factor.edges for i, factor in enumerate(made.problem.policy.factors or ())}
    return np.empty((0, 0)), record


def _check_implicit(kind: str, what: What, dense: bool) -> None:
    """Refuse what a strategy that is not written out has not, or a format cannot hold of it."""
    if what != "strategy":
        advice = "Ask for the answers of a release instead."
        raise fail("export", what, "an implicit strategy has no written-out reconstruction", advice)
    if not dense and not FORMATS[kind].whole:
        advice = f"Use {' or '.join(name for name, form in FORMATS.items() if form.whole)}, or --dense for the matrix."
        raise fail("export", f"format={kind!r}", "cannot hold the factors of an implicit strategy", advice)


@_written.register(ProductStrategy)
@_written.register(NoiseSum)
def _(strategy: ProductStrategy | NoiseSum, made: Fit, *, kind: str, what: What, dense: bool) -> Written:
    """Factors and precisions of every block, or the matrix they stand for."""
    _check_implicit(kind, what, dense)
    if dense:
        matrix = strategy.matrix()
        return matrix, _record(made, matrix, "vertex", what)
    record: JsonObject = {"kind": strategy.kind, "sensitivity": made.certificate.sensitivity}
    record["blocks"] = len(strategy.blocks)
    for b, block in enumerate(strategy.blocks):
        record[f"block{b}_precisions"] = np.where(np.isinf(block.precisions), -1.0, block.precisions)
        record |= {f"block{b}_factor{i}": block.factor(i) for i in range(len(block.integers))}
        if isinstance(strategy, NoiseSum):
            record[f"block{b}_hides"] = np.array(strategy.hides[b])
            record[f"block{b}_over_edges"] = -1 if block.edges is None else block.edges
    if isinstance(strategy, NoiseSum):
        for j, own in enumerate(strategy.joined):
            record |= {f"joined{j}_{name}": value for name, value in _of_joined(own)}
        record["joined"] = len(strategy.joined)
    product = product_view(made.problem, balls=True)
    record |= {f"edges{i}": edges for i, edges in enumerate(product.edges)}
    record |= {} if product.threshold is None else {"threshold": product.threshold}
    return np.empty((0, 0)), record


def _of_joined(block: JoinedBlock) -> Iterator[tuple[str, object]]:
    """Weights, rows and gains of a block that joins attributes, with the attributes that each keeps."""

    def scaled(integers: AnyArray, bits: int) -> AnyArray:
        return np.asarray(np.ldexp(integers.astype(np.float64), -bits))

    def gains(those: tuple[Gains, ...], name: str) -> Iterator[tuple[str, object]]:
        for g, own in enumerate(those):
            yield f"{name}gains{g}", scaled(own.integers, block.gain_bits)
            yield f"{name}gains{g}_keeps", np.array(own.keeps, dtype=np.int64)

    yield from [("axes", np.array(block.axes)), ("hides", np.array(block.hides)), ("layers", len(block.layers))]
    yield "weights", scaled(block.weights, block.bits)
    for number, layer in enumerate(block.layers):
        yield f"layer{number}_keeps", np.array(layer.keeps, dtype=np.int64)
        yield f"layer{number}_rows", scaled(layer.rows, block.bits)
        yield from gains(layer.gains, f"layer{number}_")
    yield from gains(block.totals, "totals_")


def _record(made: Fit, matrix: RealMatrix, kind: str, what: What) -> JsonObject:
    return {
        what: matrix,
        "kind": kind,
        "edges": made.problem.policy.edges,
        "sensitivity": made.certificate.sensitivity,
        "given_up": made.problem.grounding.given_up,
    }


def _npz(matrix: RealMatrix, record: JsonObject) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **record)
    return buffer.getvalue()


def _json(matrix: RealMatrix, record: JsonObject) -> bytes:
    plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in record.items()}
    return json.dumps(plain).encode()


def _csv(matrix: RealMatrix, record: JsonObject) -> bytes:
    buffer = io.StringIO()
    np.savetxt(buffer, matrix, fmt=f"%.{_DIGITS}g", delimiter=",")
    return buffer.getvalue().encode()


def _mtx(matrix: RealMatrix, record: JsonObject) -> bytes:
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, sp.coo_array(matrix), precision=_DIGITS, symmetry="general")
    return buffer.getvalue()


def _parquet(matrix: RealMatrix, record: JsonObject) -> bytes:
    return parquet_bytes({f"c{j}": column for j, column in enumerate(matrix.T)})


class Format(NamedTuple):
    """A format of files.

    Attributes:
        encode: from the matrix and the whole record to the bytes of the file.
        whole: whether the file holds the whole record, and not the matrix alone.
    """

    encode: Callable[[RealMatrix, JsonObject], bytes]
    whole: bool = False


FORMATS = {
    "npz": Format(_npz, whole=True),
    "csv": Format(_csv),
    "mtx": Format(_mtx),
    "parquet": Format(_parquet),
    "json": Format(_json, whole=True),
}
"""By name: what `export` can write. An entry here is all that another format needs."""
