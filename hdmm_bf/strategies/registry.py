"""The families of strategies: what each is called, what it is for, how it is searched. Nobody else spells a name.

A family is a module with a constant `FAMILY`; adding one is that constant and a line in the list below. Options, the
portfolio, the choice for products, memory and refusals ask here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

from hdmm_bf._types import Noise

_MODULES: dict[Noise, tuple[str, ...]] = {
    "gaussian": ("dense", "marginals", "kronecker", "sectors", "bases"),
    "laplace": (
        "grid",
        "p_identity",
        "cell_budgets",
        "vertex",
        "dictionary",
        "tables",
        "kronecker",
        "unions",
        "layers",
        "directions",
        "cells",
    ),
    "norm": ("chain", "hierarchy", "blocks", "clusters", "flows"),
}
"""Modules of the families of each noise, in the order in which they are tried."""


def _always(_: object) -> bool:
    return True


def _never(_: object) -> bool:
    return False


@final
@dataclass(frozen=True)
class Turns:
    """How many steps a family gets in the portfolio.

    Attributes:
        look: steps before the family with the least error gets more than the others.
        stale: steps without gain after which it gets no more.
    """

    look: int
    stale: int


@final
@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of strategies.

    Attributes:
        name: what users call it.
        noise: the noise it is for.
        structured: whether it is searched by the factors of a product, no matrix over the cells being made.
        search: a generator of candidates, `search(problem, seed=...)` (Gaussian: `gap=...`; structured: of a product);
            structured Gaussian, a function that returns the best strategy.
        applies: whether a problem (structured: a product) can and should be searched in this family.
        possible: whether a problem can be searched in it at all when it is asked for by name (dense families).
        alone: whether no other family is worth its time for a problem.
        needs: the words of the refusal where it is not possible, such as "needs one product of queries".
        balls: structured: whether it is for distance thresholds above 1 over several attributes.
        spreads: whether the search can be spread over devices.
        turns: its turns in the portfolio.
        tensors: tensors over all cells that the search holds at once, fitted to measured peaks.
    """

    name: str
    noise: Noise
    structured: bool
    search: Callable[..., Any]
    applies: Callable[[Any], bool] = _always
    possible: Callable[[Any], bool] = _always
    alone: Callable[[Any], bool] = _never
    needs: str = ""
    balls: bool = False
    spreads: bool = False
    turns: Turns = Turns(look=2, stale=20)
    tensors: int = 0


@functools.cache
def families(noise: Noise | None = None, *, structured: bool | None = None) -> tuple[Family, ...]:
    """Return the families of a noise, or of all, structured or dense or both, in the order in which they are tried."""
    noises = tuple(_MODULES) if noise is None else (noise,)
    every = [import_module(f"hdmm_bf.strategies.{n}.{module}").FAMILY for n in noises for module in _MODULES[n]]
    return tuple(family for family in every if structured is None or family.structured == structured)


def names(noise: Noise | None = None, *, structured: bool | None = None) -> tuple[str, ...]:
    """Return the names of `families`, each once."""
    return tuple(dict.fromkeys(family.name for family in families(noise, structured=structured)))


def family(noise: Noise, name: str) -> Family:
    """Return the family of a name."""
    return next(known for known in families(noise) if known.name == name)
