"""Opening what the caller hands in: any frame that narwhals understands, or a CSV or Parquet file through DuckDB.

A `Table` knows its column names; its `select` gives a lazy or eager narwhals frame with the columns wanted,
renamed to `r0, r1, ...`, `w` and `p`, so that no name of the caller's enters an expression further on. A CSV file is
read as text, every field of it: DuckDB's guesses at types would turn the label 007 into the number 7.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np

from hdmm_bf._checks import OTHER_MARKS, InputError, fail, readable_file
from hdmm_bf.data.histogram.request import WHERE, Reading

Frame: TypeAlias = Any  # narwhals.DataFrame or narwhals.LazyFrame: narwhals is optional

_INSTALL = "Install it with: pip install 'hdmm-bf[data]'."
_COUNTS_ADVICE = "Counts need no histogram: hand them to release. Records belong in a table with a column an attribute."
_FRAMES = "pandas, polars, pyarrow, DuckDB, ibis or PySpark"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_CSV_ADVICE = "Give every line as many fields as the first, in UTF-8, quotes in pairs, one kind of line break."
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_DUCKDB = ".duckdb"
FILES = (*_SEPARATORS, *_PARQUET, *_ARROW, _DUCKDB)
"""Kinds of files that tables of records are read from; .csv and .tsv may be packed, as .csv.gz."""
_LONGEST_HEADER = 16 * 2**20  # bytes; 100 000 columns fit
_SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_WHOLE = "'[+-]?[0-9]+([.]0*)?'"


@final
@dataclass(frozen=True)
class Table:
    """The names of a table's columns and the way to some of them; `from_text` where every field is text.

    `select` takes readings, and columns of other use by their new name: `w` of weights, `p` of people.
    """

    names: tuple[str, ...]
    select: Callable[[list[Reading], Mapping[str, str]], Frame]
    from_text: bool = False


@contextmanager
def opened(source: object, table: str | None = None) -> Iterator[Table]:
    """Open a frame, or a file until the end of the block; of a database the table of that name, or its only one."""
    if isinstance(source, np.ndarray):
        seen = f"array of shape {source.shape}"
        raise fail(WHERE, seen, "is no table of records", _COUNTS_ADVICE)
    if isinstance(source, str | Path):
        suffix, file = _file(source)
        if table is not None and suffix != _DUCKDB:
            raise fail(WHERE, f"table={table!r}", f"{suffix} files hold one table", "Leave the name of the table out.")
        with _database() as connection:
            yield _from_file(connection, file, suffix, table)
    elif _is_arrow(source):  # DuckDB counts where it lies, and casts what Arrow refuses to
        with _database() as connection:
            yield _from_frame(connection.from_arrow(source))
    else:
        yield _from_frame(source)


def _is_arrow(source: Any) -> bool:
    return bool(_package("narwhals").dependencies.is_pyarrow_table(source) and source.num_columns > 0)


@contextmanager
def _database() -> Iterator[Any]:
    """Open a DuckDB of our own, in memory, that says nothing and fetches nothing."""
    connection = _package("duckdb").connect(":memory:", config=_SETTINGS)
    try:
        connection.execute("SET enable_progress_bar = false")
        yield connection
    finally:
        connection.close()


def _package(name: str) -> Any:
    """Import an optional package, or say how to get it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise fail(WHERE, name, f"needs the package {name}", _INSTALL) from None


def _from_frame(source: object) -> Table:
    nw = _package("narwhals")
    try:
        frame = nw.from_native(source)
        names = tuple(frame.collect_schema().names())
    except TypeError:
        advice = f"Give a {_FRAMES} table, or the path of a CSV or Parquet file."
        raise fail(WHERE, f"source of type {type(source).__name__}", "is no table of records", advice) from None
    except Exception as error:  # noqa: BLE001  # any engine's own kind, and its words may hold records
        raise refused(error) from None

    def select(made: list[Reading], others: Mapping[str, str]) -> Frame:
        wanted = {f"r{i}": reading.column for i, reading in enumerate(made)} | dict(others)
        if frame.implementation.is_duckdb():  # names are quoted here: not every narwhals can
            parts = ", ".join(f"{_name(old)} AS {new}" for new, old in wanted.items())
            return nw.from_native(nw.to_native(frame).project(parts))
        if frame.implementation.is_spark_like():  # reads a.b as field b of a: columns are renamed by their position
            plain = nw.from_native(nw.to_native(frame).toDF(*(f"c{j}" for j in range(len(names)))))
            return plain.select(**{new: nw.col(f"c{names.index(old)}") for new, old in wanted.items()})
        return frame.select(**{new: nw.col(old) for new, old in wanted.items()})

    return Table(names, select)


