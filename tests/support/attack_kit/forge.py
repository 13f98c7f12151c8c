"""A forger of bundles: honest ones of every kind, changed in one or several ways, with all sums made again.

Everything is seeded. In half of the cases the forger lets the package derive the claims of what was forged and writes
them into the files, so that only the strategy itself, not a disagreement, can give it away.
"""

import copy
import hashlib
import io
import json
import warnings
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import hdmm_bf as bf
from hdmm_bf.fit import loading
from hdmm_bf.fit.certified import certificate
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.blocks import noise_block
from hdmm_bf.strategies.records import Gains, GroupedTree, JoinedBlock, Layer, NoiseSum, TreePart, TreeSum
from tests.support.attack_kit import joined_tricks, noise_tricks, part_tricks, tree_tricks, tricks
from tests.support.trees import chain, norm

W = np.array([[1.0, 2, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]])


KEPT = "blocks.npz", "tree.npz", "grouped_tree.npz", "tree_sum.npz", "strategy.npz"
"""Files that hold a strategy."""


def honest_fits():
    """Return one small fit of every kind of strategy."""
    graph = bf.policy.from_edges([0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, -1], 6)
    parts = bf.policy.from_edges([0, 1, 3, 4], [1, 2, 4, -1], 6)  # public, hidden, and a cell by itself
    few, tree = {"noise": "laplace", "max_steps": 2}, {"noise": "norm", "max_steps": 1}
    one = bf.fit("all-range:6", "threshold:6:2", **tree)
    return {
        "gaussian": bf.fit("all-range:6", "line:6"),
        "gaussian star": bf.fit("prefix:5", "unbounded:5"),
        "gaussian custom": bf.fit(W, graph),
        "laplace": bf.fit("all-range:6", "line:6", **few),
        "laplace complete": bf.fit("identity:5", "bounded:5", **few),
        "edge cycle": bf.fit("all-range:6", "cycle:6", **few),
        "edge grid": bf.fit("all-range:3x3", "threshold:3x3:1", family="dictionary", **few),
        "tree": one,
        "tree hidden": bf.fit("prefix:5", "unbounded:5", **tree),
        "tree parts": bf.fit("identity:6", parts, **tree),
        "marginals": bf.fit("marginals:3x2x2:2", "sensitive:3x2x2:0", family="marginals"),
        "sectors": bf.fit("marginals:3x2x2:2", "product:line:3,bounded:2,empty:2", family="sectors"),
        "kronecker": bf.fit("all-range:3x3", "product:line:3,empty:3", family="kronecker"),
        "bases": bf.fit("all-range:3x3", "threshold:3x3:1", family="bases"),
        "union": bf.fit("marginals:3x2x2:1", "unbounded:3x2x2", noise="laplace", family="union"),
        "laplace kronecker": bf.fit("all-range:3x3", "unbounded:3x3", family="kronecker", **few),
        **honest_sums(),
        **honest_groups(one),
        **honest_tree_sums(one),
    }


def honest_groups(fit):
    """Return small tree norms within public groups: of a public total, and with "no record", groups first or last."""
    line, star = chain(3, 0.3, 0.2), norm([3, 3, 4, 4, -1], [5, 3, 2, 2, 1])
    made = {
        "tree groups": ("prefix:3x2x2", "product:line:3,empty:2,empty:2", GroupedTree(line, (0,), (3, 2, 2))),
        "tree groups hidden": ("all-range:2x3", "product:empty:2,unbounded:3", GroupedTree(star, (1,), (2, 3))),
    }
    return {
        name: fit_by_hand(fit, bf.problem(workload, policy), strategy, noise="norm")
        for name, (workload, policy, strategy) in made.items()
    }


