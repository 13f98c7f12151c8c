"""A ledger of privacy spent: an SQLite file that refuses a release past the stated total.

An entry is written, and is on the disk, before noise is drawn; a crash afterwards leaves it counted as spent. Entries
are made under SQLite's write lock, so two processes cannot both take the last of a budget. Keep the file beside the
data: it holds fingerprints of them.

Losses on the same data add up, whatever the policies: for a pair of values that all of them protect the sum is the
loss. A pair that only some of them protect is protected by those alone; `hdmm-bf explain` says what each hides.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise
from hdmm_bf.mechanisms.privacy import zcdp_epsilon

_SCHEMA = "hdmm_bf ledger 1"
_PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""

_TABLES = """
CREATE TABLE stated (schema TEXT NOT NULL, epsilon TEXT, delta TEXT, rho TEXT);
CREATE TABLE spent (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, data TEXT NOT NULL, policy TEXT NOT NULL, noise TEXT NOT NULL,
  epsilon TEXT, delta TEXT, rho TEXT, published TEXT
);
"""


@final
@dataclass(frozen=True)
class Total:
    """What may be spent on one set of data: (epsilon, delta), epsilon alone, or rho. Numbers are exact decimals."""

    epsilon: str | None = None
    delta: str | None = None
    rho: str | None = None

    def __str__(self) -> str:
        named = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        return ", ".join(f"{name} = {value}" for name, value in named.items() if value is not None)


@final
@dataclass(frozen=True)
class Entry:
    """One release that was paid for."""

    at: str
    data: str
    policy: str
    noise: str
    epsilon: str | None
    delta: str | None
    rho: str | None
    published: str | None


@final
@dataclass(frozen=True)
class Account:
    """The account of one set of data in a ledger."""

    ledger: Ledger
    data: str

    def spend(self, noise: Noise, *, epsilon: float | None, delta: float | None, rho: float | None, policy: str) -> int:
        """Count a loss as spent, or refuse when the total would be exceeded. Returns the number of the entry."""
        return self.ledger.spend(self.data, noise, epsilon=epsilon, delta=delta, rho=rho, policy=policy)

    def published(self, where: str) -> None:
        """Note where the last release on these data was written."""
        self.ledger.published(self.data, where)


@final
class Ledger:
    """An open ledger file.

    Args:
        path: the file; made when it does not exist, which needs a total.
        epsilon: the total for each set of data, with delta if Gaussian noise is to be used.
        delta: see epsilon.
        rho: the total in zCDP, instead.

    Guarantees:
        The losses recorded for one set of data never exceed the total: their sum (epsilons and deltas), or their sum in
        zCDP converted to the total's delta, is at most it. A release counts from before its noise is drawn.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
    ) -> None:
        self.path = Path(path)
        stated = Total(_written("epsilon", epsilon), _written("delta", delta), _written("rho", rho))
        wanted = any(value is not None for value in (epsilon, delta, rho))
        if wanted and (stated.epsilon is None) == (stated.rho is None):
            raise fail("ledger", f"total {stated}", "must be epsilon (and delta), or rho", "State one of them.")
        if not self.path.exists() and not wanted:
            advice = "State the total when the ledger is made, for example epsilon=1."
            raise fail("ledger", repr(str(path)), "does not exist, and no total was stated", advice)
        with self._open() as base:
            self.total = self._stated(base, stated if wanted else None)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock for the length of a block; what the block did is kept only if it ends well."""
        try:
            base = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        except sqlite3.Error as error:
            raise fail("ledger", repr(str(self.path)), f"cannot be opened ({error})", "Check the path.") from None
        try:
            base.execute("PRAGMA synchronous = FULL")
            base.execute("BEGIN IMMEDIATE")
            yield base
            base.execute("COMMIT")
        except sqlite3.Error as error:
            advice = "Use a file that a ledger made, on a disk that can be written."
            raise fail("ledger", repr(str(self.path)), f"is not usable ({error})", advice) from None
        finally:
            base.close()  # rolls back what was not committed

    def _stated(self, base: sqlite3.Connection, wanted: Total | None) -> Total:
        if not base.execute("SELECT name FROM sqlite_master").fetchall():
            if wanted is None:
                raise fail("ledger", repr(str(self.path)), "is empty, and no total was stated", "State the total.")
            for statement in filter(str.strip, _TABLES.split(";")):
                base.execute(statement)
            values = (_SCHEMA, wanted.epsilon, wanted.delta, wanted.rho)
            base.execute("INSERT INTO stated VALUES (?, ?, ?, ?)", values)
        rows = base.execute("SELECT schema, epsilon, delta, rho FROM stated").fetchall()
        if len(rows) != 1 or rows[0][0] != _SCHEMA:
            raise fail("ledger", repr(str(self.path)), "was not made by this version", "Start a new ledger.")
        held = Total(*rows[0][1:])
        if wanted is not None and wanted != held:
            advice = "Use the stated total: it cannot be raised once releases rely on it."
            raise fail("ledger", f"total {wanted}", f"the ledger states {held}", advice)
        return held

    def account(self, data: str) -> Account:
        """Return the account of the data with that name or fingerprint."""
        if not data or not data.isprintable():
            raise fail("ledger", f"data {data!r}", "needs a name", "Use a name, or fingerprint(counts).")
        return Account(self, data)

    def entries(self, data: str | None = None) -> list[Entry]:
        """Return what was spent, on all data or on some."""
        with self._open() as base:
            return _entries(base, data)

    def spend(
        self,
        data: str,
        noise: Noise,
        *,
        epsilon: float | None,
        delta: float | None,
        rho: float | None,
        policy: str,
    ) -> int:
        """Count a loss as spent, or refuse when the total would be exceeded."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        asked = (_written("epsilon", epsilon), _written("delta", delta), _written("rho", rho))
        entry = Entry(now, data, policy, noise, *asked, None)
        with self._open() as base:
            before = _entries(base, data)
            if not within(self.total, [*before, entry]):
                advice = "Nothing was spent or published. Ask for less, or use other data."
                shown = f"{len(before)} releases before and now {Total(*asked)}"
                raise fail("ledger", shown, f"would exceed the total of {self.total} for these data", advice)
            values = (now, data, policy, noise, *asked)
            insert = "INSERT INTO spent (at, data, policy, noise, epsilon, delta, rho) VALUES (?, ?, ?, ?, ?, ?, ?)"
            return int(base.execute(insert, values).lastrowid or 0)

    def published(self, data: str, where: str) -> None:
        """Note where the last release on some data was written."""
        with self._open() as base:
            last = "SELECT max(id) FROM spent WHERE data = ?"
            base.execute(f"UPDATE spent SET published = ? WHERE id = ({last})", (where, data))


