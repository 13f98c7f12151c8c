"""Bundles and counts that commands work on."""

import shutil

import numpy as np
import pytest

import hdmm_bf as bf
from tests.support.releasing import COUNTS


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    bf.fit("all-range:6", "line:6").save(folder / "g.bf")
    bf.fit("all-range:6", "line:6", noise="laplace", max_steps=2).save(folder / "l.bf")
    bf.fit("identity:6", "cycle:6").save(folder / "c.bf")
    bf.fit("identity:6", "empty:6").save(folder / "public.bf")
    bf.fit("prefix:6", "line:6").save(folder / "p.bf")
    bf.fit("marginals:2x3:1", "unbounded:2x3", family="marginals").save(folder / "m.bf")
    tables = bf.fit("marginals:2x3:1", "product:line:2,empty:3", noise="laplace", family="union", max_steps=2)
    tables.save(folder / "t.bf")
    np.save(folder / "x.npy", COUNTS)
    (folder / "x.csv").write_text(",".join(map(str, COUNTS)))
    (folder / "bad.csv").write_text("1,2,3")
    (folder / "old.csv").write_text("paid for")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "work")
