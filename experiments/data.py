"""The histograms of the paper's Table 1, or synthetic stand-ins of the same domain, scale and share of empty cells.

The real ones are read from `../shared/data` beside the project, or from the folder that HDMM_BF_DATA names; they are
never copied. Everything computed from a stand-in says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray


class Source(NamedTuple):
    """A data set as Table 1 describes it; the share of empty cells is that of the file we have."""

    file: str
    sizes: tuple[int, ...]
    records: int
    percent_empty: float


SOURCES = {
    "A": Source("patent", (4096,), 27_948_226, 6.20),
    "B": Source("income", (4096,), 20_787_122, 44.97),
    "C": Source("hepth", (4096,), 347_414, 21.17),
    "D": Source("searchlogs", (4096,), 335_889, 51.03),
    "E": Source("nettrace", (4096,), 25_714, 96.61),
    "F": Source("adult", (4096,), 17_665, 98.00),
    "G": Source("medcost", (4096,), 9_415, 74.80),
    "T25": Source("twitter25", (25, 25), 193_563, 43.20),
    "T50": Source("twitter50", (50, 50), 193_563, 69.48),
    "T100": Source("twitter100", (100, 100), 193_563, 85.09),
}
LINES, GRIDS = tuple("ABCDEFG"), ("T25", "T50", "T100")


def folder() -> Path:
    """Return where the real data would be."""
    named = os.environ.get("HDMM_BF_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


def origin(name: str) -> str:
    """Return "real" if the file of a data set is there, else "synthetic"."""
    return "real" if (folder() / f"{SOURCES[name].file}.npy").is_file() else "synthetic"


def counts(name: str, num_cells: int | None = None) -> NDArray[np.int64]:
    """Return a histogram, cells row by row, aggregated to `num_cells` equal intervals if given."""
    full = _read(name) if origin(name) == "real" else stand_in(name)
    return full if num_cells in (None, full.size) else full.reshape(num_cells, -1).sum(axis=1)


def _read(name: str) -> NDArray[np.int64]:
    source = SOURCES[name]
    array = np.load(folder() / f"{source.file}.npy", allow_pickle=False)
    if array.shape != source.sizes:
        raise ValueError(f"{source.file}.npy has shape {array.shape}, not {source.sizes}. Check HDMM_BF_DATA.")
    return np.asarray(array, dtype=np.int64).ravel()


def stand_in(name: str) -> NDArray[np.int64]:
    """Return a made-up histogram: as many cells, records and empty cells, in clusters, with a heavy tail.

    Guarantees:
        The size and the total are those of `SOURCES`; the share of empty cells is too, to half a cell.
    """
    source = SOURCES[name]
    rng = np.random.default_rng(crc32(name.encode()))
    n = int(np.prod(source.sizes))
    filled = n - round(n * source.percent_empty / 100)
    hills = np.cumsum(rng.normal(size=n))  # neighbouring cells are alike
    chosen = np.argsort(hills + rng.normal(scale=np.std(hills) / 4, size=n))[n - filled :]
    weights = np.exp(hills[chosen] / np.std(hills)) * rng.lognormal(size=filled)
    made = np.zeros(n, dtype=np.int64)
    made[chosen] = 1 + rng.multinomial(source.records - filled, weights / weights.sum())
    return made
