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
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import Noise
from hdmm_bf.mechanisms.privacy import zcdp_delta

_SCHEMA = "hdmm_bf ledger 1"
_PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""

_ROUNDING = 1e-12
_SMALLEST_RHO, _LARGEST_RHO = 1e-300, 10**6
"""Losses that are converted from zCDP; smaller ones are rounded up, larger ones are only added plainly."""

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
    """The account of one set of data in a ledger, and the numbers of the entries made through it."""

    ledger: Ledger
    data: str
    entries: list[int] = field(default_factory=list, compare=False)

    def spend(self, noise: Noise, *, epsilon: float | None, delta: float | None, rho: float | None, policy: str) -> int:
        """Count a loss as spent, or refuse when the total would be exceeded. Returns the number of the entry."""
        entry = self.ledger.spend(self.data, noise, epsilon=epsilon, delta=delta, rho=rho, policy=policy)
        self.entries.append(entry)
        return entry

    def published(self, where: str) -> None:
        """Note where the last release paid from this account was written."""
        if self.entries:
            self.ledger.published(self.entries[-1], where)


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
        self.path = Path(path).absolute()
        stated = Total(_written("epsilon", epsilon), _written("delta", delta), _written("rho", rho))
        wanted = any(value is not None for value in (epsilon, delta, rho))
        if wanted and not _is_total(stated):
            problem = "must be epsilon, epsilon and a delta below 1, or rho"
            raise fail("ledger", f"total {stated}", problem, "State one of them.")
        if not wanted and not os.path.exists(self.path):
            advice = "State the total when the ledger is made, for example epsilon=1."
            raise fail("ledger", repr(str(path)), "does not exist, and no total was stated", advice)
        with self._open() as base:
            self.total = self._stated(base, stated if wanted else None)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock for the length of a block; what the block did is kept only if it ends well."""
        try:
            base = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        except (sqlite3.Error, ValueError) as error:  # ValueError: a path with a NUL
            raise fail("ledger", repr(str(self.path)), f"cannot be opened ({error})", "Check the path.") from None
        try:
            base.execute("PRAGMA synchronous = FULL")
            base.execute("BEGIN IMMEDIATE")
            self._check_whole(base)
            yield base
            base.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:  # OSError: the file was taken away
            advice = "Use a file that a ledger made, on a disk that can be written."
            raise fail("ledger", repr(str(self.path)), f"is not usable ({error})", advice) from None
        finally:
            base.close()  # rolls back what was not committed

    def _check_whole(self, base: sqlite3.Connection) -> None:
        """Refuse a file that was cut short: SQLite reads zeros for what is missing of a page."""
        (pages,), (size,) = (base.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
        sound = base.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
        if not sound or os.path.getsize(self.path) not in (0, pages * size):  # 0: a new ledger
            raise self._damaged("was changed or cut short")

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
        held = Total(*map(self._number, rows[0][1:]))
        if not _is_total(held):
            raise self._damaged()
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
            return self._entries(base, data)

    def _entries(self, base: sqlite3.Connection, data: str | None) -> list[Entry]:
        chosen = "SELECT at, data, policy, noise, epsilon, delta, rho, published FROM spent"
        rows = (
            base.execute(f"{chosen} ORDER BY id")
            if data is None
            else base.execute(f"{chosen} WHERE data = ? ORDER BY id", (data,))
        )
        return [self._entry(*row) for row in rows.fetchall()]

    def _entry(self, *row: Any) -> Entry:
        """Return a row of the file as an entry, if it is one that `spend` can have written."""
        *words, epsilon, delta, rho, published = row
        loss = (self._number(epsilon), self._number(delta), self._number(rho))
        texts = all(isinstance(word, str) for word in words) and isinstance(published, str | None)
        if not texts or not _is_loss(words[3], *loss):
            raise self._damaged()
        return Entry(words[0], words[1], words[2], words[3], *loss, published)

    def _number(self, value: Any) -> str | None:
        """Return a number of the file if `_written` can have written it: nothing negative, infinite or endless."""
        try:
            if value is None or (isinstance(value, str) and _written("", value) == value):
                return value
        except InputError:
            pass
        raise self._damaged()

    def _damaged(self, problem: str = "holds an entry that no release made") -> InputError:
        advice = "Restore the file from a copy; what it says cannot be relied on."
        return fail("ledger", repr(str(self.path)), problem, advice)

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
        if not _is_loss(noise, *asked):
            advice = "Laplace noise has epsilon; Gaussian noise has rho, and perhaps epsilon and delta."
            raise fail("ledger", f"{noise} noise with {Total(*asked)}", "is no loss that can be counted", advice)
        entry = Entry(now, data, policy, noise, *asked, None)
        with self._open() as base:
            before = self._entries(base, data)
            if not within(self.total, [*before, entry]):
                advice = "Nothing was spent or published. Ask for less, or use other data."
                shown = f"{len(before)} releases before and now {Total(*asked)}"
                raise fail("ledger", shown, f"would exceed the total of {self.total} for these data", advice)
            values = (now, data, policy, noise, *asked)
            insert = "INSERT INTO spent (at, data, policy, noise, epsilon, delta, rho) VALUES (?, ?, ?, ?, ?, ?, ?)"
            return int(base.execute(insert, values).lastrowid or 0)

    def published(self, entry: int, where: str) -> None:
        """Note where the release of an entry was written."""
        with self._open() as base:
            base.execute("UPDATE spent SET published = ? WHERE id = ?", (where, entry))


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
    if room == 0 or zcdp > _LARGEST_RHO:
        return False
    rho = max(float(zcdp) * (1 + _ROUNDING), _SMALLEST_RHO)
    return zcdp_delta(rho, min(float(limit), _LARGEST_RHO)) * (1 + _ROUNDING) <= room


def _rho(entry: Entry) -> Fraction:
    return Fraction(entry.rho) if entry.rho is not None else Fraction(entry.epsilon or 0) ** 2 / 2


def _is_total(total: Total) -> bool:
    """Whether a total is epsilon, epsilon and a delta below 1, or rho."""
    if total.rho is not None:
        return total.epsilon is None and total.delta is None
    return total.epsilon is not None and (total.delta is None or float(total.delta) < 1)


def _is_loss(noise: object, epsilon: str | None, delta: str | None, rho: str | None) -> bool:
    """Whether numbers are those of a kind of noise, so that both ways of adding them up hold."""
    if noise == "laplace":
        return epsilon is not None and delta is None and rho is None
    return noise == "gaussian" and rho is not None and (epsilon is None) == (delta is None)


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