def _entries(base: sqlite3.Connection, data: str | None) -> list[Entry]:
    chosen = "SELECT at, data, policy, noise, epsilon, delta, rho, published FROM spent"
    rows = (
        base.execute(f"{chosen} ORDER BY id")
        if data is None
        else base.execute(f"{chosen} WHERE data = ? ORDER BY id", (data,))
    )
    return [Entry(*row) for row in rows.fetchall()]


def within(total: Total, entries: list[Entry]) -> bool:
    """Whether losses are proven to stay within a total, by plain addition or by addition in zCDP.

    Guarantees:
        Additions are exact. Pure epsilon counts as rho = epsilon^2 / 2.
    """
    zcdp = sum((_rho(entry) for entry in entries), Fraction(0))
    if total.rho is not None:
        return zcdp <= Fraction(total.rho)
    assert total.epsilon is not None
    limit, room = Fraction(total.epsilon), Fraction(total.delta or 0)
    if all(entry.epsilon is not None for entry in entries):
        spent = sum((Fraction(entry.epsilon or 0) for entry in entries), Fraction(0))
        risked = sum((Fraction(entry.delta or 0) for entry in entries), Fraction(0))
        if spent <= limit and risked <= room:
            return True
    return room > 0 and zcdp_epsilon(float(zcdp) * (1 + 1e-15), float(room)) <= float(limit)


def _rho(entry: Entry) -> Fraction:
    return Fraction(entry.rho) if entry.rho is not None else Fraction(entry.epsilon or 0) ** 2 / 2


def _written(name: str, value: Any) -> str | None:
    """Write a number so that it comes back exactly."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < float("inf"):
        raise fail("ledger", f"{name}={value!r}", "must be a positive number", "Use for example 1.0.")
    return repr(number)


def fingerprint(counts: Int64[np.ndarray, " n"]) -> str:
    """Return a name for a histogram: equal histograms have equal names, and others almost surely not."""
    digest = hashlib.sha256(f"{counts.size} cells\n".encode() + np.ascontiguousarray(counts, dtype="<i8").tobytes())
    return f"sha256:{digest.hexdigest()}"
