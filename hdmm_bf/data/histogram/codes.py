"""From the values of a column to the numbers of an attribute's values, as expressions that run where the table lives.

A code is 0 to size - 1, or -1 for a value outside the domain: never a null, which pandas would turn into floats.
Text becomes codes by a lookup that each engine has its own fast way of; numbers go through narwhals alone.
"""

from __future__ import annotations

import importlib
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import IndexArray, Number, RealVector
from hdmm_bf.data.histogram.request import WHERE, Outside, Reading
from hdmm_bf.data.histogram.tables import Frame

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation as Relation
    from narwhals import Expr as Expression
    from narwhals.dtypes import DType
    from polars import DataFrame, LazyFrame

    PolarsFrame = DataFrame | LazyFrame
else:  # all are optional, and imported where they are used
    DType = Expression = PolarsFrame = Relation = object

OUTSIDE = -1
LARGEST_WEIGHT = 2**62
"""Room above it keeps `limbs` from overflowing where an engine divides in floats and rounds up."""
_LIMB = 2**21
"""Weights are summed in three parts of 21 bits: no engine can overflow before 2^42 records of one cell."""


def coded(frame: Frame, made: list[Reading], outside: Outside) -> Frame:
    """Replace the values in the columns `r0, r1, ...` by codes."""
    import narwhals as nw

    schema = frame.collect_schema()
    kinds = [_kind(schema[f"r{i}"], reading) for i, reading in enumerate(made)]
    texts = {f"r{i}": reading.labels for i, reading in enumerate(made) if kinds[i] == "text" and reading.labels}
    frame = _looked_up(frame, texts) if texts else frame
    for i, reading in enumerate(made):
        frame = _intervals(frame, f"r{i}", reading.edges) if reading.edges else frame
    numbers: dict[str, Expression] = {}
    for i, reading in enumerate(made):
        if kinds[i] == "boolean" and reading.labels:
            numbers[f"r{i}"] = _truth_code(nw.col(f"r{i}"), reading.labels)
        elif kinds[i] != "text":
            x = _number(nw.col(f"r{i}"), kinds[i])
            real = kinds[i] == "real"
            clip, nan = outside == "clip", real and _can_hold_nan(frame)
            numbers[f"r{i}"] = _number_code(x, reading, f"b{i}", clip=clip, real=real, nan=nan)
    frame = frame.with_columns(**numbers) if numbers else frame
    homes = {f"r{i}": reading.other for i, reading in enumerate(made) if reading.other is not None}
    at_home = {
        name: nw.when(nw.col(name) < 0).then(nw.lit(home, nw.Int64)).otherwise(nw.col(name))
        for name, home in homes.items()
    }
    return frame.with_columns(**at_home) if at_home else frame


def cell(made: list[Reading], weights: bool) -> Expression:
    """Return the cell of a record, -1 - i if attribute i is outside the domain, one lower still for a bad weight."""
    import narwhals as nw

    strides = [math.prod(later.size for later in made[i + 1 :]) for i in range(len(made))]
    codes = [nw.col(f"r{i}") for i in range(len(made))]
    number = nw.sum_horizontal(*(code * step for code, step in zip(codes, strides, strict=True)))
    checked = [*codes, nw.col("w")] if weights else codes
    problems = [  # named, because before pandas 3 columns side by side must have names of their own
        nw.when(value < 0).then(nw.lit(-1 - i, nw.Int64)).otherwise(0).alias(f"p{i}") for i, value in enumerate(checked)
    ]
    worst = nw.min_horizontal(*problems) if len(problems) > 1 else problems[0]  # Spark needs two
    return nw.when(worst < 0).then(worst).otherwise(number)


def weight(frame: Frame) -> Expression:
    """Return the weights as int64, with -1 for those that are missing, negative or above 2^62."""
    import narwhals as nw

    kind = frame.collect_schema()["w"]
    if not kind.is_integer():
        seen, problem = f"weights of type {kind}", "weights must be whole numbers"
        raise fail(WHERE, seen, problem, "Convert the column to 64-bit integers first.")
    w = nw.col("w") if _is_wide(kind) else nw.col("w").cast(nw.Int64)
    good = ~w.is_null() & (w >= 0) & (w <= LARGEST_WEIGHT)
    safe = nw.when(good).then(w).otherwise(0).cast(nw.Int64)
    return nw.when(good).then(safe).otherwise(OUTSIDE)


