"""Start: importing the package, the first fit of a process with and without kept programs, a second fit.

Every row is the fastest of three fresh processes. "first step" is the time from the start of the process to the first
step of a gradient search; "programs" are those compiled. With HDMM_BF_CACHE the programs of an earlier command are read
from disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time

from experiments.benchmarks.measure import Part, Table, own_process

WORKLOAD, POLICY = "all-range:64", "threshold:64:4"
REPEAT = 3


def report(*, quick: bool = False) -> list[Part]:
    """Return the tables."""
    repeat = 1 if quick else REPEAT
    rows = [
        ["import hdmm_bf", *_wall([sys.executable, "-c", "import hdmm_bf"], repeat), "0.3"],
        ["hdmm-bf --help", *_wall([sys.executable, "-m", "hdmm_bf", "--help"], repeat), "0.5"],
        ["hdmm-bf fit, Gaussian, 64 cells", *_wall(_command("gaussian"), repeat), "-"],
    ]
    bare = _wall([sys.executable, "-c", "pass"], repeat)
    rows.insert(0, ["python, nothing imported", *bare, "-"])
    return [Table(["what", "wall s", "limit s"], rows), _steps(repeat)]


def _command(noise: str) -> list[str]:
    return [sys.executable, "-m", "hdmm_bf", "fit", "-w", WORKLOAD, "-g", POLICY, "--noise", noise, "--json"]


def _wall(command: list[str], repeat: int) -> list[str]:
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    return [f"{min(times):.2f}"]


def _steps(repeat: int) -> Table:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        kept = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        own_process("experiments.benchmarks.start", environment=kept)
        for name, environment in (("nothing kept", {}), ("programs kept", kept)):
            runs = [own_process("experiments.benchmarks.start", environment=environment) for _ in range(repeat)]
            best = min(runs, key=lambda run: run["first"])
            rows.append([name, *(f"{best[key]:.2f}" for key in ("first", "fit", "second")), str(best["programs"])])
            rows[-1].append(str(best["programs again"]))
    headers = ["Laplace, 64 cells, 5 steps", "first step s", "first fit s", "second fit s", "programs", "in the second"]
    return Table(headers, rows)


def main() -> None:
    """Fit twice, and tell when the first gradient step was done and how many programs were compiled or read."""
    begun = time.perf_counter()
    import jax.monitoring

    import hdmm_bf as bf

    programs, steps, fits = [0], [], []

    def heard(event: str, seconds: float, **_: object) -> None:
        programs[-1] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(heard)
    for _ in range(2):
        wall = time.perf_counter()
        note = lambda point: steps.append(time.perf_counter() - begun)  # noqa: E731
        bf.fit(WORKLOAD, POLICY, noise="laplace", max_steps=5, callback=note)
        fits.append(time.perf_counter() - wall)
        programs.append(0)
    found = {"first": steps[1], "fit": fits[0], "second": fits[1]}
    print(json.dumps({**found, "programs": programs[0], "programs again": programs[1]}))


if __name__ == "__main__":
    main()
