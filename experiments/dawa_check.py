"""DAWA beside other mechanisms of ordinary privacy: 2000 random ranges on 4096 cells, epsilon 0.1 and 1.

Published results are plots; what they state in words can be checked: with 1000 records at epsilon 0.1 DAWA has less
error than the best data-independent mechanism (HB, a hierarchy of branching 16 here) on every data set, and more data
take that lead away (Hay et al., "Principled evaluation of differentially private algorithms using DPBench", 2016).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import hdmm_bf as bf
from experiments import data
from experiments.design import Experiment, Row
from experiments.mechanisms.dawa import dawa
from experiments.mechanisms.draws import Seeded
from experiments.mechanisms.hierarchy import hierarchical
from experiments.mechanisms.mechanism import Mechanism, laplace
from experiments.mechanisms.wavelet import privelet

QUESTION = "Is DAWA as good as its published implementations?"
MECHANISMS = ("Laplace", "Privelet", "HB", "DAWA", "DAWA, proven noise")
FEW = 1000


def cells(smoke: bool) -> list[Row]:
    """Return the design: all records, and a sample of 1000 at epsilon 0.1."""
    n, queries, runs = (256, 200, 3) if smoke else (4096, 2000, 25)
    names = ("D", "E") if smoke else data.LINES
    settings = [("all", "0.1"), ("all", "1"), (str(FEW), "0.1")]
    return [
        {
            "data_set": name,
            "data": data.origin(name),
            "cells": str(n),
            "workload": f"random-range:{n}:{queries}:seed=7",
            "records": records,
            "epsilon": epsilon,
            "mechanism": mechanism,
            "runs": str(runs),
        }
        for name in names
        for records, epsilon in settings
        for mechanism in MECHANISMS
    ]


@lru_cache
def _mechanism(name: str, workload: str) -> Mechanism:
    queries = bf.workload.parse(workload)
    build = {
        "Laplace": laplace,
        "Privelet": lambda: privelet(queries.num_cells),
        "HB": lambda: hierarchical(16),
        "DAWA": lambda: dawa(queries, noise="published"),
        "DAWA, proven noise": lambda: dawa(queries),
    }
    return build[name]()


def measure(cell: Row, random: np.random.Generator) -> dict[str, float | str]:
    """Return the error, as rmse of a query and as scaled error: L2 norm of the errors / (queries * records)."""
    counts = data.counts(cell["data_set"], int(cell["cells"]))
    if cell["records"] != "all":
        sampler = np.random.default_rng(len(counts))  # the same sample for every mechanism
        counts = sampler.multinomial(int(cell["records"]), counts / counts.sum())
    W = bf.workload.parse(cell["workload"]).matrix
    mechanism, runs = _mechanism(cell["mechanism"], cell["workload"]), int(cell["runs"])
    draw, epsilon = Seeded(random), float(cell["epsilon"])
    squares = np.array([np.mean(W.mv(mechanism(counts, epsilon, draw) - counts) ** 2) for _ in range(runs)])
    scaled = np.sqrt(squares / W.shape[0]) / counts.sum()
    return {
        "rmse": float(np.sqrt(squares.mean())),
        "stderr": float(squares.std(ddof=1) / runs**0.5 / (2 * np.sqrt(squares.mean()))),
        "scaled_error": float(scaled.mean()),
    }


EXPERIMENT = Experiment("dawa_check", QUESTION, cells, ("rmse", "stderr", "scaled_error"), measure)
