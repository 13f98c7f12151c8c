"""`hdmm-bf release` on counts with a secret among them, and the flags of its ledger."""

import csv

from tests.support.command_line import call

SECRET = 987654321
COUNTS = [SECRET, 1, 4, 1, 5, 9]
GAUSSIAN = ("--epsilon", "1", "--delta", "1e-6")
AGAIN = ("--ledger", "spent.db", "--data-id", "people")
NEW = (*AGAIN, "--new-ledger", "--total")
BOOK = (*NEW, "2,1e-5")
PURE = {"privacy": ("--epsilon", "1")}
LAPLACE = {"bundle": "l.bf", **PURE}


def release(folder, *arguments, bundle="g.bf", data="x.csv", out="a.csv", privacy=GAUSSIAN):
    return call("release", bundle, "--data", data, "--out", out, *privacy, *arguments, cwd=folder)


def answers(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
