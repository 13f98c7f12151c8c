"""Every option of `fit` on every path: honoured, or refused with a sentence; what is recorded was honoured."""

import inspect
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.fit.options import FAMILIES, PRODUCT_FAMILIES
from hdmm_bf.strategies import registry
from hdmm_bf.strategies.laplace.portfolio import PATIENCE

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
PROBLEMS = {
    "dense gaussian": ("all-range:8", "threshold:8:2", "gaussian", None),
    "dense p-identity": ("all-range:8", "line:8", "laplace", "p-identity"),
    "dense cell-budgets": ("all-range:8", "bounded:8", "laplace", "cell-budgets"),
    "dense vertex": ("all-range:8", "threshold:8:2", "laplace", "vertex"),
    "dense dictionary": ("all-range:8", "threshold:8:2", "laplace", "dictionary"),
    "dense tables": ("marginals:3x4x2:2", "sensitive:3x4x2:0,1", "laplace", "tables"),
    "dense grid": ("all-range:4x4", "threshold:4x4:1", "laplace", "grid"),
    "marginals": ("marginals:3x4x2:1", "sensitive:3x4x2:0,1", "gaussian", "marginals"),
    "sectors": ("marginals:9x4:1", "product:line:9,bounded:4", "gaussian", "sectors"),
    "kronecker": ("all-range:6x5", "unbounded:6x5", "gaussian", "kronecker"),
    "bases": ("all-range:6x6", "threshold:6x6:1", "gaussian", "bases"),
    "bases in balls": ("all-range:4x4", "threshold:4x4:2", "gaussian", "bases"),
    "laplace kronecker": ("all-range:6x6", "threshold:6x6:1", "laplace", "kronecker"),
    "laplace tables": ("marginals:3x4x2:1", "sensitive:3x4x2:0,1", "laplace", "union"),
    "laplace union": ("all-range:6x5", "threshold:6x5:1", "laplace", "union"),
    "laplace layers": ("marginals:3x4x2:2", "sensitive:3x4x2:0,1", "laplace", "layers"),
    "laplace directions": ("all-range:5x4", "threshold:5x4:1", "laplace", "directions"),
    "directions in balls": ("all-range:4x3", "threshold:4x3:2", "laplace", "directions"),
    "cells": ("all-range:6x6", "unbounded:6x6", "laplace", "cells"),
    "tree chain": ("all-range:8", "threshold:8:2", "norm", "chain"),
    "tree hierarchy": ("all-range:8", "unbounded:8", "norm", "hierarchy"),
    "tree blocks": ("prefix:8", "threshold:8:3", "norm", "blocks"),
    "tree clusters": ("identity:8", "bounded:8", "norm", "clusters"),
    "tree flows": ("all-range:5x4", "threshold:5x4:1", "norm", "flows"),
    "public tree": (np.ones((2, 5)), "bounded:5", "norm", None),
    "public": (np.ones((2, 5)), "bounded:5", "gaussian", None),
    "public laplace": (np.ones((2, 5)), "bounded:5", "laplace", None),
    "public product": ("identity:4x3", "product:empty:4,empty:3", "gaussian", "bases"),
}
"""One small problem a path."""


def test_the_documentation_of_fit_names_every_family():
    told = bf.fit.__doc__.partition("family:")[2].partition("seed:")[0]
    assert [name for name in registry.names() if name not in told] == []


GIVEN = {
    "noise": "noise",
    "gap": 0.9,
    "max_seconds": 1.5,
    "max_steps": 2,
    "family": "family",
    "seed": 7,
    "start": "start",
    "workers": 2,
    "devices": 1,
    "mesh": "mesh",
    "callback": "callback",
    "effort": "quick",
    "epsilon": 1.0,
    "delta": 1e-6,
}
"""A value for every option, or its name where it depends on the path."""

DENSE_LAPLACE = tuple(name for name in PROBLEMS if name.startswith("dense") and name != "dense gaussian")
TREES = tuple(name for name in PROBLEMS if "tree" in name)
STRUCTURED = (
    "marginals",
    "sectors",
    "kronecker",
    "bases",
    "bases in balls",
    "laplace kronecker",
    "laplace tables",
    "laplace union",
    "laplace layers",
    "laplace directions",
    "directions in balls",
    "cells",
)
SPREAD = ("dense gaussian", "dense p-identity", "kronecker", "public")
REFUSED = {
    **{(path, "start"): "do not start from an earlier fit" for path in (*STRUCTURED, "public product")},
    **{(path, "workers"): "in one process" for path in PROBLEMS if path not in (*DENSE_LAPLACE, "public laplace")},
    **{
        (path, "effort"): "does not use it"
        for path in PROBLEMS
        if path not in (*DENSE_LAPLACE, *TREES, "public laplace")
    },
    **{(path, name): "spread" for path in PROBLEMS if path not in SPREAD for name in ("devices", "mesh")},
    **{(path, name): "run on the host" for path in TREES for name in ("devices", "mesh")},
    **{(path, "start"): "tree norms do not start" for path in TREES},
    **{(path, name): "are not used by" for path in PROBLEMS for name in ("epsilon", "delta")},
}
"""All other pairs are honoured."""

