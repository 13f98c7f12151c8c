"""The ledger that users hold, and the account of one set of data in it."""

from __future__ import annotations

import contextlib
import datetime
import hmac
import math
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hdmm_bf._checks import fail
from hdmm_bf.policy import Policy
from hdmm_bf.release.ledger import storage
from hdmm_bf.release.ledger.graphs import Graph, balance_of, left_epsilon_under, left_mu_under, views
from hdmm_bf.release.ledger.losses import (
    Balance,
    Cost,
    Entry,
    Total,
    check_unit,
    is_total,
    within,
)
from hdmm_bf.release.ledger.migration import migrate, migrate_later, migrate_second
from hdmm_bf.release.ledger.names import Claim, account_name, fingerprint
from hdmm_bf.release.ledger.notebook import as_html
from hdmm_bf.release.ledger.written import is_loss, is_written, written

if TYPE_CHECKING:
    from hdmm_bf.release.plan import Plan

_HASH = re.compile(r"[0-9a-f]{64}")
_COLUMNS = (
    "at, data, policy, noise, epsilon, delta, rho, published, remark, account, fingerprint, mu, digest, "
    "per_person, step"
)


@final
@dataclass(frozen=True)
class Account:
    """The account of one set of data in a ledger, and the numbers of the entries made through it."""

    ledger: Ledger
    name: str
    claim: Claim = Claim()
    entries: list[int] = field(default_factory=list, compare=False)

    def book(self, settled: Plan, *, policy: Policy, data: object, step: float | None = None) -> int:
        """Count what a plan costs as spent on data; a plan without noise, all public, is noted and costs nothing."""
        where: dict[str, Any] = {"policy": policy.title, "graph": Graph.of(policy), "data": data}
        where["per_person"] = settled.per_person
        if settled.sampler is None:
            return self.spend("public", epsilon=None, delta=None, rho=None, **where)
        mu = None if settled.mu is None else math.nextafter(settled.mu, math.inf)  # not less when it is written out
        loss: dict[str, Any] = {"epsilon": settled.epsilon, "delta": settled.delta, "rho": settled.rho, "mu": mu}
        return self.spend(settled.noise, **loss, **where, step=step)

    def spend(
        self,
        noise: Cost,
        *,
        epsilon: float | None,
        delta: float | None,
        rho: float | None,
        policy: str,
        data: object,
        mu: float | None = None,
        graph: Graph | None = None,
        per_person: int | None = None,
        step: float | None = None,
    ) -> int:
        """Count a loss as spent, or refuse when the total would be exceeded. Returns the number of the entry."""
        loss: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu, "step": step}
        where: dict[str, Any] = {"policy": policy, "graph": graph, "data": data, "per_person": per_person}
        entry = self.ledger.spend(self.name, noise, **loss, **where, claim=self.claim)
        self.entries.append(entry)
        return entry

    def published(self, where: str) -> None:
        """Note where the last release paid from this account was written."""
        if self.entries:
            self.ledger.published(self.entries[-1], where)


@final
@dataclass(frozen=True)
class _Row:
    """An entry, the account that it counts in, and the fingerprint of its data."""

    entry: Entry
    account: str
    fingerprint: str | None


