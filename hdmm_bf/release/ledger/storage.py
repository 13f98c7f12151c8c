"""The file of a ledger: made on purpose only, for its owner's eyes only, and read only if every table is ours."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from hdmm_bf._checks import InputError, fail
from hdmm_bf.release.ledger.losses import Total
from hdmm_bf.release.ledger.names import SALT_BYTES

SCHEMA, FOURTH_SCHEMA, THIRD_SCHEMA = "hdmm_bf ledger 5", "hdmm_bf ledger 4", "hdmm_bf ledger 3"
SECOND_SCHEMA, OLD_SCHEMA = "hdmm_bf ledger 2", "hdmm_bf ledger 1"
PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""

TABLES = {
    "stated": "CREATE TABLE stated (schema TEXT NOT NULL, salt TEXT NOT NULL, epsilon TEXT, delta TEXT, rho TEXT)",
    "spent": """CREATE TABLE spent (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, account TEXT NOT NULL, data TEXT NOT NULL, fingerprint TEXT,
  policy TEXT NOT NULL, noise TEXT NOT NULL, epsilon TEXT, delta TEXT, rho TEXT, remark TEXT, published TEXT,
  mu TEXT, digest TEXT, per_person INTEGER, step TEXT
)""",
    "graphs": "CREATE TABLE graphs (digest TEXT NOT NULL, cells INTEGER NOT NULL, edges BLOB NOT NULL)",
}
FOURTH_TABLES = {**TABLES, "spent": TABLES["spent"].replace(", step TEXT", "")}
THIRD_TABLES = {**TABLES, "spent": TABLES["spent"].replace(", per_person INTEGER, step TEXT", "")}
SECOND_TABLES = {
    "stated": TABLES["stated"],
    "spent": """CREATE TABLE spent (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, account TEXT NOT NULL, data TEXT NOT NULL, fingerprint TEXT,
  policy TEXT NOT NULL, noise TEXT NOT NULL, epsilon TEXT, delta TEXT, rho TEXT, remark TEXT, published TEXT
)""",
}
OLD_TABLES = {
    "stated": "CREATE TABLE stated (schema TEXT NOT NULL, epsilon TEXT, delta TEXT, rho TEXT)",
    "spent": """CREATE TABLE spent (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, data TEXT NOT NULL, policy TEXT NOT NULL, noise TEXT NOT NULL,
  epsilon TEXT, delta TEXT, rho TEXT, published TEXT
)""",
}
VERSIONS = {
    SCHEMA: TABLES,
    FOURTH_SCHEMA: FOURTH_TABLES,
    THIRD_SCHEMA: THIRD_TABLES,
    SECOND_SCHEMA: SECOND_TABLES,
    OLD_SCHEMA: OLD_TABLES,
}
_BESIDE = ("", "-journal", "-wal", "-shm")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def create(path: Path, total: Total) -> None:
    """Make a new ledger; refused when there is something of that name."""
    check_free(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, stat.S_IRUSR | stat.S_IWUSR))
    except OSError as error:
        advice = "Choose a file that does not exist, in a folder that can be written."
        raise fail("ledger", repr(str(path)), f"cannot be made ({error.strerror})", advice) from None
    try:
        with _transaction(path) as base:
            make_tables(base, total)
    except BaseException:
        path.unlink(missing_ok=True)  # nothing can have been spent from it
        raise


def check_free(path: Path) -> None:
    """Refuse a place where no new ledger can be made."""
    if check_place(path):
        advice = "Leave out new=True (--new-ledger) to go on with it, or choose another name."
        raise fail("ledger", repr(str(path)), "exists already", advice)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise fail("ledger", repr(str(path)), "is in a folder that cannot be written", "Choose another folder.")


def make_tables(base: sqlite3.Connection, total: Total) -> bytes:
    """Write the empty tables of a ledger with a fresh salt, and return the salt."""
    salt = secrets.token_bytes(SALT_BYTES)
    for statement in TABLES.values():
        base.execute(statement)
    values = (SCHEMA, salt.hex(), total.epsilon, total.delta, total.rho)
    base.execute("INSERT INTO stated VALUES (?, ?, ?, ?, ?)", values)
    return salt


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of a ledger for the length of a block; what the block did is kept only if it ends well."""
    if not check_place(path):
        advice = "If there was one, bring it back: a new one knows of nothing spent. new=True (--new-ledger) makes one."
        raise fail("ledger", repr(str(path)), "does not exist", advice)
    _check_private(path)
    with _transaction(path) as base:
        _check_whole(path, base)
        yield base


