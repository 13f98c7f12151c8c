"""The options of `hdmm-bf release` about its ledger, and what they book."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import click

from hdmm_bf._types import JsonObject
from hdmm_bf.cli.show import plain_number

if TYPE_CHECKING:
    from hdmm_bf.release.ledger import Account


@final
@dataclass(frozen=True)
class Booking:
    """Which ledger, its total, whether to make it, the name of the data and what is said about them."""

    path: str
    total: JsonObject
    new: bool
    name: str
    said: JsonObject
    _opened: list[Account] = field(default_factory=list)

    def check_name(self) -> None:
        """Refuse a name that is none."""
        from hdmm_bf.release.ledger import account_name

        account_name(self.name)

    def check(self) -> None:
        """Find mistakes before data are read: open a ledger that exists, or see that one can be made."""
        from pathlib import Path

        from hdmm_bf.release.ledger import Ledger, storage

        if self.new:
            storage.check_free(Path(self.path).absolute())
        else:
            self._opened.append(Ledger(self.path, **self.total).account(self.name, **self.said))

    def account(self) -> Account:
        """Return the account; a new ledger is made now, when the data are known to be sound."""
        from hdmm_bf.release.ledger import Ledger

        if not self._opened:
            self._opened.append(Ledger(self.path, **self.total, new=True).account(self.name, **self.said))
        return self._opened[0]

    def news(self) -> list[str]:
        """Say what was made and what is left."""
        account = self._opened[0]
        balance = account.ledger.balance(account.name)
        made = [f"Made the new ledger {self.path}."] if self.new else []
        made += [f"Opened the new account {balance.account!r} in {self.path}."] if balance.num_releases == 1 else []
        return [*made, f"Left for {balance.account!r}: {balance.left}."]

    def left(self) -> JsonObject:
        """Return what is left, as plain values."""
        balance = self._opened[0].ledger.balance(self.name)
        left = {"epsilon": balance.left_epsilon, "rho": balance.left_rho}
        return {"account": balance.account, "new_account": balance.num_releases == 1, "left": left}


_OPTIONS = (
    click.option("--ledger", metavar="FILE", help="Count the loss here; refuse past the total."),
    click.option("--data-id", metavar="NAME", help="Name of the data in the ledger; needed."),
    click.option("--new-ledger", is_flag=True, help="Make the ledger, with --total."),
    click.option("--total", metavar="E[,D]", help="Its total: epsilon[,delta], or rho=R."),
    click.option("--data-changed", is_flag=True, help="The data of that name have changed."),
    # refusals name these three where they are needed: hidden, so that the help fits on a screen
    click.option("--same-data-as", metavar="NAME", hidden=True, help="This name's losses count here too."),
    click.option("--common-pairs", is_flag=True, hidden=True, help="Under several policies, count what all protect."),
    click.option(
        "--distinct-from", metavar="NAME", multiple=True, hidden=True, help="Equal counts, but other records."
    ),
)


def booking_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets one argument `booking` from them."""

    @functools.wraps(command)
    def run(
        *args: object,
        ledger: str | None,
        data_id: str | None,
        new_ledger: bool,
        total: str | None,
        data_changed: bool,
        same_data_as: str | None,
        common_pairs: bool,
        distinct_from: tuple[str, ...],
        **others: object,
    ) -> None:
        said: JsonObject = {"changed": data_changed, "same_data_as": same_data_as, "distinct_from": distinct_from}
        said |= {"common_pairs": common_pairs}
        flags = (new_ledger, data_changed, distinct_from, common_pairs)
        needless = (data_id, total, same_data_as, *(flag or None for flag in flags))
        command(*args, booking=_booking(ledger, data_id, new_ledger, total, said, needless), **others)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _booking(
    ledger: str | None, name: str | None, new: bool, total: str | None, said: JsonObject, given: tuple[object, ...]
) -> Booking | None:
    if ledger is None:
        if any(value is not None for value in given):
            raise click.UsageError("--total, --data-id and the other options about a ledger need --ledger FILE.")
        return None
    if name is None:
        raise click.UsageError("--ledger needs --data-id NAME: what is spent is counted for the data of that name.")
    if new and total is None:
        raise click.UsageError("--new-ledger needs --total, for example --total 1 or 1,1e-6 or rho=0.5.")
    if new and any(said.values()):
        raise click.UsageError("A new ledger knows no data yet; leave out what is said about other releases.")
    return Booking(ledger, {} if total is None else read_total(total), new, name, said)


def read_total(text: str) -> dict[str, float]:
    """Read `1`, `1,1e-6` or `rho=0.5`, the total of a ledger."""
    names = ["rho"] if text.startswith("rho=") else ["epsilon", "delta"]
    values = [plain_number(part) for part in text.removeprefix("rho=").split(",")]
    sound = [value for value in values if value is not None and 0 < value < math.inf]
    if len(sound) != len(values) or len(values) > len(names):
        raise click.UsageError(f"--total {text!r} is no total; write 1 or 1,1e-6 or rho=0.5.")
    return dict(zip(names, sound, strict=False))