RECORDED = ("max_seconds", "max_steps", "family", "workers", "effort")

PAIRS = [(path, option) for path in PROBLEMS for option in GIVEN]


def test_the_table_has_every_option_and_every_family():
    problem = {"workload", "policy", "domain", "objective", "targets", "groups"}  # what, not how: see test_goals
    options = {*inspect.signature(bf.fit).parameters} - problem
    assert options == {*GIVEN}, "say in GIVEN and REFUSED what every path does with a new option"
    assert {family for *_, family in PROBLEMS.values()} >= {*FAMILIES["laplace"], *FAMILIES["norm"], *PRODUCT_FAMILIES}


def value(path, option):
    workload, policy, noise, family = PROBLEMS[path]
    if option == "start":
        return bf.fit(workload, policy, noise=noise, max_steps=1)
    if option == "mesh":
        import jax

        return jax.sharding.Mesh(jax.devices()[:1], ("rows",))
    return {"noise": noise, "family": family, "callback": [].append}.get(option, GIVEN[option])


def fitted(path, **options):
    workload, policy, noise, family = PROBLEMS[path]
    return bf.fit(workload, policy, **{"noise": noise, "family": family, "max_steps": 2, **options})


@pytest.mark.parametrize(("path", "option"), PAIRS)
def test_every_option_on_every_path_is_honoured_or_refused(path, option):
    given = value(path, option)
    if (path, option) in REFUSED:
        with pytest.raises(bf.InputError, match=REFUSED[path, option]):
            fitted(path, **{option: given})
        return
    made = fitted(path, **{option: given})
    if made.status == "exact":
        assert made.options == {}, "nothing was searched"
        return
    asked = {"max_steps": 2, "family": PROBLEMS[path][3], option: given}
    expected = {name: asked[name] for name in RECORDED if asked.get(name) is not None}
    assert made.options == expected
    honoured(path, option, given, made)


@pytest.mark.slow
def test_quick_ends_after_one_look_and_thorough_goes_on_longer():
    """Quotes fit: "quick" after one look at every family, "normal" ..., "thorough" after four times as many."""
    quick, normal = (
        bf.fit("all-range:8", "unbounded:8", noise="laplace", workers=1, effort=effort, max_seconds=900.0)
        for effort in ("quick", "normal")
    )
    assert quick.status == normal.status == "finished"
    assert len(quick.trace) < len(normal.trace)
    given = {"max_seconds": 900.0, "workers": 1}
    assert quick.unit_error >= normal.unit_error * (1 - 1e-9)
    assert (quick.options, normal.options) == ({**given, "effort": "quick"}, given)
    last = 100
    ends = {
        effort: next(k for k in range(last, 9999) if patience.ends(k, last)) for effort, patience in PATIENCE.items()
    }
    assert ends["quick"] == last
    assert ends["normal"] - last >= last
    assert ends["thorough"] - last >= 4 * last


def honoured(path, option, given, made):
    """Look for the trace that an option leaves in the result."""
    closed = path in ("marginals", "laplace tables")
    if option == "noise":
        assert made.noise == given
    elif option == "gap":
        assert made.requested_gap == given
        assert (made.status == "converged") == (made.gap <= given)
    elif option == "max_steps":
        steps = len(made.trace) if path != "kronecker" else 1
        assert steps <= given
        assert closed or made.status in ("iteration limit", "converged", "finished")
    elif option == "seed":
        assert made.seed == given
    elif option == "start":
        other = given.unit_error if path != "dense gaussian" else made.unit_error
        assert made.unit_error <= other * (1 + 1e-6)
    elif option == "effort":
        assert path in (*DENSE_LAPLACE, *TREES), "what is recorded was honoured"
    elif option == "callback":
        assert given.__self__, "the callback was called"