@contextlib.contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        base = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=PATIENCE, isolation_level=None)
    except sqlite3.Error as error:
        raise fail("ledger", repr(str(path)), f"cannot be opened ({error})", "Check the path.") from None
    try:
        base.execute("PRAGMA synchronous = FULL")
        base.execute("PRAGMA secure_delete = ON")
        base.execute("BEGIN IMMEDIATE")
        yield base
        base.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:  # OSError: the file was taken away
        advice = "Use a file that a ledger made, on a disk that can be written."
        raise fail("ledger", repr(str(path)), f"is not usable ({error})", advice) from None
    finally:
        base.close()  # rolls back what was not committed


def check_place(path: Path) -> bool:
    """Whether there is a file; refused when it is something else, such as a folder, a link or a device."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise fail("ledger", repr(str(path)), f"cannot be opened ({reason})", "Check the path.") from None
    kinds = {stat.S_ISDIR: "is a folder", stat.S_ISLNK: "is a symbolic link"}
    problem = next((words for kind, words in kinds.items() if kind(mode)), "is no ordinary file")
    if not stat.S_ISREG(mode):
        raise fail("ledger", repr(str(path)), f"cannot be opened: it {problem}", "Name the file of the ledger itself.")
    return True


def _check_private(path: Path) -> None:
    """Take away what others than the owner may do with the ledger and the files that SQLite keeps beside it."""
    for file in (path.with_name(path.name + end) for end in _BESIDE):
        try:
            mode = stat.S_IMODE(file.lstat().st_mode)
            if mode & _OTHERS and os.name == "posix":
                file.chmod(mode & ~_OTHERS)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"may be read or written by others, which cannot be changed ({error.strerror})"
            advice = "Let its owner run: chmod 600 FILE."
            raise fail("ledger", repr(str(file)), problem, advice) from None


def _check_whole(path: Path, base: sqlite3.Connection) -> None:
    """Refuse a file that was cut short: SQLite reads zeros for what is missing of a page."""
    if os.path.getsize(path) == 0:
        advice = "Restore it from a copy; if it never was a ledger, remove it and say new=True (--new-ledger)."
        raise fail("ledger", repr(str(path)), "is empty", advice)
    (pages,), (size,) = (base.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    sound = base.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    if not sound or os.path.getsize(path) != pages * size:
        raise damaged(path, "was changed or cut short")


def schema_of(path: Path, base: sqlite3.Connection) -> str:
    """Return which version of a ledger a file is.

    Guarantees:
        A file with a table, view, trigger or index that no ledger makes, or without one that it makes, is refused.
    """
    there = sorted(base.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall(), key=repr)
    for version, tables in VERSIONS.items():
        if there == sorted((("table", name, name, sql) for name, sql in tables.items()), key=repr):
            if base.execute("SELECT schema FROM stated").fetchall() != [(version,)]:
                raise fail("ledger", repr(str(path)), "was not made by this version", "Use the version that made it.")
            return version
    problem = "has other tables, views, triggers or indexes than a ledger"
    raise fail("ledger", repr(str(path)), problem, "Use a file that a ledger made, or restore it from a copy.")


def damaged(path: Path, problem: str = "holds an entry that no release made") -> InputError:
    """Compose the refusal of a file that was changed by something else."""
    advice = "Restore the file from a copy; what it says cannot be relied on."
    return fail("ledger", repr(str(path)), problem, advice)