@final
class Ledger:
    """An open ledger file.

    Args:
        path: the file.
        epsilon: the total for each set of data, with delta if Gaussian noise is to be used; may be repeated later.
        delta: see epsilon.
        rho: the total in zCDP, instead.
        new: make the file, which must not exist yet and needs a total. A ledger is never made unasked: one that was
            moved away would come back with nothing spent.

    Guarantees:
        The losses recorded for one account never exceed the total: their sum (epsilons and deltas), or their sum in
        zCDP converted to the total's delta, or their composition by the laws of rounded normal and of pure noise, is at
        most it. Totals of epsilon alone and of rho hold however noise was chosen; those with a delta, if its kinds and
        sizes were chosen without a look at earlier answers.
        Under several policies this holds for every edge of each of them, an edge that a policy lacks costing its
        distance there; policies that cannot be compared are refused, unless the account says `common_pairs`.
        A release counts from before its noise is drawn. Data that are known under another name, and a name whose data
        changed, are refused unless the account says so.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        new: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        wanted = Total(written("epsilon", epsilon), written("delta", delta), written("rho", rho))
        stated = wanted != Total()
        if stated and not is_total(wanted):
            problem = "must be epsilon, epsilon and a delta below 1, or rho"
            raise fail("ledger", f"total {wanted}", problem, "State one of them.")
        if new and not stated:
            advice = "State the total, for example epsilon=1 (--total 1)."
            raise fail("ledger", repr(str(path)), "cannot be made without a total", advice)
        if new:
            storage.create(self.path, wanted)
        with storage.opened(self.path) as base:
            version = storage.schema_of(self.path, base)
            if version == storage.OLD_SCHEMA:
                migrate(self.path, base)
            elif version == storage.SECOND_SCHEMA:
                migrate_second(base)
            elif version != storage.SCHEMA:
                migrate_later(version, base)
            self.total, self._salt = self._head(base)
            self._rows(base)  # a damaged ledger is refused now, and left as it is
        if stated and wanted != self.total:
            advice = "Use the stated total: it cannot be raised once releases rely on it."
            raise fail("ledger", f"total {wanted}", f"the ledger states {self.total}", advice)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with storage.opened(self.path) as base:
            if storage.schema_of(self.path, base) != storage.SCHEMA or self._head(base) != (self.total, self._salt):
                raise storage.damaged(self.path, "was replaced while it was open")
            yield base

    def _head(self, base: sqlite3.Connection) -> tuple[Total, bytes]:
        ((salt, *numbers),) = base.execute("SELECT salt, epsilon, delta, rho FROM stated").fetchall()
        total = Total(*numbers)
        hashed = isinstance(salt, str) and _HASH.fullmatch(salt)
        if not hashed or not all(map(_number, numbers)) or not is_total(total):
            raise storage.damaged(self.path)
        return total, bytes.fromhex(salt)

    def account(
        self,
        name: str,
        *,
        changed: bool = False,
        same_data_as: str | None = None,
        distinct_from: str | tuple[str, ...] | list[str] = (),
        common_pairs: bool = False,
    ) -> Account:
        """Return the account of the data of that name; the first release opens it.

        Args:
            name: what the data are called. Case, white space and compatible characters make no difference.
            changed: the data are not those of earlier releases under the name, for example because records were
                added. Losses keep adding up.
            same_data_as: the name of another account of the same data, whose losses count in this one from now on.
            distinct_from: names of accounts whose counts are equal, but of other records.
            common_pairs: from now on the total holds only for pairs of values that all policies protect. Needed for
                releases under policies of which one makes public what another protects.
        """
        others = [distinct_from] if isinstance(distinct_from, str) else distinct_from
        same = None if same_data_as is None else account_name(same_data_as)
        claim = Claim(bool(changed), same, tuple(map(account_name, others)), bool(common_pairs))
        account = Account(self, account_name(name), claim)
        self._check_claim(account)
        return account

    def _check_claim(self, account: Account) -> None:
        claim = account.claim
        said = [*([account.name] if claim.changed else []), *filter(None, [claim.same_data_as]), *claim.distinct_from]
        if not said:
            return
        with self._open() as base:
            known = _accounts(self._rows(base))
        for name in said:
            if name not in known:
                names = ", ".join(map(repr, known)) or "no account yet"
                raise fail("ledger", f"data {name!r}", "has no account in this ledger", f"Known: {names}.")

    def entries(self, name: str | None = None) -> list[Entry]:
        """Return what was spent, on all data or on those of a name."""
        with self._open() as base:
            rows = self._rows(base)
        account = None if name is None else _account_of(rows, account_name(name))
        return [row.entry for row in rows if account is None or row.account == account]

    def _repr_html_(self) -> str:
        return as_html(str(self.path), self.total, self.balances(), self.entries())

    def balances(self) -> list[Balance]:
        """Return for every account what was spent and what is left."""
        with self._open() as base:
            rows = self._rows(base)
            graphs = self._graphs(base)
        accounts = dict.fromkeys(row.account for row in rows)
        return [balance_of(self.total, name, _of(rows, name), graphs) for name in accounts]

    def balance(self, name: str) -> Balance:
        """Return what was spent on the data of a name, and what is left."""
        with self._open() as base:
            rows, graphs = self._rows(base), self._graphs(base)
        account = _account_of(rows, account_name(name))
        return balance_of(self.total, account, _of(rows, account), graphs)

    def left_mu(self, name: str, policy: Policy) -> float:
        """Return the largest mu of Gaussian noise that a next release on the data of a name could have under a policy.

        Refused where releases under several policies promise nothing together.
        """
        return left_mu_under(self.total, *self._spent(name), policy)

    def left_epsilon(self, name: str, policy: Policy, steps: float = 1.0) -> float:
        """Return the largest epsilon of pure noise that a next release on those data could have under a policy.

        Args:
            name: what the data are called.
            policy: of the next release.
            steps: epsilon over the largest of the steps that its loss is made of; 1 where they are not known.
        """
        return left_epsilon_under(self.total, *self._spent(name), policy, steps)

    def _spent(self, name: str) -> tuple[list[Entry], dict[str, Graph]]:
        with self._open() as base:
            rows = self._rows(base)
            return _of(rows, _account_of(rows, account_name(name))), self._graphs(base)

    def _graphs(self, base: sqlite3.Connection) -> dict[str, Graph]:
        found: dict[str, Graph] = {}
        for digest, cells, stored in base.execute("SELECT digest, cells, edges FROM graphs").fetchall():
            sound = isinstance(digest, str) and isinstance(cells, int) and isinstance(stored, bytes)
            graph = Graph.read(digest, cells, stored) if sound else None
            if graph is None:
                raise storage.damaged(self.path)
            found[digest] = graph
        return found

    def _rows(self, base: sqlite3.Connection) -> list[_Row]:
        rows = [self._row(*row) for row in base.execute(f"SELECT {_COLUMNS} FROM spent ORDER BY id").fetchall()]
        known = _accounts(rows)
        if any(known[row.entry.data] != row.account for row in rows):
            raise storage.damaged(self.path)
        return rows

    def _row(self, *row: Any) -> _Row:
        """Return a row of the file as an entry, if it is one that `spend` can have written."""
        at, data, policy, noise, epsilon, delta, rho, published, remark, account, hashed, mu, digest, records, step = (
            row
        )
        words = all(isinstance(word, str) for word in (at, data, policy, account))
        texts = words and isinstance(published, str | None) and isinstance(remark, str | None)
        known = all(h is None or (isinstance(h, str) and _HASH.fullmatch(h)) for h in (hashed, digest))
        numbers = all(map(_number, (epsilon, delta, rho, mu, step))) and is_loss(noise, epsilon, delta, rho, mu, step)
        people = records is None or (isinstance(records, int) and records >= 1)
        if not (texts and known and numbers and people):
            raise storage.damaged(self.path)
        entry = Entry(at, data, policy, noise, epsilon, delta, rho, published, remark, mu, digest, records, step)
        return _Row(entry, account, hashed)

    def spend(
        self,
        name: str,
        noise: Cost,
        *,
        epsilon: float | None,
        delta: float | None,
        rho: float | None,
        policy: str,
        data: object,
        claim: Claim | None = None,
        mu: float | None = None,
        graph: Graph | None = None,
        per_person: int | None = None,
        step: float | None = None,
    ) -> int:
        """Count a loss on data as spent, or refuse when the total would be exceeded or the data are not the name's."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        said, name = claim or Claim(), account_name(name)
        loss = (written("epsilon", epsilon), written("delta", delta), written("rho", rho))
        normal, small = written("mu", mu), written("step", step)
        if not is_loss(noise, *loss, normal, small):
            advice = "Laplace and tree-norm noise have epsilon; Gaussian noise has rho, and perhaps epsilon and delta."
            raise fail("ledger", f"{noise} noise with {Total(*loss)}", "is no loss that can be counted", advice)
        digest = None if graph is None else graph.digest
        entry = Entry(now, name, policy, noise, *loss, None, said.remark, normal, digest, per_person, small)
        hashed = fingerprint(data, self._salt)
        with self._open() as base:
            rows = self._rows(base)
            _check_data(rows, name, hashed, said)
            account = _account_of(rows, name)
            joined = account if said.same_data_as is None else _account_of(rows, said.same_data_as)
            before = [row.entry for row in rows if row.account in (account, joined)]
            check_unit(before, entry)
            graphs = self._graphs(base)
            self._check_total(account, before, entry, graphs if graph is None else {**graphs, graph.digest: graph})
            if graph is not None and graph.digest not in graphs:
                base.execute("INSERT INTO graphs VALUES (?, ?, ?)", (graph.digest, graph.num_cells, graph.written()))
            base.execute("UPDATE spent SET account = ? WHERE account = ?", (account, joined))
            return _insert(base, entry, account, hashed)

    def _check_total(self, account: str, before: list[Entry], entry: Entry, graphs: dict[str, Graph]) -> None:
        if entry.noise == "public" or all(within(self.total, view) for view in views([*before, entry], graphs)):
            return
        shown = f"{len(before)} releases before and now {Total(entry.epsilon, entry.delta, entry.rho)}"
        problem = f"would exceed the total of {self.total} for these data"
        left = balance_of(self.total, account, before, graphs).left
        raise fail("ledger", shown, problem, f"Left: {left}. Nothing was spent or published.")

    def published(self, entry: int, where: str) -> None:
        """Note where the release of an entry was written."""
        with self._open() as base:
            base.execute("UPDATE spent SET published = ? WHERE id = ?", (where, entry))


