"""Bundles are whole, old or new, or none: whatever happens to the process that saves them."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from tests.support.mistakes import PEOPLE, _as_users_run_it  # noqa: F401
from tests.support.mutations import report

# Killed while it saves

KILLED = """
import os, random, signal, sys, time, warnings
warnings.simplefilter("ignore")  # about fork beside threads
import hdmm_bf as bf
first, second, target = sys.argv[1:]
fits = [bf.load(first), bf.load(second)]
random.seed(7)
for _ in range(20):
    child = os.fork()
    if child == 0:
        while True:
            for fit in fits:
                fit.save(target)
    time.sleep(random.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if os.path.lexists(target):
        print(bf.load(target).problem.workload.spec)
    else:
        print("none")
        fits[0].save(target)
"""


def test_a_process_killed_while_it_saves_leaves_a_whole_bundle_or_none(honest, tmp_path):
    paths = [tmp_path / name for name in ("one.bf", "two.bf")]
    for path, kind in zip(paths, ("named", "labels"), strict=True):
        path.mkdir()
        for name, content in honest[kind].items():
            (path / name).write_bytes(content)
    shutil.copytree(paths[0], tmp_path / "target.bf")
    process = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, paths), str(tmp_path / "target.bf")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    ends = process.stdout.splitlines()
    assert len(ends) == 20
    report("killed while saving", *(sum(end != "none" for end in ends), ends.count("none")))
    assert set(ends) <= {"all-range:6", "identity:2x3", "none"}
    assert bf.load(tmp_path / "target.bf").problem.workload.spec in ("all-range:6", "identity:2x3")


STEP = """
import os, pathlib, signal, sys
import hdmm_bf as bf
made = bf.load(sys.argv[1])
left = int(sys.argv[3])
def counted(act):
    def run(self, *arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(self, *arguments, **options)
    return run
for name in ("mkdir", "write_bytes", "rename"):
    setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
made.save(sys.argv[2])
"""


@pytest.mark.slow
def test_a_process_killed_at_any_step_of_a_save_leaves_the_old_bundle_the_new_one_or_none(honest, tmp_path):
    new, target = tmp_path / "new.bf", tmp_path / "target.bf"
    new.mkdir()
    for name, content in honest["labels"].items():
        (new / name).write_bytes(content)
    found = []
    for step in range(1, 9):
        shutil.rmtree(target, ignore_errors=True)
        bf.fit("prefix:4", "line:4").save(target)
        process = subprocess.run(
            [sys.executable, "-c", STEP, str(new), str(target), str(step)], check=False, timeout=60
        )
        killed = process.returncode == -signal.SIGKILL
        found.append((killed, bf.load(target).problem.workload.spec if target.exists() else "none"))
    old, none, done = (True, "prefix:4"), (True, "none"), (False, "identity:2x3")
    assert found == [*[old] * 6, none, done], "mkdir, four files, two renames"


def test_a_save_that_cannot_take_the_place_of_the_old_bundle_brings_it_back(honest, tmp_path, monkeypatch):
    target = tmp_path / "target.bf"
    made = bf.fit("prefix:4", "line:4")
    made.save(target)
    rename = Path.rename

    def fails(self, goal):
        if ".new-" in self.name:
            raise OSError(5, "Input/output error")
        return rename(self, goal)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(InputError, match="Input/output error"):
        made.save(target)
    monkeypatch.undo()
    assert bf.load(target).problem.workload.spec == "prefix:4"
    assert os.listdir(tmp_path) == ["target.bf"]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"], ids=["long", "nul"])
def test_a_path_that_cannot_be_a_bundle_is_refused(name, tmp_path):
    for act in (bf.load, bf.fit("prefix:3", "line:3").save):
        with pytest.raises(InputError, match="there is no such folder|is not a bundle|cannot be written"):
            act(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