def honest_tree_sums(fit):
    """Return small sums of tree norms: on a grid, with stars to "no record", with a tree of its own, and as fitted."""
    pair, three = norm([2, 2, -1], [4, 3, 2]), norm([3, 3, 4, 4, -1], [5, 3, 2, 2, 1])
    line, star = ([(v, v + 1) for v in range(2)], [(v, -1) for v in range(3)])
    across, ways = along(three, 0, 1, [(0, 1)]), [(1, 0), (1, 2), (2, -1)]
    made = {
        "tree sum": ("prefix:3x2", "product:line:3,line:2", (along(pair, 1, 0, line), across)),
        "tree sum stars": ("all-range:3x2x2", "product:bounded:3,line:2,empty:2", (along(pair, 1, 0, star), across)),
        "tree sum own": (
            "all-range:3x2",
            "product:line:3,bounded:2",
            (along(norm([3, 3, 4, 4, -1], [5, 3, 2, 2, 0]), 0), along(three, 0, 1, star[:2])),
        ),
        "tree sum hidden": ("prefix:3x2", "product:unbounded:3,line:2", (along(pair, 1, 0, ways), across)),
    }
    found = {"tree sum fitted": bf.fit("all-range:3x3", "threshold:3x3:1", noise="norm", family="flows", max_steps=1)}
    assert isinstance(found["tree sum fitted"].strategy, TreeSum)
    for name, (workload, policy, parts) in made.items():
        problem = bf.problem(workload, policy)
        found[name] = fit_by_hand(fit, problem, TreeSum(parts, problem.policy.domain.sizes, "by hand"), noise="norm")
    return found


def along(tree, axis, attribute=None, graph=()):
    """Noise along an attribute, by a tree on another; or on the cells."""
    return TreePart(tree, (axis,), attribute, np.array(graph, dtype=np.int64).reshape(-1, 2))


def honest_sums():
    """Return small sums of noise: by attributes, on a grid, with "no record", over edges, all moves in one block."""
    one = {"noise": "laplace", "max_steps": 1, "family": "directions"}
    found = {
        "sum": bf.fit("all-range:3x3x2", "product:line:3,bounded:3,empty:2", **one),
        "sum grid": bf.fit("all-range:3x3", "threshold:3x3:1", **one),
        "sum hidden": bf.fit("prefix:3x3", "product:unbounded:3,line:3", **one),
        "sum cells": bf.fit("identity:4x3", "sensitive:4x3:0,1", **one | {"family": "kronecker"}),
    }
    assert all(isinstance(fit.strategy, NoiseSum) for fit in found.values())
    assert any(len(hides) > 1 for hides in found["sum cells"].strategy.hides)
    return found | {
        "sum parts": sum_by_hand(found["sum"]),
        "sum joined": joined_by_hand(found["sum"]),
        "sum beside": joined_by_hand(found["sum"], beside=True),
        "sum layers": layers_by_hand(found["sum"]),
        "sum outside": layers_by_hand(found["sum"], outside=True),
    }


def sum_by_hand(fit):
    """A sum for attribute graphs of one's own, with binary places and rows of different precisions."""
    parts = bf.policy.from_edges([0, 1, 3], [1, -1, 4], 5)  # hidden, a value by itself, and public
    graph = bf.policy.product(parts, bf.policy.from_edges([0, 0], [1, 2], 3))
    problem = Problem(bf.workload.parse("prefix:5x3"), graph)
    rows, star = np.eye(5) + 0.1 * np.tri(5), np.array([[1.0, 1, 1], [0, 0.7, 0], [0, 0, 0.3]])
    first = noise_block((rows, np.eye(3)), np.geomspace(1, 9, 5)[:, None] * np.ones((1, 3)))
    second = noise_block((np.eye(5), star), np.array([[np.inf, 2.0, 3.0]]))
    return fit_by_hand(fit, problem, NoiseSum((first, second), ((0,), (1,)), "by hand"))