@pytest.mark.parametrize(
    ("workload", "policy", "family", "max_steps"),
    [
        ("all-range:24", "unbounded:24", "p-identity", 5),
        ("all-range:24", "unbounded:24", "cell-budgets", 5),
        ("all-range:16", "threshold:16:4", "vertex", 5),
        ("all-range:28x28", "unbounded:28x28", "kronecker", 5),
        ("all-range:20x20", "unbounded:20x20", "cells", 2),
    ],
)
def test_seeds_steer_what_draws_random_numbers(workload, policy, family, max_steps):
    """On sizes where a search beats the mechanisms that it starts from, which draw nothing."""
    options = {"noise": "laplace", "family": family, "max_steps": max_steps}
    traces = [[p.error for p in bf.fit(workload, policy, seed=seed, **options).trace] for seed in (0, 0, 5)]
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


def test_structured_laplace_fits_take_longer_when_they_are_allowed_to(monkeypatch):
    """A limit above the default one is not cut down to it."""
    from hdmm_bf.fit import structured

    seen = []
    monkeypatch.setattr(structured, "_LAPLACE_SECONDS", 1e-6)
    made = fitted("laplace kronecker", max_steps=None, max_seconds=3.0, callback=seen.append)
    assert len(seen) > 1
    assert made.options["max_seconds"] == 3.0
    assert fitted("laplace kronecker", max_steps=None).status == "time limit", "the default limit, when none is given"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_seconds": math.nan}, "max_seconds=nan.*positive"),
        ({"max_seconds": math.inf}, "max_seconds=inf.*leave max_seconds out"),
        ({"max_seconds": 0.0}, "max_seconds=0.*positive"),
        ({"max_seconds": -1.0}, "max_seconds=-1.*positive"),
        ({"gap": math.nan}, "gap=nan.*positive"),
        ({"gap": math.inf}, "gap=inf.*positive"),
        ({"workers": 0}, "workers=0.*at least 1"),
        ({"workers": 10**9, "noise": "laplace"}, "workers=1000000000.*at most 256"),
        ({"seed": -1}, "seed=-1.*at least 0"),
        ({"seed": 10**400}, "seed of 1329 bits"),
        ({"max_steps": 0}, "max_steps=0.*at least 1"),
        ({"effort": "quik", "noise": "laplace"}, "effort='quik'.*Did you mean 'quick'"),
        ({"family": "vertx"}, "not a family for Gaussian noise.*Known: bases, gaussian, kronecker, marginals, sectors"),
        ({"family": "vertex"}, "is for Laplace noise.*Leave the family out"),
        ({"family": "vertx", "noise": "laplace"}, "Did you mean 'vertex'"),
        ({"family": "bases", "noise": "laplace"}, "is for Gaussian noise.*p-identity"),
        ({"family": "basis", "noise": "laplace"}, "not a family for Laplace noise(?!.*bases)"),
        ({"family": "cells", "noise": "laplace", "policy": "threshold:4x4:1"}, "'cells'.*ordinary privacy"),
        ({"family": "kronecker", "noise": "laplace", "workload": "marginals:4x4:1"}, "one product of queries.*union"),
        ({"start": np.array([1.0, math.nan]), "policy": "line:16", "workload": "prefix:16"}, "finite"),
    ],
)
def test_options_out_of_range_are_refused_with_a_sentence(options, words):
    workload, policy = options.pop("workload", "all-range:4x4"), options.pop("policy", "unbounded:4x4")
    with pytest.raises(bf.InputError, match=words):
        bf.fit(workload, policy, **options)


WRONG_TYPES = """
import math, numpy as np, hdmm_bf as bf
wrong = [{"max_seconds": "9"}, {"max_seconds": True}, {"gap": None}, {"seed": 1.5}, {"noise": "gauss"}, {"family": 3}]
wrong += [{"start": "weights"}, {"start": [1.0, math.nan]}, {"workers": 1.0}, {"max_steps": "3"}]
for options in wrong:
    try:
        bf.fit("prefix:6", "line:6", **options)
    except bf.InputError as error:
        assert "fit(" in str(error), error
    else:
        raise AssertionError(options)
options = {"max_steps": np.int64(3), "seed": np.int64(4), "gap": np.float32(0.5), "max_seconds": np.float32(9)}
bf.fit("prefix:6", "line:6", **options).save("numpy.bf")
assert bf.load("numpy.bf").options == {"max_steps": 3, "max_seconds": 9.0}
bf.fit("prefix:6", "line:6", max_seconds=5).save("whole.bf")
"""


def test_options_of_other_types_are_refused_and_numbers_of_numpy_taken(tmp_path):
    """In a process of its own: here the shapes and types of all arguments are checked before."""
    command = [sys.executable, "-c", WRONG_TYPES]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert run.returncode == 0, run.stderr


def test_seeds_may_be_large(tmp_path):
    large = bf.fit("prefix:6", "threshold:6:2", noise="laplace", max_steps=3, seed=10**200)
    large.save(tmp_path / "large.bf")
    assert bf.load(tmp_path / "large.bf").seed == 10**200