def _file(source: str | Path) -> tuple[str, Path]:
    """Return the kind of a file and the file, if it can be read."""
    suffix = kind_of(Path(source))
    if suffix in (".npy", ".npz"):
        raise fail(WHERE, repr(str(source)), "a NumPy file is no table of records", _COUNTS_ADVICE)
    if suffix not in FILES:
        advice = f"Use .csv, .csv.gz, .tsv, .parquet, .arrow or .duckdb, or hand in a {_FRAMES} table."
        raise fail(WHERE, repr(str(source)), "tables are read from CSV, Parquet, Arrow and DuckDB files", advice)
    return suffix, readable_file(WHERE, source)


def kind_of(file: Path) -> str:
    """Return the end of a file's name; of a packed text file, the end before that."""
    before, last = ["", "", *(suffix.lower() for suffix in file.suffixes)][-2:]
    return before if last == ".gz" and before in _SEPARATORS else last


def _from_file(connection: Any, file: Path, suffix: str, table: str | None) -> Table:
    if suffix in _PARQUET:
        return _from_parquet(connection, file)
    if suffix in _ARROW:
        return _from_arrow(connection, file)
    return _from_duckdb(connection, file, table) if suffix == _DUCKDB else _from_csv(connection, file, suffix)


def _from_arrow(connection: Any, file: Path) -> Table:
    """Map an Arrow file into memory; DuckDB counts where it lies."""
    _package("pyarrow")
    ipc = _package("pyarrow.ipc")
    try:
        with _package("pyarrow").memory_map(str(file)) as stream:
            start = stream.read(6)
            stream.seek(0)
            held = (ipc.open_file if start == b"ARROW1" else ipc.open_stream)(stream).read_all()
    except Exception as error:  # noqa: BLE001  # see refused
        raise refused(error, file) from None
    return _from_frame(connection.from_arrow(held))


def _from_duckdb(connection: Any, file: Path, table: str | None) -> Table:
    """Attach a database, which is never written to, and take the table of that name, or its only one."""
    try:
        path = "'" + str(file).replace("'", "''") + "'"
        connection.execute(f"ATTACH {path} AS held (READ_ONLY)")
        found = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'held'"
        ).fetchall()
    except Exception as error:  # noqa: BLE001  # see refused
        raise refused(error, file) from None
    named = [pair for pair in found if table in (None, pair[1])]
    if len(named) != 1:
        problem = f"has {len(found)} tables" + ("" if table is None else f", {len(named)} of them called {table!r}")
        raise fail(WHERE, file, problem, f"Name one of {', '.join(sorted(name for _, name in found)) or 'none'}.")
    schema, name = named[0]
    return _from_frame(connection.sql(f"SELECT * FROM held.{_name(schema)}.{_name(name)}"))


def _from_parquet(connection: Any, file: Path) -> Table:
    try:
        relation = connection.sql(f"SELECT * FROM read_parquet({_path(file)}, hive_partitioning = false)")
    except Exception as error:  # noqa: BLE001  # see refused
        raise refused(error, file) from None
    return _from_frame(relation)