def joined_by_hand(fit, *, beside=False):
    """Two joined blocks with any rows and gains, or one beside a product of rows; one attribute is without edges."""
    rng = np.random.default_rng(5)
    parts = bf.policy.from_edges([0, 1, 2], [1, -1, 3], 5)  # hidden, public, and a value by itself
    graph = bf.policy.product(parts, bf.policy.from_edges([0, 0], [1, 2], 3), bf.policy.empty(2))
    problem = Problem(bf.workload.parse("prefix:5x3x2"), graph)

    first = any_joined(rng, (0, 2), (0,), [(1,)], 10, 4, (1,))
    second = any_joined(rng, (0, 1), (1,), [(2,)], 15, 5, (2,))
    own = noise_block((np.eye(5), np.array([[1.0, 1, 1], [0, 1, 0], [0, 0, 1]]), np.eye(2)), np.full((1, 3, 1), 2.0))
    made = NoiseSum((own,), ((1,),), "by hand", (first,)) if beside else NoiseSum((), (), "by hand", (first, second))
    return fit_by_hand(fit, problem, made)


def layers_by_hand(fit, *, outside=False):
    """Two blocks with rows on several tables; the first hides two joined attributes, or a joined one and one outside.

    The second hides one outside. There records may also come and go; it then loses more than the first one, because
    it keeps no totals and can take up every move.
    """
    rng = np.random.default_rng(7)
    pairs, line = bf.policy.from_edges([0, 2], [1, 3], 4), bf.policy.line(2)
    last = bf.policy.from_edges([0, 1], [-1, -1], 2) if outside else line
    problem = Problem(bf.workload.parse("prefix:4x2x2x2"), bf.policy.product(pairs, line, last, bf.policy.empty(2)))
    axes, keeps = ((0,), [(1, 2, 3), (2,), (1,), ()]) if outside else ((0, 1), [(2, 3), (3,), ()])
    first = any_joined(rng, axes, (0, 1), keeps, 4 if outside else 8, 2, (2, 3))
    second = any_joined(rng, (1,), (2,), [(0, 2), (3,), ()], 2, 0 if outside else 2, (0, 3))
    second = replace(second, weights=8 * second.weights) if outside else second
    return fit_by_hand(fit, problem, NoiseSum((), (), "by hand", (first, second)))


def any_joined(rng, axes, hides, keeps, n, totals, kept):
    """A joined block with any weights, rows and gains, the latter on what numbers keep and on nothing."""

    def gains(own, rows):
        return tuple(Gains(some, rng.integers(-9, 10, (n, rows))) for some in dict.fromkeys([own, ()]) if rows)

    layers = tuple(Layer(own, rng.integers(-9, 10, (2, n)), gains(own, 2)) for own in keeps)
    return JoinedBlock(axes, hides, rng.integers(2, 9, n), layers, gains(kept, totals), 3, 4)


def fit_by_hand(fit, problem, strategy, noise="laplace"):
    """A fit with another problem and strategy."""
    derived = certificate(strategy, problem, noise=noise, proof=None)
    changed = {"problem": problem, "strategy": strategy, "certificate": derived, "proof": None}
    return replace(fit, **changed, reached={}, trace=(), status="finished")


def honest_pool(folder):
    """Write the honest bundles; return their files by name."""
    paths = {name: fit.save(Path(folder) / f"{name}.bf") for name, fit in honest_fits().items()}
    return {name: {file.name: file.read_bytes() for file in sorted(path.iterdir())} for name, path in paths.items()}


@dataclass
class Draft:
    """A bundle that is being forged: JSON as records, archives as arrays."""

    manifest: dict
    certificate: dict
    archives: dict
    raw: dict = field(default_factory=dict)
    """Whole files, in the place of what they would be."""
    members: dict = field(default_factory=dict)
    """Further members of an archive: (name, bytes)."""
    links: dict = field(default_factory=dict)
    pieces: list = field(default_factory=list)
    """Edits of the manifest's text: (old, new), for JSON that no writer makes."""
    done: list = field(default_factory=list)

    @property
    def strategy(self):
        return self.archives[next(name for name in KEPT if name in self.archives)]

    @property
    def has_blocks(self):
        return "blocks.npz" in self.archives

    @property
    def has_sum(self):
        return self.has_blocks and ("b0_hides" in self.strategy or self.has_joined)

    @property
    def has_joined(self):
        return self.has_blocks and "joined" in self.strategy

    @property
    def has_tree(self):
        return "tree.npz" in self.archives or self.has_groups

    @property
    def has_groups(self):
        return "grouped_tree.npz" in self.archives

    @property
    def has_tree_sum(self):
        return "tree_sum.npz" in self.archives

    @property
    def policy(self):
        return self.archives["policy.npz"]


