"""Ledgers of the first version: accounts were names as typed, or plain hashes of the counts.

Nothing that was spent is lost. Names that are one name now become one account, so that its sum may be above the total;
then nothing is left. Plain hashes, from which small histograms can be found, are salted and wiped; their accounts are
called `unnamed 1`, `unnamed 2` and so on, and `same_data_as` joins them to a name.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
from pathlib import Path

from hdmm_bf.release.ledger import storage
from hdmm_bf.release.ledger.losses import Total
from hdmm_bf.release.ledger.names import salted, seen_name

_PLAIN_HASH = re.compile(r"sha256:([0-9a-f]{64})")


def migrate(path: Path, base: sqlite3.Connection) -> None:
    """Turn the tables of the first version into today's, inside the transaction that is open.

    Guarantees:
        Every entry is kept with its loss. No plain hash of data stays in the file.
    """
    ((*numbers,),) = base.execute("SELECT epsilon, delta, rho FROM stated").fetchall()
    columns = "id, at, policy, noise, epsilon, delta, rho, published"
    rows = base.execute(f"SELECT data, {columns} FROM spent ORDER BY id").fetchall()
    if not all(isinstance(row[0], str) for row in rows):
        raise storage.damaged(path)
    for table in storage.OLD_TABLES:
        base.execute(f"DROP TABLE {table}")
    salt = storage.make_tables(base, Total(*numbers))
    known = _renamed([row[0] for row in rows], salt)
    insert = f"INSERT INTO spent (account, data, fingerprint, {columns}) VALUES ({', '.join('?' * 11)})"
    base.executemany(insert, [(known[row[0]][0], *known[row[0]], *row[1:]) for row in rows])


def migrate_second(base: sqlite3.Connection) -> None:
    """Turn the tables of the second version, which knew no mu and no graphs of policies, into today's.

    Guarantees:
        Every entry is kept as it is.
    """
    columns = "id, at, account, data, fingerprint, policy, noise, epsilon, delta, rho, remark, published"
    rows = base.execute(f"SELECT {columns} FROM spent ORDER BY id").fetchall()
    base.execute("DROP TABLE spent")
    base.execute(storage.TABLES["spent"])
    base.execute(storage.TABLES["graphs"])
    base.executemany(f"INSERT INTO spent ({columns}) VALUES ({', '.join('?' * 12)})", rows)
    base.execute("UPDATE stated SET schema = ?", (storage.SCHEMA,))


def migrate_later(version: str, base: sqlite3.Connection) -> None:
    """Turn the tables of the third version, whose losses are all about one record, or of the fourth into today's.

    The fourth knew no steps that a loss is made of: its entries keep counting as any pure loss.

    Guarantees:
        Every entry is kept as it is.
    """
    columns = "id, at, account, data, fingerprint, policy, noise, epsilon, delta, rho, remark, published, mu, digest"
    columns += "" if version == storage.THIRD_SCHEMA else ", per_person"
    base.execute("ALTER TABLE spent RENAME TO earlier")
    base.execute(storage.TABLES["spent"])
    base.execute(f"INSERT INTO spent ({columns}) SELECT {columns} FROM earlier ORDER BY id")
    base.execute("DROP TABLE earlier")
    base.execute("UPDATE stated SET schema = ?", (storage.SCHEMA,))


def _renamed(names: list[str], salt: bytes) -> dict[str, tuple[str, str | None]]:
    """Return for every old name the name and the fingerprint that it becomes."""
    plain = {name: match[1] for name in names if (match := _PLAIN_HASH.fullmatch(name))}
    seen = {name: seen_name(name) for name in names if name not in plain}
    free = (f"unnamed {k}" for k in itertools.count(1) if f"unnamed {k}" not in seen.values())
    found: dict[str, tuple[str, str | None]] = {}
    for name in dict.fromkeys(names):
        hashed = salted(plain[name], salt) if name in plain else None
        found[name] = (seen.get(name) or next(free), hashed)
    return found