def _number(value: object) -> bool:
    return value is None or is_written(value)


def _accounts(rows: list[_Row]) -> dict[str, str]:
    """Return the account that every name stands for."""
    return {row.entry.data: row.account for row in rows} | {row.account: row.account for row in rows}


def _account_of(rows: list[_Row], name: str) -> str:
    return _accounts(rows).get(name, name)


def _of(rows: list[_Row], account: str) -> list[Entry]:
    return [row.entry for row in rows if row.account == account]


def _insert(base: sqlite3.Connection, entry: Entry, account: str, hashed: str) -> int:
    values = (entry.at, entry.data, entry.policy, entry.noise, entry.epsilon, entry.delta, entry.rho, entry.published)
    places = ", ".join("?" * 15)
    insert = f"INSERT INTO spent ({_COLUMNS}) VALUES ({places})"
    row = (*values, entry.remark, account, hashed, entry.mu, entry.digest, entry.per_person, entry.step)
    return int(base.execute(insert, row).lastrowid or 0)


def _check_data(rows: list[_Row], name: str, hashed: str, claim: Claim) -> None:
    """Refuse a name and data that the ledger knows apart, unless the claim explains it."""
    account = _account_of(rows, name)
    joined = account if claim.same_data_as is None else _account_of(rows, claim.same_data_as)
    own = [row.fingerprint for row in rows if row.account in (account, joined) and row.fingerprint is not None]
    matching = [row.account for row in rows if row.fingerprint and hmac.compare_digest(row.fingerprint, hashed)]
    if {account, joined} & set(matching):
        return
    distinct = {_account_of(rows, other) for other in claim.distinct_from}
    for other in dict.fromkeys(matching):
        if other not in distinct:
            advice = (
                f"Use that name; or say same_data_as (--same-data-as {other!r}) to count both names as one, or "
                "distinct_from (--distinct-from) if the records are others and the counts equal by chance."
            )
            raise fail("ledger", f"data {name!r}", f"are in this ledger under the name {other!r}", advice)
    if own and not claim.changed:
        advice = (
            "Check the file and the name; if records were added or corrected say changed=True (--data-changed), and "
            "losses keep adding up."
        )
        raise fail("ledger", f"data {name!r}", "are not those of earlier releases under this name", advice)
