"""The orders of error in the paper's summary of Section 5: how errors grow with the domain and the threshold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import hdmm_bf as bf
from experiments import figures
from experiments.design import Experiment, Row
from experiments.mechanisms.draws import Seeded
from experiments.mechanisms.grids import cubes, rows_and_columns
from experiments.mechanisms.mechanism import Mechanism, laplace
from experiments.mechanisms.trees import transformed
from experiments.mechanisms.wavelet import privelet

QUESTION = "Do errors grow with domain and threshold as the summary of Section 5 says?"
RESULTS = ("mse", "stderr")
BUILD: dict[str, Callable[[bf.Policy], Mechanism]] = {
    "Privelet": lambda policy: privelet(policy.domain),
    "Transformed + Laplace": lambda policy: transformed(laplace(), policy),
    "Transformed + Privelet": rows_and_columns,
    "H^theta + Privelet": lambda policy: cubes(policy, side=_limit(policy) // policy.domain.num_attributes),
}


def _limit(policy: bf.Policy) -> int:
    return int(policy.spec.split(":")[-1])


def cells(smoke: bool) -> list[Row]:
    """Return the design: by domain in one and two dimensions, and by threshold."""
    lines, sides = ((64, 256), (8, 16)) if smoke else ((64, 256, 1024, 4096), (8, 16, 32, 64))
    limits, large = ((4, 8), 256) if smoke else ((4, 8, 16, 32, 64), 4096)
    made = [("line", n, str(n), f"line:{n}", m) for n in lines for m in ("Privelet", "Transformed + Laplace")]
    made += [("threshold", t, str(large), f"threshold:{large}:{t}", "H^theta + Privelet") for t in limits]
    made += [("threshold 8 by domain", n, str(n), f"threshold:{n}:8", "H^theta + Privelet") for n in lines]
    for k in sides:
        box = f"{k}x{k}"
        made += [("grid", k, box, f"threshold:{box}:1", m) for m in ("Privelet", "Transformed + Privelet")]
        made.append(("grid, threshold 4", k, box, f"threshold:{box}:4", "H^theta + Privelet"))
    queries, runs = (200, 5) if smoke else (2000, 200)
    return [
        {
            "series": series,
            "size": str(size),
            "workload": f"random-range:{domain}:{queries}:seed=7",
            "policy": policy,
            "mechanism": mechanism,
            "epsilon": "1",
            "data": "none",
            "runs": str(runs),
        }
        for series, size, domain, policy, mechanism in made
    ]


def measure(cell: Row, random: np.random.Generator) -> dict[str, float | str]:
    """Run a data-independent mechanism on empty data: its errors are those on any data."""
    policy, W = bf.policy.parse(cell["policy"]), bf.workload.parse(cell["workload"]).matrix
    mechanism, draw = BUILD[cell["mechanism"]](policy), Seeded(random)
    empty, runs = np.zeros(policy.num_cells, dtype=np.int64), int(cell["runs"])
    errors = np.array([np.mean(W.mv(mechanism(empty, 1.0, draw)) ** 2) for _ in range(runs)])
    return {"mse": float(errors.mean()), "stderr": float(errors.std(ddof=1) / runs**0.5)}


EXPERIMENT = Experiment("orders", QUESTION, cells, RESULTS, measure, figures.orders(QUESTION))
