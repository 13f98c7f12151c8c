"""Bundles whose bound is not what their proof proves, by factors."""

import json

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.bundle import BundleError
from hdmm_bf.fit import loading
from tests.support.bundles import forge


def test_a_bundle_that_claims_more_than_its_proof_proves_disagrees(tmp_path):
    made = bf.fit("all-range:70x70", "threshold:70x70:1", max_steps=1)
    assert made.proof["kind"] == "grid"
    path = made.save(tmp_path / "grid.bf")
    assert loading.check(path)[1] == []

    def claim(folder, manifest):
        claimed = json.loads((folder / "certificate.json").read_text())
        for record in (manifest, claimed):
            record["lower_bound"] = record["lower_bound"] * (1 + 1e-8)
        (folder / "certificate.json").write_text(json.dumps(claimed))

    forge(path, claim)
    found = loading.check(path)[1]
    assert any("certificate.json: lower_bound is claimed" in item for item in found)
    with pytest.raises(BundleError, match="lower_bound"):
        bf.load(path)


def test_weights_changed_in_a_bundle_prove_less_and_are_found_out(tmp_path):
    made = bf.fit("all-range:70x70", "threshold:70x70:1", max_steps=1)
    path = made.save(tmp_path / "grid.bf")

    def tilt(folder, _):
        with np.load(folder / "blocks.npz") as held:
            arrays = dict(held)
        arrays["proof_cells@0"] = arrays["proof_cells@0"] * np.linspace(1.0, 2.0, 70)
        np.savez(folder / "blocks.npz", **arrays)

    forge(path, tilt)
    loaded, found = loading.check(path)
    assert loaded.bounds.lower < made.bounds.lower
    assert any("lower_bound is claimed" in item for item in found)
