"""Numbers that are none, planted wherever a bundle or a fit holds a number; and fits put together from parts."""

import copy
import dataclasses
import json
import math

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate import Certificate
from tests.support.attack_kit import forge

NAN, INFINITY = math.nan, math.inf
PLANTED = [NAN, INFINITY, -INFINITY, -0.0, None, "NaN"]
SHOWN = 3
"""Entries of a long list in which something is planted."""

MADE = [("all-range:6", "line:6", {}), ("marginals:3x2x2:2", "sensitive:3x2x2:0", {"family": "marginals"})]


@pytest.fixture(scope="module", params=MADE, ids=["dense", "blocks"])
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
    assert fit.certificate.lower_bound > 0, "a gap may be infinite only where no bound is known"
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


def refused(fit):
    with pytest.raises(bf.InputError):
        bf.release(fit, np.arange(fit.problem.policy.num_cells), rho=0.02)


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

    honest = bf.plan(fit, rho=0.02)
    quiet = dataclasses.replace(honest, sampler=dataclasses.replace(honest.sampler, scale=honest.sampler.scale / 1000))
    with pytest.raises(bf.InputError):
        publish(quiet, fit, np.arange(fit.problem.policy.num_cells))
