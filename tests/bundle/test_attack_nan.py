"""Numbers that are none, planted wherever a bundle or a fit holds a number; and fits put together from parts."""

import copy
import dataclasses
import json
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate import Certificate
from hdmm_bf.problem.transform import Problem
from tests.support.attack_kit import forge
from tests.support.fits import shipped
from tests.support.trees import norm

NAN, INFINITY = math.nan, math.inf
PLANTED = [NAN, INFINITY, -INFINITY, -0.0, None, "NaN"]
SHOWN = 3
"""Entries of a long list in which something is planted."""

MADE = [
    ("all-range:6", "line:6", {}),
    ("marginals:3x2x2:2", "sensitive:3x2x2:0", {"family": "marginals"}),
    ("all-range:6", "threshold:6:2", {"noise": "norm", "max_steps": 1}),
]


@pytest.fixture(scope="module", params=MADE, ids=["dense", "blocks", "tree"])
def fit(request):
    workload, policy, options = request.param
    return bf.fit(workload, policy, **options)


def numbers(tree, path=()):
    """Yield the path of every number in a JSON value, and of every text that is one."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree[:SHOWN])
    for key, value in pairs:
        if isinstance(value, dict | list):
            yield from numbers(value, (*path, key))
        elif isinstance(value, int | float) or (isinstance(value, str) and value.isdigit()):
            yield *path, key


def planted(record, path, value):
    record = copy.deepcopy(record)
    tree = record
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value
    return record


@pytest.mark.parametrize("name", ["manifest", "certificate"])
@pytest.mark.parametrize("value", PLANTED, ids=map(str, PLANTED))
def test_a_number_of_a_bundle_that_is_none_is_refused_or_changes_nothing(fit, tmp_path, name, value):
    files = {file.name: file.read_bytes() for file in fit.save(tmp_path / "honest.bf").iterdir()}
    draft, believed = forge.opened(files), []
    honest = bf.load(tmp_path / "honest.bf").certificate
    for number, path in enumerate(numbers(getattr(draft, name))):
        changed = copy.deepcopy(draft)
        setattr(changed, name, planted(getattr(draft, name), path, value))
        try:
            loaded = bf.load(forge.write(changed, tmp_path / f"forged-{number}.bf"))
        except bf.InputError:
            continue
        told = json.loads(json.dumps(loaded.summary(), allow_nan=False))
        if loaded.certificate != honest or told["noise"] != fit.noise or (value is NAN and path[0] != "versions"):
            believed.append((path, value))
    assert not believed


FLOATS = ["sensitivity", "support", "unit_error", "svd_bound", "lower_bound", "gap"]
WHOLE = ["sensitivity_exact", "bits"]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY], ids=str)
def test_a_certificate_holds_no_number_that_is_none(fit, name, value):
    if fit.noise == "norm" and (name, value) in (("gap", INFINITY), ("lower_bound", INFINITY)):
        pytest.skip("no bound is known of tree norms")
    with pytest.raises(bf.InputError):
        dataclasses.replace(fit.certificate, **{name: value})


@pytest.mark.parametrize("name", [*FLOATS, *WHOLE])
@pytest.mark.parametrize("value", [NAN, None, "NaN"], ids=str)
def test_a_certificate_is_not_made_of_other_things_than_numbers(fit, name, value):
    record = {field.name: getattr(fit.certificate, field.name) for field in dataclasses.fields(fit.certificate)}
    with pytest.raises((bf.InputError, TypeError)):  # TypeError: the types are checked in tests
        Certificate(**{**record, name: value})


@pytest.mark.parametrize("name", WHOLE)
def test_a_certificate_holds_no_negative_whole_number(fit, name):
    with pytest.raises(bf.InputError):
        dataclasses.replace(fit.certificate, **{name: -1})


# Fits put together from parts


def louder(strategy):
    """Return a strategy whose answers are a thousand times as large as the certificate knows."""
    if strategy.kind != "blocks":
        return dataclasses.replace(strategy, integers=1000 * strategy.integers)
    blocks = [dataclasses.replace(block, precisions=1e6 * block.precisions) for block in strategy.blocks]
    return dataclasses.replace(strategy, blocks=tuple(blocks))


def asked(fit):
    return {"epsilon": 0.5} if fit.noise == "norm" else {"rho": 0.02}


def quieter(sampler):
    if sampler.noise == "norm":
        return dataclasses.replace(sampler, ratios=sampler.ratios**1.001)
    return dataclasses.replace(sampler, scale=sampler.scale / 1000)


def refused(fit):
    with pytest.raises(bf.InputError):
        bf.release(fit, np.arange(fit.problem.policy.num_cells), **asked(fit))


def test_a_fit_with_another_strategy_is_not_released(fit):
    refused(dataclasses.replace(fit, strategy=louder(fit.strategy)))


def test_a_fit_with_the_certificate_of_less_is_not_released(fit):
    held = fit.certificate
    less = {"sensitivity_exact": held.sensitivity_exact // 10**6, "sensitivity": held.sensitivity / 1000}
    refused(dataclasses.replace(fit, certificate=dataclasses.replace(held, **less)))


def test_a_fit_under_another_policy_is_not_released():
    fit, other = bf.fit("all-range:6", "line:6"), bf.fit("all-range:6", "bounded:6")
    assert other.certificate.sensitivity_exact != fit.certificate.sensitivity_exact
    refused(dataclasses.replace(fit, problem=other.problem))


def test_a_plan_with_less_noise_is_not_carried_out(fit):
    from hdmm_bf.release.publish import publish

    honest = bf.plan(fit, **asked(fit))
    quiet = dataclasses.replace(honest, sampler=quieter(honest.sampler))
    with pytest.raises(bf.InputError):
        publish(quiet, fit, np.arange(fit.problem.policy.num_cells))


def test_noise_of_another_tree_or_policy_is_not_added():
    """Quotes NormRecovery.measure: noise that is not made for this tree under this policy is refused."""
    from hdmm_bf.release.publish import publish

    fits = [
        shipped(Problem(bf.workload.identity(n), made), norm(parents, weights), "norm")
        for n, made, parents, weights in (
            (4, bf.policy.bounded(4), [4, 4, 4, 4, -1], [4, 4, 4, 4, 0]),
            (4, bf.policy.bounded(4), [4, 4, 5, 5, 6, 6, -1], [3, 3, 3, 3, 1, 1, 0]),
            (4, bf.policy.from_edges([0, 2], [1, 3], 4), [4, 4, 5, 5, -1, -1], [4, 4, 4, 4, 0, 0]),
            (4, bf.policy.from_edges([0, 1, 2], [1, 3, -1], 4), [4, 4, -1, 4, -1], [4, 4, 8, 4, 0]),
            (9, bf.policy.bounded(9), [9] * 9 + [-1], [4] * 9 + [0]),
            (2, bf.policy.bounded(2), [2, 2, -1], [4, 4, 0]),
        )
    ]
    assert {fit.certificate.sensitivity_exact for fit in fits} == {8}
    for k, fit in enumerate(fits):
        x = np.arange(fit.problem.policy.num_cells)
        publish(bf.plan(fit, epsilon=1.0), fit, x)
        for other in fits[:k] + fits[k + 1 :]:
            with pytest.raises(bf.InputError):
                publish(bf.plan(other, epsilon=1.0), fit, x)
