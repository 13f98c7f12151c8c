"""Ledgers as tests use them: paying, refusals, edits behind their back, another user."""

import contextlib
import math
import os
import sqlite3

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from hdmm_bf._checks import InputError
from hdmm_bf.release.ledger import account_name
from tests.support.mistakes import THREE_PARTS


def counts_of(name):
    """Some counts for the data of a name, in any of its spellings."""
    return np.frombuffer(account_name(name).encode(), dtype=np.uint8).astype(np.int64)


def pay(ledger, epsilon=None, *, delta=None, rho=None, data="people", noise=None, counts=None):
    noise = noise or ("laplace" if rho is None else "gaussian")
    loss = {"epsilon": epsilon, "delta": delta, "rho": rho}
    x = counts_of(data) if counts is None else counts
    return ledger.account(data).spend(noise, **loss, policy="line:4", data=x)


def refused(act, *words):
    with pytest.raises(InputError) as caught:
        act()
    message = str(caught.value)
    assert THREE_PARTS.fullmatch(message), message
    assert message.isprintable()
    for word in words:
        assert word in message, message


def change(path, statement, *values):
    """Edit a ledger behind its back."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute(statement, values)
        base.commit()


def best_epsilon(rho, delta):
    """Least epsilon of the textbook conversion: rho-zCDP has Renyi divergence alpha rho at every order alpha."""

    def epsilon(log_excess):
        alpha = 1 + math.exp(log_excess)
        return alpha * rho + math.log1p(-1 / alpha) - math.log(delta * alpha) / (alpha - 1)

    return minimize_scalar(epsilon, bounds=(-10, 20), method="bounded", options={"xatol": 1e-12}).fun


@contextlib.contextmanager
def nobody():
    """Run a block without the rights of the administrator, if the tests have them."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