def opened(files):
    """Return a draft of a bundle's files."""
    archives = {name: arrays(content) for name, content in files.items() if name.endswith(".npz")}
    return Draft(json.loads(files["manifest.json"]), json.loads(files["certificate.json"]), archives)


def arrays(content):
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        return {key: held[key].copy() for key in held.files}


def packed(held, more=()):
    """Return an archive; member by member, so that names may be repeated and arrays may be anything."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about repeated names
        for name, array in [*held.items(), *more]:
            archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else saved(array))
    return buffer.getvalue()


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def write(draft, folder):
    """Write a forged bundle, with sums that agree."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: packed(held, draft.members.get(name, ())) for name, held in draft.archives.items()}
    files["certificate.json"] = json.dumps(draft.certificate).encode()
    files |= draft.raw
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "manifest.json"}
    text = json.dumps({**draft.manifest, "files": sums})
    for old, new in draft.pieces:
        text = text.replace(old, new, 1)
    files.setdefault("manifest.json", text.encode())
    for name, content in files.items():
        if name in draft.links:
            (folder.parent / f"{folder.name}-{name}").write_bytes(content)
            (folder / name).symlink_to(folder.parent / f"{folder.name}-{name}")
        else:
            (folder / name).write_bytes(content)
    return folder


def with_claims(draft, folder):
    """Let the package derive what it would claim of the forged strategy, and claim that; as far as it goes."""
    for status in (draft.manifest.get("status"), "exact", "finished"):
        trial = copy.deepcopy(draft)
        trial.manifest |= {"status": status, "trace": [], "reached": {}}
        try:
            made, _ = loading.check(write(trial, Path(folder) / f"trial-{status}"))
        except Exception:  # noqa: BLE001 - whatever it is, the test proper will see it
            continue
        claims = {k: v for k, v in made._claims().items() if k not in ("trace", "reached", "options")}
        certificate = made.certificate.as_dict()
        trial.manifest |= {**claims, "sensitivity_exact": certificate["sensitivity_exact"], "bits": certificate["bits"]}
        trial.manifest["status"] = "finished" if made.status == "converged" else made.status
        trial.certificate = certificate
        return trial
    return draft


@dataclass
class Forged:
    """A forged bundle and how it came about."""

    seed: int
    origin: str
    done: list
    folder: Path

    def __str__(self):
        return f"seed {self.seed}: {self.origin}, {'; '.join(self.done)}"


def forge(seed, pool, folder, *, origins=None):
    """Forge one bundle, from any of the pool or from some of them."""
    rng = np.random.default_rng(seed)
    origin = str(rng.choice(sorted(origins or pool)))
    draft = opened(pool[origin])
    others = [files for name, files in sorted(pool.items()) if name != origin]
    kinds = tricks.SUBTLE if rng.random() < 0.7 else tricks.ALL
    kinds = [*tree_tricks.ALL, *kinds] if draft.has_tree else kinds
    kinds = [*tree_tricks.OF_GROUPS * 2, *kinds] if draft.has_groups else kinds
    kinds = [*part_tricks.ALL * 2, *kinds] if draft.has_tree_sum else kinds
    kinds = [*noise_tricks.ALL, *kinds] if draft.has_sum else kinds
    kinds = [*joined_tricks.ALL * 2, *kinds] if draft.has_joined else kinds
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        trick = kinds[int(rng.integers(len(kinds)))]
        try:
            with np.errstate(all="ignore"):
                said = trick(draft, rng, others)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError, ZeroDivisionError):
            continue  # an earlier trick has left nothing for this one
        draft.done.append(f"{trick.__name__}{'' if said is None else f' {said}'}")
    if rng.random() < 0.7:
        draft = with_claims(draft, Path(folder) / f"claims-{seed}")
        draft.done.append("claims derived")
    return Forged(seed, origin, draft.done, write(draft, Path(folder) / f"forged-{seed}.bf"))
