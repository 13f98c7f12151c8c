"""Run by the tests of devices in processes of their own, because JAX counts its devices once.

python -m tests.support.on_devices OUT.npz NAMES DEVICES[,DEVICES...] [PROCESS PROCESSES PORT]
"""

import sys

import numpy as np


def spd(n, condition, rng):
    """A random positive definite matrix with largest eigenvalue 1."""
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    S = (Q * np.geomspace(1, 1 / condition, n)) @ Q.T
    return (S + S.T) / 2


def problems():
    """Arguments of `fit` by name: a policy off forests, ordinary privacy, a singular workload, pure epsilon."""
    import hdmm_bf as bf

    rng = np.random.default_rng(5)
    pairs = [(u, v) for u in range(30) for v in range(u) if rng.uniform() < 0.15]
    u, v = np.array([*pairs, (29, -1)]).T
    W = rng.integers(0, 2, size=(17, 30))
    return {
        "ranges": {"workload": "all-range:64", "policy": "threshold:64:4"},
        "prefix": {"workload": "prefix:64", "policy": "unbounded:64"},
        "singular": {"workload": W, "policy": bf.policy.from_edges(u, v, 30)},
        "factors": {"workload": "all-range:12x9", "policy": "sensitive:12x9:1", "family": "kronecker"},
        "laplace": {"workload": "all-range:16", "policy": "unbounded:16", "noise": "laplace", "max_steps": 5},
    }


def fitted(names, devices, **mesh):
    """Fit the named problems; return their numbers by number of devices and name."""
    import hdmm_bf as bf
    from hdmm_bf.strategies.gaussian import dense as gaussian

    found = {}
    for name in names:
        made = bf.fit(**problems()[name], **mesh or {"devices": devices})
        assert gaussian.GATHERED not in made.why
        found[f"{devices} {name} numbers"] = np.array([made.unit_error, made.bounds.lower, made.bounds.svd])
        A = made.strategy.matrix()
        found[f"{devices} {name} gram"] = A.T @ A
    return found


def looked_into(devices):
    """Return what the kernel of the first problem holds and how it was compiled."""
    from hdmm_bf.parallel import devices as dv
    from hdmm_bf.parallel.grams import spread_gram
    from hdmm_bf.problem import inputs
    from hdmm_bf.strategies.gaussian import dense as gaussian

    mesh = dv.as_mesh(devices, None)
    matrices = gaussian.on_devices(inputs.problem("all-range:64", "threshold:64:4"), mesh, gap=1e-3).matrices
    point = matrices.at(np.full(matrices.forms.num_edges, 1 / matrices.forms.num_edges))
    held = [*matrices.constants, point.X, point.L, point.root, point.inverse]
    sizes = [[shard.data.nbytes for shard in array.addressable_shards] for array in held]
    compiled = matrices.compiled()
    V = spread_gram(np.eye(64), mesh).in_rows_
    return {
        f"{devices} edge shards": np.array([shard.data.nbytes for shard in V.addressable_shards]),
        f"{devices} shards": np.array(sizes),
        f"{devices} program": np.array(compiled.as_text()),
        f"{devices} temporary": np.array(compiled.memory_analysis().temp_size_in_bytes),
    }


def main(out, names, devices, process=None, processes=None, port=None):
    """Fit, look, and save."""
    import jax

    named, counts = names.split(","), [int(number) for number in devices.split(",")]
    if process is None:
        jax.config.update("jax_num_cpu_devices", max(counts))
        found = [fitted(named, count) | looked_into(count) for count in counts]
    else:
        jax.config.update("jax_num_cpu_devices", counts[0] // int(processes))
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=int(processes), process_id=int(process))
        found = [fitted(named, counts[0], mesh=jax.sharding.Mesh(np.array(jax.devices()), ("all",)))]
    np.savez(out, **{key: value for run in found for key, value in run.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