def limbs(w: Expression) -> list[Expression]:
    """Return three parts of whole numbers that `joined` puts together, lowest first.

    Some engines divide in floats. The quotient is then off by a little, and the parts still join to the number.
    """
    import narwhals as nw

    rest = (w // _LIMB).cast(nw.Int64)
    high = (rest // _LIMB).cast(nw.Int64)
    return [w - rest * _LIMB, rest - high * _LIMB, high]


def joined(low: int, middle: int, high: int) -> int:
    """Return the number whose parts these are, in exact arithmetic."""
    return low + _LIMB * (middle + _LIMB * high)


def _kind(kind: DType, reading: Reading) -> str:
    """Sort a column by its type, or refuse a type that the attribute cannot be read from."""
    import narwhals as nw

    if kind == nw.Boolean:
        return "boolean"
    if kind.is_integer():
        return "text" if reading.labels else "wide" if _is_wide(kind) else "whole"
    if kind.is_numeric() and not reading.labels:
        return "real"
    if kind in (nw.String, nw.Categorical, nw.Enum) and reading.labels:
        return "text"
    raise _wrong_type(kind, reading)


def _wrong_type(kind: DType, reading: Reading) -> InputError:
    seen = f"column {reading.column!r} of type {kind}"
    if reading.labels:
        problem = "labels are compared with text, whole numbers or truth values"
        return fail(WHERE, seen, problem, "Convert the column to text or to integers, or give bins.")
    problem = f"attribute {reading.attribute!r} has no labels, so its values must be numbers"
    return fail(WHERE, seen, problem, "Convert the column to numbers, or give the domain labels.")


def _is_wide(kind: DType) -> bool:
    """Tell the whole numbers that do not all fit 64 bits."""
    import narwhals as nw

    return kind in (nw.UInt64, nw.Int128, nw.UInt128)


def _number(x: Expression, kind: str) -> Expression:
    """Bring numbers to one type, so that engines agree on comparing them; wide ones wait until they are small."""
    import narwhals as nw

    return x if kind == "wide" else x.cast(nw.Float64 if kind == "real" else nw.Int64)


def _number_code(x: Expression, reading: Reading, place: str, *, clip: bool, real: bool, nan: bool) -> Expression:
    import narwhals as nw

    last = reading.size - 1
    low, high = _ends(reading, real)
    inside = ~x.is_null() & (x >= low) & (x <= high)  # no engine says that NaN is at most `high`
    if reading.edges:
        code = nw.when(inside).then(nw.col(place)).otherwise(OUTSIDE)
    else:
        safe = nw.when(inside).then(x).otherwise(0)
        safe = (safe.round(0) if real else safe).cast(nw.Int64)  # Arrow casts only what is whole
        whole = inside & (safe.cast(nw.Float64) == x) if real else inside
        code = nw.when(whole).then(safe).otherwise(OUTSIDE)
    if not clip:
        return code
    known = ~x.is_null() & ~x.is_nan() if nan else ~x.is_null()
    below, above = nw.lit(0, nw.Int64), nw.lit(last, nw.Int64)
    return nw.when(known & (x < low)).then(below).otherwise(nw.when(known & (x > high)).then(above).otherwise(code))


def _ends(reading: Reading, real: bool) -> tuple[Number, Number]:
    """Return the least and the largest number inside the domain, whole ones for whole numbers: none is rounded."""
    if not reading.edges:
        return 0, reading.size - 1
    low, high = reading.edges[0], reading.edges[-1]
    if real:
        return low, high
    return math.ceil(max(low, float(-(2**63)))), min(math.floor(min(high, 2.0**63)), 2**63 - 1)


def _can_hold_nan(frame: Frame) -> bool:
    """Some databases, such as SQLite, know no NaN and cannot be asked for it."""
    import narwhals as nw

    if not frame.implementation.is_ibis():
        return True
    operations = importlib.import_module("ibis.expr.operations")
    return bool(nw.to_native(frame).get_backend().has_operation(operations.IsNan))


def _intervals(frame: Frame, name: str, edges: tuple[float, ...]) -> Frame:
    """Add a column with how many of the inner edges are at most the value; of no meaning outside the first and last."""
    import narwhals as nw

    inner, place = edges[1:-1], name.replace("r", "b")
    kind = frame.implementation
    if kind.is_duckdb():
        return nw.from_native(_duckdb_search(nw.to_native(frame), name, place, inner))
    if kind.is_polars():
        return nw.from_native(_polars_search(nw.to_native(frame), name, place, inner))
    if kind.is_pandas_like():
        search: Any = partial(_search, np.array(inner, dtype=np.float64))
        return frame.with_columns(**{place: nw.col(name).map_batches(search, return_dtype=nw.Int64())})
    return frame.with_columns(**{place: _search_tree(nw.col(name).cast(nw.Float64), inner, 0, len(inner))})


def _search(inner: RealVector, values: Any) -> IndexArray:
    """Search in the memory where the frame is."""
    real = values.to_numpy().astype(np.float64)  # NumPy rounds where Arrow's own cast would refuse
    return np.asarray(np.searchsorted(inner, real, side="right"), dtype=np.int64)


def _polars_search(frame: PolarsFrame, name: str, place: str, inner: tuple[float, ...]) -> PolarsFrame:
    import polars as pl

    edges = pl.lit(pl.Series(inner, dtype=pl.Float64))
    found = edges.search_sorted(pl.col(name).cast(pl.Float64), side="right").cast(pl.Int64)
    return frame.with_columns(found.alias(place))


def _search_tree(x: Expression, inner: tuple[float, ...], low: int, high: int) -> Expression:
    """Search by CASE within CASE, which every database has; the depth is the logarithm of the number of edges."""
    import narwhals as nw

    if low == high:
        return nw.lit(low, nw.Int64)
    middle = (low + high) // 2
    left, right = _search_tree(x, inner, low, middle), _search_tree(x, inner, middle + 1, high)
    return nw.when(x < inner[middle]).then(left).otherwise(right)


def _duckdb_search(relation: Relation, name: str, place: str, inner: tuple[float, ...]) -> Relation:
    """Halve the steps of a search in a list, one projection a step: for 700 bins a third of the time of a CASE tree."""
    # edges as texts: DuckDB 1 reads a number in digits as a decimal and rounds twice
    texts = ", ".join(f"'{edge!r}'" for edge in inner)
    edges = f"([{texts}]::DOUBLE[])"
    relation = relation.project(f"*, 0::BIGINT AS {place}")
    for power in reversed(range(len(inner).bit_length())):
        there = f"{place} + {2**power}"  # beyond the list there are nulls, and nothing is at least a null
        further = f"CASE WHEN CAST({name} AS DOUBLE) >= {edges}[{there}] THEN {there} ELSE {place} END AS {place}"
        relation = relation.project(f"* EXCLUDE ({place}), {further}")
    return relation


def _truth_code(x: Expression, labels: tuple[str, ...]) -> Expression:
    """Match truth values with the labels true and false, in capitals or not."""
    import narwhals as nw

    places = {label.lower(): i for i, label in reversed(list(enumerate(labels)))}
    yes, no = (nw.lit(places.get(word, OUTSIDE), nw.Int64) for word in ("true", "false"))
    missing = nw.lit(OUTSIDE, nw.Int64)
    return nw.when(x.is_null()).then(missing).otherwise(nw.when(x).then(yes).otherwise(no))


def _looked_up(frame: Frame, texts: dict[str, tuple[str, ...]]) -> Frame:
    """Replace text by the position of the label it equals, on the frame's own engine."""
    import narwhals as nw

    if frame.implementation.is_duckdb():
        return nw.from_native(_duckdb_codes(nw.to_native(frame), texts))
    if frame.implementation.is_ibis():
        return nw.from_native(_ibis_codes(nw.to_native(frame), texts))
    if frame.implementation.is_spark_like():
        return _spark_codes(frame, texts)
    codes = {
        name: nw.col(name)
        .cast(nw.String)
        .replace_strict(list(labels), list(range(len(labels))), default=OUTSIDE, return_dtype=nw.Int64)
        for name, labels in texts.items()
    }
    return frame.with_columns(**codes)


def _duckdb_codes(relation: Relation, texts: dict[str, tuple[str, ...]]) -> Relation:
    """Cast to an ENUM of the labels, a hash lookup; a map or CASE would go through all labels for every record."""

    def code(name: str) -> str:
        kind = ", ".join("'" + label.replace("'", "''") + "'" for label in texts[name])
        return f"coalesce(enum_code(try_cast(CAST({name} AS VARCHAR) AS ENUM ({kind})))::BIGINT, {OUTSIDE}) AS {name}"

    return relation.project(", ".join(code(name) if name in texts else name for name in relation.columns))


def _ibis_codes(table: Any, texts: dict[str, tuple[str, ...]]) -> Any:
    """Write CASE, which every database has: maps and temporary tables are not everywhere."""

    def code(name: str) -> Any:
        pairs = [(label, i) for i, label in enumerate(texts[name])]
        return table[name].cast("string").cases(*pairs, else_=OUTSIDE).cast("int64")

    return table.mutate(**{name: code(name) for name in texts})


def _spark_codes(frame: Frame, texts: dict[str, tuple[str, ...]]) -> Frame:
    """Join with a small table of the labels, which Spark sends to every worker."""
    import narwhals as nw

    session = nw.to_native(frame).sparkSession
    for name, labels in texts.items():
        pairs = list(zip(labels, range(len(labels)), strict=True))
        lookup = nw.from_native(session.createDataFrame(pairs, f"{name} string, code bigint"))
        frame = frame.with_columns(nw.col(name).cast(nw.String)).join(lookup, on=name, how="left")
        frame = frame.drop(name).rename({"code": name}).with_columns(nw.col(name).fill_null(OUTSIDE))
    return frame