def _from_csv(connection: Any, file: Path, suffix: str) -> Table:
    """Read a CSV file as text; numbers are made of it column by column, and text that is no number becomes a null."""
    names = header(file, _SEPARATORS[suffix])
    fields = ", ".join(f"'c{j}': 'VARCHAR'" for j in range(len(names)))
    dialect = f"delim = '{_SEPARATORS[suffix]}', quote = '\"', escape = '\"', strict_mode = true"
    layout = f"auto_detect = false, header = false, skip = 1, columns = {{{fields}}}"
    kind = "gzip" if _is_packed(file) else "none"
    scan = f"read_csv({_path(file)}, {layout}, {dialect}, compression = '{kind}')"

    def select(made: list[Reading], others: Mapping[str, str]) -> Frame:
        parts = [_typed(f"c{names.index(r.column)}", r) + f" AS r{i}" for i, r in enumerate(made)]
        parts += [
            f"{_whole(f'c{names.index(old)}') if new == 'w' else f'c{names.index(old)}'} AS {new}"
            for new, old in others.items()
        ]
        try:
            relation = connection.sql(f"SELECT {', '.join(parts)} FROM {scan}")
        except Exception as error:  # noqa: BLE001  # see refused
            raise refused(error, file) from None
        return _package("narwhals").from_native(relation)

    return Table(names, select, from_text=True)


def _typed(field: str, reading: Reading) -> str:
    """Text, or a number where the text is one; of a bare column DuckDB 2 has its CSV reader insist on numbers."""
    text = f"coalesce({field}, '')"
    return text if reading.labels is not None else f"try_cast({text} AS DOUBLE)"


def _whole(field: str) -> str:
    """A whole number in digits as BIGINT; null for all else, which DuckDB's own cast would round."""
    return f"CASE WHEN regexp_full_match(trim({field}), {_WHOLE}) THEN try_cast(coalesce({field}, '') AS BIGINT) END"


def _name(column: str) -> str:
    """Write the name of a column as SQL."""
    return '"' + column.replace('"', '""') + '"'


def _path(file: Path) -> str:
    """Write a path as SQL text, its wildcards taken literally."""
    return "'" + re.sub(r"([\[*?])", r"[\1]", str(file)).replace("'", "''") + "'"


def _is_packed(file: Path) -> bool:
    return file.suffix.lower() == ".gz"


def header(file: Path, separator: str) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file; they are read here so that DuckDB need not guess."""
    try:
        with (gzip.open if _is_packed(file) else open)(file, "rb") as stream:
            line = stream.readline(_LONGEST_HEADER)
    except (OSError, EOFError, zlib.error):
        raise fail(WHERE, file, "cannot be unpacked", "Write the file again.") from None
    try:
        text = line.decode("utf-8-sig")
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True), [])
    except UnicodeDecodeError:
        raise fail(WHERE, file, "its first line is not UTF-8 text", "Save the file as UTF-8.") from None
    except csv.Error:
        problem = "its first line is not readable as CSV"
        raise fail(WHERE, file, problem, "Write the names of the columns into one line, quoted whole.") from None
    _check_separator(file, names, separator)
    if not any(names):
        raise fail(WHERE, file, "its first line is empty", "Write the names of the columns into the first line.")
    return tuple(names)


def _check_separator(file: Path, names: list[str], separator: str) -> None:
    """Refuse a first line that has something else between its names."""
    other = next((mark for mark in OTHER_MARKS if mark != separator and len(names) == 1 and mark in names[0]), None)
    if other is not None:
        advice = "Write commas between fields and points in decimals, or call a file with tabs .tsv."
        raise fail(WHERE, file, f"its first line has {OTHER_MARKS[other]} between its names", advice)


def refused(error: Exception, file: Path | None = None) -> InputError:
    """Turn an engine's error into a sentence without its words, for they can hold records."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, ImportError):
        return fail(WHERE, "table", f"needs the package {error.name}", _INSTALL)
    if file is not None and kind_of(file) in _SEPARATORS:
        line = re.search(r"CSV Error on Line: (\d+)", str(error))
        problem = f"{f'line {line[1]}' if line else 'it'} is not readable as CSV"
        return fail(WHERE, file, problem, _CSV_ADVICE)
    place = "table" if file is None else file
    problem = f"the engine that holds the records could not read them ({type(error).__name__})"
    return fail(WHERE, place, problem, "Look at the table with the engine itself; its message may show records.")
