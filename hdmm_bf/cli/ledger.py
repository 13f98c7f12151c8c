"""`hdmm-bf ledger`: what releases have cost, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hdmm_bf._display import plain as escaped
from hdmm_bf.cli.show import as_json, count, emit, number

if TYPE_CHECKING:
    from hdmm_bf._types import JsonObject
    from hdmm_bf.fit.fit import Fit
    from hdmm_bf.release.ledger import Balance, Entry, Ledger, Total


@click.command(short_help="List what was spent on which data.", epilog="Example: hdmm-bf ledger spent.db")
@click.argument("file")
@click.option("--bundle", metavar="B", help="Say what the next release of this bundle could still spend.")
@as_json
def ledger(file: str, bundle: str | None, as_json: bool) -> None:
    """List what was spent on which data, what is left, and the total that the ledger in FILE holds to."""
    from dataclasses import asdict

    from hdmm_bf.release.ledger import Ledger

    book = Ledger(file)
    balances, entries = book.balances(), book.entries()
    rest = {balance.account: _next(book, balance, bundle) for balance in balances} if bundle is not None else {}
    if as_json:
        accounts = [asdict(balance) | {"next": rest.get(balance.account)} for balance in balances]
        emit({"total": asdict(book.total), "accounts": accounts, "entries": [asdict(entry) for entry in entries]})
        return
    click.echo(f"{escaped(file)}: {book.total} for each set of data, {count(len(entries), 'release')}")
    for balance in balances:
        for line in _account(balance, book.total):
            click.echo(f"  {escaped(line)}")
        if balance.account in rest:
            click.echo(f"    next   {escaped(rest[balance.account]['words'])}")
        for entry in entries:
            if entry.data in balance.names:
                click.echo(f"    {escaped(_line(entry))}")


def _next(book: Ledger, balance: Balance, bundle: str) -> JsonObject:
    """What a release of a bundle could still spend on the data of an account, as values and in words."""
    from fractions import Fraction

    from hdmm_bf._checks import InputError
    from hdmm_bf.fit import loading
    from hdmm_bf.release import analytic

    made = loading.load(bundle)
    try:
        mu = book.left_mu(balance.account, made.problem.policy)
    except InputError as refusal:
        return {"words": str(refusal)}
    if made.noise != "gaussian":
        left = book.left_epsilon(balance.account, made.problem.policy, _steps(made))
        return {"epsilon": left, "words": f"epsilon {number(left)} of {bundle}" if left else f"nothing of {bundle}"}
    delta = None if book.total.delta is None else float(book.total.delta)
    epsilon = analytic.epsilon_for(Fraction(mu), delta) if mu and delta is not None else None
    at = "" if epsilon is None else f", for example epsilon {number(epsilon)} with delta {book.total.delta}"
    words = f"rho {number(mu * mu / 2)}{at}, of {bundle}" if mu else f"nothing of {bundle}"
    return {"mu": mu, "rho": mu * mu / 2, "epsilon": epsilon, "delta": delta, "words": words}


def _steps(made: Fit) -> float:
    """Of how many steps a loss of a bundle is made, at least."""
    from hdmm_bf._linalg import ROUNDING
    from hdmm_bf.release.plan import plan

    step = made.recovery.largest_step(plan(made, epsilon=1.0))
    return 1.0 if step is None else max((1 - ROUNDING) / step, 1.0)


def _account(balance: Balance, total: Total) -> list[str]:
    also = f" (also {', '.join(balance.names[1:])})" if len(balance.names) > 1 else ""
    plain = "no plain sum" if balance.epsilon is None else f"epsilon {number(balance.epsilon)}"
    plain += f", delta {number(balance.delta)}" if balance.delta else ""
    zcdp = f"in zCDP rho {number(balance.rho)}"
    if balance.epsilon_by_rho is not None:
        zcdp += f", which is epsilon {number(balance.epsilon_by_rho)} at delta {total.delta}"
    if balance.epsilon_exact is not None:
        zcdp = f"together epsilon {number(balance.epsilon_exact)} at delta {total.delta}, rho {number(balance.rho)}"
    most = balance.per_person
    whom = "" if most is None else f", promised to people of at most {count(most, 'record')}"
    head = f"{balance.account}{also}: {count(balance.num_releases, 'release')}{whom}"
    return [head, f"  spent  {plain}; {zcdp}", f"  left   {balance.left}"]


def _line(entry: Entry) -> str:
    cost = f"epsilon {entry.epsilon}" if entry.epsilon is not None else f"rho {entry.rho}"
    cost += f", delta {entry.delta}" if entry.delta is not None else ""
    cost += "" if entry.per_person is None else f", people of at most {count(entry.per_person, 'record')}"
    cost = "public, no cost" if entry.noise == "public" else cost
    where = entry.published or "not known to be published"
    parts = [entry.at, entry.data, entry.policy, cost, where, *([entry.remark] if entry.remark else [])]
    return "  ".join(parts)
