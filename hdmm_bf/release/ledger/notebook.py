"""What a notebook shows of a ledger: the total, what was spent on which data, and what is left."""

from __future__ import annotations

from collections.abc import Sequence

from hdmm_bf import _display
from hdmm_bf.release.ledger.losses import Balance, Entry, Total

_SHOWN = 10
"""Entries that a notebook shows: the last ones."""


def as_html(path: str, total: Total, balances: Sequence[Balance], entries: Sequence[Entry]) -> str:
    """Return accounts with what is left, and the last entries."""
    facts = _display.facts_table([("total for each set of data", str(total)), ("releases", str(len(entries)))])
    accounts = [(", ".join(one.names), one.num_releases, _spent(one), one.left) for one in balances]
    head = ("data", "releases", "spent", "left for the next one")
    last = [(e.at, e.data, e.policy, _cost(e), e.published or "not known") for e in entries[-_SHOWN:]]
    parts = [_display.table(head, accounts), _display.table(("at", "data", "policy", "cost", "published"), last)]
    return _display.card("Ledger", path, facts, *(parts if entries else []))


def _spent(one: Balance) -> str:
    if one.epsilon_exact is not None:
        return f"epsilon {one.epsilon_exact:.6g} together, rho {one.rho:.6g}"
    return f"rho {one.rho:.6g}" if one.epsilon is None else f"epsilon {one.epsilon:.6g}, rho {one.rho:.6g}"


def _cost(entry: Entry) -> str:
    if entry.noise == "public":
        return "public, no cost"
    named = {"epsilon": entry.epsilon, "delta": entry.delta} if entry.epsilon is not None else {"rho": entry.rho}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
